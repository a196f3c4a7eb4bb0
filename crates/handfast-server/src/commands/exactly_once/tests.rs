//! Updates that are made once: repeated, refused, in transactions; and updates in two steps that nobody finished.

use std::time::Duration;

use bson::oid::ObjectId;
use bson::{RawDocumentBuf, rawdoc};

use crate::testing::{
    ReplyFields, TestClient, TestServer, batch, check, check_refused, end, in_transaction, insert, labels,
};

fn token(number: u8) -> ObjectId {
    ObjectId::from_bytes([number; 12])
}

/// An update that counts a view of the page `/`.
fn view(number: u8) -> RawDocumentBuf {
    rawdoc! { "handfastApplyOnce": "pages", "document": { "_id": "/" }, "token": token(number), "update": { "$inc": { "views": 1 } } }
}

fn with(mut command: RawDocumentBuf, more: RawDocumentBuf) -> RawDocumentBuf {
    for field in &more {
        let (name, value) = field.unwrap();
        command.append(name, value);
    }
    command
}

async fn views(client: &mut TestClient) -> i32 {
    let found = batch(&client.run("d", rawdoc! { "find": "pages", "filter": { "_id": "/" } }).await);
    found.first().map_or(0, |page| page.int("views"))
}

#[tokio::test]
async fn an_update_is_made_once_for_each_token() {
    for mut server in TestServer::over_each_engine() {
        let mut client = server.connect();
        check_refused(&mut client, view(1), 4, "there is no document \"/\"").await;
        let upsert = || rawdoc! { "upsert": true };
        check(&mut client, with(view(1), upsert()), rawdoc! { "applied": true }).await;
        // The reply may be lost, and the command is sent again.
        check(&mut client, with(view(1), upsert()), rawdoc! { "applied": false }).await;
        check(&mut client, view(2), rawdoc! { "applied": true }).await;
        check(&mut client, view(2), rawdoc! { "applied": false }).await;
        assert_eq!(views(&mut client).await, 2);
        let guarded = |number, views: i32| with(view(number), rawdoc! { "guard": { "views": { "$lt": views } } });
        check_refused(&mut client, guarded(3, 2), 121, "does not match the guard").await;
        check(&mut client, guarded(3, 3), rawdoc! { "applied": true }).await;
        // It was made, so that the guard, which does not hold any more, does not matter.
        check(&mut client, guarded(3, 3), rawdoc! { "applied": false }).await;
        assert_eq!(views(&mut client).await, 3);
    }
}

/// Begins a transaction that inserts a visit, and counts the view in it; returns the reply.
async fn visit(client: &mut TestClient, number: i64, command: RawDocumentBuf) -> RawDocumentBuf {
    client.run("d", in_transaction(rawdoc! { "insert": "visits", "documents": [{}] }, number, true)).await;
    client.run("d", in_transaction(command, number, false)).await
}

async fn visits(client: &mut TestClient) -> i32 {
    client.run("d", rawdoc! { "count": "visits" }).await.int("n")
}

#[tokio::test]
async fn an_update_is_made_if_and_only_if_its_transaction_commits() {
    for mut server in TestServer::over_each_engine() {
        let (mut client, mut other) = (server.connect(), server.connect());
        insert(&mut client, "pages", &[rawdoc! { "_id": "/", "views": 0 }]).await;
        check(&mut client, view(1), rawdoc! { "applied": true }).await;
        for (number, end_command, expected) in [(1, "abortTransaction", 0), (2, "commitTransaction", 1)] {
            let reply = visit(&mut client, number, view(2)).await;
            assert!(reply.flag("applied"), "{reply:?}");
            let again = client.run("d", in_transaction(view(2), number, false)).await;
            assert!(!again.flag("applied"), "the transaction may send its own step twice: {again:?}");
            assert_eq!(views(&mut other).await, 1, "the transaction is open");
            assert_eq!(end(&mut client, end_command, number).await.double("ok"), 1.0);
            assert_eq!((views(&mut other).await, visits(&mut other).await), (1 + expected, expected));
        }
        // A driver does not know that its transaction was committed, and runs it again.
        let reply = visit(&mut client, 3, view(2)).await;
        assert_eq!((reply.int("code"), labels(&reply).len()), (256, 0), "{reply:?}");
        assert_eq!(end(&mut client, "commitTransaction", 3).await.int("code"), 251);
        // A step that is not made aborts the transaction, too.
        let refused = with(view(4), rawdoc! { "guard": { "views": 7 } });
        assert_eq!(visit(&mut client, 4, refused).await.int("code"), 121);
        assert_eq!(end(&mut client, "commitTransaction", 4).await.int("code"), 251);
        assert_eq!((views(&mut client).await, visits(&mut client).await), (2, 1));
    }
}

