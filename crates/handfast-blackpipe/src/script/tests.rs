mod autoresponders;
mod replica_set;
mod streams;

use std::time::Duration;

use bson::raw::{CString, cstr};
use bson::{RawDocumentBuf, rawbson, rawdoc};
use handfast_wire::{Flags, Limits, Message, OpMsg, Query, Sequence};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{Answer, FailedWrite, Matcher, ReceivedRequest, Role, Script, ScriptedServer};
use crate::frame::read;

fn request(body: RawDocumentBuf) -> ReceivedRequest {
    ReceivedRequest::new(body)
}

fn find(collection: &str) -> ReceivedRequest {
    request(rawdoc! { "find": collection, "filter": { "a": [1, { "b": 2_i64 }] }, "limit": 5_i64, "$db": "shop" })
}

#[test]
fn a_request_meets_all_conditions_or_does_not_match() {
    let check = |matcher: Matcher, expected: bool| assert_eq!(matcher.matches(&find("orders")), expected, "{matcher}");
    let command = || Matcher::command("find");
    check(command(), true);
    check(Matcher::command("shop"), false);
    check(command().on("shop.orders"), true);
    check(command().on("shop.items"), false);
    check(command().on("orders"), false);
    check(command().with("limit", 5), true);
    check(command().with("limit", 5.0), true);
    check(command().with("limit", 6), false);
    check(command().with("limit", "5"), false);
    check(command().with("skip", 5), false);
    check(command().with("filter.a.1.b", 2), true);
    check(command().with("filter.a.2", 2), false);
    check(command().with("filter", rawdoc! { "a": [1_i64, { "b": 2 }] }), true);
    check(command().with("filter", rawdoc! { "a": [1] }), false);
    check(command().with("filter.a", rawbson!([1, { "b": 2 }, 3])), false);
    check(command().with("filter", rawdoc! { "a": [1, { "b": 2 }], "c": 1 }), false);
    check(command().with("filter.a.1", rawdoc! { "c": 2 }), false);
    check(command().with("limit", 5).with("limit", 6), false);
    check(command().without("skip"), true);
    check(command().without("limit"), false);
    check(command().without("filter.a.1.c"), true);
    check(command().without("filter.a.1.b"), false);
    check(Matcher::any(), true);
    check(Matcher::any().on("shop.items"), false);
    let shown = Matcher::any().on("shop.items").with("limit", 5).without("skip").to_string();
    assert_eq!(shown, "any command on shop.items, limit = 5, without skip");
}

#[test]
fn requests_arrive_in_the_order_of_the_script() {
    let mut script = Script::in_order()
        .expect(Matcher::command("find").on("shop.a"), Answer::ok())
        .expect(Matcher::command("find").on("shop.b"), rawdoc! { "ok": 1.0, "b": 1 });
    assert_eq!(script.answer(find("a")), Answer::ok());
    assert_eq!(script.answer(find("b")), rawdoc! { "ok": 1.0, "b": 1 }.into());
    assert_eq!(script.finish().unwrap(), [find("a"), find("b")]);
}

#[test]
fn a_request_that_comes_too_early_is_not_expected() {
    let script = Script::in_order()
        .expect(Matcher::command("find").on("shop.a"), Answer::ok())
        .expect(Matcher::command("find").on("shop.b"), Answer::ok());
    let report = report(script, &[find("b"), find("a")]);
    assert!(report.contains("1. find on shop.a: arrived\n  2. find on shop.b: DID NOT ARRIVE"), "{report}");
}

/// Returns the error of a script that was not followed.
fn report(mut script: Script, requests: &[ReceivedRequest]) -> String {
    for request in requests {
        script.answer(request.clone());
    }
    script.finish().unwrap_err().to_string()
}

