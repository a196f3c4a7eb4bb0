//! Runs each pattern so that each event happens once, and compares the numbers.

use std::sync::Arc;
use std::time::Duration;

use bson::oid::ObjectId;
use bson::{DateTime, Document, doc, rawdoc};
use handfast_store::decorator::{Address, Fault, Faulty, Operation, Plan};
use handfast_store::{DocumentStore, ManualClock, MemoryStore, Namespace, Sources, StoreExt};

use super::recorder::Recorded;
use super::spans::Spans;
use crate::job_queue::{ClaimState, Missed, Schedule, Schedules};
use crate::ledger::{Authorisation, Cancel, Posting};
use crate::sync_flag::SyncOutcome;
use crate::two_phase::TwoPhaseOutcome;
use crate::versioned_tree::{Commit, Keep};
use crate::{
    CancellationToken, Change, Error, ExactlyOnce, JobError, JobQueue, JobQueueOptions, Ledger, LedgerOptions, Link,
    NewAccount, NewEntry, NewJob, Result, Round, Runner, RunnerOptions, SyncFlag, SyncFlagOptions, Transfer, TwoPhase,
    TwoPhaseOptions, TwoStep, UpdateOutcome, VersionedTree, VersionedTreeOptions, Worker,
};

const DAY: Duration = Duration::from_secs(24 * 3600);

struct World {
    store: Arc<dyn DocumentStore>,
    sources: Sources,
    clock: Arc<ManualClock>,
}

impl World {
    fn new() -> Self {
        let (sources, clock) = Sources::manual(1);
        World { store: Arc::new(MemoryStore::new(sources.clone())), sources, clock }
    }

    /// Returns a store for a process that dies when its first request has been carried out.
    fn dying(&self) -> Arc<dyn DocumentStore> {
        Arc::new(Faulty::new(Arc::clone(&self.store), Plan::at(0, Fault::CrashAfter)))
    }

    /// Changes a document outside of the pattern.
    async fn by_hand(&self, namespace: &Namespace, filter: Document, change: Document) -> Result<()> {
        let raw = |document: &Document| bson::RawDocumentBuf::try_from(document).map_err(|error| other(&error));
        let outcome = self.store.update_one(namespace, raw(&filter)?, raw(&change)?).await?;
        assert_eq!(outcome.matched, 1, "{filter}");
        Ok(())
    }
}

fn other(error: &dyn std::fmt::Display) -> Error {
    Error::invalid(error.to_string())
}

fn namespace(collection: &str) -> Result<Namespace> {
    Ok(Namespace::new("test", collection)?)
}

/// Records the metrics of a scenario.
fn recorded(scenario: impl Future<Output = Result<()>>) -> Recorded {
    Recorded::of(scenario).0
}

/// Compares the counters of a pattern, or other numbers, with the expected ones. There must be no others.
fn assert_numbers(recorded: &Recorded, metric: &str, labels: &str, expected: &[(&str, u64)]) {
    let key = |value: &str| format!("{metric}{{{labels}{value}}}");
    for (value, number) in expected {
        assert_eq!(recorded.number(&key(value)), Some(*number as f64), "{}", key(value));
    }
    let keys = recorded.keys();
    let there: Vec<_> = keys.iter().filter(|key| key.starts_with(&format!("{metric}{{"))).collect();
    assert_eq!(there.len(), expected.len(), "{there:?}");
}

