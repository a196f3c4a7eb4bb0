//! Collections that are closed, as they are being dropped or renamed: nobody commits in them.
//!
//! ```text
//! handfast.catalog   { .., closed: [
//!                        { id: <UUID>, of: ["shop.items"], alive: <timestamp> },             nobody commits in it
//!                        { id: <UUID>, of: ["attic"], alive: <timestamp>, until: 9 } ],      who began before 9 does not
//!                      opened: 4 }                                                           who began before 4, nowhere
//! ```
//!
//! A collection that goes away takes with it what was decided in its rows, and that other rows may have to ask for. So whoever drops
//! or renames one closes it first, and waits for the locks that are decided there:
//!
//! ```text
//! catalog: closed             who fetches a commit timestamp from here on is told, and has a conflict
//! locks decided there         of those who have fetched theirs before: all their locks are written. Each is resolved, or waited for
//! the store drops, renames    one step
//! catalog: open               for transactions that begin from here on
//! ```
//!
//! It costs a commit nothing: each timestamp brings the version of the catalog that is in force ([`super::catalog`]), and only when
//! that is another one than at the beginning of the transaction is it looked up what has changed.
//!
//! A transaction that began before the collection was open again has read what is not there any more: it has a conflict, too. So those
//! that are over are remembered, up to [`OVER_MAX`] of them; who began before the last that was forgotten has a conflict wherever
//! he writes.
//!
//! What if the process dies, or its request may be carried out at any time: the collection stays closed for as long as that can be, by the
//! oracle's time, and is opened by a cleaner.
//!
//! Source: docs/decisions/0022-closed-collections.md.

use std::time::Duration;

use bson::raw::cstr;
use bson::spec::BinarySubtype;
use bson::{Binary, RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf, rawdoc};
use handfast_mql::Code;
use handfast_store::{Error as StoreError, Namespace, Result as StoreResult};

use super::core::conflict;
use super::row::Timestamp;
use super::whole::{number, signed};

#[cfg(test)]
mod tests;

/// Closings that are over and remembered: of some 80 bytes, in a document that each of them writes. Who is concerned by one more
/// has a conflict that need not be.
const OVER_MAX: usize = 256;

/// Tells a closing from all others there ever were.
pub(super) type ClosingId = [u8; 16];

/// What is dropped or renamed.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Part {
    Collection(Namespace),
    Database(String),
}

/// One that is closed, or was.
#[derive(Clone, Debug, PartialEq)]
struct Closing {
    id: ClosingId,
    of: Vec<Part>,
    /// When it was closed.
    alive: Timestamp,
    /// The version from which on it is open again.
    until: Option<u64>,
}

/// All that are closed, and those that were.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Closures {
    closings: Vec<Closing>,
    /// The version from which on that was open of which is not remembered what it was.
    opened: u64,
}

impl Part {
    pub(super) fn holds(&self, namespace: &Namespace) -> bool {
        match self {
            Part::Collection(collection) => collection == namespace,
            Part::Database(database) => database == namespace.database(),
        }
    }

    /// A filter for the names of its collections.
    pub(super) fn names(&self) -> RawDocumentBuf {
        match self {
            Part::Collection(collection) => rawdoc! { "$eq": collection.to_string() },
            // What comes between a name and one that is longer: '/' follows '.'.
            Part::Database(database) => rawdoc! { "$gte": format!("{database}."), "$lt": format!("{database}/") },
        }
    }

    fn of_name(name: &str) -> StoreResult<Part> {
        match name.split_once('.') {
            Some((database, collection)) => Ok(Part::Collection(Namespace::new(database, collection)?)),
            None => Ok(Part::Database(name.to_owned())),
        }
    }
}

impl std::fmt::Display for Part {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Part::Collection(collection) => collection.fmt(f),
            Part::Database(database) => database.fmt(f),
        }
    }
}

impl Closures {
    /// Closes collections; once, however often it is said.
    pub(super) fn close(&mut self, id: ClosingId, of: &[Part], now: Timestamp) {
        if self.closings.iter().all(|closing| closing.id != id) {
            self.closings.push(Closing { id, of: of.to_vec(), alive: now, until: None });
        }
    }

    /// Opens what was closed, from a version on.
    pub(super) fn open(&mut self, id: ClosingId, version: u64) {
        let closing = self.closings.iter_mut().find(|closing| closing.id == id && closing.until.is_none());
        if let Some(closing) = closing {
            closing.until = Some(version);
        }
        let mut over: Vec<_> = self.closings.iter().filter_map(|closing| closing.until).collect();
        over.sort_unstable();
        if let Some(excess) = over.len().checked_sub(OVER_MAX + 1) {
            let opened = over[excess];
            self.closings.retain(|closing| closing.until.is_none_or(|until| until > opened));
            self.opened = self.opened.max(opened);
        }
    }

