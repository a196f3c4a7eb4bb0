//! Default collations of collections through the commands.

use bson::raw::{RawDocumentBuf, cstr};
use bson::rawdoc;

use crate::testing::{
    ReplyFields, TestClient, TestServer, batch, check, check_refused, end, in_transaction, insert, write_error,
};

fn folded() -> RawDocumentBuf {
    rawdoc! { "locale": "en", "strength": 2 }
}

/// Creates a collection `c` that compares without capital letters, with documents of `s`: A, a, B.
async fn created(server: &mut TestServer) -> TestClient {
    let mut client = server.connect();
    check(&mut client, rawdoc! { "create": "c", "collation": folded() }, rawdoc! {}).await;
    let documents = ["A", "a", "B"].iter().zip(1..).map(|(s, id)| rawdoc! { "_id": id, "s": *s });
    insert(&mut client, "c", &documents.collect::<Vec<_>>()).await;
    client
}

fn simply(mut command: RawDocumentBuf) -> RawDocumentBuf {
    command.append(cstr!("collation"), rawdoc! { "locale": "simple" });
    command
}

async fn count(client: &mut TestClient, command: RawDocumentBuf) -> usize {
    batch(&client.run("d", command).await).len()
}

#[tokio::test]
async fn requests_have_the_default_unless_they_name_a_collation() {
    for mut server in [TestServer::checked(), TestServer::transactional()] {
        let mut client = created(&mut server).await;
        let find = rawdoc! { "find": "c", "filter": { "s": "a" } };
        assert_eq!(count(&mut client, find.clone()).await, 2);
        assert_eq!(count(&mut client, simply(find)).await, 1);
        let aggregate = rawdoc! { "aggregate": "c", "pipeline": [{ "$match": { "s": "a" } }], "cursor": {} };
        assert_eq!(count(&mut client, aggregate.clone()).await, 2);
        assert_eq!(count(&mut client, simply(aggregate)).await, 1);
        let group = rawdoc! { "aggregate": "c", "pipeline": [{ "$group": { "_id": "$s" } }], "cursor": {} };
        assert_eq!(count(&mut client, group.clone()).await, 2);
        assert_eq!(count(&mut client, simply(group)).await, 3);
        let number = rawdoc! { "count": "c", "query": { "s": "a" } };
        check(&mut client, number.clone(), rawdoc! { "n": 2 }).await;
        check(&mut client, simply(number), rawdoc! { "n": 1 }).await;
        let distinct = rawdoc! { "distinct": "c", "key": "s" };
        check(&mut client, distinct.clone(), rawdoc! { "values": ["A", "B"] }).await;
        check(&mut client, simply(distinct), rawdoc! { "values": ["A", "B", "a"] }).await;
        let update = |statement| rawdoc! { "update": "c", "updates": [statement] };
        let all = || rawdoc! { "q": { "s": "a" }, "u": { "$inc": { "n": 1 } }, "multi": true };
        check(&mut client, update(all()), rawdoc! { "n": 2, "nModified": 2 }).await;
        check(&mut client, update(simply(all())), rawdoc! { "n": 1, "nModified": 1 }).await;
        let modify =
            rawdoc! { "findAndModify": "c", "query": { "s": "b" }, "update": { "$set": { "n": 9 } }, "new": true };
        let reply = client.run("d", modify.clone()).await;
        assert_eq!(reply.get_document("value").unwrap().int("n"), 9);
        let reply = client.run("d", simply(modify)).await;
        assert_eq!(reply.get("value").unwrap(), Some(bson::RawBsonRef::Null));
        let bulk = rawdoc! {
            "bulkWrite": 1, "nsInfo": [{ "ns": "d.c" }],
            "ops": [{ "update": 0, "filter": { "s": "b" }, "updateMods": { "$set": { "m": 1 } } }],
        };
        assert_eq!(client.run("admin", bulk).await.int("nModified"), 1);
        let delete = |statement| rawdoc! { "delete": "c", "deletes": [statement] };
        check(&mut client, delete(simply(rawdoc! { "q": { "s": "b" }, "limit": 1 })), rawdoc! { "n": 0 }).await;
        check(&mut client, delete(rawdoc! { "q": { "s": "a" }, "limit": 0 }), rawdoc! { "n": 2 }).await;
    }
}

