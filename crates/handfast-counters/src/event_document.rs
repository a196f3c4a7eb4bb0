//! An event as a document: in the queue of a directory, and in the record of a batch.

use bson::{RawDocument, RawDocumentBuf, rawdoc};

use crate::{Change, Event, ItemId};

/// Returns the document of an event, without its number.
pub(crate) fn written(event: &Event) -> RawDocumentBuf {
    match &event.change {
        Change::Views { views, day } => {
            rawdoc! { "id": event.id.as_str(), "views": i64::from(*views), "day": day.to_string() }
        }
        Change::Delete => rawdoc! { "id": event.id.as_str(), "deleted": true },
    }
}

/// Reads the document of an event.
///
/// # Errors
/// Says what is wrong with the document.
pub(crate) fn read(event: &RawDocument) -> Result<(ItemId, Change), String> {
    let text = |error: bson::error::Error| error.to_string();
    let id = ItemId::new(event.get_str("id").map_err(text)?).map_err(|error| error.to_string())?;
    if event.get("deleted").map_err(text)?.is_some() {
        return Ok((id, Change::Delete));
    }
    let views = u32::try_from(event.get_i64("views").map_err(text)?).map_err(|error| error.to_string())?;
    let day = event.get_str("day").map_err(text)?.parse().map_err(|error: jiff::Error| error.to_string())?;
    Ok((id, Change::Views { views, day }))
}