    /// Whether something is closed that was closed before this.
    pub(super) fn has_older(&self, than: Timestamp) -> bool {
        self.older(than).next().is_some()
    }

    /// Opens what was closed before this.
    pub(super) fn open_older(&mut self, than: Timestamp, version: u64) {
        let ids: Vec<_> = self.older(than).collect();
        for id in ids {
            self.open(id, version);
        }
    }

    fn older(&self, than: Timestamp) -> impl Iterator<Item = ClosingId> {
        let is_older = move |closing: &&Closing| closing.until.is_none() && closing.alive < than;
        self.closings.iter().filter(is_older).map(|closing| closing.id)
    }

    /// Whether a transaction that began when this version was in force may commit in a collection.
    ///
    /// # Errors
    /// `WriteConflict` (112) if not.
    pub(super) fn check(&self, namespace: &Namespace, begun: u64) -> StoreResult<()> {
        let in_the_way = |closing: &&Closing| {
            closing.until.is_none_or(|until| begun < until) && closing.of.iter().any(|part| part.holds(namespace))
        };
        if begun < self.opened || self.closings.iter().any(|closing| in_the_way(&closing)) {
            return Err(conflict(format_args!(
                "{namespace} is being dropped or renamed, or was since the transaction began"
            )));
        }
        Ok(())
    }

    /// Appends them to the catalog.
    pub(super) fn append_to(&self, document: &mut RawDocumentBuf) {
        let entry = |closing: &Closing| {
            let of: RawArrayBuf = closing.of.iter().map(|part| RawBson::String(part.to_string())).collect();
            let id = Binary { subtype: BinarySubtype::Uuid, bytes: closing.id.to_vec() };
            let mut entry = rawdoc! { "id": id, "of": of, "alive": closing.alive.stored() };
            if let Some(until) = closing.until {
                entry.append(cstr!("until"), signed(until));
            }
            RawBson::Document(entry)
        };
        if !self.closings.is_empty() {
            document.append(cstr!("closed"), self.closings.iter().map(entry).collect::<RawArrayBuf>());
        }
        if self.opened > 0 {
            document.append(cstr!("opened"), signed(self.opened));
        }
    }

    /// Those of a catalog.
    ///
    /// # Errors
    /// `InternalError` (1) if they are not what Handfast writes.
    pub(super) fn from_document(document: &RawDocument) -> StoreResult<Self> {
        let mut closings = Vec::new();
        if let Some(closed) = document.get("closed").map_err(damaged)? {
            let closed = closed.as_array().ok_or_else(|| damaged("'closed' is no array"))?;
            for entry in closed {
                let RawBsonRef::Document(entry) = entry.map_err(damaged)? else { return Err(damaged("one is none")) };
                closings.push(closing(entry)?);
            }
        }
        Ok(Closures { closings, opened: optional(document, "opened")?.unwrap_or(0) })
    }
}

fn closing(entry: &RawDocument) -> StoreResult<Closing> {
    let mut of = Vec::new();
    for name in entry.get_array("of").map_err(damaged)? {
        let name = name.map_err(damaged)?;
        of.push(Part::of_name(name.as_str().ok_or_else(|| damaged("a name is none"))?)?);
    }
    let id = entry.get_binary("id").map_err(damaged)?.bytes;
    Ok(Closing {
        id: ClosingId::try_from(id).map_err(damaged)?,
        of,
        alive: Timestamp(number(entry, "alive").map_err(damaged)?),
        until: optional(entry, "until")?,
    })
}

fn optional(document: &RawDocument, name: &str) -> StoreResult<Option<u64>> {
    let is_there = document.get(name).map_err(damaged)?.is_some();
    is_there.then(|| number(document, name).map_err(damaged)).transpose()
}

/// The quarter of the retention in which the store is asked to drop or rename what was closed; a request arrives within half of it or
/// never..
pub(super) fn to_be_sent_within(retention: Duration) -> Duration {
    retention / 4
}

/// ..so that then nothing of it is to come, and what was closed can be open.
pub(super) fn over_after(retention: Duration) -> Duration {
    retention / 4 * 3
}

fn damaged(why: impl std::fmt::Display) -> StoreError {
    StoreError::command(
        Code::InternalError,
        format!("what is closed in the catalog is not what Handfast writes: {why}"),
    )
}
