//! Filters with expressions: tombstones, newer versions and the hidden field never match and cause no error.

use bson::{RawDocumentBuf, rawdoc};
use handfast_mql::Code;
use handfast_store::{
    Aggregate, Count, Distinct, DocumentStore, Explain, Explained, Find, Insert, StoreExt, Update, UpdateSpec,
    UpdateStatement, Verbosity,
};
use handfast_txn::{Database, Error, TransactionOptions};

use crate::queries::all;
use crate::support::*;

/// Returns a bank with three accounts that have a name and tags; Bob and Joe of the seed, and a fourth account, are deleted.
async fn after_deletes() -> (Bank, Database) {
    let bank = Bank::of_the_seed().await;
    let database = bank.process();
    let account = |id: i32| rawdoc! { "_id": id, "name": "n".repeat(id as usize), "tags": [id], "balance": id };
    database.insert(Insert::new(accounts(), (1..5).map(account).collect())).await.unwrap();
    for id in [rawdoc! { "_id": "Bob" }, rawdoc! { "_id": "Joe" }, rawdoc! { "_id": 4 }] {
        assert_eq!(database.delete_many(&accounts(), id).await.unwrap(), 1);
    }
    database.flush().await.unwrap();
    (bank, database)
}

/// Returns expressions that fail on a document without the fields.
fn that_fail_on_a_tombstone() -> Vec<RawDocumentBuf> {
    vec![
        rawdoc! { "$expr": { "$eq": [{ "$strLenCP": "$name" }, 2] } },
        rawdoc! { "$expr": { "$in": [2, "$tags"] } },
        rawdoc! { "$expr": { "$and": [{ "$eq": [{ "$size": "$tags" }, 1] }, { "$eq": ["$balance", 2] }] } },
        rawdoc! { "$or": [{ "name": "nn" }, { "$expr": { "$eq": [{ "$size": "$tags" }, 5] } }] },
        rawdoc! { "$nor": [{ "$expr": { "$ne": [{ "$strLenCP": "$name" }, 2] } }] },
    ]
}

/// Returns expressions over the whole document, which are true of the second account alone.
fn of_the_whole_document() -> Vec<RawDocumentBuf> {
    let second = rawdoc! { "_id": 2, "name": "nn", "tags": [2], "balance": 2 };
    let bytes = i32::try_from(second.as_bytes().len()).unwrap();
    let literal = rawdoc! { "$literal": second };
    let fields = |of: &str| rawdoc! { "$size": { "$objectToArray": of } };
    let is_second = rawdoc! { "$eq": ["$balance", 2] };
    vec![
        rawdoc! { "$expr": { "$eq": ["$$ROOT", literal.clone()] } },
        rawdoc! { "$expr": { "$eq": ["$$CURRENT", literal] } },
        rawdoc! { "$expr": { "$and": [is_second.clone(), { "$eq": [{ "$bsonSize": "$$ROOT" }, bytes] }] } },
        rawdoc! { "$expr": { "$and": [is_second, { "$eq": [fields("$$ROOT"), 4] }] } },
        rawdoc! { "balance": 2, "$expr": { "$eq": [{ "$type": "$_hf" }, "missing"] } },
        rawdoc! { "balance": 2, "_hf": { "$exists": false } },
        rawdoc! { "balance": 2, "_hf": null, "_hf.del": { "$ne": true }, "_hf.c": { "$not": { "$gt": 0 } } },
    ]
}

/// Checks every request that has a filter, with a filter that matches the second account alone.
async fn matches_the_second(database: &Database, filter: RawDocumentBuf) {
    let found = database.find_all(Find::new(accounts(), filter.clone())).await;
    let found = found.unwrap_or_else(|error| panic!("{filter:?}: {error}"));
    assert_eq!(found.iter().map(|found| found.get_i32("_id").unwrap()).collect::<Vec<_>>(), [2], "{filter:?}");
    assert_eq!(database.count(Count::new(accounts(), filter.clone())).await.unwrap(), 1, "{filter:?}");
    let distinct = Distinct {
        namespace: accounts(),
        key: "balance".to_owned(),
        filter: filter.clone(),
        hint: None,
        collation: None,
    };
    assert_eq!(database.distinct(distinct).await.unwrap(), [bson::RawBson::Int32(2)], "{filter:?}");
    let pipeline = vec![rawdoc! { "$match": filter.clone() }, rawdoc! { "$count": "n" }];
    let mut cursor = database.aggregate(Aggregate::new(accounts(), pipeline)).await.unwrap();
    let page = cursor.next_page(handfast_store::BatchLimit::REPLY).await.unwrap();
    assert_eq!(page.documents, [rawdoc! { "n": 1 }], "{filter:?}");
    let spec = UpdateSpec::Document(rawdoc! { "$set": { "balance": 2 } });
    let many = UpdateStatement { multi: true, ..UpdateStatement::one(filter.clone(), spec) };
    let outcome = database.update(Update::new(accounts(), vec![many])).await.unwrap();
    assert_eq!((outcome.matched, outcome.errors.len()), (1, 0), "{filter:?}");
}

