//! Checks that every query of a pattern uses an index. The embedded store explains each query, and none may read all
//! of a collection except for those that are named here with their reason.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bson::{Document, RawBson, RawDocumentBuf, doc, rawdoc};
use handfast_patterns::exactly_once::{Memory, TwoStepOptions};
use handfast_patterns::job_queue::{JobQueue, JobQueueOptions, JobState, Limits, Missed, NewJob, Schedule, Schedules};
use handfast_patterns::ledger::{Authorisation, Capture, ExportFormat};
use handfast_patterns::sync_flag::Link;
use handfast_patterns::versioned_tree::Keep;
use handfast_patterns::{
    Change, Error, ExactlyOnce, Ledger, LedgerOptions, NewAccount, NewEntry, SyncFlag, SyncFlagOptions, Transfer,
    TwoPhase, TwoPhaseOptions, TwoStep, VersionedTree, VersionedTreeOptions,
};
use handfast_store::decorator::DelegatingStore;
use handfast_store::{
    Aggregate, AggregateSource, Count, Cursor, Delete, DeleteOutcome, Distinct, DocumentStore, Explain, Explained,
    Find, FindAndModify, FindAndModifyOutcome, Namespace, Result, StoreExt, Update, UpdateOutcome, Verbosity,
};

use crate::crash::{Stage, World};

const HOUR: Duration = Duration::from_secs(3600);

/// A store that explains every query before it runs it.
struct Explaining {
    store: Arc<dyn DocumentStore>,
    scans: Mutex<BTreeSet<String>>,
    queries: Mutex<u64>,
}

impl Explaining {
    fn on(world: &World) -> (World, Arc<Self>) {
        let explaining = Arc::new(Explaining {
            store: Arc::clone(&world.store),
            scans: Mutex::default(),
            queries: Mutex::default(),
        });
        (world.on(explaining.clone()), explaining)
    }

    async fn look(&self, namespace: &Namespace, explained: Explained, what: String) {
        // The plan for an empty collection has no meaning.
        if self.store.collection_stats(namespace).await.unwrap().count == 0 {
            return;
        }
        *self.queries.lock().unwrap() += 1;
        let request = Explain { explained, verbosity: Verbosity::QueryPlanner };
        let plan = Document::try_from(&*self.store.explain(request).await.unwrap()).unwrap();
        if plan.to_string().contains("COLLSCAN") {
            self.scans.lock().unwrap().insert(what);
        }
    }

    async fn look_for(&self, namespace: &Namespace, filter: &RawDocumentBuf, sort: RawDocumentBuf) {
        let shape = |document: &RawDocumentBuf| {
            let names = document.iter().map(|element| element.unwrap().0.to_string());
            names.collect::<Vec<_>>().join(", ")
        };
        let what = format!("{} by {{{}}} in the order of {{{}}}", namespace.collection(), shape(filter), shape(&sort));
        let find = Find { sort, ..Find::new(namespace.clone(), filter.clone()) };
        self.look(namespace, Explained::Find(find), what).await;
    }

    /// Asserts that only these queries read all of a collection.
    fn assert_scans(&self, expected: &[&str]) {
        let scans = self.scans.lock().unwrap();
        assert_eq!(scans.iter().map(String::as_str).collect::<Vec<_>>(), expected);
        assert!(*self.queries.lock().unwrap() > 2, "it asked for nothing");
    }
}

#[async_trait]
impl DelegatingStore for Explaining {
    type Inner = dyn DocumentStore;

    fn inner(&self) -> &Self::Inner {
        &*self.store
    }

    async fn find(&self, request: Find) -> Result<Box<dyn Cursor>> {
        self.look_for(&request.namespace, &request.filter, request.sort.clone()).await;
        self.store.find(request).await
    }

    async fn update(&self, request: Update) -> Result<UpdateOutcome> {
        for statement in &request.statements {
            self.look_for(&request.namespace, &statement.filter, rawdoc! {}).await;
        }
        self.store.update(request).await
    }

    async fn find_and_modify(&self, request: FindAndModify) -> Result<FindAndModifyOutcome> {
        self.look_for(&request.namespace, &request.filter, request.sort.clone()).await;
        self.store.find_and_modify(request).await
    }

    async fn delete(&self, request: Delete) -> Result<DeleteOutcome> {
        for statement in &request.statements {
            self.look_for(&request.namespace, &statement.filter, rawdoc! {}).await;
        }
        self.store.delete(request).await
    }

    async fn aggregate(&self, request: Aggregate) -> Result<Box<dyn Cursor>> {
        if let AggregateSource::Collection(namespace) = &request.source {
            let stages = request.pipeline.iter().map(|stage| stage.iter().next().unwrap().unwrap().0.to_string());
            let what = format!("{} by {}", namespace.collection(), stages.collect::<Vec<_>>().join(", "));
            self.look(namespace, Explained::Aggregate(request.clone()), what).await;
        }
        self.store.aggregate(request).await
    }

