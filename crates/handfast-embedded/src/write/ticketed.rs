//! Writes with tickets: the operation reads the ticket's record before the write, and stages it together with the write.
//!
//! ```text
//! operation    record of the ticket?   used:  its result is the answer, nothing is staged
//!                                      free:  the write, then the record with the result: one operation, one batch
//! ```
//!
//! An operation is atomic, in memory and on the disk, so there is no write without its record and no record without its write.
//! As the committer runs one operation after the other, the order of two attempts does not matter, nor whether the first is
//! synced yet: an answer from a record waits for the same sync.

use bson::{DateTime, RawDocument, RawDocumentBuf};
use handfast_store::ticket::Recorded;
use handfast_store::{CommitTimestamp, Result as StoreResult, Ticket, WriteKind};

use crate::committer::Writer;
use crate::format::StoredDocument;
use crate::keys;

/// A ticket, with the values for its record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TicketedWrite {
    pub(crate) ticket: Ticket,
    uuid: [u8; 16],
    now: DateTime,
}

/// The record of a ticket during an operation.
pub(crate) struct Record {
    ticketed: TicketedWrite,
    stored: Option<StoredDocument>,
    /// The state before the operation. If the record has not changed since, this operation has not written it.
    started_at: CommitTimestamp,
    /// The new record, if this operation adds a result.
    content: Option<RawDocumentBuf>,
}

impl TicketedWrite {
    pub(crate) fn new(ticket: Ticket, uuid: [u8; 16], now: DateTime) -> Self {
        TicketedWrite { ticket, uuid, now }
    }

    /// Returns the ticket of a later statement of the request.
    pub(crate) fn of_statement(self, statements_on: usize) -> Self {
        TicketedWrite { ticket: self.ticket.of_statement(statements_on), ..self }
    }
}

impl Record {
    pub(crate) fn read(writer: &Writer<'_>, ticketed: TicketedWrite) -> StoreResult<Self> {
        let id_key = keys::of_id(ticketed.ticket.record_id().as_raw_bson_ref());
        let stored = match writer.collection(&Ticket::namespace()?) {
            Some(records) => writer.get(records.id, &id_key)?,
            None => None,
        };
        Ok(Record { ticketed, stored, started_at: writer.started_at(), content: None })
    }

    /// Returns whether this record holds the results of a ticket.
    pub(crate) fn is_of(&self, ticket: Ticket) -> bool {
        self.ticketed.ticket.record_id() == ticket.record_id()
    }

    fn newest(&self) -> StoreResult<Option<&RawDocument>> {
        if let Some(content) = &self.content {
            return Ok(Some(content));
        }
        Ok(self.stored.as_ref().map(StoredDocument::document).transpose()?)
    }

    /// Returns the result of the ticket's first use.
    ///
    /// # Errors
    /// `TransactionTooOld` (225) if the session has used a later ticket; `IncompleteTransactionHistory` (217) if the ticket was
    /// used for another kind of write.
    pub(crate) fn result<T: Recorded>(&self, ticket: Ticket) -> StoreResult<Option<T>> {
        let result = self.newest()?.map(|record| ticket.result(record)).transpose()?.flatten();
        result.map(|result| T::from_result(&result)).transpose()
    }

    /// Adds the result of a write, if the write had an effect.
    pub(crate) fn add<T: Recorded>(&mut self, ticket: Ticket, done: &T) -> StoreResult<()> {
        if let Some(result) = done.to_result() {
            self.content = Some(ticket.record(self.newest()?, &result, self.ticketed.now)?);
        }
        Ok(())
    }

    /// Stages the record, if a result was added.
    pub(crate) fn stage(self, writer: &mut Writer<'_>) -> StoreResult<()> {
        let Some(content) = self.content else { return Ok(()) };
        let records = writer.ensure_collection(&Ticket::namespace()?, self.ticketed.uuid)?;
        let id_key = keys::of_id(self.ticketed.ticket.record_id().as_raw_bson_ref());
        // The write itself may have changed this collection.
        let stored = match writer.is_unchanged(records.id, &id_key, self.started_at) {
            true => self.stored,
            false => writer.get(records.id, &id_key)?,
        };
        let before = stored.as_ref().map(StoredDocument::document).transpose()?;
        writer.put(&records, &id_key, before, &content, WriteKind::default())
    }
}

/// Runs a write and stages its record, or returns the first result if the ticket was used.
pub(crate) fn once_per_ticket<T: Recorded>(
    writer: &mut Writer<'_>,
    ticketed: Option<TicketedWrite>,
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
