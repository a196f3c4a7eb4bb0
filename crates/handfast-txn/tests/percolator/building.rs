//! Unique indexes are built, dropped and renamed beside writers, while requests fail or processes die.

use std::sync::Arc;
use std::time::Duration;

use bson::{Document, rawdoc};
use handfast_mql::Code;
use handfast_store::decorator::{Fault, Faulty, Plan};
use handfast_store::{DocumentStore, MemoryStore, Namespace, RenameCollection, StoreExt};
use handfast_txn::{Database, Error, Percolator, Result};

use crate::support::*;
use crate::users::*;

/// Runs a transaction that gives up keys, takes keys, swaps keys, and leaves keys as they are.
async fn write(database: &Database) -> Result<()> {
    let tx = database.begin().await?;
    for (name, mail) in [("Bob", "x"), ("Joe", "a"), ("Bob", "b")] {
        tx.update_one(&users(), rawdoc! { "_id": name }, rawdoc! { "$set": { "mail": mail } }).await?;
    }
    tx.delete_one(&users(), rawdoc! { "_id": "Ann" }).await?;
    tx.insert_one(&users(), rawdoc! { "_id": "Eve", "mail": "c" }).await?;
    tx.update_one(&users(), rawdoc! { "_id": 0 }, rawdoc! { "$set": { "age": 1 } }).await?;
    tx.commit().await.map(drop)
}

async fn written(database: &Database) -> handfast_store::Result<()> {
    for _ in 0..20 {
        match write(database).await {
            Err(Error::Conflict(_)) => {}
            result => return result.map_err(handfast_store::Error::from),
        }
    }
    panic!("a writer had a conflict twenty times")
}

/// Inserts a second document with the key of Bob.
async fn doubled(database: &Database) -> handfast_store::Result<()> {
    database.insert_one(&users(), rawdoc! { "_id": "Zoe", "mail": "a" }).await
}

type Task = tokio::task::JoinHandle<handfast_store::Result<()>>;

fn spawn<F>(store: Arc<Faulty<MemoryStore>>, bank: &Bank, run: impl FnOnce(Database) -> F) -> Task
where
    F: Future<Output = handfast_store::Result<()>> + Send + 'static,
{
    tokio::spawn(run(bank.process_over(store)))
}

/// Stops one of the two before each of its operations in turn, lets the other one run as far as it can, and then finishes
/// both. Calls `check` with the case, and with whether each of the two succeeded.
async fn concurrently<F, G>(
    one: impl Fn(Database) -> F,
    other: impl Fn(Database) -> G,
    check: impl AsyncFn(&Bank, String, [bool; 2]),
) where
    F: Future<Output = handfast_store::Result<()>> + Send + 'static,
    G: Future<Output = handfast_store::Result<()>> + Send + 'static,
{
    for number in 0..OPERATIONS_MAX {
        let bank = with_users(2).await;
        let faulty = Arc::new(Faulty::new(bank.store.clone(), Plan::at(number, Fault::FreezeBefore)));
        let first = spawn(faulty.clone(), &bank, &one);
        let is_stopped = stopped(&faulty, || first.is_finished()).await;
        let plain = Arc::new(Faulty::new(bank.store.clone(), Plan::none()));
        let second = spawn(plain, &bank, &other);
        // The second one may have to wait for the first one.
        for _ in 0..200 {
            tokio::task::yield_now().await;
        }
        faulty.release();
        let (first, second) = (first.await.unwrap(), second.await.unwrap());
        let case = format!("stopped at {number}: {first:?}, {second:?}");
        bank.process().flush().await.unwrap();
        tokio::time::sleep(Duration::from_millis(1)).await;
        check(&bank, case, [first.is_ok(), second.is_ok()]).await;
        if !is_stopped {
            assert!(number > 5, "{number} operations");
            return;
        }
    }
    panic!("it did not end");
}

async fn build(database: Database) -> handfast_store::Result<()> {
    create(&database, by_mail()).await?;
    database.flush().await
}

async fn change(database: Database) -> handfast_store::Result<()> {
    written(&database).await?;
    database.flush().await
}

async fn double(database: Database) -> handfast_store::Result<()> {
    doubled(&database).await?;
    database.flush().await
}

#[tokio::test]
async fn an_index_is_built_beside_a_writer() {
    let check = async |bank: &Bank, case: String, is_ok: [bool; 2]| {
        assert_eq!(is_ok, [true, true], "{case}");
        assert!(is_listed(bank).await, "{case}");
        agree(bank, &case).await;
    };
    concurrently(build, change, &check).await;
    concurrently(change, build, &check).await;
    // A writer that only gives a key up writes its key row all the same: the builder may be about to write that row.
    let leave = async |database: Database| {
        let change = rawdoc! { "$set": { "mail": 77 } };
        database.update_one(&users(), rawdoc! { "_id": 1 }, change).await?;
        database.flush().await
    };
    concurrently(build, leave, &check).await;
    concurrently(leave, build, &check).await;
}

