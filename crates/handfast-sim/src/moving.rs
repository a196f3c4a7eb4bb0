//! A client over the transactions of `handfast-txn` that deletes, moves and exchanges its documents.
//!
//! A missing document does not show which deletion a reader saw. So a deletion never loses a key here: the same transaction
//! inserts the value again, under the same `_id` or another one. Each snapshot has each key once, and the value identifies
//! the writes that the reader saw.
//!
//! ```text
//! _id        0  1      2  3      4  5          key k is created under _id 2k of the first collection
//! before     .  k:0    k:1 .     k:2 .         `_id: 1, key: 0, list: [..], text: .., tags: [..], fields: 6`
//! append     updates the document by a predicate; deletes and inserts it; moves it to the other _id of its pair;
//! to 0       or exchanges it with the document of another key, which changes the queried field
//! ```
//!
//! A pair of `_id`s has one document at most, and a key is created once. Conflicting transactions therefore always write the
//! same document, so snapshot isolation promises all of this.
//!
//! Reads use one of many queries ([`QueryKind`]), so a repeated read asks the same snapshot in another way. An incomplete document, for
//! which some queries fail, is inserted and deleted in the background ([`background`]): a query may fail only if the snapshot has that
//! document. Further collections are created, filled, renamed, emptied and dropped there as well.

pub mod background;
mod query_kind;
mod tally;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use bson::raw::cstr;
use bson::{RawArrayBuf, RawDocumentBuf, rawdoc};
use handfast_store::{Error as StoreError, Namespace, Random, StoreExt};
use handfast_txn::{Database, TransactionOptions};

use crate::database::{failure, step_failure};
use crate::workload::{below, one_in};
use crate::{Cell, Client, ClientTransaction, Failure, documents};

pub use query_kind::QueryKind;
pub use tally::Tally;

/// A client over several databases on one store, whose documents are in several collections.
#[derive(Clone)]
pub struct MovingClient {
    shared: Arc<Shared>,
}

struct Shared {
    /// The databases of several processes, which begin transactions in turn.
    databases: Vec<Database>,
    next: AtomicUsize,
    /// Keys are created in the first one.
    collections: Vec<Namespace>,
    options: TransactionOptions,
    random: Arc<dyn Random>,
    tally: Mutex<Tally>,
    commits: AtomicU64,
    /// The number of commits after which clients wait for the next change in the background.
    due: AtomicU64,
}

struct OpenTransaction {
    transaction: handfast_txn::Transaction,
    shared: Arc<Shared>,
    /// Its operations, which count if it commits.
    tally: Tally,
}

/// The document of a key.
#[derive(Clone, Debug, PartialEq)]
struct Found {
    collection: usize,
    id: i64,
    key: i64,
    cell: Cell,
}

/// A change of a key's value.
enum Change {
    Append(i64),
    Write(i64, Option<i64>),
}

impl MovingClient {
    /// Creates a client that begins transactions with these options on the databases in turn.
    pub fn new(
        databases: Vec<Database>,
        collections: Vec<Namespace>,
        options: TransactionOptions,
        random: Arc<dyn Random>,
    ) -> Self {
        let (next, tally, commits) = Default::default();
        let due = AtomicU64::new(u64::MAX);
        MovingClient { shared: Arc::new(Shared { databases, next, collections, options, random, tally, commits, due }) }
    }

    /// Returns the collections that hold the documents.
    pub fn collections(&self) -> &[Namespace] {
        &self.shared.collections
    }

    /// Returns the number of transactions that have committed so far.
    pub fn commits(&self) -> u64 {
        self.shared.commits.load(Ordering::Relaxed)
    }

    /// Lets clients wait after `commits` commits in all.
    fn wait_after(&self, commits: u64) {
        self.shared.due.store(commits, Ordering::Relaxed);
    }

