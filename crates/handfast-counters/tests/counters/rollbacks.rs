//! Redis comes back with less than it had: what is left is counted once, and totals are right.

use std::sync::Arc;

use handfast_counters::jiff::civil::date;
use handfast_counters::{Batch, Change, Event, Owner, Saved, Stored, Total};
use handfast_store::decorator::{Fault, Faulty, Plan};

use crate::server::RedisServer;
use crate::waiting::{until_frozen, until_ok};
use crate::world::{World, ad, ads, broken_scripts, first_day, key, save_all, total, whole};

/// The first request after Redis has come back: each of the ways in which a kind is begun anew.
#[derive(Clone, Copy, Debug, PartialEq)]
enum First {
    Read,
    View,
    Delete,
}

/// Redis comes back as it was before its last seconds, in which views were saved and totals were read.
async fn lose_the_last_seconds(world: World, first: First) {
    let counters = world.healthy(1).await;
    counters.view(ad("9"), 3, None).await.expect("counted");
    save_all(&counters).await;
    counters.view(ad("7"), 5, None).await.expect("counted");
    let some_seconds_ago = world.server().copy_files();
    save_all(&counters).await;
    counters.view(ad("7"), 2, None).await.expect("counted");
    save_all(&counters).await;
    let lost = Stored { fence: counters.buffer().read(&ads(), &[]).await.expect("read").fence, total: 1_000 };
    world.server().kill();
    world.server().restore_files(&some_seconds_ago);
    world.server().restart().await;
    // Connects again, and begins nothing.
    counters.buffer().kinds().await.expect("the kinds that it knows");
    match first {
        First::Read => {}
        First::View => assert!(counters.view(ad("7"), 1, None).await.expect("counted").partial),
        First::Delete => counters.delete(&ad("9"), None).await.expect("deleted"),
    }
    // Redis has forgotten that all of this was saved; the store knows.
    assert_eq!(total(&counters, "7").await, Total { views: 7, partial: true });
    let waiting = if first == First::Read { 1 } else { 2 };
    assert_eq!(counters.buffer().depth(&ads()).await.expect("a depth").pending, waiting);
    // Their numbers are not those of the views that were lost with their acknowledgement.
    if first != First::View {
        counters.view(ad("7"), 1, None).await.expect("counted");
    }
    counters.view(ad("8"), 1, None).await.expect("counted");
    save_all(&counters).await;
    assert_eq!((total(&counters, "7").await, total(&counters, "8").await), (whole(8), whole(1)));
    // As many claims and acknowledgements later: a total that was read before the loss is not current. The events of before and after it are in two batches.
    assert_eq!(counters.buffer().fill(&ad("10"), lost).await.expect("asked"), None);
    counters.view(ad("8"), 1, None).await.expect("counted");
    save_all(&counters).await;
    assert_eq!(counters.buffer().fill(&ad("10"), lost).await.expect("asked"), None);
    let days = counters.daily(&ad("7"), first_day(), first_day()).await.expect("days");
    assert_eq!(days[0].views, 8);
    let saved = counters.storage().totals(&ads(), &[ad("9").id]).await.expect("a total");
    assert_eq!(saved, [if first == First::Delete { 0 } else { 3 }]);
}

#[tokio::test]
async fn ext_redis_what_is_left_of_lost_data_is_counted_once() {
    for first in [First::Read, First::View, First::Delete] {
        if let Some(world) = World::durable_redis().await {
            lose_the_last_seconds(world, first).await;
        }
        if let Some(world) = World::durable_redis().await {
            lose_the_last_seconds(world.single_documents(), first).await;
        }
    }
}

#[tokio::test]
async fn ext_redis_a_broken_begin_is_caught() {
    let mutants = [
        (
            "no begin before a deletion",
            First::Delete,
            "(run ~= ARGV[2] or not generation)",
            "(not run or not generation)",
        ),
        (
            "old numbers again",
            First::Read,
            "int(math.max(clock, tonumber(least) or 0, tonumber(known), left))",
            "int(next_number() > 1 and next_number() or clock)",
        ),
        ("old epochs again", First::Read, "'epoch', first_epoch, 'floor'", "'epoch', state[2] or first_epoch, 'floor'"),
        (
            "old totals stay whole",
            First::View,
            "generation = first_epoch\n",
            "generation = generation or first_epoch\n",
        ),
        ("old events get new numbers", First::Read, "elseif length > older then", "elseif false then"),
        ("fill does not wait for old events", First::Read, "(count > 0 and oldest < floor)", "false"),
    ];
    for (name, first, right, wrong) in mutants {
        let Some(world) = World::durable_redis().await else { return };
        let broken = World { scripts: broken_scripts(name, right, wrong), ..world };
        assert!(tokio::spawn(lose_the_last_seconds(broken, first)).await.is_err(), "not caught: {name}");
    }
}

