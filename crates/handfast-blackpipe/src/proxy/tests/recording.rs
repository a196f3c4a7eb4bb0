//! The recording of a proxy: the requests of the application, and the replies that the client gets.

use std::sync::{Arc, Mutex};

use bson::{RawDocumentBuf, rawdoc};
use handfast_wire::{Flags, Limits, OpMsg};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::{ANY, LONG, find, send, start_server};
use crate::frame::read;
use crate::proxy::Proxy;
use crate::proxy::recorder::{RecordedReply, Recorder};
use crate::{Answer, ErrorReply, Matcher, RecordedMessage, Role, Rule, Rules, Script, ScriptedServer};

fn request(connection: u64, request: u64, command: RawDocumentBuf, has_reply: bool) -> RecordedMessage {
    RecordedMessage::Request { connection, request, command, has_reply }
}

fn reply(connection: u64, request: u64, reply: RawDocumentBuf) -> RecordedMessage {
    RecordedMessage::Reply { connection, request, reply }
}

#[tokio::test]
async fn requests_are_recorded_with_the_replies_that_the_client_gets() {
    let (server, _) = start_server().await;
    let rules = ["find:2/lose-reply", "find:3/error", "find:4/cut"].map(|pair| Rule::once(pair.parse().unwrap()));
    let recorded = Arc::new(Mutex::new(Vec::new()));
    let written = Arc::clone(&recorded);
    let proxy = Proxy::bind(ANY, server.to_string(), Rules::new(rules.to_vec())).await.unwrap();
    let proxy = proxy.with_recorder(move |message| written.lock().unwrap().push(message.clone()));
    let address = proxy.address();
    tokio::spawn(proxy.run());

    let mut first = TcpStream::connect(address).await.unwrap();
    for command in ["saslStart", "hello", "hello", "endSessions"] {
        let of_driver = RawDocumentBuf::try_from(&bson::doc! { command: 1, "$db": "admin" }).unwrap();
        assert!(send(&mut first, &of_driver).await.is_some());
    }
    assert!(send(&mut first, &find()).await.is_some());
    assert!(send(&mut first, &find()).await.is_none(), "the reply is lost");
    let mut second = TcpStream::connect(address).await.unwrap();
    assert!(send(&mut second, &find()).await.is_some(), "an error");
    assert!(send(&mut second, &find()).await.is_none(), "half of a reply");
    let mut third = TcpStream::connect(address).await.unwrap();
    let insert = rawdoc! { "insert": "orders", "$db": "shop" };
    let mut bytes = Vec::new();
    OpMsg::new(Flags { more_to_come: true, ..Flags::default() }, &insert).encode(42, 0, &mut bytes);
    third.write_all(&bytes).await.unwrap();

    let expected = vec![
        RecordedMessage::Hello(rawdoc! { "hosts": ["a:1"], "me": "a:1", "setName": "rs", "maxWireVersion": 21 }),
        request(1, 1, find(), true),
        reply(1, 1, rawdoc! { "answered": "find" }),
        request(1, 2, find(), true),
        request(2, 3, find(), true),
        reply(2, 3, ErrorReply::default().document()),
        request(2, 4, find(), true),
        request(3, 5, insert, false),
    ];
    let all = async {
        while recorded.lock().unwrap().len() < expected.len() {
            tokio::task::yield_now().await;
        }
    };
    let is_whole = tokio::time::timeout(LONG, all).await.is_ok();
    assert!(is_whole, "{:?}", recorded.lock().unwrap());
    assert_eq!(*recorded.lock().unwrap(), expected);
}

/// A recording has one reply to each request, so that the server is asked for one.
#[tokio::test]
async fn an_exhaust_cursor_is_recorded_as_a_usual_one() {
    for is_recording in [true, false] {
        let batch = || Answer::next_batch("shop.orders", 0, [rawdoc! { "_id": 1 }]);
        let script = Script::in_order().expect(Matcher::command("getMore"), batch());
        let server = ScriptedServer::start(Role::Standalone, script).await.unwrap();
        let mut proxy = Proxy::bind(ANY, server.address().to_string(), Rules::default()).await.unwrap();
        if is_recording {
            proxy = proxy.with_recorder(|_| ());
        }
        let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
        tokio::spawn(proxy.run());
        let mut bytes = Vec::new();
        let get_more = rawdoc! { "getMore": 7_i64, "collection": "orders", "$db": "shop" };
        OpMsg::new(Flags { exhaust_allowed: true, ..Flags::default() }, &get_more).encode(42, 0, &mut bytes);
        stream.write_all(&bytes).await.unwrap();
        assert!(read(&mut stream, &Limits::default()).await.unwrap().is_some());
        assert_eq!(server.finish().unwrap()[0].is_exhaust_allowed(), !is_recording);
    }
}

/// Two connections may wait for the reply to their handshakes at the same time.
#[test]
fn one_handshake_is_recorded() {
    let (recorder, count) = (Recorder::default(), Arc::new(Mutex::new(0)));
    let counted = Arc::clone(&count);
    assert!(!recorder.needs_hello(), "there is no recording");
    recorder.begin(Box::new(move |_| *counted.lock().unwrap() += 1));
    assert!(recorder.needs_hello());
    for connection in [1, 2] {
        recorder.reply(connection, RecordedReply::Hello, &rawdoc! { "ok": 1.0 });
    }
    assert_eq!((*count.lock().unwrap(), recorder.needs_hello()), (1, false));
}

/// A request that cannot be recorded has no number, and its reply is not recorded: the others can be played.
#[test]
fn a_request_that_cannot_be_recorded_takes_its_reply_with_it() {
    let recorder = Recorder::default();
    recorder.begin(Box::new(|_| ()));
    let recorded = |levels: usize| {
        let filter = (0..levels).fold(rawdoc! { "x": 1 }, |inner, _| rawdoc! { "a": inner });
        let mut bytes = Vec::new();
        let find = rawdoc! { "find": "c", "filter": filter, "$db": "db" };
        OpMsg::new(Flags::default(), &find).encode(1, 0, &mut bytes);
        recorder.request(1, &bytes, true)
    };
    assert_eq!(recorded(1), Some(RecordedReply::ToRequest(1)));
    assert_eq!(recorded(150), None);
    assert_eq!(recorded(1), Some(RecordedReply::ToRequest(2)));
}
