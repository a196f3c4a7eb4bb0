//! Queries at a snapshot: their requests, and the memory that they use.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use bson::oid::ObjectId;
use bson::{DateTime, RawArrayBuf, RawBson, RawDocumentBuf, rawdoc};
use handfast_mql::Code;
use handfast_store::decorator::{Address, Fault, Faulty, Operation, Plan};
use handfast_store::{
    Aggregate, BatchLimit, CreateIndexes, Cursor, DocumentStore, Find, Hint, IndexSpec, Insert, Random,
    Result as StoreResult, SeededRandom, Snapshot, StoreExt, Update, UpdateSpec, UpdateStatement,
};
use handfast_txn::{Database, Engine, Percolator, PercolatorOptions};

use crate::loose::Loose;
use crate::support::*;

/// Returns a bank with `count` accounts of a thousand bytes each, which no transaction has changed.
async fn with_accounts(count: i32) -> Bank {
    let bank = Bank::of_the_seed().await;
    let account = |id| rawdoc! { "_id": id, "balance": id % 100, "fill": "x".repeat(950) };
    bank.store.insert(Insert::new(accounts(), (0..count).map(account).collect())).await.unwrap();
    bank
}

pub(crate) async fn snapshot_over(bank: &Bank, store: Arc<dyn DocumentStore>) -> Arc<dyn Snapshot> {
    let engine = Percolator::new(store, bank.sources.clone(), options()).unwrap();
    engine.begin(Duration::MAX).await.unwrap().snapshot
}

fn by_balance() -> Option<Hint> {
    Some(Hint::Key(rawdoc! { "balance": 1 }))
}

/// Returns a bank with ten accounts and an index on their balances, and a snapshot. After the snapshot 2 got 70, 3 got 5, 4 left, and 40
/// came with 4.
async fn before_some_changes() -> (Bank, Arc<dyn Snapshot>) {
    let bank = Bank::of_the_seed().await;
    let database = bank.process();
    let account = |id: i32| rawdoc! { "_id": id, "balance": id };
    let made = (100..110).map(|id| rawdoc! { "_id": id, "balance": id });
    database.insert(Insert::new(accounts(), (0..10).map(account).chain(made).collect())).await.unwrap();
    let indexes = vec![IndexSpec::new(rawdoc! { "balance": 1 })];
    database.create_indexes(CreateIndexes { namespace: accounts(), indexes }).await.unwrap();
    let snapshot = snapshot_over(&bank, bank.store.clone()).await;
    for (id, balance) in [(2, 70), (3, 5)] {
        let change = rawdoc! { "$set": { "balance": balance } };
        database.update_one(&accounts(), rawdoc! { "_id": id }, change).await.unwrap();
    }
    database.delete_one(&accounts(), rawdoc! { "_id": 4 }).await.unwrap();
    database.insert_one(&accounts(), rawdoc! { "_id": 40, "balance": 4 }).await.unwrap();
    (bank, snapshot)
}

