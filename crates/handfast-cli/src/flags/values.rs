//! The values of flags that are dates and documents.

use bson::{Bson, DateTime, Document};
use serde_json::Value;

/// Reads a date.
pub(crate) fn date(text: &str) -> Result<DateTime, String> {
    DateTime::parse_rfc3339_str(text).map_err(|_| "a date looks like 2027-01-01T09:00:00Z".to_owned())
}

/// Reads a document, as Extended JSON.
pub(crate) fn document(text: &str) -> Result<Document, String> {
    let value = serde_json::from_str::<Value>(text).map_err(|error| format!("it is no JSON: {error}"))?;
    match Bson::try_from(value).map_err(|error| error.to_string())? {
        Bson::Document(document) => Ok(document),
        other => Err(format!("it is no document, as {{\"value\": {}}} is", other.into_relaxed_extjson())),
    }
}
