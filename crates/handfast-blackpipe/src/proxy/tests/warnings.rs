//! The warnings of a proxy, and the copies that the server does not execute.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};
use std::time::Duration;

use bson::rawdoc;
use handfast_wire::{Flags, Limits, OpMsg};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::{ANY, LONG, find, send, start_server};
use crate::frame::read;
use crate::proxy::{Handle, Proxy, Warning};
use crate::{Answer, Condition, ErrorReply, Injection, Matcher, Role, Rule, Rules, Script, ScriptedServer};

struct Started {
    address: SocketAddr,
    handle: Handle,
    warnings: Arc<Mutex<Vec<Warning>>>,
    undelivered: Arc<Mutex<Vec<String>>>,
}

/// Starts a proxy with a rule whose warnings and late requests without an answer are kept.
async fn start_with_warnings(server: SocketAddr, pair: &str) -> Started {
    let rules = Rules::new(pair.parse().ok().map(Rule::once).into_iter().collect());
    let (warnings, undelivered) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(Vec::new())));
    let (reported, logged) = (Arc::clone(&warnings), Arc::clone(&undelivered));
    let proxy = Proxy::bind(ANY, server.to_string(), rules).await.unwrap();
    let proxy = proxy.with_warnings(move |warning| reported.lock().unwrap().push(warning));
    let proxy = proxy.with_undelivered_log(move |request| {
        let name = format!("{}/{:?}: {}", request.operation.operation, request.operation.fault, request.reason);
        logged.lock().unwrap().push(name);
    });
    let (address, handle) = (proxy.address(), proxy.handle());
    tokio::spawn(proxy.run());
    Started { address, handle, warnings, undelivered }
}

#[tokio::test]
async fn a_client_with_tls_is_closed_at_once_and_warned_about() {
    let (server, _) = start_server().await;
    let Started { address, warnings, .. } = start_with_warnings(server, "").await;
    for _ in 0..2 {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(&[22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3, 7, 7, 7, 7, 7]).await.unwrap();
        let read = tokio::time::timeout(LONG, read(&mut stream, &Limits::default())).await;
        assert!(!matches!(read.expect("the end of the connection"), Ok(Some(_))));
    }
    assert_eq!(*warnings.lock().unwrap(), [Warning::ClientSpeaksTls]);
}

#[tokio::test]
async fn a_copy_that_the_server_does_not_execute_is_counted() {
    let scripted = |reply| async {
        let find = Matcher::command("find");
        let script =
            Script::in_order().expect(find.clone(), Answer::Document(rawdoc! { "ok": 1.0 })).expect(find, reply);
        ScriptedServer::start(Role::Standalone, script).await.unwrap()
    };
    let refused = Answer::Document(ErrorReply::of_code(13).document());
    let answered = Answer::Document(rawdoc! { "ok": 1.0 });
    let login = "the server refused its copy, which is sent without a login";
    let checks = [
        (refused, Some(login), vec![Warning::CopyNeedsLogin]),
        (Answer::HangUp, Some("its copy was not answered: unexpected end of file"), vec![]),
        (answered, None, vec![]),
    ];
    for (reply, reason, expected) in checks {
        let server = scripted(reply).await;
        let started = start_with_warnings(server.address(), "find:1/duplicate").await;
        let Started { address, handle, warnings, undelivered } = started;
        let mut stream = TcpStream::connect(address).await.unwrap();
        assert!(send(&mut stream, &find()).await.is_some());
        assert_eq!(handle.undelivered_count(), 1, "the copy is late");
        handle.deliver_late().await;
        let count = u64::from(reason.is_some());
        assert_eq!((handle.undelivered_count(), &*warnings.lock().unwrap()), (count, &expected));
        let logged: Vec<String> =
            reason.into_iter().map(|reason| format!("find:1/Some(Duplicate): {reason}")).collect();
        assert_eq!(*undelivered.lock().unwrap(), logged);
        server.finish().unwrap();
    }
}

/// The server is gone when the copy of a request is sent.
#[tokio::test]
async fn a_copy_that_does_not_reach_the_server_is_counted() {
    let server =
        ScriptedServer::start(Role::Standalone, Script::in_order().expect(Matcher::command("find"), Answer::HangUp));
    let server = server.await.unwrap();
    let Started { address, handle, undelivered, .. } = start_with_warnings(server.address(), "find:1/duplicate").await;
    let mut stream = TcpStream::connect(address).await.unwrap();
    assert!(send(&mut stream, &find()).await.is_none());
    let server_address = server.address();
    server.finish().unwrap();
    // The task of the server ends a little later.
    while TcpStream::connect(server_address).await.is_ok() {
        tokio::task::yield_now().await;
    }
    handle.deliver_late().await;
    assert_eq!(handle.undelivered_count(), 1);
    let logged = undelivered.lock().unwrap().join("; ");
    assert!(logged.starts_with("find:1/Some(Duplicate): its copy was not answered: "), "{logged}");
}

/// All unacknowledged writes that wait for the end of their connection are named.
#[tokio::test]
async fn delayed_requests_whose_connection_ends_are_named() {
    let listener = tokio::net::TcpListener::bind(ANY).await.unwrap();
    let condition = Condition::default();
    let rules = Rules::new(vec![Rule { injection: Injection::Delay(Duration::from_millis(1)), condition }]);
    let proxy = Proxy::bind(ANY, listener.local_addr().unwrap().to_string(), rules).await.unwrap();
    let logged = Arc::new(Mutex::new(Vec::new()));
    let (named, handle) = (Arc::clone(&logged), proxy.handle());
    let logging = proxy.handle();
    let proxy = proxy.with_undelivered_log(move |request| {
        // A program that ends when nothing is late any more has its whole log.
        let mut all = pin!(logging.deliver_late());
        assert!(
            all.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending(),
            "the request is late until it is logged"
        );
        named.lock().unwrap().push((request.operation.operation.to_string(), request.reason.clone()));
    });
    let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
    tokio::spawn(proxy.run());
    let (mut server, _) = listener.accept().await.unwrap();
    let mut bytes = Vec::new();
    let flags = Flags { more_to_come: true, ..Flags::default() };
    (0..2).for_each(|_| OpMsg::new(flags, &find()).encode(42, 0, &mut bytes));
    stream.write_all(&bytes).await.unwrap();
    for _ in 0..2 {
        read(&mut server, &Limits::default()).await.unwrap().expect("a request");
    }
    drop(server);
    tokio::time::timeout(LONG, handle.deliver_late()).await.expect("the end of all late requests");
    let reason = "its connection ended before the server had answered";
    assert_eq!(*logged.lock().unwrap(), ["find:1", "find:2"].map(|name| (name.to_owned(), reason.to_owned())));
}