/// Exactly one of the two is refused: the build of the index, or the writer of a duplicate key.
#[tokio::test]
async fn an_index_is_built_beside_one_who_takes_a_key_twice() {
    let check = async |bank: &Bank, case: String, is_ok: [bool; 2]| {
        assert_eq!(is_ok.iter().filter(|is_ok| **is_ok).count(), 1, "{case}");
        let mails = documents(bank).await;
        let doubled = mails.iter().filter(|user| user.get_str("mail").is_ok_and(|mail| mail == "a")).count() == 2;
        assert_eq!(is_listed(bank).await, !doubled, "{case}");
        agree(bank, &case).await;
    };
    concurrently(build, double, &check).await;
    concurrently(double, build, &check).await;
}

#[tokio::test]
async fn an_index_is_dropped_beside_a_writer() {
    let remove = async |database: Database| {
        create(&database, by_mail()).await?;
        drop_all(&database).await?;
        database.flush().await
    };
    let check = async |bank: &Bank, case: String, is_ok: [bool; 2]| {
        assert_eq!(is_ok, [true, true], "{case}");
        assert!(!is_listed(bank).await, "{case}");
        let cleaner = Percolator::new(bank.store.clone(), bank.sources.clone(), options()).unwrap();
        cleaner.clean().await.unwrap();
        agree(bank, &case).await;
    };
    concurrently(remove, change, &check).await;
    concurrently(change, remove, &check).await;
}

/// Starts to build the index, goes on until the bank fulfils a condition, and stops before the next operation.
async fn builder(bank: &Bank, is_so: impl AsyncFn(&Bank) -> bool) -> Stepped<handfast_store::Error> {
    let store = stepped(bank.store.clone());
    let building = Stepped { payment: tokio::spawn(build(bank.process_over(store.clone()))), store };
    while !is_so(bank).await {
        building.step().await;
    }
    building
}

/// Two documents have the key: the one whose key row is written keeps it if the other one gives the key up before the
/// builder reads it.
#[tokio::test]
async fn a_key_that_two_had_stays_with_the_one() {
    let bank = with_users(150).await;
    let change = rawdoc! { "$set": { "mail": 0 } };
    bank.process().update_one(&users(), rawdoc! { "_id": "Joe" }, change).await.unwrap();
    // The builder has written the first page of a hundred documents, with user 0; Joe is in the second page.
    let is_written = |row: &Document| !row.get_document("_hf").unwrap().contains_key("lock");
    let page = async |bank: &Bank| raw_keys(bank).await.iter().filter(|row| is_written(row)).count() == 100;
    let building = builder(&bank, page).await;
    let change = rawdoc! { "$set": { "mail": "b" } };
    bank.process().update_one(&users(), rawdoc! { "_id": "Joe" }, change).await.unwrap();
    building.finish().await.unwrap();
    agree(&bank, "given up").await;
}

/// A version of the catalog that is written and not announced is in force for no process, not even for one that has read
/// it.
#[tokio::test]
async fn an_index_is_in_force_for_all_at_once() {
    let bank = with_users(2).await;
    let building = builder(&bank, async |bank| !catalog(bank).await.is_empty()).await;
    let (knowing, other) = (bank.process(), bank.process());
    assert_eq!(knowing.list_indexes(&users()).await.unwrap().len(), 1);
    knowing.insert_one(&users(), rawdoc! { "_id": "Eve", "mail": "e" }).await.unwrap();
    let change = rawdoc! { "$set": { "mail": "f" } };
    other.update_one(&users(), rawdoc! { "_id": "Eve" }, change).await.unwrap();
    assert!(raw_keys(&bank).await.is_empty());
    building.finish().await.unwrap();
    agree(&bank, "announced").await;
}

#[tokio::test]
async fn two_build_the_same_index() {
    let check = async |bank: &Bank, case: String, is_ok: [bool; 2]| {
        assert_eq!(is_ok, [true, true], "{case}");
        assert_eq!(catalog(bank).await.len(), 1, "{case}");
        agree(bank, &case).await;
    };
    concurrently(build, build, &check).await;
}

