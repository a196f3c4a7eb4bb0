//! Expressions see the documents of the snapshot as they were written, and nothing else: no tombstone, no version that is newer, no
//! field of the engine. Their results are those over [`Local`](handfast_txn::Local).

use std::future::Future;
use std::sync::Arc;

use bson::{Bson, RawDocumentBuf, rawdoc};
use handfast_store::{
    Aggregate, BatchLimit, DocumentStore, Find, FindAndModify, IndexSpec, Insert, MemoryStore, Modification, Namespace,
    Sources, StoreExt, Update, UpdateSpec, UpdateStatement,
};
use handfast_txn::{Database, Error, TransactionOptions};

use crate::support::options;

fn texts() -> Namespace {
    Namespace::new("d", "texts").unwrap()
}

fn text(id: i32, text: &str) -> RawDocumentBuf {
    rawdoc! { "_id": id, "text": text, "tags": ["kept", text], "n": id }
}

/// Returns a database of each engine with the documents 1 and 3, and an index.
async fn databases() -> [Database; 2] {
    let memory = || MemoryStore::new(Sources::seeded(1));
    let percolator = Database::percolator(Arc::new(memory()), Sources::seeded(2), options()).unwrap();
    let databases = [Database::local(memory(), Sources::seeded(2)), percolator];
    for database in &databases {
        let documents = vec![text(1, "a"), text(3, "ccc")];
        database.insert(Insert::new(texts(), documents)).await.unwrap();
        database.create_index(&texts(), IndexSpec::new(rawdoc! { "n": 1 })).await.unwrap();
    }
    databases
}

async fn on_each<F: Future<Output = ()>>(test: impl Fn(Database) -> F) {
    for database in databases().await {
        println!("over the engine {}", database.name());
        test(database).await;
    }
}

fn expression(expression: RawDocumentBuf) -> RawDocumentBuf {
    rawdoc! { "$expr": expression }
}

/// Returns filters that all documents match, and that fail for one without `text` and `tags`.
fn strict() -> Vec<RawDocumentBuf> {
    vec![
        expression(rawdoc! { "$gt": [{ "$strLenCP": "$text" }, 0] }),
        expression(rawdoc! { "$eq": [{ "$size": "$tags" }, 2] }),
        expression(rawdoc! { "$in": ["kept", "$tags"] }),
        expression(rawdoc! { "$gt": [{ "$strLenBytes": "$text" }, 0] }),
        // Part of this filter can use an index.
        rawdoc! { "n": { "$gte": 0 }, "$expr": { "$gt": [{ "$strLenCP": "$text" }, 0] } },
        rawdoc! { "$or": [{ "n": 7 }, { "$expr": { "$gt": [{ "$strLenCP": "$text" }, 0] } }] },
        rawdoc! { "$and": [{ "$expr": { "$in": ["kept", "$tags"] } }, { "n": { "$lt": 100 } }] },
        rawdoc! { "$nor": [{ "$expr": { "$eq": [{ "$strLenCP": "$text" }, 0] } }] },
    ]
}

/// Returns filters that all documents match, as long as the engine's own field is hidden.
fn of_the_whole_document() -> Vec<RawDocumentBuf> {
    let fields = |of: &str| rawdoc! { "$eq": [{ "$size": { "$objectToArray": of } }, 4] };
    let names = |of: &str| {
        let in_order = rawdoc! { "$map": { "input": { "$objectToArray": of }, "in": "$$this.k" } };
        rawdoc! { "$eq": [in_order, ["_id", "text", "tags", "n"]] }
    };
    let bytes = |of: &str| rawdoc! { "$lt": [{ "$bsonSize": of }, 90] };
    let each = ["$$ROOT", "$$CURRENT"].into_iter().flat_map(|of| [fields(of), names(of), bytes(of)]);
    let merged = rawdoc! { "$objectToArray": { "$mergeObjects": ["$$ROOT", { "n": 0 }] } };
    let mut filters: Vec<_> = each.map(expression).collect();
    filters.push(expression(rawdoc! { "$eq": [{ "$size": merged }, 4] }));
    filters.push(expression(rawdoc! { "$eq": [{ "$type": "$_hf" }, "missing"] }));
    filters.push(expression(rawdoc! { "$eq": [{ "$type": { "$getField": "_hf" } }, "missing"] }));
    filters.push(rawdoc! { "_hf": { "$exists": false } });
    filters.push(rawdoc! { "_hf": null });
    filters.push(rawdoc! { "_hf.c": { "$exists": false }, "n": { "$gt": 0 } });
    filters.push(rawdoc! { "$nor": [{ "_hf.v": { "$gt": 0 } }] });
    filters
}

async fn ids(store: &dyn DocumentStore, filter: &RawDocumentBuf) -> Result<Vec<i32>, String> {
    let find = Find { sort: rawdoc! { "_id": 1 }, ..Find::new(texts(), filter.clone()) };
    let found = store.find_all(find).await.map_err(|error| error.to_string())?;
    Ok(found.iter().map(|document| document.get_i32("_id").unwrap()).collect())
}

