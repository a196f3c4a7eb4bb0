//! Trees that change as a whole: written once, on top of a version, read at any version; in transactions; swept.

use std::time::Duration;

use bson::oid::ObjectId;
use bson::{RawArrayBuf, RawDocument, RawDocumentBuf, rawdoc};

use crate::testing::{ReplyFields, TestClient, TestServer, batch, check, check_refused, end, in_transaction};

fn token(number: u8) -> ObjectId {
    ObjectId::from_bytes([number; 12])
}

fn with(mut command: RawDocumentBuf, more: RawDocumentBuf) -> RawDocumentBuf {
    for field in &more {
        let (name, value) = field.unwrap();
        command.append(name, value);
    }
    command
}

/// A version in which the lamp has this price.
fn price(number: u8, price: i32) -> RawDocumentBuf {
    let lamp = rawdoc! { "item": "lamp", "content": { "price": price } };
    rawdoc! { "handfastWriteTree": "items", "tree": "catalogue", "token": token(number), "nodes": [lamp] }
}

fn written(version: i64, written: bool) -> RawDocumentBuf {
    rawdoc! { "version": version, "written": written }
}

fn read(more: RawDocumentBuf) -> RawDocumentBuf {
    with(rawdoc! { "handfastReadTree": "items", "tree": "catalogue" }, more)
}

fn lamp(version: i64, price: i32) -> RawDocumentBuf {
    rawdoc! { "item": "lamp", "version": version, "content": { "price": price } }
}

fn tree(version: i64, nodes: impl IntoIterator<Item = RawDocumentBuf>) -> RawDocumentBuf {
    rawdoc! { "exists": true, "version": version, "root": {}, "nodes": RawArrayBuf::from_iter(nodes) }
}

fn newest(reply: &RawDocument) -> i64 {
    reply.get_document("errInfo").unwrap_or_else(|_| panic!("{reply:?}")).long("newest")
}

#[tokio::test]
async fn a_version_is_written_once_and_read_as_a_whole() {
    for mut server in TestServer::over_each_engine() {
        let mut client = server.connect();
        check(&mut client, read(rawdoc! {}), rawdoc! { "exists": false }).await;
        assert!(batch(&client.run("d", rawdoc! { "listCollections": 1 }).await).is_empty(), "a reader creates nothing");
        let desk = rawdoc! { "item": "desk", "content": { "price": 90 } };
        let lamp_30 = rawdoc! { "item": "lamp", "content": { "price": 30 } };
        let first = rawdoc! { "handfastWriteTree": "items", "tree": "catalogue", "token": token(1), "root": { "children": ["lamp", "desk"] }, "nodes": [lamp_30, desk] };
        check(&mut client, first.clone(), written(1, true)).await;
        // The reply may be lost, and the command is sent again.
        check(&mut client, first, written(1, false)).await;
        check(&mut client, price(2, 25), written(2, true)).await;
        check(&mut client, price(1, 7), written(1, false)).await;
        let root = || rawdoc! { "children": ["lamp", "desk"] };
        let desk = || rawdoc! { "item": "desk", "version": 1_i64, "content": { "price": 90 } };
        let at = |version: i64, price: i32| rawdoc! { "exists": true, "version": version, "root": root(), "nodes": [lamp(version, price), desk()] };
        let both = || rawdoc! { "items": ["lamp", "desk", "chair"] };
        check(&mut client, read(both()), at(2, 25)).await;
        check(&mut client, read(with(both(), rawdoc! { "version": 1 })), at(1, 30)).await;
        let all = client.run("d", read(rawdoc! {})).await;
        assert_eq!(all.get_array("nodes").unwrap().into_iter().count(), 2, "{all:?}");
        check(&mut client, read(rawdoc! { "version": 3 }), rawdoc! { "exists": false }).await;
        let remove = rawdoc! { "handfastWriteTree": "items", "tree": "catalogue", "token": token(3), "nodes": [{ "item": "desk", "remove": true }] };
        check(&mut client, remove, written(3, true)).await;
        let expected = rawdoc! { "exists": true, "version": 3_i64, "root": root(), "nodes": [lamp(2, 25)] };
        check(&mut client, read(rawdoc! {}), expected).await;
        check(&mut client, rawdoc! { "handfastReadTree": "items", "tree": "other" }, rawdoc! { "exists": false }).await;
    }
}

#[tokio::test]
async fn a_change_is_made_on_top_of_the_version_that_it_is_based_on() {
    for mut server in TestServer::over_each_engine() {
        let mut client = server.connect();
        let based = |number, value, base: i64| with(price(number, value), rawdoc! { "base": base });
        check(&mut client, based(1, 30, 0), written(1, true)).await;
        for base in [0, 2] {
            let reply = client.run("d", based(2, 25, base)).await;
            assert_eq!((reply.int("code"), newest(&reply)), (112, 1), "{reply:?}");
        }
        check(&mut client, based(2, 25, 1), written(2, true)).await;
        // It was made, although another version is the newest by now.
        check(&mut client, based(2, 25, 1), written(2, false)).await;
        check(&mut client, read(rawdoc! {}), tree(2, [lamp(2, 25)])).await;
        assert_eq!(client.run("d", rawdoc! { "count": "items.writes" }).await.int("n"), 0);
    }
}

