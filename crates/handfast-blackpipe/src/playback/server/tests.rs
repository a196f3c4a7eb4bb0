use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bson::{RawBsonRef, RawDocumentBuf, rawdoc};
use handfast_wire::{Flags, Limits, Message, OpMsg, Query};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::{PlaybackHandle, PlaybackServer};
use crate::frame::read;
use crate::{Playback, RecordedMessage};

const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
/// A time that exceeds the duration of a request on a busy machine.
const LONG: Duration = Duration::from_secs(60);

struct Setup {
    address: SocketAddr,
    handle: PlaybackHandle,
    log: Arc<Mutex<Vec<String>>>,
}

fn find() -> RawDocumentBuf {
    rawdoc! { "find": "orders", "$db": "shop" }
}

/// Starts a server with a recording of two equal finds, of which the second one has lost its reply.
async fn start() -> Setup {
    let hello = rawdoc! { "hosts": ["a:1"], "me": "a:1", "setName": "rs", "maxWireVersion": 21, "ismaster": true };
    let request = |request| RecordedMessage::Request { connection: 1, request, command: find(), has_reply: true };
    let reply = RecordedMessage::Reply { connection: 1, request: 1, reply: rawdoc! { "ok": 1.0, "n": 7 } };
    let messages = [RecordedMessage::Hello(hello), request(1), reply, request(2)];
    let lines: Vec<String> = messages.iter().map(|message| message.to_line().unwrap()).collect();
    let playback = Playback::parse(&lines.join("\n"), Vec::new()).unwrap();
    let log = Arc::new(Mutex::new(Vec::new()));
    let written = Arc::clone(&log);
    let server = PlaybackServer::bind(ANY, playback, move |line| written.lock().unwrap().push(line.to_owned()));
    let server = server.await.unwrap();
    let (address, handle) = (server.address(), server.handle());
    tokio::spawn(server.run());
    Setup { address, handle, log }
}

/// Reads a reply; `None` if the connection is closed instead.
async fn reply(stream: &mut TcpStream) -> Option<RawDocumentBuf> {
    let read = tokio::time::timeout(LONG, read(stream, &Limits::default())).await.expect("an answer");
    let frame = read.ok().flatten()?;
    assert_eq!(frame.header.response_to, 42);
    Some(match Message::decode(&frame.bytes, &Limits::default()).unwrap().1 {
        Message::Msg(reply) => reply.body.to_owned(),
        Message::Reply(reply) => reply.documents[0].to_owned(),
        Message::Query(query) => panic!("{query:?}"),
    })
}

async fn send(stream: &mut TcpStream, command: &RawDocumentBuf) -> Option<RawDocumentBuf> {
    let mut bytes = Vec::new();
    OpMsg::new(Flags::default(), command).encode(42, 0, &mut bytes);
    stream.write_all(&bytes).await.unwrap();
    reply(stream).await
}

fn code(reply: Option<RawDocumentBuf>) -> Option<i32> {
    reply?.get("code").unwrap().and_then(RawBsonRef::as_i32)
}

#[tokio::test]
async fn requests_of_the_driver_are_answered_by_the_server_itself() {
    let setup = start().await;
    let mut stream = TcpStream::connect(setup.address).await.unwrap();
    let address = setup.address.to_string();
    let expected = rawdoc! {
        "hosts": [address.as_str()], "me": address.as_str(), "setName": "rs", "maxWireVersion": 21, "ismaster": true,
        "isWritablePrimary": true,
    };
    assert_eq!(send(&mut stream, &rawdoc! { "hello": 1, "$db": "admin" }).await, Some(expected.clone()));
    let (query, mut legacy) = (rawdoc! { "isMaster": 1 }, Vec::new());
    Query { flags: 0, collection: "admin.$cmd", skip: 0, limit: -1, query: &query }.encode(42, &mut legacy);
    stream.write_all(&legacy).await.unwrap();
    assert_eq!(reply(&mut stream).await, Some(expected));
    assert_eq!(code(send(&mut stream, &rawdoc! { "saslStart": 1, "$db": "admin" }).await), Some(8000));
    let ended = send(&mut stream, &rawdoc! { "endSessions": [], "$db": "admin" }).await;
    assert_eq!(ended, Some(rawdoc! { "ok": 1.0 }));
    setup.handle.inspect(|playback| assert_eq!((playback.missing().len(), playback.not_recorded_count()), (2, 0)));
}

#[tokio::test]
async fn requests_of_the_application_are_answered_from_the_recording() {
    let setup = start().await;
    let mut stream = TcpStream::connect(setup.address).await.unwrap();
    assert_eq!(send(&mut stream, &find()).await, Some(rawdoc! { "ok": 1.0, "n": 7 }));
    let unacknowledged = Flags { more_to_come: true, ..Flags::default() };
    let mut bytes = Vec::new();
    OpMsg::new(unacknowledged, &rawdoc! { "insert": "orders", "$db": "shop" }).encode(7, 0, &mut bytes);
    stream.write_all(&bytes).await.unwrap();
    assert_eq!(code(send(&mut stream, &rawdoc! { "drop": "orders", "$db": "shop" }).await), Some(8000));
    assert_eq!(send(&mut stream, &find()).await, None, "the recorded program got no reply");
    setup.handle.inspect(|playback| assert_eq!((playback.missing().len(), playback.not_recorded_count()), (0, 2)));
    let log = setup.log.lock().unwrap();
    let begins = ["insert", "drop"].map(|name| format!("the recording has no request with this command: {{\"{name}\""));
    assert!(log.len() == 2 && log[0].starts_with(&begins[0]) && log[1].starts_with(&begins[1]), "{log:?}");
}

#[tokio::test]
async fn a_client_with_tls_is_closed_at_once_and_reported_once() {
    let setup = start().await;
    for _ in 0..2 {
        let mut stream = TcpStream::connect(setup.address).await.unwrap();
        stream.write_all(&[22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3, 7, 7, 7, 7, 7]).await.unwrap();
        assert_eq!(reply(&mut stream).await, None);
    }
    let log = setup.log.lock().unwrap();
    assert!(log.len() == 1 && log[0].starts_with("a program connects with TLS"), "{log:?}");
}
