use std::sync::Arc;
use std::time::Duration;

use bson::raw::{RawDocument, RawDocumentBuf};
use bson::rawdoc;
use handfast_store::DocumentStore;
use handfast_wire::compressed::{Compressed, compress};
use handfast_wire::limits::MESSAGE_BYTES_MAX;
use handfast_wire::{Compressor, Flags, HEADER_BYTES, Limits, Message, OpMsg, Query, Sequence};
use proptest::prelude::*;
use tokio::io::AsyncWriteExt;

use crate::frame::timer_now;
use crate::lock::lock;
use crate::options::{ConnectionLimits, Options};
use crate::testing::{AdjustableStore, ReplyFields, TestClient, TestServer, batch, cursor_id, error_of};

const PLAIN: Flags = Flags { checksum: false, more_to_come: false, exhaust_allowed: false };
const SECOND: Duration = Duration::from_secs(1);

fn slow_server() -> (Arc<AdjustableStore>, TestServer) {
    let store = Arc::new(AdjustableStore::default());
    let server = TestServer::new(Arc::clone(&store) as Arc<dyn DocumentStore>, Options::default());
    (store, server)
}

fn frame(op_code: i32, body: &[u8]) -> Vec<u8> {
    let length = i32::try_from(HEADER_BYTES + body.len()).unwrap();
    let mut out = [length, 77, 0, op_code].map(i32::to_le_bytes).concat();
    out.extend_from_slice(body);
    out
}

fn ping(id: i32) -> Vec<u8> {
    let body = rawdoc! { "ping": 1, "$db": "admin" };
    let mut out = Vec::new();
    OpMsg::new(PLAIN, &body).encode(id, 0, &mut out);
    out
}

async fn is_alive(client: &mut TestClient) -> bool {
    client.run("admin", rawdoc! { "ping": 1 }).await.double("ok") == 1.0
}

/// Checks that the connection is closed without a reply, and that its task ends without a panic.
async fn is_closed(mut client: TestClient) {
    assert!(client.receive_frame().await.is_none());
    client.served.await.unwrap();
}

#[tokio::test]
async fn a_command_that_requests_no_reply_gets_none() {
    let (store, mut server) = slow_server();
    let mut client = server.connect();
    let flags = Flags { more_to_come: true, ..PLAIN };
    let concern = rawdoc! { "insert": "c", "documents": [{ "_id": 1 }], "writeConcern": { "w": 0 } };
    client.send(flags, "d", concern, &[]).await;
    client.send(flags, "d", rawdoc! { "noSuchCommand": 1 }, &[]).await;
    client.send(flags, "d", rawdoc! { "ping": 1, "maxTimeMS": -1 }, &[]).await;
    client.send(flags, "admin", rawdoc! { "endSessions": [] }, &[]).await;
    // The next reply is that of the next command.
    assert!(is_alive(&mut client).await);
    assert_eq!(lock(&store.inserts).len(), 1);
}

#[tokio::test]
async fn a_message_with_a_checksum_gets_a_reply_with_one() {
    let mut server = TestServer::adjustable();
    let mut client = server.connect();
    client.send(Flags { checksum: true, ..PLAIN }, "admin", rawdoc! { "ping": 1 }, &[]).await;
    let (_, flags, _) = client.receive().await.unwrap();
    assert!(flags.checksum, "and the codec has found it right");
    let mut bytes = ping(5);
    bytes[HEADER_BYTES] |= 1;
    bytes.extend_from_slice(&[1, 2, 3, 4]);
    let length = i32::try_from(bytes.len()).unwrap();
    bytes[..4].copy_from_slice(&length.to_le_bytes());
    client.send_bytes(&bytes).await;
    assert_eq!(error_of(&client.receive().await.unwrap().2).0, 17);
    is_closed(client).await;
}

