//! Ids of documents in the notation of paths, of the command line and of its tables.
//!
//! ```text
//! order-7                        a text
//! 7                              a number
//! 65a1b2c3d4e5f60718293a4b       an ObjectId
//! "7"  {"$uuid": ".."}           anything else, and texts that look like the above: Extended JSON
//! ```

#[cfg(test)]
mod tests;

use std::str::FromStr;

use bson::Bson;
use bson::oid::ObjectId;
use serde_json::Value;

/// The `_id` of a document.
#[derive(Clone, Debug, PartialEq)]
pub struct Id(pub Bson);

impl FromStr for Id {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("the id is empty".to_owned());
        }
        if let Ok(id) = ObjectId::parse_str(text) {
            return Ok(Id(Bson::ObjectId(id)));
        }
        match serde_json::from_str::<Value>(text) {
            Ok(value) => Bson::try_from(value).map(Id).map_err(|error| format!("'{text}' is not an id: {error}")),
            // A text that begins like JSON is meant as JSON.
            Err(error) if text.starts_with(['{', '[', '"']) => Err(format!("'{text}' is not an id: {error}")),
            Err(_) => Ok(Id(Bson::String(text.to_owned()))),
        }
    }
}

/// Returns an id in the notation that [`Id`] reads.
pub fn shown(id: &Bson) -> String {
    match id {
        Bson::ObjectId(id) => id.to_hex(),
        Bson::String(text) if text.parse() == Ok(Id(id.clone())) => text.clone(),
        other => extended(other).to_string(),
    }
}

/// Returns a value as relaxed Extended JSON.
pub fn extended(value: &Bson) -> Value {
    value.clone().into_relaxed_extjson()
}
