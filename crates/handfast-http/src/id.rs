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
pub use handfast_patterns::extended_json;
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
            Ok(value) => {
                let id = check_numbers(&value).and_then(|()| Bson::try_from(value).map_err(|error| error.to_string()));
                id.map(Id).map_err(|error| format!("'{text}' is not an id: {error}"))
            }
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
        other => extended_json(other).to_string(),
    }
}

/// Refuses a number that may have been rounded, as one of more than 64 bits is, or a double above 2^53: two ids would become one.
///
/// # Errors
/// The text says how to write it.
pub fn check_numbers(value: &Value) -> Result<(), String> {
    /// Above it, not every whole number is an `f64` (2^53).
    const EXACT_MAX: f64 = 9_007_199_254_740_992.0;
    match value {
        Value::Number(number) if !number.is_i64() && number.as_f64().is_none_or(|number| number.abs() > EXACT_MAX) => {
            Err(format!(
                "the number {number} may have been rounded, as it is above 2^53: write {{\"$numberDouble\": \"..\"}} or {{\"$numberDecimal\": \"..\"}}"
            ))
        }
        Value::Array(values) => values.iter().try_for_each(check_numbers),
        Value::Object(fields) => fields.values().try_for_each(check_numbers),
        _ => Ok(()),
    }
}
