//! Old snapshots over several processes: leases keep their history, and slow or dead holders lose them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bson::{DateTime, Document, RawDocumentBuf, rawdoc};
use handfast_mql::Code;
use handfast_store::decorator::{Fault, Faulty, Plan};
use handfast_store::{DocumentStore, Find, ManualClock, Namespace, Result as StoreResult, Snapshot, Sources, StoreExt};
use handfast_txn::{Database, Engine, Percolator, PercolatorOptions};

use crate::crash_points::Late;
use crate::queries::all;
use crate::support::*;

const RETENTION: Duration = Duration::from_secs(60);
/// A snapshot of this age needs a lease.
const OLD: Duration = Duration::from_secs(31);
const LEASE_TTL: Duration = Duration::from_secs(40);
/// The time of a step: less than the lifetime of a lease, and so short that no heartbeat is late.
const STEP: Duration = Duration::from_secs(20);

fn options() -> PercolatorOptions {
    PercolatorOptions { retention: RETENTION, lease_ttl: LEASE_TTL, ..crate::support::options() }
}

fn process(bank: &Bank) -> Arc<Percolator> {
    process_over(bank, bank.store.clone())
}

fn process_over(bank: &Bank, store: Arc<dyn DocumentStore>) -> Arc<Percolator> {
    Arc::new(Percolator::new(store, bank.sources.clone(), options()).unwrap())
}

/// Returns a bank with Bob, Joe, and Ann, who has 5 and leaves later.
async fn with_ann() -> Bank {
    let bank = Bank::of_the_seed().await;
    let ann = rawdoc! { "_id": "Ann", "balance": 5, "_hf": { "v": 1_i64, "c": 6_i64, "s": 5_i64 } };
    bank.store.insert_one(&accounts(), ann).await.unwrap();
    bank
}

async fn begin(process: &Percolator) -> StoreResult<Arc<dyn Snapshot>> {
    Ok(process.begin(Duration::MAX).await?.snapshot)
}

/// Deletes Ann, and changes nothing else: after history is forgotten, nothing shows that she existed.
async fn change(bank: &Bank) {
    let process = Database::new(process(bank), bank.sources.clone());
    process.delete_one(&accounts(), rawdoc! { "_id": "Ann" }).await.unwrap();
    process.flush().await.unwrap();
}

/// Returns a process with a snapshot of before Ann left, which is so old that it needs a lease; and a process that cleans.
async fn old_snapshot() -> (Bank, Arc<Percolator>, Arc<Percolator>, Arc<dyn Snapshot>) {
    let bank = with_ann().await;
    let (reader, cleaner) = (process(&bank), process(&bank));
    let snapshot = begin(&reader).await.unwrap();
    change(&bank).await;
    bank.clock.advance(OLD);
    (bank, reader, cleaner, snapshot)
}

/// Returns the names of the accounts with at least so much, found in a scan of the collection.
async fn rich(snapshot: &dyn Snapshot, balance: i32) -> StoreResult<Vec<String>> {
    named(snapshot, rawdoc! { "balance": { "$gte": balance } }).await
}

async fn named(snapshot: &dyn Snapshot, filter: RawDocumentBuf) -> StoreResult<Vec<String>> {
    let found = all(snapshot, Find::new(accounts(), filter)).await?;
    let mut names: Vec<_> = found.iter().map(|found| found.get_str("_id").unwrap().to_owned()).collect();
    names.sort();
    Ok(names)
}

const BEFORE: [&str; 2] = ["Ann", "Bob"];

/// Returns whether an answer is right, or is the error that the snapshot is too old.
fn is_right_or_too_old(seen: &StoreResult<Vec<String>>) -> bool {
    match seen {
        Ok(names) => *names == BEFORE,
        Err(error) => error.code() == Code::SnapshotTooOld,
    }
}

fn namespace() -> Namespace {
    Namespace::new("handfast", "leases").unwrap()
}