#[tokio::test]
async fn statements_of_a_command_have_collations_of_their_own() {
    for mut server in [TestServer::checked(), TestServer::transactional()] {
        let mut client = created(&mut server).await;
        let set = |s: &str, n: i32| rawdoc! { "q": { "s": s }, "u": { "$set": { "n": n } }, "multi": true };
        let statements = [set("a", 1), simply(set("a", 2)), set("none", 3), simply(set("B", 4))];
        let upserts = rawdoc! { "q": { "_id": 7 }, "u": { "$set": { "s": "C" } }, "upsert": true };
        let mut updates = bson::RawArrayBuf::new();
        statements.into_iter().chain([upserts]).for_each(|statement| updates.push(statement));
        let reply = client.run("d", rawdoc! { "update": "c", "updates": updates }).await;
        assert_eq!((reply.int("n"), reply.int("nModified")), (5, 4), "{reply:?}");
        let upserted = reply.get_array("upserted").unwrap().into_iter().next().unwrap().unwrap();
        assert_eq!(upserted.as_document().unwrap(), rawdoc! { "index": 4, "_id": 7 }.as_ref());
        let find = rawdoc! { "find": "c", "filter": { "_id": { "$lt": 7 } }, "projection": { "n": 1, "_id": 0 } };
        let numbers: Vec<_> = batch(&client.run("d", find).await).iter().map(|found| found.int("n")).collect();
        assert_eq!(numbers, [1, 2, 4]);
        // The position of an error is that in the command, and an ordered command stops there.
        let bad = rawdoc! { "q": {}, "u": { "$none": 1 } };
        let mut updates = bson::RawArrayBuf::new();
        [set("a", 5), simply(bad), set("a", 6)].into_iter().for_each(|statement| updates.push(statement));
        let reply = client.run("d", rawdoc! { "update": "c", "updates": updates.clone() }).await;
        assert_eq!((write_error(&reply).int("index"), reply.int("n")), (1, 2));
        let reply = client.run("d", rawdoc! { "update": "c", "updates": updates, "ordered": false }).await;
        assert_eq!((write_error(&reply).int("index"), reply.int("n")), (1, 4));
        let deletes = [rawdoc! { "q": { "s": "b" }, "limit": 0 }, simply(rawdoc! { "q": { "s": "a" }, "limit": 0 })];
        let mut all = bson::RawArrayBuf::new();
        deletes.into_iter().for_each(|statement| all.push(statement));
        check(&mut client, rawdoc! { "delete": "c", "deletes": all }, rawdoc! { "n": 2 }).await;
    }
}