/// Events that wait in the queue while Redis restarts, twice, and batches of them that are smaller than what waited.
async fn keep_the_numbers_of_old_events(world: World) {
    let counters = world.healthy(1).await;
    let buffer = counters.buffer();
    let mut numbers = Vec::new();
    let claim = async |owner: u64| {
        let owner = Owner::new(&world.sources(owner));
        buffer.claim(&ads(), &owner, 2).await.expect("claimed").expect("a batch")
    };
    // Five events, of which a batch takes two; and two more after each restart.
    for view in 0..5 {
        counters.view(ad("7"), 1 << view, None).await.expect("counted");
    }
    let first = claim(10).await;
    numbers.extend(first.events.iter().map(|event| event.number));
    let depth = buffer.depth(&ads()).await.expect("a depth");
    assert_eq!((depth.pending, depth.batches, depth.oldest), (3, 1, numbers[0]));
    for restart in 0..2_u32 {
        world.server().kill();
        world.server().restart().await;
        buffer.kinds().await.expect("the kinds that it knows");
        for view in 0..2 {
            counters.view(ad("7"), 1 << (5 + 2 * restart + view), None).await.expect("counted");
        }
        assert_eq!(claim(10).await, first, "its owner still has it");
        assert_eq!(buffer.depth(&ads()).await.expect("a depth").oldest, numbers[0]);
    }
    let mut batches = vec![first];
    for owner in 11..15 {
        batches.push(claim(owner).await);
    }
    assert!(buffer.claim(&ads(), &Owner::new(&world.sources(15)), 2).await.expect("claimed").is_none());
    let counts: Vec<usize> = batches.iter().map(|batch| batch.events.len()).collect();
    assert_eq!(counts, [2, 2, 1, 2, 2], "no batch has events of two restarts");
    let events: Vec<&Event> = batches.iter().flat_map(|batch| &batch.events).collect();
    let views: Vec<u64> = batches.iter().map(Batch::views).collect();
    assert_eq!(views, [3, 12, 16, 96, 384], "in their order");
    let first_number = numbers[0];
    for (at, event) in events.iter().enumerate().take(5) {
        assert_eq!(event.number, first_number + at as u64, "as before the restarts");
    }
    assert!(events.windows(2).all(|pair| pair[0].number < pair[1].number), "{events:?}");
    assert!(events[5].number > first_number + 1_000 && events[7].number > events[6].number + 1_000, "new ones");
    for batch in &batches {
        assert_eq!(counters.storage().save(batch).await.expect("saved"), Saved::Now);
        buffer.acknowledge(batch).await.expect("acknowledged");
    }
    assert_eq!(total(&counters, "7").await, whole(511));
    save_all(&counters).await;
}

#[tokio::test]
async fn ext_redis_old_events_keep_their_numbers_when_redis_restarts() {
    if let Some(world) = World::durable_redis().await {
        keep_the_numbers_of_old_events(world).await;
    }
}

/// A kind that Redis has lost is begun anew by one instance, while another one still knows its last generation.
async fn lose_a_kind_beside_others(world: World) {
    let (one, other) = (world.healthy(1).await, world.healthy(2).await);
    for counters in [&one, &other] {
        counters.view(ad("7"), 1, None).await.expect("counted");
    }
    save_all(&one).await;
    world.server().command(&["FLUSHALL"]).await;
    assert_eq!(one.view(ad("7"), 1, None).await.expect("counted"), whole(3));
    assert_eq!(other.view(ad("7"), 1, None).await.expect("counted"), whole(4));
    assert_eq!(total(&one, "7").await, whole(4));
    save_all(&other).await;
    assert_eq!(other.storage().totals(&ads(), &[ad("7").id]).await.expect("a total"), [4]);
}

#[tokio::test]
async fn ext_redis_a_kind_that_is_lost_is_begun_anew_for_all_instances() {
    if let Some(world) = World::durable_redis().await {
        lose_a_kind_beside_others(world).await;
    }
}

#[tokio::test]
async fn ext_redis_views_of_an_earlier_generation_are_caught() {
    let Some(world) = World::durable_redis().await else { return };
    let (right, wrong) = ("string.sub(present, 1, #generation) ~= generation", "false");
    let broken = World { scripts: broken_scripts("any generation", right, wrong), ..world };
    assert!(tokio::spawn(lose_a_kind_beside_others(broken)).await.is_err());
}

#[tokio::test]
async fn ext_redis_a_hot_item_gets_its_whole_total_back_after_a_loss() {
    if let Some(world) = World::durable_redis().await {
        get_a_hot_total_back(world).await;
    }
    if let Some(world) = World::durable_redis().await {
        get_a_hot_total_back(world.single_documents()).await;
    }
}