async fn leases(bank: &Bank) -> Vec<Document> {
    let Some(found) = bank.store.find_one(&namespace(), rawdoc! {}).await.unwrap() else { return Vec::new() };
    let found = Document::try_from(&*found).unwrap();
    found.get_array("held").unwrap().iter().map(|lease| lease.as_document().unwrap().clone()).collect()
}

async fn has_history(bank: &Bank) -> bool {
    bank.rows().await.iter().any(|row| row.get_str("_id").unwrap() == "Ann")
}

/// Moves the clock on, while the cleaner makes its passes and a process sends heartbeats, if one is alive.
async fn pass(bank: &Bank, cleaner: &Percolator, alive: Option<&Percolator>, time: Duration) {
    for _ in 0..time.as_secs() / STEP.as_secs() {
        bank.clock.advance(STEP);
        if let Some(alive) = alive {
            alive.keep_history().await.unwrap();
        }
        cleaner.clean().await.unwrap();
    }
}

/// An old snapshot stays readable for as long as its process lives, whichever process cleans. Afterwards no lease is left.
#[tokio::test]
async fn an_old_snapshot_survives_the_collector_of_another_process() {
    let (bank, reader, cleaner, snapshot) = old_snapshot().await;
    reader.keep_history().await.unwrap();
    assert_eq!(leases(&bank).await[0].get_i64("at").unwrap(), i64::try_from(snapshot.timestamp().0).unwrap());
    pass(&bank, &cleaner, Some(&reader), RETENTION * 5).await;
    assert!(has_history(&bank).await);
    assert_eq!(rich(&*snapshot, 5).await.unwrap(), BEFORE);
    assert_eq!(named(&*snapshot, rawdoc! { "_id": "Ann" }).await.unwrap(), ["Ann"]);

    drop(snapshot);
    reader.flush().await.unwrap();
    assert!(leases(&bank).await.is_empty());
    cleaner.clean().await.unwrap();
    assert!(!has_history(&bank).await);
}

/// A short transaction takes no lease, and leaves none behind.
#[tokio::test]
async fn a_young_snapshot_takes_no_lease() {
    let bank = with_ann().await;
    let counting = Arc::new(Faulty::new(bank.store.clone(), Plan::none()));
    let reader = process_over(&bank, counting.clone());
    let snapshot = begin(&reader).await.unwrap();
    bank.clock.advance(RETENTION / 2);
    let before = counting.operations();
    reader.keep_history().await.unwrap();
    assert_eq!(counting.operations(), before);
    assert_eq!(rich(&*snapshot, 5).await.unwrap(), BEFORE);
    assert!(leases(&bank).await.is_empty());
}

/// A read takes the lease itself if no background task does so.
#[tokio::test]
async fn a_read_takes_the_lease_that_it_needs() {
    let (bank, reader, cleaner, snapshot) = old_snapshot().await;
    assert_eq!(rich(&*snapshot, 5).await.unwrap(), BEFORE);
    assert_eq!(leases(&bank).await.len(), 1);
    pass(&bank, &cleaner, Some(&reader), RETENTION * 2).await;
    assert_eq!(rich(&*snapshot, 5).await.unwrap(), BEFORE);
}

/// A lease protects the oldest snapshot of its process, and nothing older once that snapshot has ended.
#[tokio::test]
async fn a_lease_reaches_back_to_the_oldest_snapshot() {
    let bank = with_ann().await;
    let reader = process(&bank);
    let at = async || leases(&bank).await.first().map(|lease| lease.get_i64("at").unwrap());
    let start = |snapshot: &Arc<dyn Snapshot>| Some(i64::try_from(snapshot.timestamp().0).unwrap());
    let first = begin(&reader).await.unwrap();
    bank.clock.advance(OLD);
    let second = begin(&reader).await.unwrap();
    reader.keep_history().await.unwrap();
    assert_eq!(at().await, start(&first));
    bank.clock.advance(OLD);
    drop(first);
    reader.keep_history().await.unwrap();
    assert_eq!(at().await, start(&second));
    drop(second);
    reader.keep_history().await.unwrap();
    assert_eq!(at().await, None);
}