/// Checks that each request with this filter finds these documents.
async fn matches(store: &dyn DocumentStore, filter: &RawDocumentBuf, expected: &[i32]) {
    let count = expected.len() as u64;
    assert_eq!(ids(store, filter).await.as_deref(), Ok(expected), "find {filter:?}");
    let counted = store.count_matching(&texts(), filter.clone()).await;
    assert_eq!(counted.map_err(|error| error.to_string()), Ok(count), "count {filter:?}");
    let change = rawdoc! { "$inc": { "n": 1 } };
    let changed = store.update_many(&texts(), filter.clone(), change.clone()).await;
    assert_eq!(changed.map(|outcome| outcome.matched).map_err(|error| error.to_string()), Ok(count), "{filter:?}");
    let update = UpdateSpec::Document(change);
    let modification =
        Modification::Update { update, upsert: false, returns: Default::default(), array_filters: Vec::new() };
    let request =
        FindAndModify { sort: rawdoc! { "_id": -1 }, ..FindAndModify::new(texts(), filter.clone(), modification) };
    let found = store.find_and_modify(request).await.map_err(|error| error.to_string()).unwrap();
    let last = found.value.map(|document| document.get_i32("_id").unwrap());
    assert_eq!(last.as_ref(), expected.last(), "find and modify {filter:?}");
    let pipeline = vec![rawdoc! { "$match": filter.clone() }, rawdoc! { "$count": "n" }];
    let mut cursor =
        store.aggregate(Aggregate::new(texts(), pipeline)).await.map_err(|error| error.to_string()).unwrap();
    let page = cursor.next_page(BatchLimit::REPLY).await.unwrap();
    assert_eq!(page.documents, [rawdoc! { "n": i32::try_from(count).unwrap() }], "aggregate {filter:?}");
}

#[tokio::test]
async fn a_deleted_document_is_not_evaluated() {
    on_each(|database| async move {
        database.insert_one(&texts(), text(2, "bb")).await.unwrap();
        assert!(database.delete_one(&texts(), rawdoc! { "_id": 2 }).await.unwrap());
        for filter in strict() {
            matches(&database, &filter, &[1, 3]).await;
            let tx = database.begin().await.unwrap();
            matches(&tx, &filter, &[1, 3]).await;
            tx.commit().await.unwrap();
        }
        for filter in strict() {
            assert_eq!(database.delete_many(&texts(), filter.clone()).await.unwrap(), 2, "delete {filter:?}");
            database.insert(Insert::new(texts(), vec![text(1, "a"), text(3, "ccc")])).await.unwrap();
        }
    })
    .await;
}

#[tokio::test]
async fn the_field_of_the_engine_is_not_seen() {
    on_each(|database| async move {
        for filter in of_the_whole_document() {
            matches(&database, &filter, &[1, 3]).await;
            let tx = database.begin().await.unwrap();
            matches(&tx, &filter, &[1, 3]).await;
            tx.commit().await.unwrap();
            assert_eq!(database.delete_many(&texts(), filter.clone()).await.unwrap(), 2, "delete {filter:?}");
            database.insert(Insert::new(texts(), vec![text(1, "a"), text(3, "ccc")])).await.unwrap();
        }
    })
    .await;
}

/// Expressions in projections and updates do not see the field either.
#[tokio::test]
async fn the_field_of_the_engine_is_in_no_result() {
    on_each(|database| async move {
        let fields = || rawdoc! { "$size": { "$objectToArray": "$$ROOT" } };
        let find = Find { projection: rawdoc! { "fields": fields() }, ..Find::new(texts(), rawdoc! { "_id": 1 }) };
        assert_eq!(database.find_all(find).await.unwrap(), [rawdoc! { "_id": 1, "fields": 4 }]);
        let change = UpdateSpec::Pipeline(vec![rawdoc! { "$set": { "n": fields() } }]);
        let all = UpdateStatement { multi: true, ..UpdateStatement::one(rawdoc! {}, change) };
        database.update(Update::new(texts(), vec![all])).await.unwrap();
        assert_eq!(database.count_matching(&texts(), rawdoc! { "n": 4 }).await.unwrap(), 2);
    })
    .await;
}

/// A query of a snapshot has one answer, whatever other transactions insert, change and delete; it fails only for a document of the
/// snapshot.
#[tokio::test]
async fn a_query_repeated_in_a_snapshot_has_the_same_answer() {
    on_each(|database| async move {
        let tx = database.begin().await.unwrap();
        let before: Vec<_> = all_strict(&tx).await;
        assert!(before.iter().all(|found| found.as_deref() == Ok(&[1, 3][..])), "{before:?}");
        // Others insert a document for which a strict filter fails, change one for which it does not, and delete one.
        database.insert_one(&texts(), rawdoc! { "_id": 9, "n": 9 }).await.unwrap();
        database
            .update_one(&texts(), rawdoc! { "_id": 1 }, rawdoc! { "$unset": { "text": 1, "tags": 1 } })
            .await
            .unwrap();
        database.delete_one(&texts(), rawdoc! { "_id": 3 }).await.unwrap();
        assert_eq!(all_strict(&tx).await, before);
        for filter in strict() {
            assert_eq!(tx.count_matching(&texts(), filter.clone()).await.unwrap(), 2, "{filter:?}");
        }
        tx.commit().await.unwrap();
        // A transaction that begins now sees these changes.
        let late = database.begin().await.unwrap();
        for found in all_strict(&late).await.into_iter().take(4) {
            assert!(found.is_err(), "{found:?}");
        }
    })
    .await;
}

