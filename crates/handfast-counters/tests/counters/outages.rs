//! Redis is away, is killed, does not answer, or is full: no view that was answered is lost, and none is counted twice.

use std::time::Duration;

use handfast_counters::{Buffer as _, Counters, Error, Owner, RedisBuffer, RedisBufferOptions, Total};
use handfast_store::Applied;

use crate::server::RedisServer;
use crate::waiting::until_ok;
use crate::world::{World, ad, ads, first_day, key, save_all, total, whole};

fn applied(error: &Error) -> Applied {
    assert!(matches!(error, Error::Buffer { .. }), "{error}");
    error.applied()
}

/// Sends a view that must fail, until the loss of the connection was noticed; returns the number of those in doubt.
async fn refused(counters: &Counters, id: &str) -> u64 {
    let mut doubtful = 0;
    loop {
        match applied(&counters.view(ad(id), 1, None).await.expect_err("refused")) {
            Applied::No => return doubtful,
            Applied::Maybe => doubtful += 1,
        }
        assert!(doubtful <= 1, "one request may be on its way when the connection breaks");
    }
}

#[tokio::test]
async fn ext_redis_without_redis_views_are_refused_and_totals_come_from_the_store() {
    let Some(world) = World::durable_redis().await else { return };
    let counters = world.healthy(1).await;
    counters.view(ad("7"), 5, None).await.expect("counted");
    save_all(&counters).await;
    world.server().kill();
    refused(&counters, "7").await;
    assert_eq!(applied(&counters.delete(&ad("7"), None).await.expect_err("refused")), Applied::No);
    assert_eq!(total(&counters, "7").await, Total { views: 5, partial: true }, "views may wait in the queue");
    assert!(counters.flush().await.is_err());
    // A process that starts meanwhile counts as soon as Redis is there.
    let other = world.healthy(2).await;
    refused(&other, "7").await;
    world.server().restart().await;
    assert_eq!(other.view(ad("7"), 1, None).await.expect("counted").views, 6);
    assert_eq!(counters.view(ad("7"), 1, None).await.expect("counted").views, 7);
    save_all(&counters).await;
    assert_eq!(total(&counters, "7").await, whole(7));
}

#[tokio::test]
async fn ext_redis_a_kill_loses_no_view_that_was_answered() {
    let Some(world) = World::durable_redis().await else { return };
    let counters = world.healthy(1).await;
    counters.view(ad("7"), 5, key("a")).await.expect("counted");
    save_all(&counters).await;
    counters.view(ad("7"), 2, key("b")).await.expect("counted");
    counters.view(ad("8"), 1, None).await.expect("counted");
    counters.delete(&ad("9"), None).await.expect("deleted");
    let owner = Owner::new(&world.sources(5));
    let batch = counters.buffer().claim(&ads(), &owner, 1).await.expect("claimed");
    world.server().kill();
    world.server().restart().await;
    until_ok("a view", || async { counters.view(ad("7"), 2, key("b")).await }).await;
    assert!(total(&counters, "7").await.views >= 7, "no total goes back");
    assert_eq!(counters.buffer().claim(&ads(), &owner, 1).await.expect("claimed"), batch);
    save_all(&counters).await;
    assert_eq!((total(&counters, "7").await, total(&counters, "8").await), (whole(7), whole(1)));
}

#[tokio::test]
async fn ext_redis_a_full_memory_refuses_views_and_lets_the_queue_be_saved() {
    let Some(world) = World::redis().await else { return };
    let counters = world.healthy(1).await;
    for _ in 0..10 {
        counters.view(ad("7"), 1, None).await.expect("counted");
    }
    let dead = counters.buffer().claim(&ads(), &Owner::new(&world.sources(5)), 3).await.expect("claimed");
    assert!(dead.is_some());
    world.server().command(&["CONFIG", "SET", "maxmemory", "1"]).await;
    let error = counters.view(ad("7"), 1, None).await.expect_err("full");
    assert_eq!(applied(&error), Applied::No, "{error}");
    assert!(!counters.readiness().await.takes_views());
    save_all(&counters).await;
    assert_eq!(counters.buffer().depth(&ads()).await.expect("a depth").batches, 0);
    world.server().command(&["CONFIG", "SET", "maxmemory", "0"]).await;
    assert_eq!(counters.view(ad("7"), 1, None).await.expect("counted"), whole(11));
}

