//! Indexes that are created and dropped in transactions, and beside them.

use bson::rawdoc;
use handfast_mql::Code;
use handfast_store::{
    CreateIndexes, DocumentStore, DropIndexes, Find, Hint, IndexCounts, IndexSelector, IndexSpec, Namespace, StoreExt,
};
use handfast_txn::{Database, Error, Transaction};

use super::{accounts, all, on_each, on_each_local};

#[tokio::test]
async fn a_transaction_can_make_a_collection_with_indexes() {
    on_each_local(|database| async move {
        let made = Namespace::new("bank", "made").unwrap();
        let unique = IndexSpec { unique: true, ..IndexSpec::new(rawdoc! { "n": 1 }) };
        let create = || CreateIndexes { namespace: made.clone(), indexes: vec![unique.clone()] };
        let tx = database.begin().await.unwrap();
        assert_eq!(tx.create_indexes(create()).await.unwrap(), IndexCounts { before: 1, after: 2 });
        tx.insert_one(&made, rawdoc! { "_id": 1, "n": 1 }).await.unwrap();
        assert_eq!(tx.insert_one(&made, rawdoc! { "_id": 2, "n": 1 }).await.unwrap_err().code(), Code::DuplicateKey);
        assert_eq!(database.list_collections("bank").await.unwrap().len(), 1);
        let late = database.begin().await.unwrap();
        late.create_indexes(create()).await.unwrap();
        tx.commit().await.unwrap();
        assert_eq!(database.list_indexes(&made).await.unwrap().len(), 2);
        assert_eq!(
            database.insert_one(&made, rawdoc! { "_id": 3, "n": 1 }).await.unwrap_err().code(),
            Code::DuplicateKey
        );
        assert!(matches!(late.commit().await, Err(Error::Conflict(_))));
    })
    .await;
}

/// Checks that the documents agree with the outcome of a commit beside a change of indexes, and that readers by the index
/// find them.
async fn agrees_with_its_index(database: &Database, committed: &Result<(), Error>, written: u64) {
    let count = database.count_matching(&accounts(), rawdoc! { "n": { "$exists": true } }).await.unwrap();
    assert_eq!(count, if committed.is_ok() { written } else { 0 }, "{committed:?}");
    let hint = Some(Hint::Name("n_1".to_owned()));
    let by_index = all(database, Find { hint, ..Find::new(accounts(), rawdoc! { "n": { "$gt": 0 } }) }).await;
    assert_eq!(by_index.len() as u64, count, "{committed:?}");
}

fn on_n(unique: bool) -> CreateIndexes {
    // The index is sparse, as Bob and Joe have no `n`.
    let index = IndexSpec { unique, sparse: true, ..IndexSpec::new(rawdoc! { "n": 1 }) };
    CreateIndexes { namespace: accounts(), indexes: vec![index] }
}

async fn with_two_of_n(database: &Database, n: [i32; 2]) -> Transaction {
    let tx = database.begin().await.unwrap();
    for (id, n) in (1..).zip(n) {
        tx.insert_one(&accounts(), rawdoc! { "_id": id, "n": n }).await.unwrap();
    }
    tx
}

#[tokio::test]
async fn a_unique_index_made_beside_a_transaction_holds() {
    on_each(|database| async move {
        let tx = with_two_of_n(&database, [1, 1]).await;
        database.create_indexes(on_n(true)).await.unwrap();
        let error = tx.commit().await.unwrap_err();
        assert!(matches!(&error, Error::Conflict(_)) || error.code() == Code::DuplicateKey, "{error:?}");
        agrees_with_its_index(&database, &Err(error), 2).await;
    })
    .await;
}

#[tokio::test]
async fn an_index_made_beside_a_transaction_has_what_it_wrote() {
    on_each(|database| async move {
        let tx = with_two_of_n(&database, [1, 2]).await;
        database.create_indexes(on_n(false)).await.unwrap();
        let committed = tx.commit().await.map(|_| ());
        assert!(matches!(&committed, Ok(()) | Err(Error::Conflict(_))), "{committed:?}");
        agrees_with_its_index(&database, &committed, 2).await;
    })
    .await;
}

#[tokio::test]
async fn an_index_dropped_beside_a_transaction_leaves_nothing_behind() {
    on_each(|database| async move {
        database.create_indexes(on_n(true)).await.unwrap();
        let tx = with_two_of_n(&database, [1, 2]).await;
        let selector = IndexSelector::Names(vec!["n_1".to_owned()]);
        database.drop_indexes(DropIndexes { namespace: accounts(), selector }).await.unwrap();
        let committed = tx.commit().await.map(|_| ());
        assert!(matches!(&committed, Ok(()) | Err(Error::Conflict(_))), "{committed:?}");
        // An index that is created again has entries for the present documents, and no others.
        database.create_indexes(on_n(true)).await.unwrap();
        agrees_with_its_index(&database, &committed, 2).await;
        database.delete_one(&accounts(), rawdoc! { "n": 1 }).await.unwrap();
        database.insert_one(&accounts(), rawdoc! { "_id": 3, "n": 1 }).await.unwrap();
    })
    .await;
}
