use std::time::Duration;

use bson::rawdoc;
use handfast_wire::{Compressor, Flags, OpMsg, compressed};

use super::{OpenConnection, UNAUTHENTICATED_IDLE_TIME, UNAUTHENTICATED_MESSAGE_BYTES_MAX};
use crate::auth::login::LOGIN_TIME;
use crate::frame::timer_now;
use crate::options::{ConnectionLimits, Options};
use crate::state::Client;
use crate::testing::{ReplyFields, TestServer};

/// Returns the message of a ping that is `padding` bytes longer than the shortest.
fn ping(padding: usize) -> Vec<u8> {
    let body = rawdoc! { "ping": 1, "comment": "x".repeat(padding), "$db": "admin" };
    let mut bytes = Vec::new();
    OpMsg::new(Flags::default(), &body).encode(1, 0, &mut bytes);
    bytes
}

#[tokio::test]
async fn before_a_login_large_messages_are_refused() {
    let mut server = TestServer::guarded();
    server.add_user("admin", "ann", &["root@admin"]).await;
    let mut client = server.connect();
    client.send_bytes(&ping(UNAUTHENTICATED_MESSAGE_BYTES_MAX - 200)).await;
    assert!(client.receive().await.is_some());
    client.send_bytes(&ping(UNAUTHENTICATED_MESSAGE_BYTES_MAX)).await;
    assert!(client.receive().await.is_none(), "it is closed unread");

    let mut client = server.connect();
    assert!(client.log_in("admin", "ann", "ann").await.flag("done"));
    client.send_bytes(&ping(1024 * 1024)).await;
    assert!(client.receive().await.is_some());
    client.run("admin", rawdoc! { "logout": 1 }).await;
    client.send_bytes(&ping(UNAUTHENTICATED_MESSAGE_BYTES_MAX)).await;
    assert!(client.receive().await.is_none());
}

#[tokio::test]
async fn before_a_login_messages_that_inflate_to_more_are_refused() {
    let mut server = TestServer::guarded();
    for (padding, answered) in [(1000, true), (1024 * 1024, false)] {
        let mut bytes = Vec::new();
        assert!(compressed::compress(&ping(padding), Compressor::Zstd, &mut bytes));
        assert!(bytes.len() < 2000);
        let mut client = server.connect();
        client.send_bytes(&bytes).await;
        let reply = client.receive_frame().await;
        assert_eq!(reply.is_some() && !client.served.is_finished(), answered);
    }
}

#[tokio::test(start_paused = true)]
async fn idle_time_outs_are_short_before_a_login() {
    let mut server = TestServer::guarded();
    let started = timer_now();
    // This client sends nothing.
    assert!(server.connect().receive().await.is_none());
    assert_eq!(started.elapsed().as_secs(), LOGIN_TIME.as_secs());
    // This client sends one hello.
    let started = timer_now();
    let mut client = server.connect();
    client.run("admin", rawdoc! { "hello": 1 }).await;
    assert!(client.receive().await.is_none());
    assert_eq!(started.elapsed().as_secs(), UNAUTHENTICATED_IDLE_TIME.as_secs());
    // This client monitors the server, as drivers do.
    let mut client = server.connect();
    for _ in 0..100 {
        client.run("admin", rawdoc! { "hello": 1 }).await;
        tokio::time::sleep(Duration::from_secs(60)).await;
    }
    // This client begins a login and does not finish it.
    let started = timer_now();
    let payload = crate::testing::binary("n,,n=ann,r=nonce");
    let start = rawdoc! { "saslStart": 1, "mechanism": "SCRAM-SHA-256", "payload": payload };
    client.run("admin", start).await;
    assert!(client.receive().await.is_none());
    assert_eq!(started.elapsed().as_secs(), LOGIN_TIME.as_secs());
    // This client sends a part of a message.
    let started = timer_now();
    let mut client = server.connect();
    client.send_bytes(&[1]).await;
    assert!(client.receive().await.is_none());
    assert!(started.elapsed() <= LOGIN_TIME + Duration::from_secs(1));
    // A client that has logged in may be idle for longer.
    server.add_user("admin", "ann", &[]).await;
    let mut client = server.connect();
    assert!(client.log_in("admin", "ann", "ann").await.flag("done"));
    tokio::time::sleep(UNAUTHENTICATED_IDLE_TIME * 2).await;
    assert_eq!(client.run("admin", rawdoc! { "ping": 1 }).await.double("ok"), 1.0);
}

#[tokio::test]
async fn unauthenticated_connections_use_at_most_half_of_the_limit() {
    let options = Options {
        authentication: true,
        connections: ConnectionLimits { open_max: 4, ..ConnectionLimits::default() },
        ..Options::default()
    };
    let shared = TestServer::new(std::sync::Arc::new(TestServer::guarded().shared.database.clone()), options).shared;
    let client = |id| Client::new(id, String::new(), String::new());
    let clients = [client(1), client(2), client(3), client(4), client(5)];
    let mut open = vec![OpenConnection::new(&shared, &clients[0]).unwrap()];
    open.push(OpenConnection::new(&shared, &clients[1]).unwrap());
    let refused = OpenConnection::new(&shared, &clients[2]).err().unwrap();
    assert!(refused.starts_with("the server has 2 connections that have not logged in"), "{refused}");
    let [first, second, third, ..] = clients;
    drop(first);
    open.push(OpenConnection::new(&shared, &third).unwrap());
    drop((second, third));
    open.push(OpenConnection::new(&shared, &client(6)).unwrap());
    let refused = OpenConnection::new(&shared, &client(7)).err().unwrap();
    assert!(refused.starts_with("the server has 4 open connections, which"), "{refused}");
}
