//! The answers to clients at the limits of the server and of its store.

use anyhow::Result;
use bson::{Document, doc};

use crate::support::{FREE_PORT, Scratch, Serve, exchange, handfast};

#[test]
fn a_value_longer_than_any_key_of_an_index_is_found_nowhere() -> Result<()> {
    let scratch = Scratch::new("long-values")?;
    let serve = Serve::start(&mut handfast(&scratch, &FREE_PORT))?;
    let run = |mut command: Document| -> Result<Document> {
        command.insert("$db", "db");
        let reply = serve.command(command)?;
        assert_eq!(reply.get_f64("ok")?, 1.0, "{reply:.200}");
        assert!(!reply.contains_key("writeErrors"), "{reply:.200}");
        Ok(reply)
    };
    run(doc! { "createIndexes": "c", "indexes": [{ "key": { "s": 1 }, "name": "s" }] })?;
    run(doc! { "insert": "c", "documents": [{ "_id": "a", "s": "a" }, { "_id": "y", "s": "y" }] })?;
    let long = || "x".repeat(70_000);
    for field in ["s", "_id"] {
        let count = |condition: bson::Bson| -> Result<i32> {
            let mut query = Document::new();
            query.insert(field, condition);
            Ok(run(doc! { "count": "c", "query": query })?.get_i32("n")?)
        };
        assert_eq!(count(long().into())?, 0);
        assert_eq!(count(doc! { "$gt": long() }.into())?, 1);
        assert_eq!(count(doc! { "$gte": long() }.into())?, 1);
        assert_eq!(count(doc! { "$lt": long() }.into())?, 1);
        assert_eq!(count(doc! { "$lte": long() }.into())?, 1);
        assert_eq!(count(doc! { "$in": [long(), "a"] }.into())?, 1);
        assert_eq!(count(doc! { "$ne": long() }.into())?, 2);
    }
    let filter = || doc! { "s": long() };
    let update = run(doc! { "update": "c", "updates": [{ "q": filter(), "u": { "$set": { "a": 1 } } }] })?;
    assert_eq!(update.get_i32("n")?, 0);
    assert_eq!(run(doc! { "delete": "c", "deletes": [{ "q": filter(), "limit": 0 }] })?.get_i32("n")?, 0);
    assert!(run(doc! { "distinct": "c", "key": "s", "query": filter() })?.get_array("values")?.is_empty());
    let modified = run(doc! { "findAndModify": "c", "query": filter(), "update": { "$set": { "a": 1 } } })?;
    assert_eq!(modified.get("value"), Some(&bson::Bson::Null));
    let lookup = doc! { "from": "c", "localField": "l", "foreignField": "s", "as": "found" };
    let pipeline =
        [doc! { "$match": { "s": { "$gt": long() } } }, doc! { "$set": { "l": long() } }, doc! { "$lookup": lookup }];
    run(doc! { "aggregate": "c", "pipeline": pipeline.to_vec(), "cursor": {} })?;
    let bounds = doc! { "find": "c", "hint": "s", "min": { "s": long() }, "max": { "s": "z" } };
    let found = run(bounds)?;
    assert_eq!(found.get_document("cursor")?.get_array("firstBatch")?.len(), 1);
    let session = bson::Binary { subtype: bson::spec::BinarySubtype::Uuid, bytes: vec![1; 16] };
    let found = run(doc! {
        "find": "c", "filter": filter(), "lsid": { "id": session }, "txnNumber": 1_i64, "autocommit": false,
        "startTransaction": true,
    })?;
    assert!(found.get_document("cursor")?.get_array("firstBatch")?.is_empty());
    Ok(())
}

#[test]
fn cursors_of_a_connection_are_bounded_as_configured() -> Result<()> {
    let scratch = Scratch::new("cursors")?;
    for (most, expected) in [("1", Some("raise max-cursors-per-connection")), ("2", None)] {
        let serve = Serve::start(handfast(&scratch, &FREE_PORT).args(["--max-cursors-per-connection", most]))?;
        let documents: Vec<_> = (0..3).map(|n| doc! { "n": n }).collect();
        serve.command(doc! { "insert": "c", "documents": documents, "$db": "db" })?;
        let find = doc! { "find": "c", "batchSize": 1, "$db": "db" };
        let connection = serve.connect()?;
        assert!(exchange(&connection, &find)?.get_document("cursor").is_ok());
        let reply = exchange(&connection, &find)?;
        match expected {
            Some(advice) => assert!(reply.get_str("errmsg")?.contains(advice), "{reply}"),
            None => assert!(reply.get_document("cursor").is_ok(), "{reply}"),
        }
        serve.signal("TERM")?;
        serve.wait()?;
    }
    Ok(())
}
