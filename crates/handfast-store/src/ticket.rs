//! Exactly-once writes: a write with a ticket is applied once, however often it is sent.
//!
//! A client that gets no answer to a write cannot know whether it was applied. A [`Ticket`] names the write: session,
//! number of the request in the session, index of the statement in the request. The store records the result under that name *in
//! the same atomic step as the write itself*, and looks for it, in that step, before it writes. So a repeated write returns the
//! first result, also after a crash, and whichever of two attempts arrives first.
//!
//! ```text
//! session 7f.., request 12:   {update: .., updates: [A, B]}          tickets (7f.., 12, 0) and (7f.., 12, 1)
//!   first attempt             A: write A + result of A              the server is killed; the reply never leaves
//!   second attempt            A: result of A, nothing written       B: write B + result of B
//! ```
//!
//! Records are documents of the collection [`TICKETS_COLLECTION`] of the database [`TICKETS_DATABASE`], where MongoDB has
//! them too. The next request of a session replaces the record of the one before, so a session leaves one record, or one
//! per [`STATEMENTS_PER_RECORD`] statements of its largest request:
//!
//! ```text
//! {_id: {session: UUID, part: 0}, number: 12, at: <date>, results: [{statement: 0, result: {..}}, ..]}
//! ```
//!
//! An entry of a find-and-modify also says which document it `asked` for; a repetition that asks for another one is refused.
//!
//! `at` is the [`steady_now`](crate::Sources::steady_now) of the writing process, which gives the age of the records of one run
//! even if the clock was set in between.
//!
//! A write without effect (no document matched, a duplicate key) leaves no record, as it may be repeated.
//!
//! The result of a find-and-modify contains the document that it returned. So a record may exceed the 16 MiB of a document, and its
//! depth, by the frame around the value: a few hundred bytes and [`NESTING_OF_RECORD`] levels, as MongoDB allows for internal
//! documents. Stores write records without [`check_size`](crate::insertion::check_size).
//!
//! Source: the seeds' question of the lost answer (seed 4), MongoDB's retryable writes (spec: server).

use bson::raw::cstr;
use bson::spec::BinarySubtype;
use bson::{Binary, DateTime, RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf, rawdoc};
use handfast_mql::Code;

use crate::{
    Changed, CommitTimestamp, Deleted, Error, FindAndModifyOutcome, Inserted, Namespace, Result, ReturnDocument,
};

#[cfg(test)]
mod tests;

/// The database of the records.
pub const TICKETS_DATABASE: &str = "config";
/// The collection of the records.
pub const TICKETS_COLLECTION: &str = "transactions";
/// The number of levels of documents and arrays that a record puts around a result.
pub const NESTING_OF_RECORD: usize = 5;
/// The number of statements whose results share a record. Each statement rewrites its record, so a request of many statements
/// must not keep all results in one.
pub const STATEMENTS_PER_RECORD: u32 = 64;

/// The name of one write of one session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket {
    /// The UUID of the session.
    pub session: [u8; 16],
    /// The ascending number of the request in the session, MongoDB's `txnNumber`.
    pub number: i64,
    /// The index of the statement in the request, from 0, MongoDB's `stmtId`.
    pub statement: u32,
    /// The document that the request returns, which must be the same in a repetition.
    pub requested: RequestedDocument,
}

/// The document that a request with a ticket returns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum RequestedDocument {
    /// The request returns no document, so its result fits every request of its kind.
    #[default]
    Nothing,
    /// The document that a find-and-modify removes.
    Removed,
    /// The document that a find-and-modify changes.
    Changed {
        /// The version of the document.
        returns: ReturnDocument,
        /// Whether the document may be inserted.
        upsert: bool,
    },
}

impl RequestedDocument {
    /// Returns the name in the record.
    fn name(self) -> Option<&'static str> {
        match self {
            RequestedDocument::Nothing => None,
            RequestedDocument::Removed => Some("removed"),
            RequestedDocument::Changed { returns: ReturnDocument::Before, .. } => Some("before"),
            RequestedDocument::Changed { returns: ReturnDocument::After, .. } => Some("after"),
        }
    }

    /// Refuses a repetition that asks for another document than the recorded one, with the codes of MongoDB, which compares
    /// nothing else.
    fn check(self, entry: &RawDocument, result: &RawDocument) -> Result<()> {
        // There is no `asked` if the first request was of another kind: its result does not fit either.
        let Ok(first) = entry.get_str("asked") else { return Ok(()) };
        let is_insert = result.get_document("found").is_ok_and(|found| matches!(found.get("upserted"), Ok(Some(_))));
        let (code, why) = match (first, self) {
            (_, RequestedDocument::Nothing) => return Ok(()),
            ("removed", RequestedDocument::Removed) => return Ok(()),
            ("removed", RequestedDocument::Changed { .. }) => {
                (40_606, "a document was removed, and this one asks for a change")
            }
            (_, RequestedDocument::Changed { upsert: false, .. }) if is_insert => {
                (40_608, "a document was inserted, and this one asks for a change only")
            }
            (_, RequestedDocument::Removed) => (40_609, "a document was changed, and this one asks for a removal"),
            (first, asked) if Some(first) == asked.name() => return Ok(()),
            ("before", _) => (40_611, "it wants the document after the change, and the one before is stored"),
            (_, _) => (40_612, "it wants the document before the change, and the one after is stored"),
        };
        let text =
            format!("findAndModify retry request is not compatible with the one that had its number first: {why}");
        Err(Error::command(Code(code), text))
    }
}

