//! Checks that each recorded duration is that of its work, by the injected clock: every request to the store takes a
//! second here.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bson::{Document, doc, rawdoc};
use handfast_store::decorator::DelegatingStore;
use handfast_store::*;

use super::recorder::Recorded;
use crate::{
    CancellationToken, Change, ExactlyOnce, JobError, JobQueue, Ledger, LedgerOptions, Link, NewAccount, NewEntry,
    NewJob, Result, Round, Runner, RunnerOptions, SyncFlag, SyncFlagOptions, Transfer, TwoPhase, TwoPhaseOptions,
    TwoStep, VersionedTree, VersionedTreeOptions, Worker,
};

const SECOND: Duration = Duration::from_secs(1);

struct Slow {
    store: MemoryStore,
    clock: Arc<ManualClock>,
}

#[async_trait]
impl DelegatingStore for Slow {
    type Inner = MemoryStore;

    fn inner(&self) -> &MemoryStore {
        &self.store
    }

    async fn insert(&self, request: Insert) -> handfast_store::Result<InsertOutcome> {
        self.clock.advance(SECOND);
        self.store.insert(request).await
    }

    async fn find(&self, request: Find) -> handfast_store::Result<Box<dyn Cursor>> {
        self.clock.advance(SECOND);
        self.store.find(request).await
    }

    async fn update(&self, request: Update) -> handfast_store::Result<UpdateOutcome> {
        self.clock.advance(SECOND);
        self.store.update(request).await
    }

    async fn find_and_modify(&self, request: FindAndModify) -> handfast_store::Result<FindAndModifyOutcome> {
        self.clock.advance(SECOND);
        self.store.find_and_modify(request).await
    }
}

struct World {
    store: Arc<Slow>,
    sources: Sources,
    clock: Arc<ManualClock>,
}

impl World {
    /// Returns the duration of some work.
    async fn timed<T>(&self, work: impl Future<Output = Result<T>>) -> Result<f64> {
        let begun = self.clock.elapsed();
        work.await?;
        Ok(self.clock.elapsed().saturating_sub(begun).as_secs_f64())
    }
}

fn namespace(collection: &str) -> Result<Namespace> {
    Ok(Namespace::new("test", collection)?)
}

/// Runs a scenario; returns its result, and the sum of the durations of a metric.
fn recorded(metric: &str, collection: &str, scenario: impl AsyncFnOnce(&World) -> Result<f64>) -> (f64, f64) {
    let (sources, clock) = Sources::manual(1);
    let store = Arc::new(Slow { store: MemoryStore::new(sources.clone()), clock: Arc::clone(&clock) });
    let world = World { store, sources, clock };
    let (recorded, expected) = Recorded::of(scenario(&world));
    let key = format!("handfast_{metric}_seconds{{collection=test.{collection}}}");
    (recorded.seconds(&key).unwrap_or_else(|| panic!("no {key} in {:?}", recorded.keys())), expected)
}

#[test]
fn a_job_waits_until_its_claim_and_runs_until_its_end_is_written() {
    let scenario = async |world: &World| {
        let queue =
            JobQueue::open_with(world.store.clone(), namespace("jobs")?, world.sources.clone(), Default::default())
                .await?;
        queue.enqueue(NewJob::new("work", &doc! {})?).await?;
        world.clock.advance(5 * SECOND);
        let clock = Arc::clone(&world.clock);
        let worker = Worker::new(queue, "w").handle("work", move |_, _: Document| {
            clock.advance(7 * SECOND);
            async { Ok::<_, JobError>(()) }
        });
        assert_eq!(worker.drain().await?.completed, 1);
        // The job waits for the insert, which takes a second after its time was written into it, for five more
        // seconds, and for the two requests that look whether the queue is paused. It runs for seven, and its end is
        // one update.
        Ok(8.0)
    };
    let (waited, expected) = recorded("job_queue_wait", "jobs", scenario);
    assert!(waited >= expected && waited <= expected + 1.0, "it waited for {waited} s");
    let (ran, expected) = recorded("job_queue_run", "jobs", scenario);
    assert_eq!(ran, expected);
}

#[test]
fn a_posting_takes_as_long_as_its_requests() {
    let (seconds, expected) = recorded("ledger_post", "tx", async |world| {
        let options = LedgerOptions::default();
        let ledger = Ledger::open_with(world.store.clone(), namespace("tx")?, world.sources.clone(), options).await?;
        for account in ["ann", "bob"] {
            ledger.open_account(NewAccount::new(account, "EUR")).await?;
        }
        world.timed(ledger.post(NewEntry::transfer("ann", "bob", 7, "EUR"))).await
    });
    assert!(seconds > 0.0);
    assert_eq!(seconds, expected);
}