#[tokio::test]
async fn a_deleted_document_is_not_evaluated() {
    let (_bank, database) = after_deletes().await;
    for filter in that_fail_on_a_tombstone() {
        matches_the_second(&database, filter).await;
    }
}

#[tokio::test]
async fn the_hidden_field_is_not_evaluated() {
    let (_bank, database) = after_deletes().await;
    for filter in of_the_whole_document() {
        matches_the_second(&database, filter).await;
    }
}

/// Inserts, changes and deletes since the snapshot affect neither its answers nor its errors. A document of the snapshot that the rest of
/// the filter excludes stays excluded after another client has changed it.
#[tokio::test]
async fn a_find_repeated_in_a_snapshot_answers_the_same() {
    for filter in that_fail_on_a_tombstone().into_iter().chain(of_the_whole_document()) {
        let (_bank, database) = after_deletes().await;
        database.insert_one(&accounts(), rawdoc! { "_id": 9, "kind": "other" }).await.unwrap();
        let filter = rawdoc! { "$and": [filter, { "tags": { "$gt": 0 } }] };
        let tx = database.begin().await.unwrap();
        let find = Find::new(accounts(), filter.clone());
        let first = tx.find_all(find.clone()).await.unwrap();
        assert_eq!(first.len(), 1, "{filter:?}");
        database.insert_one(&accounts(), rawdoc! { "_id": 7 }).await.unwrap();
        database
            .update_one(&accounts(), rawdoc! { "_id": 3 }, rawdoc! { "$unset": { "tags": 1, "name": 1 } })
            .await
            .unwrap();
        database.update_one(&accounts(), rawdoc! { "_id": 9 }, rawdoc! { "$set": { "kind": "same" } }).await.unwrap();
        database.delete_one(&accounts(), rawdoc! { "_id": 2 }).await.unwrap();
        let again = tx.find_all(find).await.unwrap_or_else(|error| panic!("{filter:?}: {error}"));
        assert_eq!(again, first, "{filter:?}");
    }
}

/// An error on a document of the snapshot is returned to the caller.
#[tokio::test]
async fn an_error_on_a_visible_document_is_returned() {
    let (_bank, database) = after_deletes().await;
    database.insert_one(&accounts(), rawdoc! { "_id": 7 }).await.unwrap();
    let filter = rawdoc! { "$expr": { "$eq": [{ "$strLenCP": "$name" }, 2] } };
    let error = database.find_all(Find::new(accounts(), filter)).await.unwrap_err();
    assert_eq!(error.code(), Code(34471), "{error}");
}

/// When a transaction's reads are validated, a document on which the filter fails may be one that matched: the transaction runs again.
#[tokio::test]
async fn an_error_while_validating_is_a_conflict() {
    let (_bank, database) = after_deletes().await;
    let tx = database.begin_with(TransactionOptions::serializable()).await.unwrap();
    let filter = rawdoc! { "$expr": { "$eq": [{ "$strLenCP": "$name" }, 2] } };
    assert_eq!(tx.find_all(Find::new(accounts(), filter)).await.unwrap().len(), 1);
    tx.insert_one(&accounts(), rawdoc! { "_id": "result", "name": "of the find" }).await.unwrap();
    database.insert_one(&accounts(), rawdoc! { "_id": 7 }).await.unwrap();
    let error = tx.commit().await.unwrap_err();
    assert!(matches!(error, Error::Conflict(_)), "{error}");
}

/// An explanation describes the request to the store, which never fails on the store's documents.
#[tokio::test]
async fn explain_does_not_evaluate_what_is_deleted() {
    let (_bank, database) = after_deletes().await;
    for filter in that_fail_on_a_tombstone() {
        let explained = Explained::Find(Find::new(accounts(), filter.clone()));
        let explain = Explain { explained, verbosity: Verbosity::ExecutionStats };
        database.explain(explain).await.unwrap_or_else(|error| panic!("{filter:?}: {error}"));
    }
}

/// A snapshot of the engine gives the same answers: a query omits the rows that it only has to examine.
#[tokio::test]
async fn a_snapshot_of_the_engine_answers_so_too() {
    let (bank, _) = after_deletes().await;
    let snapshot = crate::queries::snapshot_over(&bank, bank.store.clone()).await;
    for filter in that_fail_on_a_tombstone().into_iter().chain(of_the_whole_document()) {
        assert_eq!(all(&*snapshot, Find::new(accounts(), filter.clone())).await.unwrap().len(), 1, "{filter:?}");
    }
}
