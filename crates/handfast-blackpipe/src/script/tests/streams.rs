//! Compressed messages, and requests with several replies.

use bson::{RawDocumentBuf, rawdoc};
use handfast_wire::compressed::{Compressed, compress};
use handfast_wire::{Compressor, Flags, Limits, Message, OpCode, OpMsg, Query};
use tokio::io::AsyncWriteExt;

use super::super::{Answer, Matcher, Role, Script, ScriptedReplicaSet, ScriptedServer};
use super::Client;
use crate::Error;
use crate::frame::{plain, read};

async fn start(script: Script) -> (ScriptedServer, Client) {
    let server = ScriptedServer::start(Role::Standalone, script).await.unwrap();
    let client = Client::connect(&server).await;
    (server, client)
}

fn compression(hello: &RawDocumentBuf) -> Option<Vec<String>> {
    let names = hello.get_array("compression").ok()?;
    Some(names.into_iter().map(|name| name.unwrap().as_str().unwrap().to_owned()).collect())
}

#[tokio::test]
async fn a_handshake_offers_the_compressors_of_both_sides() {
    let script = || Script::in_order().with_compressors([Compressor::Zstd, Compressor::Zlib]);
    let (_server, mut client) = start(script()).await;
    let handshake = rawdoc! { "hello": 1, "compression": ["snappy", "zlib", "zstd"] };
    let (_, hello) = client.run(handshake.clone()).await;
    assert_eq!(compression(&hello).unwrap(), ["zlib", "zstd"], "in the order of the client");
    let (_, hello) = client.run(rawdoc! { "hello": 1 }).await;
    assert_eq!(compression(&hello), None, "to a client that has none");

    let (_server, mut client) = start(script()).await;
    let mut bytes = Vec::new();
    Query { flags: 0, collection: "admin.$cmd", skip: 0, limit: -1, query: &handshake }.encode(1, &mut bytes);
    client.0.write_all(&bytes).await.unwrap();
    let frame = read(&mut client.0, &Limits::default()).await.unwrap().unwrap();
    let (_, Message::Reply(legacy)) = Message::decode(&frame.bytes, &Limits::default()).unwrap() else { panic!() };
    assert_eq!(compression(&legacy.documents[0].to_owned()).unwrap(), ["zlib", "zstd"]);

    let (_server, mut client) = start(Script::in_order()).await;
    assert_eq!(compression(&client.run(handshake).await.1).unwrap(), [""; 0], "a script without compressors");
}

#[tokio::test]
async fn a_reply_is_compressed_as_its_request() {
    let find = || Matcher::command("find");
    let compressors = [Some(Compressor::Snappy), Some(Compressor::Zlib), Some(Compressor::Zstd), None];
    let script = compressors.iter().fold(Script::in_order(), |script, _| script.expect(find(), rawdoc! { "n": 7 }));
    let (server, mut client) = start(script).await;
    let mut plain_request = Vec::new();
    OpMsg::new(Flags::default(), &rawdoc! { "find": "a" }).encode(42, 0, &mut plain_request);
    for compressor in compressors {
        let mut bytes = Vec::new();
        match compressor {
            Some(compressor) => assert!(compress(&plain_request, compressor, &mut bytes)),
            None => bytes.clone_from(&plain_request),
        }
        client.0.write_all(&bytes).await.unwrap();
        let frame = read(&mut client.0, &Limits::default()).await.unwrap().unwrap();
        assert_eq!(frame.header.op_code == OpCode::Compressed, compressor.is_some());
        if compressor.is_some() {
            let compressed = Compressed::decode(&frame.bytes, &Limits::default()).unwrap();
            assert_eq!(Some(compressed.compressor()), compressor);
        }
        let plain = plain(&frame.bytes, &Limits::default()).unwrap();
        let (header, Message::Msg(reply)) = Message::decode(&plain, &Limits::default()).unwrap() else { panic!() };
        assert_eq!((header.response_to, reply.body), (42, &*rawdoc! { "n": 7 }));
    }
    let received = server.finish().unwrap();
    assert_eq!(received.iter().map(super::ReceivedRequest::compressor).collect::<Vec<_>>(), compressors);
}