#[test]
fn both_sides_are_shown_if_a_script_is_not_followed() {
    let script = || {
        Script::in_order()
            .expect(Matcher::command("ping"), Answer::ok())
            .expect(Matcher::command("insert").on("shop.a").with("ordered", true), Answer::ok())
    };
    let ping = || request(rawdoc! { "ping": 1 });
    let expected = "the script was not followed; expected, in this order:
  1. ping: arrived
  2. insert on shop.a, ordered = true: DID NOT ARRIVE
received:
  1. { \"ping\": 1 }: expected
  2. { \"count\": \"a\" }: NOT EXPECTED";
    assert_eq!(report(script(), &[ping(), request(rawdoc! { "count": "a" })]), expected);
    assert!(
        report(Script::in_any_order(), &[find("a")]).contains("in any order:\n  nothing\nreceived:\n  1. { \"find\"")
    );
    assert!(report(script(), &[]).ends_with("received:\n  nothing"));
    assert!(report(script(), &[find("a"), ping()]).contains("1. ping: arrived"), "what is not expected moves nothing");
    let long = request(rawdoc! { "find": "x".repeat(2_000) });
    assert!(report(Script::in_order(), &[long]).ends_with("xx..: NOT EXPECTED"));
}

#[test]
fn in_any_order_the_first_expectation_that_matches_is_met() {
    let script = || {
        Script::in_any_order()
            .expect(Matcher::command("find").on("shop.a"), rawdoc! { "n": 1 })
            .expect(Matcher::command("find"), rawdoc! { "n": 2 })
            .expect(Matcher::command("find").on("shop.a"), rawdoc! { "n": 3 })
    };
    let check = |collections: [&str; 3], expected: [i32; 3]| {
        let mut script = script();
        let answers = collections.map(|collection| script.answer(find(collection)));
        assert_eq!(answers, expected.map(|n| Answer::from(rawdoc! { "n": n })));
        assert!(script.finish().is_ok());
    };
    check(["a", "a", "a"], [1, 2, 3]);
    check(["b", "a", "a"], [2, 1, 3]);
    assert!(report(script(), &[find("a"), find("b"), find("b")]).contains("3. find on shop.a: DID NOT ARRIVE"));
}

#[test]
fn some_commands_need_no_expectation() {
    let mut script = Script::in_order().expect(Matcher::command("find"), Answer::ok());
    for command in [rawdoc! { "ping": 1 }, rawdoc! { "endSessions": [] }, rawdoc! { "killCursors": "a" }] {
        assert_eq!(script.answer(request(command)), Answer::ok());
    }
    script.answer(find("a"));
    assert_eq!(script.finish().unwrap(), [find("a")]);
}

/// A client of a scripted server.
struct Client(TcpStream);

impl Client {
    async fn connect(server: &ScriptedServer) -> Self {
        Client(TcpStream::connect(server.address()).await.unwrap())
    }

    async fn send(&mut self, flags: Flags, body: &RawDocumentBuf) {
        let mut bytes = Vec::new();
        OpMsg::new(flags, body).encode(42, 0, &mut bytes);
        self.0.write_all(&bytes).await.unwrap();
    }

    /// Sends a command; returns the reply with the number of the request that it answers.
    async fn run(&mut self, body: RawDocumentBuf) -> (i32, RawDocumentBuf) {
        self.send(Flags::default(), &body).await;
        let frame = read(&mut self.0, &Limits::default()).await.unwrap().unwrap();
        let (header, Message::Msg(reply)) = Message::decode(&frame.bytes, &Limits::default()).unwrap() else {
            panic!()
        };
        (header.response_to, reply.body.to_owned())
    }

    /// Returns the field `n` of the reply to a command on shop.a.
    async fn number(&mut self, command: &str) -> Option<i32> {
        let mut body = RawDocumentBuf::new();
        body.append(CString::try_from(command).unwrap(), "a");
        body.append(cstr!("$db"), "shop");
        self.run(body).await.1.get_i32("n").ok()
    }

    /// Sends `find`, and returns all bytes until the server closes the connection, and whether it was reset.
    async fn bytes_after_find(&mut self) -> (Vec<u8>, bool) {
        self.send(Flags::default(), &rawdoc! { "find": "a" }).await;
        let mut bytes = Vec::new();
        let ended = self.0.read_to_end(&mut bytes).await;
        (bytes, ended.is_err())
    }
}

async fn start(answers: impl IntoIterator<Item = Answer>) -> (ScriptedServer, Client) {
    let script =
        answers.into_iter().fold(Script::in_order(), |script, answer| script.expect(Matcher::command("find"), answer));
    let server = ScriptedServer::start(Role::Standalone, script).await.unwrap();
    let client = Client::connect(&server).await;
    (server, client)
}

fn encoded(document: &RawDocumentBuf) -> Vec<u8> {
    let mut bytes = Vec::new();
    OpMsg::new(Flags::default(), document).encode(0, 42, &mut bytes);
    bytes
}

#[tokio::test]
async fn an_answer_is_a_reply_at_its_time() {
    let document = rawdoc! { "ok": 1.0, "n": 7 };
    let later = Answer::from(document.clone()).after(Duration::from_millis(1)).after(Duration::from_millis(1));
    let wrong = Answer::WrongResponseTo(document.clone());
    let (server, mut client) = start([document.clone().into(), later, wrong]).await;
    for response_to in [42, 42, 41] {
        assert_eq!(client.run(rawdoc! { "find": "a" }).await, (response_to, document.clone()));
    }
    assert_eq!(server.finish().unwrap().len(), 3);
}

#[tokio::test]
async fn a_connection_ends_as_the_answer_says() {
    let document = rawdoc! { "ok": 1.0 };
    let whole = encoded(&document);
    for (answer, bytes, is_reset) in [
        (Answer::HangUp, &[][..], false),
        (Answer::Reset, &[][..], true),
        (Answer::Cut(document.clone()), &whole[..whole.len() / 2], false),
    ] {
        let (server, mut client) = start([answer.clone()]).await;
        assert_eq!(client.bytes_after_find().await, (bytes.to_vec(), is_reset), "{answer:?}");
        assert_eq!(Client::connect(&server).await.run(rawdoc! { "ping": 1 }).await, (42, rawdoc! { "ok": 1.0 }));
    }
}

#[tokio::test]
async fn bytes_are_sent_as_they_are() {
    let (_server, mut client) =
        start([Answer::Garbage(b"garbage".to_vec()), Answer::Oversized(rawdoc! { "ok": 1.0 })]).await;
    client.send(Flags::default(), &rawdoc! { "find": "a" }).await;
    let mut bytes = [0; 7];
    client.0.read_exact(&mut bytes).await.unwrap();
    assert_eq!(&bytes, b"garbage");
    client.send(Flags::default(), &rawdoc! { "find": "a" }).await;
    assert!(read(&mut client.0, &Limits::default()).await.is_err(), "the message is larger than the limit");
}

#[tokio::test]
async fn silence_keeps_the_connection_open() {
    let (server, mut client) = start([Answer::Silence]).await;
    let answered = tokio::time::timeout(Duration::from_millis(100), client.bytes_after_find());
    assert!(answered.await.is_err(), "neither a reply nor the end of the connection");
    let requests = server.finish().unwrap();
    assert_eq!(requests, [request(rawdoc! { "find": "a" })]);
}

#[tokio::test]
async fn an_unacknowledged_write_with_its_documents_gets_no_reply() {
    let script = Script::in_order().expect(Matcher::command("insert").with("documents.1._id", 2), Answer::written(2));
    let server = ScriptedServer::start(Role::Standalone, script).await.unwrap();
    let mut client = Client::connect(&server).await;
    let (one, two) = (rawdoc! { "_id": 1 }, rawdoc! { "_id": 2 });
    let body = rawdoc! { "insert": "a", "$db": "shop" };
    let flags = Flags { more_to_come: true, ..Flags::default() };
    let documents = Sequence { identifier: "documents", documents: vec![&one, &two] };
    let mut bytes = Vec::new();
    OpMsg { sequences: vec![documents], ..OpMsg::new(flags, &body) }.encode(41, 0, &mut bytes);
    client.0.write_all(&bytes).await.unwrap();
    assert_eq!(client.run(rawdoc! { "ping": 1 }).await.0, 42, "the first reply is that of the ping");
    let requests = server.finish().unwrap();
    assert_eq!(requests[0].collection().as_deref(), Some("shop.a"));
    assert!(!requests[0].has_reply());
}

#[tokio::test]
async fn a_request_that_is_not_expected_gets_an_error_at_once() {
    let (server, mut client) = start([]).await;
    let (_, reply) = client.run(rawdoc! { "count": "a" }).await;
    assert_eq!(reply.get_str("errmsg").unwrap(), "the script does not expect count");
    assert!(server.finish().unwrap_err().to_string().contains("{ \"count\": \"a\" }: NOT EXPECTED"));
}

#[tokio::test]
async fn handshakes_are_those_of_the_role() {
    let set = || "rs".to_owned();
    for (role, is_writable, field) in [
        (Role::Standalone, true, None),
        (Role::Primary(set()), true, Some("primary")),
        (Role::Secondary(set()), false, Some("setName")),
        (Role::Mongos, true, Some("msg")),
    ] {
        let server = ScriptedServer::start(role, Script::in_order()).await.unwrap();
        let mut client = Client::connect(&server).await;
        let (_, hello) = client.run(rawdoc! { "hello": 1 }).await;
        assert_eq!(hello.get_bool("isWritablePrimary").unwrap(), is_writable);
        let fields = ["primary", "setName", "msg"].map(|name| hello.get_str(name).ok());
        assert_eq!(fields.iter().any(Option::is_some), field.is_some());
        assert!(field.is_none_or(|field| hello.get_str(field).is_ok()));
        let mut bytes = Vec::new();
        let query = rawdoc! { "isMaster": 1 };
        Query { flags: 0, collection: "admin.$cmd", skip: 0, limit: -1, query: &query }.encode(1, &mut bytes);
        client.0.write_all(&bytes).await.unwrap();
        let frame = read(&mut client.0, &Limits::default()).await.unwrap().unwrap();
        let (_, Message::Reply(legacy)) = Message::decode(&frame.bytes, &Limits::default()).unwrap() else { panic!() };
        assert_eq!(legacy.documents, [&*hello]);
        assert_eq!(server.finish().unwrap(), []);
    }
}

#[test]
fn answers_are_written_as_servers_write_them() {
    let check = |answer: Answer, expected: RawDocumentBuf| assert_eq!(answer, Answer::Document(expected));
    let one = || rawdoc! { "_id": 1 };
    check(Answer::written(2), rawdoc! { "ok": 1.0, "n": 2, "nModified": 2 });
    let batch = rawdoc! { "ok": 1.0, "cursor": { "id": 7_i64, "ns": "shop.a", "firstBatch": [one()] } };
    check(Answer::first_batch("shop.a", 7, [one()]), batch);
    let batch = rawdoc! { "ok": 1.0, "cursor": { "id": 0_i64, "ns": "shop.a", "nextBatch": [] } };
    check(Answer::next_batch("shop.a", 0, []), batch);
    let errors =
        rawdoc! { "ok": 1.0, "n": 1, "writeErrors": [{ "index": 1, "code": 11000, "errmsg": "duplicate key" }] };
    check(
        Answer::write_errors(1, [FailedWrite { index: 1, code: 11000, message: "duplicate key".to_owned() }]),
        errors,
    );
    let error = rawdoc! { "ok": 0.0, "errmsg": "no", "code": 91, "errorLabels": ["A"] };
    check(Answer::error(91, "no", &["A"]), error);
}
