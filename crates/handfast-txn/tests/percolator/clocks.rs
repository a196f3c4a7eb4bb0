//! Wrong clocks: each process has a time of day and a monotonic clock of its own, over one store. The time of day is slow, or is set forward or
//! back; the monotonic clock stands still while its machine is suspended.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bson::{DateTime, Document, RawDocumentBuf, rawdoc};
use handfast_mql::Code;
use handfast_store::decorator::{DelegatingStore, Fault, Faulty, Plan};
use handfast_store::{
    Clock, DocumentStore, Find, FindAndModify, FindAndModifyOutcome, ManualClock, MemoryStore, RequestedDocument,
    Result as StoreResult, Sources, StoreExt, Ticket, Update, UpdateSpec, UpdateStatement,
};
use handfast_txn::percolator::row::Timestamp;
use handfast_txn::{Database, Error, Percolator, PercolatorOptions, Result, Transaction};

use crate::support::*;

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(86_400);
/// The time between two passes of a cleaner.
const PASS: Duration = Duration::from_secs(120);

/// Returns the bank of the seed, at a fixed time of day.
async fn bank() -> Bank {
    let bank = Bank::of_the_seed().await;
    bank.clock.set(ManualClock::START);
    bank
}

/// Returns a time of day that is this many seconds later, or earlier if they are negative.
fn moved(time: DateTime, seconds: i64) -> DateTime {
    DateTime::from_millis(time.timestamp_millis() + seconds * 1_000)
}

fn seconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_secs()).unwrap()
}

/// Returns a machine whose time of day is `ahead` seconds ahead of the store's, and whose monotonic clock stands at zero.
fn machine(bank: &Bank, ahead: i64) -> (Sources, Arc<ManualClock>) {
    let (sources, clock) = Sources::manual(2);
    clock.set(moved(bank.sources.clock.now(), ahead));
    (sources, clock)
}

fn process_on(sources: &Sources, store: Arc<dyn DocumentStore>) -> Database {
    process_with(options(), sources, store)
}

fn process_with(options: PercolatorOptions, sources: &Sources, store: Arc<dyn DocumentStore>) -> Database {
    Database::percolator(store, sources.clone(), options).unwrap()
}

/// Returns a process that cleans, on the machine whose time of day is the store's.
fn cleaner(bank: &Bank) -> Percolator {
    Percolator::new(bank.store.clone(), bank.sources.clone(), options()).unwrap()
}

/// Moves the clocks of these machines on, while a cleaner makes its passes.
async fn pass(cleaner: &Percolator, clocks: &[&ManualClock], time: Duration) {
    for _ in 0..time.as_secs() / PASS.as_secs() {
        clocks.iter().for_each(|clock| clock.advance(PASS));
        cleaner.clean().await.unwrap();
    }
}

async fn names(tx: &Transaction) -> Result<Vec<String>> {
    let found = tx.find_all(Find::new(accounts(), rawdoc! { "balance": { "$gte": 0 } })).await?;
    let mut names: Vec<_> = found.iter().map(|found| found.get_str("_id").unwrap().to_owned()).collect();
    names.sort();
    Ok(names)
}

fn is_right_or_too_old(seen: &Result<Vec<String>>) -> bool {
    match seen {
        Ok(names) => *names == ["Bob", "Joe"],
        Err(error) => error.code() == Code::SnapshotTooOld,
    }
}

async fn delete_joe(database: &Database) {
    database.delete_one(&accounts(), rawdoc! { "_id": "Joe" }).await.unwrap();
    database.flush().await.unwrap();
}

async fn has_joe(bank: &Bank) -> bool {
    bank.rows().await.iter().any(|row| row.get_str("_id").unwrap() == "Joe")
}

/// A process whose time of day is 20 minutes slow keeps its snapshots when one with the right time cleans.
#[tokio::test]
async fn a_slow_clock_loses_no_documents() {
    let bank = bank().await;
    let (sources, clock) = machine(&bank, -20 * 60);
    let reader = process_on(&sources, bank.store.clone());
    let tx = reader.begin_reads(DAY).await.unwrap();
    delete_joe(&reader).await;
    let cleaner = cleaner(&bank);
    pass(&cleaner, &[&bank.clock, &clock], 4 * MINUTE).await;
    assert_eq!(names(&tx).await.unwrap(), ["Bob", "Joe"]);
    for _ in 0..6 {
        pass(&cleaner, &[&bank.clock, &clock], 4 * MINUTE).await;
        let seen = names(&tx).await;
        assert!(is_right_or_too_old(&seen), "{seen:?}");
    }
    drop(tx);
    reader.flush().await.unwrap();
    pass(&cleaner, &[&bank.clock, &clock], 20 * MINUTE).await;
    assert!(!has_joe(&bank).await, "history is forgotten once nobody reads it");
}

