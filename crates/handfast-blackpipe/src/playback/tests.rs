use bson::{RawDocumentBuf, rawdoc};

use super::{Playback, PlayedAnswer};
use crate::recording::RecordedMessage;

fn find(status: &str) -> RawDocumentBuf {
    rawdoc! { "find": "orders", "filter": { "status": status }, "lsid": { "id": 1 }, "$db": "shop" }
}

/// Returns a playback of requests, each with its reply.
fn playback(requests: &[(RawDocumentBuf, Option<RawDocumentBuf>)], ignored: &[&str]) -> Playback {
    let mut messages = vec![RecordedMessage::Hello(rawdoc! { "ok": 1.0 })];
    for (number, (command, reply)) in (1..).zip(requests) {
        let (connection, request, has_reply) = (1, number, true);
        messages.push(RecordedMessage::Request { connection, request, command: command.clone(), has_reply });
        if let Some(reply) = reply.clone() {
            messages.push(RecordedMessage::Reply { connection, request, reply });
        }
    }
    let lines: Vec<String> = messages.iter().map(|message| message.to_line().unwrap()).collect();
    Playback::parse(&lines.join("\n"), ignored.iter().map(|name| (*name).to_owned()).collect()).unwrap()
}

fn reply(number: i32) -> RawDocumentBuf {
    rawdoc! { "ok": 1.0, "n": number }
}

fn check_refused(answer: &PlayedAnswer, expected: &str) {
    let PlayedAnswer::NotRecorded(reason) = answer else { panic!("{answer:?}") };
    assert!(reason.contains(expected), "{reason}");
}

#[test]
fn equal_requests_are_answered_in_their_order_and_as_often_as_recorded() {
    let recorded = [(find("open"), Some(reply(1))), (find("closed"), Some(reply(2))), (find("open"), Some(reply(3)))];
    let mut playback = playback(&recorded, &[]);
    assert_eq!(playback.answer(&find("closed")), PlayedAnswer::Reply(reply(2)));
    assert_eq!(playback.answer(&find("open")), PlayedAnswer::Reply(reply(1)));
    let missing = r#"request 3: {"find":"orders","$db":"shop","filter":{"status":"open"}}"#;
    assert_eq!(playback.missing(), [missing]);
    assert_eq!(playback.answer(&find("open")), PlayedAnswer::Reply(reply(3)));
    assert_eq!((playback.missing().len(), playback.not_recorded_count()), (0, 0));
    check_refused(&playback.answer(&find("open")), "the request arrived more often than it was recorded: {\"find\"");
    assert_eq!(playback.not_recorded_count(), 1);
}

#[test]
fn a_request_without_a_reply_gets_none() {
    let mut playback = playback(&[(find("open"), None), (find("open"), Some(reply(1)))], &[]);
    assert_eq!(playback.answer(&find("open")), PlayedAnswer::NoReply);
    assert_eq!(playback.answer(&find("open")), PlayedAnswer::Reply(reply(1)));
}

#[test]
fn fields_that_differ_in_each_run_are_not_compared() {
    let recorded = rawdoc! {
        "find": "orders", "lsid": { "id": 1 }, "txnNumber": 3_i64, "$db": "shop", "limit": 1,
        "readConcern": { "level": "local", "afterClusterTime": 7 },
    };
    let arrived = rawdoc! {
        "find": "orders", "limit": 1, "$clusterTime": { "a": 1 }, "readConcern": { "level": "local" }, "$db": "shop", "apiVersion": "1",
    };
    let mut played = playback(&[(recorded.clone(), Some(reply(1)))], &[]);
    assert_eq!(played.answer(&arrived), PlayedAnswer::Reply(reply(1)));
    let mut played = playback(&[(recorded, Some(reply(1)))], &[]);
    let other = rawdoc! { "find": "orders", "limit": 2, "$db": "shop", "readConcern": { "level": "local" } };
    check_refused(&played.answer(&other), r#"limit is {"$numberInt":"2"}, and {"$numberInt":"1"} in the recording"#);
}

#[test]
fn ignored_fields_are_names_or_paths() {
    let insert = |id: i32, customer: i32| {
        rawdoc! { "insert": "orders", "documents": [{ "_id": id, "customer": { "_id": customer } }], "$db": "shop" }
    };
    let check = |ignored: &str, arrived: RawDocumentBuf, is_equal: bool| {
        let mut played = playback(&[(insert(1, 1), Some(reply(1)))], &[ignored]);
        assert_eq!(played.answer(&arrived) == PlayedAnswer::Reply(reply(1)), is_equal, "{ignored} {arrived:?}");
    };
    check("_id", insert(2, 2), true);
    check("documents._id", insert(2, 1), true);
    check("documents._id", insert(1, 2), false);
    check("documents.customer._id", insert(1, 2), true);
    check("orders._id", insert(2, 1), false);
}

#[test]
fn the_nearest_request_is_the_one_with_the_fewest_differences() {
    let filter = |a: i32, b: i32| rawdoc! { "find": "orders", "filter": { "a": a, "b": b }, "$db": "shop" };
    let mut played = playback(&[(filter(1, 1), None), (filter(2, 3), None)], &[]);
    check_refused(&played.answer(&filter(2, 4)), "the nearest is request 2: ");
    check_refused(&played.answer(&rawdoc! { "drop": "orders" }), "the recording has no request with this command");
    let turned = rawdoc! { "find": "orders", "filter": { "b": 1, "a": 1 }, "$db": "shop" };
    check_refused(&played.answer(&turned), "the order of fields differs");
}

#[test]
fn a_recording_has_a_handshake_and_a_request_before_each_reply() {
    let check = |text: &str, expected: &str| {
        let error = Playback::parse(text, Vec::new()).err().unwrap().to_string();
        assert!(error.contains(expected), "{error}");
    };
    check("", "line 1: there is no handshake in the recording");
    check("{\"connection\":1,\"request\":7,\"reply\":{}}", "line 1: there is no request 7 before it");
    let request = "{\"connection\":1,\"request\":7,\"command\":{\"ping\":1}}";
    check(&format!("{request}\n{request}"), "line 2: there is a request 7 before it");
}
