//! Unique keys as rows: conflicts, the costs of a key, and the removal of keys with their collection.

use std::sync::Arc;
use std::time::Duration;

use bson::rawdoc;
use handfast_mql::Code;
use handfast_store::decorator::{Metered, Operation};
use handfast_store::{
    AtomicBatch, BatchWrite, CreateIndexes, DocumentStore, DocumentWrite, Find, Hint, IndexSpec, Namespace,
    RenameCollection, StoreExt,
};
use handfast_txn::{Engine, Percolator};

use crate::support::*;
use crate::users::*;

#[tokio::test]
async fn a_second_document_under_a_key_is_refused() {
    let bank = with_index().await;
    let database = bank.process();
    let refused = database.insert_one(&users(), rawdoc! { "_id": "Eve", "mail": "a" }).await.unwrap_err();
    assert_eq!(
        refused.message(),
        "E11000 duplicate key error collection: bank.users index: mail_1 dup key: { mail: \"a\" }"
    );
    let change = rawdoc! { "$set": { "mail": "b" } };
    assert_eq!(code(database.update_one(&users(), rawdoc! { "_id": "Bob" }, change).await), Code::DuplicateKey);
    agree(&bank, "refused").await;
    // A key moves to another document within a transaction, and is free when its document is deleted.
    let tx = database.begin().await.unwrap();
    for (name, mail) in [("Bob", "x"), ("Joe", "a"), ("Bob", "b")] {
        tx.update_one(&users(), rawdoc! { "_id": name }, rawdoc! { "$set": { "mail": mail } }).await.unwrap();
    }
    tx.delete_one(&users(), rawdoc! { "_id": "Ann" }).await.unwrap();
    tx.insert_one(&users(), rawdoc! { "_id": "Eve", "mail": "c" }).await.unwrap();
    tx.commit().await.unwrap();
    database.flush().await.unwrap();
    agree(&bank, "swapped").await;
    assert!(is_listed(&bank).await);
}

/// Neither of two transactions has seen the other: one has a conflict, and finds the other's document when it runs again.
#[tokio::test]
async fn one_of_two_documents_with_the_same_key_is_refused() {
    let bank = with_index().await;
    let (one, other) = (bank.process(), bank.process());
    let (one, other) = (one.begin().await.unwrap(), other.begin().await.unwrap());
    one.insert_one(&users(), rawdoc! { "_id": 1, "mail": "x" }).await.unwrap();
    other.insert_one(&users(), rawdoc! { "_id": 2, "mail": "x" }).await.unwrap();
    one.commit().await.unwrap();
    assert!(is_conflict(&other.commit().await.map(drop)));
    let again = bank.process().insert_one(&users(), rawdoc! { "_id": 2, "mail": "x" }).await;
    assert_eq!(code(again), Code::DuplicateKey);
    agree(&bank, "one won").await;
}

/// A key costs a row: as many writes as a document. A change that leaves the key as it is costs nothing more.
#[tokio::test]
async fn a_key_costs_two_writes() {
    let bank = with_index().await;
    let metered = Arc::new(Metered::new(bank.store.clone(), bank.sources.clock.clone()));
    let database = bank.process_over(metered.clone());
    let of = |operation| metered.report().iter().find(|of| of.operation == operation).map_or(0, |of| of.started);
    let writes = || of(Operation::Insert) + of(Operation::Update);
    let mut last = 0;
    let mut since = async || {
        database.flush().await.unwrap();
        let (all, before) = (writes(), last);
        last = all;
        all - before
    };
    database.insert_one(&users(), rawdoc! { "_id": "Eve", "mail": "e" }).await.unwrap();
    assert_eq!(since().await, 4);
    for (change, writes) in [(rawdoc! { "$set": { "age": 1 } }, 2), (rawdoc! { "$set": { "mail": "f" } }, 6)] {
        database.update_one(&users(), rawdoc! { "_id": "Eve" }, change).await.unwrap();
        assert_eq!(since().await, writes);
    }
    database.delete_one(&users(), rawdoc! { "_id": "Eve" }).await.unwrap();
    assert_eq!(since().await, 4);
    database.insert_one(&accounts(), rawdoc! { "_id": "Eve" }).await.unwrap();
    assert_eq!(since().await, 2);
}