/// After a step forward of the time of day no process misses a document.
#[tokio::test]
async fn a_step_forward_loses_no_documents() {
    for step in [20 * MINUTE, 3 * DAY] {
        let bank = bank().await;
        let process = bank.process();
        let tx = process.begin_reads(DAY).await.unwrap();
        delete_joe(&process).await;
        bank.clock.set(moved(bank.sources.clock.now(), seconds(step)));
        let cleaner = cleaner(&bank);
        for _ in 0..4 {
            pass(&cleaner, &[&bank.clock], PASS).await;
            let seen = names(&tx).await;
            assert!(is_right_or_too_old(&seen), "{step:?}: {seen:?}");
        }
        assert!(has_joe(&bank).await, "no retention has gone by");
    }
}

/// A reader on a machine that was suspended counts as old by its time of day, although its monotonic clock stood still.
#[tokio::test]
async fn a_suspended_reader_is_old() {
    let bank = bank().await;
    let (sources, clock) = machine(&bank, 0);
    let reader = process_on(&sources, bank.store.clone());
    let tx = reader.begin_reads(DAY).await.unwrap();
    delete_joe(&reader).await;
    pass(&cleaner(&bank), &[&bank.clock], HOUR).await;
    assert!(!has_joe(&bank).await);
    clock.set(bank.sources.clock.now());
    assert_eq!(names(&tx).await.unwrap_err().code(), Code::SnapshotTooOld);
}

/// The clocks of a machine after a pause of 25 minutes.
#[derive(Clone, Copy, Debug)]
enum Resumed {
    /// They go on as if there had been no pause.
    Unaware,
    /// The time of day is right again: a suspend.
    Suspended,
}

/// A payment that paused before one of its requests.
struct Paused {
    /// The payment came to that request.
    is_reached: bool,
    /// The anomaly that the pause led to: a payment of which only a part is done, or whose answer is wrong.
    anomaly: Option<String>,
}

/// Pays with these options, and pauses before one of the requests for longer than the longest retention.
async fn payment_that_pauses(number: u64, resumed: Resumed, options: PercolatorOptions) -> Paused {
    let case = format!("{resumed:?}, before request {number}");
    let bank = bank().await;
    let (sources, clock) = machine(&bank, 0);
    let faulty = Arc::new(Faulty::new(bank.store.clone(), Plan::at(number, Fault::FreezeBefore)));
    let database = process_with(options, &sources, faulty.clone());
    let payment = tokio::spawn(async move {
        let paid = pay_once(&database).await;
        database.flush().await.unwrap();
        paid
    });
    let is_reached = stopped(&faulty, || payment.is_finished()).await;
    let cleaner = cleaner(&bank);
    pass(&cleaner, &[&bank.clock], 25 * MINUTE).await;
    if matches!(resumed, Resumed::Suspended) {
        clock.set(bank.sources.clock.now());
    }
    faulty.release();
    let paid = payment.await.unwrap();
    assert!(matches!(paid, Ok(()) | Err(Error::Conflict(_))), "{case}: {paid:?}");
    pass(&cleaner, &[&bank.clock, &clock], 25 * MINUTE).await;
    let is_left = |hidden: &Document| hidden.contains_key("lock") || hidden.contains_key("rb");
    assert!(!bank.hidden().await.iter().any(is_left), "{case}: {:?}", bank.rows().await);
    let expected = if paid.is_ok() { (3, 9) } else { (10, 2) };
    let balances = bank.balances().await;
    let anomaly = (balances != expected).then(|| format!("{case}: {balances:?} after {paid:?}"));
    Paused { is_reached, anomaly }
}

/// Pays with these options, and pauses before each request in turn. Returns how many requests there are, and the anomalies.
async fn payments_that_pause(resumed: Resumed, options: PercolatorOptions) -> (u64, Vec<String>) {
    let mut anomalies = Vec::new();
    for number in 0.. {
        let paused = payment_that_pauses(number, resumed, options.clone()).await;
        anomalies.extend(paused.anomaly);
        if !paused.is_reached {
            return (number, anomalies);
        }
    }
    unreachable!("a payment has an end")
}

