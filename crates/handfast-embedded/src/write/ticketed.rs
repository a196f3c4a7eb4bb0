//! Writes with tickets: in the committer's turn, the record is looked for before the write and staged with it.
//!
//! ```text
//! operation    record of the ticket?   used:  its result is the answer, nothing is staged
//!                                      free:  the write, then the record with the result: one operation, one batch
//! ```
//!
//! An operation is all or nothing, in memory and on the disk, so there is no write without its record and no record
//! without its write. As every attempt looks in its turn, it does not matter which of two comes first, nor whether the
//! first one is synced yet: whoever answers from a record waits for the same sync.

use bson::{DateTime, RawDocument, RawDocumentBuf};
use handfast_store::ticket::Recorded;
use handfast_store::{CommitTimestamp, Result as StoreResult, Ticket};

use crate::committer::Writer;
use crate::format::StoredDocument;
use crate::keys;
use crate::store::EmbeddedStore;

/// A ticket, and what is needed to make a record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticketed {
    pub(crate) ticket: Ticket,
    uuid: [u8; 16],
    now: DateTime,
}

/// The record of a ticket, as it is in this turn.
pub(crate) struct Record {
    ticketed: Ticketed,
    stored: Option<StoredDocument>,
    /// The record is not written in this turn if it has not changed since then.
    turned_at: CommitTimestamp,
    /// With what this turn adds, if it adds anything.
    content: Option<RawDocumentBuf>,
}

impl EmbeddedStore {
    /// What a request needs to honour its ticket.
    pub(crate) fn ticketed(&self, ticket: Option<Ticket>) -> Option<Ticketed> {
        ticket.map(|ticket| Ticketed { ticket, uuid: self.uuid(), now: self.inner.sources.steady_now() })
    }
}

impl Ticketed {
    /// The same for a statement further on in the request.
    pub(crate) fn of_statement(self, places_on: usize) -> Self {
        Ticketed { ticket: self.ticket.of_statement(places_on), ..self }
    }
}

impl Record {
    /// Reads the record.
    pub(crate) fn read(writer: &Writer<'_>, ticketed: Ticketed) -> StoreResult<Self> {
        let id_key = keys::of_id(ticketed.ticket.record_id().as_raw_bson_ref());
        let stored = match writer.collection(&Ticket::namespace()?) {
            Some(records) => writer.get(records.id, &id_key)?,
            None => None,
        };
        Ok(Record { ticketed, stored, turned_at: writer.turned_at(), content: None })
    }

    /// Whether the results of a ticket are kept in this record.
    pub(crate) fn is_of(&self, ticket: Ticket) -> bool {
        self.ticketed.ticket.record_id() == ticket.record_id()
    }

    fn newest(&self) -> StoreResult<Option<&RawDocument>> {
        if let Some(content) = &self.content {
            return Ok(Some(content));
        }
        Ok(self.stored.as_ref().map(StoredDocument::document).transpose()?)
    }

    /// The result of the ticket's first use.
    ///
    /// # Errors
    /// `TransactionTooOld` (225) if the session has gone on; that the ticket was used for another kind of write.
    pub(crate) fn result<T: Recorded>(&self, ticket: Ticket) -> StoreResult<Option<T>> {
        let result = self.newest()?.map(|record| ticket.result(record)).transpose()?.flatten();
        result.map(|result| T::from_result(&result)).transpose()
    }

    /// Adds what a write did, if it did anything.
    pub(crate) fn add<T: Recorded>(&mut self, ticket: Ticket, done: &T) -> StoreResult<()> {
        if let Some(result) = done.to_result() {
            self.content = Some(ticket.record(self.newest()?, &result, self.ticketed.now)?);
        }
        Ok(())
    }

    /// Stages the record, if anything was added.
    pub(crate) fn stage(self, writer: &mut Writer<'_>) -> StoreResult<()> {
        let Some(content) = self.content else { return Ok(()) };
        let records = writer.ensure_collection(&Ticket::namespace()?, self.ticketed.uuid)?;
        let id_key = keys::of_id(self.ticketed.ticket.record_id().as_raw_bson_ref());
        // The write itself may have been to this collection.
        let stored = match writer.is_unchanged(records.id, &id_key, self.turned_at) {
            true => self.stored,
            false => writer.get(records.id, &id_key)?,
        };
        writer.put(&records, &id_key, stored.as_ref().map(StoredDocument::document).transpose()?, &content)
    }
}

/// Does a write and stages its record, unless the ticket was used: then the first result is the answer.
pub(crate) fn once<T: Recorded>(
    writer: &mut Writer<'_>,
    ticketed: Option<Ticketed>,
    write: impl FnOnce(&mut Writer<'_>) -> StoreResult<T>,
) -> StoreResult<T> {
    let Some(ticketed) = ticketed else {
        return write(writer);
    };
    let mut record = Record::read(writer, ticketed)?;
    if let Some(first) = record.result(ticketed.ticket)? {
        return Ok(first);
    }
    let done = write(writer)?;
    record.add(ticketed.ticket, &done)?;
    record.stage(writer)?;
    Ok(done)
}