    /// Returns the counts of committed transactions so far.
    pub fn tally(&self) -> Tally {
        *self.shared.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    fn count(&self, more: Tally) {
        let mut tally = self.tally.lock().unwrap_or_else(PoisonError::into_inner);
        *tally = tally.plus(more);
    }

    fn first(&self) -> Result<&Namespace, Failure> {
        self.collections.first().ok_or_else(|| Failure::Unexpected("no collection to create keys in".to_owned()))
    }
}

#[async_trait]
impl Client for MovingClient {
    async fn begin(&self) -> Result<Box<dyn ClientTransaction>, Failure> {
        background::until(|| self.commits() <= self.shared.due.load(Ordering::Relaxed)).await;
        let turn = self.shared.next.fetch_add(1, Ordering::Relaxed) % self.shared.databases.len();
        let transaction = self.shared.databases[turn].begin_with(self.shared.options.clone()).await.map_err(failure)?;
        Ok(Box::new(OpenTransaction { transaction, shared: Arc::clone(&self.shared), tally: Tally::default() }))
    }
}

#[async_trait]
impl ClientTransaction for OpenTransaction {
    async fn read(&mut self, key: i64) -> Result<Cell, Failure> {
        let found = self.find_key(key).await?;
        Ok(found.map_or(Cell::Nothing, |found| found.cell))
    }

    async fn scan(&mut self, keys: Range<i64>) -> Result<Vec<(i64, Cell)>, Failure> {
        let found = self.find(&keys).await?;
        Ok(found.into_values().map(|found| (found.key, found.cell)).collect())
    }

    async fn append(&mut self, key: i64, value: i64) -> Result<(), Failure> {
        self.put(key, Change::Append(value)).await
    }

    async fn write(&mut self, key: i64, value: i64, amount: Option<i64>) -> Result<(), Failure> {
        self.put(key, Change::Write(value, amount)).await
    }

    async fn commit(self: Box<Self>) -> Result<(), Failure> {
        self.transaction.commit().await.map_err(failure)?;
        self.shared.commits.fetch_add(1, Ordering::Relaxed);
        self.shared.count(self.tally);
        Ok(())
    }

    async fn abort(self: Box<Self>) -> Result<(), Failure> {
        self.transaction.abort();
        Ok(())
    }
}

impl OpenTransaction {
    fn below(&self, bound: usize) -> usize {
        usize::try_from(below(&*self.shared.random, i64::try_from(bound).unwrap_or(1))).unwrap_or(0)
    }

    fn one_in(&self, times: i64) -> bool {
        one_in(&*self.shared.random, times)
    }

    fn random_kind(&self) -> QueryKind {
        QueryKind::ALL[self.below(QueryKind::ALL.len())]
    }

    async fn find_key(&mut self, key: i64) -> Result<Option<Found>, Failure> {
        Ok(self.find(&(key..key + 1)).await?.remove(&key))
    }

    /// Finds the documents of some keys in all collections.
    async fn find(&mut self, keys: &Range<i64>) -> Result<BTreeMap<i64, Found>, Failure> {
        let mut all = BTreeMap::new();
        for collection in 0..self.shared.collections.len() {
            for found in self.find_in(collection, keys).await? {
                if let Some(other) = all.insert(found.key, found.clone()) {
                    return Err(Failure::Unexpected(format!(
                        "a key is there twice in a snapshot: {found:?}, {other:?}"
                    )));
                }
            }
        }
        Ok(all)
    }

    async fn find_in(&mut self, collection: usize, keys: &Range<i64>) -> Result<Vec<Found>, Failure> {
        let kind = self.random_kind();
        let documents = match self.query(collection, kind, keys).await? {
            Some(documents) => documents,
            None => self.query(collection, QueryKind::Range, keys).await?.unwrap_or_default(),
        };
        let found: Vec<Found> =
            documents.iter().map(|document| found(collection, document)).collect::<Result<_, _>>()?;
        let of_keys: Vec<Found> = found.into_iter().filter(|found| keys.contains(&found.key)).collect();
        // Reads the same documents by `_id` from the same snapshot.
        if self.one_in(4) {
            for found in &of_keys {
                self.check_by_id(found).await?;
            }
        }
        Ok(of_keys)
    }

