//! One Redis has the queue of one store: two stores behind one Redis are refused, and two of Redis over one store, before anything is saved.

use std::sync::Arc;
use std::time::Duration;

use bson::rawdoc;
use handfast_counters::{
    Buffer as _, Counters, Error, Item, RedisBuffer, RedisBufferOptions, Result, StorageForm, Total, View,
};
use handfast_store::decorator::{Fault, Faulty, Plan};
use handfast_store::{Namespace, StoreExt as _};

use crate::server::RedisServer;
use crate::world::{World, ad, ads, first_day, save_all, total, whole};

const MARK: &str = "hf:store";
/// The time within which instances over another Redis object.
const WAIT: Duration = Duration::from_secs(15);

/// Two of Redis; nothing, having said so, without the program.
async fn two_worlds() -> Option<(World, World)> {
    let (first, second) = (World::redis().await?, RedisServer::start_with("no").await?);
    let second = World { redis: Some(Arc::new(second)), ..first.clone() };
    Some((first, second))
}

async fn mark(world: &World) -> Option<String> {
    world.server().ask(&["GET", MARK]).await
}

async fn record(world: &World) -> bson::RawDocumentBuf {
    let settings = Namespace::new("counters", "settings").expect("a name");
    world.store.find_one(&settings, rawdoc! { "_id": "queue" }).await.expect("read").expect("a record")
}

/// A buffer that waits for others before it replaces a Redis.
async fn patient_buffer(world: &World, process: u64) -> RedisBuffer {
    let storage = world.healthy(process).await.storage().clone();
    let options = RedisBufferOptions { replace_after: WAIT, ..RedisBufferOptions::default() };
    RedisBuffer::connect(&world.server().url(), storage, world.sources(process), options).await.expect("a buffer")
}

async fn take(world: &World, process: u64) -> Result<()> {
    let storage = world.healthy(process).await.storage().clone();
    world.redis_buffer(&storage, world.sources(process)).await.take_queue().await
}

async fn check(world: &World, process: u64) -> Result<()> {
    let storage = world.healthy(process).await.storage().clone();
    world.redis_buffer(&storage, world.sources(process)).await.check_queue().await
}

fn refused<T>(result: Result<T>, why: &str) {
    match result.err() {
        Some(Error::WrongQueue { what }) => assert!(what.contains(why), "{what}"),
        other => panic!("{other:?} does not say {why:?}"),
    }
}

/// A process that has counted and saved a view.
async fn counted(world: &World) -> Counters {
    let counters = world.healthy(1).await;
    counters.view(ad("7"), 1, None).await.expect("counted");
    save_all(&counters).await;
    counters
}

async fn on_each_form(run: impl AsyncFn(World)) {
    if let Some(world) = World::redis().await {
        run(world.clone()).await;
        world.server().command(&["FLUSHALL"]).await;
        let server = world.redis.expect("a server");
        run(World::on(&server).single_documents()).await;
    }
}

#[tokio::test]
async fn ext_redis_two_stores_behind_one_redis_are_refused() {
    on_each_form(async |world: World| {
        let counters = counted(&world).await;
        let server = world.redis.clone().expect("a server");
        let other = World { form: world.form, ..World::on(&server) };
        let why = "the queue of another store";
        refused(check(&other, 2).await, why);
        refused(take(&other, 2).await, why);
        let of_other = other.healthy(2).await;
        refused(of_other.view(ad("7"), 100, None).await, why);
        refused(of_other.flush().await, why);
        assert_eq!(of_other.storage().totals(&ads(), &[ad("7").id]).await.expect("a total"), [0], "nothing was saved");
        counters.flush().await.expect("the first one goes on");
        // What the message says.
        server.command(&["FLUSHALL"]).await;
        take(&other, 3).await.expect("empty, so it is taken");
        refused(counters.flush().await, why);
    })
    .await;
}