#[tokio::test]
async fn indexes_have_the_default_unless_they_name_a_collation() {
    for mut server in [TestServer::checked(), TestServer::transactional()] {
        let mut client = created(&mut server).await;
        let index = |name: &str| rawdoc! { "key": { "s": 1 }, "name": name };
        let unique = rawdoc! { "key": { "u": 1 }, "name": "u", "unique": true, "sparse": true };
        let create = rawdoc! { "createIndexes": "c", "indexes": [index("own"), simply(index("bytes")), unique] };
        assert_eq!(client.run("d", create.clone()).await.int("numIndexesAfter"), 4);
        // Again they are the same.
        assert_eq!(client.run("d", create).await.int("numIndexesAfter"), 4);
        let listed = batch(&client.run("d", rawdoc! { "listIndexes": "c" }).await);
        let strengths: Vec<_> = listed
            .iter()
            .map(|index| {
                (index.text("name"), index.get_document("collation").ok().map(|collation| collation.int("strength")))
            })
            .collect();
        assert_eq!(strengths, [("_id_", Some(2)), ("own", Some(2)), ("bytes", None), ("u", Some(2))]);
        let id = |collation| rawdoc! { "createIndexes": "c", "indexes": [{ "key": { "_id": 1 }, "name": "_id_", "collation": collation }] };
        assert_eq!(client.run("d", id(folded())).await.int("numIndexesAfter"), 4);
        let other = id(rawdoc! { "locale": "simple" });
        check_refused(&mut client, other, 2, "The _id index must have the same collation as the collection").await;
        insert(&mut client, "c", &[rawdoc! { "_id": 10, "u": "x" }]).await;
        let reply = client.run("d", rawdoc! { "insert": "c", "documents": [{ "_id": 11, "u": "X" }] }).await;
        assert_eq!(write_error(&reply).int("code"), 11_000);
        let collections = batch(&client.run("d", rawdoc! { "listCollections": 1 }).await);
        for shown in [collections[0].get_document("options").unwrap(), collections[0].get_document("idIndex").unwrap()]
        {
            let collation = shown.get_document("collation").unwrap();
            assert_eq!((collation.text("locale"), collation.int("strength")), ("en", 2));
            assert_eq!(collation.text("alternate"), "non-ignorable");
        }
        // What replaces the collection keeps its default and the indexes as they were.
        let out = rawdoc! { "aggregate": "c", "pipeline": [{ "$match": {} }, { "$out": "c" }], "cursor": {} };
        client.run("d", out).await;
        assert_eq!(batch(&client.run("d", rawdoc! { "listIndexes": "c" }).await), listed);
        assert_eq!(count(&mut client, rawdoc! { "find": "c", "filter": { "s": "a" } }).await, 2);
    }
}

#[tokio::test]
async fn stages_read_other_collections_under_the_collation_of_the_aggregation() {
    let mut server = TestServer::checked();
    let mut client = created(&mut server).await;
    insert(&mut client, "bytes", &[rawdoc! { "_id": 1, "s": "A" }, rawdoc! { "_id": 2, "s": "a" }]).await;
    let lookup = |on: &str, from: &str| {
        let lookup = rawdoc! { "from": from, "localField": "s", "foreignField": "s", "as": "f" };
        let pipeline = [rawdoc! { "$match": { "_id": 1 } }, rawdoc! { "$lookup": lookup }, rawdoc! { "$unwind": "$f" }];
        let mut stages = bson::RawArrayBuf::new();
        pipeline.into_iter().for_each(|stage| stages.push(stage));
        rawdoc! { "aggregate": on, "pipeline": stages, "cursor": {} }
    };
    assert_eq!(count(&mut client, lookup("c", "bytes")).await, 2);
    assert_eq!(count(&mut client, lookup("bytes", "c")).await, 1);
    // A view has its own collation, not that of its source, and a stage reads it only under that.
    check(&mut client, rawdoc! { "create": "v", "viewOn": "c" }, rawdoc! {}).await;
    assert_eq!(count(&mut client, rawdoc! { "find": "v", "filter": { "s": "a" } }).await, 1);
    assert_eq!(count(&mut client, lookup("bytes", "v")).await, 1);
    check_refused(&mut client, lookup("c", "v"), 167, "Cannot override a view's default collation").await;
}

