//! Mutants of the engine `Local`: the judges catch each of them by name in histories of `Database`.
//!
//! They show that the judges would find such faults in the real engine.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests are tests")]

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bson::{DateTime, RawBsonRef, RawDocumentBuf};
use handfast_history::Expectation;
use handfast_mql::Code;
use handfast_sim::{DatabaseClient, Isolation, MinimumCounts, Order, RunOptions, Workload, WorkloadKind, run};
use handfast_store::{
    CommitTimestamp, Cursor, DocumentStore, Durability, Error as StoreError, Find, MemoryStore, Namespace, Random,
    Read, Result as StoreResult, SeededRandom, Snapshot, Sources,
};
use handfast_txn::{Catalog, Claims, Database, Engine, EngineTraits, Local, Outcome, Start, TransactionId, WriteSet};

/// A fault of the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mutant {
    /// The real engine without a fault.
    Sound,
    /// Claims are always granted, and the commit does not check for writes since the snapshot.
    NoWriteCheck,
    /// Reads return the newest documents, not those of the snapshot.
    ReadsLatest,
    /// Some commits apply half of their batch.
    HalfCommit,
    /// Some commits apply half of their batch and return an unknown outcome.
    HalfUnknown,
    /// Some commits are acknowledged and not applied.
    ForgottenCommit,
    /// Some commits are applied a second time later, as by a retry without a record of the first attempt.
    LostRetryRecord,
    /// A serializable commit does not check its reads.
    NoReadCheck,
    /// A serializable commit checks only the documents that were read by their `_id`.
    NoRangeCheck,
}

const CATCHES: &[(Mutant, WorkloadKind, Isolation, &str)] = &[
    (Mutant::NoWriteCheck, WorkloadKind::ListAppend, Isolation::Snapshot, "lost-append"),
    (Mutant::NoWriteCheck, WorkloadKind::Register, Isolation::Snapshot, "lost-update"),
    (Mutant::NoWriteCheck, WorkloadKind::Bank, Isolation::Snapshot, "wrong-total"),
    (Mutant::ReadsLatest, WorkloadKind::ListAppend, Isolation::Snapshot, "G-single"),
    (Mutant::ReadsLatest, WorkloadKind::LongScan, Isolation::Snapshot, "G-single"),
    (Mutant::HalfCommit, WorkloadKind::ListAppend, Isolation::Snapshot, "lost-append"),
    (Mutant::HalfCommit, WorkloadKind::Bank, Isolation::Snapshot, "wrong-total"),
    (Mutant::HalfUnknown, WorkloadKind::ListAppend, Isolation::Snapshot, "half-commit"),
    (Mutant::HalfUnknown, WorkloadKind::Register, Isolation::Snapshot, "G-single"),
    (Mutant::ForgottenCommit, WorkloadKind::ListAppend, Isolation::Snapshot, "lost-append"),
    (Mutant::LostRetryRecord, WorkloadKind::ListAppend, Isolation::Snapshot, "lost-append"),
    (Mutant::LostRetryRecord, WorkloadKind::Bank, Isolation::Snapshot, "wrong-total"),
    (Mutant::NoReadCheck, WorkloadKind::WriteSkew, Isolation::Serializable, "G2"),
    (Mutant::NoRangeCheck, WorkloadKind::WriteSkew, Isolation::Serializable, "G2"),
];

const COMMITTED: u64 = 500;
/// The number of commits of which an intermittent mutant affects one.
const WRONG_ONE_IN: u64 = 8;
/// The number of yields before the second application.
const LATER: u32 = 20;

#[tokio::test]
async fn every_mutant_is_caught_by_name() {
    let mut escaped = Vec::new();
    for &(mutant, kind, isolation, name) in CATCHES {
        let outcome = run_judged(mutant, kind, isolation).await;
        let kinds = outcome.verdict.report.kinds();
        if !kinds.contains(&name) {
            escaped.push(format!("{mutant:?} by {outcome}: no {name} among {kinds:?}"));
        }
        escaped.extend(outcome.verdict.disagreement().map(|text| format!("{mutant:?} by {outcome}: {text}")));
        // The same run without the mutant passes.
        let sound = run_judged(Mutant::Sound, kind, isolation).await;
        assert!(sound.verdict.is_clean(), "{sound}");
    }
    assert!(escaped.is_empty(), "{}", escaped.join("\n"));
}

async fn run_judged(mutant: Mutant, kind: WorkloadKind, isolation: Isolation) -> handfast_sim::RunReport {
    let seed = 11;
    let sources = Sources::seeded(seed);
    let store = Arc::new(MemoryStore::new(sources.clone()));
    let inner = Arc::new(Local::new(store, sources.clone()));
    let engine = MutantEngine { inner, mutant, random: SeededRandom::new(!seed) };
    let database = Database::new(Arc::new(engine), sources.clone());
    let client = DatabaseClient::new(database, Namespace::new("sim", "keys").unwrap(), isolation, Durability::Memory);
    let options = RunOptions {
        seed,
        processes: 8,
        committed: COMMITTED,
        expectation: Expectation { isolation, order: Order::RealTime },
        minimum: MinimumCounts::default(),
    };
    run(Workload::new(kind), Arc::new(client), sources, options).await.unwrap()
}