async fn jobs() -> Result<()> {
    let world = World::new();
    let options = JobQueueOptions::default();
    let lease = options.lease;
    let queue = JobQueue::open_with(world.store.clone(), namespace("jobs")?, world.sources.clone(), options).await?;
    let job = || NewJob::new("work", &doc! {});
    queue.enqueue(job()?.unique("one")).await?;
    queue.enqueue(job()?.unique("one")).await?;
    queue.enqueue_all([job()?, job()?, job()?, job()?.unique("one"), job()?]).await?;
    world.clock.advance(Duration::from_secs(1));

    let kinds = ["work".to_owned()];
    let claimed = queue.claim_many("w", &kinds, 4).await?;
    let [done, failed, snoozed, given_up] = claimed.as_slice() else { return Err(Error::invalid("four jobs are due")) };
    assert_eq!(queue.complete(done, None).await?, ClaimState::Held);
    let _ = queue.fail(failed, "no luck").await?;
    let _ = queue.snooze(snoozed, DAY).await?;
    let _ = queue.give_up(given_up, "hopeless").await?;

    let last = queue.claim("w", &kinds).await?.ok_or_else(|| Error::invalid("one more is due"))?;
    let _ = queue.release(&last).await?;
    let last = queue.claim("w", &kinds).await?.ok_or_else(|| Error::invalid("it is due again"))?;
    let _ = queue.cannot_read(&last, "of another version").await?;
    world.clock.advance(Duration::from_secs(8));
    let last = queue.claim("w", &kinds).await?.ok_or_else(|| Error::invalid("it is due again"))?;
    world.clock.advance(lease + Duration::from_secs(1));
    assert_eq!(queue.reclaim(10).await?.done, 1);
    let _ = queue.complete(&last, None).await?;

    let worker = Worker::new(queue.clone(), "w").handle("work", |_, _: Document| async { Ok::<_, JobError>(()) });
    assert_eq!(worker.drain().await?.completed, 2, "the one that crashed, and the one that failed");
    let id = ObjectId::from_bytes([7; 12]);
    queue.enqueue(job()?.with_id(id)).await?;
    assert!(queue.cancel(id).await?);

    queue.enqueue_all([job()?, job()?]).await?;
    world.store.insert_one(&namespace("jobs")?, rawdoc! { "_id": "of somebody else", "state": "TODO" }).await?;
    let _ = queue.claim("w", &kinds).await?.ok_or_else(|| Error::invalid("two are due"))?;
    world.clock.advance(Duration::from_secs(3));
    queue.depth().await.map(|_| ())
}

#[test]
fn of_jobs() {
    let recorded = recorded(jobs());
    assert_numbers(
        &recorded,
        "handfast_job_queue_events_total",
        "collection=test.jobs,event=",
        &[
            ("enqueued", 8),
            ("duplicate", 2),
            ("claimed", 10),
            ("completed", 3),
            ("failed", 1),
            ("snoozed", 1),
            ("released", 1),
            ("crashed", 1),
            ("unread", 1),
            ("dead", 1),
            ("canceled", 1),
            ("lost", 1),
        ],
    );
    assert_numbers(&recorded, "handfast_job_queue_wait_seconds", "collection=test.jobs", &[("", 10)]);
    assert_numbers(&recorded, "handfast_job_queue_run_seconds", "collection=test.jobs", &[("", 2)]);
    let states = [
        ("due", 1),
        ("scheduled", 1),
        ("processing", 1),
        ("silent", 0),
        ("failed", 1),
        ("canceled", 1),
        ("foreign", 1),
    ];
    assert_numbers(&recorded, "handfast_job_queue_jobs", "collection=test.jobs,state=", &states);
    assert_numbers(&recorded, "handfast_job_queue_oldest_due_seconds", "collection=test.jobs", &[("", 3)]);
}

async fn ledger() -> Result<()> {
    let world = World::new();
    let ledger =
        Ledger::open_with(world.store.clone(), namespace("tx")?, world.sources.clone(), LedgerOptions::default())
            .await?;
    ledger.open_account(NewAccount::new("ann", "EUR").with_minimum(0)).await?;
    ledger.open_account(NewAccount::new("shop", "EUR").with_sequence()).await?;
    let pay = |value: i64| NewEntry::transfer("ann", "bob", value, "EUR");
    let _ = ledger.post(NewEntry::transfer("cash", "ann", 100, "EUR")).await?;
    let _ = ledger.post(pay(30).with_id("order 7")).await?;
    let _ = ledger.post(pay(30).with_id("order 7")).await?;
    let _ = ledger.post(pay(71)).await?;
    assert_eq!(ledger.cancel("order 7", "returned").await?, Cancel::Canceled);

    let until = DateTime::from_millis(world.sources.clock.now().timestamp_millis() + 1000);
    let _ = ledger.authorise(Authorisation::new("ann", "bob", 10, "EUR").with_id("hold").until(until)).await?;
    world.clock.advance(Duration::from_secs(2));
    assert_eq!(ledger.expire(10).await?.done, 1);

    // The sequence is behind the existing entries, and one of its places was drawn in vain.
    let accounts = namespace(&LedgerOptions::default().accounts)?;
    let buy = || NewEntry::transfer("cash", "shop", 1, "EUR");
    let _ = ledger.post(buy()).await?;
    world.by_hand(&accounts, doc! { "_id": "shop" }, doc! { "$inc": { "lastSeqId": -1 } }).await?;
    assert!(matches!(ledger.post(buy()).await?, Posting::Posted(_)));
    world.by_hand(&accounts, doc! { "_id": "shop" }, doc! { "$inc": { "lastSeqId": 1 } }).await?;
    let _ = ledger.post(buy()).await?;
    world.clock.advance(DAY);
    while ledger.commit(10).await?.done > 0 {}
    ledger.status().await.map(|_| ())
}

