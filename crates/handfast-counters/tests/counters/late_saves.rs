//! A pass gives up a store that does not answer, and what it has asked for goes on: a batch is saved late. Redis has lost the batch by then, and another instance has
//! the total of before in the cache.

use std::sync::Arc;
use std::time::Duration;

use handfast_counters::{Buffer, Counters, CountersOptions, RedisBuffer, RedisBufferOptions, Storage, StorageForm};
use handfast_store::MemoryStore;
use handfast_store::decorator::{Fault, Faulty, Plan};
use handfast_txn::{Database, PercolatorOptions};

use crate::faulty_buffer::FaultyBuffer;
use crate::waiting::{PATIENCE, until_frozen, until_ok};
use crate::world::{World, ad, ads, patient_options, save_all, total, whole};

/// The time after which a pass takes the store for stopped.
const SHORT: Duration = Duration::from_millis(100);
/// More requests than a pass sends to the store.
const REQUESTS_MAX: u64 = 200;
/// The requests of a pass to the buffer before its first save: the kinds, a depth, the comparison, and a claim.
const REQUESTS_BEFORE_SAVE: u64 = 4;
/// The looks at a store after which the work that was held up there has ended.
const QUIET_LOOKS: usize = 20;
/// The requests of a pass to the store, without transactions, before the one that changes a total.
const REQUESTS_BEFORE_CHANGE: u64 = 8;
const POLL: Duration = Duration::from_millis(5);

/// Starts a process. Transactions are those of several servers, whose commits go on when nobody waits for them.
async fn start(world: &World, process: u64, store: Arc<Faulty<MemoryStore>>, read_time_max: Duration) -> Counters {
    let sources = world.sources(process);
    let storage = match world.form {
        StorageForm::SingleDocuments => Storage::open_single_documents(store, sources.clone(), "counters").await,
        StorageForm::Transactions => {
            let options = PercolatorOptions { lock_ttl: SHORT, ..PercolatorOptions::default() };
            let database = Database::percolator(store, sources.clone(), options).expect("a database");
            Storage::open(database, "counters").await
        }
    };
    let storage = storage.expect("a storage");
    let options = RedisBufferOptions {
        // What a save has locked is not waited for when Redis has lost everything, and nobody else has the queue.
        last_number_timeout: SHORT,
        replace_after: Duration::ZERO,
        ..patient_options()
    };
    let buffer = RedisBuffer::connect(&world.url(), storage.clone(), sources.clone(), options).await;
    let buffer = Arc::new(buffer.expect("a buffer"));
    let options = CountersOptions { idle: Duration::ZERO, read_time_max, ..CountersOptions::default() };
    Counters::new(buffer, storage, sources, options)
}

/// Starts a process, counts 5 views that are saved, and 100 that wait.
async fn process(world: &World, store: Arc<Faulty<MemoryStore>>, read_time_max: Duration) -> Counters {
    let counters = start(world, 1, store, read_time_max).await;
    until_ok("a view", || async { counters.view(ad("7"), 5, None).await }).await;
    while !matches!(counters.flush().await, Ok(flushed) if flushed.batches == 0) {}
    until_ok("a view", || async { counters.view(ad("7"), 100, None).await }).await;
    counters
}

/// Returns how many requests such a process has sent to the store.
async fn requests_before(world: &World) -> u64 {
    let counting = Arc::new(Faulty::new(fresh(world).await.store, Plan::none()));
    process(world, counting.clone(), PATIENCE).await;
    counting.operations()
}

/// Lets Redis lose everything, and another instance put the total of the store into the cache if it can be read.
async fn lose_everything(world: &World) -> Counters {
    world.server().command(&["FLUSHALL"]).await;
    let other = start(world, 2, Arc::new(Faulty::new(world.store.clone(), Plan::none())), PATIENCE).await;
    // What a save has locked is waited for.
    let options = CountersOptions { read_time_max: 2 * SHORT, ..other.options().clone() };
    let impatient = Counters::new(other.buffer().clone(), other.storage().clone(), other.sources().clone(), options);
    until_ok("a view", || async { impatient.view(ad("7"), 1, None).await }).await;
    other
}

/// Releases what is held up until nothing is left of it.
async fn go_on(store: &Faulty<MemoryStore>) {
    let mut quiet = (0, store.operations());
    let ended = async {
        while quiet.0 < QUIET_LOOKS {
            store.release();
            tokio::time::sleep(POLL).await;
            let is_quiet = store.frozen() == 0 && store.operations() == quiet.1;
            quiet = (if is_quiet { quiet.0 + 1 } else { 0 }, store.operations());
        }
    };
    tokio::time::timeout(PATIENCE, ended).await.expect("the work ends");
}

/// Saves all, and compares the figures of the store, of the cache and of the metrics.
async fn compare(counters: &Counters, other: &Counters, views: u64, at: &str) {
    while !matches!(counters.flush().await, Ok(flushed) if flushed.batches == 0) {}
    save_all(other).await;
    assert_eq!(other.storage().totals(&ads(), &[ad("7").id]).await.expect("a total"), [views], "{at}");
    assert_eq!(total(other, "7").await, whole(views), "{at}");
    assert_eq!(counters.saved().views + other.saved().views, views, "{at}");
}