#[test]
fn a_transaction_takes_from_its_claim_to_its_end() {
    let (seconds, expected) = recorded("two_phase_run", "transactions", async |world| {
        let (accounts, transactions) = (namespace("accounts")?, namespace("transactions")?);
        for id in ["A", "B"] {
            world.store.insert_one(&accounts, rawdoc! { "_id": id, "balance": 1000 }).await?;
        }
        let options = TwoPhaseOptions::new("App1", accounts);
        let transfers = TwoPhase::open_with(world.store.clone(), transactions, world.sources.clone(), options).await?;
        transfers.begin(1, Transfer::new("A", "B", 100)).await?;
        world.clock.advance(100 * SECOND);
        world.timed(transfers.run(1)).await
    });
    // The requests are the claim, two updates, applied, two releases and done; the time may begin when the claim was
    // answered.
    assert!((6.0..=7.0).contains(&seconds) && expected - seconds <= 1.0, "{seconds} of {expected} s");
}

#[test]
fn a_version_is_carried_to_all_copies() {
    let (seconds, all) = recorded("sync_flag_carry", "users", async |world| {
        let (users, comments) = (namespace("users")?, namespace("comments")?);
        world.store.insert_one(&users, rawdoc! { "_id": 1, "name": "John" }).await?;
        world.store.insert_one(&comments, rawdoc! { "_id": 8, "user": 1 }).await?;
        let options = SyncFlagOptions::new([Link::new(comments, "user").field("name", "userName")]);
        let names = SyncFlag::open_with(world.store.clone(), users, world.sources.clone(), options).await?;
        world.clock.advance(100 * SECOND);
        let mary = Change::new(doc! { "$set": { "name": "Mary" } });
        world.timed(names.change(names.token(), 1, &mary)).await
    });
    // At least the change of the main document comes before it, and nothing else takes longer.
    assert!(seconds >= 1.0 && seconds < all, "{seconds} of {all} s");
}

#[test]
fn a_write_takes_from_its_begin_to_its_commit() {
    let (seconds, all) = recorded("versioned_tree_write", "items", async |world| {
        let options = VersionedTreeOptions::new("tree");
        let tree =
            VersionedTree::open_with(world.store.clone(), namespace("items")?, world.sources.clone(), options).await?;
        world.clock.advance(100 * SECOND);
        let written = async {
            let mut write = tree.begin().await?;
            world.clock.advance(10 * SECOND);
            write.put("a", doc! { "n": 1 }).await?;
            write.commit(doc! {}).await
        };
        world.timed(written).await
    });
    assert!(seconds > 11.0 && seconds <= all, "{seconds} of {all} s");
}

#[test]
fn an_update_takes_as_long_as_its_requests() {
    let once = recorded("exactly_once_apply", "pages", async |world| {
        let pages = namespace("pages")?;
        world.store.insert_one(&pages, rawdoc! { "_id": "/" }).await?;
        let once =
            ExactlyOnce::open_with(world.store.clone(), pages, world.sources.clone(), Default::default()).await?;
        world.timed(once.apply(once.token(), "/", &Change::increment("views", 1))).await
    });
    let in_steps = recorded("exactly_once_apply", "pages", async |world| {
        world.store.insert_one(&namespace("pages")?, rawdoc! { "_id": "/" }).await?;
        let view = Change::increment("views", 1);
        let (store, sources) = (world.store.clone(), world.sources.clone());
        let visits = TwoStep::open_with(store, namespace("pages")?, sources, view, Default::default()).await?;
        world.timed(visits.apply(visits.token(), "/")).await
    });
    assert_eq!((once, in_steps), ((1.0, 1.0), (2.0, 2.0)));
}

#[test]
fn a_round_takes_as_long_as_its_work() {
    let (sources, clock) = Sources::manual(1);
    let rounds = async {
        let every = RunnerOptions { interval: 10 * SECOND, jitter: 0.0, batch: 5 };
        let runner = Runner::spawn("sweep", &sources, every, &CancellationToken::new(), move |_| {
            clock.advance(3 * SECOND);
            async { Ok(Round { done: 1, failed: 0, more: false }) }
        })?;
        tokio::time::sleep(25 * SECOND).await;
        runner.stop().await;
        Ok(())
    };
    let (recorded, ()) = Recorded::of(rounds);
    assert_eq!(recorded.seconds("handfast_runner_round_seconds{runner=sweep}"), Some(6.0), "two rounds");
}