fn batch(n: i32) -> Answer {
    rawdoc! { "n": n }.into()
}

/// Sends getMore as a client that accepts several replies.
async fn get_more(client: &mut Client) {
    let flags = Flags { exhaust_allowed: true, ..Flags::default() };
    client.send(flags, &rawdoc! { "getMore": 7_i64 }).await;
}

/// Each reply names the one before it, and all but the last one say that more follows. The connection goes on.
#[tokio::test]
async fn an_exhaust_cursor_has_several_replies() {
    let batches = vec![batch(1), batch(2).after(std::time::Duration::from_millis(1)), batch(3)];
    let (server, mut client) =
        start(Script::in_order().expect(Matcher::command("getMore"), Answer::Exhaust(batches))).await;
    get_more(&mut client).await;
    let mut response_to = 42;
    for (n, has_more) in [(1, true), (2, true), (3, false)] {
        let frame = read(&mut client.0, &Limits::default()).await.unwrap().unwrap();
        let (header, Message::Msg(reply)) = Message::decode(&frame.bytes, &Limits::default()).unwrap() else {
            panic!()
        };
        assert_eq!(
            (header.response_to, reply.body, reply.flags.more_to_come),
            (response_to, &*rawdoc! { "n": n }, has_more)
        );
        response_to = header.request_id;
    }
    assert_eq!(client.run(rawdoc! { "ping": 1 }).await, (42, rawdoc! { "ok": 1.0 }));
    assert!(server.finish().unwrap()[0].is_exhaust_allowed());
}

#[tokio::test]
async fn an_exhaust_cursor_ends_in_the_middle() {
    let batches = vec![batch(1), Answer::HangUp];
    let (_server, mut client) =
        start(Script::in_order().expect(Matcher::command("getMore"), Answer::Exhaust(batches))).await;
    get_more(&mut client).await;
    let frame = read(&mut client.0, &Limits::default()).await.unwrap().unwrap();
    let (_, Message::Msg(reply)) = Message::decode(&frame.bytes, &Limits::default()).unwrap() else { panic!() };
    assert!(reply.flags.more_to_come);
    assert!(read(&mut client.0, &Limits::default()).await.unwrap().is_none());
}

#[tokio::test]
async fn a_client_that_accepts_a_single_reply_gets_no_exhaust_cursor() {
    let answer = Answer::Exhaust(vec![batch(1), batch(2)]).after(std::time::Duration::from_millis(1));
    let (server, mut client) = start(Script::in_order().expect(Matcher::command("getMore"), answer)).await;
    let (_, refused) = client.run(rawdoc! { "getMore": 7_i64 }).await;
    assert_eq!(refused.get_str("errmsg").unwrap(), "the script answers getMore with several replies");
    let report = server.finish().unwrap_err().to_string();
    let line = "1. { \"getMore\": 7 }: EXPECTED AS AN EXHAUST CURSOR, but the client accepts a single reply";
    assert!(report.ends_with(line), "{report}");
}

/// A client would wait for a reply for ever.
#[tokio::test]
async fn an_exhaust_cursor_without_batches_is_refused() {
    let empty = || Answer::Exhaust(Vec::new());
    let within = Answer::Exhaust(vec![batch(1), empty().after(std::time::Duration::from_millis(1))]);
    for answer in [empty(), within.clone().after_election(0)] {
        let script = || Script::in_order().expect(Matcher::command("getMore"), answer.clone());
        let alone = ScriptedServer::start(Role::Standalone, script()).await.err();
        let of_set = ScriptedReplicaSet::start("rs", 1, script()).await.err();
        assert!(matches!((alone, of_set), (Some(Error::EmptyExhaust), Some(Error::EmptyExhaust))));
    }
    let (server, mut client) = start(Script::in_order()).await;
    for (answer, expected) in [
        (within, "the script answers getMore with Exhaust, and without an answer in it"),
        (Answer::Exhaust(vec![batch(1)]), "the script answers getMore with several replies"),
    ] {
        let _answering = server.autorespond(Matcher::command("getMore"), answer);
        let (_, refused) = client.run(rawdoc! { "getMore": 7_i64 }).await;
        assert_eq!(refused.get_str("errmsg").unwrap(), expected);
    }
}