#[tokio::test]
async fn a_compressed_message_gets_a_compressed_reply() {
    let mut server = TestServer::adjustable();
    let mut client = server.connect();
    for compressor in [Compressor::Noop, Compressor::Snappy, Compressor::Zlib, Compressor::Zstd] {
        let mut bytes = Vec::new();
        assert!(compress(&ping(9), compressor, &mut bytes));
        client.send_bytes(&bytes).await;
        let reply = client.receive_frame().await.unwrap();
        let compressed = Compressed::decode(&reply, &Limits::default()).unwrap();
        assert_eq!(compressed.compressor(), compressor);
        let plain = compressed.inflate().unwrap();
        let (header, message) = Message::decode(&plain, &Limits::default()).unwrap();
        assert_eq!(header.response_to, 9);
        assert!(matches!(message, Message::Msg(msg) if msg.body.double("ok") == 1.0));
    }
    // A large message is inflated on a thread that may block.
    let body = rawdoc! { "insert": "c", "$db": "d", "documents": [{ "_id": 1, "x": "y".repeat(3_000_000) }] };
    let mut plain = Vec::new();
    OpMsg::new(PLAIN, &body).encode(1, 0, &mut plain);
    let mut bytes = Vec::new();
    assert!(compress(&plain, Compressor::Zstd, &mut bytes));
    client.send_bytes(&bytes).await;
    let reply = client.receive_frame().await.unwrap();
    let plain = Compressed::decode(&reply, &Limits::default()).unwrap().inflate().unwrap();
    let (_, message) = Message::decode(&plain, &Limits::default()).unwrap();
    assert!(matches!(message, Message::Msg(msg) if msg.body.int("n") == 1));
}

/// A message waits for the reservation of its inflated bytes while it holds that of its compressed bytes.
#[tokio::test(start_paused = true)]
async fn an_inflated_message_does_not_wait_for_the_reservation_of_its_request() {
    let connections = ConnectionLimits { request_bytes_max: 1024 * 1024, ..ConnectionLimits::default() };
    let options = Options { connections, ..Options::default() };
    let mut server = TestServer::new(Arc::new(AdjustableStore::default()), options);
    let mut client = server.connect();
    let body = rawdoc! { "insert": "c", "$db": "d", "documents": [{ "_id": 1, "x": "y".repeat(700_000) }] };
    let mut plain = Vec::new();
    OpMsg::new(PLAIN, &body).encode(1, 0, &mut plain);
    let mut bytes = Vec::new();
    assert!(compress(&plain, Compressor::Noop, &mut bytes));
    client.send_bytes(&bytes).await;
    let reply = tokio::time::timeout(SECOND, client.receive_frame()).await.expect("no deadlock");
    assert!(reply.is_some());
}

#[tokio::test]
async fn a_compressor_that_is_not_enabled_is_refused() {
    let options = Options { compressors: vec![Compressor::Snappy], ..Options::default() };
    let mut server = TestServer::new(Arc::new(AdjustableStore::default()), options);
    let mut client = server.connect();
    let mut bytes = Vec::new();
    assert!(compress(&ping(9), Compressor::Zlib, &mut bytes));
    client.send_bytes(&bytes).await;
    assert_eq!(error_of(&client.receive().await.unwrap().2).0, 2);
    is_closed(client).await;
}

async fn query(client: &mut TestClient, collection: &str, query: &RawDocument) -> RawDocumentBuf {
    let mut bytes = Vec::new();
    Query { flags: 0, collection, skip: 0, limit: -1, query }.encode(3, &mut bytes);
    client.send_bytes(&bytes).await;
    let frame = client.receive_frame().await.unwrap();
    match Message::decode(&frame, &Limits::default()).unwrap() {
        (header, Message::Reply(reply)) => {
            assert_eq!(header.response_to, 3);
            reply.documents[0].to_owned()
        }
        (_, other) => panic!("no OP_REPLY: {other:?}"),
    }
}

#[tokio::test]
async fn the_legacy_handshake_is_supported_and_other_legacy_queries_are_refused() {
    let mut server = TestServer::adjustable();
    let mut client = server.connect();
    for name in ["ismaster", "isMaster"] {
        let mut body = RawDocumentBuf::new();
        body.append(bson::raw::CString::try_from(name).unwrap(), 1);
        body.append(bson::raw::cstr!("helloOk"), true);
        let reply = query(&mut client, "admin.$cmd", &body).await;
        assert!(reply.flag("ismaster") && reply.flag("helloOk") && reply.int("maxWireVersion") == 25);
    }
    let wrapped = rawdoc! { "$query": { "ismaster": 1 }, "$readPreference": { "mode": "secondaryPreferred" } };
    assert!(query(&mut client, "admin.$cmd", &wrapped).await.flag("ismaster"));
    let (code, _, text) = error_of(&query(&mut client, "d.$cmd", &rawdoc! { "find": "c" }).await);
    assert_eq!((code, text.contains("find")), (352, true));
    assert_eq!(error_of(&query(&mut client, "d.c", &rawdoc! { "a": 1 }).await).0, 73);
    assert!(is_alive(&mut client).await);
}

