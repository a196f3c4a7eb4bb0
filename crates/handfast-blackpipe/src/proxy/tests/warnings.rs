//! The warnings of a proxy, and the copies that the server does not execute.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bson::rawdoc;
use handfast_wire::Limits;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::{ANY, LONG, find, send, start_server};
use crate::frame::read;
use crate::proxy::{Handle, Proxy, Warning};
use crate::{Answer, ErrorReply, Matcher, Role, Rule, Rules, Script, ScriptedServer};

/// Starts a proxy with a rule whose warnings are kept.
async fn start_with_warnings(server: SocketAddr, pair: &str) -> (SocketAddr, Handle, Arc<Mutex<Vec<Warning>>>) {
    let rules = Rules::new(pair.parse().ok().map(Rule::once).into_iter().collect());
    let warnings = Arc::new(Mutex::new(Vec::new()));
    let reported = Arc::clone(&warnings);
    let proxy = Proxy::bind(ANY, server.to_string(), rules).await.unwrap();
    let proxy = proxy.with_warnings(move |warning| reported.lock().unwrap().push(warning));
    let (address, handle) = (proxy.address(), proxy.handle());
    tokio::spawn(proxy.run());
    (address, handle, warnings)
}

#[tokio::test]
async fn a_client_with_tls_is_closed_at_once_and_warned_about() {
    let (server, _) = start_server().await;
    let (address, _, warnings) = start_with_warnings(server, "").await;
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
    let checks = [(refused, 1, vec![Warning::CopyNeedsLogin]), (Answer::HangUp, 1, vec![]), (answered, 0, vec![])];
    for (reply, undelivered, expected) in checks {
        let server = scripted(reply).await;
        let (address, handle, warnings) = start_with_warnings(server.address(), "find:1/duplicate").await;
        let mut stream = TcpStream::connect(address).await.unwrap();
        assert!(send(&mut stream, &find()).await.is_some());
        assert_eq!(handle.undelivered_count(), 1, "the copy is late");
        handle.deliver_late().await;
        assert_eq!((handle.undelivered_count(), &*warnings.lock().unwrap()), (undelivered, &expected));
        server.finish().unwrap();
    }
}

/// The server is gone when the copy of a request is sent.
#[tokio::test]
async fn a_copy_that_does_not_reach_the_server_is_counted() {
    let server =
        ScriptedServer::start(Role::Standalone, Script::in_order().expect(Matcher::command("find"), Answer::HangUp));
    let server = server.await.unwrap();
    let (address, handle, _) = start_with_warnings(server.address(), "find:1/duplicate").await;
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
}
