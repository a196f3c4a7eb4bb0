//! Validators: they are kept with the collection, and every way to write applies them.

use bson::{RawDocumentBuf, rawdoc};
use handfast_mql::Code;
use handfast_store::{
    AtomicBatch, AtomicStore, BatchWrite, CollectionOptions, DocumentStore, DocumentWrite, Insert, ModifyCollection,
    ModifyValidator, Namespace, RenameCollection, Sources, StoreExt, Validation, ValidationAction, ValidationLevel,
};
use handfast_txn::Database;

use crate::EmbeddedStore;
use crate::testing::{find_all, namespace, open};

fn options() -> CollectionOptions {
    CollectionOptions { validator: rawdoc! { "n": { "$gte": 5 } }, ..CollectionOptions::default() }
}

async fn insert(store: &EmbeddedStore, namespace: &Namespace, n: i32) -> i32 {
    store.insert_one(namespace, rawdoc! { "_id": n, "n": n }).await.err().map_or(0, |error| error.code().0)
}

async fn shown(store: &EmbeddedStore) -> Vec<CollectionOptions> {
    store.list_collections("db").await.unwrap().into_iter().map(|info| info.options).collect()
}

#[tokio::test]
async fn a_validator_is_kept_by_a_reopening_a_rename_and_a_backup() {
    let directories = tempfile::tempdir().unwrap();
    let (original, copy) = (directories.path().join("original"), directories.path().join("copy"));
    let store = open(&original).await;
    store.create_collection(&namespace(), options()).await.unwrap();
    assert_eq!((insert(&store, &namespace(), 4).await, insert(&store, &namespace(), 5).await), (121, 0));
    let level = ModifyValidator { level: Some(ValidationLevel::Moderate), ..ModifyValidator::default() };
    let modify = ModifyCollection { validator: level, ..ModifyCollection::new(namespace()) };
    store.modify_collection(modify).await.unwrap();
    store.close().await.unwrap();
    let expected = CollectionOptions { validation_level: ValidationLevel::Moderate, ..options() };
    let store = open(&original).await;
    assert_eq!(shown(&store).await, std::slice::from_ref(&expected));
    let other = Namespace::new("db", "other").unwrap();
    let rename = RenameCollection { from: namespace(), to: other.clone(), drop_target: false };
    store.rename_collection(rename).await.unwrap();
    assert_eq!((insert(&store, &other, 3).await, insert(&store, &namespace(), 3).await), (121, 0));
    store.drop_collection(&namespace()).await.unwrap();
    store.backup(&copy).await.unwrap();
    let copied = open(&copy).await;
    assert_eq!((shown(&copied).await, insert(&copied, &other, 2).await), (vec![expected], 121));
    // A collection of the same name is another one.
    store.drop_collection(&other).await.unwrap();
    assert_eq!(insert(&store, &other, 3).await, 0);
}

#[tokio::test]
async fn an_invalid_validator_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path()).await;
    let invalid = CollectionOptions { validator: rawdoc! { "n": { "$x": 1 } }, ..options() };
    assert!(store.create_collection(&namespace(), invalid).await.is_err());
    assert!(store.list_collections("db").await.unwrap().is_empty());
    store.create_collection(&namespace(), options()).await.unwrap();
    let other = CollectionOptions { validation_action: ValidationAction::Warn, ..options() };
    let error = store.create_collection(&namespace(), other).await.unwrap_err();
    assert_eq!(error.code(), Code::NamespaceExists);
    assert_eq!(shown(&store).await, [options()]);
}

/// The validator is changed after the snapshot of the transaction.
#[tokio::test]
async fn a_commit_is_checked_by_the_newest_validator() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path()).await;
    store.create_collection(&namespace(), CollectionOptions::default()).await.unwrap();
    let database = Database::local(store.clone(), Sources::seeded(2));
    let transaction = database.begin().await.unwrap();
    transaction.insert_one(&namespace(), rawdoc! { "_id": 1, "n": 1 }).await.unwrap();
    let validator = ModifyValidator { validator: Some(options().validator), ..ModifyValidator::default() };
    let modify = ModifyCollection { validator, ..ModifyCollection::new(namespace()) };
    store.modify_collection(modify).await.unwrap();
    assert_eq!(transaction.commit().await.unwrap_err().code(), Code::DocumentValidationFailure);
    assert!(find_all(&store).await.is_empty());
    let batch = |validation: Validation, document: RawDocumentBuf| {
        let write = BatchWrite::new(namespace(), 1, DocumentWrite::Put(document)).with_validation(validation);
        AtomicBatch { writes: vec![write], ..AtomicBatch::new(store.context.latest().timestamp) }
    };
    let bad = rawdoc! { "_id": 1, "n": 1 };
    assert_eq!(store.commit(batch(Validation::Apply, bad.clone())).await.unwrap_err().code().0, 121);
    store.commit(batch(Validation::Bypass, bad)).await.unwrap();
    store.commit(batch(Validation::Apply, rawdoc! { "_id": 1, "n": 6 })).await.unwrap();
    let bypass = Insert { validation: Validation::Bypass, ..Insert::new(namespace(), vec![rawdoc! { "_id": 2 }]) };
    store.insert(bypass).await.unwrap();
    assert_eq!(find_all(&store).await.len(), 2);
}