#[tokio::test]
async fn malformed_messages_close_the_connection() {
    let mut server = TestServer::adjustable();
    for bytes in [
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec(),
        frame(2002, &[0; 20]),
        frame(2004, &[0xff; 30]),
        frame(1, &[0; 20]),
        frame(0, &[]),
        frame(2012, &[0; 3]),
        [0xff; 64].to_vec(),
        [0; 64].to_vec(),
    ] {
        let mut client = server.connect();
        client.send_bytes(&bytes).await;
        // Before the end of the stream there may be replies, and nothing else.
        while client.receive_frame().await.is_some() {}
        client.served.await.unwrap();
    }
    assert!(is_alive(&mut server.connect()).await);
}

fn bomb(levels: usize, kind: u8) -> Vec<u8> {
    // Each level consists of its length, the type, "a", 0, the next level, and 0.
    let mut document = vec![5, 0, 0, 0, 0];
    for _ in 0..levels {
        let length = i32::try_from(document.len() + 8).unwrap();
        let mut outer = length.to_le_bytes().to_vec();
        outer.extend_from_slice(&[kind, b'a', 0]);
        outer.append(&mut document);
        outer.push(0);
        document = outer;
    }
    document
}

#[tokio::test]
async fn too_deep_documents_are_refused_and_the_connection_stays_open() {
    let mut server = TestServer::adjustable();
    let mut client = server.connect();
    for kind in [3, 4] {
        for levels in [200, 2_000, 100_000] {
            let bomb = bomb(levels, kind);
            let mut body = vec![0, 0, 0, 0, 0];
            body.extend_from_slice(&bomb);
            client.send_bytes(&frame(2013, &body)).await;
            let (code, ..) = error_of(&client.receive().await.unwrap().2);
            assert!(code != 0, "{levels}");
            // It is refused in a sequence and in the legacy form too.
            let command = rawdoc! { "insert": "c", "$db": "d" };
            let mut body = [&[0, 0, 0, 0, 0], command.as_bytes()].concat();
            body.push(1);
            let name = b"documents\0";
            let size = i32::try_from(4 + name.len() + bomb.len()).unwrap();
            body.extend_from_slice(&size.to_le_bytes());
            body.extend_from_slice(name);
            body.extend_from_slice(&bomb);
            client.send_bytes(&frame(2013, &body)).await;
            let reply = client.receive().await.unwrap().2;
            assert_eq!(reply.double("ok"), 0.0, "{reply:?}");
        }
    }
    assert!(is_alive(&mut client).await);
}

#[tokio::test]
async fn a_too_large_document_is_refused_and_the_connection_stays_open() {
    let mut server = TestServer::adjustable();
    let mut client = server.connect();
    let large = rawdoc! { "x": "y".repeat(16 * 1024 * 1024 + 16 * 1024) };
    let reply = client.run_with("d", rawdoc! { "insert": "c" }, &[("documents", &[large])]).await;
    assert_eq!(error_of(&reply).0, 10_334);
    assert!(is_alive(&mut client).await);
}

/// Returns the message of an insert, which is `bytes` bytes long.
fn insert_of(bytes: usize) -> Vec<u8> {
    let body = rawdoc! { "insert": "c", "$db": "d" };
    let encode = |last: usize| {
        let fill = |id: i32, bytes: usize| rawdoc! { "_id": id, "x": "y".repeat(bytes) };
        let documents = [fill(1, 16_000_000), fill(2, 16_000_000), fill(3, last)];
        let sequences = vec![Sequence { identifier: "documents", documents: documents.iter().map(|d| &**d).collect() }];
        let mut message = Vec::new();
        OpMsg { flags: PLAIN, body: &body, sequences }.encode(1, 0, &mut message);
        message
    };
    let overhead = encode(0).len();
    encode(bytes - overhead)
}

