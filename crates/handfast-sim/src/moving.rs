//! The transactions of `handfast-txn` as a client whose documents come and go.
//!
//! One absence of a document looks like another, so no reader could tell which deletion it saw. Here nothing is lost by a
//! deletion: what a key holds is inserted again, in the same transaction, in the same place or in another one. Each
//! snapshot has each key once, wherever that is, and what the reader finds there tells the judges what it saw.
//!
//! ```text
//! places     0  1      2  3      4  5          key k is made in place 2k of the first collection
//! before     .  k:0    k:1 .     k:2 .         `_id: 1, key: 0, list: [..], text: .., tags: [..], fields: 6`
//! append     in place, found by a predicate; deleted and inserted again; moved to the other place of the two;
//! to 0       or exchanged with a document of another key, so that the field changes that others ask for
//! ```
//!
//! The two places of a pair have one document at most, and a key is made once: what gets in each other's way is always a
//! write to the same document, so snapshot isolation promises all of this.
//!
//! Reads ask in one of many ways ([`Ask`]), so a read that a plan repeats is asked in another way, of the same snapshot. A document
//! that is none of the keys', of which some queries fail, comes and goes beside ([`beside`]): a query may fail if the snapshot
//! has it, and not otherwise. More collections than the first are made, filled, renamed, emptied and dropped there, too.

mod ask;
pub mod beside;
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
use crate::{Cell, Client, Failure, Transaction, documents};

pub use ask::Ask;
pub use tally::Tally;

/// Databases over one store, and the collections in which documents are.
#[derive(Clone)]
pub struct MovingClient {
    shared: Arc<Shared>,
}

struct Shared {
    /// Processes, which begin transactions by turns.
    databases: Vec<Database>,
    next: AtomicUsize,
    /// The first is where keys are made.
    collections: Vec<Namespace>,
    options: TransactionOptions,
    random: Arc<dyn Random>,
    tally: Mutex<Tally>,
    commits: AtomicU64,
    /// With how many commits the next change beside is due, for which clients wait.
    due: AtomicU64,
}

struct OpenTransaction {
    transaction: handfast_txn::Transaction,
    shared: Arc<Shared>,
    /// Of what it does; it counts if it commits.
    tally: Tally,
}

/// Where the document of a key is, and what it holds.
#[derive(Clone, Debug, PartialEq)]
struct Found {
    collection: usize,
    place: i64,
    key: i64,
    cell: Cell,
}

/// What is done to a key.
enum Change {
    Append(i64),
    Write(i64, Option<i64>),
}

impl MovingClient {
    /// Transactions with these options, begun on the databases by turns. Without more collections than one nobody changes the catalog.
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

    /// The collections in which documents are.
    pub fn collections(&self) -> &[Namespace] {
        &self.shared.collections
    }

    /// Transactions that have committed so far.
    pub fn commits(&self) -> u64 {
        self.shared.commits.load(Ordering::Relaxed)
    }

    /// Lets clients begin nothing more after so many commits.
    fn wait_after(&self, commits: u64) {
        self.shared.due.store(commits, Ordering::Relaxed);
    }

    /// What was done so far.
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
        self.collections.first().ok_or_else(|| Failure::Unexpected("no collection to make keys in".to_owned()))
    }
}

#[async_trait]
impl Client for MovingClient {
    async fn begin(&self) -> Result<Box<dyn Transaction>, Failure> {
        beside::until(|| self.commits() <= self.shared.due.load(Ordering::Relaxed)).await;
        let turn = self.shared.next.fetch_add(1, Ordering::Relaxed) % self.shared.databases.len();
        let transaction = self.shared.databases[turn].begin_with(self.shared.options.clone()).await.map_err(failure)?;
        Ok(Box::new(OpenTransaction { transaction, shared: Arc::clone(&self.shared), tally: Tally::default() }))
    }
}

#[async_trait]
impl Transaction for OpenTransaction {
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

    fn way(&self) -> Ask {
        Ask::ALL[self.below(Ask::ALL.len())]
    }

    async fn find_key(&mut self, key: i64) -> Result<Option<Found>, Failure> {
        Ok(self.find(&(key..key + 1)).await?.remove(&key))
    }

