//! Damaged rows: the store refuses to change them, or their field is not what Handfast writes. All other rows are resolved, and
//! the records that a damaged row needs are kept.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bson::{Document, RawBson, RawBsonRef, RawDocument, RawDocumentBuf, rawdoc};
use handfast_mql::Code;
use handfast_store::decorator::DelegatingStore;
use handfast_store::*;
use handfast_txn::Percolator;
use handfast_txn::percolator::Cleaned;

use crate::support::*;

/// A store that refuses to change one document while a flag is set.
pub(crate) struct Stubborn {
    store: Arc<MemoryStore>,
    refused: Mutex<Option<RawBson>>,
}

impl Stubborn {
    pub(crate) fn new(store: Arc<MemoryStore>, refused: &str) -> Self {
        Stubborn { store, refused: Mutex::new(Some(RawBson::from(refused))) }
    }

    pub(crate) fn relent(&self) {
        *self.refused.lock().unwrap() = None;
    }

    /// Returns an error for a document, or for a filter that names one, with the refused `_id`.
    fn check(&self, named: &RawDocument) -> Result<()> {
        let id = match named.get("_id") {
            Ok(Some(RawBsonRef::Document(filter))) => filter.get("$eq").unwrap(),
            other => other.unwrap(),
        };
        let is_refused = self.refused.lock().unwrap().as_ref().is_some_and(|refused| id == Some(refused.into()));
        if is_refused { Err(Error::command(Code::DocumentValidationFailure, "not that one")) } else { Ok(()) }
    }
}

#[async_trait]
impl DelegatingStore for Stubborn {
    type Inner = MemoryStore;

    fn inner(&self) -> &MemoryStore {
        &self.store
    }

    async fn insert(&self, request: Insert) -> Result<InsertOutcome> {
        request.documents.iter().try_for_each(|document| self.check(document))?;
        self.store.insert(request).await
    }

    async fn update(&self, request: Update) -> Result<UpdateOutcome> {
        request.statements.iter().try_for_each(|statement| self.check(&statement.filter))?;
        self.store.update(request).await
    }

    async fn delete(&self, request: Delete) -> Result<DeleteOutcome> {
        request.statements.iter().try_for_each(|statement| self.check(&statement.filter))?;
        self.store.delete(request).await
    }
}

/// Returns a row that a dead transaction has locked: the primary itself, or a row with another primary.
pub(crate) fn locked(id: &str, start: i64, primary: &str) -> RawDocumentBuf {
    let primary = rawdoc! { "ns": accounts().to_string(), "id": primary };
    let lock = rawdoc! { "s": start, "primary": primary, "op": "delete", "ttl": 5000_i64 };
    rawdoc! { "_id": id, "balance": 1, "_hf": { "v": start, "c": 6_i64, "s": 5_i64, "lock": lock } }
}

/// Returns a row with an old version to forget.
fn with_history(id: &str) -> RawDocumentBuf {
    let old = rawdoc! { "c": 5_i64, "s": 4_i64, "doc": { "_id": id, "balance": 0 } };
    rawdoc! { "_id": id, "balance": 1, "_hf": { "v": 1_i64, "c": 6_i64, "s": 5_i64, "old": [old], "d": 6_i64 } }
}

fn other() -> Namespace {
    Namespace::new("bank", "of_others").unwrap()
}

/// Returns a bank in which one dead transaction has locked Ann and Eve, others Zoe and a document of another collection, and
/// another row has an old version.
async fn left_behind() -> Bank {
    let bank = Bank::of_the_seed().await;
    for row in [locked("Ann", 7, "Ann"), locked("Eve", 7, "Ann"), locked("Zoe", 8, "Zoe"), with_history("Old")] {
        bank.store.insert_one(&accounts(), row).await.unwrap();
    }
    let elsewhere = rawdoc! { "ns": other().to_string(), "id": "Tom" };
    let lock = rawdoc! { "s": 8_i64, "primary": elsewhere, "op": "delete", "ttl": 5000_i64 };
    let row = rawdoc! { "_id": "Tom", "_hf": { "v": 8_i64, "c": 6_i64, "s": 5_i64, "lock": lock } };
    bank.store.insert_one(&other(), row).await.unwrap();
    bank.clock.advance(Duration::from_secs(1));
    bank
}

async fn locks(bank: &Bank) -> Vec<String> {
    let mut names = Vec::new();
    for namespace in [accounts(), other()] {
        let find =
            Find { sort: rawdoc! { "_id": 1 }, ..Find::new(namespace, rawdoc! { "_hf.lock": { "$exists": true } }) };
        for row in bank.store.find_all(find).await.unwrap() {
            names.push(row.get_str("_id").unwrap().to_owned());
        }
    }
    names
}

async fn history(bank: &Bank) -> Vec<Document> {
    bank.rows().await.into_iter().filter(|row| row.get_document("_hf").unwrap().contains_key("old")).collect()
}