#[tokio::test]
async fn the_largest_message_is_accepted_and_one_byte_more_closes_its_connection() {
    let store = Arc::new(AdjustableStore::default());
    let mut server = TestServer::new(Arc::clone(&store) as Arc<dyn DocumentStore>, Options::default());
    let mut client = server.connect();
    for expected in [rawdoc! { "n": 3, "ok": 1.0 }, rawdoc! { "n": 0 }] {
        let message = insert_of(MESSAGE_BYTES_MAX);
        assert_eq!(message.len(), MESSAGE_BYTES_MAX);
        client.send_bytes(&message).await;
        let reply = client.receive().await.unwrap().2;
        assert_eq!(reply.int("n"), expected.int("n"), "the second time they are there: {reply:?}");
    }
    assert!(is_alive(&mut client).await);
    let mut other = server.connect();
    let message = insert_of(MESSAGE_BYTES_MAX + 1);
    assert_eq!(message.len(), MESSAGE_BYTES_MAX + 1);
    // The length is refused before the message is read.
    other.send_bytes(&message[..HEADER_BYTES]).await;
    is_closed(other).await;
    assert!(is_alive(&mut client).await);
}

#[tokio::test]
async fn several_messages_at_once_get_their_replies_in_order() {
    let mut server = TestServer::adjustable();
    let mut client = server.connect();
    client.send_bytes(&[ping(1), ping(2), ping(3)].concat()).await;
    for id in 1..=3 {
        assert_eq!(client.receive().await.unwrap().0.response_to, id);
    }
}

#[tokio::test]
async fn a_getmore_with_the_exhaust_flag_streams_all_batches() {
    let mut server = TestServer::adjustable();
    let mut client = server.connect();
    let documents: Vec<_> = (0..25).map(|id| rawdoc! { "_id": id }).collect();
    client.run_with("d", rawdoc! { "insert": "c" }, &[("documents", &documents)]).await;
    let first = client.run("d", rawdoc! { "find": "c", "batchSize": 5 }).await;
    let more = rawdoc! { "getMore": cursor_id(&first), "collection": "c", "batchSize": 6 };
    let mut expected = client.send(Flags { exhaust_allowed: true, ..PLAIN }, "d", more, &[]).await;
    let mut sizes = Vec::new();
    loop {
        let (header, flags, reply) = client.receive().await.unwrap();
        assert_eq!(header.response_to, expected);
        expected = header.request_id;
        sizes.push(batch(&reply).len());
        assert_eq!(flags.more_to_come, cursor_id(&reply) != 0);
        if !flags.more_to_come {
            break;
        }
    }
    assert_eq!(sizes, [6, 6, 6, 2]);
    // A client without the flag gets one reply.
    let first = client.run("d", rawdoc! { "find": "c", "batchSize": 5 }).await;
    let next = client.run("d", rawdoc! { "getMore": cursor_id(&first), "collection": "c", "batchSize": 1 }).await;
    assert_eq!(batch(&next).len(), 1);
    assert!(is_alive(&mut client).await);
}

#[tokio::test(start_paused = true)]
async fn a_hello_with_the_exhaust_flag_streams_replies() {
    let mut server = TestServer::adjustable();
    let mut client = server.connect();
    let reply = client.run("admin", rawdoc! { "hello": 1 }).await;
    let version = reply.get_document("topologyVersion").unwrap().to_owned();
    let hello = rawdoc! { "hello": 1, "topologyVersion": version, "maxAwaitTimeMS": 10_000 };
    client.send(Flags { exhaust_allowed: true, ..PLAIN }, "admin", hello, &[]).await;
    let began = timer_now();
    for beat in 1..=3 {
        let (_, flags, reply) = client.receive().await.unwrap();
        assert!(flags.more_to_come && reply.flag("isWritablePrimary"));
        assert!(began.elapsed() >= beat * 10 * SECOND && began.elapsed() < (beat * 10 + 1) * SECOND);
    }
    drop(client.stream);
    client.served.await.unwrap();
}

