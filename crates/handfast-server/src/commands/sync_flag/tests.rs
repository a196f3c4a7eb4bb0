//! Main documents and the copies of their fields: changed, deleted, inserted, swept, audited; in transactions.

use std::time::Duration;

use bson::oid::ObjectId;
use bson::{RawArrayBuf, RawDocumentBuf, rawdoc};

use crate::testing::{
    ReplyFields, TestClient, TestServer, batch, check, check_refused, end, in_transaction, insert, labels,
};

fn token(number: u8) -> ObjectId {
    ObjectId::from_bytes([number; 12])
}

/// Declares that comments have the names of their users, and the initials.
fn open() -> RawDocumentBuf {
    let initial = rawdoc! { "$substrCP": ["$name", 0, 1] };
    let deleted = rawdoc! { "set": { "userName": "somebody" } };
    let link = rawdoc! { "collection": "comments", "key": "user", "fields": { "name": "userName" }, "computed": { "userInitial": initial }, "onDelete": deleted };
    rawdoc! { "handfastOpenSyncFlag": "users", "links": [link] }
}

fn rename(number: u8, name: &str) -> RawDocumentBuf {
    rawdoc! { "handfastSetSynced": "users", "document": { "_id": 1 }, "token": token(number), "update": { "$set": { "name": name } } }
}

fn comment(id: i32) -> RawDocumentBuf {
    rawdoc! { "handfastInsertSynced": "users", "collection": "comments", "document": { "_id": id, "user": 1, "text": "hello" } }
}

fn delete() -> RawDocumentBuf {
    rawdoc! { "handfastDeleteSynced": "users", "document": { "_id": 1 } }
}

fn synced(version: i64) -> RawDocumentBuf {
    rawdoc! { "version": version, "synced": true }
}

/// Inserts the user John, who has written a comment.
async fn john(client: &mut TestClient) {
    check(client, open(), rawdoc! {}).await;
    insert(client, "users", &[rawdoc! { "_id": 1, "name": "John" }]).await;
    check(client, comment(9), rawdoc! { "_id": 9, "synced": true }).await;
}

/// Returns the names and the initials in the comments.
async fn names(client: &mut TestClient) -> Vec<String> {
    let found = batch(&client.run("d", rawdoc! { "find": "comments", "sort": { "_id": 1 } }).await);
    let name = |comment: &RawDocumentBuf| {
        format!("{} {}", comment.get_str("userName").unwrap_or("-"), comment.get_str("userInitial").unwrap_or("-"))
    };
    found.iter().map(name).collect()
}

/// Returns how many copies have a flag, and how many are out of date without one.
async fn audit(client: &mut TestClient) -> (i32, i32) {
    let reply = client.run("d", rawdoc! { "handfastAuditSynced": "users" }).await;
    assert_eq!(reply.double("ok"), 1.0, "{reply:?}");
    (reply.int("inFlight"), reply.int("stale"))
}

#[tokio::test]
async fn a_change_reaches_the_copies() {
    for mut server in TestServer::over_each_engine() {
        let mut client = server.connect();
        john(&mut client).await;
        assert_eq!(names(&mut client).await, ["John J"]);
        // Each reply may be lost, and the command is sent again.
        for _ in 0..2 {
            check(&mut client, open(), rawdoc! {}).await;
            check(&mut client, rename(1, "Mary"), synced(1)).await;
            check(&mut client, comment(10), rawdoc! { "_id": 10, "synced": true }).await;
        }
        assert_eq!(names(&mut client).await, ["Mary M", "Mary M"]);
        check(&mut client, rename(2, "Ann"), synced(2)).await;
        // A copy of an earlier request does not bring the earlier name back.
        check(&mut client, rename(1, "Mary"), synced(2)).await;
        assert_eq!(names(&mut client).await, ["Ann A", "Ann A"]);
        assert_eq!(audit(&mut client).await, (0, 0));
    }
}

#[tokio::test]
async fn a_step_that_is_not_made_is_an_error() {
    for mut server in TestServer::over_each_engine() {
        let mut client = server.connect();
        check_refused(&mut client, rename(1, "Mary"), 4, "no links of d.users are recorded").await;
        check(&mut client, open(), rawdoc! {}).await;
        check_refused(&mut client, rename(1, "Mary"), 4, "there is no document 1").await;
        check_refused(&mut client, comment(9), 4, "there is no main document 1").await;
        insert(&mut client, "users", &[rawdoc! { "_id": 1, "name": "John" }]).await;
        let mut guarded = rename(1, "Mary");
        guarded.append(bson::raw::cstr!("guard"), rawdoc! { "name": "Ann" });
        check_refused(&mut client, guarded, 121, "does not match the guard").await;
        let name = batch(&client.run("d", rawdoc! { "find": "users" }).await)[0].text("name").to_owned();
        assert_eq!(name, "John");
    }
}