#[tokio::test]
async fn trees_of_a_collection_have_versions_of_their_own() {
    for mut server in TestServer::over_each_engine() {
        let mut client = server.connect();
        check(&mut client, price(1, 30), written(1, true)).await;
        let other = |item: &str| rawdoc! { "handfastWriteTree": "items", "tree": 7, "token": token(2), "nodes": [{ "item": item, "content": {} }] };
        check(&mut client, other("cup"), written(1, true)).await;
        check(&mut client, price(3, 25), written(2, true)).await;
        let taken = rawdoc! { "handfastWriteTree": "items", "tree": 7, "token": token(3), "nodes": [] };
        check_refused(&mut client, taken, 2, "another document of d.items has the _id").await;
        let expected = rawdoc! { "exists": true, "version": 1_i64, "root": {}, "nodes": [{ "item": "cup", "version": 1_i64, "content": {} }] };
        check(&mut client, rawdoc! { "handfastReadTree": "items", "tree": 7.0 }, expected).await;
    }
}

#[tokio::test]
async fn a_transaction_reads_the_tree_of_its_snapshot() {
    for mut server in TestServer::over_each_engine() {
        let (mut client, mut other) = (server.connect(), server.connect());
        check(&mut client, price(1, 30), written(1, true)).await;
        for (number, end_command) in [(1, "abortTransaction"), (2, "commitTransaction")] {
            let before = client.run("d", in_transaction(read(rawdoc! {}), number, true)).await;
            let next = 10 + i32::try_from(number).unwrap();
            check(&mut other, price(u8::try_from(next).unwrap(), next), written(number + 1, true)).await;
            let after = client.run("d", in_transaction(read(rawdoc! {}), number, false)).await;
            assert_eq!((after.long("version"), &after), (number, &before));
            assert_eq!(end(&mut client, end_command, number).await.double("ok"), 1.0);
        }
        let reply = client.run("d", in_transaction(price(2, 25), 3, true)).await;
        assert_eq!(reply.int("code"), 263, "{reply:?}");
    }
}

#[tokio::test]
async fn what_a_writer_has_left_is_swept() {
    for mut server in TestServer::over_each_engine() {
        let mut client = server.connect();
        check(&mut client, price(1, 30), written(1, true)).await;
        let now = server.shared.sources.clock.now();
        let write = rawdoc! { "_id": { "tree": "catalogue", "version": 2_i64 }, "write": token(9), "tree": "catalogue", "version": 2_i64, "versionBase": 1_i64, "versionTs": now };
        let node = rawdoc! { "itemId": "lamp", "version": 2_i64, "tree": "catalogue", "price": 1 };
        for (collection, document) in [("items.writes", write), ("items", node)] {
            let reply = client.run("d", rawdoc! { "insert": collection, "documents": [document] }).await;
            assert_eq!(reply.int("n"), 1, "{reply:?}");
        }
        let sweep = || rawdoc! { "handfastSweepTree": "items", "tree": "catalogue" };
        check(&mut client, sweep(), rawdoc! { "swept": 0, "failed": 0, "more": false }).await;
        check(&mut client, read(rawdoc! {}), tree(1, [lamp(1, 30)])).await;
        server.clock.advance(Duration::from_secs(61));
        check(&mut client, sweep(), rawdoc! { "swept": 1, "failed": 0, "more": false }).await;
        check(&mut client, price(2, 25), written(3, true)).await;
        check(&mut client, read(rawdoc! {}), tree(3, [lamp(3, 25)])).await;
    }
}