    async fn check_by_id(&self, expected: &Found) -> Result<(), Failure> {
        let namespace = &self.shared.collections[expected.collection];
        let by_id = self.transaction.find_one(namespace, rawdoc! { "_id": expected.id }).await;
        let by_id = by_id.map_err(step_failure)?.map(|document| found(expected.collection, &document)).transpose()?;
        match by_id.as_ref() == Some(expected) {
            true => Ok(()),
            false => Err(Failure::Unexpected(format!("a query found {expected:?}, and its _id {by_id:?}"))),
        }
    }

    /// Runs a query of one kind. Returns `None` if it fails because the snapshot has the incomplete document.
    async fn query(
        &mut self,
        collection: usize,
        kind: QueryKind,
        keys: &Range<i64>,
    ) -> Result<Option<Vec<RawDocumentBuf>>, Failure> {
        let namespace = &self.shared.collections[collection];
        let answer = self.transaction.find_all(kind.find(namespace, keys)).await;
        let count = match self.one_in(4) {
            true => Some(self.transaction.count_matching(namespace, kind.filter(keys)).await),
            false => None,
        };
        self.tally.predicate_reads += u64::from(kind != QueryKind::ById) * (1 + u64::from(count.is_some()));
        let found = match answer {
            Ok(found) => found,
            Err(error) => {
                self.check_failed(kind, error).await?;
                return match count {
                    Some(Ok(count)) => Err(Failure::Unexpected(format!("{kind:?} counts {count}, and its find fails"))),
                    _ => Ok(None),
                };
            }
        };
        match count.transpose().map_err(step_failure)? {
            Some(count) if count != found.len() as u64 => {
                Err(Failure::Unexpected(format!("{kind:?} counts {count} of {keys:?}, and finds {found:?}")))
            }
            _ => Ok(Some(found)),
        }
    }

    /// Accepts the error of a query if the snapshot has the incomplete document.
    async fn check_failed(&mut self, kind: QueryKind, error: StoreError) -> Result<(), Failure> {
        match step_failure(error) {
            failure @ Failure::Unexpected(_) => match kind.is_strict() && self.has_incomplete().await? {
                true => {
                    self.tally.failed_reads += 1;
                    Ok(())
                }
                false => Err(failure),
            },
            failure => Err(failure),
        }
    }

    /// Returns whether the snapshot has the incomplete document.
    async fn has_incomplete(&self) -> Result<bool, Failure> {
        let incomplete =
            self.transaction.find_one(self.shared.first()?, background::incomplete()).await.map_err(step_failure)?;
        Ok(incomplete.is_some())
    }

    async fn put(&mut self, key: i64, change: Change) -> Result<(), Failure> {
        let first = self.shared.first()?.clone();
        let Some(before) = self.find_key(key).await? else {
            return self.insert(&first, 2 * key, key, &change.apply(&Cell::Nothing)).await;
        };
        let after = change.apply(&before.cell);
        let namespace = self.shared.collections[before.collection].clone();
        match self.below(5) {
            0 | 1 => self.change_in_place(&namespace, key, &change).await,
            2 => {
                self.delete(&namespace, &before).await?;
                self.tally.reinsertions += 1;
                self.insert(&namespace, before.id, key, &after).await
            }
            3 => {
                self.delete(&namespace, &before).await?;
                self.tally.reinsertions += 1;
                self.insert(&first, before.id ^ 1, key, &after).await
            }
            _ => self.exchange(&before, &after).await,
        }
    }

    async fn change_in_place(&mut self, namespace: &Namespace, key: i64, change: &Change) -> Result<(), Failure> {
        let kind = match self.random_kind() {
            kind if kind.finds_others() => QueryKind::Range,
            kind if kind.is_strict() && self.has_incomplete().await? => QueryKind::AllFields,
            kind => kind,
        };
        let changed = self.transaction.update_many(namespace, kind.filter(&(key..key + 1)), change.operators()).await;
        let changed = changed.map_err(step_failure)?;
        self.tally.predicate_writes += 1;
        match changed.matched {
            1 => Ok(()),
            matched => Err(Failure::Unexpected(format!("{kind:?} changes {matched} of key {key}, which is there"))),
        }
    }

