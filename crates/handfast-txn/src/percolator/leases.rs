//! Leases of processes that read snapshots older than the retention.
//!
//! ```text
//! handfast.leases   { _id: "leases", v: 12, held: [
//!                       { id: <UUID>, at: <the oldest start in use>, ttl: <ms>, n: <heartbeats> } ] }
//! ```
//!
//! A process has a lease while it has an old snapshot (see [`super::history_lease`]). While the lease exists, the collector keeps all that a
//! reader at `at` needs. It first removes a lease that it has seen unchanged for its whole `ttl`, by its own monotonic clock, and then
//! removes history. So a reader that finds its lease after a read knows that the history was complete.
//!
//! All leases are in one document, so that no request that arrives late or twice restores a removed one.
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

/// The most leases: an entry takes some 80 bytes, and each heartbeat writes all of them.
const LEASES_MAX: usize = 10_000;

/// A unique id of a lease.
pub(super) type LeaseId = [u8; 16];

/// The lease of one process.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Lease {
    id: LeaseId,
    /// The oldest snapshot that it keeps.
    at: Timestamp,
    /// The time for which it is respected without a heartbeat.
    ttl: Duration,
    /// The number of heartbeats.
    signs: u64,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Leases {
    version: u64,
    held: Vec<Lease>,
}

impl Leases {
    /// Returns the oldest snapshot of each lease.
    pub(super) fn snapshots(&self) -> impl Iterator<Item = Timestamp> {
        self.held.iter().map(|lease| lease.at)
    }

    /// Returns whether a lease exists and keeps a snapshot.
    pub(super) fn keeps(&self, id: LeaseId, snapshot: Timestamp) -> bool {
        self.held.iter().any(|lease| lease.id == id && lease.at <= snapshot)
    }

    /// Takes a lease, or extends it further back. The caller has to check that it was in time.
    ///
    /// # Errors
    /// `ExceededMemoryLimit` (146) beyond the bound on leases.
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

    /// Renews a lease of a process that reads nothing below `at` any more. Returns `false` if the lease does not exist, or does not reach that far
    /// back.
    pub(super) fn renew(&mut self, id: LeaseId, at: Timestamp) -> bool {
        let found = self.held.iter_mut().find(|lease| lease.id == id && lease.at <= at);
        found.map(|lease| (lease.at, lease.signs) = (at, lease.signs + 1)).is_some()
    }

    /// Releases a lease.
    pub(super) fn leave(&mut self, id: LeaseId) {
        self.held.retain(|lease| lease.id != id);
    }

    /// Removes leases that are unchanged since they were seen.
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

/// Watches leases for heartbeats: each with the moment since which it is unchanged, on this process's monotonic clock.
#[derive(Debug, Default)]
pub(super) struct LeaseWatch {
    since: HashMap<LeaseId, (Lease, Duration)>,
}

impl LeaseWatch {
    /// Returns the leases that were unchanged for their whole lifetime. They were read between the two moments.
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
