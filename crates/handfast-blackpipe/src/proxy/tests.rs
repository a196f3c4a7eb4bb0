use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bson::{RawDocumentBuf, doc, rawdoc};
use handfast_wire::compressed::{Compressed, compress};
use handfast_wire::{Compressor, Flags, Limits, Message, OpCode, OpMsg};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::{Handle, Proxy};
use crate::frame::read;
use crate::{Condition, ErrorReply, Injection, Rule, Rules};

mod copies;
mod late;
mod order_and_rate;
mod pipelined;
mod recording;
mod tls;
mod warnings;

pub(super) const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// Starts a server that counts requests, and replies to each with its command, and to a handshake as the primary of a replica
/// set. It delays its reply to `slow`, and closes the connection after `quit`.
async fn start_server() -> (SocketAddr, Arc<AtomicU32>) {
    let listener = TcpListener::bind(ANY).await.unwrap();
    let (address, requests) = (listener.local_addr().unwrap(), Arc::new(AtomicU32::new(0)));
    let counted = Arc::clone(&requests);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let counted = Arc::clone(&counted);
            tokio::spawn(async move {
                while let Ok(Some(frame)) = read(&mut stream, &Limits::default()).await {
                    let plain = match frame.header.op_code {
                        OpCode::Compressed => {
                            Compressed::decode(&frame.bytes, &Limits::default()).unwrap().inflate().unwrap()
                        }
                        _ => frame.bytes,
                    };
                    let (header, message) = Message::decode(&plain, &Limits::default()).unwrap();
                    let Message::Msg(request) = message else { return };
                    let command = request.body.iter_elements().next().unwrap().unwrap().key().as_str().to_owned();
                    if command == "slow" {
                        tokio::time::sleep(MOMENT).await;
                    }
                    counted.fetch_add(1, Ordering::SeqCst);
                    let mut reply = rawdoc! { "answered": command.as_str() };
                    if command == "hello" {
                        reply = rawdoc! { "hosts": ["a:1"], "me": "a:1", "setName": "rs", "maxWireVersion": 21 };
                    }
                    let mut bytes = Vec::new();
                    OpMsg::new(Flags::default(), &reply).encode(1, header.request_id, &mut bytes);
                    if stream.write_all(&bytes).await.is_err() || command == "quit" {
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
    handle: Handle,
    requests: Arc<AtomicU32>,
}

impl Setup {
    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.proxy).await.unwrap()
    }

    fn requests(&self) -> u32 {
        self.requests.load(Ordering::SeqCst)
    }
}

/// Starts a proxy with a rule, if there is one, in front of a server.
async fn start(pair: &str) -> Setup {
    start_with(pair.parse().ok().map(Rule::once).into_iter().collect()).await
}

async fn start_with(rules: Vec<Rule>) -> Setup {
    let (server, requests) = start_server().await;
    let proxy = Proxy::bind(ANY, server.to_string(), Rules::new(rules)).await.unwrap();
    let setup = Setup { proxy: proxy.address(), handle: proxy.handle(), requests };
    tokio::spawn(proxy.run());
    setup
}

/// Starts a proxy that injects a fault into the first operation.
async fn start_injecting(injection: Injection) -> Setup {
    let condition = Condition { times: Some(NonZeroU32::MIN), ..Condition::default() };
    start_with(vec![Rule { injection, condition }]).await
}

fn find() -> RawDocumentBuf {
    rawdoc! { "find": "orders", "$db": "shop" }
}

/// Sends a command; returns the reply, or `None` if the connection was closed instead.
async fn send(stream: &mut (impl AsyncRead + AsyncWrite + Unpin), command: &RawDocumentBuf) -> Option<RawDocumentBuf> {
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
    let mut answered = [false; 2];
    for answered in &mut answered {
        let mut stream = setup.connect().await;
        *answered = send(&mut stream, &find()).await.is_some();
    }
    let faults = setup.handle.operations().iter().filter(|observed| observed.fault.is_some()).count();
    assert_eq!(faults, usize::from(answered.contains(&false)));
    (answered, setup.requests())
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
async fn each_decision_is_logged_in_its_order() {
    let (server, _) = start_server().await;
    let rules = Rules::new(vec![Rule::once("find:2/error".parse().unwrap())]);
    let logged = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&logged);
    let proxy = Proxy::bind(ANY, server.to_string(), rules).await.unwrap();
    let proxy = proxy.with_log(move |observed| log.lock().unwrap().push(observed.clone()));
    let (address, handle) = (proxy.address(), proxy.handle());
    tokio::spawn(proxy.run());
    let mut stream = TcpStream::connect(address).await.unwrap();
    for _ in 0..3 {
        assert!(send(&mut stream, &find()).await.is_some());
    }
    assert_eq!(*logged.lock().unwrap(), handle.operations());
    assert_eq!((handle.operation_count(), handle.fault_count()), (3, 1));
}

#[tokio::test]
async fn a_handshake_names_the_proxy_and_is_no_operation() {
    let setup = start("hello:1/lose-reply").await;
    let mut stream = setup.connect().await;
    let reply = send(&mut stream, &rawdoc! { "hello": 1, "$db": "admin" }).await.unwrap();
    let address = setup.proxy.to_string();
    let expected = rawdoc! {
        "hosts": [address.as_str()], "me": address.as_str(), "setName": "rs", "maxWireVersion": 21,
    };
    assert_eq!(reply, expected);
    assert_eq!(setup.handle.operations(), []);
}

#[tokio::test]
async fn garbage_closes_the_connection() {
    let setup = start("").await;
    let mut stream = setup.connect().await;
    stream.write_all(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n").await.unwrap();
    assert!(!matches!(read(&mut stream, &Limits::default()).await, Ok(Some(_))));
    assert_eq!(setup.requests(), 0);
}

/// A time that does not pass during a test.
const HOUR: Duration = Duration::from_secs(3600);
/// A time that exceeds the duration of a request on a busy machine.
const LONG: Duration = Duration::from_secs(60);
/// A time in which each task runs many times. If it is too short, a test passes that should fail.
const MOMENT: Duration = Duration::from_millis(100);

#[tokio::test]
async fn a_cut_reply_is_there_in_part() {
    let setup = start("find:1/cut").await;
    let mut stream = setup.connect().await;
    let mut request = Vec::new();
    OpMsg::new(Flags::default(), &find()).encode(42, 0, &mut request);
    stream.write_all(&request).await.unwrap();
    let mut bytes = Vec::new();
    // The connection may also end with a reset.
    let _ = stream.read_to_end(&mut bytes).await;
    let mut reply = Vec::new();
    OpMsg::new(Flags::default(), &rawdoc! { "answered": "find" }).encode(1, 42, &mut reply);
    assert_eq!(bytes, reply[..reply.len() / 2]);
    assert_eq!(setup.requests(), 1);
}

#[tokio::test]
async fn a_delayed_request_is_executed_later() {
    let setup = start_injecting(Injection::Delay(HOUR)).await;
    let mut stream = setup.connect().await;
    let mut sent = Box::pin(async { send(&mut stream, &find()).await });
    assert!(tokio::time::timeout(MOMENT, &mut sent).await.is_err());
    assert_eq!(setup.requests(), 0);
    setup.handle.deliver_late().await;
    assert_eq!(setup.requests(), 1);
    assert_eq!(sent.await, Some(rawdoc! { "answered": "find" }));
    let short = start_injecting(Injection::Delay(Duration::from_millis(1))).await;
    assert!(send(&mut short.connect().await, &find()).await.is_some());
}

/// The proxy may end as soon as nothing is late. The reply is larger than the buffers of a socket.
#[tokio::test]
async fn a_late_reply_reaches_the_client_before_the_proxy_ends() {
    let server = TcpListener::bind(ANY).await.unwrap();
    let condition = Condition { times: Some(NonZeroU32::MIN), ..Condition::default() };
    let rules = Rules::new(vec![Rule { injection: Injection::Delay(HOUR), condition }]);
    let proxy = Proxy::bind(ANY, server.local_addr().unwrap().to_string(), rules).await.unwrap();
    let (address, handle) = (proxy.address(), proxy.handle());
    let running = tokio::spawn(proxy.run());
    let sent = tokio::spawn(async move { send(&mut TcpStream::connect(address).await.unwrap(), &find()).await });
    let (mut server, _) = server.accept().await.unwrap();
    while handle.operation_count() == 0 {
        tokio::task::yield_now().await;
    }
    let answered = tokio::spawn(async move {
        read(&mut server, &Limits::default()).await.unwrap().unwrap();
        let (text, mut bytes) = ("x".repeat(15_000_000), Vec::new());
        OpMsg::new(Flags::default(), &rawdoc! { "text": text }).encode(1, 42, &mut bytes);
        server.write_all(&bytes).await.unwrap();
        server
    });
    handle.deliver_late().await;
    running.abort();
    let reply = sent.await.unwrap().expect("the whole reply");
    assert_eq!(reply.get_str("text").unwrap().len(), 15_000_000);
    drop(answered.await);
}

#[tokio::test]
async fn a_delayed_request_is_executed_although_its_client_has_gone() {
    let unacknowledged = Flags { more_to_come: true, ..Flags::default() };
    for (flags, is_reset) in
        [(Flags::default(), false), (Flags::default(), true), (unacknowledged, false), (unacknowledged, true)]
    {
        let setup = start_injecting(Injection::Delay(HOUR)).await;
        let mut stream = setup.connect().await;
        let mut request = Vec::new();
        OpMsg::new(flags, &rawdoc! { "slow": 1, "$db": "shop" }).encode(42, 0, &mut request);
        stream.write_all(&request).await.unwrap();
        while setup.handle.operations().is_empty() {
            tokio::task::yield_now().await;
        }
        if is_reset {
            stream.set_zero_linger().unwrap();
        }
        drop(stream);
        setup.handle.deliver_late().await;
        assert_eq!((setup.requests(), setup.handle.undelivered_count()), (1, 0));
    }
}

#[tokio::test]
async fn an_error_is_answered_by_the_proxy() {
    let setup = start("find:1/error").await;
    let mut stream = setup.connect().await;
    assert_eq!(send(&mut stream, &find()).await, Some(ErrorReply::default().document()));
    assert_eq!(setup.requests(), 0);
    let ping = rawdoc! { "ping": 1, "$db": "shop" };
    assert_eq!(send(&mut stream, &ping).await, Some(rawdoc! { "answered": "ping" }), "the first reply of the server");
    assert_eq!(setup.requests(), 1);
}

#[tokio::test]
async fn a_driver_asks_for_the_state_again_after_an_error_that_says_it_changed() {
    for (error, is_closed) in [(ErrorReply::default(), true), (ErrorReply::of_code(8000), false)] {
        let setup = start_injecting(Injection::Error(error)).await;
        let (mut monitor, mut stream) = (setup.connect().await, setup.connect().await);
        let hello = rawdoc! { "hello": 1, "maxAwaitTimeMS": 10_000, "$db": "admin" };
        assert!(send(&mut monitor, &hello).await.is_some());
        assert!(send(&mut stream, &find()).await.is_some());
        assert!(send(&mut stream, &find()).await.is_some(), "the connection of the application stays open");
        let wait = if is_closed { LONG } else { MOMENT };
        let is_open = tokio::time::timeout(wait, read(&mut monitor, &Limits::default())).await.is_err();
        assert_eq!(is_open, !is_closed);
    }
}

/// Only the monitoring connections wait until they are closed; the connection that gets the error does not.
#[tokio::test]
async fn an_error_holds_up_no_later_request() {
    let (server, _) = start_server().await;
    let rules = Rules::new(vec![Rule::once("find:1/error".parse().unwrap())]);
    let mut proxy = Proxy::bind(ANY, server.to_string(), rules).await.unwrap();
    Arc::get_mut(&mut proxy.shared).unwrap().state_change_pause = HOUR;
    let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
    tokio::spawn(proxy.run());
    assert!(send(&mut stream, &find()).await.is_some());
    let next = tokio::time::timeout(LONG, send(&mut stream, &find())).await;
    assert_eq!(next.expect("an answer"), Some(rawdoc! { "answered": "find" }));
}

#[tokio::test]
async fn a_duplicate_is_sent_once_more_later() {
    let setup = start_injecting(Injection::Duplicate { after: None }).await;
    let mut stream = setup.connect().await;
    let (mut plain, mut compressed) = (Vec::new(), Vec::new());
    OpMsg::new(Flags::default(), &find()).encode(42, 0, &mut plain);
    assert!(compress(&plain, Compressor::Snappy, &mut compressed));
    stream.write_all(&compressed).await.unwrap();
    assert!(read(&mut stream, &Limits::default()).await.unwrap().is_some());
    assert_eq!(setup.requests(), 1);
    drop(stream);
    setup.handle.deliver_late().await;
    assert_eq!(setup.requests(), 2);

    let setup = start_injecting(Injection::Duplicate { after: Some(Duration::ZERO) }).await;
    assert!(send(&mut setup.connect().await, &find()).await.is_some());
    while setup.requests() < 2 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_half_open_connection_is_silent_and_open() {
    // The connection stays open even if the server closes its side.
    for command in ["find", "quit"] {
        let setup = start(&format!("{command}:1/half-open")).await;
        let mut stream = setup.connect().await;
        let command = RawDocumentBuf::try_from(&doc! { command: "orders", "$db": "shop" }).unwrap();
        for _ in 0..2 {
            let sent = async { send(&mut stream, &command).await };
            assert!(tokio::time::timeout(MOMENT, sent).await.is_err(), "neither a reply nor the end of the connection");
        }
        assert_eq!(setup.requests(), 1, "the server gets the first request, and nothing after it");
        assert!(send(&mut setup.connect().await, &find()).await.is_some());
    }
}

#[tokio::test]
async fn connections_beyond_the_limit_wait() {
    let (server, _) = start_server().await;
    let mut proxy = Proxy::bind(ANY, server.to_string(), Rules::default()).await.unwrap();
    proxy.connections_max = 2;
    let address = proxy.address();
    tokio::spawn(proxy.run());
    let mut streams = Vec::new();
    for _ in 0..2 {
        let mut stream = TcpStream::connect(address).await.unwrap();
        assert!(send(&mut stream, &find()).await.is_some());
        streams.push(stream);
    }
    let mut third = TcpStream::connect(address).await.unwrap();
    let mut sent = Box::pin(async { send(&mut third, &find()).await });
    assert!(tokio::time::timeout(MOMENT, &mut sent).await.is_err());
    streams.pop();
    assert!(sent.await.is_some());
}
