//! Mutants of a store, with faults in deletions, predicates, expressions and the catalog: a run catches each of them. A run without
//! deletions fails as well.
//!
//! The engine over them is `Local`, which relies on the snapshots and commits of the store.

use std::sync::Arc;

use async_trait::async_trait;
use bson::{RawBsonRef, RawDocumentBuf, rawdoc};
use handfast_mql::{CompileOptions, Filter};
use handfast_sim::{Isolation, Tally, WorkloadKind};
use handfast_store::decorator::DelegatingStore;
use handfast_store::page::IteratorCursor;
use handfast_store::{
    AtomicBatch, AtomicStore, Before, CommitTimestamp, Cursor, DocumentStore, Find, MemoryStore, Namespace, Result,
    Snapshot, Sources, StoreExt, insertion,
};
use handfast_txn::Database;

use crate::{COMMITTED, Catalog, Databases, run_judged};

/// A fault of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mutant {
    /// There is no fault.
    Sound,
    /// A filter is evaluated on all stored documents, including those that the snapshot does not have.
    WholeFilterOnOthers,
    /// A filter is evaluated on the remains of a deleted document.
    WholeFilterOnTombstones,
    /// Expressions see a hidden field of the store.
    HiddenFieldSeen,
    /// A query finds the documents that match now, and returns their versions in the snapshot.
    CandidatesOfNewest,
    /// A snapshot has the collections that exist now.
    NewestCatalog,
    /// Deletions of a batch are ignored.
    ForgottenDeletions,
    /// An insertion is ignored if the same transaction deleted a document with this `_id`.
    ForgottenReinsertions,
    /// A transaction that inserts and deletes a document does not conflict with another one that inserts it.
    UnnoticedInsertions,
}

/// The mutants with the catalog and the workload that catch them, and the expected message.
const CATCHES: &[(Mutant, Catalog, WorkloadKind, &str)] = &[
    (Mutant::WholeFilterOnOthers, Catalog::Fixed, WorkloadKind::Repeated, "found: missing"),
    (Mutant::WholeFilterOnTombstones, Catalog::Fixed, WorkloadKind::ListAppend, "missing"),
    (Mutant::HiddenFieldSeen, Catalog::Fixed, WorkloadKind::Repeated, "AllFields"),
    (Mutant::HiddenFieldSeen, Catalog::Fixed, WorkloadKind::Bank, "account"),
    (Mutant::CandidatesOfNewest, Catalog::Fixed, WorkloadKind::Repeated, "duplicate key"),
    (Mutant::NewestCatalog, Catalog::Changing, WorkloadKind::Repeated, "duplicate key"),
    (Mutant::NewestCatalog, Catalog::Changing, WorkloadKind::Bank, "twice in a snapshot"),
    (Mutant::ForgottenDeletions, Catalog::Fixed, WorkloadKind::ListAppend, "twice in a snapshot"),
    (Mutant::ForgottenReinsertions, Catalog::Fixed, WorkloadKind::ListAppend, "duplicate key"),
    (Mutant::UnnoticedInsertions, Catalog::Fixed, WorkloadKind::Register, "twice in a snapshot"),
];

/// The seeds of which at least one catches each mutant.
const SEEDS: std::ops::Range<u64> = 1..9;

#[tokio::test(start_paused = true)]
async fn every_mutant_is_caught() {
    let mut escaped = Vec::new();
    for &(mutant, catalog, kind, expected) in CATCHES {
        let mut said = Vec::new();
        for seed in SEEDS {
            if let Err(wrong) = run(mutant, catalog, kind, seed).await {
                said.push(wrong);
                if said.last().is_some_and(|wrong| wrong.contains(expected)) {
                    break;
                }
            }
        }
        if !said.iter().any(|wrong| wrong.contains(expected)) {
            escaped.push(format!("{mutant:?} by {kind:?}: no '{expected}' in {said:?}"));
        }
        // A run without the fault passes, so the failure comes from the fault.
        if let Err(wrong) = run(Mutant::Sound, catalog, kind, SEEDS.start).await {
            escaped.push(format!("{kind:?} without a mutation: {wrong}"));
        }
    }
    assert!(escaped.is_empty(), "{}", escaped.join("\n"));
}

#[test]
fn a_run_without_deletions_fails() {
    let minimum = Tally { deletions: 1, failed_reads: 2, ..Tally::default() };
    assert_eq!(
        Tally { failed_reads: 1, ..Tally::default() }.shortfalls(minimum),
        ["0 deletions, where at least 1 were due", "1 queries that fail, where at least 2 were due"]
    );
    assert_eq!(minimum.shortfalls(minimum), [""; 0]);
}

async fn run(mutant: Mutant, catalog: Catalog, kind: WorkloadKind, seed: u64) -> std::result::Result<Tally, String> {
    let sources = Sources::seeded(seed);
    let store = Arc::new(MemoryStore::new(sources.clone()));
    let database = Database::local(BrokenStore { store, mutant }, sources);
    let databases =
        Databases { committed: COMMITTED, clients: vec![database.clone()], background: database, _kept: None };
    run_judged(databases, &format!("{mutant:?}"), catalog, Isolation::Snapshot, kind, seed).await
}

