//! The measured steps, each with a pattern and as the bare writes.

use std::sync::Arc;

use anyhow::{Result, bail, ensure};
use bson::{RawDocumentBuf, doc, rawdoc};
use handfast_patterns::job_queue::ClaimState;
use handfast_patterns::ledger::{Ledger, LedgerOptions, NewAccount, NewEntry, Posting};
use handfast_patterns::two_phase::{Transfer, TwoPhase, TwoPhaseOptions, TwoPhaseOutcome};
use handfast_patterns::{Change, ExactlyOnce, JobQueue, NewJob, TwoStep};
use handfast_store::{DocumentStore, Namespace, Sources, StoreExt, UpdateOutcome};
use handfast_txn::Database;

use super::Store;
use crate::command::bench::store::scattered;
use crate::command::bench::transactions::{by, pair};

const DATABASE: &str = "handfast_bench";
const ASSET: &str = "EUR";
/// The kind of the jobs.
const KIND: &str = "bench";
/// Claims until a job counts as lost: other clients are faster once or twice.
const CLAIMS_MAX: u32 = 1000;
/// The accounts that all postings of a hot case touch, without and with a sequence.
const HOT: i64 = -1;
const HOT_WITH_SEQUENCE: i64 = -2;

/// The step that a client repeats.
#[derive(Clone)]
pub(super) enum Method {
    /// Enqueues a job, claims one, completes it.
    Job(Arc<JobQueue>),
    /// A document inserted and updated twice: the writes of a job.
    JobWrites(Plain),
    Posting(Arc<Ledger>, Payees),
    /// An entry's document inserted.
    EntryWrite(Plain),
    OnceIncrement(Arc<ExactlyOnce>),
    TwoStepIncrement(Arc<TwoStep>),
    /// An update that must not be repeated.
    Increment(Plain),
    TransactionTransfer(Database, Arc<Namespace>),
    TwoPhaseTransfer(Arc<TwoPhase>, Sources),
    /// Two updates without protection.
    TransferWrites(Plain),
}

/// The payee of postings.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Payees {
    Anybody,
    OneOf(i64),
}

impl Payees {
    pub(super) const HOT: Payees = Payees::OneOf(HOT);
    pub(super) const HOT_WITH_SEQUENCE: Payees = Payees::OneOf(HOT_WITH_SEQUENCE);
}

/// A collection, and the store that it is in.
#[derive(Clone)]
pub(super) struct Plain {
    store: Arc<Store>,
    namespace: Arc<Namespace>,
    sources: Sources,
}

/// The methods with the patterns that they use.
pub(super) struct Methods {
    pub(super) job: Method,
    pub(super) job_writes: Method,
    pub(super) ledger: Arc<Ledger>,
    pub(super) entry_write: Method,
    pub(super) once: Method,
    pub(super) two_step: Method,
    pub(super) increment: Method,
    pub(super) transaction: Method,
    pub(super) two_phase: Method,
    pub(super) transfer_writes: Method,
}

pub(super) fn namespace(collection: &str) -> Result<Namespace> {
    Ok(Namespace::new(DATABASE, collection)?)
}

