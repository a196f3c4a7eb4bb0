//! Leases: who reads below the point up to which history would be forgotten.
//!
//! ```text
//! handfast.leases   { _id: "leases", v: 12, held: [
//!                       { id: <UUID>, at: <the oldest start in use>, ttl: <ms>, n: <signs of life> } ] }
//! ```
//!
//! A process has one while a snapshot of it is old (see [`super::history_lease`]). The collector forgets nothing that a reader at
//! `at` needs, for as long as the lease is there. It takes a lease away that it has seen unchanged for its whole `ttl`, by
//! its own stopwatch alone; and only then it forgets. So the lease itself is what a reader looks at: what was read while it
//! was there, nobody had forgotten.
//!
//! All of them stand in one document, so that no request that arrives late or twice brings back one that was taken away.
//!
//! Source: spec: transactions, "a safe point below every live transaction"; docs/decisions/0016-leases.md.

use std::collections::HashMap;
use std::time::Duration;

use bson::spec::BinarySubtype;
use bson::{Binary, RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf, rawdoc};
use handfast_mql::Code;
use handfast_store::{Error as StoreError, Result as StoreResult};

use super::row::Timestamp;
use super::versioned_document::{VersionedDocument, number, signed};

#[cfg(test)]
mod tests;

/// Leases at a time: an entry takes some 80 bytes, and each sign of life writes all of them.
const LEASES_MAX: usize = 10_000;

/// Tells a lease from all others there ever were.
pub(super) type LeaseId = [u8; 16];

/// What one process reads.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Lease {
    id: LeaseId,
    /// The oldest snapshot that it keeps.
    at: Timestamp,
    /// How long it is respected without a sign of life.
    ttl: Duration,
    /// Signs of life so far.
    signs: u64,
}

/// All leases.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Leases {
    version: u64,
    held: Vec<Lease>,
}

impl Leases {
    /// The oldest snapshot of each process that keeps some.
    pub(super) fn snapshots(&self) -> impl Iterator<Item = Timestamp> {
        self.held.iter().map(|lease| lease.at)
    }

    /// Whether this lease is there, and keeps a snapshot.
    pub(super) fn keeps(&self, id: LeaseId, snapshot: Timestamp) -> bool {
        self.held.iter().any(|lease| lease.id == id && lease.at <= snapshot)
    }

    /// Takes a lease, or has it reach further back. Who does so has to look whether it was in time.
    ///
    /// # Errors
    /// `ExceededMemoryLimit` (146) for one too many.
    pub(super) fn take(&mut self, id: LeaseId, at: Timestamp, ttl: Duration) -> StoreResult<()> {
        self.leave(id);
        if self.held.len() >= LEASES_MAX {
            let text = format!(
                "more than {LEASES_MAX} processes read old snapshots of the store: end what they have had open for long"
            );
            return Err(StoreError::command(Code::ExceededMemoryLimit, text));
        }
        self.held.push(Lease { id, at, ttl, signs: 0 });
        Ok(())
    }

    /// A sign of life, from a process that reads nothing below this any more. `false` if the lease is not there, or does not
    /// reach that far back.
    pub(super) fn renew(&mut self, id: LeaseId, at: Timestamp) -> bool {
        let found = self.held.iter_mut().find(|lease| lease.id == id && lease.at <= at);
        found.map(|lease| (lease.at, lease.signs) = (at, lease.signs + 1)).is_some()
    }

    /// Gives a lease up.
    pub(super) fn leave(&mut self, id: LeaseId) {
        self.held.retain(|lease| lease.id != id);
    }

    /// Takes leases away that are still as they were seen.
    pub(super) fn remove(&mut self, dead: &[Lease]) {
        self.held.retain(|lease| !dead.contains(lease));
    }
}

impl VersionedDocument for Leases {
    const NAME: &'static str = "leases";

    fn version(&self) -> u64 {
        self.version
    }

    fn next(&self) -> Self {
        Leases { version: self.version + 1, held: self.held.clone() }
    }

    fn is_same(&self, other: &Self) -> bool {
        self.held == other.held
    }

    fn from_document(document: &RawDocument) -> StoreResult<Self> {
        let mut held = Vec::new();
        for entry in document.get_array("held").map_err(damaged)? {
            let RawBsonRef::Document(entry) = entry.map_err(damaged)? else { return Err(damaged("a lease is none")) };
            let id = entry.get_binary("id").map_err(damaged)?.bytes;
            held.push(Lease {
                id: LeaseId::try_from(id).map_err(damaged)?,
                at: Timestamp(number(entry, "at").map_err(damaged)?),
                ttl: Duration::from_millis(number(entry, "ttl").map_err(damaged)?),
                signs: number(entry, "n").map_err(damaged)?,
            });
        }
        Ok(Leases { version: number(document, "v").map_err(damaged)?, held })
    }

    fn to_document(&self) -> RawDocumentBuf {
        let entry = |lease: &Lease| {
            RawBson::Document(rawdoc! {
                "id": Binary { subtype: BinarySubtype::Uuid, bytes: lease.id.to_vec() },
                "at": lease.at.stored(),
                "ttl": i64::try_from(lease.ttl.as_millis()).unwrap_or(i64::MAX),
                "n": signed(lease.signs),
            })
        };
        let held: RawArrayBuf = self.held.iter().map(entry).collect();
        rawdoc! { "_id": Leases::NAME, "v": signed(self.version), "held": held }
    }
}

/// Leases that are being watched for signs of life, each with since when it has been as it is, on our own stopwatch.
#[derive(Debug, Default)]
pub(super) struct LeaseWatch {
    since: HashMap<LeaseId, (Lease, Duration)>,
}

impl LeaseWatch {
    /// The leases that have been as they are now for their whole time: looked up between these two moments.
    pub(super) fn dead(&mut self, leases: &Leases, asked: Duration, answered: Duration) -> Vec<Lease> {
        let (mut since, mut dead) = (HashMap::new(), Vec::new());
        for lease in &leases.held {
            let watched = self.since.remove(&lease.id).filter(|(seen, _)| seen == lease);
            let (lease, first) = watched.unwrap_or_else(|| (lease.clone(), answered));
            if asked.saturating_sub(first) >= lease.ttl {
                dead.push(lease.clone());
            }
            since.insert(lease.id, (lease, first));
        }
        self.since = since;
        dead
    }
}

fn damaged(why: impl std::fmt::Display) -> StoreError {
    StoreError::command(Code::InternalError, format!("the document of leases is not what Handfast writes: {why}"))
}