#[test]
fn of_entries() {
    let recorded = recorded(ledger());
    assert_numbers(
        &recorded,
        "handfast_ledger_events_total",
        "collection=test.tx,event=",
        &[
            // The entries: 100 to ann, 30 to bob, the fence of its cancellation, the authorisation and its expiry,
            // three to the shop.
            ("posted", 8),
            ("repeated", 1),
            ("refused", 1),
            ("raced", 1),
            ("committed", 9),
            ("canceled", 1),
            ("expired", 1),
            ("abandoned", 1),
        ],
    );
    assert_numbers(&recorded, "handfast_ledger_post_seconds", "collection=test.tx", &[("", 10)]);
    assert_numbers(&recorded, "handfast_ledger_uncommitted", "collection=test.tx", &[("", 0)]);
    assert_numbers(&recorded, "handfast_ledger_oldest_uncommitted_seconds", "collection=test.tx", &[("", 0)]);
}

async fn two_phase() -> Result<()> {
    let world = World::new();
    let (accounts, transactions) = (namespace("accounts")?, namespace("transactions")?);
    for id in ["A", "B"] {
        world.store.insert_one(&accounts, rawdoc! { "_id": id, "balance": 1000 }).await?;
    }
    let options = TwoPhaseOptions::new("App1", accounts.clone());
    let transfers =
        TwoPhase::open_with(world.store.clone(), transactions.clone(), world.sources.clone(), options.clone()).await?;
    for (id, value) in [(1, 100), (2, 2000), (3, 10)] {
        transfers.begin(id, Transfer::new("A", "B", value)).await?;
    }
    assert_eq!(transfers.run(1).await?, TwoPhaseOutcome::Done);
    assert!(matches!(transfers.run(2).await?, TwoPhaseOutcome::Canceled { .. }));
    // Another application dies within the third transaction.
    let elsewhere = TwoPhaseOptions { application: "App2".to_owned(), ..options };
    let elsewhere = TwoPhase::attach(world.store.clone(), transactions, world.sources.clone(), elsewhere).await?;
    assert!(elsewhere.within(world.dying()).run(3).await.is_err());
    world.clock.advance(DAY);
    assert_eq!(transfers.recover(10).await?.done, 1);
    // A copy of a request of the first transaction arrives long after the transaction was forgotten.
    let late = doc! {
        "$inc": { "balance": -100 },
        "$push": { "pendingTransactions": 1 },
        "$set": { "finishedTransactions": (1000..1100).collect::<Vec<_>>() },
    };
    world.by_hand(&accounts, doc! { "_id": "A" }, late).await?;
    assert_eq!(transfers.repair(10).await?.done, 1);
    transfers.status().await.map(|_| ())
}

#[test]
fn of_transactions_in_two_phases() {
    let recorded = recorded(two_phase());
    assert_numbers(
        &recorded,
        "handfast_two_phase_events_total",
        "collection=test.transactions,event=",
        &[
            ("begun", 3),
            // The claim of the process that died was never answered.
            ("claimed", 2),
            ("applied", 2),
            ("done", 2),
            ("refused", 1),
            ("canceled", 1),
            ("taken_over", 1),
            ("repaired", 1),
        ],
    );
    assert_numbers(&recorded, "handfast_two_phase_run_seconds", "collection=test.transactions", &[("", 3)]);
    let states = [("initial", 0), ("pending", 0), ("applied", 0), ("done", 2), ("canceling", 0), ("canceled", 1)];
    assert_numbers(&recorded, "handfast_two_phase_transactions", "collection=test.transactions,state=", &states);
    assert_numbers(&recorded, "handfast_two_phase_abandoned", "collection=test.transactions", &[("", 0)]);
}

