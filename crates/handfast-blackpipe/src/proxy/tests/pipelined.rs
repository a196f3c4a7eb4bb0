//! Several requests that are sent on a connection before the first reply. No driver does so.

use std::sync::{Arc, Mutex};

use bson::{RawDocumentBuf, doc};
use handfast_wire::{Flags, Limits, OpMsg};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{ANY, LONG, start_server};
use crate::frame::read;
use crate::proxy::Proxy;
use crate::{RecordedMessage, Rule, Rules};

/// The bytes of three requests with the numbers 1 to 3, of which the second one has this command.
fn requests(second: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (number, command) in [(1, "slow"), (2, second), (3, "find")] {
        let request = RawDocumentBuf::try_from(&doc! { command: "orders", "$db": "shop" }).unwrap();
        OpMsg::new(Flags::default(), &request).encode(number, 0, &mut bytes);
    }
    bytes
}

/// Returns the requests that are answered until the connection is closed or silent, and the requests of the server.
async fn answered(fault: &str) -> (Vec<i32>, u32) {
    let (server, requests_at_server) = start_server().await;
    let rules = Rules::new(vec![Rule::once(format!("update:1/{fault}").parse().unwrap())]);
    let proxy = Proxy::bind(ANY, server.to_string(), rules).await.unwrap();
    let (address, handle) = (proxy.address(), proxy.handle());
    tokio::spawn(proxy.run());
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(&requests("update")).await.unwrap();
    let (mut answered, mut wait) = (Vec::new(), LONG);
    while let Ok(Ok(Some(frame))) = tokio::time::timeout(wait, read(&mut stream, &Limits::default())).await {
        answered.push(frame.header.response_to);
        if (fault, answered.len()) == ("half-open", 1) {
            wait = super::MOMENT;
        }
        if answered.len() == 3 {
            break;
        }
    }
    handle.deliver_late().await;
    (answered, requests_at_server.load(std::sync::atomic::Ordering::SeqCst))
}

/// The replies to the requests before the one with the fault arrive, and the server gets none behind one that ends the connection.
#[tokio::test]
async fn a_fault_leaves_the_requests_before_it_alone() {
    assert_eq!(answered("lose-request").await, (vec![1], 1));
    assert_eq!(answered("lose-reply").await, (vec![1], 2));
    assert_eq!(answered("cut").await, (vec![1], 2));
    assert_eq!(answered("half-open").await, (vec![1], 2));
    assert_eq!(answered("error").await, (vec![1, 2, 3], 2));
    assert_eq!(answered("delay").await, (vec![1, 2, 3], 3));
    assert_eq!(answered("duplicate").await, (vec![1, 2, 3], 4));
}

#[tokio::test]
async fn each_reply_is_recorded() {
    let (server, _) = start_server().await;
    let recorded = Arc::new(Mutex::new(Vec::new()));
    let written = Arc::clone(&recorded);
    let proxy = Proxy::bind(ANY, server.to_string(), Rules::default()).await.unwrap();
    let proxy = proxy.with_recorder(move |message| {
        if let RecordedMessage::Reply { request, .. } = message {
            written.lock().unwrap().push(*request);
        }
    });
    let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
    tokio::spawn(proxy.run());
    stream.write_all(&requests("update")).await.unwrap();
    for _ in 0..3 {
        read(&mut stream, &Limits::default()).await.unwrap().unwrap();
    }
    assert_eq!(*recorded.lock().unwrap(), [1, 2, 3]);
}

/// A client that sends without reading is stopped by the bound of the replies that are due, and all its requests are answered when it reads.
#[tokio::test]
async fn many_requests_wait_for_the_replies_before_them() {
    const COUNT: i32 = 5_000;
    let (server, _) = start_server().await;
    let proxy = Proxy::bind(ANY, server.to_string(), Rules::default()).await.unwrap();
    let stream = TcpStream::connect(proxy.address()).await.unwrap();
    tokio::spawn(proxy.run());
    let (mut reader, mut writer) = stream.into_split();
    let sent = tokio::spawn(async move {
        let request = RawDocumentBuf::try_from(&doc! { "find": "orders", "$db": "shop" }).unwrap();
        let mut bytes = Vec::new();
        (1..=COUNT).for_each(|number| OpMsg::new(Flags::default(), &request).encode(number, 0, &mut bytes));
        writer.write_all(&bytes).await.unwrap();
        writer
    });
    for number in 1..=COUNT {
        let reply = tokio::time::timeout(LONG, read(&mut reader, &Limits::default())).await;
        let reply = reply.expect("a reply in time").unwrap().unwrap();
        assert_eq!(reply.header.response_to, number);
    }
    drop(sent.await.unwrap());
    let mut rest = Vec::new();
    assert_eq!(reader.read_to_end(&mut rest).await.unwrap(), 0);
}

/// A server whose replies name no request is forwarded for as long as it answers.
#[tokio::test]
async fn replies_that_name_no_request_hold_up_no_later_request() {
    const REQUESTS: i32 = 2_500;
    let listener = tokio::net::TcpListener::bind(ANY).await.unwrap();
    let proxy = Proxy::bind(ANY, listener.local_addr().unwrap().to_string(), Rules::default()).await.unwrap();
    let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
    tokio::spawn(proxy.run());
    let (mut server, _) = listener.accept().await.unwrap();
    let document = RawDocumentBuf::try_from(&doc! { "find": "orders", "$db": "shop" }).unwrap();
    for number in 1..=REQUESTS {
        let mut bytes = Vec::new();
        OpMsg::new(Flags::default(), &document).encode(number, 0, &mut bytes);
        stream.write_all(&bytes).await.unwrap();
        tokio::time::timeout(LONG, read(&mut server, &Limits::default())).await.expect("a request").unwrap().unwrap();
        bytes.clear();
        OpMsg::new(Flags::default(), &document).encode(1_000_000 + number, 0, &mut bytes);
        server.write_all(&bytes).await.unwrap();
        read(&mut stream, &Limits::default()).await.unwrap().expect("a reply");
    }
}