struct MutantEngine {
    inner: Arc<Local>,
    mutant: Mutant,
    random: SeededRandom,
}

static TRAITS: EngineTraits = EngineTraits {
    name: "mutant",
    own_database: None,
    records_every_commit: true,
    uses_before: false,
    rolls_back_for_good: false,
};

#[async_trait]
impl Engine for MutantEngine {
    fn traits(&self) -> &'static EngineTraits {
        &TRAITS
    }

    fn catalog(&self) -> &dyn Catalog {
        self.inner.catalog()
    }

    fn plain(&self) -> Option<&Arc<dyn DocumentStore>> {
        self.inner.plain()
    }

    async fn flush(&self) -> StoreResult<()> {
        self.inner.flush().await
    }

    async fn forget_outcomes_before(&self, moment: DateTime) -> StoreResult<u64> {
        self.inner.forget_outcomes_before(moment).await
    }

    async fn begin(&self, deadline: Duration) -> StoreResult<Start> {
        let start = self.inner.begin(deadline).await?;
        Ok(match self.mutant {
            Mutant::NoWriteCheck => Start { claims: Box::new(GrantAll), ..start },
            Mutant::ReadsLatest => {
                let snapshot = Arc::new(Latest { timestamp: start.snapshot.timestamp(), engine: self.inner.clone() });
                Start { snapshot, ..start }
            }
            _ => start,
        })
    }

    async fn commit(&self, mut writes: WriteSet) -> StoreResult<CommitTimestamp> {
        let is_affected = self.random.next_u64().is_multiple_of(WRONG_ONE_IN);
        match self.mutant {
            Mutant::NoWriteCheck => writes.read_at = self.newest().await?,
            Mutant::HalfCommit | Mutant::HalfUnknown if is_affected => {
                writes.writes.truncate(writes.writes.len().div_ceil(2));
            }
            Mutant::ForgottenCommit if is_affected => return self.newest().await,
            Mutant::NoReadCheck => writes.reads.clear(),
            Mutant::NoRangeCheck => writes.reads.retain(|read| matches!(read, Read::Document { .. })),
            _ => {}
        }
        let again = (self.mutant == Mutant::LostRetryRecord && is_affected).then(|| writes.clone());
        let committed = self.inner.commit(writes).await?;
        if let Some(again) = again {
            // A task applies it later, because the claims of the transaction keep others off until it has ended.
            tokio::spawn(apply_again(self.inner.clone(), again));
        }
        if self.mutant == Mutant::HalfUnknown && is_affected {
            return Err(lost().in_doubt());
        }
        Ok(committed)
    }

    async fn outcome(&self, id: TransactionId) -> StoreResult<Outcome> {
        if self.mutant == Mutant::HalfUnknown {
            return Err(lost());
        }
        self.inner.outcome(id).await
    }
}

fn lost() -> StoreError {
    StoreError::command(Code::HostUnreachable, "the answer is lost")
}

impl MutantEngine {
    async fn newest(&self) -> StoreResult<CommitTimestamp> {
        newest(&self.inner).await
    }
}

async fn newest(engine: &Local) -> StoreResult<CommitTimestamp> {
    Ok(engine.begin(Duration::MAX).await?.snapshot.timestamp())
}

/// Commits the writes again, as a retry does without a record of the first attempt.
async fn apply_again(engine: Arc<Local>, mut writes: WriteSet) -> StoreResult<CommitTimestamp> {
    for _ in 0..LATER {
        tokio::task::yield_now().await;
    }
    (writes.ticket, writes.read_at) = (None, newest(&engine).await?);
    engine.commit(writes).await
}

struct GrantAll;

impl Claims for GrantAll {}

/// A snapshot that returns the newest documents.
struct Latest {
    timestamp: CommitTimestamp,
    engine: Arc<Local>,
}

impl Latest {
    async fn now(&self) -> StoreResult<Arc<dyn Snapshot>> {
        Ok(self.engine.begin(Duration::MAX).await?.snapshot)
    }
}

#[async_trait]
impl Snapshot for Latest {
    fn timestamp(&self) -> CommitTimestamp {
        self.timestamp
    }

    async fn get(&self, namespace: &Namespace, id: RawBsonRef<'_>) -> StoreResult<Option<RawDocumentBuf>> {
        self.now().await?.get(namespace, id).await
    }

    async fn find(&self, request: Find) -> StoreResult<Box<dyn Cursor>> {
        self.now().await?.find(request).await
    }
}