impl Ticket {
    /// Returns the ticket of a later statement of the same request.
    #[must_use]
    pub fn of_statement(self, places_on: usize) -> Self {
        let places_on = u32::try_from(places_on).unwrap_or(u32::MAX);
        Ticket { statement: self.statement.saturating_add(places_on), ..self }
    }

    /// Returns the ticket with another requested document.
    #[must_use]
    pub fn requesting(self, requested: RequestedDocument) -> Self {
        Ticket { requested, ..self }
    }

    /// Returns the collection of the records. It does not fail, as the name is valid.
    pub fn namespace() -> Result<Namespace> {
        Namespace::new(TICKETS_DATABASE, TICKETS_COLLECTION)
    }

    /// Returns the `_id` of the record that has the result, if there is one.
    pub fn record_id(&self) -> RawBson {
        let session = Binary { subtype: BinarySubtype::Uuid, bytes: self.session.to_vec() };
        let part = i64::from(self.statement / STATEMENTS_PER_RECORD);
        RawBson::Document(rawdoc! { "session": session, "part": part })
    }

    /// Returns the result that a record has for this ticket.
    ///
    /// # Errors
    /// `TransactionTooOld` (225) if the record is of a later request of the session; 40606, 40608, 40609, 40611 or 40612 if the
    /// result is that of a find-and-modify that asked for another document.
    pub fn result(&self, record: &RawDocument) -> Result<Option<RawDocumentBuf>> {
        let number = number_of(record)?;
        if number > self.number {
            let text = format!(
                "cannot run request {} of this session: a later one with number {number} has already begun",
                self.number
            );
            return Err(Error::command(Code::TransactionTooOld, text));
        }
        if number < self.number {
            return Ok(None);
        }
        for element in record.get_array("results").map_err(damaged)? {
            let Ok(RawBsonRef::Document(entry)) = element else { return Err(damaged("a result is no document")) };
            if entry.get_i64("statement").map_err(damaged)? == i64::from(self.statement) {
                let result = entry.get_document("result").map_err(damaged)?;
                self.requested.check(entry, result)?;
                return Ok(Some(result.to_owned()));
            }
        }
        Ok(None)
    }

    /// Returns the record with one more result, to be stored in the same step as the write.
    ///
    /// # Errors
    /// Fails if the record is damaged.
    pub fn record(&self, before: Option<&RawDocument>, result: &RawDocument, now: DateTime) -> Result<RawDocumentBuf> {
        let mut results = self.results_before(before)?;
        let mut entry = rawdoc! { "statement": i64::from(self.statement), "result": result.to_owned() };
        if let Some(asked) = self.requested.name() {
            entry.append(cstr!("asked"), asked);
        }
        results.push(entry);
        Ok(rawdoc! { "_id": self.record_id(), "number": self.number, "at": now, "results": results })
    }

    /// Returns the record of a request that has no further result.
    ///
    /// # Errors
    /// Fails if the record is damaged.
    pub fn begun(&self, before: Option<&RawDocument>, now: DateTime) -> Result<RawDocumentBuf> {
        let results = self.results_before(before)?;
        Ok(rawdoc! { "_id": self.record_id(), "number": self.number, "at": now, "results": results })
    }

    /// Returns the recorded results of the same request.
    fn results_before(&self, before: Option<&RawDocument>) -> Result<RawArrayBuf> {
        let mut results = RawArrayBuf::new();
        if let Some(before) = before
            && number_of(before)? == self.number
        {
            for entry in before.get_array("results").map_err(damaged)? {
                results.push(entry.map_err(damaged)?);
            }
        }
        Ok(results)
    }
}

/// Returns whether a record is newer than another with the same `_id`: it is of a later request of the session, or has more
/// statements of the same one. A restore that merges records keeps the newer one.
///
/// # Errors
/// Fails if one of the records is damaged.
pub fn tells_more(record: &RawDocument, than: &RawDocument) -> Result<bool> {
    let extent = |record: &RawDocument| -> Result<(i64, usize)> {
        Ok((number_of(record)?, record.get_array("results").map_err(damaged)?.into_iter().count()))
    };
    Ok(extent(record)? > extent(than)?)
}

/// Returns the `_id` of the record of forgotten outcomes, which has no UUID of a session. The record is never deleted, and the one
/// with the higher number is the newer one, as with other records.
///
/// ```text
/// {_id: {session: "forgotten", part: 0}, number: <the newest commit whose outcome was forgotten>, results: []}
/// ```
pub fn forgotten_id() -> RawBson {
    RawBson::Document(rawdoc! { "session": "forgotten", "part": 0_i64 })
}