struct BrokenStore {
    store: Arc<MemoryStore>,
    mutant: Mutant,
}

impl DelegatingStore for BrokenStore {
    type Inner = MemoryStore;

    fn inner(&self) -> &MemoryStore {
        &self.store
    }
}

#[async_trait]
impl AtomicStore for BrokenStore {
    async fn snapshot(&self) -> Result<Box<dyn Snapshot>> {
        let snapshot = self.store.snapshot().await?;
        Ok(Box::new(BrokenSnapshot { snapshot, store: Arc::clone(&self.store), mutant: self.mutant }))
    }

    async fn commit(&self, mut batch: AtomicBatch) -> Result<CommitTimestamp> {
        batch.writes.iter_mut().for_each(|write| write.before = Before::Unread);
        match self.mutant {
            Mutant::ForgottenDeletions => batch.writes.retain(|write| !write.is_delete()),
            Mutant::ForgottenReinsertions => {
                let mut kept = Vec::new();
                for write in batch.writes {
                    let id = write.id.as_raw_bson_ref();
                    let before = self.store.find_one(&write.namespace, by_id(id)).await?;
                    let is_moved = before.is_none() && matches!(id, RawBsonRef::Int64(id) if id % 2 == 1);
                    if !is_moved {
                        kept.push(write);
                    }
                }
                batch.writes = kept;
            }
            Mutant::UnnoticedInsertions => {
                let mut kept = Vec::new();
                for write in batch.writes {
                    let before = self.store.find_one(&write.namespace, by_id(write.id.as_raw_bson_ref())).await?;
                    if before.is_some() || !write.is_delete() {
                        kept.push(write);
                    }
                }
                batch.writes = kept;
            }
            _ => {}
        }
        self.store.commit(batch).await
    }
}

fn by_id(id: RawBsonRef<'_>) -> RawDocumentBuf {
    rawdoc! { "_id": id }
}

struct BrokenSnapshot {
    snapshot: Box<dyn Snapshot>,
    store: Arc<MemoryStore>,
    mutant: Mutant,
}

impl BrokenSnapshot {
    async fn changed_result(&self, request: &Find, found: Vec<RawDocumentBuf>) -> Result<Vec<RawDocumentBuf>> {
        let filter = Filter::compile(&request.filter, &CompileOptions::default())?;
        let context = Sources::seeded(1).context(&rawdoc! {});
        let mut shown = Vec::new();
        for document in found {
            let is_shown = match self.mutant {
                Mutant::HiddenFieldSeen => {
                    let mut stored = document.clone();
                    stored.append(bson::raw::cstr!("_hidden"), rawdoc! {});
                    filter.matches(&stored, &context)?
                }
                Mutant::CandidatesOfNewest => {
                    let newest = self.store.find_one(&request.namespace, by_id(insertion::id(&document)?)).await?;
                    newest.is_some_and(|newest| filter.matches(&newest, &context).unwrap_or(false))
                }
                _ => true,
            };
            if is_shown {
                shown.push(document);
            }
        }
        Ok(shown)
    }

    async fn is_gone(&self, namespace: &Namespace) -> Result<bool> {
        let there = self.store.list_collections(namespace.database()).await?;
        Ok(!there.iter().any(|info| info.name == namespace.collection()))
    }
}

#[async_trait]
impl Snapshot for BrokenSnapshot {
    fn timestamp(&self) -> CommitTimestamp {
        self.snapshot.timestamp()
    }

    async fn get(&self, namespace: &Namespace, id: RawBsonRef<'_>) -> Result<Option<RawDocumentBuf>> {
        if self.mutant == Mutant::NewestCatalog && self.is_gone(namespace).await? {
            return Ok(None);
        }
        self.snapshot.get(namespace, id).await
    }

    async fn find(&self, request: Find) -> Result<Box<dyn Cursor>> {
        match self.mutant {
            Mutant::WholeFilterOnOthers => {
                self.store.find_all(request.clone()).await?;
            }
            Mutant::WholeFilterOnTombstones => {
                let filter = Filter::compile(&request.filter, &CompileOptions::default())?;
                filter.matches(&rawdoc! { "_id": 0 }, &Sources::seeded(1).context(&rawdoc! {}))?;
            }
            Mutant::NewestCatalog if self.is_gone(&request.namespace).await? => {
                return Ok(Box::new(IteratorCursor::new(std::iter::empty())));
            }
            _ => {}
        }
        let found = self.read(request.clone()).await?;
        let shown = self.changed_result(&request, found).await?;
        Ok(Box::new(IteratorCursor::new(shown.into_iter().map(Ok))))
    }
}

impl BrokenSnapshot {
    async fn read(&self, request: Find) -> Result<Vec<RawDocumentBuf>> {
        let mut cursor = self.snapshot.find(request).await?;
        let mut found = Vec::new();
        loop {
            let page = cursor.next_page(handfast_store::BatchLimit::REPLY).await?;
            found.extend(page.documents);
            if page.exhausted {
                return Ok(found);
            }
        }
    }
}