async fn sync_flag() -> Result<()> {
    let world = World::new();
    let (users, comments) = (namespace("users")?, namespace("comments")?);
    world.store.insert_one(&users, rawdoc! { "_id": 1, "name": "John" }).await?;
    let options = SyncFlagOptions::new([Link::new(comments.clone(), "user").field("name", "userName")]);
    let names = SyncFlag::open_with(world.store.clone(), users.clone(), world.sources.clone(), options.clone()).await?;
    for id in [8, 9] {
        let _ = names.insert_copy(&comments, doc! { "_id": id, "user": 1 }).await?;
    }
    let rename = |name: &str| Change::new(doc! { "$set": { "name": name } });
    let _ = names.change(names.token(), 1, &rename("Mary")).await?;
    let dying = SyncFlag::attach(world.dying(), users.clone(), world.sources.clone(), options.clone())?;
    // The answer to the change is lost with the process; the next process repeats the request.
    let token = dying.token();
    assert!(dying.change(token, 1, &rename("Ann")).await.is_err());
    let first_copy = Plan::at_request(Address::first(Operation::Update).of("comments"), Fault::Refuse);
    let unlucky = Arc::new(Faulty::new(world.store.clone(), first_copy));
    let unlucky = SyncFlag::attach(unlucky, users, world.sources.clone(), options)?;
    assert!(matches!(unlucky.change(unlucky.token(), 1, &rename("Eve")).await?, SyncOutcome::Later { .. }));
    world.clock.advance(DAY);
    assert_eq!(names.sweep(10).await?.done, 1);
    world.by_hand(&comments, doc! { "_id": 9 }, doc! { "$set": { "userName": "John" } }).await?;
    assert_eq!(names.drift(10, |_| ()).await?.stale, 1);
    assert_eq!(names.repair(10).await?.done, 1);
    names.staleness().await.map(|_| ())
}

#[test]
fn of_copies() {
    let recorded = recorded(sync_flag());
    assert_numbers(
        &recorded,
        "handfast_sync_flag_events_total",
        "collection=test.users,event=",
        &[
            ("changed", 2),
            // Two copies that were inserted and confirmed, two changes of both, and one change outside of the pattern.
            ("copied", 7),
            ("synced", 2),
            ("left", 1),
            ("swept", 1),
            ("stale", 1),
            ("repaired", 1),
        ],
    );
    assert_numbers(&recorded, "handfast_sync_flag_carry_seconds", "collection=test.users", &[("", 2)]);
    assert_numbers(&recorded, "handfast_sync_flag_flags", "collection=test.users,of=", &[("mains", 0), ("copies", 0)]);
    assert_numbers(&recorded, "handfast_sync_flag_oldest_seconds", "collection=test.users", &[("", 0)]);
}

async fn versioned_tree() -> Result<()> {
    let world = World::new();
    let options = VersionedTreeOptions::new("tree");
    let tree =
        VersionedTree::open_with(world.store.clone(), namespace("items")?, world.sources.clone(), options).await?;
    let (mut first, mut second) = (tree.begin().await?, tree.begin().await?);
    first.put("a", doc! { "n": 1 }).await?;
    second.put("a", doc! { "n": 2 }).await?;
    assert!(matches!(first.commit(doc! {}).await?, Commit::Committed { version: 1 }));
    assert_eq!(second.commit(doc! {}).await?, Commit::Conflict);
    let mut third = tree.begin().await?;
    third.put("a", doc! { "n": 3 }).await?;
    assert!(matches!(third.commit(doc! {}).await?, Commit::Committed { .. }));
    let mut left = tree.begin().await?;
    left.put("a", doc! { "n": 4 }).await?;
    left.put("b", doc! { "n": 4 }).await?;
    drop(left);
    world.clock.advance(DAY);
    tree.sweep(10).await?;
    tree.prune(Keep { last: 1, newer_than: None }, 10).await?;
    Ok(())
}

#[test]
fn of_versions() {
    let recorded = recorded(versioned_tree());
    assert_numbers(
        &recorded,
        "handfast_versioned_tree_events_total",
        "collection=test.items,event=",
        &[("committed", 2), ("conflict", 1), ("swept", 1), ("orphans", 2), ("pruned", 1)],
    );
    assert_numbers(&recorded, "handfast_versioned_tree_write_seconds", "collection=test.items", &[("", 2)]);
}