#[tokio::test]
async fn ext_redis_a_second_redis_is_refused_while_an_instance_uses_the_first() {
    let Some((world, second)) = two_worlds().await else { return };
    let counters = counted(&world).await;
    refused(check(&second, 2).await, "has lost everything");
    assert_eq!(mark(&second).await, None, "a check changes nothing");
    let buffer = patient_buffer(&second, 2).await;
    let waiting = tokio::spawn(async move { buffer.take_queue().await });
    while record(&world).await.get("candidate").expect("readable").is_none() {
        assert!(!waiting.is_finished(), "{:?}", waiting.await);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    counters.flush().await.expect("saved");
    world.clock.advance(WAIT);
    refused(waiting.await.expect("ended"), "instances that run");
    assert_eq!(mark(&second).await, None, "it may become the queue of another store");
    save_all(&counters).await;
}

#[tokio::test]
async fn ext_redis_an_empty_redis_replaces_one_that_nobody_uses() {
    for form in [StorageForm::Transactions, StorageForm::SingleDocuments] {
        let Some((world, second)) = two_worlds().await else { return };
        let (world, second) = (World { form, ..world }, World { form, ..second });
        let counters = counted(&world).await;
        let buffer = patient_buffer(&second, 2).await;
        assert!(matches!(buffer.check_before_saving().await, Err(Error::Buffer { .. })), "it waits");
        world.clock.advance(WAIT);
        buffer.take_queue().await.expect("nobody has objected");
        let why = "its queue in another Redis";
        refused(counters.flush().await, why);
        refused(take(&world, 4).await, why);
        refused(check(&world, 4).await, why);
        check(&second, 4).await.expect("the queue of the store");
        let other = second.healthy(3).await;
        assert_eq!(other.view(ad("7"), 1, None).await.expect("counted"), whole(2));
        save_all(&other).await;
    }
}

/// Two services that have compared nothing at their start, as Redis was away.
#[tokio::test]
async fn ext_redis_views_of_two_stores_never_mix() {
    on_each_form(async |world: World| {
        let server = world.redis.clone().expect("a server");
        let other = World { form: world.form, ..World::on(&server) };
        let (counters, of_other) = (world.healthy(1).await, other.healthy(2).await);
        let why = "the queue of another store";
        counters.view(ad("7"), 1, None).await.expect("counted");
        refused(of_other.view(ad("7"), 100, None).await, why);
        refused(of_other.delete(&ad("7"), None).await, why);
        assert_eq!(total(&of_other, "7").await, Total { views: 0, partial: true }, "that of its own store");
        refused(of_other.flush().await, why);
        save_all(&counters).await;
        assert_eq!(total(&counters, "7").await, whole(1));
        // Another kind is no other queue.
        let news = Item::new("news", "1").expect("an item");
        refused(of_other.view(news.clone(), 1, None).await, why);
        // Redis loses everything while both run: who is first has it, and a service that had it sees that before it counts.
        for (first, second) in [(&counters, &of_other), (&of_other, &counters)] {
            server.command(&["FLUSHALL"]).await;
            first.flush().await.expect("it has the queue");
            first.view(ad("8"), 1, None).await.expect("counted");
            refused(second.view(news.clone(), 100, None).await, why);
            refused(second.view(ad("8"), 100, None).await, why);
            refused(second.flush().await, why);
            save_all(first).await;
            refused(second.totals(&ads(), &[]).await.and(second.buffer().read(&ads(), &[]).await), why);
        }
        for (counters, views) in [(&counters, [1, 1]), (&of_other, [0, 1])] {
            let ids = ["7", "8"].map(|id| ad(id).id);
            assert_eq!(counters.storage().totals(&ads(), &ids).await.expect("totals"), views);
        }
    })
    .await;
}

/// A Redis comes back with its views and cached totals, but without its mark, after another one had the queue.
#[tokio::test]
async fn ext_redis_what_a_redis_has_is_right_after_it_has_replaced_another() {
    for form in [StorageForm::Transactions, StorageForm::SingleDocuments] {
        let Some((world, second)) = two_worlds().await else { return };
        let (world, second) = (World { form, ..world }, World { form, ..second });
        let before = counted(&second).await;
        assert_eq!(before.view(ad("7"), 1, None).await.expect("counted"), whole(2), "it waits there");
        second.server().command(&["DEL", MARK]).await;
        drop(before);
        let replaces = async |world: &World, process| {
            let buffer = patient_buffer(world, process).await;
            assert!(matches!(buffer.check_before_saving().await, Err(Error::Buffer { .. })), "it waits");
            let view = View::new(ad("7"), 1, first_day()).expect("a view");
            assert!(matches!(buffer.upsert(&view, None).await, Err(Error::Buffer { .. })), "not counted, either");
            assert!(buffer.read(&ads(), &[]).await.is_err() && buffer.check().await.is_err());
            world.clock.advance(WAIT);
            buffer.take_queue().await.expect("nobody has objected");
            assert_eq!(record(world).await.get("candidate").expect("readable"), None, "all is begun anew");
        };
        replaces(&world, 3).await;
        let counters = world.healthy(4).await;
        assert_eq!(counters.view(ad("7"), 5, None).await.expect("counted"), whole(6), "1 waits elsewhere");
        save_all(&counters).await;
        world.server().command(&["FLUSHALL"]).await;
        drop(counters);
        replaces(&second, 5).await;
        let counters = second.healthy(6).await;
        // A total that may lack something says so.
        let seen = counters.view(ad("7"), 1, None).await.expect("counted");
        assert!(seen.partial || seen.views == 8, "{seen:?}");
        save_all(&counters).await;
        assert_eq!(total(&counters, "7").await, whole(8));
        assert_eq!(counters.storage().totals(&ads(), &[ad("7").id]).await.expect("a total"), [8]);
    }
}

/// Views of another store that wait in a Redis are not saved by one that gets it.
#[tokio::test]
async fn ext_redis_a_kind_of_another_store_is_not_taken_over() {
    let Some((world, second)) = two_worlds().await else { return };
    let other = World::on(second.redis.as_ref().expect("a server"));
    let of_other = other.healthy(9).await;
    of_other.view(ad("7"), 100, None).await.expect("counted");
    drop(counted(&world).await);
    // The other one has set its mark at the same moment.
    let ids = mark(&other).await.expect("a mark");
    let own = record(&world).await;
    let [store, queue] = ["store", "queue"].map(|id| own.get_str(id).expect("an id").to_owned());
    let candidate = ids.split('|').nth(1).expect("a queue").to_owned();
    let taken = format!("{store}|{candidate}|{queue}");
    other.server().command(&["SET", MARK, &taken]).await;
    let buffer = patient_buffer(&second, 2).await;
    let waits = buffer.check_before_saving().await;
    assert!(matches!(waits, Err(Error::Buffer { .. })), "it waits: {waits:?}");
    world.clock.advance(WAIT);
    buffer.take_queue().await.expect("the queue");
    let counters = second.healthy(3).await;
    let why = "the queue of another store";
    refused(counters.view(ad("7"), 1, None).await, why);
    refused(counters.flush().await, why);
    let news = Item::new("news", "1").expect("an item");
    counters.view(news.clone(), 1, None).await.expect("counted");
    refused(counters.flush().await, why);
    let totals = counters.storage().totals(&news.kind, &[news.id]).await.expect("a total");
    assert_eq!(totals, [1], "other kinds are saved");
    assert_eq!(counters.storage().totals(&ads(), &[ad("7").id]).await.expect("a total"), [1]);
}

#[tokio::test]
async fn ext_redis_of_two_that_would_replace_a_third_one_is_refused() {
    let Some((world, second)) = two_worlds().await else { return };
    let Some(third) = RedisServer::start_with("no").await else { return };
    let third = World { redis: Some(Arc::new(third)), ..second.clone() };
    drop(counted(&world).await);
    let (one, two) = (patient_buffer(&second, 2).await, patient_buffer(&third, 3).await);
    for buffer in [&one, &two] {
        assert!(matches!(buffer.check_before_saving().await, Err(Error::Buffer { .. })), "it waits");
    }
    refused(one.check_before_saving().await, "two of Redis are empty");
    assert!(matches!(one.check().await, Err(Error::WrongQueue { .. })), "it is not ready");
    world.clock.advance(WAIT);
    two.take_queue().await.expect("nobody else");
}

#[tokio::test]
async fn ext_redis_data_without_marks_are_taken_over() {
    on_each_form(async |world: World| {
        let counters = counted(&world).await;
        counters.view(ad("7"), 1, None).await.expect("counted");
        let settings = Namespace::new("counters", "settings").expect("a name");
        assert!(world.store.delete_one(&settings, rawdoc! { "_id": "queue" }).await.expect("removed"));
        world.server().command(&["DEL", MARK]).await;
        world.server().command(&["HDEL", "hf:{ads}:state", "store"]).await;
        check(&world, 2).await.expect("nothing is known");
        let other = world.healthy(2).await;
        save_all(&other).await;
        assert_eq!(total(&other, "7").await, whole(2));
        save_all(&counters).await;
        assert!(mark(&world).await.is_some());
    })
    .await;
}

/// A mark that Redis loses is set again by an instance that knows it, also while its store is replaced by nobody.
#[tokio::test]
async fn ext_redis_a_lost_mark_is_set_again() {
    let Some(world) = World::redis().await else { return };
    let counters = counted(&world).await;
    let before = mark(&world).await;
    world.server().command(&["FLUSHALL"]).await;
    counters.flush().await.expect("saved");
    assert!(before.is_some() && mark(&world).await == before);
    world.server().command(&["SET", MARK, "nonsense"]).await;
    assert!(matches!(counters.flush().await, Err(Error::Damaged { .. })));
}

/// Takes the queue in a process with a fault at an operation of the store, then in one without a fault.
async fn point(world: &World, fault: Option<(u64, Fault)>) -> u64 {
    let before = {
        let counting = Arc::new(Faulty::new(world.store.clone(), Plan::none()));
        drop(world.start(2, counting.clone()).await.expect("a process"));
        counting.operations()
    };
    let plan = fault.map_or_else(Plan::none, |(at, fault)| Plan::at(before + at, fault));
    let store = Arc::new(Faulty::new(world.store.clone(), plan));
    let counters = world.start(2, store.clone()).await.expect("a process");
    let result = counters.flush().await;
    let context = format!("{fault:?}: {result:?}");
    assert!(!matches!(result, Err(Error::WrongQueue { .. })), "{context}");
    // Two processes at once: the one that had the fault may still run.
    let other = world.healthy(3).await;
    other.flush().await.expect(&context);
    let (record, mark) = (record(world).await, mark(world).await.expect(&context));
    assert_eq!(record.get("candidate").expect(&context), None, "{context}");
    let ids: Vec<&str> = mark.split('|').collect();
    assert_eq!([record.get_str("store").ok(), record.get_str("queue").ok()], [Some(ids[0]), Some(ids[1])], "{context}");
    store.operations() - before
}

#[tokio::test]
async fn ext_redis_the_queue_is_taken_with_a_fault_at_any_operation() {
    let Some(world) = World::redis().await else { return };
    let server = world.redis.expect("a server");
    for replaces in [false, true] {
        let prepare = async || {
            server.command(&["FLUSHALL"]).await;
            let world = World::on(&server);
            if replaces {
                counted(&world).await;
                server.command(&["FLUSHALL"]).await;
            }
            world
        };
        let operations = point(&prepare().await, None).await;
        assert!(operations >= 4, "{operations}");
        for fault in Fault::PROMPT_OUTCOMES {
            for at in 0..operations {
                point(&prepare().await, Some((at, fault))).await;
            }
        }
        println!("{} points, replaces {replaces}", operations as usize * Fault::PROMPT_OUTCOMES.len());
    }
}

/// Of processes that start at once, all find the same.
#[tokio::test]
async fn ext_redis_processes_that_start_at_once_take_the_same_queue() {
    let Some(world) = World::redis().await else { return };
    for _ in 0..2 {
        let starts = (1..=8).map(|process| {
            let world = world.clone();
            tokio::spawn(async move { take(&world, process).await })
        });
        for start in starts.collect::<Vec<_>>() {
            start.await.expect("ended").expect("taken");
        }
        world.server().command(&["FLUSHALL"]).await;
    }
}