#[tokio::test]
async fn a_delete_reaches_the_copies() {
    for mut server in TestServer::over_each_engine() {
        let mut client = server.connect();
        john(&mut client).await;
        check(&mut client, delete(), rawdoc! { "deleted": true, "synced": true }).await;
        check(&mut client, delete(), rawdoc! { "deleted": false, "synced": true }).await;
        assert_eq!(names(&mut client).await, ["somebody -"]);
        assert_eq!(client.run("d", rawdoc! { "count": "users" }).await.int("n"), 0);
    }
}

#[tokio::test]
async fn other_links_than_the_declared_ones_are_refused() {
    let mut server = TestServer::transactional();
    let mut client = server.connect();
    john(&mut client).await;
    let link = rawdoc! { "collection": "comments", "key": "user", "fields": { "name": "author" } };
    let other = rawdoc! { "handfastOpenSyncFlag": "users", "links": [link] };
    check_refused(&mut client, other, 2, "records other settings").await;
}

#[tokio::test]
async fn a_transaction_sets_the_flag_and_the_copies_follow() {
    for mut server in TestServer::over_each_engine() {
        let (mut client, mut other) = (server.connect(), server.connect());
        john(&mut client).await;
        for (number, end_command, name) in [(1, "abortTransaction", "John J"), (2, "commitTransaction", "Mary M")] {
            client.run("d", in_transaction(rawdoc! { "insert": "log", "documents": [{}] }, number, true)).await;
            for _ in 0..2 {
                let reply = client.run("d", in_transaction(rename(1, "Mary"), number, false)).await;
                assert_eq!((reply.long("version"), reply.flag("synced")), (1, false), "{reply:?}");
            }
            let reply = client.run("d", in_transaction(comment(10), number, false)).await;
            assert!(!reply.flag("synced"), "{reply:?}");
            assert_eq!(names(&mut other).await, ["John J"], "the transaction is open");
            assert_eq!(end(&mut client, end_command, number).await.double("ok"), 1.0);
            if number == 1 {
                assert_eq!(names(&mut other).await, ["John J"]);
                continue;
            }
            assert_eq!(audit(&mut other).await, (1, 0), "the first comment is still by John");
            // The same command outside of the transaction carries the change.
            check(&mut other, rename(1, "Mary"), synced(1)).await;
            assert_eq!(names(&mut other).await, [name, name]);
        }
        // A driver does not know that its transaction was committed, and runs it again.
        for (number, step) in (3..).zip([rename(1, "Mary"), comment(10)]) {
            client.run("d", in_transaction(rawdoc! { "insert": "log", "documents": [{}] }, number, true)).await;
            let reply = client.run("d", in_transaction(step, number, false)).await;
            assert_eq!((reply.int("code"), labels(&reply).len()), (256, 0), "{reply:?}");
            assert_eq!(end(&mut client, "commitTransaction", number).await.int("code"), 251);
        }
        assert_eq!(client.run("d", rawdoc! { "count": "log" }).await.int("n"), 1);
    }
}

#[tokio::test]
async fn a_delete_in_a_transaction_is_made_once() {
    for mut server in TestServer::over_each_engine() {
        let mut client = server.connect();
        john(&mut client).await;
        for (number, end_command) in [(1, "abortTransaction"), (2, "commitTransaction")] {
            client.run("d", in_transaction(rawdoc! { "insert": "log", "documents": [{}] }, number, true)).await;
            let reply = client.run("d", in_transaction(delete(), number, false)).await;
            assert!(reply.flag("deleted") && !reply.flag("synced"), "{reply:?}");
            assert_eq!(end(&mut client, end_command, number).await.double("ok"), 1.0);
            assert_eq!(names(&mut client).await, ["John J"]);
        }
        let again = async |client: &mut TestClient, number| {
            client.run("d", in_transaction(rawdoc! { "insert": "log", "documents": [{}] }, number, true)).await;
            client.run("d", in_transaction(delete(), number, false)).await.int("code")
        };
        assert_eq!(again(&mut client, 3).await, 256);
        check(&mut client, delete(), rawdoc! { "deleted": true, "synced": true }).await;
        assert_eq!(names(&mut client).await, ["somebody -"]);
        assert_eq!(again(&mut client, 4).await, 4);
        assert_eq!(client.run("d", rawdoc! { "count": "log" }).await.int("n"), 1);
    }
}