async fn exactly_once() -> Result<()> {
    let world = World::new();
    let pages = namespace("pages")?;
    world.store.insert_one(&pages, rawdoc! { "_id": "/", "views": 0 }).await?;
    let once =
        ExactlyOnce::open_with(world.store.clone(), pages.clone(), world.sources.clone(), Default::default()).await?;
    let (token, view) = (once.token(), Change::increment("views", 1));
    assert_eq!(once.apply(token, "/", &view).await?, UpdateOutcome::Applied);
    assert_eq!(once.apply(token, "/", &view).await?, UpdateOutcome::AlreadyApplied);
    assert_eq!(once.apply(once.token(), "/missing", &view).await?, UpdateOutcome::Missing);
    let full = view.clone().guarded(doc! { "views": { "$gt": 7 } });
    assert_eq!(once.apply(once.token(), "/", &full).await?, UpdateOutcome::Refused);

    let open =
        |store| TwoStep::open_with(store, pages.clone(), world.sources.clone(), view.clone(), Default::default());
    let visits = open(world.store.clone()).await?;
    assert_eq!(visits.apply(visits.token(), "/").await?, UpdateOutcome::Applied);
    let first_update = Plan::at_request(Address::first(Operation::Update).of("pages"), Fault::CrashAfter);
    let dying = open(Arc::new(Faulty::new(Arc::clone(&world.store), first_update))).await?;
    assert!(dying.apply(dying.token(), "/").await.is_err());
    world.clock.advance(DAY);
    assert_eq!(visits.clean_up(Duration::from_secs(3600), 10).await?.done, 1);
    Ok(())
}

#[test]
fn of_updates_with_a_token() {
    let recorded = recorded(exactly_once());
    assert_numbers(
        &recorded,
        "handfast_exactly_once_events_total",
        "collection=test.pages,event=",
        &[("applied", 2), ("repeated", 1), ("refused", 1), ("missing", 1), ("settled", 1)],
    );
    assert_numbers(&recorded, "handfast_exactly_once_apply_seconds", "collection=test.pages", &[("", 5)]);
}

async fn runners() -> Result<()> {
    let world = World::new();
    let every = || RunnerOptions { interval: Duration::from_secs(10), jitter: 0.0, batch: 5 };
    let cancel = CancellationToken::new();
    let queue =
        JobQueue::open_with(world.store.clone(), namespace("jobs")?, world.sources.clone(), Default::default()).await?;
    queue.enqueue(NewJob::new("work", &doc! {})?).await?;
    let depth = queue.spawn_depth(every(), &cancel)?;
    let sweep = Runner::spawn("sweep", &world.sources, every(), &cancel, |_| async {
        Ok(Round { done: 2, failed: 1, more: false })
    })?;
    let broken = Runner::spawn("broken", &world.sources, every(), &cancel, |_| async { Err(Error::invalid("no")) })?;
    tokio::time::sleep(Duration::from_secs(25)).await;
    for runner in [depth, sweep, broken] {
        runner.stop().await;
    }
    Ok(())
}

#[test]
fn of_background_work() {
    let recorded = recorded(runners());
    let rounds = [("job_queue.depth,result=done", 2), ("sweep,result=done", 2), ("broken,result=failed", 2)];
    assert_numbers(&recorded, "handfast_runner_rounds_total", "runner=", &rounds);
    let items = [("done", 4), ("failed", 2)];
    assert_numbers(&recorded, "handfast_runner_items_total", "runner=sweep,result=", &items);
    let seconds = [("job_queue.depth", 2), ("sweep", 2), ("broken", 2)];
    assert_numbers(&recorded, "handfast_runner_round_seconds", "runner=", &seconds);
    assert_eq!(recorded.number("handfast_job_queue_jobs{collection=test.jobs,state=due}"), Some(1.0));
}