#[tokio::test]
async fn wrong_arguments_are_refused_by_name() {
    let mut server = TestServer::transactional();
    let mut client = server.connect();
    let write = |more| with(rawdoc! { "handfastWriteTree": "items" }, more);
    let nodes = |node: RawDocumentBuf| write(rawdoc! { "tree": "t", "token": token(1), "nodes": [node] });
    for (command, code, text) in [
        (write(rawdoc! { "token": token(1) }), 40414, "handfastWriteTree.tree"),
        (write(rawdoc! { "tree": "t" }), 40414, "handfastWriteTree.token"),
        (write(rawdoc! { "tree": "t", "token": "1" }), 14, "token must be an ObjectId"),
        (write(rawdoc! { "tree": null, "token": token(1) }), 2, "cannot be the item id of a root"),
        (write(rawdoc! { "tree": [], "token": token(1) }), 2, "cannot be the item id of a root"),
        (write(rawdoc! { "tree": "t", "token": token(1), "base": 0.5 }), 2, "must be an integer"),
        (write(rawdoc! { "tree": "t", "token": token(1), "root": 1 }), 14, "handfastWriteTree.root"),
        (write(rawdoc! { "tree": "t", "token": token(1), "root": { "version": 1 } }), 2, "is kept by the pattern"),
        (write(rawdoc! { "tree": "t", "token": token(1), "nodes": {} }), 14, "handfastWriteTree.nodes"),
        (nodes(rawdoc! { "content": {} }), 40414, "nodes.item"),
        (nodes(rawdoc! { "item": "a" }), 2, "must have either content or remove"),
        (nodes(rawdoc! { "item": "a", "content": {}, "remove": true }), 2, "must have either content or remove"),
        (nodes(rawdoc! { "item": "a", "content": 1 }), 14, "nodes.content"),
        (nodes(rawdoc! { "item": "a", "content": { "itemId": 1 } }), 2, "is kept by the pattern"),
        (nodes(rawdoc! { "item": "t", "content": {} }), 2, "the root is written by the commit"),
        (nodes(rawdoc! { "item": "a", "content": {}, "price": 1 }), 40415, "nodes.price"),
        (rawdoc! { "handfastReadTree": "items" }, 40414, "handfastReadTree.tree"),
        (rawdoc! { "handfastReadTree": "items", "tree": "t", "version": "1" }, 14, "handfastReadTree.version"),
        (rawdoc! { "handfastReadTree": "items", "tree": "t", "items": "a" }, 14, "handfastReadTree.items"),
        (rawdoc! { "handfastReadTree": "items", "tree": null }, 2, "cannot be the item id of a root"),
        (rawdoc! { "handfastSweepTree": "items", "tree": "t", "count": 0 }, 2, "count must be"),
    ] {
        check_refused(&mut client, command, code, text).await;
    }
}

#[tokio::test]
async fn a_tree_that_does_not_fit_into_a_reply_is_read_in_parts() {
    let mut server = TestServer::transactional();
    let mut client = server.connect();
    let text = "x".repeat(6 << 20);
    for (number, item) in (1..).zip(["a", "b", "c"]) {
        let node = rawdoc! { "item": item, "content": { "text": text.as_str() } };
        let write = rawdoc! { "handfastWriteTree": "items", "tree": "t", "token": token(number), "nodes": [node] };
        check(&mut client, write, written(i64::from(number), true)).await;
    }
    let all = rawdoc! { "handfastReadTree": "items", "tree": "t" };
    check_refused(&mut client, all.clone(), 10334, "name the items").await;
    let reply = client.run("d", with(all, rawdoc! { "items": ["a", "b"] })).await;
    assert_eq!(reply.get_array("nodes").unwrap().into_iter().count(), 2);
}

/// A user who may write to one database may also write the settings there.
#[tokio::test]
async fn settings_lead_to_no_collection_that_the_client_may_not_use() {
    let mut server = TestServer::transactional();
    let mut client = server.connect();
    let reply = client.run("admin", price(1, 30)).await;
    assert_eq!(reply.double("ok"), 1.0, "{reply:?}");
    let elsewhere = || rawdoc! { "collection": "c", "database": "other" };
    let users = || rawdoc! { "collection": "system.users" };
    for (field, other, named) in [
        ("writes", "pins", users()),
        ("pins", "writes", users()),
        ("writes", "pins", elsewhere()),
        ("pins", "writes", elsewhere()),
    ] {
        let mut set = RawDocumentBuf::new();
        for (field, named) in [(field, &named), (other, &rawdoc! { "collection": "usual" })] {
            set.append(bson::raw::CString::try_from(format!("settings.{field}")).unwrap(), named);
        }
        let statement = rawdoc! { "q": { "_id": "versioned-tree" }, "u": { "$set": set } };
        let reply = client.run("admin", rawdoc! { "update": "items.settings", "updates": [statement] }).await;
        assert_eq!(reply.int("n"), 1, "{reply:?}");
        server.clock.advance(Duration::from_secs(11));
        for command in [price(2, 25), read(rawdoc! {}), rawdoc! { "handfastSweepTree": "items", "tree": "catalogue" }] {
            let reply = client.run("admin", command).await;
            assert_eq!(reply.int("code"), 13, "{field} {named:?}: {reply:?}");
        }
    }
}

#[tokio::test]
async fn a_tree_is_used_with_the_roles_of_its_database() {
    let mut server = TestServer::guarded();
    server.add_user("admin", "root", &["root@admin"]).await;
    server.add_user("d", "reader", &["read@d"]).await;
    server.add_user("d", "writer", &["readWrite@d"]).await;
    let clients: Vec<(&str, i32)> = vec![("reader", 13), ("writer", 0)];
    for (user, expected) in clients {
        let mut client: TestClient = server.connect();
        client.log_in("d", user, user).await;
        let reply = client.run("d", price(1, 30)).await;
        assert_eq!(reply.get_i32("code").unwrap_or(0), expected, "{user}: {reply:?}");
        assert_eq!(client.run("d", read(rawdoc! {})).await.double("ok"), 1.0);
    }
}