#[tokio::test]
async fn a_change_that_was_left_behind_is_swept() {
    for mut server in TestServer::over_each_engine() {
        let mut client = server.connect();
        john(&mut client).await;
        // A transaction whose client died after the commit.
        client.run("d", in_transaction(rename(1, "Mary"), 1, true)).await;
        assert_eq!(end(&mut client, "commitTransaction", 1).await.double("ok"), 1.0);
        let sweep = || rawdoc! { "handfastSweepSynced": "users" };
        check(&mut client, sweep(), rawdoc! { "swept": 0, "failed": 0, "more": false }).await;
        server.clock.advance(Duration::from_secs(3600));
        check(&mut client, sweep(), rawdoc! { "swept": 1, "failed": 0, "more": false }).await;
        assert_eq!(names(&mut client).await, ["Mary M"]);
        check(&mut client, sweep(), rawdoc! { "swept": 0, "failed": 0, "more": false }).await;
    }
}

#[tokio::test]
async fn an_audit_lists_copies_that_are_out_of_date() {
    for mut server in TestServer::over_each_engine() {
        let mut client = server.connect();
        john(&mut client).await;
        check(&mut client, rename(1, "Mary"), synced(1)).await;
        let statement = rawdoc! { "q": { "_id": 9 }, "u": { "$set": { "userName": "Eve" } } };
        client.run("d", rawdoc! { "update": "comments", "updates": [statement] }).await;
        let finding = rawdoc! {
            "collection": "comments", "_id": 9, "main": 1, "why": "different", "found": { "userName": "Eve" }, "expected": { "userName": "Mary" },
        };
        let expected = rawdoc! { "copies": 1, "inFlight": 0, "stale": 1, "findings": [finding] };
        check(&mut client, rawdoc! { "handfastAuditSynced": "users" }, expected).await;
    }
}