/// Every operation of building and dropping meets every fault. Afterwards an acknowledged change is in force, a failed
/// request can be repeated, and after a failure a cleaner leaves the index complete or removes it wholly.
#[tokio::test]
async fn every_operation_of_building_meets_every_fault() {
    let (mut built, mut gone, mut cases) = (0, 0, 0);
    for fault in Fault::ALL_OUTCOMES {
        for number in 0..OPERATIONS_MAX {
            let mut is_over = false;
            for is_repeated in [false, true] {
                let bank = with_users(2).await;
                let faulty = Arc::new(Faulty::new(bank.store.clone(), Plan::at(number, fault)));
                let database = bank.process_over(faulty.clone());
                let made = build(database.clone()).await;
                is_over = faulty.operations() <= number;
                let case = format!("{fault:?} at {number}, {is_repeated}: {made:?}");
                faulty.restart();
                bank.clock.advance(LOCK_TIME);
                assert!(made.is_err() || is_listed(&bank).await, "{case}");
                doubled(&bank.process()).await.map_or_else(|error| assert_eq!(error.code(), Code::DuplicateKey), drop);
                bank.process().delete_one(&users(), rawdoc! { "_id": "Zoe" }).await.unwrap();
                if is_repeated {
                    create(&bank.process(), by_mail()).await.unwrap_or_else(|error| panic!("{case}: {error}"));
                    assert!(is_listed(&bank).await, "{case}");
                }
                faulty.deliver_late().await;
                let cleaner = Percolator::new(bank.store.clone(), bank.sources.clone(), options()).unwrap();
                for _ in 0..3 {
                    bank.clock.advance(Duration::from_secs(700));
                    cleaner.clean().await.unwrap();
                }
                agree(&bank, &case).await;
                let is_there = is_listed(&bank).await;
                assert!(is_there || made.is_err() && !is_repeated, "{case}");
                assert_eq!(doubled(&bank.process()).await.is_err(), is_there, "{case}");
                *(if is_there { &mut built } else { &mut gone }) += 1;
                cases += 1;
            }
            if is_over {
                break;
            }
        }
    }
    println!("{cases} cases: {built} times the index is there, {gone} times it is not");
    assert!(built > 100 && gone > 20, "{built} {gone}");
}

#[tokio::test]
async fn every_operation_of_dropping_meets_every_fault() {
    let (mut kept, mut cases) = (0, 0);
    for fault in Fault::ALL_OUTCOMES {
        for number in 0..OPERATIONS_MAX {
            let bank = with_index().await;
            let faulty = Arc::new(Faulty::new(bank.store.clone(), Plan::at(number, fault)));
            let dropped = drop_all(&bank.process_over(faulty.clone())).await;
            let is_over = faulty.operations() <= number;
            let case = format!("{fault:?} at {number}: {dropped:?}");
            faulty.restart();
            bank.clock.advance(LOCK_TIME);
            assert!(dropped.is_err() || !is_listed(&bank).await, "{case}");
            faulty.deliver_late().await;
            let cleaner = Percolator::new(bank.store.clone(), bank.sources.clone(), options()).unwrap();
            cleaner.clean().await.unwrap();
            agree(&bank, &case).await;
            let is_there = is_listed(&bank).await;
            assert!(!is_there || dropped.is_err(), "{case}");
            assert_eq!(doubled(&bank.process()).await.is_err(), is_there, "{case}");
            kept += i32::from(is_there);
            cases += 1;
            if is_over {
                break;
            }
        }
    }
    println!("{cases} cases: {kept} times the index is still there");
    assert!(kept > 5 && cases > 50, "{kept} {cases}");
}

/// Any process may complete an index that is not listed yet, so it belongs to none: if all builders die, the cleaner drops it after
/// some time.
#[tokio::test]
async fn an_index_without_a_builder_is_dropped() {
    let bank = with_users(2).await;
    let faulty = Arc::new(Faulty::new(bank.store.clone(), Plan::explicit((0..400).map(|n| (n, Fault::FreezeBefore)))));
    let database = bank.process_over(faulty.clone());
    let building = tokio::spawn(build(database));
    while raw_keys(&bank).await.is_empty() {
        assert!(stopped(&faulty, || building.is_finished()).await);
        faulty.release();
    }
    building.abort();
    assert!(!is_listed(&bank).await);
    let cleaner = Percolator::new(bank.store.clone(), bank.sources.clone(), options()).unwrap();
    cleaner.clean().await.unwrap();
    assert_eq!(catalog(&bank).await[0].get_str("state").unwrap(), "building");
    bank.clock.advance(Duration::from_secs(61));
    cleaner.clean().await.unwrap();
    agree(&bank, "abandoned").await;
    assert!(catalog(&bank).await.is_empty());
    assert_eq!(bank.indexes_of_users(&users()).await.len(), 1);
}