impl Methods {
    /// Opens the patterns on a store that counts operations, and transactions on the same store.
    pub(super) async fn open(store: &Arc<Store>, database: Database, sources: &Sources) -> Result<Self> {
        let shared: Arc<dyn DocumentStore> = store.clone();
        let plain = |collection: &str| -> Result<Plain> {
            Ok(Plain {
                store: Arc::clone(store),
                namespace: Arc::new(namespace(collection)?),
                sources: sources.clone(),
            })
        };
        let queue =
            JobQueue::open_with(shared.clone(), namespace("jobs")?, sources.clone(), Default::default()).await?;
        let ledger =
            Ledger::open_with(shared.clone(), namespace("tx")?, sources.clone(), LedgerOptions::default()).await?;
        ledger.open_account(NewAccount::new(HOT_WITH_SEQUENCE, ASSET).with_sequence()).await?;
        let once =
            ExactlyOnce::open_with(shared.clone(), namespace("once")?, sources.clone(), Default::default()).await?;
        let change = Change::increment("count", 1);
        let two_step =
            TwoStep::open_with(shared.clone(), namespace("two_step")?, sources.clone(), change, Default::default())
                .await?;
        let mut options = TwoPhaseOptions::new("bench", namespace("accounts")?);
        (options.accounts.balance, options.accounts.overdraft) = ("count".to_owned(), true);
        let two_phase = TwoPhase::open_with(shared, namespace("transactions")?, sources.clone(), options).await?;
        Ok(Methods {
            job: Method::Job(Arc::new(queue)),
            job_writes: Method::JobWrites(plain("job_writes")?),
            ledger: Arc::new(ledger),
            entry_write: Method::EntryWrite(plain("entries")?),
            once: Method::OnceIncrement(Arc::new(once)),
            two_step: Method::TwoStepIncrement(Arc::new(two_step)),
            increment: Method::Increment(plain("counters")?),
            transaction: Method::TransactionTransfer(database, Arc::new(namespace("accounts")?)),
            two_phase: Method::TwoPhaseTransfer(Arc::new(two_phase), sources.clone()),
            transfer_writes: Method::TransferWrites(plain("accounts")?),
        })
    }

    /// Returns the collections that are filled before the measurement.
    pub(super) fn filled() -> Result<[Namespace; 4]> {
        Ok([namespace("once")?, namespace("two_step")?, namespace("counters")?, namespace("accounts")?])
    }
}

impl Method {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Method::Job(_) => "job",
            Method::JobWrites(_) => "insert, two updates",
            Method::Posting(_, Payees::Anybody) => "posting",
            Method::Posting(_, Payees::OneOf(HOT_WITH_SEQUENCE)) => "posting, one hot account with a sequence",
            Method::Posting(_, Payees::OneOf(_)) => "posting, one hot account",
            Method::EntryWrite(_) => "insert",
            Method::OnceIncrement(_) => "increment, once",
            Method::TwoStepIncrement(_) => "increment, once in two steps",
            Method::Increment(_) => "one update",
            Method::TransactionTransfer(..) => "transfer, transaction",
            Method::TwoPhaseTransfer(..) => "transfer, two-phase commit",
            Method::TransferWrites(_) => "two updates",
        }
    }

    /// Makes one step of a client.
    pub(super) async fn step(&self, task: usize, step: u64, documents: u64) -> Result<()> {
        match self {
            Method::Job(queue) => job(queue).await,
            Method::JobWrites(plain) => plain.job().await,
            Method::Posting(ledger, payees) => {
                let (payer, anybody) = pair(task, step, documents)?;
                let payee = match payees {
                    Payees::Anybody => anybody,
                    Payees::OneOf(payee) => *payee,
                };
                let posted = ledger.post(NewEntry::transfer(payer, payee, 1, ASSET)).await?;
                ensure!(matches!(posted, Posting::Posted(_)), "a posting ended with {posted:?}");
                Ok(())
            }
            Method::EntryWrite(plain) => {
                let (payer, payee) = pair(task, step, documents)?;
                plain.entry(payer, payee).await
            }
            Method::OnceIncrement(once) => {
                let id = i64::try_from(scattered(task, step, documents))?;
                let outcome = once.apply(once.token(), id, &Change::increment("count", 1)).await?;
                ensure!(outcome.is_applied(), "an increment ended with {outcome:?}");
                Ok(())
            }
            Method::TwoStepIncrement(two_step) => {
                let id = i64::try_from(scattered(task, step, documents))?;
                let outcome = two_step.apply(two_step.token(), id).await?;
                ensure!(outcome.is_applied(), "an increment ended with {outcome:?}");
                Ok(())
            }
            Method::Increment(plain) => {
                let id = i64::try_from(scattered(task, step, documents))?;
                made(plain.store.update_one(&plain.namespace, rawdoc! { "_id": id }, by(1)).await?)
            }
            Method::TransactionTransfer(database, accounts) => {
                let (from, to) = pair(task, step, documents)?;
                Ok(database
                    .transaction(async |tx| Ok::<_, handfast_txn::Error>(both(&tx, accounts, from, to).await?))
                    .await?)
            }
            Method::TwoPhaseTransfer(two_phase, sources) => {
                let (from, to) = pair(task, step, documents)?;
                let id = sources.ids.object_id();
                two_phase.begin(id, Transfer::new(from, to, 1)).await?;
                let outcome = two_phase.run(id).await?;
                ensure!(outcome == TwoPhaseOutcome::Done, "a transfer ended with {outcome:?}");
                Ok(())
            }
            Method::TransferWrites(plain) => {
                let (from, to) = pair(task, step, documents)?;
                Ok(both(&*plain.store, &plain.namespace, from, to).await?)
            }
        }
    }
}

