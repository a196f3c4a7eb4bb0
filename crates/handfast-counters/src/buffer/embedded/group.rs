//! A group of events as a document of the queue.

use bson::{RawArrayBuf, RawBson, RawDocument, RawDocumentBuf, rawdoc};

use crate::document_name::document_name;
use crate::event_document::{read, written};
use crate::{Error, Event, Kind, Result, SequenceNumber};

/// Events of one kind with consecutive numbers, which were written in one step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Group {
    /// The number of the first event.
    pub(super) first: SequenceNumber,
    /// The number of events that are not acknowledged.
    pub(super) unacknowledged: usize,
    /// The idempotency keys of the requests.
    pub(super) keys: Vec<String>,
}

impl Group {
    /// Returns the `_id` of a group.
    pub(super) fn id(kind: &Kind, first: SequenceNumber) -> RawDocumentBuf {
        rawdoc! { "kind": kind.as_str(), "first": i64::try_from(first).unwrap_or(i64::MAX) }
    }

    /// Returns the document of a group with these events.
    pub(super) fn document(&self, kind: &Kind, events: &[Event]) -> RawDocumentBuf {
        let mut document = rawdoc! { "_id": Group::id(kind, self.first), "events": written(events) };
        if !self.keys.is_empty() {
            let keys: RawArrayBuf = self.keys.iter().map(|key| RawBson::String(key.clone())).collect();
            document.append(bson::raw::cstr!("keys"), keys);
        }
        document
    }

    /// Reads a document of the queue.
    ///
    /// # Errors
    /// [`Error::Damaged`] for a document that the buffer has not written.
    pub(super) fn read(document: &RawDocument) -> Result<(Kind, Self, Vec<Event>)> {
        let damaged =
            |error: bson::error::Error| Error::damaged(format!("{} of the queue: {error}", document_name(document)));
        let id = document.get_document("_id").map_err(damaged)?;
        let kind = Kind::new(id.get_str("kind").map_err(damaged)?)?;
        let first = u64::try_from(id.get_i64("first").map_err(damaged)?)
            .map_err(|_| Error::damaged(format!("{} of the queue has a negative number", document_name(document))))?;
        let mut events = Vec::new();
        for event in document.get_array("events").map_err(damaged)? {
            let event = event.map_err(damaged)?.as_document();
            let event = event
                .ok_or_else(|| Error::damaged(format!("{} of the queue has no event", document_name(document))))?;
            let (id, change) = read(event).map_err(|what| Error::damaged(format!("{event:?} of the queue: {what}")))?;
            events.push(Event { number: first + events.len() as u64, id, change });
        }
        let mut keys = Vec::new();
        if document.get("keys").map_err(damaged)?.is_some() {
            for key in document.get_array("keys").map_err(damaged)? {
                keys.extend(key.map_err(damaged)?.as_str().map(str::to_owned));
            }
        }
        Ok((kind, Group { first, unacknowledged: events.len(), keys }, events))
    }
}

#[cfg(test)]
mod tests {
    use jiff::civil::date;

    use super::Group;
    use crate::{Change, Event, ItemId, Kind};

    #[test]
    fn a_group_is_read_as_it_was_written() {
        let kind = Kind::new("ads").expect("a kind");
        let id = |id| ItemId::new(id).expect("an id");
        let events = vec![
            Event { number: 7, id: id("a"), change: Change::Views { views: 3, day: date(2026, 11, 30) } },
            Event { number: 8, id: id("b"), change: Change::Delete },
        ];
        let group = Group { first: 7, unacknowledged: 2, keys: vec!["ads/a/k1".into()] };
        let read = Group::read(&group.document(&kind, &events)).expect("readable");
        assert_eq!(read, (kind, group, events));
    }
}