/// After a renaming with any fault the collection has one of the two names, and its index.
#[tokio::test]
async fn every_operation_of_renaming_meets_every_fault() {
    let people = Namespace::new("other", "people").unwrap();
    let (mut renamed, mut cases) = (0, 0);
    for fault in Fault::ALL_OUTCOMES {
        for number in 0..OPERATIONS_MAX {
            let bank = with_index().await;
            let faulty = Arc::new(Faulty::new(bank.store.clone(), Plan::at(number, fault)));
            let request = RenameCollection { from: users(), to: people.clone(), drop_target: false };
            let answer = bank.process_over(faulty.clone()).rename_collection(request).await;
            let is_over = faulty.operations() <= number;
            let case = format!("{fault:?} at {number}: {answer:?}");
            faulty.restart();
            let cleaner = Percolator::new(bank.store.clone(), bank.sources.clone(), options()).unwrap();
            for _ in 0..2 {
                bank.clock.advance(LOCK_TIME);
                cleaner.clean().await.unwrap();
            }
            let is_renamed = bank.process().list_indexes(&people).await.is_ok();
            assert!(is_renamed || answer.is_err(), "{case}");
            let name = if is_renamed { people.clone() } else { users() };
            let database = bank.process();
            let indexes = database.list_indexes(&name).await.unwrap();
            assert!(indexes.iter().any(|index| index.spec == by_mail()), "{case}: {indexes:?}");
            let taken = database.insert_one(&name, rawdoc! { "_id": "Zoe", "mail": "a" }).await;
            assert_eq!(code(taken), Code::DuplicateKey, "{case}");
            assert_eq!(catalog(&bank).await.len(), 1, "{case}");
            agree(&bank, &case).await;
            // A collection of the other name does not have the index.
            let other = if is_renamed { users() } else { people.clone() };
            database.insert_one(&other, rawdoc! { "_id": "Zoe", "mail": "a" }).await.unwrap();
            renamed += i32::from(is_renamed);
            cases += 1;
            if is_over {
                break;
            }
        }
    }
    println!("{cases} cases: {renamed} times it is renamed");
    assert!(renamed > 20 && cases - renamed > 20, "{renamed} of {cases}");
}

/// Moves keys between users at random; after a duplicate key or a conflict goes on with the next move.
async fn move_keys(database: Database, seed: u64, times: u32) {
    let random = handfast_store::Sources::seeded(seed).random;
    let pick = |below: u64| i32::try_from(random.next_u64() % below).unwrap();
    for _ in 0..times {
        let (one, other) = (pick(12), pick(12));
        let moved = async {
            let tx = database.begin().await?;
            for id in [one, other] {
                let change = rawdoc! { "$set": { "mail": [pick(20), pick(20)] } };
                match pick(4) {
                    0 => drop(tx.delete_one(&users(), rawdoc! { "_id": id }).await?),
                    _ => drop(tx.upsert_one(&users(), rawdoc! { "_id": id }, change).await?),
                }
            }
            tx.commit().await.map(drop)
        };
        match moved.await {
            Ok(()) => {}
            Err(Error::Conflict(_)) => tokio::task::yield_now().await,
            Err(error) => assert_eq!(error.code(), Code::DuplicateKey, "{error}"),
        }
    }
}

async fn all_move_keys(bank: &Bank, seed: u64, beside: impl Future<Output = ()>) {
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..3 {
        writers.spawn(move_keys(bank.process(), seed + writer, 40));
    }
    beside.await;
    while let Some(joined) = writers.join_next().await {
        joined.unwrap();
    }
}

/// Writers run on several threads while an index is built and dropped again and again; the last one stays.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn indexes_come_and_go_beside_many_writers() {
    for seed in 1..=3 {
        let bank = with_users(0).await;
        let database = bank.process();
        let come_and_go = async {
            for _ in 0..4 {
                match create(&database, by_mail()).await {
                    Ok(_) => drop(drop_all(&database).await.unwrap()),
                    Err(error) => assert!(matches!(error.code(), Code::DuplicateKey | Code::WriteConflict), "{error}"),
                }
            }
        };
        all_move_keys(&bank, 10 * seed, come_and_go).await;
        database.delete_many(&users(), rawdoc! {}).await.unwrap();
        create(&database, by_mail()).await.unwrap();
        all_move_keys(&bank, 20 * seed, async {}).await;
        // A key of a dropped index may arrive after the drop. The cleaner removes it when no snapshot can read it.
        forget_all(&bank).await;
        assert!(is_listed(&bank).await);
        agree(&bank, "many writers").await;
    }
}