#[tokio::test]
async fn a_pause_before_any_request_costs_at_most_the_transaction() {
    for resumed in [Resumed::Unaware, Resumed::Suspended] {
        let (requests, anomalies) = payments_that_pause(resumed, options()).await;
        assert!(anomalies.is_empty(), "{}", anomalies.join("\n"));
        assert!(requests >= 7, "{resumed:?}: {requests} requests");
    }
}

/// A process that assumes a longer retention than the others refuses no commit for its age, and commits a part of a payment.
#[tokio::test]
async fn a_commit_without_a_check_of_its_age_is_caught() {
    let unchecked = PercolatorOptions { retention: DAY, ..options() };
    for resumed in [Resumed::Unaware, Resumed::Suspended] {
        let (_, anomalies) = payments_that_pause(resumed, unchecked.clone()).await;
        let is_in_part = |anomaly: &String| anomaly.contains("(3, 2) after Ok");
        assert!(anomalies.iter().any(is_in_part), "{resumed:?}: no payment is done in part: {anomalies:?}");
    }
}

/// A lock on the primary that is written after the others have forgotten its transaction's rollback does not commit: the time of day was
/// set forward meanwhile on all machines, or on all but the writer's.
#[tokio::test]
async fn a_late_lock_on_the_primary_does_not_commit() {
    for is_stepped_too in [false, true] {
        let payer = Sources::manual(2);
        payer.1.set(DateTime::from_millis(0));
        let (bank, faulty, payment) = crate::rules::late_primary(Some(payer.0)).await;
        bank.clock.advance(LOCK_TIME);
        assert_eq!(bank.balances().await, (10, 2));
        for _ in 0..2 {
            bank.clock.advance(PASS);
            bank.clock.set(moved(bank.sources.clock.now(), 20 * 60));
            cleaner(&bank).clean().await.unwrap();
        }
        if is_stepped_too {
            payer.1.set(bank.sources.clock.now());
        }
        faulty.release();
        let paid = payment.await.unwrap();
        assert!(is_conflict(&paid), "{paid:?}");
        assert_eq!(bank.balances().await, (10, 2));
    }
}

/// Adds Ann's bonus, as a driver sends it: once, however often it is sent.
async fn add_once(database: &Database) {
    let ticket = Some(Ticket { session: [3; 16], number: 1, statement: 0, requested: RequestedDocument::Nothing });
    let bonus = UpdateSpec::Document(rawdoc! { "$inc": { "balance": 7 } });
    let statement = UpdateStatement::one(rawdoc! { "_id": "Bob" }, bonus);
    let outcome = database.update(Update { ticket, ..Update::new(accounts(), vec![statement]) }).await.unwrap();
    assert_eq!((outcome.matched, outcome.errors.len()), (1, 0));
}

/// The result of a request is not forgotten because a clock was set: a request that is sent again is applied once.
#[tokio::test]
async fn a_step_of_days_forgets_no_request() {
    let bank = bank().await;
    let process = bank.process();
    add_once(&process).await;
    for step in [3 * DAY, 300 * DAY] {
        bank.clock.set(moved(bank.sources.clock.now(), seconds(step)));
        pass(&cleaner(&bank), &[&bank.clock], 20 * MINUTE).await;
        assert_eq!(process.forget_outcomes(DAY).await.unwrap(), 0);
        add_once(&process).await;
        add_once(&bank.process()).await;
        assert_eq!(bank.balances().await, (17, 2));
    }
    assert_eq!(bank.records().await, 1);
}

/// Records are removed at their configured age, by the monotonic clocks of the processes that clean, even if no process lives that long.
#[tokio::test]
async fn records_are_forgotten_by_processes_that_are_restarted() {
    let bank = bank().await;
    add_once(&bank.process()).await;
    let mut lived = Duration::ZERO;
    while bank.records().await > 0 {
        assert!(lived < 30 * HOUR, "the record is never forgotten");
        pass(&cleaner(&bank), &[&bank.clock], HOUR).await;
        lived += HOUR;
        // No process lives, and the time of day is set back.
        bank.clock.set(moved(bank.sources.clock.now(), -seconds(2 * HOUR)));
    }
    assert!(lived > 24 * HOUR, "{lived:?}");
}

