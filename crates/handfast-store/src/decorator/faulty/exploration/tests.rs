use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bson::rawdoc;

use super::{Exploration, ExplorationError, PairOutcome};
use crate::decorator::{Fault, Faulty};
use crate::{
    BatchLimit, Count, DocumentStore, Find, Insert, MemoryStore, Namespace, Sources, Update, UpdateSpec,
    UpdateStatement,
};

type Store = Arc<Faulty<MemoryStore>>;

fn accounts() -> Namespace {
    Namespace::valid("bank", "accounts")
}

async fn fresh() -> Arc<MemoryStore> {
    let store = MemoryStore::new(Sources::seeded(1));
    store.insert(Insert::new(accounts(), vec![rawdoc! { "_id": 1, "balance": 0 }])).await.unwrap();
    Arc::new(store)
}

/// Pays 10, and repeats the payment if it is not known whether it was applied.
async fn pay(store: Store, filter: bson::RawDocumentBuf, change: bson::RawDocumentBuf) {
    let update = || {
        let change = UpdateSpec::Document(change.clone());
        Update::new(accounts(), vec![UpdateStatement::one(filter.clone(), change)])
    };
    while store.update(update()).await.is_err() {}
}

async fn pay_blindly(store: Store) {
    pay(store, rawdoc! { "_id": 1 }, rawdoc! { "$inc": { "balance": 10 } }).await;
}

/// Gives the payment a name, and stores it in the same update.
async fn pay_once(store: Store) {
    let change = rawdoc! { "$inc": { "balance": 10 }, "$push": { "payments": "a" } };
    pay(store, rawdoc! { "_id": 1, "payments": { "$ne": "a" } }, change).await;
}

async fn is_paid_once(store: &MemoryStore) -> std::result::Result<(), String> {
    let mut cursor = store.find(Find::new(accounts(), rawdoc! {})).await.unwrap();
    let documents = cursor.next_page(BatchLimit::REPLY).await.unwrap().documents;
    match documents[0].get_i32("balance").unwrap() {
        10 => Ok(()),
        other => Err(format!("the balance is {other}, not 10")),
    }
}

#[tokio::test]
async fn a_repeated_increment_is_found() {
    let explored = Exploration::default().explore(fresh, pay_blindly, is_paid_once).await.unwrap();
    let expected = "1 of 2 pairs are not right:\nupdate:1/lose-reply: the balance is 20, not 10";
    assert_eq!(explored.check().unwrap_err().to_string(), expected);
}

#[tokio::test]
async fn a_payment_with_a_name_is_right_after_each_fault() {
    let faults = [Fault::Refuse, Fault::LoseRequest, Fault::LoseReply, Fault::DeliverLate, Fault::Duplicate];
    let exploration = Exploration { faults: faults.to_vec(), ..Exploration::default() };
    let explored = exploration.explore(fresh, pay_once, is_paid_once).await.unwrap();
    let pairs: Vec<String> = explored.pairs.iter().map(|(pair, _)| pair.to_string()).collect();
    assert_eq!(pairs, faults.map(|fault| format!("update:1/{}", fault.name())));
    explored.check().unwrap();
    let explored = exploration.explore(fresh, pay_blindly, is_paid_once).await.unwrap();
    let wrong = explored.pairs.iter().filter(|(_, outcome)| *outcome != PairOutcome::Right);
    let wrong: Vec<_> = wrong.map(|(pair, _)| pair.fault).collect();
    assert_eq!(wrong, [Fault::LoseReply, Fault::DeliverLate, Fault::Duplicate]);
}