/// A client that has not logged in cannot keep the server busy with one message.
#[tokio::test(start_paused = true)]
async fn a_stream_of_hello_replies_has_pauses() {
    let mut server = TestServer::adjustable();
    let mut client = server.connect();
    let reply = client.run("admin", rawdoc! { "hello": 1 }).await;
    let known = reply.get_document("topologyVersion").unwrap().to_owned();
    let stale = rawdoc! { "processId": bson::oid::ObjectId::from_bytes([9; 12]), "counter": 0_i64 };
    let streaming = Flags { exhaust_allowed: true, ..PLAIN };
    let hello = |version| rawdoc! { "hello": 1, "topologyVersion": version, "maxAwaitTimeMS": 0 };
    client.send(streaming, "admin", hello(stale), &[]).await;
    let (_, flags, reply) = client.receive().await.unwrap();
    assert!(!flags.more_to_come);
    assert_eq!(reply.get_document("topologyVersion").unwrap(), &*known);
    let began = timer_now();
    client.send(streaming, "admin", hello(known.clone()), &[]).await;
    for beat in 1..=5 {
        let (_, flags, _) = client.receive().await.unwrap();
        assert!(flags.more_to_come && began.elapsed() >= beat * Duration::from_millis(100));
    }
    let mut patient = server.connect();
    let long = rawdoc! { "hello": 1, "topologyVersion": known, "maxAwaitTimeMS": 10_000_000_000_i64 };
    let began = timer_now();
    patient.run("admin", long).await;
    assert!(began.elapsed() <= 61 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn a_read_ends_when_its_client_disconnects() {
    let (store, mut server) = slow_server();
    *lock(&store.delay) = 1_000 * SECOND;
    let mut client = server.connect();
    client.send(PLAIN, "d", rawdoc! { "find": "c" }, &[]).await;
    tokio::time::sleep(SECOND).await;
    assert_eq!(server.shared.operations.list().len(), 1);
    drop(client.stream);
    let began = timer_now();
    client.served.await.unwrap();
    assert!(began.elapsed() < SECOND);
    assert_eq!(server.shared.operations.list().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_write_is_completed_when_its_client_disconnects() {
    let (store, mut server) = slow_server();
    *lock(&store.delay) = 5 * SECOND;
    let mut client = server.connect();
    client.send(PLAIN, "d", rawdoc! { "insert": "c", "documents": [{ "_id": 1 }] }, &[]).await;
    tokio::time::sleep(SECOND).await;
    drop(client.stream);
    client.served.await.unwrap();
    assert_eq!(lock(&store.inserts).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_has_closed_its_sending_side_gets_the_reply_to_a_write() {
    let (store, mut server) = slow_server();
    *lock(&store.delay) = 5 * SECOND;
    let mut client = server.connect();
    client.send(PLAIN, "d", rawdoc! { "insert": "c", "documents": [{ "_id": 1 }] }, &[]).await;
    client.stream.shutdown().await.unwrap();
    assert_eq!(client.receive().await.unwrap().2.int("n"), 1);
    is_closed(client).await;
}

#[tokio::test(start_paused = true)]
async fn slow_and_silent_clients_are_closed() {
    let mut server = TestServer::adjustable();
    let times = ConnectionLimits::default();
    let idle = server.connect();
    let began = timer_now();
    is_closed(idle).await;
    assert!(began.elapsed() >= times.idle_timeout);

    let mut stalled = server.connect();
    stalled.send_bytes(&ping(1)[..17]).await;
    let began = timer_now();
    is_closed(stalled).await;
    assert!(began.elapsed() >= times.stall_timeout && began.elapsed() < 2 * times.stall_timeout);

    // The connection of a client that never reads its replies is closed.
    let mut deaf = server.connect();
    let documents: Vec<_> = (0..4).map(|id| rawdoc! { "_id": id, "x": "y".repeat(200_000) }).collect();
    deaf.run_with("d", rawdoc! { "insert": "c" }, &[("documents", &documents)]).await;
    deaf.send(PLAIN, "d", rawdoc! { "find": "c" }, &[]).await;
    tokio::time::timeout(3 * times.stall_timeout, &mut deaf.served).await.unwrap().unwrap();
    assert_eq!(server.shared.metrics.connections_broken.get(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_waits_for_running_commands() {
    let (store, mut server) = slow_server();
    *lock(&store.delay) = 5 * SECOND;
    let (idle, mut busy, mut halfway) = (server.connect(), server.connect(), server.connect());
    busy.send(PLAIN, "d", rawdoc! { "insert": "c", "documents": [{ "_id": 1 }] }, &[]).await;
    halfway.send_bytes(&ping(1)[..20]).await;
    tokio::time::sleep(SECOND).await;
    server.shared.shut_down();
    is_closed(idle).await;
    halfway.send_bytes(&ping(1)[20..]).await;
    let expected = (91, "ShutdownInProgress".to_owned(), "the server is shutting down".to_owned());
    assert_eq!(error_of(&halfway.receive().await.unwrap().2), expected);
    is_closed(halfway).await;
    assert_eq!(busy.receive().await.unwrap().2.int("n"), 1);
    is_closed(busy).await;
}

/// Sends these bytes. The connection's task must end without a panic.
fn survives(bytes: &[u8]) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let mut server = TestServer::adjustable();
        let mut client = server.connect();
        client.send_bytes(bytes).await;
        client.stream.shutdown().await.unwrap();
        while client.receive_frame().await.is_some() {}
        client.served.await.unwrap();
    });
}

fn session() -> bson::Binary {
    bson::Binary { subtype: bson::spec::BinarySubtype::Uuid, bytes: vec![1; 16] }
}

fn payload(message: &[u8]) -> bson::Binary {
    bson::Binary { subtype: bson::spec::BinarySubtype::Generic, bytes: message.to_vec() }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn random_bytes_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        survives(&bytes);
    }

    #[test]
    fn random_messages_do_not_panic(op in 0..4usize, body in proptest::collection::vec(any::<u8>(), 0..200)) {
        survives(&frame([1, 2004, 2012, 2013][op], &body));
    }

    #[test]
    fn damaged_commands_do_not_panic(
        which in 0..9usize,
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..5),
        compressed in any::<bool>(),
    ) {
        let commands = [
            rawdoc! { "insert": "c", "documents": [{ "_id": 1, "a": { "b": [1, 2.0, "x"] } }], "ordered": false, "$db": "d" },
            rawdoc! { "find": "c", "filter": { "a": { "$gt": 1 } }, "sort": { "a": 1 }, "batchSize": 1, "$db": "d" },
            rawdoc! { "update": "c", "updates": [{ "q": {}, "u": { "$set": { "a": 1 } }, "multi": true }], "$db": "d" },
            rawdoc! { "aggregate": "c", "pipeline": [{ "$match": { "a": 1 } }], "cursor": {}, "$db": "d" },
            rawdoc! { "hello": 1, "client": { "driver": { "name": "x" } }, "compression": ["zstd"], "$db": "admin" },
            rawdoc! { "bulkWrite": 1, "ops": [{ "insert": 0, "document": {"_id": 1} }], "nsInfo": [{ "ns": "d.c" }], "$db": "admin" },
            rawdoc! {
                "insert": "c", "documents": [{ "_id": 1 }], "$db": "d", "lsid": { "id": session() }, "txnNumber": 1_i64,
                "autocommit": false, "startTransaction": true,
            },
            rawdoc! { "delete": "c", "deletes": [{ "q": {}, "limit": 1 }], "$db": "d", "lsid": { "id": session() }, "txnNumber": 1_i64 },
            rawdoc! {
                "saslStart": 1, "mechanism": "SCRAM-SHA-256", "payload": payload(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"),
                "options": { "skipEmptyExchange": true }, "$db": "admin",
            },
        ];
        let mut bytes = Vec::new();
        OpMsg::new(PLAIN, &commands[which]).encode(1, 0, &mut bytes);
        if compressed {
            let mut out = Vec::new();
            prop_assert!(compress(&bytes, Compressor::Noop, &mut out));
            bytes = out;
        }
        for (place, byte) in damage {
            // The length is not damaged: other tests do that, and it would hide the rest.
            let place = 4 + place.index(bytes.len() - 4);
            bytes[place] = byte;
        }
        survives(&bytes);
    }
}
