//! Redis or the store is stopped: it takes requests, and neither answers nor refuses. Nobody waits for it for long, and nothing is lost or counted twice.

use std::sync::Arc;
use std::time::Duration;

use handfast_counters::{
    Buffer as _, Counters, CountersOptions, Error, Flushed, RedisBuffer, Storage, StorageForm, Total, UpsertOutcome,
};
use handfast_store::decorator::{Fault, Faulty, Plan};
use handfast_store::{Applied, MemoryStore};
use handfast_txn::{Database, PercolatorOptions};

use crate::late_proxy::LateProxy;
use crate::waiting::{PATIENCE, until_ok};
use crate::world::{World, ad, ads, first_day, patient_options, save_all, total, whole};

/// The time after which a part is taken for stopped. It is far shorter than the times that a broken build would wait.
const SHORT: Duration = Duration::from_millis(100);
/// The requests while Redis is stopped.
const REQUESTS: usize = 200;
/// The requests of a pass that are held up in turn; each pass of the tests has fewer.
const POINTS_MAX: u64 = 200;
const POLL: Duration = Duration::from_millis(5);

/// Asks until the buffer refuses at once. Requests before that wait for Redis, and are given up.
async fn until_refused(buffer: &RedisBuffer) {
    let refused =
        async { while !matches!(tokio::time::timeout(SHORT, buffer.check()).await, Ok(Err(Error::Buffer { .. }))) {} };
    tokio::time::timeout(PATIENCE, refused).await.expect("requests are refused at once");
}

/// Returns how many connections the server has taken.
async fn connections(world: &World) -> u64 {
    let info: String = world.server().ask(&["INFO", "stats"]).await;
    let count = info.lines().find_map(|line| line.strip_prefix("total_connections_received:"));
    count.and_then(|count| count.trim_end().parse().ok()).expect("a number")
}

#[tokio::test]
async fn ext_redis_a_stopped_redis_is_asked_by_one_probe_and_all_others_are_answered_at_once() {
    let Some(world) = World::redis().await else { return };
    let storage = world.healthy(1).await.storage().clone();
    let options = handfast_counters::RedisBufferOptions { stall_timeout: SHORT, ..patient_options() };
    let buffer = RedisBuffer::connect(&world.server().url(), storage.clone(), world.sources(2), options).await;
    let buffer = Arc::new(buffer.expect("a buffer"));
    let options = CountersOptions { read_time_max: PATIENCE, ..CountersOptions::default() };
    let counters = Counters::new(buffer.clone(), storage, world.sources(2), options);
    until_ok("a view", || async { counters.view(ad("7"), 5, None).await }).await;
    until_ok("a pass", || async { counters.flush().await }).await;
    let before = connections(&world).await;

    world.server().signal("STOP");
    let waiting = tokio::spawn({
        let counters = counters.clone();
        async move { counters.view(ad("7"), 2, None).await }
    });
    until_refused(&buffer).await;
    // Each of them would wait for the same connection.
    for _ in 0..REQUESTS {
        let refused = counters.view(ad("7"), 1, None).await.expect_err("refused");
        assert!(refused.applied() == Applied::No && refused.to_string().contains("does not answer"), "{refused}");
        assert_eq!(total(&counters, "7").await, Total { views: 5, partial: true }, "that of the store");
    }
    world.server().signal("CONT");
    // It had arrived, unless Redis was slow before, on a busy machine.
    let arrived = match waiting.await.expect("ended") {
        Ok(_) => 2,
        Err(error) => {
            assert_eq!(error.applied(), Applied::No, "{error}");
            0
        }
    };
    until_ok("a view", || async { counters.view(ad("7"), 10, None).await }).await;
    until_ok("a pass", || async { counters.flush().await }).await;
    save_all(&counters).await;
    assert_eq!(total(&counters, "7").await, whole(15 + arrived));
    // The probe, those that have asked for the numbers, and some more if Redis is slow.
    let taken = connections(&world).await - before;
    assert!(taken < REQUESTS as u64 / 10, "{taken} connections for {REQUESTS} requests");
}

/// The time that a request that does not notice a stopped Redis would wait.
const FAR_LATER: Duration = Duration::from_secs(10 * PATIENCE.as_secs());

/// Creates a buffer that takes Redis for stopped after a short time.
async fn impatient_buffer(world: &World, url: &str) -> RedisBuffer {
    let storage = world.healthy(1).await.storage().clone();
    let options = handfast_counters::RedisBufferOptions {
        stall_timeout: SHORT,
        response_timeout: FAR_LATER,
        ..patient_options()
    };
    RedisBuffer::connect(url, storage, world.sources(2), options).await.expect("a buffer")
}