#[tokio::test]
async fn a_transaction_that_does_not_see_an_earlier_update_begins_again() {
    for mut server in TestServer::over_each_engine() {
        let (mut client, mut other) = (server.connect(), server.connect());
        insert(&mut client, "pages", &[rawdoc! { "_id": "/", "views": 0 }]).await;
        check(&mut client, view(1), rawdoc! { "applied": true }).await;
        client.run("d", in_transaction(rawdoc! { "insert": "visits", "documents": [{}] }, 1, true)).await;
        check(&mut other, view(2), rawdoc! { "applied": true }).await;
        let mut reply = client.run("d", in_transaction(view(2), 1, false)).await;
        if reply.double("ok") == 1.0 {
            reply = end(&mut client, "commitTransaction", 1).await;
        }
        let transient = vec!["TransientTransactionError".to_owned()];
        assert_eq!((reply.int("code"), labels(&reply)), (112, transient), "{reply:?}");
        assert_eq!(visit(&mut client, 2, view(2)).await.int("code"), 256);
        assert_eq!((views(&mut client).await, visits(&mut client).await), (2, 0));
    }
}

#[tokio::test]
async fn updates_in_two_steps_are_finished_once() {
    for mut server in TestServer::over_each_engine() {
        let mut client = server.connect();
        // A driver's ObjectId begins with the time in seconds.
        let now = u32::try_from(server.shared.sources.clock.now().timestamp_millis() / 1000).unwrap();
        let mut token = [7; 12];
        token[..4].copy_from_slice(&now.to_be_bytes());
        let left = rawdoc! { "_id": "/", "views": 0, "pending": [ObjectId::from_bytes(token)] };
        insert(&mut client, "pages", &[left]).await;
        let finish =
            |more| with(rawdoc! { "handfastFinishUpdates": "pages", "update": { "$inc": { "views": 1 } } }, more);
        let none = || rawdoc! { "finished": 0, "failed": 0, "more": false };
        check(&mut client, finish(rawdoc! {}), none()).await;
        check(&mut client, finish(rawdoc! { "pending": "other", "olderMillis": 0 }), none()).await;
        server.clock.advance(Duration::from_secs(3602));
        check(&mut client, finish(rawdoc! { "count": 1 }), rawdoc! { "finished": 1, "failed": 0, "more": true }).await;
        check(&mut client, finish(rawdoc! {}), none()).await;
        assert_eq!(views(&mut client).await, 1);
    }
}

#[tokio::test]
async fn wrong_arguments_are_refused_by_name() {
    let mut server = TestServer::transactional();
    let mut client = server.connect();
    let apply = |more| with(rawdoc! { "handfastApplyOnce": "pages" }, more);
    let named = |more| apply(with(rawdoc! { "document": { "_id": 1 }, "token": token(1) }, more));
    let finish = |more| with(rawdoc! { "handfastFinishUpdates": "pages" }, more);
    let inc = || rawdoc! { "$inc": { "n": 1 } };
    for (command, code, text) in [
        (apply(rawdoc! { "token": token(1), "update": inc() }), 40414, "handfastApplyOnce.document"),
        (apply(rawdoc! { "document": {}, "token": token(1), "update": inc() }), 40414, "document._id"),
        (apply(rawdoc! { "document": { "_id": 1, "n": 1 }, "token": token(1), "update": inc() }), 40415, "document.n"),
        (apply(rawdoc! { "document": { "_id": 1 }, "update": inc() }), 40414, "handfastApplyOnce.token"),
        (apply(rawdoc! { "document": { "_id": 1 }, "token": "1", "update": inc() }), 14, "token must be an ObjectId"),
        (named(rawdoc! {}), 40414, "handfastApplyOnce.update"),
        (named(rawdoc! { "update": [] }), 14, "handfastApplyOnce.update"),
        (named(rawdoc! { "update": { "n": 1 } }), 2, "update operators"),
        (named(rawdoc! { "update": {} }), 2, "update operators"),
        (named(rawdoc! { "update": { "$set": { "applied": [] } } }), 2, "must not touch applied"),
        (named(rawdoc! { "update": inc(), "guard": 1 }), 14, "handfastApplyOnce.guard"),
        (named(rawdoc! { "update": inc(), "upsert": 1 }), 14, "handfastApplyOnce.upsert"),
        (named(rawdoc! { "update": inc(), "upsert": true, "guard": {} }), 2, "exclude each other"),
        (finish(rawdoc! {}), 40414, "handfastFinishUpdates.update"),
        (finish(rawdoc! { "update": inc(), "olderMillis": -1 }), 51024, "olderMillis"),
        (finish(rawdoc! { "update": inc(), "pending": 1 }), 14, "handfastFinishUpdates.pending"),
        (finish(rawdoc! { "update": inc(), "count": 1001 }), 2, "count must be from 1 to 1000"),
        (rawdoc! { "handfastFinishUpdates": "system.views", "update": inc() }, 73, "Invalid system"),
    ] {
        check_refused(&mut client, command, code, text).await;
    }
    let reply = client.run("d", in_transaction(finish(rawdoc! { "update": inc() }), 1, true)).await;
    assert_eq!(reply.int("code"), 263, "{reply:?}");
}

#[tokio::test]
async fn an_update_needs_the_role_to_write() {
    let mut server = TestServer::guarded();
    server.add_user("admin", "root", &["root@admin"]).await;
    server.add_user("d", "reader", &["read@d"]).await;
    server.add_user("d", "writer", &["readWrite@d"]).await;
    for (user, expected) in [("reader", 13), ("writer", 0)] {
        let mut client = server.connect();
        client.log_in("d", user, user).await;
        let reply = client.run("d", with(view(1), rawdoc! { "upsert": true })).await;
        assert_eq!(reply.get_i32("code").unwrap_or(0), expected, "{user}: {reply:?}");
    }
}