async fn all_strict(store: &dyn DocumentStore) -> Vec<Result<Vec<i32>, String>> {
    let mut found = Vec::new();
    for filter in strict() {
        found.push(ids(store, &filter).await);
    }
    found
}

/// The snapshot has a document for which a filter fails, and the filter still fails after another client has corrected the
/// document.
#[tokio::test]
async fn an_error_of_a_snapshot_stays() {
    on_each(|database| async move {
        database.insert_one(&texts(), rawdoc! { "_id": 9, "n": 9 }).await.unwrap();
        let tx = database.begin().await.unwrap();
        let filter = strict().remove(0);
        ids(&tx, &filter).await.unwrap_err();
        database.update_one(&texts(), rawdoc! { "_id": 9 }, rawdoc! { "$set": { "text": "whole" } }).await.unwrap();
        ids(&tx, &filter).await.unwrap_err();
        assert_eq!(ids(&database, &filter).await.as_deref(), Ok(&[1, 3, 9][..]));
    })
    .await;
}

/// A serializable transaction must run again if its filter fails for a document when its reads are validated.
#[tokio::test]
async fn an_error_while_validating_is_a_conflict() {
    on_each(|database| async move {
        for filter in strict().into_iter().take(3) {
            let tx = database.begin_with(TransactionOptions::serializable()).await.unwrap();
            assert_eq!(ids(&tx, &filter).await.as_deref(), Ok(&[1, 3][..]));
            tx.insert_one(&Namespace::new("d", "other").unwrap(), rawdoc! {}).await.unwrap();
            database.insert_one(&texts(), rawdoc! { "_id": 9, "n": 9 }).await.unwrap();
            let error = tx.commit().await.unwrap_err();
            assert!(matches!(&error, Error::Conflict(_)), "{filter:?}: {error:?}");
            database.delete_one(&texts(), rawdoc! { "_id": 9 }).await.unwrap();
        }
    })
    .await;
}

/// A deletion beside a serializable reader causes no error either.
#[tokio::test]
async fn a_deletion_is_validated_without_an_error() {
    on_each(|database| async move {
        for filter in strict().into_iter().take(3) {
            database.insert_one(&texts(), text(5, "e")).await.unwrap();
            let tx = database.begin_with(TransactionOptions::serializable()).await.unwrap();
            assert_eq!(ids(&tx, &filter).await.as_deref(), Ok(&[1, 3, 5][..]));
            tx.insert_one(&Namespace::new("d", "other").unwrap(), rawdoc! {}).await.unwrap();
            database.delete_one(&texts(), rawdoc! { "_id": 5 }).await.unwrap();
            let error = tx.commit().await.unwrap_err();
            assert!(matches!(&error, Error::Conflict(_)), "{filter:?}: {error:?}");
        }
    })
    .await;
}

/// A document that is inserted where another one was deleted has the `_id` that was given.
#[tokio::test]
async fn what_is_inserted_again_has_its_own_id() {
    on_each(|database| async move {
        let given = [Bson::Int32(2), Bson::Double(2.0), Bson::Int64(2), Bson::Double(2.0)];
        for id in given {
            let document = RawDocumentBuf::try_from(bson::doc! { "_id": id.clone(), "text": "again" }).unwrap();
            let tx = database.begin().await.unwrap();
            tx.insert_one(&texts(), document.clone()).await.unwrap();
            assert_eq!(tx.find_one(&texts(), rawdoc! { "_id": 2 }).await.unwrap(), Some(document.clone()));
            tx.commit().await.unwrap();
            for filter in [rawdoc! { "_id": 2 }, rawdoc! { "text": "again" }] {
                assert_eq!(database.find_one(&texts(), filter).await.unwrap(), Some(document.clone()));
            }
            assert!(database.delete_one(&texts(), rawdoc! { "_id": 2 }).await.unwrap());
        }
        // The same holds within one transaction.
        database.insert_one(&texts(), rawdoc! { "_id": 7 }).await.unwrap();
        let tx = database.begin().await.unwrap();
        assert!(tx.delete_one(&texts(), rawdoc! { "_id": 7 }).await.unwrap());
        tx.insert_one(&texts(), rawdoc! { "_id": 7.0 }).await.unwrap();
        tx.commit().await.unwrap();
        let found = database.find_one(&texts(), rawdoc! { "_id": 7 }).await.unwrap();
        assert_eq!(found, Some(rawdoc! { "_id": 7.0 }));
    })
    .await;
}