#[tokio::test]
async fn a_row_that_cannot_be_cleaned_keeps_no_others_waiting() {
    let bank = left_behind().await;
    let store = Arc::new(Stubborn::new(bank.store.clone(), "Ann"));
    let cleaner = Percolator::new(store.clone(), bank.sources.clone(), options()).unwrap();
    bank.clock.advance(LOCK_TIME);
    // The primary cannot be rolled back, so that the other row's outcome stays undecided. The rest is resolved.
    let cleaned = cleaner.clean().await.unwrap();
    assert_eq!(cleaned, Cleaned { resolved: 2, failed: 2, ..Cleaned::default() });
    assert_eq!(locks(&bank).await, ["Ann", "Eve"]);

    store.relent();
    let cleaned = cleaner.clean().await.unwrap();
    assert_eq!(cleaned, Cleaned { resolved: 2, ..Cleaned::default() });
    assert_eq!(locks(&bank).await, [""; 0]);
}

/// The record that an old lock may need is kept, even if the lock is on a row that fails.
#[tokio::test]
async fn nothing_is_forgotten_while_an_old_lock_cannot_be_resolved() {
    let bank = left_behind().await;
    let store = Arc::new(Stubborn::new(bank.store.clone(), "Ann"));
    let cleaner = Percolator::new(store.clone(), bank.sources.clone(), options()).unwrap();
    bank.let_pass(Duration::from_secs(1_300)).await;
    for _ in 0..2 {
        assert_eq!(cleaner.clean().await.unwrap().collected, 0);
        assert_eq!(history(&bank).await.len(), 1);
        bank.clock.advance(Duration::from_secs(1_300));
    }
    store.relent();
    let cleaned = cleaner.clean().await.unwrap();
    assert_eq!(cleaned.failed, 0);
    assert!(history(&bank).await.is_empty());
}

/// A young lock delays no removal, whether it can be resolved or not.
#[tokio::test]
async fn a_young_lock_that_cannot_be_resolved_holds_nothing_back() {
    let bank = Bank::of_the_seed().await;
    bank.store.insert_one(&accounts(), with_history("Old")).await.unwrap();
    bank.let_pass(Duration::from_secs(1_300)).await;
    let young = bank.process().begin().await.unwrap().read_at().unwrap().0;
    let young = locked("Ann", i64::try_from(young).unwrap(), "Ann");
    bank.store.insert_one(&accounts(), young).await.unwrap();
    bank.clock.advance(LOCK_TIME);
    let store = Arc::new(Stubborn::new(bank.store.clone(), "Ann"));
    let cleaner = Percolator::new(store, bank.sources.clone(), options()).unwrap();
    let cleaned = cleaner.clean().await.unwrap();
    assert_eq!(cleaned, Cleaned { failed: 1, collected: 1, ..Cleaned::default() });
}

/// A row whose history cannot be removed is counted; that of the other rows is removed.
#[tokio::test]
async fn a_row_that_cannot_forget_keeps_no_others_from_it() {
    let bank = Bank::of_the_seed().await;
    for name in ["A", "B", "C"] {
        bank.store.insert_one(&accounts(), with_history(name)).await.unwrap();
    }
    bank.let_pass(Duration::from_secs(1_300)).await;
    let store = Arc::new(Stubborn::new(bank.store.clone(), "A"));
    let cleaner = Percolator::new(store, bank.sources.clone(), options()).unwrap();
    let cleaned = cleaner.clean().await.unwrap();
    assert_eq!(cleaned, Cleaned { failed: 1, collected: 2, ..Cleaned::default() });
}

/// Only an operator can repair a document whose field another program has written.
#[tokio::test]
async fn a_damaged_row_keeps_no_others_waiting() {
    for (damage, is_held_back) in [
        // Its lock is still readable, and old.
        (rawdoc! { "v": "x", "lock": { "s": 7_i64 } }, true),
        // The transaction of this lock is unknown.
        (rawdoc! { "v": 1_i64, "lock": { "s": 7.5 } }, true),
        // This row has no lock.
        (rawdoc! { "v": "x", "d": 1_i64 }, false),
    ] {
        let bank = left_behind().await;
        bank.store.insert_one(&accounts(), with_history("Old2")).await.unwrap();
        bank.store.insert_one(&accounts(), rawdoc! { "_id": "Damaged", "_hf": damage.clone() }).await.unwrap();
        bank.let_pass(Duration::from_secs(1_300)).await;
        let cleaner = Percolator::new(bank.store.clone(), bank.sources.clone(), options()).unwrap();
        let Cleaned { resolved, collected, failed, .. } = cleaner.clean().await.unwrap();
        assert_eq!((resolved, failed, collected > 0), (4, 1, !is_held_back), "{damage:?}");
    }
}