/// Enqueues a job, claims one and completes it. The claimed job may be another client's; if that client took ours and its own is not due
/// yet, the claim is repeated.
async fn job(queue: &JobQueue) -> Result<()> {
    queue.enqueue(NewJob::new(KIND, &details())?).await?;
    for _ in 0..CLAIMS_MAX {
        if let Some(job) = queue.claim("bench", &[KIND.to_owned()]).await? {
            ensure!(
                queue.complete(&job, None).await? == ClaimState::Held,
                "a job was lost although no worker was slow"
            );
            return Ok(());
        }
    }
    bail!("a job is missing")
}

fn details() -> bson::Document {
    doc! { "users": [1, 2] }
}

impl Plain {
    /// Writes the document of a job as it is enqueued, claimed and completed.
    async fn job(&self) -> Result<()> {
        let (id, claim, now) = (self.sources.ids.object_id(), self.sources.ids.object_id(), self.sources.clock.now());
        let job = doc! {
            "_id": id, "ts": now, "state": "TODO", "type": KIND, "details": details(), "undone": 1,
            "attempts": 0, "crashes": 0, "priority": 0, "runAt": now,
        };
        self.store.insert_one(&self.namespace, RawDocumentBuf::try_from(&job)?).await?;
        let worker = rawdoc! { "name": "bench", "claim": claim, "ts": now };
        for update in [
            rawdoc! { "$set": { "state": "PROCESSING", "worker": worker } },
            rawdoc! { "$set": { "state": "DONE", "finishedAt": now }, "$unset": { "undone": "" } },
        ] {
            made(self.store.update_one(&self.namespace, rawdoc! { "_id": id }, update).await?)?;
        }
        Ok(())
    }

    /// Writes the document of an entry as it is posted.
    async fn entry(&self, payer: i64, payee: i64) -> Result<()> {
        let change = |account: i64, kind: &str, value: i64| {
            rawdoc! { "account": account, "type": kind, "value": value, "asset": ASSET, "seqId": 1_i64 }
        };
        let mut changes = bson::RawArrayBuf::new();
        changes.push(change(payer, "withdraw", -1));
        changes.push(change(payee, "deposit", 1));
        let (id, now) = (self.sources.ids.object_id(), self.sources.clock.now());
        let entry = rawdoc! { "_id": id, "ts": now, "proc": "UNCOMMITTED", "state": "VALID", "changes": changes };
        Ok(self.store.insert_one(&self.namespace, entry).await?)
    }
}

async fn both(store: &dyn DocumentStore, accounts: &Namespace, from: i64, to: i64) -> handfast_store::Result<()> {
    for (id, amount) in [(from, -1), (to, 1)] {
        store.update_one(accounts, rawdoc! { "_id": id }, by(amount)).await?;
    }
    Ok(())
}

fn made(outcome: UpdateOutcome) -> Result<()> {
    ensure!(outcome.matched == 1, "an update matched {} documents", outcome.matched);
    Ok(())
}