/// The version with the value is still in a lock, and its transaction has committed. A reader of the value finds it, and
/// a transaction that wants the key is refused.
#[tokio::test]
async fn a_locked_index_value_is_found_by_queries() {
    let bank = with_index().await;
    let store = stepped(bank.store.clone());
    let database = bank.process_over(store.clone());
    let change = tokio::spawn(async move {
        let tx = database.begin().await?;
        tx.find_all(Find::new(accounts(), rawdoc! { "_id": "Bob" })).await?;
        tx.update_one(&accounts(), rawdoc! { "_id": "Bob" }, rawdoc! { "$set": { "balance": 1 } }).await?;
        tx.update_one(&users(), rawdoc! { "_id": "Joe" }, rawdoc! { "$set": { "mail": "new" } }).await?;
        tx.commit().await.map(drop)
    });
    let change = Stepped { store, payment: change };
    let is_locked = async || {
        let joe = bank.store.find_one(&users(), rawdoc! { "_id": "Joe" }).await.unwrap().unwrap();
        joe.get_document("_hf").unwrap().get("lock").unwrap().is_some()
    };
    // The change runs until the primary, Bob's account, has committed; the other rows stay locked.
    change.until(&bank, |hidden| hidden[0].contains_key("lock")).await;
    change.until(&bank, |hidden| !hidden[0].contains_key("lock")).await;
    assert!(is_locked().await);
    let by_value = |mail: &str| Find {
        hint: Some(Hint::Name("mail_1".to_owned())),
        ..Find::new(users(), rawdoc! { "mail": mail })
    };
    let reader = bank.process();
    assert_eq!(reader.find_all(by_value("new")).await.unwrap().len(), 1);
    assert_eq!(reader.find_all(by_value("b")).await.unwrap().len(), 0);
    let taken = reader.insert_one(&users(), rawdoc! { "_id": "Eve", "mail": "new" }).await;
    assert_eq!(code(taken), Code::DuplicateKey);
    reader.insert_one(&users(), rawdoc! { "_id": "Eve", "mail": "b" }).await.unwrap();
    change.finish().await.unwrap();
    reader.flush().await.unwrap();
    agree(&bank, "locked").await;
}

#[tokio::test]
async fn a_unique_index_of_the_store_is_refused() {
    let bank = with_users(0).await;
    bank.store.create_indexes(CreateIndexes { namespace: users(), indexes: vec![by_mail()] }).await.unwrap();
    let database = bank.process();
    let refused = database.insert_one(&users(), rawdoc! { "_id": "Eve" }).await.unwrap_err();
    assert_eq!(refused.code(), Code::CommandNotSupported);
    assert!(refused.message().contains("the store has a unique index 'mail_1' on bank.users"), "{refused}");
    let other = IndexSpec { unique: true, ..IndexSpec::new(rawdoc! { "name": 1 }) };
    assert_eq!(code(create(&database, other).await), Code::CommandNotSupported);
}

#[tokio::test]
async fn the_engines_own_database_is_not_written_to() {
    let bank = with_index().await;
    let database = bank.process();
    let illegal = Code::IllegalOperation;
    assert_eq!(code(database.insert_one(&keys(), rawdoc! { "_id": 1 }).await), illegal);
    assert_eq!(code(database.delete_many(&keys(), rawdoc! {}).await), illegal);
    assert_eq!(code(database.drop_collection(&keys()).await), illegal);
    assert_eq!(code(database.drop_database("handfast").await), illegal);
    assert!(!database.list_databases().await.unwrap().contains(&"handfast".to_owned()));
    agree(&bank, "untouched").await;
}