#[tokio::test]
async fn wrong_arguments_are_refused_by_name() {
    let mut server = TestServer::transactional();
    let mut client = server.connect();
    let links = |link: RawDocumentBuf| rawdoc! { "handfastOpenSyncFlag": "users", "links": [link] };
    let link = |more: RawDocumentBuf| {
        let mut link = rawdoc! { "collection": "comments", "key": "user" };
        for field in &more {
            let (name, value) = field.unwrap();
            link.append(name, value);
        }
        links(link)
    };
    let name = || rawdoc! { "name": "userName" };
    let set = |more: RawDocumentBuf| {
        let mut set = rawdoc! { "handfastSetSynced": "users" };
        for field in &more {
            let (name, value) = field.unwrap();
            set.append(name, value);
        }
        set
    };
    for (command, code, text) in [
        (rawdoc! { "handfastOpenSyncFlag": "users" }, 40414, "handfastOpenSyncFlag.links"),
        (rawdoc! { "handfastOpenSyncFlag": "users", "links": RawArrayBuf::new() }, 2, "without links"),
        (rawdoc! { "handfastOpenSyncFlag": "users", "links": [1] }, 14, "links.0"),
        (links(rawdoc! { "key": "user", "fields": name() }), 40414, "links.collection"),
        (links(rawdoc! { "collection": "comments", "fields": name() }), 40414, "links.key"),
        (links(rawdoc! { "collection": "system.views", "key": "user", "fields": name() }), 73, "Invalid system"),
        (link(rawdoc! { "fields": { "name": 1 } }), 14, "fields.name of a link"),
        (link(rawdoc! { "fields": { "name": "user" } }), 2, "by which copies are found"),
        (link(rawdoc! { "computed": { "a": { "$rand": {} } } }), 2, "not on time or chance"),
        (link(rawdoc! { "computed": { "a": { "$none": 1 } } }), 2, "is not an expression"),
        (link(rawdoc! { "fields": name(), "onDelete": "drop" }), 2, "onDelete of a link must be"),
        (link(rawdoc! { "fields": name(), "onDelete": { "set": {}, "unset": {} } }), 2, "onDelete of a link must be"),
        (link(rawdoc! { "fields": name(), "onDelete": { "set": { "other": 1 } } }), 2, "no field of a copy"),
        (link(rawdoc! { "fields": name(), "database": "e" }), 40415, "links.database"),
        (
            rawdoc! { "handfastOpenSyncFlag": "users", "links": [{ "collection": "c", "key": "u", "fields": name() }], "tokensMax": 0 },
            2,
            "tokens_max",
        ),
        (set(rawdoc! { "token": token(1), "update": { "$set": {} } }), 40414, "handfastSetSynced.document"),
        (set(rawdoc! { "document": { "_id": 1 }, "update": { "$set": {} } }), 40414, "handfastSetSynced.token"),
        (set(rawdoc! { "document": { "_id": 1 }, "token": token(1) }), 40414, "handfastSetSynced.update"),
        (
            rawdoc! { "handfastInsertSynced": "users", "collection": "comments", "document": { "user": 1 } },
            40414,
            "document._id",
        ),
        (
            rawdoc! { "handfastInsertSynced": "users", "document": { "_id": 1 } },
            40414,
            "handfastInsertSynced.collection",
        ),
        (rawdoc! { "handfastDeleteSynced": "users" }, 40414, "handfastDeleteSynced.document"),
        (rawdoc! { "handfastSweepSynced": "users", "abandonedAfterMillis": "1h" }, 14, "abandonedAfterMillis"),
        (rawdoc! { "handfastAuditSynced": "users", "count": 0 }, 2, "count must be from 1 to 1000"),
    ] {
        check_refused(&mut client, command, code, text).await;
    }
    john(&mut client).await;
    let update =
        |update: RawDocumentBuf| set(rawdoc! { "document": { "_id": 1 }, "token": token(1), "update": update });
    check_refused(&mut client, update(rawdoc! { "name": "Mary" }), 2, "update operators").await;
    check_refused(&mut client, update(rawdoc! { "$set": { "syncing": 1 } }), 2, "must not touch syncing").await;
    let elsewhere = rawdoc! { "handfastInsertSynced": "users", "collection": "log", "document": { "_id": 1 } };
    check_refused(&mut client, elsewhere, 2, "log").await;
    for (number, command) in
        (1..).zip([rawdoc! { "handfastSweepSynced": "users" }, rawdoc! { "handfastAuditSynced": "users" }, open()])
    {
        let reply = client.run("d", in_transaction(command, number, true)).await;
        assert_eq!(reply.int("code"), 263, "{reply:?}");
    }
}

/// A user who may write to one database may also write the settings there.
#[tokio::test]
async fn links_lead_to_no_collection_that_the_client_may_not_use() {
    let mut server = TestServer::transactional();
    let mut client = server.connect();
    for (collection, code) in [("system.users", 13), ("system.views", 73)] {
        let link = rawdoc! { "collection": collection, "key": "user", "fields": { "name": "user" } };
        let reply = client.run("admin", rawdoc! { "handfastOpenSyncFlag": "people", "links": [link] }).await;
        assert_eq!(reply.int("code"), code, "{reply:?}");
    }
    john(&mut client).await;
    let statement = rawdoc! { "q": { "_id": "sync-flag" }, "u": { "$set": { "settings.links.0.database": "other" } } };
    let reply = client.run("d", rawdoc! { "update": "users.settings", "updates": [statement] }).await;
    assert_eq!(reply.int("n"), 1, "{reply:?}");
    server.clock.advance(Duration::from_secs(11));
    let commands = [
        rename(1, "Mary"),
        delete(),
        comment(11),
        rawdoc! { "handfastSweepSynced": "users" },
        rawdoc! { "handfastAuditSynced": "users" },
    ];
    for command in commands {
        check_refused(&mut client, command, 13, "uses the collections of its own database").await;
    }
}

#[tokio::test]
async fn copies_are_audited_by_the_role_to_read() {
    let mut server = TestServer::guarded();
    server.add_user("admin", "root", &["root@admin"]).await;
    server.add_user("d", "reader", &["read@d"]).await;
    server.add_user("d", "writer", &["readWrite@d"]).await;
    let mut writer = server.connect();
    writer.log_in("d", "writer", "writer").await;
    john(&mut writer).await;
    let mut reader = server.connect();
    reader.log_in("d", "reader", "reader").await;
    assert_eq!(audit(&mut reader).await, (0, 0));
    check_refused(&mut reader, rename(1, "Mary"), 13, "not authorized").await;
}