/// A step back of the time of day does not stop the locks of dead processes from expiring.
#[tokio::test]
async fn a_step_back_keeps_no_lock_alive() {
    let bank = bank().await;
    let payment = Stepped::payment(&bank);
    payment.until(&bank, both_locked).await;
    payment.payment.abort();
    bank.clock.set(moved(bank.sources.clock.now(), -seconds(HOUR)));
    let cleaner = cleaner(&bank);
    let cleaned = cleaner.clean().await.unwrap();
    assert_eq!((cleaned.resolved, cleaned.alive), (0, 2));
    bank.clock.advance(LOCK_TIME);
    let cleaned = cleaner.clean().await.unwrap();
    assert_eq!((cleaned.resolved, cleaned.alive), (2, 0));
    assert_eq!(bank.balances().await, (10, 2));
}

/// The oracle's time goes on with the monotonic clock of the process that moves it, in steps of any size, while the time of day stands
/// still.
#[tokio::test]
async fn the_time_of_the_oracle_goes_on_after_a_step_back() {
    let bank = bank().await;
    let process = bank.process();
    process.begin().await.unwrap().abort();
    let begun = bank.clock_of_oracle().await >> 18;
    bank.clock.set(moved(bank.sources.clock.now(), -seconds(DAY)));
    for _ in 0..10_000 {
        bank.clock.advance(Duration::from_micros(300));
        process.begin().await.unwrap().abort();
    }
    let gone_by = (bank.clock_of_oracle().await >> 18) - begun;
    assert!((2_999..=3_001).contains(&gone_by), "{gone_by} ms of 3,000");
}

/// Another process, with a faster clock, moves the oracle before each request of this one.
struct Overtaken {
    store: Arc<MemoryStore>,
    fast: Database,
    clock: Arc<ManualClock>,
    requests: AtomicU64,
}

#[async_trait]
impl DelegatingStore for Overtaken {
    type Inner = MemoryStore;

    fn inner(&self) -> &MemoryStore {
        &self.store
    }

    fn name(&self) -> &'static str {
        "overtaken"
    }

    async fn find_and_modify(&self, request: FindAndModify) -> StoreResult<FindAndModifyOutcome> {
        self.clock.advance(Duration::from_millis(1));
        self.fast.begin().await.unwrap().abort();
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.store.find_and_modify(request).await
    }
}

/// A process that always loses the race for the oracle needs two requests for a timestamp, and no more.
#[tokio::test]
async fn a_slow_clock_gets_timestamps_in_two_requests() {
    let bank = bank().await;
    let overtaken = Arc::new(Overtaken {
        store: bank.store.clone(),
        fast: bank.process(),
        clock: bank.clock.clone(),
        requests: AtomicU64::new(0),
    });
    let (sources, _) = machine(&bank, -20 * 60);
    let slow = process_on(&sources, overtaken.clone());
    let mut last = 0;
    for begun in 1..=10 {
        let before = bank.clock_of_oracle().await;
        let at = slow.begin().await.unwrap().read_at().unwrap().0;
        assert!(at > last && at > before as u64, "{at} after {last} and {before}");
        last = at;
        let requests = overtaken.requests.load(Ordering::Relaxed);
        assert!(requests <= 2 * begun + 1, "{requests} requests for {begun} timestamps, one of them a look");
    }
}

/// The clocks of the runtime, which run without a task that moves them.
struct Running {
    since: tokio::time::Instant,
    start: DateTime,
}

impl Running {
    #[allow(clippy::disallowed_methods, reason = "it is a clock")]
    fn new(start: DateTime) -> Arc<Running> {
        Arc::new(Running { since: tokio::time::Instant::now(), start })
    }
}

impl Clock for Running {
    fn now(&self) -> DateTime {
        let millis = i64::try_from(self.elapsed().as_millis()).unwrap();
        DateTime::from_millis(self.start.timestamp_millis() + millis)
    }

    fn elapsed(&self) -> Duration {
        self.since.elapsed()
    }
}