/// Whether the store has the batch after it has carried out all requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Late {
    /// The pass did not send so many requests.
    NotReached,
    Saved,
    NotSaved,
}

/// Lets the store stop before the request with this number of a pass.
async fn stop_at(world: &World, number: u64) -> Late {
    let before = requests_before(world).await;
    let fresh = fresh(world).await;
    let stopped = (before + number)..(before + number + REQUESTS_MAX);
    let plan = Plan::explicit(stopped.map(|at| (at, Fault::FreezeBefore)));
    let store = Arc::new(Faulty::new(fresh.store.clone(), plan));
    let counters = process(&fresh, store.clone(), 2 * SHORT).await;
    let passed = tokio::time::timeout(PATIENCE, counters.flush()).await.expect("the pass ends");
    // Behind the last request that a pass waits for, servers are cleaned.
    if passed.is_ok() {
        return Late::NotReached;
    }
    // What no instance has claimed is lost.
    let was_claimed = counters.buffer().depth(&ads()).await.expect("a depth").pending == 0;
    let other = lose_everything(&fresh).await;
    go_on(&store).await;
    let late = other.storage().totals(&ads(), &[ad("7").id]).await.expect("a total") == [105];
    let releasing = tokio::spawn(async move {
        loop {
            store.release();
            tokio::time::sleep(POLL).await;
        }
    });
    let at = format!("request {number}: {passed:?}");
    let compared = tokio::time::timeout(PATIENCE, compare(&counters, &other, if was_claimed { 106 } else { 6 }, &at));
    compared.await.expect("all is saved");
    releasing.abort();
    if late { Late::Saved } else { Late::NotSaved }
}

/// Returns the world with another store, and an empty Redis.
async fn fresh(world: &World) -> World {
    world.server().command(&["FLUSHALL"]).await;
    World { store: World::embedded().store, ..world.clone() }
}

/// Lets the store stop at each request of a pass, or at one of so many, and returns the numbers of those after which the batch was saved late.
async fn stop_at_each(world: &World, step: usize) -> Vec<u64> {
    let mut saved_late = Vec::new();
    for number in (0..REQUESTS_MAX).step_by(step) {
        match stop_at(world, number).await {
            Late::NotReached => break,
            Late::Saved => saved_late.push(number),
            Late::NotSaved => {}
        }
    }
    println!("{:?}: saved late after the requests {saved_late:?}", world.form);
    saved_late
}

#[tokio::test]
async fn ext_redis_a_late_save_whose_batch_was_lost_is_in_the_totals_of_the_cache() {
    let Some(world) = World::redis().await else { return };
    assert!(!stop_at_each(&world, 3).await.is_empty(), "no commit goes on");
}

#[tokio::test]
async fn ext_redis_a_late_save_of_single_documents_whose_batch_was_lost_is_in_the_totals_of_the_cache() {
    let Some(world) = World::redis().await else { return };
    assert!(!stop_at_each(&world.single_documents(), 1).await.is_empty(), "no batch is saved in part");
}

/// Lets Redis lose the batch before the request of a pass that changes the total, and refuse a request behind the save. Returns whether there was such a request.
async fn refuse(world: &World, number: u64) -> bool {
    let change = requests_before(world).await + REQUESTS_BEFORE_CHANGE;
    let world = fresh(world).await;
    let store = Arc::new(Faulty::new(world.store.clone(), Plan::at(change, Fault::FreezeBefore)));
    let counters = process(&world, store.clone(), PATIENCE).await;
    let faulty = Arc::new(FaultyBuffer::new(counters.buffer().clone(), Some((number, Fault::Refuse))));
    let (storage, sources, options) = (counters.storage(), counters.sources(), counters.options());
    let buffer: Arc<dyn Buffer> = faulty.clone();
    let counters = Counters::new(buffer, storage.clone(), sources.clone(), options.clone());
    let passing = tokio::spawn({
        let counters = counters.clone();
        async move { counters.flush().await }
    });
    until_frozen(&store, &passing).await;
    assert_eq!(faulty.operations(), REQUESTS_BEFORE_SAVE);
    let other = lose_everything(&world).await;
    assert_eq!(total(&other, "7").await, whole(6), "the total is not changed yet");
    store.release();
    let passed = passing.await.expect("ended");
    while !matches!(counters.flush().await, Ok(flushed) if flushed.batches == 0) {}
    save_all(&other).await;
    assert_eq!(total(&other, "7").await, whole(106), "request {number}: {passed:?}");
    assert_eq!(counters.saved().views + other.saved().views, 101, "without those of the first start");
    passed.is_err()
}

#[tokio::test]
async fn ext_redis_an_acknowledgement_of_a_lost_batch_is_repeated() {
    let Some(world) = World::redis().await else { return };
    let world = world.single_documents();
    let mut number = REQUESTS_BEFORE_SAVE;
    while refuse(&world, number).await {
        number += 1;
    }
    assert!(number >= REQUESTS_BEFORE_SAVE + 2, "an acknowledgement and a correction");
}