/// The lease of a dead process does not keep history for ever.
#[tokio::test]
async fn the_lease_of_a_dead_process_expires() {
    let (bank, reader, cleaner, _snapshot) = old_snapshot().await;
    reader.keep_history().await.unwrap();
    // The process sends no heartbeat from here on.
    bank.let_pass(RETENTION).await;
    cleaner.clean().await.unwrap();
    bank.clock.advance(LEASE_TTL - Duration::from_millis(1));
    cleaner.clean().await.unwrap();
    assert!(has_history(&bank).await);
    assert_eq!(leases(&bank).await.len(), 1);
    bank.clock.advance(Duration::from_millis(1));
    cleaner.clean().await.unwrap();
    assert!(!has_history(&bank).await);
    assert!(leases(&bank).await.is_empty());
}

/// A lease does not expire because of a clock: a collector waits for the whole lifetime, by its own monotonic clock.
#[tokio::test]
async fn a_lease_does_not_expire_by_the_clocks_of_two_clients() {
    let (bank, reader, _, _snapshot) = old_snapshot().await;
    reader.keep_history().await.unwrap();
    bank.let_pass(RETENTION).await;
    // Its monotonic clock has run for a day, and its clock is as far ahead as is allowed.
    let (ahead, clock): (Sources, Arc<ManualClock>) = Sources::manual(2);
    clock.advance(Duration::from_secs(86_400));
    clock.set(DateTime::from_millis(bank.sources.clock.now().timestamp_millis() + 1_900));
    let cleaner = Percolator::new(bank.store.clone(), ahead, options()).unwrap();
    for _ in 0..3 {
        cleaner.clean().await.unwrap();
        // Time goes by for the other processes only.
        bank.clock.advance(LEASE_TTL);
        clock.set(bank.sources.clock.now());
    }
    assert!(has_history(&bank).await);
    clock.advance(LEASE_TTL);
    clock.set(bank.sources.clock.now());
    cleaner.clean().await.unwrap();
    assert!(!has_history(&bank).await);
}

/// A live process whose lease was taken away gets an error, for documents that it finds as well as for those that it does not find.
#[tokio::test]
async fn a_slow_holder_gets_an_error_and_misses_no_documents() {
    let (bank, reader, cleaner, snapshot) = old_snapshot().await;
    reader.keep_history().await.unwrap();
    pass(&bank, &cleaner, None, RETENTION * 3).await;
    assert!(!has_history(&bank).await);
    for filter in [rawdoc! { "_id": "Ann" }, rawdoc! { "balance": 5 }, rawdoc! {}] {
        let error = named(&*snapshot, filter.clone()).await.unwrap_err();
        assert_eq!(error.code(), Code::SnapshotTooOld, "{filter:?}: {error}");
    }
    // A snapshot that begins now is not affected, and the process keeps no history for the snapshot that it cannot read.
    let next = begin(&reader).await.unwrap();
    assert_eq!(rich(&*next, 0).await.unwrap(), ["Bob", "Joe"]);
    reader.keep_history().await.unwrap();
    assert!(leases(&bank).await.is_empty());
}

/// A process whose lease was taken away before any history was forgotten can read on.
#[tokio::test]
async fn a_lost_lease_is_taken_again_in_time() {
    let (bank, reader, cleaner, snapshot) = old_snapshot().await;
    reader.keep_history().await.unwrap();
    let taken_away = rawdoc! { "$set": { "held": [] }, "$inc": { "v": 1_i64 } };
    bank.store.update_one(&namespace(), rawdoc! {}, taken_away).await.unwrap();
    cleaner.clean().await.unwrap();
    assert_eq!(rich(&*snapshot, 5).await.unwrap(), BEFORE);
    pass(&bank, &cleaner, Some(&reader), RETENTION * 2).await;
    assert_eq!(rich(&*snapshot, 5).await.unwrap(), BEFORE);
}