#[tokio::test]
async fn ext_redis_an_old_total_that_is_never_filled_is_caught() {
    let Some(world) = World::durable_redis().await else { return };
    let (right, wrong) = ("return entry.s == '' or entry.g ~= generation", "return entry.s == ''");
    let broken = World { scripts: broken_scripts("old totals are not filled", right, wrong), ..world };
    assert!(tokio::spawn(get_a_hot_total_back(broken)).await.is_err());
}

/// Redis comes back as it was a second ago, and an item has views in the queue at all times.
async fn get_a_hot_total_back(world: World) {
    let counters = world.healthy(1).await;
    counters.view(ad("7"), 5, None).await.expect("counted");
    let one_second_ago = world.server().copy_files();
    save_all(&counters).await;
    counters.view(ad("7"), 10, None).await.expect("counted");
    save_all(&counters).await;
    world.server().kill();
    world.server().restore_files(&one_second_ago);
    world.server().restart().await;
    until_ok("a read", || async { counters.buffer().read(&ads(), &[]).await }).await;
    counters.view(ad("7"), 1, None).await.expect("counted");
    let owner = Owner::new(&world.sources(5));
    // The event of before the loss alone: the item has views in the queue at all times.
    let batch = counters.buffer().claim(&ads(), &owner, 1).await.expect("claimed").expect("a batch");
    assert_eq!(batch.views(), 5);
    let partial = total(&counters, "7").await;
    assert!(partial.partial && partial.views == 15, "{partial:?}");
    assert_eq!(counters.storage().save(&batch).await.expect("saved"), Saved::Before);
    counters.buffer().acknowledge(&batch).await.expect("acknowledged");
    assert_eq!(total(&counters, "7").await, whole(16), "read from the store and filled");
    assert_eq!(counters.view(ad("7"), 1, None).await.expect("counted"), whole(17));
    save_all(&counters).await;
    assert_eq!(total(&counters, "7").await, whole(17));
}

/// A server becomes a replica of one that lacks its newest views, and then a master again, without a start: its run_id is the same, and its
/// data are older than what its clients saw.
#[tokio::test]
async fn ext_redis_a_server_that_was_a_replica_meanwhile_begins_anew() {
    let Some(world) = World::redis().await else { return };
    let Some(other) = RedisServer::start_with("no").await else { return };
    let server = world.server();
    let port = |server: &RedisServer| server.port().to_string();
    let counters = world.healthy(1).await;
    counters.view(ad("7"), 1, None).await.expect("counted");
    other.command(&["REPLICAOF", "127.0.0.1", &port(server)]).await;
    other.until_info("master_link_status:up").await;
    other.command(&["REPLICAOF", "NO", "ONE"]).await;
    counters.view(ad("7"), 5, None).await.expect("counted");
    save_all(&counters).await;
    server.command(&["REPLICAOF", "127.0.0.1", &port(&other)]).await;
    server.until_info("master_link_status:up").await;
    server.command(&["REPLICAOF", "NO", "ONE"]).await;
    // As a sentinel does when it makes a master a replica.
    server.command(&["CLIENT", "KILL", "TYPE", "normal"]).await;
    until_ok("a view", || async { counters.view(ad("7"), 2, key("a")).await }).await;
    save_all(&counters).await;
    assert_eq!(total(&counters, "7").await, whole(8));
}

/// Redis forgets that two instances have claimed a batch each; a third one claims the events of both.
async fn lose_two_claims(world: World) {
    let counters = world.healthy(1).await;
    for _ in 0..4 {
        counters.view(ad("7"), 1, None).await.expect("counted");
    }
    let before = world.server().copy_files();
    let (buffer, sources) = (counters.buffer(), world.sources(5));
    let claim =
        async |events| buffer.claim(&ads(), &Owner::new(&sources), events).await.expect("claimed").expect("a batch");
    claim(2).await;
    let second = claim(2).await;
    world.server().kill();
    world.server().restore_files(&before);
    world.server().restart().await;
    until_ok("a read", || async { buffer.read(&ads(), &[]).await }).await;
    let of_both = claim(4).await;
    assert_eq!(of_both.number(), second.number());
    // The first claimer and the third are dead; the second one comes back.
    counters.storage().save(&second).await.expect("saved");
    buffer.acknowledge(&second).await.expect("asked");
    save_all(&counters).await;
    assert_eq!(total(&counters, "7").await, whole(4));
}

#[tokio::test]
async fn ext_redis_a_late_acknowledgement_leaves_a_batch_of_the_same_name() {
    if let Some(world) = World::durable_redis().await {
        lose_two_claims(world).await;
    }
    if let Some(world) = World::durable_redis().await {
        lose_two_claims(world.single_documents()).await;
    }
}