    async fn count(&self, request: Count) -> Result<u64> {
        // The number of all documents is known without reading them.
        if request.filter != rawdoc! {} {
            self.look_for(&request.namespace, &request.filter, rawdoc! {}).await;
        }
        self.store.count(request).await
    }

    async fn distinct(&self, request: Distinct) -> Result<Vec<RawBson>> {
        self.look_for(&request.namespace, &request.filter, rawdoc! {}).await;
        self.store.distinct(request).await
    }
}

/// Runs a pattern on the embedded store and checks its queries.
async fn played(play: impl AsyncFn(&World), expected: &[&str]) {
    let directory = tempfile::tempdir().unwrap();
    let world = World::new(&Stage::embedded(directory.path()).await, "test");
    let (world, explaining) = Explaining::on(&world);
    play(&world).await;
    explaining.assert_scans(expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_the_job_queue() {
    let play = async |world: &World| {
        let limits = Limits { concurrency: Some(2), ..Limits::default() };
        for (name, options) in [
            ("jobs", JobQueueOptions::default()),
            ("ordered", JobQueueOptions { ordered: true, ..JobQueueOptions::default() }),
            ("limited", JobQueueOptions { limits, ..JobQueueOptions::default() }),
        ] {
            let (target, sources) = (world.namespace(name), world.sources.clone());
            let queue = JobQueue::open_with(Arc::clone(&world.store), target, sources, options.clone()).await.unwrap();
            let job = |n: i32| NewJob::new("count", &doc! { "n": n }).unwrap();
            let kinds = ["count".to_owned()];
            for n in 0..6 {
                let job = if options.ordered { job(n).in_order(n.to_string()) } else { job(n) };
                queue.enqueue(job.unique(n.to_string())).await.unwrap();
            }
            queue.enqueue_all([job(9), job(10)]).await.unwrap();
            let claimed = queue.claim("w", &kinds).await.unwrap().unwrap();
            let _ = queue.renew(&claimed, None).await.unwrap();
            let _ = queue.complete(&claimed, None).await.unwrap();
            let claimed = queue.claim_many("w", &kinds, 1).await.unwrap();
            let _ = queue.give_up(&claimed[0], "never").await.unwrap();
            assert!(queue.retry(&claimed[0].id).await.unwrap() && queue.cancel(&claimed[0].id).await.unwrap());
            queue.claim("w", &kinds).await.unwrap().unwrap();
            let ts = world.sources.clock.now();
            let as_in_the_seed = doc! { "_id": 1, "ts": ts, "state": "TODO", "type": "count", "details": {} };
            let as_in_the_seed = RawDocumentBuf::try_from(&as_in_the_seed).unwrap();
            world.store.insert_one(&world.namespace(name), as_in_the_seed).await.unwrap();
            world.clock.advance(HOUR);
            queue.reclaim(10).await.unwrap();
            queue.depth().await.unwrap();
            for state in [JobState::Todo, JobState::Processing, JobState::Failed, JobState::Canceled] {
                queue.list(state, 5).await.unwrap();
            }
            queue.purge(HOUR, HOUR, 10).await.unwrap();
            let schedules = Schedules::open(queue, world.namespace(&format!("{name}.schedules"))).await.unwrap();
            let (name, cron, zone) = ("report".to_owned(), "0 9 * * *".to_owned(), "UTC".to_owned());
            schedules.set(&Schedule { name, cron, zone, missed: Missed::Last, job: job(1) }).await.unwrap();
            world.clock.advance(24 * HOUR);
            schedules.tick(10).await.unwrap();
        }
    };
    played(play, &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_the_sync_flag() {
    let play = async |world: &World| {
        let (users, comments) = (world.namespace("users"), world.namespace("comments"));
        for id in [1, 2] {
            world.store.insert_one(&users, rawdoc! { "_id": id, "name": "John" }).await.unwrap();
        }
        let options = SyncFlagOptions::new([Link::new(comments.clone(), "user").field("name", "userName")]);
        let flag = SyncFlag::open_with(Arc::clone(&world.store), users, world.sources.clone(), options).await.unwrap();
        let _ = flag.insert_copy(&comments, doc! { "_id": 1, "user": 1 }).await.unwrap();
        let renamed = Change::new(doc! { "$set": { "name": "Mary" } });
        let _ = flag.change(flag.token(), 1, &renamed).await.unwrap();
        let _ = flag.within(Arc::clone(&world.store)).begin(flag.token(), 1, &renamed).await.unwrap();
        flag.staleness().await.unwrap();
        world.clock.advance(2 * HOUR);
        flag.sweep(10).await.unwrap();
        flag.list(10).await.unwrap();
        let _ = flag.delete(2).await.unwrap();
    };
    played(play, &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_phase_commit() {
    let play = async |world: &World| {
        for id in ["A", "B"] {
            world.store.insert_one(&world.namespace("accounts"), rawdoc! { "_id": id, "balance": 100 }).await.unwrap();
        }
        let options = TwoPhaseOptions::new("App1", world.namespace("accounts"));
        let (target, sources) = (world.namespace("transactions"), world.sources.clone());
        let transfers = TwoPhase::open_with(Arc::clone(&world.store), target, sources, options).await.unwrap();
        for id in 1..4 {
            transfers.begin(id, Transfer::new("A", "B", 1)).await.unwrap();
        }
        let _ = transfers.run(1).await.unwrap();
        let _ = transfers.run_next().await.unwrap();
        let _ = transfers.cancel(3, "no").await.unwrap();
        transfers.status().await.unwrap();
        world.clock.advance(HOUR);
        transfers.recover(10).await.unwrap();
        transfers.repair(10).await.unwrap();
        transfers.purge(HOUR / 2, 10).await.unwrap();
    };
    // The condition "an array that is not empty" has no bounds in the partial index; a repair runs rarely, and does
    // not delay transfers.
    played(play, &["accounts by {pendingTransactions.0} in the order of {}"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_the_ledger() {
    let play = async |world: &World| {
        let (target, sources) = (world.namespace("tx"), world.sources.clone());
        let ledger =
            Ledger::open_with(Arc::clone(&world.store), target, sources, LedgerOptions::default()).await.unwrap();
        ledger.open_account(NewAccount::new("A", "EUR").with_minimum(0)).await.unwrap();
        ledger.open_account(NewAccount::new("fees", "EUR").with_sequence()).await.unwrap();
        for id in 1..5 {
            let _ = ledger.post(NewEntry::transfer("cash", "A", 10, "EUR").with_id(id)).await.unwrap();
        }
        let _ = ledger.post(NewEntry::transfer("A", "fees", 1, "EUR")).await.unwrap();
        ledger.commit(10).await.unwrap();
        let _ = ledger.cancel(1, "no").await.unwrap();
        let _ = ledger.authorise(Authorisation::new("A", "B", 5, "EUR").with_id("hold")).await.unwrap();
        let _ = ledger.capture("hold", Capture::Full).await.unwrap();
        ledger.balance("A").await.unwrap();
        ledger.export(ExportFormat::Json).await.unwrap().next().await.unwrap();
        ledger.status().await.unwrap();
        world.clock.advance(HOUR);
        ledger.expire(10).await.unwrap();
        ledger.commit(10).await.unwrap();
    };
    played(play, &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_versioned_trees() {
    let play = async |world: &World| {
        let options = VersionedTreeOptions::new("tree");
        let (target, sources) = (world.namespace("items"), world.sources.clone());
        let tree = VersionedTree::open_with(Arc::clone(&world.store), target, sources, options).await.unwrap();
        for n in 0..4 {
            let change = |mut write: handfast_patterns::versioned_tree::Write| async move {
                write.put("a", doc! { "n": n }).await?;
                if n == 2 {
                    write.remove("b").await?;
                }
                Ok::<_, Error>(write.with_root(doc! { "n": n }))
            };
            tree.change(change).await.unwrap();
        }
        let newest = tree.newest().await.unwrap().unwrap();
        newest.node("a").await.unwrap();
        newest.nodes(["a", "b"]).await.unwrap();
        newest.all().await.unwrap();
        tree.diff(1, 3).await.unwrap();
        tree.name(1, "first").await.unwrap();
        newest.pin().await.unwrap().unwrap().release().await.unwrap();
        tree.status().await.unwrap();
        world.clock.advance(HOUR);
        tree.sweep(10).await.unwrap();
        tree.prune(Keep { last: 1, newer_than: None }, 10).await.unwrap();
        world.clock.advance(48 * HOUR);
        tree.forget(10).await.unwrap();
    };
    played(play, &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_exactly_once() {
    let play = async |world: &World| {
        let (target, sources) = (world.namespace("days"), world.sources.clone());
        let once = ExactlyOnce::open_with(Arc::clone(&world.store), target.clone(), sources.clone(), Memory::default());
        let once = once.await.unwrap();
        let count = || Change::increment("n", 1).or_insert();
        let _ = once.apply(once.token(), "today", &count()).await.unwrap();
        let two = TwoStep::open_with(Arc::clone(&world.store), target, sources, count(), TwoStepOptions::default());
        let two = two.await.unwrap();
        let _ = two.apply(two.token(), "today").await.unwrap();
        world.clock.advance(HOUR);
        two.clean_up(HOUR, 10).await.unwrap();
        once.forget(HOUR, 10).await.unwrap();
    };
    played(play, &[]).await;
}