/// Covers the other counters: those of a schedule, and of copies that are found without a version.
async fn schedule_and_backfill() -> Result<()> {
    let world = World::new();
    let (users, comments) = (namespace("users")?, namespace("comments")?);
    let queue =
        JobQueue::open_with(world.store.clone(), namespace("jobs")?, world.sources.clone(), Default::default()).await?;
    let schedules = Schedules::open(queue.clone(), namespace("schedules")?).await?;
    let [name, cron, zone] = ["daily", "0 9 * * *", "UTC"].map(str::to_owned);
    schedules.set(&Schedule { name, cron, zone, missed: Missed::Last, job: NewJob::new("work", &doc! {})? }).await?;
    world.clock.advance(DAY);
    assert_eq!(schedules.tick(10).await?.done, 1);
    let worker = Worker::new(queue, "w").handle("work", |_, _: Document| async { Ok::<_, JobError>(()) });
    let working = worker.spawn(&CancellationToken::new())?;
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(working.counts().completed, 1);
    working.stop().await;
    world.store.insert_one(&users, rawdoc! { "_id": 1, "name": "John" }).await?;
    world.store.insert_one(&comments, rawdoc! { "_id": 8, "user": 1 }).await?;
    let options = SyncFlagOptions::new([Link::new(comments, "user").field("name", "userName")]);
    let names = SyncFlag::open_with(world.store.clone(), users, world.sources.clone(), options).await?;
    names.backfill(10).await.map(|_| ())
}

#[test]
fn whatever_is_done_to_an_item_is_done_in_a_span_that_names_it() {
    let spans = Arc::new(Spans::default());
    let everything = async {
        jobs().await?;
        ledger().await?;
        two_phase().await?;
        sync_flag().await?;
        versioned_tree().await?;
        exactly_once().await?;
        runners().await?;
        schedule_and_backfill().await
    };
    // The subscriber is set for all threads: without one, the first thread that reaches a span switches it off for
    // good.
    tracing::subscriber::set_global_default(Arc::clone(&spans)).expect("no other test has one");
    recorded(everything);
    let expected = [
        "exactly_once.clean_up{id,token}",
        "job_queue.reclaim{id}",
        "job_queue.schedule{name}",
        "job{id,kind,attempt}",
        "ledger.commit{id}",
        "ledger.expire{id}",
        "runner{name}",
        "sync_flag.backfill{main}",
        "sync_flag.repair{copy,target,why}",
        "sync_flag.sweep{main}",
        "two_phase.recover{id}",
        "two_phase.repair{transaction,participant}",
        "versioned_tree.prune{tree,pruned}",
        "versioned_tree.sweep{tree,version}",
        "worker{name}",
    ];
    // Other tests run meanwhile, and their spans are collected, too.
    let seen = spans.names();
    let missing: Vec<_> = expected.into_iter().filter(|name| !seen.contains(*name)).collect();
    assert!(missing.is_empty(), "{missing:?} is not among {seen:?}");
}

/// The counted, the described and the documented metrics are the same: names, and the values of labels that are not
/// the program's own.
#[test]
fn the_documentation_has_each_metric() {
    let everything = recorded(async {
        jobs().await?;
        ledger().await?;
        two_phase().await?;
        sync_flag().await?;
        versioned_tree().await?;
        exactly_once().await?;
        runners().await?;
        super::describe();
        Ok(())
    });
    let names = |key: &String| key.split('{').next().unwrap_or(key).to_owned();
    let mut counted: Vec<_> = everything.keys().iter().map(names).collect();
    counted.dedup();
    let mut described = everything.described();
    described.sort();
    assert_eq!(counted, described);

    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");
    let page = std::fs::read_to_string(path).expect("the page is there");
    // The metrics of the server are compared where they are made.
    let (page, _) = page.split_once("\n## Server\n").expect("the section of the server");
    let rows: Vec<_> = page.lines().filter(|line| line.starts_with("| `handfast_")).collect();
    let mut documented: Vec<_> = rows.iter().filter_map(|row| row.split('`').nth(1)).map(str::to_owned).collect();
    documented.sort();
    assert_eq!(counted, documented);
    for key in everything.keys() {
        let (name, labels) = (names(&key), key.split(['{', '}']).nth(1).unwrap_or_default());
        let section = page.split("\n## ").find(|section| section.contains(&name)).expect("it is documented");
        for (label, value) in labels.split(',').filter_map(|label| label.split_once('=')) {
            assert!(section.contains(&format!("`{label}`")), "label {label} of {name}");
            let own = ["collection", "runner"].contains(&label);
            assert!(own || section.contains(&format!("`{value}`")), "{label} {value} of {name}");
        }
    }
}