#[tokio::test]
async fn an_index_that_is_dropped_leaves_nothing() {
    let bank = with_users(250).await;
    let database = bank.process();
    create(&database, by_mail()).await.unwrap();
    database.flush().await.unwrap();
    assert_eq!(raw_keys(&bank).await.len(), 253);
    agree(&bank, "built").await;
    drop_all(&database).await.unwrap();
    assert!(raw_keys(&bank).await.is_empty() && catalog(&bank).await.is_empty());
    database.insert_one(&users(), rawdoc! { "_id": "Eve", "mail": "a" }).await.unwrap();
    // Now two documents have the key: the index cannot be created again, and the attempt leaves nothing behind.
    assert_eq!(code(create(&database, by_mail()).await), Code::DuplicateKey);
    assert!(raw_keys(&bank).await.is_empty() && catalog(&bank).await.is_empty());
    assert_eq!(bank.indexes_of_users(&users()).await.len(), 1);
}

#[tokio::test]
async fn an_index_goes_with_its_collection() {
    let bank = with_index().await;
    let database = bank.process();
    let to = Namespace::new("other", "people").unwrap();
    let rename = RenameCollection { from: users(), to: to.clone(), drop_target: false };
    database.rename_collection(rename).await.unwrap();
    agree(&bank, "renamed").await;
    assert_eq!(code(database.insert_one(&to, rawdoc! { "_id": 1, "mail": "a" }).await), Code::DuplicateKey);
    // A collection of the old name does not have the index.
    database.insert_one(&users(), rawdoc! { "_id": 1, "mail": "a" }).await.unwrap();
    database.insert_one(&users(), rawdoc! { "_id": 2, "mail": "a" }).await.unwrap();
    let back = RenameCollection { from: users(), to: to.clone(), drop_target: true };
    database.rename_collection(back).await.unwrap();
    let all_forgotten = async || {
        forget_all(&bank).await;
        raw_keys(&bank).await.is_empty() && catalog(&bank).await.is_empty()
    };
    assert!(all_forgotten().await);
    database.rename_collection(RenameCollection { from: to, to: users(), drop_target: false }).await.unwrap();
    database.delete_one(&users(), rawdoc! { "_id": 2 }).await.unwrap();
    create(&database, by_mail()).await.unwrap();
    database.drop_database("bank").await.unwrap();
    assert!(all_forgotten().await);
}

/// The engine itself removes documents after their lifetime: a store that removed them would not follow the protocol.
#[tokio::test]
async fn a_lifetime_is_not_left_to_the_store() {
    let bank = with_users(0).await;
    let database = bank.process();
    let spec = IndexSpec { expire_after_seconds: Some(60), ..IndexSpec::new(rawdoc! { "at": 1 }) };
    create(&database, spec.clone()).await.unwrap();
    assert_eq!(database.list_indexes(&users()).await.unwrap()[1].spec, spec);
    assert_eq!(bank.indexes_of_users(&users()).await[1], IndexSpec { expire_after_seconds: None, ..spec });
}

/// The engine checks a write set itself, however it was made.
#[tokio::test]
async fn a_write_set_with_a_taken_key_is_refused() {
    let bank = with_index().await;
    let engine = Percolator::new(bank.store.clone(), bank.sources.clone(), options()).unwrap();
    let start = engine.begin(Duration::ZERO).await.unwrap();
    let put = |id: &str, mail: &str| {
        let document = rawdoc! { "_id": id, "mail": mail };
        BatchWrite::new(users(), id, DocumentWrite::Put(document))
    };
    for writes in [vec![put("Eve", "a")], vec![put("Eve", "x"), put("Zoe", "x")]] {
        let batch = AtomicBatch { writes, ..AtomicBatch::new(start.snapshot.timestamp()) };
        assert_eq!(code(engine.commit(batch).await), Code::DuplicateKey);
    }
    let batch =
        AtomicBatch { writes: vec![put("Eve", "a"), put("Bob", "x")], ..AtomicBatch::new(start.snapshot.timestamp()) };
    engine.commit(batch).await.unwrap();
    engine.idle().await;
    agree(&bank, "changed hands").await;
}