    /// Writes the new value to the document of another key, and the other key's value to this document.
    async fn exchange(&mut self, before: &Found, after: &Cell) -> Result<(), Failure> {
        let others = before.key.saturating_sub(2)..before.key + 3;
        let mut others: Vec<Found> = self.find(&others).await?.into_values().collect();
        others.retain(|other| other.key != before.key);
        let other = match others.len() {
            0 => before.clone(),
            count => others.swap_remove(self.below(count)),
        };
        self.replace(before, other.key, &other.cell).await?;
        self.tally.exchanges += 1;
        self.replace(&other, before.key, after).await
    }

    async fn replace(&self, found: &Found, key: i64, cell: &Cell) -> Result<(), Failure> {
        let namespace = &self.shared.collections[found.collection];
        let changed =
            self.transaction.update_one(namespace, rawdoc! { "_id": found.id }, document(found.id, key, cell)).await;
        match changed.map_err(step_failure)?.matched {
            1 => Ok(()),
            _ => Err(Failure::Unexpected(format!("not there to be replaced: {found:?}"))),
        }
    }

    async fn insert(&self, namespace: &Namespace, id: i64, key: i64, cell: &Cell) -> Result<(), Failure> {
        self.transaction.insert_one(namespace, document(id, key, cell)).await.map_err(step_failure)
    }

    async fn delete(&mut self, namespace: &Namespace, found: &Found) -> Result<(), Failure> {
        let filter = match self.one_in(2) {
            true => rawdoc! { "_id": found.id },
            false => QueryKind::Range.filter(&(found.key..found.key + 1)),
        };
        let deleted = self.transaction.delete_many(namespace, filter).await.map_err(step_failure)?;
        self.tally.deletions += 1;
        match deleted {
            1 => Ok(()),
            _ => Err(Failure::Unexpected(format!("{deleted} deleted, which is there: {found:?}"))),
        }
    }
}

impl Change {
    /// Returns the changed value.
    fn apply(&self, before: &Cell) -> Cell {
        match (self, before) {
            (Change::Append(value), Cell::List(list)) => Cell::List(list.iter().copied().chain([*value]).collect()),
            (Change::Append(value), _) => Cell::List(vec![*value]),
            (Change::Write(value, amount), _) => Cell::Value { value: *value, amount: *amount },
        }
    }

    fn operators(&self) -> RawDocumentBuf {
        match self {
            Change::Append(value) => documents::append(*value),
            Change::Write(value, amount) => documents::write(*value, *amount),
        }
    }
}

fn found(collection: usize, document: &RawDocumentBuf) -> Result<Found, Failure> {
    let integer =
        |field| document.get_i64(field).map_err(|error| Failure::Unexpected(format!("{document:?}: {error}")));
    Ok(Found { collection, id: integer("_id")?, key: integer("key")?, cell: documents::cell(document)? })
}

/// Builds the document of a key.
fn document(id: i64, key: i64, cell: &Cell) -> RawDocumentBuf {
    let text = "x".repeat(usize::try_from(key.rem_euclid(5)).unwrap_or(0) + 1);
    let fields = match cell {
        Cell::Value { amount: Some(_), .. } => 7,
        _ => 6,
    };
    let mut document =
        rawdoc! { "_id": id, "key": key, "text": text.as_str(), "tags": ["here", text.as_str()], "fields": fields };
    match cell {
        Cell::Nothing => {}
        Cell::List(list) => document.append(cstr!("list"), list.iter().copied().collect::<RawArrayBuf>()),
        Cell::Value { value, amount } => {
            document.append(cstr!("value"), *value);
            if let Some(amount) = amount {
                document.append(cstr!("amount"), *amount);
            }
        }
    }
    document
}