/// Returns the update that records that the outcomes up to this commit are going to be forgotten.
pub fn forgotten(newest: CommitTimestamp) -> RawDocumentBuf {
    let newest = i64::try_from(newest.0).unwrap_or(i64::MAX);
    rawdoc! { "$max": { "number": newest }, "$setOnInsert": { "results": [] } }
}

/// Returns the newest forgotten outcome of the record.
///
/// # Errors
/// Fails if the record is damaged.
pub fn forgotten_up_to(record: &RawDocument) -> Result<CommitTimestamp> {
    Ok(CommitTimestamp(u64::try_from(number_of(record)?).map_err(damaged)?))
}

/// Checks that a request with a ticket has no statement that changes several documents, as there would be no single step to store
/// its result in.
///
/// # Errors
/// `InvalidOptions` (72).
pub fn check_statements(ticket: Option<Ticket>, multi: impl IntoIterator<Item = bool>) -> Result<()> {
    if ticket.is_some() && multi.into_iter().any(|multi| multi) {
        return Err(Error::command(Code::InvalidOptions, "Cannot use retryable writes with multi=true"));
    }
    Ok(())
}

/// The result of a write in the form of its record.
pub trait Recorded: Sized {
    /// Returns the result; `None` if the write had no effect, so that it may be repeated.
    fn to_result(&self) -> Option<RawDocumentBuf>;

    /// Restores the value from its result.
    ///
    /// # Errors
    /// Fails if the result is damaged; returns `IncompleteTransactionHistory` (217) for the result of another kind of write.
    fn from_result(result: &RawDocument) -> Result<Self>;
}

impl Recorded for CommitTimestamp {
    fn to_result(&self) -> Option<RawDocumentBuf> {
        Some(rawdoc! { "committed": i64::try_from(self.0).unwrap_or(i64::MAX) })
    }

    fn from_result(result: &RawDocument) -> Result<Self> {
        let at = result.get_i64("committed").map_err(other_kind)?;
        Ok(CommitTimestamp(u64::try_from(at).map_err(damaged)?))
    }
}

/// The result of a commit in a store that knows when its record was written, which is when it committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Committed;

impl Recorded for Committed {
    fn to_result(&self) -> Option<RawDocumentBuf> {
        Some(rawdoc! { "committed": true })
    }

    fn from_result(result: &RawDocument) -> Result<Self> {
        result.get_bool("committed").map_err(other_kind).map(|_| Committed)
    }
}

impl Recorded for Inserted {
    fn to_result(&self) -> Option<RawDocumentBuf> {
        Some(rawdoc! { "inserted": true })
    }

    fn from_result(result: &RawDocument) -> Result<Self> {
        result.get_bool("inserted").map_err(other_kind).map(|_| Inserted)
    }
}

impl Recorded for Deleted {
    fn to_result(&self) -> Option<RawDocumentBuf> {
        self.0.then(|| rawdoc! { "deleted": true })
    }

    fn from_result(result: &RawDocument) -> Result<Self> {
        result.get_bool("deleted").map_err(other_kind).map(Deleted)
    }
}

impl Recorded for Changed {
    fn to_result(&self) -> Option<RawDocumentBuf> {
        match self {
            Changed::Nothing | Changed::Same => None,
            Changed::Modified => Some(rawdoc! { "modified": true }),
            Changed::Upserted(id) => Some(rawdoc! { "upserted": id.clone() }),
        }
    }

    fn from_result(result: &RawDocument) -> Result<Self> {
        match result.get("upserted").map_err(damaged)? {
            Some(id) => Ok(Changed::Upserted(id.into())),
            None => result.get_bool("modified").map_err(other_kind).map(|_| Changed::Modified),
        }
    }
}

impl Recorded for FindAndModifyOutcome {
    fn to_result(&self) -> Option<RawDocumentBuf> {
        if !self.matched && self.upserted.is_none() {
            return None;
        }
        let mut found = RawDocumentBuf::new();
        if let Some(value) = &self.value {
            found.append(cstr!("value"), value.clone());
        }
        if let Some(id) = &self.upserted {
            found.append(cstr!("upserted"), id.clone());
        }
        Some(rawdoc! { "found": found })
    }

    fn from_result(result: &RawDocument) -> Result<Self> {
        let found = result.get_document("found").map_err(other_kind)?;
        let value = match found.get("value").map_err(damaged)? {
            Some(RawBsonRef::Document(value)) => Some(value.to_owned()),
            _ => None,
        };
        let upserted = found.get("upserted").map_err(damaged)?.map(RawBson::from);
        Ok(FindAndModifyOutcome { value, matched: upserted.is_none(), upserted })
    }
}

/// Returns the error for a number that the session has used for another kind of request. The cause is not shown.
fn other_kind(_: impl std::fmt::Display) -> Error {
    let text = "the number of this request was used for another kind of request in the same session";
    Error::command(Code::IncompleteTransactionHistory, text)
}

fn number_of(record: &RawDocument) -> Result<i64> {
    record.get_i64("number").map_err(damaged)
}

fn damaged(why: impl std::fmt::Display) -> Error {
    let text = format!("a record of {TICKETS_DATABASE}.{TICKETS_COLLECTION} is not what a store wrote: {why}");
    Error::command(Code::InternalError, text)
}