/// A process that takes its lease too late cannot read on, even where no document shows that history is missing.
#[tokio::test]
async fn a_lease_that_is_taken_too_late_is_an_error() {
    let bank = with_ann().await;
    let (reader, cleaner) = (process(&bank), process(&bank));
    let snapshot = begin(&reader).await.unwrap();
    change(&bank).await;
    pass(&bank, &cleaner, None, RETENTION * 2).await;
    assert!(!has_history(&bank).await);
    assert_eq!(named(&*snapshot, rawdoc! { "balance": 5 }).await.unwrap_err().code(), Code::SnapshotTooOld);
    reader.keep_history().await.unwrap();
    assert!(leases(&bank).await.is_empty());
}

/// During a read, at any moment, a lease is lost or comes too late, and history is forgotten.
#[tokio::test]
async fn a_lease_that_is_lost_during_a_read() {
    let (mut late, mut right) = (0, 0);
    for fault in [Fault::FreezeBefore, Fault::FreezeAfter] {
        for has_lease in [true, false] {
            for filter in [rawdoc! { "balance": { "$gte": 5 } }, rawdoc! { "_id": { "$in": ["Ann", "Bob"] } }] {
                for number in 0.. {
                    let Some(seen) = read_that_stops(number, fault, has_lease, filter.clone()).await else { break };
                    let case = format!("{fault:?} at {number} of {filter:?}, with a lease {has_lease}: {seen:?}");
                    assert!(is_right_or_too_old(&seen), "{case}");
                    if seen.is_ok() { right += 1 } else { late += 1 }
                }
            }
        }
    }
    assert!(late >= 20 && right >= 4, "{late} were too late, {right} were in time");
}

/// Returns the result of a read that stops at operation `number` until history is forgotten; `None` if it has fewer operations.
async fn read_that_stops(
    number: u64,
    fault: Fault,
    has_lease: bool,
    filter: RawDocumentBuf,
) -> Option<StoreResult<Vec<String>>> {
    let prepared = async |plan| {
        let bank = with_ann().await;
        let faulty = Arc::new(Faulty::new(bank.store.clone(), plan));
        let reader = process_over(&bank, faulty.clone());
        let snapshot = begin(&reader).await.unwrap();
        change(&bank).await;
        bank.clock.advance(OLD);
        if has_lease {
            reader.keep_history().await.unwrap();
        }
        (bank, faulty, reader, snapshot)
    };
    let before = prepared(Plan::none()).await.1.operations();
    let (bank, faulty, _reader, snapshot) = prepared(Plan::at(before + number, fault)).await;
    let read = tokio::spawn(async move { named(&*snapshot, filter).await });
    let has_stopped = stopped(&faulty, || read.is_finished()).await;
    if has_stopped {
        pass(&bank, &process(&bank), None, RETENTION * 3).await;
        assert!(!has_history(&bank).await);
        faulty.release();
    }
    let seen = read.await.unwrap();
    has_stopped.then_some(seen)
}

/// A collector that stops at any moment, before a lease is taken and until long after, removes no history that the lease protects.
#[tokio::test]
async fn a_lease_is_taken_while_a_collector_looks() {
    let mut number = 0;
    loop {
        let bank = with_ann().await;
        let reader = process(&bank);
        let snapshot = begin(&reader).await.unwrap();
        change(&bank).await;
        let faulty = Arc::new(Faulty::new(bank.store.clone(), Plan::at(number, Fault::FreezeBefore)));
        let cleaner = process_over(&bank, faulty.clone());
        let cleaning = tokio::spawn(async move { cleaner.clean().await });
        let has_stopped = stopped(&faulty, || cleaning.is_finished()).await;
        bank.clock.advance(OLD);
        pass(&bank, &process(&bank), Some(&reader), RETENTION * 2).await;
        faulty.release();
        cleaning.await.unwrap().unwrap();
        assert_eq!(rich(&*snapshot, 5).await.unwrap(), BEFORE, "stopped at {number}");
        if !has_stopped {
            break;
        }
        number += 1;
    }
    assert!(number > 10, "{number}");
}