/// The process of the scenario dies; the store is as before for the invariant.
#[tokio::test]
async fn a_crash_ends_the_scenario_and_not_the_store() {
    let exploration = Exploration { faults: vec![Fault::CrashBefore, Fault::CrashAfter], ..Exploration::default() };
    let once = async |store: Store| {
        for id in [2, 3] {
            let _is_inserted = store.insert(Insert::new(accounts(), vec![rawdoc! { "_id": id }])).await;
        }
    };
    let count = async |store: &MemoryStore| {
        let count = store.count(Count::new(accounts(), rawdoc! {})).await.unwrap();
        if count == 3 { Ok(()) } else { Err(count.to_string()) }
    };
    let explored = exploration.explore(fresh, once, count).await.unwrap();
    let outcomes: Vec<String> = explored.pairs.iter().map(|(pair, outcome)| format!("{pair} {outcome}")).collect();
    let expected =
        ["insert:1/crash-before 1", "insert:1/crash-after 2", "insert:2/crash-before 2", "insert:2/crash-after right"];
    assert_eq!(outcomes, expected);
}

/// The first retry meets the fault, too, if it is injected twice.
#[tokio::test]
async fn a_fault_of_several_requests_in_a_row() {
    let tries = AtomicU32::new(0);
    let scenario = async |store: Store| {
        tries.store(0, Ordering::SeqCst);
        for _ in 0..3 {
            tries.fetch_add(1, Ordering::SeqCst);
            let change = UpdateSpec::Document(rawdoc! { "$set": { "balance": 1 } });
            let statement = UpdateStatement::one(rawdoc! { "_id": 1 }, change);
            if store.update(Update::new(accounts(), vec![statement])).await.is_ok() {
                break;
            }
        }
    };
    let check = async |times: u32, expected: u32| {
        let exploration = Exploration {
            faults: vec![Fault::LoseRequest],
            times: times.try_into().unwrap(),
            ..Exploration::default()
        };
        exploration.explore(fresh, scenario, async |_| Ok(())).await.unwrap().check().unwrap();
        assert_eq!(tries.load(Ordering::SeqCst), expected);
    };
    check(1, 2).await;
    check(2, 3).await;
}

#[tokio::test]
async fn the_requests_in_a_row_are_bounded() {
    let explored = async |times: u32| {
        let exploration = Exploration { times: times.try_into().unwrap(), ..Exploration::default() };
        exploration.explore(fresh, pay_once, is_paid_once).await
    };
    assert!(explored(Exploration::TIMES_MAX).await.is_ok());
    let error = explored(u32::MAX).await.unwrap_err().to_string();
    assert!(error.starts_with("`times` is 4294967295, and 1000 at most: "), "{error}");
}

#[tokio::test(start_paused = true)]
async fn scenarios_that_do_not_fit_are_named() {
    let invariant = async |_: &MemoryStore| Err("it is wrong".to_owned());
    let wrong = Exploration::default().explore(fresh, pay_once, invariant).await.unwrap_err();
    assert_eq!(wrong, ExplorationError::WithoutFault("it is wrong".to_owned()));
    let nothing = Exploration::default().explore(fresh, async |_| (), async |_| Ok(())).await.unwrap_err();
    assert_eq!(nothing.to_string(), "the scenario fails without any fault: it starts no operation of the store");

    // A frozen operation is never released here.
    let frozen =
        Exploration { faults: vec![Fault::FreezeAfter], time_limit: Duration::from_secs(5), ..Exploration::default() };
    let explored = frozen.explore(fresh, pay_once, is_paid_once).await.unwrap();
    assert_eq!(explored.pairs[0].1, PairOutcome::TimedOut);

    let runs = AtomicU32::new(0);
    let first_run_only = async |store: Store| {
        if runs.fetch_add(1, Ordering::SeqCst) == 0 {
            pay_once(store).await;
        }
    };
    let explored = Exploration::default().explore(fresh, first_run_only, async |_| Ok(())).await.unwrap();
    let outcomes: Vec<_> = explored.pairs.into_iter().map(|(_, outcome)| outcome).collect();
    assert_eq!(outcomes, [PairOutcome::NotReached, PairOutcome::NotReached]);
}
