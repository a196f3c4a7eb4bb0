//! Events as documents: in the queue of a directory, and in the record of a batch.

use bson::{RawArrayBuf, RawBson, RawDocument, rawdoc};
use jiff::civil::Date;

use crate::{Change, Event, ItemId};

/// Returns the documents of events, without their numbers.
pub(crate) fn written(events: &[Event]) -> RawArrayBuf {
    // Most events of a queue are of one day, whose text is made once.
    let mut last_day: Option<(Date, String)> = None;
    let documents = events.iter().map(|Event { id, change, .. }| match change {
        Change::Views { views, day } => {
            if last_day.as_ref().is_some_and(|(last, _)| last != day) {
                last_day = None;
            }
            let (_, day) = last_day.get_or_insert_with(|| (*day, day.to_string()));
            rawdoc! { "id": id.as_str(), "views": i64::from(*views), "day": day.as_str() }
        }
        Change::Delete => rawdoc! { "id": id.as_str(), "deleted": true },
    });
    documents.map(RawBson::Document).collect()
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