/// Fails unless a request is given up, not applied.
async fn assert_given_up<T: std::fmt::Debug>(what: &str, request: impl Future<Output = Result<T, Error>>) {
    let answer = tokio::time::timeout(PATIENCE, request).await;
    let error = answer.unwrap_or_else(|_| panic!("{what} waits")).expect_err(what);
    assert_eq!(error.applied(), Applied::No, "{what}: {error}");
}

#[tokio::test]
async fn ext_redis_questions_to_a_stopped_redis_are_given_up() {
    let Some(world) = World::redis().await else { return };
    let buffer = impatient_buffer(&world, &world.server().url()).await;
    let view = handfast_counters::View::new(ad("7"), 5, first_day()).expect("a view");
    for what in ["a read", "a depth", "the kinds", "the health"] {
        until_ok(what, || buffer.upsert(&view, None)).await;
        until_ok(what, || buffer.health()).await;
        world.server().signal("STOP");
        match what {
            "a read" => assert_given_up(what, buffer.read(&ads(), &[ad("7").id])).await,
            "a depth" => assert_given_up(what, buffer.depth(&ads())).await,
            "the kinds" => assert!(tokio::time::timeout(PATIENCE, buffer.kinds()).await.is_ok(), "{what} waits"),
            _ => assert_given_up(what, buffer.health()).await,
        }
        // The others are refused.
        until_refused(&buffer).await;
        world.server().signal("CONT");
    }
}

#[tokio::test]
async fn ext_redis_a_script_that_is_not_loaded_again_holds_up_nobody() {
    let Some(world) = World::redis().await else { return };
    // Each connection loads two scripts.
    let proxy = LateProxy::start_unanswered(world.server().port(), "SCRIPT", 2).await;
    let buffer = impatient_buffer(&world, &proxy.url()).await;
    buffer.check().await.expect("connected");
    world.server().command(&["SCRIPT", "FLUSH"]).await;
    let view = handfast_counters::View::new(ad("7"), 5, first_day()).expect("a view");
    assert_given_up("a view", buffer.upsert(&view, None)).await;
    let counted = until_ok("a view", || buffer.upsert(&view, None)).await;
    assert!(matches!(counted, UpsertOutcome::Counted(Total { views: 5, .. })), "{counted:?}");
}

/// How the store is used.
#[derive(Clone, Copy, Debug)]
enum Engine {
    Local,
    Percolator,
    SingleDocuments,
}

/// Starts a process on a store, which takes parts for stopped after a short time. Its queue is in the memory of the test.
async fn impatient(world: &World, engine: Engine, store: Arc<Faulty<MemoryStore>>) -> Counters {
    let counters = match engine {
        Engine::Local | Engine::SingleDocuments => world.start(1, store).await.expect("a process"),
        Engine::Percolator => {
            let options = PercolatorOptions { lock_ttl: SHORT, ..PercolatorOptions::default() };
            let database = Database::percolator(store, world.sources(1), options).expect("a database");
            let storage = Storage::open(database, "counters").await.expect("a storage");
            let buffer = world.memory.clone().expect("a buffer");
            Counters::new(buffer, storage, world.sources(1), CountersOptions::default())
        }
    };
    let options = CountersOptions {
        batch_events: 3,
        idle: Duration::ZERO,
        read_time_max: 2 * SHORT,
        ..CountersOptions::default()
    };
    Counters::new(counters.buffer().clone(), counters.storage().clone(), counters.sources().clone(), options)
}

/// When the store was stopped.
#[derive(Clone, Copy, Debug)]
enum Stopped {
    /// There were not so many requests.
    Never,
    InPass,
    /// While the work went on that the pass had begun and given up.
    Behind,
}