#[tokio::test]
async fn a_transaction_has_the_default() {
    let mut server = TestServer::transactional();
    let mut client = created(&mut server).await;
    let find = |collection: &str| rawdoc! { "find": collection, "filter": { "s": "a" } };
    let insert = rawdoc! { "insert": "c", "documents": [{ "_id": 4, "s": "A" }] };
    let reply = client.run("d", in_transaction(insert, 1, true)).await;
    assert_eq!(reply.get_i32("n").unwrap_or(0), 1, "{reply:?} {:?}", bson::Document::try_from(&*reply));
    assert_eq!(count(&mut client, in_transaction(find("c"), 1, false)).await, 3);
    let update =
        rawdoc! { "update": "c", "updates": [{ "q": { "s": "a" }, "u": { "$set": { "n": 1 } }, "multi": true }] };
    assert_eq!(client.run("d", in_transaction(update, 1, false)).await.int("n"), 3);
    let distinct = client.run("d", in_transaction(rawdoc! { "distinct": "c", "key": "s" }, 1, false)).await;
    assert_eq!(distinct.get_array("values").unwrap().into_iter().count(), 2);
    // A collection that the transaction creates, with an index.
    let create = rawdoc! { "create": "made", "collation": folded() };
    assert_eq!(client.run("d", in_transaction(create, 1, false)).await.double("ok"), 1.0);
    let indexes = rawdoc! { "createIndexes": "made", "indexes": [
        { "key": { "s": 1 }, "name": "own" }, { "key": { "s": 1 }, "name": "bytes", "collation": { "locale": "simple" } },
    ] };
    assert_eq!(client.run("d", in_transaction(indexes, 1, false)).await.double("ok"), 1.0);
    let documents = rawdoc! { "insert": "made", "documents": [{ "_id": 1, "s": "A" }, { "_id": 2, "s": "a" }] };
    assert_eq!(client.run("d", in_transaction(documents, 1, false)).await.int("n"), 2);
    assert_eq!(count(&mut client, in_transaction(find("made"), 1, false)).await, 2);
    assert_eq!(end(&mut client, "commitTransaction", 1).await.double("ok"), 1.0);
    assert_eq!((count(&mut client, find("c")).await, count(&mut client, find("made")).await), (3, 2));
    let listed = batch(&client.run("d", rawdoc! { "listIndexes": "made" }).await);
    let with: Vec<_> = listed.iter().map(|index| index.get_document("collation").is_ok()).collect();
    assert_eq!(with, [true, true, false]);
}

#[tokio::test]
async fn what_a_default_does_not_allow_is_refused() {
    for mut server in [TestServer::checked(), TestServer::transactional()] {
        let mut client = created(&mut server).await;
        let text = "a string in _id is not supported in a collection with a default collation";
        for write in [
            rawdoc! { "insert": "c", "documents": [{ "_id": "x" }] },
            rawdoc! { "insert": "c", "documents": [{ "_id": { "a": ["x"] } }], "bypassDocumentValidation": true },
            rawdoc! { "update": "c", "updates": [{ "q": { "_id": "x" }, "u": { "$set": { "n": 1 } }, "upsert": true }] },
        ] {
            let reply = client.run("d", write.clone()).await;
            let error = write_error(&reply);
            assert_eq!(error.int("code"), 238, "{write:?}");
            assert!(error.text("errmsg").contains(text), "{error:?}");
        }
        insert(&mut client, "c", &[rawdoc! { "_id": { "a": [5] } }]).await;
        check_refused(&mut client, rawdoc! { "create": "c" }, 48, "already exists with different options").await;
        check_refused(&mut client, rawdoc! { "create": "x", "collation": { "locale": "xx" } }, 2, "xx").await;
        // The simple collation is none.
        check(&mut client, rawdoc! { "create": "y", "collation": { "locale": "simple" } }, rawdoc! {}).await;
        insert(&mut client, "y", &[rawdoc! { "_id": "x" }]).await;
        // A validator compares under the default.
        let create = rawdoc! { "create": "z", "collation": folded(), "validator": { "s": { "$in": ["yes", "no"] } } };
        check(&mut client, create, rawdoc! {}).await;
        insert(&mut client, "z", &[rawdoc! { "_id": 1, "s": "YES" }]).await;
        let reply = client.run("d", rawdoc! { "insert": "z", "documents": [{ "_id": 2, "s": "maybe" }] }).await;
        assert_eq!(write_error(&reply).int("code"), 121);
    }
    let mut server = TestServer::over_single_documents();
    let mut client = server.connect();
    let create = rawdoc! { "create": "x", "collation": folded() };
    check_refused(&mut client, create, 238, "no default collation").await;
}