/// Fetches timestamps one after the other for a second, each request of which takes a millisecond.
async fn timestamps_of_a_second(store: Arc<MemoryStore>, start: DateTime) -> Vec<u64> {
    let clock = Running::new(start);
    let sources = Sources { clock: clock.clone(), ..Sources::seeded(2) };
    let far = Faulty::new(store, Plan::always(Fault::Delay(Duration::from_millis(1))));
    let process = process_on(&sources, Arc::new(far));
    let mut fetched = Vec::new();
    while clock.elapsed() < Duration::from_secs(1) {
        fetched.push(process.begin().await.unwrap().read_at().unwrap().0);
    }
    fetched
}

/// Beside a process with the right time, a process with a slow clock gets about half as many timestamps. All timestamps differ, and those
/// of each process increase.
#[tokio::test(start_paused = true)]
async fn a_slow_clock_does_not_lose_the_race_for_the_oracle() {
    let now = ManualClock::START;
    let store = Arc::new(MemoryStore::new(Sources { clock: Running::new(now), ..Sources::seeded(1) }));
    let (fast, slow) = tokio::join!(
        timestamps_of_a_second(store.clone(), now),
        timestamps_of_a_second(store.clone(), moved(now, -20 * 60))
    );
    for fetched in [&fast, &slow] {
        assert!(fetched.is_sorted_by(|one, next| one < next));
    }
    let all: BTreeSet<_> = fast.iter().chain(&slow).collect();
    assert_eq!(all.len(), fast.len() + slow.len());
    assert!(slow.len() * 5 >= fast.len() * 2, "{} beside {}", slow.len(), fast.len());
}

/// A store that shows the document of known ages as if the time of day were the age of a timestamp.
struct ByTimeOfDay(Arc<MemoryStore>);

#[async_trait]
impl DelegatingStore for ByTimeOfDay {
    type Inner = MemoryStore;

    fn inner(&self) -> &MemoryStore {
        &self.0
    }

    fn name(&self) -> &'static str {
        "by time of day"
    }

    async fn find(&self, request: Find) -> StoreResult<Box<dyn handfast_store::Cursor>> {
        let is_of_ages = request.namespace.to_string() == "handfast.ages";
        let found = self.0.find_all(request).await?;
        let aged = |document: RawDocumentBuf| {
            let mut document = Document::try_from(&*document).unwrap();
            for mark in document.get_array_mut("marks").unwrap() {
                mark.as_document_mut().unwrap().insert("age", seconds(DAY) * 1_000);
            }
            RawDocumentBuf::try_from(&document).unwrap()
        };
        let shown = found.into_iter().map(move |document| Ok(if is_of_ages { aged(document) } else { document }));
        let shown: Vec<_> = shown.collect();
        Ok(Box::new(handfast_store::page::IteratorCursor::new(shown.into_iter())))
    }
}

/// A collector whose safe point is the time of day minus the retention is caught by the slow clock.
#[tokio::test]
async fn a_safe_point_by_the_time_of_day_is_caught() {
    let bank = bank().await;
    let (sources, _) = machine(&bank, -20 * 60);
    let reader = process_on(&sources, bank.store.clone());
    let tx = reader.begin_reads(DAY).await.unwrap();
    delete_joe(&reader).await;
    // A timestamp is above the slow process's; then a collector takes it for old.
    let store = Arc::new(ByTimeOfDay(bank.store.clone()));
    let mutant = Percolator::new(store, bank.sources.clone(), options()).unwrap();
    bank.clock.set(moved(bank.sources.clock.now(), 20 * 60));
    mutant.clean().await.unwrap();
    bank.clock.set(moved(bank.sources.clock.now(), 20 * 60));
    mutant.clean().await.unwrap();
    let seen = names(&tx).await;
    assert_eq!(seen.unwrap(), ["Bob"], "it reads a gap");
}

/// The clocks of the processes are right, and ahead of the store's from then on.
#[tokio::test]
async fn a_store_whose_clock_steps_back_still_gives_timestamps() {
    let bank = bank().await;
    let (sources, clock) = machine(&bank, 0);
    let database = process_on(&sources, bank.store.clone());
    let mut last = database.begin().await.unwrap().read_at().unwrap();
    bank.clock.set(moved(bank.sources.clock.now(), -3_600));
    for _ in 0..3 {
        clock.advance(Duration::from_secs(10));
        let next = database.begin().await.unwrap().read_at().unwrap();
        assert!(Timestamp(next.0).since(Timestamp(last.0)) >= Duration::from_secs(10), "the oracle's time goes on");
        last = next;
    }
}
