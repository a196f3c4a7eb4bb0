//! Users with addresses, which a unique index covers, and the invariants of its rows.

use std::collections::BTreeMap;

use bson::{Document, RawBson, RawDocumentBuf, rawdoc};
use handfast_mql::Code;
use handfast_store::index::Index;
use handfast_store::{
    CreateIndexes, DocumentStore, DropIndexes, Find, IndexCounts, IndexSelector, IndexSpec, Namespace, StoreExt,
};
use handfast_txn::Database;

use crate::support::*;

pub(crate) fn users() -> Namespace {
    Namespace::new("bank", "users").unwrap()
}

pub(crate) fn keys() -> Namespace {
    Namespace::new("handfast", "keys").unwrap()
}

pub(crate) fn by_mail() -> IndexSpec {
    IndexSpec { unique: true, ..IndexSpec::new(rawdoc! { "mail": 1 }) }
}

pub(crate) async fn create(database: &Database, spec: IndexSpec) -> handfast_store::Result<IndexCounts> {
    database.create_indexes(CreateIndexes { namespace: users(), indexes: vec![spec] }).await
}

pub(crate) async fn drop_all(database: &Database) -> handfast_store::Result<u32> {
    database.drop_indexes(DropIndexes { namespace: users(), selector: IndexSelector::All }).await
}

/// Returns a bank with Ann, Bob and Joe, each with a letter as address, and this many others.
pub(crate) async fn with_users(others: i32) -> Bank {
    let bank = Bank::of_the_seed().await;
    let process = bank.process();
    for (name, mail) in [("Ann", "c"), ("Bob", "a"), ("Joe", "b")] {
        process.insert_one(&users(), rawdoc! { "_id": name, "mail": mail }).await.unwrap();
    }
    for number in 0..others {
        process.insert_one(&users(), rawdoc! { "_id": number, "mail": number }).await.unwrap();
    }
    process.flush().await.unwrap();
    bank
}

pub(crate) async fn with_index() -> Bank {
    let bank = with_users(0).await;
    create(&bank.process(), by_mail()).await.unwrap();
    bank
}

/// Returns the indexes of users in the catalog.
pub(crate) async fn catalog(bank: &Bank) -> Vec<Document> {
    let namespace = Namespace::new("handfast", "catalog").unwrap();
    let Some(found) = bank.store.find_one(&namespace, rawdoc! {}).await.unwrap() else { return Vec::new() };
    let found = Document::try_from(&*found).unwrap();
    found.get_array("indexes").unwrap().iter().map(|index| index.as_document().unwrap().clone()).collect()
}

pub(crate) async fn raw_keys(bank: &Bank) -> Vec<Document> {
    let found = bank.store.find_all(Find::new(keys(), rawdoc! {})).await.unwrap();
    found.iter().map(|row| Document::try_from(&**row).unwrap()).collect()
}

pub(crate) async fn documents(bank: &Bank) -> Vec<RawDocumentBuf> {
    bank.process().find_all(Find::new(users(), rawdoc! {})).await.unwrap()
}

/// Checks that each key of each document has its row, and that there are no other rows, no locks, and nothing of a
/// dropped index.
pub(crate) async fn agree(bank: &Bank, case: &str) {
    let indexes = catalog(bank).await;
    let mut expected = BTreeMap::new();
    for index in &indexes {
        assert_eq!(index.get_str("state").unwrap(), "ready", "{case}: {index}");
        assert!(!index.contains_key("until"), "{case}: {index}");
        let (database, collection) = index.get_str("ns").unwrap().split_once('.').unwrap();
        let spec = IndexSpec::from_document(&RawDocumentBuf::try_from(index.get_document("spec").unwrap()).unwrap());
        let compiled = Index::compile(spec.unwrap()).unwrap();
        let namespace = Namespace::new(database, collection).unwrap();
        // The store may have another name for the collection than users have.
        let is_there = rawdoc! { "_hf.del": { "$exists": false } };
        for document in bank.store.find_all(Find::new(namespace, is_there)).await.unwrap() {
            for key in compiled.keys(&document).unwrap().keys {
                let owner = RawBson::from(document.get("_id").unwrap().unwrap());
                let place = (index.get("id").unwrap().to_string(), key);
                assert!(expected.insert(place, owner).is_none(), "{case}: two documents with a key: {document:?}");
            }
        }
    }
    let mut found = BTreeMap::new();
    for row in raw_keys(bank).await {
        let hidden = row.get_document("_hf").unwrap();
        assert!(!hidden.contains_key("lock"), "{case}: {row}");
        if !hidden.contains_key("del") {
            let id = row.get_document("_id").unwrap();
            let place = (id.get("index").unwrap().to_string(), id.get_binary_generic("key").unwrap().clone());
            found.insert(place, RawBson::try_from(row.get("owner").unwrap().clone()).unwrap());
        }
    }
    assert_eq!(found, expected, "{case}");
}

pub(crate) async fn is_listed(bank: &Bank) -> bool {
    let listed = bank.process().list_indexes(&users()).await.unwrap();
    listed.iter().any(|index| index.spec == by_mail())
}

pub(crate) fn code(result: handfast_store::Result<impl std::fmt::Debug>) -> Code {
    result.unwrap_err().code()
}