/// Counts, and lets the store stop before the request with this number of the pass that saves.
async fn stop_at(world: &World, engine: Engine, number: u64) -> Stopped {
    let before = {
        let counting = Arc::new(Faulty::new(world.store.clone(), Plan::none()));
        impatient(world, engine, counting.clone()).await;
        counting.operations()
    };
    let stopped = (before + number)..(before + number + 10 * POINTS_MAX);
    let plan = Plan::explicit(stopped.map(|at| (at, Fault::FreezeBefore)));
    let store = Arc::new(Faulty::new(world.store.clone(), plan));
    let counters = impatient(world, engine, store.clone()).await;
    for (id, views) in [("7", 5), ("8", 1), ("7", 2), ("9", 4)] {
        counters
            .buffer()
            .upsert(&handfast_counters::View::new(ad(id), views, first_day()).expect("a view"), None)
            .await
            .expect("counted");
    }
    let passed = tokio::time::timeout(PATIENCE, counters.flush()).await.expect("the pass ends");
    let was_stopped = !store.injected().is_empty();
    // Behind the last request that a pass waits for, servers are cleaned.
    assert!(matches!(passed, Ok(_) | Err(Error::Store(_))), "{engine:?} {number}: {passed:?}");
    let going_on = tokio::spawn(async move {
        loop {
            store.release();
            tokio::time::sleep(POLL).await;
        }
    });
    let saved = async {
        // The store may be slow, on a busy machine.
        while !matches!(counters.flush().await, Ok(flushed) if flushed.batches == 0) {}
    };
    tokio::time::timeout(PATIENCE, saved).await.expect("everything is saved");
    let depth = counters.buffer().depth(&ads()).await.expect("a depth");
    assert_eq!((depth.pending, depth.batches), (0, 0), "{engine:?} {number}");
    let verification = counters.storage().verify(None, |_| ()).await.expect("checked");
    assert!(verification.differences.is_empty() && verification.views == 12, "{engine:?} {number}: {verification:?}");
    let ids = ["7", "8", "9"].map(|id| ad(id).id);
    assert_eq!(counters.storage().totals(&ads(), &ids).await.expect("totals"), [7, 1, 4], "{engine:?} {number}");
    going_on.abort();
    match passed {
        // One that is late on a busy machine has failed, too.
        _ if !was_stopped => Stopped::Never,
        Ok(_) => Stopped::Behind,
        Err(_) => Stopped::InPass,
    }
}

/// Stops the store at each request of a pass, or at one of so many.
async fn stop_at_requests(engine: Engine, form: StorageForm, step: u64) {
    let (mut number, mut in_pass) = (0, 0);
    loop {
        match stop_at(&World { form, ..World::in_memory() }, engine, number).await {
            Stopped::InPass => in_pass += 1,
            Stopped::Behind => {}
            Stopped::Never => break,
        }
        number += step;
        assert!(number < POINTS_MAX, "{engine:?}: no end");
    }
    println!("{engine:?}: the store was stopped at {in_pass} requests of a pass");
    assert!(in_pass >= 4, "{engine:?}: {in_pass}");
}

#[tokio::test]
async fn a_pass_at_a_stopped_store_ends_and_each_view_is_saved_once() {
    stop_at_requests(Engine::Local, StorageForm::Transactions, 1).await;
}

#[tokio::test]
async fn a_pass_at_stopped_servers_ends_and_each_view_is_saved_once() {
    stop_at_requests(Engine::Percolator, StorageForm::Transactions, 5).await;
}

#[tokio::test]
async fn a_pass_without_transactions_at_a_stopped_store_ends_and_each_view_is_saved_once() {
    stop_at_requests(Engine::SingleDocuments, StorageForm::SingleDocuments, 1).await;
}

/// The store answers everything, and each request later than a pass waits at first.
async fn a_slow_store_is_saved_to(form: StorageForm, engine: Engine) {
    const DELAY: Duration = Duration::from_millis(250);
    const PASSES_MAX: usize = 50;
    let world = World { form, ..World::in_memory() };
    let before = {
        let counting = Arc::new(Faulty::new(world.store.clone(), Plan::none()));
        impatient(&world, engine, counting.clone()).await;
        counting.operations()
    };
    let plan = Plan::explicit((before..before + 100 * POINTS_MAX).map(|at| (at, Fault::Delay(DELAY))));
    let counters = impatient(&world, engine, Arc::new(Faulty::new(world.store.clone(), plan))).await;
    let view = handfast_counters::View::new(ad("7"), 5, first_day()).expect("a view");
    counters.buffer().upsert(&view, None).await.expect("counted");
    for _ in 0..PASSES_MAX {
        if matches!(counters.flush().await, Ok(Flushed { batches: 1, views: 5 })) {
            assert_eq!(counters.saved().views, 5);
            return;
        }
    }
    panic!("{engine:?}: no pass of {PASSES_MAX} ends");
}

#[tokio::test]
async fn passes_wait_longer_for_a_store_that_answers_late() {
    a_slow_store_is_saved_to(StorageForm::Transactions, Engine::Local).await;
    a_slow_store_is_saved_to(StorageForm::SingleDocuments, Engine::SingleDocuments).await;
}