/// The bounds are those of the versions that the snapshot has, not of those that the store's index holds.
#[tokio::test]
async fn bounds_are_of_the_snapshot() {
    let (_bank, snapshot) = before_some_changes().await;
    let between = |min: i32, max: i32| Find {
        hint: by_balance(),
        min: Some(rawdoc! { "balance": min }),
        max: Some(rawdoc! { "balance": max }),
        sort: rawdoc! { "_id": 1 },
        ..Find::new(accounts(), rawdoc! { "_id": { "$type": "number" } })
    };
    let ids = async |min, max| {
        let found = all(&*snapshot, between(min, max)).await.unwrap();
        found.iter().map(|account| account.get_i32("_id").unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(ids(2, 6).await, [2, 3, 4, 5]);
    assert_eq!(ids(5, 8).await, [5, 6, 7]);
    assert!(ids(50, 100).await.is_empty());
    assert_eq!(all(&*snapshot, between(6, 6)).await.unwrap_err().code(), Code(51175));
    let of_another = Find { min: Some(rawdoc! { "_id": 1 }), ..between(1, 2) };
    assert_eq!(all(&*snapshot, of_another).await.unwrap_err().code(), Code(51174));
    let unhinted = Find { hint: None, ..between(1, 2) };
    assert_eq!(all(&*snapshot, unhinted).await.unwrap_err().code(), Code(51173));
}

/// The key that is shown is that of the version in the snapshot.
#[tokio::test]
async fn keys_are_those_of_the_snapshot() {
    let (_bank, snapshot) = before_some_changes().await;
    let keys = |hint| Find {
        hint,
        return_key: true,
        sort: rawdoc! { "balance": 1 },
        limit: Some(3),
        ..Find::new(accounts(), rawdoc! { "_id": { "$gte": 2, "$lt": 100 } })
    };
    let by = async |hint| all(&*snapshot, keys(Some(hint))).await.unwrap();
    let balances = [rawdoc! { "balance": 2 }, rawdoc! { "balance": 3 }, rawdoc! { "balance": 4 }];
    assert_eq!(by(Hint::Name("balance_1".to_owned())).await, balances);
    assert_eq!(
        by(Hint::Name("_id_".to_owned())).await,
        [rawdoc! { "_id": 2 }, rawdoc! { "_id": 3 }, rawdoc! { "_id": 4 }]
    );
    let error = all(&*snapshot, keys(None)).await.unwrap_err();
    assert_eq!(error.code(), Code::CommandNotSupported);
    assert!(error.message().contains("needs a hint"), "{error}");
}

/// A sparse index omits documents by their state in the snapshot.
#[tokio::test]
async fn a_sparse_index_is_that_of_the_snapshot() {
    let bank = Bank::of_the_seed().await;
    let database = bank.process();
    let indexes = vec![IndexSpec { sparse: true, ..IndexSpec::new(rawdoc! { "vip": 1 }) }];
    database.create_indexes(CreateIndexes { namespace: accounts(), indexes }).await.unwrap();
    let set = async |name: &str, change: RawDocumentBuf| {
        database.update_one(&accounts(), rawdoc! { "_id": name }, change).await.unwrap();
    };
    set("Bob", rawdoc! { "$set": { "vip": true } }).await;
    let snapshot = snapshot_over(&bank, bank.store.clone()).await;
    set("Bob", rawdoc! { "$unset": { "vip": true } }).await;
    set("Joe", rawdoc! { "$set": { "vip": true } }).await;
    let hint = Some(Hint::Name("vip_1".to_owned()));
    let found = all(&*snapshot, Find { hint, ..Find::new(accounts(), rawdoc! {}) }).await.unwrap();
    assert_eq!(found.iter().map(|found| found.get_str("_id").unwrap()).collect::<Vec<_>>(), ["Bob"]);
}

/// A query returns the store's ids of its records, however it finds a document, also if the snapshot has read it before.
#[tokio::test]
async fn records_are_shown() {
    let (bank, snapshot) = before_some_changes().await;
    let shown = |filter| Find { show_record_id: true, ..Find::new(accounts(), filter) };
    let mut expected = BTreeMap::new();
    for found in bank.store.find_all(shown(rawdoc! {})).await.unwrap() {
        expected.insert(found.get("_id").unwrap().unwrap().as_i32(), found.get_i64("$recordId").unwrap());
    }
    let ids: RawArrayBuf = (0..10).map(RawBson::Int32).collect();
    let by_id = rawdoc! { "_id": { "$in": ids } };
    let by_scan = rawdoc! { "balance": { "$lt": 10 }, "_id": { "$type": "number" } };
    for filter in [by_id.clone(), by_scan, by_id] {
        let found = all(&*snapshot, shown(filter)).await.unwrap();
        assert_eq!(found.len(), 10);
        for account in found {
            let id = account.get_i32("_id").unwrap();
            let as_it_was = rawdoc! { "_id": id, "balance": id, "$recordId": expected[&Some(id)] };
            assert_eq!(account, as_it_was);
        }
    }
}

pub(crate) async fn all(snapshot: &dyn Snapshot, find: Find) -> StoreResult<Vec<RawDocumentBuf>> {
    let mut cursor = snapshot.find(find).await?;
    let mut documents = Vec::new();
    loop {
        let page = cursor.next_page(BatchLimit::REPLY).await?;
        documents.extend(page.documents);
        if page.exhausted {
            return Ok(documents);
        }
    }
}

/// Returns an `_id`, of one of many kinds.
fn id(number: u64) -> RawBson {
    let number_32 = i32::try_from(number).unwrap();
    match number % 6 {
        0 => RawBson::Int32(number_32 - 30),
        1 => RawBson::Int64(i64::from(number_32)),
        2 => RawBson::Double(f64::from(number_32) / 2.0),
        3 => RawBson::String(format!("name {number}")),
        4 => RawBson::ObjectId(ObjectId::from_bytes([number as u8; 12])),
        // Few numbers give a boolean `_id`, as each of these documents would be changed more often than versions are kept.
        _ if number < 12 => RawBson::Boolean(number % 4 == 1),
        _ => RawBson::DateTime(DateTime::from_millis(i64::from(number_32))),
    }
}

/// Changes one or two accounts: inserts one, changes its balance, or deletes it.
async fn happens(database: &Database, random: &SeededRandom) {
    let below = |bound| random.next_u64() % bound;
    let tx = database.begin().await.unwrap();
    for _ in 0..=below(2) {
        let id = id(below(90));
        if below(4) == 0 {
            tx.delete_one(&accounts(), rawdoc! { "_id": id }).await.unwrap();
            continue;
        }
        let change = UpdateSpec::Document(rawdoc! { "$set": { "balance": below(10) as i32 } });
        let upsert = UpdateStatement { upsert: true, ..UpdateStatement::one(rawdoc! { "_id": id }, change) };
        tx.update(Update::new(accounts(), vec![upsert])).await.unwrap();
    }
    tx.commit().await.ok();
}

/// A query returns each document once, as the snapshot has it, whatever changes between two pages, and however little the process
/// remembers; also on a store whose cursors do not read one moment.
#[tokio::test]
async fn a_query_shows_each_document_once_while_others_change_them() {
    let (mut shown, mut remembered_all) = (0, 0);
    for seed in 0..60 {
        let bank = Bank::of_the_seed().await;
        let (writer, random) = (bank.process(), Arc::new(SeededRandom::new(seed)));
        for _ in 0..60 {
            happens(&writer, &random).await;
        }
        let (changing, chance) = (writer.clone(), Arc::clone(&random));
        let loose = Arc::new(Loose::new(bank.store.clone(), move || {
            let (writer, random) = (changing.clone(), Arc::clone(&chance));
            async move { happens(&writer, &random).await }
        }));
        let seen_bytes_max = [0, 800, usize::MAX][(seed % 3) as usize];
        let options = PercolatorOptions { seen_bytes_max, ..options() };
        let engine = Percolator::new(loose.clone(), bank.sources.clone(), options).unwrap();
        let snapshot = engine.begin(Duration::MAX).await.unwrap().snapshot;
        // A document that the filter names by its `_id` is read in no other way.
        let mut expected = Vec::new();
        for number in 0..90 {
            let found = snapshot.get(&accounts(), id(number).as_raw_bson_ref()).await.unwrap();
            expected.extend(found.filter(|found| found.get_i32("balance").unwrap() < 5));
        }
        let poor = Find::new(accounts(), rawdoc! { "balance": { "$lt": 5 }, "_id": { "$nin": ["Bob", "Joe"] } });
        loose.take_finds();
        let mut found = all(&*snapshot, poor).await.unwrap();
        let in_order = |documents: &mut Vec<RawDocumentBuf>| {
            documents.sort_by_key(|document| document.as_bytes().to_vec());
            documents.dedup();
        };
        let count = found.len();
        in_order(&mut found);
        in_order(&mut expected);
        assert_eq!(found.len(), count, "seed {seed}: a document came twice");
        assert_eq!(found, expected, "seed {seed}");
        shown += count;
        remembered_all += u32::from(loose.take_finds().len() == 3);
    }
    println!("{shown} documents shown, {remembered_all} queries remembered all");
    assert!(shown > 800 && (20..40).contains(&remembered_all), "{shown}, {remembered_all}");
}

/// A sort reads up to its memory limit, and stops there.
#[tokio::test]
async fn a_sort_that_is_too_large_ends_early() {
    let mut bank = with_accounts(20_000).await;
    bank.sources.query_memory.stage_bytes_max = 1024 * 1024;
    let counting = Arc::new(Faulty::new(bank.store.clone(), Plan::none()));
    let snapshot = snapshot_over(&bank, counting.clone()).await;
    let in_order =
        |limit| Find { sort: rawdoc! { "balance": 1, "_id": 1 }, limit, ..Find::new(accounts(), rawdoc! {}) };
    let before = counting.operations();
    let error = all(&*snapshot, in_order(None)).await.unwrap_err();
    assert_eq!(error.code(), Code::QueryExceededMemoryLimitNoDiskUseAllowed, "{error}");
    let operations = counting.operations() - before;
    assert!(operations < 10, "{operations}");
    // A sort with a small limit needs little memory.
    let least = all(&*snapshot, in_order(Some(3))).await.unwrap();
    let ids: Vec<_> = least.iter().map(|account| account.get_i32("_id").unwrap()).collect();
    assert_eq!(ids, [0, 100, 200]);
}

/// If a caller stops waiting for a page, the documents that were read for it are lost: then the cursor fails, instead of omitting them.
#[tokio::test]
async fn a_cursor_fails_after_a_page_that_was_given_up() {
    let bank = with_accounts(1_500).await;
    // `find` reads the page of the locked rows, which is empty, and the first page of the accounts.
    let second_page = Address::third(Operation::NextPage).of("accounts");
    let faulty = Arc::new(Faulty::new(bank.store.clone(), Plan::at_request(second_page, Fault::FreezeBefore)));
    let snapshot = snapshot_over(&bank, faulty.clone()).await;
    let mut cursor = snapshot.find(Find::new(accounts(), rawdoc! {})).await.unwrap();
    {
        let page = pin!(cursor.next_page(BatchLimit { documents: 1_200, bytes: usize::MAX }));
        assert!(page.poll(&mut Context::from_waker(Waker::noop())).is_pending());
        assert_eq!(faulty.frozen(), 1);
    }
    let error = cursor.next_page(BatchLimit::REPLY).await.unwrap_err();
    assert_eq!(error.code(), Code::CursorKilled, "{error}");
}

/// A number of changes of a document that exceeds the number of old versions that are kept.
const MANY_CHANGES: i32 = 20;

/// Changes a document so often that none of its earlier versions is kept.
async fn change_often(bank: &Bank, id: i32) {
    let database = bank.process();
    for _ in 0..MANY_CHANGES {
        database.update_one(&accounts(), rawdoc! { "_id": id }, rawdoc! { "$inc": { "balance": 1000 } }).await.unwrap();
    }
}

/// Returns a process that remembers this many bytes of the `_id`s that it has read. Beyond that it reads the other rows from the store in
/// their current state.
fn process_that_remembers(bytes: usize, bank: &Bank, store: Arc<dyn DocumentStore>) -> Database {
    let options = PercolatorOptions { seen_bytes_max: bytes, ..options() };
    Database::percolator(store, bank.sources.clone(), options).unwrap()
}

/// Reads 1,500 accounts. The last one is changed before this request for them.
async fn read_beside_changes(
    request: Address,
    open: impl AsyncFnOnce(Database) -> StoreResult<Box<dyn Cursor>>,
) -> StoreResult<Vec<RawDocumentBuf>> {
    let bank = with_accounts(1_500).await;
    let frozen = Plan::at_request(request.of("accounts"), Fault::FreezeBefore);
    let faulty = Arc::new(Faulty::new(bank.store.clone(), frozen));
    // A pipeline takes a thousand documents at a time.
    let database = process_that_remembers(100_000, &bank, faulty.clone());
    let reading = async {
        let mut cursor = open(database).await?;
        Ok(cursor.next_page(BatchLimit::REPLY).await?.documents)
    };
    let mut reading = pin!(reading);
    while faulty.frozen() == 0 {
        let polled = reading.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(polled.is_pending(), "the read ended before the request");
        tokio::task::yield_now().await;
    }
    change_often(&bank, 1_499).await;
    faulty.release();
    reading.await
}

/// Returns the address of the second find: the first one, for locked rows, has been answered.
fn before_any_account() -> Address {
    Address::second(Operation::Find)
}

/// Returns the address of the third find: the second one has been answered with most accounts.
fn before_the_rest() -> Address {
    Address::third(Operation::Find)
}

/// Outside of transactions a read that has returned no document takes a newer snapshot if it cannot read its own one to the end.
#[tokio::test]
async fn a_find_that_has_returned_nothing_begins_again() {
    for request in [before_any_account(), before_the_rest()] {
        let open = async |database: Database| database.find(Find::new(accounts(), rawdoc! {})).await;
        let found = read_beside_changes(request, open).await.unwrap();
        let last = found.into_iter().find(|account| account.get_i32("_id").is_ok_and(|id| id == 1_499)).unwrap();
        assert_eq!(last.get_i32("balance").unwrap(), 99 + 1000 * MANY_CHANGES);
    }
}

#[tokio::test]
async fn an_aggregation_that_has_returned_nothing_begins_again() {
    let sum = rawdoc! { "$group": { "_id": null, "balance": { "$sum": "$balance" }, "accounts": { "$sum": 1 } } };
    for request in [before_any_account(), before_the_rest()] {
        let aggregate = Aggregate::new(accounts(), vec![sum.clone()]);
        let found = read_beside_changes(request, async |database| database.aggregate(aggregate).await).await.unwrap();
        // Bob and Joe have 12, the others 0 to 99.
        let balance = 12 + 15 * 4_950 + 1000 * MANY_CHANGES;
        assert_eq!(found, [rawdoc! { "_id": null, "balance": balance, "accounts": 1_502 }]);
    }
}

/// `$merge` has written documents, which a second run would change once more.
#[tokio::test]
async fn an_aggregation_that_has_written_does_not_begin_again() {
    let aggregate = Aggregate::new(accounts(), vec![rawdoc! { "$merge": "copies" }]);
    let open = async |database: Database| database.aggregate(aggregate).await;
    let error = read_beside_changes(before_the_rest(), open).await.unwrap_err();
    assert_eq!(error.code(), Code::SnapshotTooOld, "{error}");
}

/// Documents of two snapshots must not be in one result.
#[tokio::test]
async fn a_find_that_has_returned_documents_does_not_begin_again() {
    let bank = with_accounts(10).await;
    let database = process_that_remembers(100, &bank, bank.store.clone());
    let mut cursor = database.find(Find::new(accounts(), rawdoc! {})).await.unwrap();
    let first = cursor.next_page(BatchLimit { documents: 1, bytes: usize::MAX }).await.unwrap();
    assert_eq!(first.documents.len(), 1);
    change_often(&bank, 9).await;
    let rest: StoreResult<()> = async {
        loop {
            let page = cursor.next_page(BatchLimit::REPLY).await?;
            if page.exhausted {
                return Ok(());
            }
        }
    }
    .await;
    assert_eq!(rest.unwrap_err().code(), Code::SnapshotTooOld);
}

/// No document can have such an `_id`. The store behind would take it for an operator or a pattern.
#[tokio::test]
async fn an_id_that_no_document_can_have_is_not_looked_up() {
    let bank = with_accounts(3).await;
    let snapshot = snapshot_over(&bank, bank.store.clone()).await;
    let database = process_that_remembers(100, &bank, bank.store.clone());
    let everything = bson::Regex { pattern: bson::raw::cstr!("").into(), options: bson::raw::cstr!("").into() };
    for id in [RawBson::Document(rawdoc! { "$gte": 0 }), RawBson::RegularExpression(everything)] {
        let find = Find::new(accounts(), rawdoc! { "_id": { "$eq": id } });
        for found in [snapshot.find(find.clone()).await, database.find(find).await] {
            let page = found.unwrap().next_page(BatchLimit::REPLY).await.unwrap();
            assert!(page.documents.is_empty(), "{:?}", page.documents);
        }
    }
}
