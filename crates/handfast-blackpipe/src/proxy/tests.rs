use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bson::{RawDocumentBuf, rawdoc};
use handfast_wire::{Flags, Limits, Message, OpMsg};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};

use super::{Observer, Proxy};
use crate::frame::read;
use crate::{Rule, Rules};

const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// A server that counts requests, and answers each with its command; a handshake as the primary of a replica set.
async fn start_server() -> (SocketAddr, Arc<AtomicU32>) {
    let listener = TcpListener::bind(ANY).await.unwrap();
    let (address, requests) = (listener.local_addr().unwrap(), Arc::new(AtomicU32::new(0)));
    let counted = Arc::clone(&requests);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let counted = Arc::clone(&counted);
            tokio::spawn(async move {
                while let Ok(Some(frame)) = read(&mut stream, &Limits::default()).await {
                    counted.fetch_add(1, Ordering::SeqCst);
                    let (header, message) = Message::decode(&frame.bytes, &Limits::default()).unwrap();
                    let Message::Msg(request) = message else { return };
                    let command = request.body.iter_elements().next().unwrap().unwrap().key().as_str().to_owned();
                    let mut reply = rawdoc! { "answered": command.as_str() };
                    if command == "hello" {
                        reply = rawdoc! { "hosts": ["a:1"], "me": "a:1", "setName": "rs", "maxWireVersion": 21 };
                    }
                    let mut bytes = Vec::new();
                    OpMsg::new(Flags::default(), &reply).encode(1, header.request_id, &mut bytes);
                    if stream.write_all(&bytes).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    (address, requests)
}

struct Setup {
    proxy: SocketAddr,
    observer: Observer,
    requests: Arc<AtomicU32>,
}

/// Starts a proxy with a rule, if there is one, in front of a server.
async fn start(pair: &str) -> Setup {
    let (server, requests) = start_server().await;
    let rules = pair.parse().ok().map(Rule::once).into_iter().collect();
    let proxy = Proxy::bind(ANY, server, Rules::new(rules)).await.unwrap();
    let setup = Setup { proxy: proxy.address(), observer: proxy.observer(), requests };
    tokio::spawn(proxy.run());
    setup
}

/// Sends a command; returns the reply, or `None` if the connection was closed instead.
async fn send(stream: &mut TcpStream, command: &RawDocumentBuf) -> Option<RawDocumentBuf> {
    let mut bytes = Vec::new();
    OpMsg::new(Flags::default(), command).encode(42, 0, &mut bytes);
    stream.write_all(&bytes).await.ok()?;
    let frame = read(stream, &Limits::default()).await.ok().flatten()?;
    assert_eq!(frame.header.response_to, 42);
    let (_, Message::Msg(reply)) = Message::decode(&frame.bytes, &Limits::default()).unwrap() else { return None };
    Some(reply.body.to_owned())
}

/// Sends two `find`; the first meets the fault. Returns which were answered, and how many requests the server got.
async fn find_twice(pair: &str) -> ([bool; 2], u32) {
    let setup = start(pair).await;
    let find = rawdoc! { "find": "orders", "$db": "shop" };
    let mut answered = [false; 2];
    for answered in &mut answered {
        let mut stream = TcpStream::connect(setup.proxy).await.unwrap();
        *answered = send(&mut stream, &find).await.is_some();
    }
    let faults = setup.observer.operations().iter().filter(|observed| observed.fault.is_some()).count();
    assert_eq!(faults, usize::from(answered.contains(&false)));
    (answered, setup.requests.load(Ordering::SeqCst))
}

#[tokio::test]
async fn without_a_rule_all_is_forwarded() {
    assert_eq!(find_twice("").await, ([true, true], 2));
}

#[tokio::test]
async fn a_lost_request_does_not_reach_the_server() {
    assert_eq!(find_twice("find:1/lose-request").await, ([false, true], 1));
}

#[tokio::test]
async fn a_lost_reply_was_answered_by_the_server() {
    assert_eq!(find_twice("find:1/lose-reply").await, ([false, true], 2));
}

#[tokio::test]
async fn a_handshake_names_the_proxy_and_is_no_operation() {
    let setup = start("hello:1/lose-reply").await;
    let mut stream = TcpStream::connect(setup.proxy).await.unwrap();
    let reply = send(&mut stream, &rawdoc! { "hello": 1, "$db": "admin" }).await.unwrap();
    let address = setup.proxy.to_string();
    let expected = rawdoc! {
        "hosts": [address.as_str()], "me": address.as_str(), "setName": "rs", "maxWireVersion": 21,
    };
    assert_eq!(reply, expected);
    assert_eq!(setup.observer.operations(), []);
}

#[tokio::test]
async fn garbage_closes_the_connection() {
    let setup = start("").await;
    let mut stream = TcpStream::connect(setup.proxy).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n").await.unwrap();
    assert!(!matches!(read(&mut stream, &Limits::default()).await, Ok(Some(_))));
    assert_eq!(setup.requests.load(Ordering::SeqCst), 0);
}