#[tokio::test]
async fn ext_redis_an_acknowledgement_by_name_alone_is_caught() {
    let Some(world) = World::durable_redis().await else { return };
    let scripts = broken_scripts("any first event", " or first_number ~= tonumber(first)", "");
    let broken = World { scripts, ..world };
    assert!(tokio::spawn(lose_two_claims(broken)).await.is_err());
}

/// A batch of events of one view each.
fn batch(numbers: impl IntoIterator<Item = u64>) -> Batch {
    let change = Change::Views { views: 1, day: date(2026, 11, 30) };
    let event = |number| Event { number, id: ad("7").id, change: change.clone() };
    Batch { kind: ads(), events: numbers.into_iter().map(event).collect() }
}

#[tokio::test]
async fn a_batch_adds_what_no_saved_batch_has() {
    add_what_no_saved_batch_has(World::in_memory()).await;
    add_what_no_saved_batch_has(World::in_memory().single_documents()).await;
}

async fn add_what_no_saved_batch_has(world: World) {
    let storage = world.healthy(1).await.storage().clone();
    let table = [
        (batch(5..=8), Saved::Now, 4),
        (batch(5..=8), Saved::Before, 4),
        (batch(6..=7), Saved::Before, 4),
        (batch(7..=10), Saved::Now, 6),
        // Ends where a saved one ends, and begins before it.
        (batch(3..=8), Saved::Now, 8),
        (batch(3..=10), Saved::Before, 8),
        (batch([2, 3, 4, 20]), Saved::Now, 10),
        (batch(30..=31), Saved::Now, 12),
        (batch([1]), Saved::Now, 13),
    ];
    for (batch, saved, views) in table {
        assert_eq!(storage.save(&batch).await.expect("saved"), saved, "{batch:?}");
        assert_eq!(storage.totals(&ads(), &[ad("7").id]).await.expect("totals"), [views], "{batch:?}");
    }
    storage.forget_batches(&ads(), 32).await.expect("forgotten");
    for (batch, saved, views) in [(batch(25..=31), Saved::Before, 13), (batch([1, 30, 40]), Saved::Now, 14)] {
        assert_eq!(storage.save(&batch).await.expect("saved"), saved, "{batch:?}");
        assert_eq!(storage.totals(&ads(), &[ad("7").id]).await.expect("totals"), [views], "{batch:?}");
    }
    assert_eq!(storage.verify(None, |_| ()).await.expect("checked").differences, []);
}

/// An instance saves a batch that Redis has lost meanwhile, and whose item was put into the cache in between.
async fn save_a_lost_batch(world: World) {
    let counters = world.healthy(1).await;
    counters.view(ad("7"), 5, None).await.expect("counted");
    save_all(&counters).await;
    let before = world.server().copy_files();
    // The requests of a start and two passes, and those of a pass alone, which come before those for a batch.
    let requests = {
        let counting = Arc::new(Faulty::new(world.store.clone(), Plan::none()));
        let idle = world.start(2, counting.clone()).await.expect("a process");
        idle.flush().await.expect("nothing to save");
        let of_start = counting.operations();
        idle.flush().await.expect("nothing to save");
        2 * counting.operations() - of_start
    };
    let slow = Arc::new(Faulty::new(world.store.clone(), Plan::at(requests, Fault::FreezeBefore)));
    let saver = world.start(3, slow.clone()).await.expect("a process");
    for _ in 0..2 {
        saver.flush().await.expect("nothing to save");
    }
    counters.view(ad("7"), 3, None).await.expect("counted");
    let of_saver = saver.clone();
    let saving = tokio::spawn(async move { of_saver.flush().await });
    until_frozen(&slow, &saving).await;
    assert_eq!(counters.buffer().depth(&ads()).await.expect("a depth").batches, 1, "it has claimed the views");
    world.server().kill();
    world.server().restore_files(&before);
    world.server().restart().await;
    for process in [&counters, &saver] {
        until_ok("a read", || async { process.buffer().read(&ads(), &[]).await }).await;
    }
    assert_eq!(total(&counters, "7").await, whole(5), "the store has no more");
    // A hot item: it never leaves the cache.
    assert_eq!(counters.view(ad("7"), 1, None).await.expect("counted"), whole(6));
    slow.release();
    assert_eq!(saving.await.expect("ended").expect("saved").views, 3);
    assert_eq!(total(&counters, "7").await, whole(9));
    assert_eq!(counters.view(ad("7"), 1, None).await.expect("counted"), whole(10));
    save_all(&counters).await;
    assert_eq!(total(&counters, "7").await, whole(10));
}

#[tokio::test]
async fn ext_redis_a_batch_that_redis_has_lost_is_in_the_total_once_it_is_saved() {
    if let Some(world) = World::durable_redis().await {
        save_a_lost_batch(world).await;
    }
    if let Some(world) = World::durable_redis().await {
        save_a_lost_batch(world.single_documents()).await;
    }
}