/// Takes a lease, reads, sends heartbeats, reads again, and gives the lease up, while other processes change the documents and
/// clean. Returns what it read.
async fn life(bank: &Bank, reader: &Percolator, between: impl AsyncFn(u32)) -> Vec<StoreResult<Vec<String>>> {
    let cleaner = process(bank);
    let snapshot = begin(reader).await;
    change(bank).await;
    let snapshot = match snapshot {
        Ok(snapshot) => snapshot,
        Err(error) => return vec![Err(error)],
    };
    bank.clock.advance(OLD);
    let mut seen = Vec::new();
    for round in 0..4 {
        // A failed request is repeated.
        reader.keep_history().await.ok();
        seen.push(rich(&*snapshot, 5).await);
        between(round).await;
        bank.clock.advance(STEP);
        cleaner.clean().await.unwrap();
    }
    seen.push(rich(&*snapshot, 5).await);
    drop(snapshot);
    reader.keep_history().await.ok();
    seen
}

/// Every operation of a lease's lifetime meets every fault: no read misses a document, and nothing is left behind.
#[tokio::test]
async fn every_operation_of_a_lease_meets_every_fault() {
    let bank = with_ann().await;
    let counting = Arc::new(Faulty::new(bank.store.clone(), Plan::none()));
    let seen = life(&bank, &process_over(&bank, counting.clone()), async |_| {}).await;
    assert!(seen.iter().all(|seen| seen.as_ref().is_ok_and(|names| *names == BEFORE)), "{seen:?}");
    assert!(leases(&bank).await.is_empty());
    let operations = counting.operations();

    let mut answers: BTreeMap<&str, u32> = BTreeMap::new();
    for number in 0..operations {
        for fault in Fault::ALL_OUTCOMES {
            for late in [Late::Soon, Late::PastRecovery] {
                for answer in life_with(number, fault, late).await {
                    *answers.entry(answer).or_default() += 1;
                }
            }
        }
    }
    println!("{operations} operations, {} faults, 2 times for late requests: {answers:?}", Fault::ALL_OUTCOMES.len());
    assert!(answers.len() == 3 && answers.values().all(|count| *count >= 4), "{answers:?}");
}

async fn life_with(number: u64, fault: Fault, late: Late) -> Vec<&'static str> {
    let bank = with_ann().await;
    let faulty = Arc::new(Faulty::new(bank.store.clone(), Plan::at(number, fault)));
    let reader = process_over(&bank, faulty.clone());
    let seen = life(&bank, &reader, async |round| {
        if late == Late::Soon {
            faulty.deliver_late().await;
        }
        if round == 2 {
            faulty.restart();
        }
    })
    .await;
    let case = format!("{fault:?} at {number}, late requests {late:?}: {seen:?}");
    let answer = |seen: &StoreResult<Vec<String>>| match seen {
        Ok(names) => {
            assert_eq!(*names, BEFORE, "{case}");
            "right"
        }
        Err(error) if error.code() == Code::SnapshotTooOld => "too old",
        Err(_) => "out of reach",
    };
    let answers = seen.iter().map(answer).collect();
    // Other processes clean up after it, while late requests arrive.
    let cleaner = process(&bank);
    pass(&bank, &cleaner, None, RETENTION * 2).await;
    faulty.deliver_late().await;
    pass(&bank, &cleaner, None, RETENTION * 2).await;
    assert!(leases(&bank).await.is_empty(), "{case}: {:?}", leases(&bank).await);
    assert!(!has_history(&bank).await, "{case}");
    answers
}