#[tokio::test]
async fn ext_redis_a_replica_and_an_empty_script_cache_are_no_harm() {
    let Some(world) = World::redis().await else { return };
    let counters = world.healthy(1).await;
    world.server().command(&["SCRIPT", "FLUSH"]).await;
    assert_eq!(counters.view(ad("7"), 1, None).await.expect("counted"), whole(1));
    // Port 1 has no master.
    world.server().command(&["REPLICAOF", "127.0.0.1", "1"]).await;
    let error = counters.view(ad("7"), 1, None).await.expect_err("read-only");
    assert_eq!(applied(&error), Applied::No, "{error}");
    world.server().command(&["REPLICAOF", "NO", "ONE"]).await;
    // It may have the data of another server.
    assert_eq!(counters.view(ad("7"), 1, None).await.expect("counted"), Total { views: 2, partial: true });
    save_all(&counters).await;
    assert_eq!(total(&counters, "7").await, whole(2));
}

#[tokio::test]
async fn ext_redis_a_server_that_does_not_answer_leaves_a_request_in_doubt() {
    let Some(world) = World::redis().await else { return };
    let storage = world.healthy(1).await.storage().clone();
    let short = Duration::from_millis(200);
    let options =
        RedisBufferOptions { connect_timeout: short, response_timeout: short, ..RedisBufferOptions::default() };
    let buffer =
        RedisBuffer::connect(&world.server().url(), storage, world.sources(2), options).await.expect("a buffer");
    let view = handfast_counters::View::new(ad("7"), 1, first_day()).expect("a view");
    // On a busy machine the time may be too short.
    until_ok("a view", || async { buffer.upsert(&view, None).await }).await;
    world.server().signal("STOP");
    let in_doubt = buffer.upsert(&view, None).await.expect_err("no answer");
    assert_eq!(applied(&in_doubt), Applied::Maybe, "{in_doubt}");
    // The connection was given up, and a new one is not made.
    let refused = buffer.upsert(&view, None).await.expect_err("no connection");
    assert_eq!(applied(&refused), Applied::No, "{refused}");
    assert!(buffer.health().await.is_err());
    world.server().signal("CONT");
    until_ok("a view", || async { buffer.upsert(&view, None).await }).await;
}

#[tokio::test]
async fn ext_redis_settings_that_lose_views_are_told() {
    let Some(server) = RedisServer::start_with("everysec").await else { return };
    let world = World::on(&std::sync::Arc::new(server));
    let storage = world.healthy(1).await.storage().clone();
    let buffer = world.redis_buffer(&storage, world.sources(2)).await;
    assert!(matches!(&buffer.warnings()[..], [one] if one.contains("appendfsync everysec")), "{:?}", buffer.warnings());
    world.server().command(&["CONFIG", "SET", "appendfsync", "always"]).await;
    let health = buffer.health().await.expect("healthy");
    assert!(health.warnings.is_empty() && !health.version.is_empty(), "{health:?}");
    assert_eq!(buffer.warnings(), [""; 0]);
    world.server().command(&["CONFIG", "SET", "appendonly", "no"]).await;
    world.server().command(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]).await;
    let warnings = buffer.health().await.expect("healthy").warnings;
    assert!(warnings.len() == 2 && warnings[0].contains("appendonly no") && warnings[1].contains("allkeys-lru"));
}

#[tokio::test]
async fn a_redis_that_is_not_there_is_an_error_at_once() {
    let world = World::embedded();
    let storage = world.healthy(1).await.storage().clone();
    let bad = RedisBuffer::connect("http://x", storage.clone(), world.sources(2), RedisBufferOptions::default()).await;
    assert!(matches!(bad.err(), Some(Error::Invalid { .. })));
    // A port that was free a moment ago.
    let port =
        std::net::TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port").port();
    let url = format!("redis://127.0.0.1:{port}/");
    let buffer =
        RedisBuffer::connect(&url, storage, world.sources(2), RedisBufferOptions::default()).await.expect("a buffer");
    let error = buffer.delete(&ad("7"), None).await.expect_err("refused");
    assert_eq!(applied(&error), Applied::No, "{error}");
    assert!(buffer.health().await.is_err());
    assert_eq!(buffer.warnings(), [""; 0]);
}