    /// What the snapshot has of some keys, in all collections.
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
        let way = self.way();
        let documents = match self.ask(collection, way, keys).await? {
            Some(documents) => documents,
            None => self.ask(collection, Ask::Range, keys).await?.unwrap_or_default(),
        };
        let found: Vec<Found> =
            documents.iter().map(|document| found(collection, document)).collect::<Result<_, _>>()?;
        let of_keys: Vec<Found> = found.into_iter().filter(|found| keys.contains(&found.key)).collect();
        // The same again by `_id`, of the same snapshot.
        if self.one_in(4) {
            for found in &of_keys {
                self.check_place(found).await?;
            }
        }
        Ok(of_keys)
    }

    async fn check_place(&self, expected: &Found) -> Result<(), Failure> {
        let namespace = &self.shared.collections[expected.collection];
        let by_id = self.transaction.find_one(namespace, rawdoc! { "_id": expected.place }).await;
        let by_id = by_id.map_err(step_failure)?.map(|document| found(expected.collection, &document)).transpose()?;
        match by_id.as_ref() == Some(expected) {
            true => Ok(()),
            false => Err(Failure::Unexpected(format!("a query found {expected:?}, and its _id {by_id:?}"))),
        }
    }

    /// What is found in one of the ways; nothing if it fails for a document that the snapshot has.
    async fn ask(
        &mut self,
        collection: usize,
        way: Ask,
        keys: &Range<i64>,
    ) -> Result<Option<Vec<RawDocumentBuf>>, Failure> {
        let namespace = &self.shared.collections[collection];
        let answer = self.transaction.find_all(way.find(namespace, keys)).await;
        let count = match self.one_in(4) {
            true => Some(self.transaction.count_matching(namespace, way.filter(keys)).await),
            false => None,
        };
        self.tally.predicate_reads += u64::from(way != Ask::Places) * (1 + u64::from(count.is_some()));
        let found = match answer {
            Ok(found) => found,
            Err(error) => {
                self.check_failed(way, error).await?;
                return match count {
                    Some(Ok(count)) => Err(Failure::Unexpected(format!("{way:?} counts {count}, and its find fails"))),
                    _ => Ok(None),
                };
            }
        };
        match count.transpose().map_err(step_failure)? {
            Some(count) if count != found.len() as u64 => {
                Err(Failure::Unexpected(format!("{way:?} counts {count} of {keys:?}, and finds {found:?}")))
            }
            _ => Ok(Some(found)),
        }
    }

    /// A query may fail for what the snapshot has.
    async fn check_failed(&mut self, way: Ask, error: StoreError) -> Result<(), Failure> {
        match step_failure(error) {
            failure @ Failure::Unexpected(_) => match way.is_strict() && self.has_odd().await? {
                true => {
                    self.tally.failed_reads += 1;
                    Ok(())
                }
                false => Err(failure),
            },
            failure => Err(failure),
        }
    }

    /// Whether the snapshot has a document that some queries fail for.
    async fn has_odd(&self) -> Result<bool, Failure> {
        let odd = self.transaction.find_one(self.shared.first()?, beside::odd()).await.map_err(step_failure)?;
        Ok(odd.is_some())
    }

    async fn put(&mut self, key: i64, change: Change) -> Result<(), Failure> {
        let first = self.shared.first()?.clone();
        let Some(before) = self.find_key(key).await? else {
            return self.insert(&first, 2 * key, key, &change.of(&Cell::Nothing)).await;
        };
        let after = change.of(&before.cell);
        let namespace = self.shared.collections[before.collection].clone();
        match self.below(5) {
            0 | 1 => self.change_in_place(&namespace, key, &change).await,
            2 => {
                self.delete(&namespace, &before).await?;
                self.tally.reinsertions += 1;
                self.insert(&namespace, before.place, key, &after).await
            }
            3 => {
                self.delete(&namespace, &before).await?;
                self.tally.reinsertions += 1;
                self.insert(&first, before.place ^ 1, key, &after).await
            }
            _ => self.exchange(&before, &after).await,
        }
    }

    async fn change_in_place(&mut self, namespace: &Namespace, key: i64, change: &Change) -> Result<(), Failure> {
        let way = match self.way() {
            way if way.finds_others() => Ask::Range,
            way if way.is_strict() && self.has_odd().await? => Ask::AllFields,
            way => way,
        };
        let changed = self.transaction.update_many(namespace, way.filter(&(key..key + 1)), change.operators()).await;
        let changed = changed.map_err(step_failure)?;
        self.tally.predicate_writes += 1;
        match changed.matched {
            1 => Ok(()),
            matched => Err(Failure::Unexpected(format!("{way:?} changes {matched} of key {key}, which is there"))),
        }
    }

    /// Gives the document of another key the new contents, and its own to the document of this one.
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
            self.transaction.update_one(namespace, rawdoc! { "_id": found.place }, made(found.place, key, cell)).await;
        match changed.map_err(step_failure)?.matched {
            1 => Ok(()),
            _ => Err(Failure::Unexpected(format!("not there to be replaced: {found:?}"))),
        }
    }

    async fn insert(&self, namespace: &Namespace, place: i64, key: i64, cell: &Cell) -> Result<(), Failure> {
        self.transaction.insert_one(namespace, made(place, key, cell)).await.map_err(step_failure)
    }

    async fn delete(&mut self, namespace: &Namespace, found: &Found) -> Result<(), Failure> {
        let filter = match self.one_in(2) {
            true => rawdoc! { "_id": found.place },
            false => Ask::Range.filter(&(found.key..found.key + 1)),
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
    /// What it makes of what was there.
    fn of(&self, before: &Cell) -> Cell {
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
    Ok(Found { collection, place: integer("_id")?, key: integer("key")?, cell: documents::cell(document)? })
}

/// A key's document.
fn made(place: i64, key: i64, cell: &Cell) -> RawDocumentBuf {
    let text = "x".repeat(usize::try_from(key.rem_euclid(5)).unwrap_or(0) + 1);
    let fields = match cell {
        Cell::Value { amount: Some(_), .. } => 7,
        _ => 6,
    };
    let mut document =
        rawdoc! { "_id": place, "key": key, "text": text.as_str(), "tags": ["here", text.as_str()], "fields": fields };
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
