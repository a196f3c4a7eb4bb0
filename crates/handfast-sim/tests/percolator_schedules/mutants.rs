//! Mutants of the engine: a decorator of its store omits writes of the engine or hides documents from it. So a rule is removed from
//! the real engine without a second copy of it.

use std::sync::Arc;

use async_trait::async_trait;
use bson::raw::cstr;
use bson::{DateTime, RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf, rawdoc};
use handfast_sim::WorkloadKind;
use handfast_store::decorator::DelegatingStore;
use handfast_store::page::IteratorCursor;
use handfast_store::{
    Cursor, DocumentStore, Find, FindAndModify, FindAndModifyOutcome, Insert, InsertOutcome, MemoryStore, Namespace,
    Result, Sources, StoreExt, Update, UpdateOutcome, UpdateSpec,
};

use crate::scenario::Scenario;
use crate::scheduler::Disturbance;

/// The timestamp of an oracle whose clock is a minute ahead: more than the lifetime of a lock, and less than all retention times, so
/// that its only effect is that live locks look expired.
const A_MINUTE: i64 = 60_000 << 18;
/// The number of timestamps by which a repeating oracle goes back.
const REPEATED: i64 = 12;

/// A violated rule of the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutant {
    /// A rollback leaves no record.
    NoRollbackRecord,
    /// A row keeps only the record of the last rollback.
    CollapsedRollbackRecord,
    /// A process that resolves an expired lock does not see the outcome in its primary.
    LockTrustedFirst,
    /// The cleaner deletes old versions while locks depend on them.
    HistoryCutBeforeLocks,
    /// The oracle repeats timestamps after a restart.
    OracleRepeats,
    /// The cleaner uses its own clock, which is ahead, in place of the oracle's time.
    ExpiryByTwoClocks,
    /// A read ignores locks.
    ReadIgnoresLocks,
    /// The store ignores the revision that a write is conditional on.
    UnconditionalWrites,
}

/// The kind of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Process {
    Client,
    Cleaner,
}

impl Mutant {
    pub(crate) const ALL: [Mutant; 8] = [
        Mutant::NoRollbackRecord,
        Mutant::CollapsedRollbackRecord,
        Mutant::LockTrustedFirst,
        Mutant::HistoryCutBeforeLocks,
        Mutant::OracleRepeats,
        Mutant::ExpiryByTwoClocks,
        Mutant::ReadIgnoresLocks,
        Mutant::UnconditionalWrites,
    ];

    /// Returns the scenario that catches the mutant, the expected anomaly, and the first seed.
    pub(crate) fn detection(self) -> (Scenario, &'static str, u64) {
        use WorkloadKind::{Bank, ListAppend};
        match self {
            Mutant::NoRollbackRecord => (Scenario::small(ListAppend, Disturbance::ExpiringLocks), "lost-append", 5),
            Mutant::CollapsedRollbackRecord => (Scenario::long(Disturbance::ExpiringLocks), "lost-append", 227),
            Mutant::LockTrustedFirst => (Scenario::long(Disturbance::ExpiringLocks), "lost-append", 168),
            Mutant::HistoryCutBeforeLocks => {
                (Scenario { documents: 8, committed: 24, ..Scenario::long(Disturbance::Crashes) }, "lost-append", 197)
            }
            Mutant::OracleRepeats => (Scenario::small(ListAppend, Disturbance::Crashes), "lost-append", 407),
            Mutant::ExpiryByTwoClocks => (Scenario::small(ListAppend, Disturbance::None), "given-up-alive", 0),
            Mutant::ReadIgnoresLocks => (Scenario::small(Bank, Disturbance::None), "wrong-total", 5),
            Mutant::UnconditionalWrites => (Scenario::small(ListAppend, Disturbance::None), "lost-append", 0),
        }
    }
}

/// Returns the store for a process of a mutant.
pub(crate) fn broken_store(
    store: Arc<dyn DocumentStore>,
    mutant: Option<Mutant>,
    process: Process,
    sources: &Sources,
) -> Arc<dyn DocumentStore> {
    match mutant {
        Some(mutant) => {
            Arc::new(BrokenStore { store, mutant, process, own: Arc::new(MemoryStore::new(sources.clone())) })
        }
        None => store,
    }
}

fn oracle() -> Namespace {
    Namespace::new("handfast", "oracle").unwrap()
}

/// Applies the effect of a restart on a mutant.
pub(crate) async fn after_restart(store: &dyn DocumentStore, mutant: Option<Mutant>) {
    if mutant == Some(Mutant::OracleRepeats) {
        let back = rawdoc! { "$inc": { "ts": -REPEATED } };
        store.update_one(&oracle(), rawdoc! { "ts": { "$gt": REPEATED } }, back).await.unwrap();
    }
}

struct BrokenStore {
    store: Arc<dyn DocumentStore>,
    mutant: Mutant,
    process: Process,
    /// A private store for documents that the process should share.
    own: Arc<MemoryStore>,
}

impl BrokenStore {
    fn is_broken(&self, mutant: Mutant, process: Process) -> bool {
        self.mutant == mutant && self.process == process
    }

    /// Returns the row that the engine reads.
    fn changed_read(&self, find: &Find, row: RawDocumentBuf) -> RawDocumentBuf {
        if self.is_broken(Mutant::LockTrustedFirst, Process::Cleaner) && names_one(&find.filter) {
            return with_hidden(&row, |name, value| match (name, value) {
                ("s", _) => Some(RawBson::Int64(0)),
                ("old" | "rb", _) => None,
                (_, value) => Some(value.into()),
            });
        }
        if self.is_broken(Mutant::ReadIgnoresLocks, Process::Client) && !names_one(&find.filter) {
            return with_hidden(&row, |name, value| (name != "lock").then(|| value.into()));
        }
        row
    }

    /// Returns the row that is written.
    fn changed_write(&self, row: &RawDocument) -> RawDocumentBuf {
        with_hidden(row, |name, value| match (name, value, self.mutant) {
            ("rb", _, Mutant::NoRollbackRecord) => None,
            ("rb", RawBsonRef::Array(starts), Mutant::CollapsedRollbackRecord) => {
                let mut last = RawArrayBuf::new();
                if let Some(start) = starts.into_iter().flatten().last() {
                    last.push(RawBson::from(start));
                }
                Some(RawBson::Array(last))
            }
            (_, value, _) => Some(value.into()),
        })
    }
}

/// Returns whether a filter names one document by `_id`, as the steps on a row do.
fn names_one(filter: &RawDocument) -> bool {
    matches!(filter.get("_id"), Ok(Some(RawBsonRef::Document(id))) if id.get("$eq").is_ok_and(|id| id.is_some()))
}

/// Returns the row with another hidden field.
fn with_hidden(row: &RawDocument, keep: impl Fn(&str, RawBsonRef<'_>) -> Option<RawBson>) -> RawDocumentBuf {
    let mut changed = RawDocumentBuf::new();
    for (name, value) in row.iter().flatten() {
        match (name.as_str(), value) {
            ("_hf", RawBsonRef::Document(hidden)) => {
                let mut kept = RawDocumentBuf::new();
                for (name, value) in hidden.iter().flatten() {
                    if let Some(value) = keep(name.as_str(), value) {
                        kept.append(name, value);
                    }
                }
                changed.append(cstr!("_hf"), kept);
            }
            (_, value) => changed.append(name, value),
        }
    }
    changed
}

#[async_trait]
impl DelegatingStore for BrokenStore {
    type Inner = dyn DocumentStore;

    fn inner(&self) -> &Self::Inner {
        &*self.store
    }

    fn name(&self) -> &'static str {
        "broken"
    }

    async fn find(&self, request: Find) -> Result<Box<dyn Cursor>> {
        let all_locks = rawdoc! { "_hf.lock.s": { "$lte": i64::MAX } };
        let found = if self.is_broken(Mutant::HistoryCutBeforeLocks, Process::Cleaner) && request.filter == all_locks {
            Vec::new()
        } else {
            self.store.find_all(request.clone()).await?
        };
        let shown: Vec<_> = found.into_iter().map(|row| Ok(self.changed_read(&request, row))).collect();
        Ok(Box::new(IteratorCursor::new(shown.into_iter())))
    }

    async fn insert(&self, mut request: Insert) -> Result<InsertOutcome> {
        request.documents = request.documents.iter().map(|row| self.changed_write(row)).collect();
        self.store.insert(request).await
    }

    async fn update(&self, mut request: Update) -> Result<UpdateOutcome> {
        for statement in &mut request.statements {
            if let UpdateSpec::Document(row) = &statement.update {
                statement.update = UpdateSpec::Document(self.changed_write(row));
            }
            if self.mutant == Mutant::UnconditionalWrites
                && let Some(id) = statement.filter.get("_id").unwrap().filter(|_| names_one(&statement.filter))
            {
                statement.filter = rawdoc! { "_id": id };
            }
        }
        self.store.update(request).await
    }

    async fn find_and_modify(&self, request: FindAndModify) -> Result<FindAndModifyOutcome> {
        if !self.is_broken(Mutant::ExpiryByTwoClocks, Process::Cleaner) {
            return self.store.find_and_modify(request).await;
        }
        let ahead = rawdoc! { "_id": "oracle", "ts": A_MINUTE, "at": DateTime::from_millis(0) };
        let _ = self.own.insert_one(&oracle(), ahead).await;
        self.own.find_and_modify(request).await
    }
}
