//! A transfer between documents in two different stores: every operation on either of them meets every fault, and one of
//! the two is away.
//!
//! ```text
//! process -> Faulty? -> Routed ─┬─ bank  -> Faulty? -> one store      Bob 10    handfast.oracle
//!                               └─ shop  -> Faulty? -> another one    Joe  2
//! ```
//!
//! In every case no money is lost, an answer that was given stays true, and no reader sees half of the transfer. While a store is away no
//! answer is wrong: a question that needs the store fails.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bson::{DateTime, Document, rawdoc};
use handfast_mql::Code;
use handfast_store::decorator::{Address, Fault, Faulty, Operation, Plan};
use handfast_store::routed::{Part, Routed};
use handfast_store::{
    DocumentStore, ErrorClass, Find, IndexSpec, Insert, ManualClock, MemoryStore, Namespace, RenameCollection, Sources,
    StoreExt,
};
use handfast_txn::{Database, Error, Outcome, Percolator, PercolatorOptions, Result};

use crate::crash_points::{Late, answer_holds};
use crate::support::{LOCK_TIME, options};

/// The databases, each in one store.
pub(crate) const BOB: &str = "bank";
pub(crate) const JOE: &str = "shop";

pub(crate) const PAID: (i32, i32) = (3, 9);
pub(crate) const UNPAID: (i32, i32) = (10, 2);

pub(crate) fn account(name: &str) -> Namespace {
    Namespace::new(name, "accounts").unwrap()
}

/// The connection with the faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FaultyConnection {
    /// The connection between the process and both stores.
    Process,
    /// The connection to the store with the clock.
    First,
    /// The connection to the other store.
    Second,
}

/// The database that is in the store without the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Bank,
    Shop,
}

/// Two stores, and the time.
pub(crate) struct World {
    side: Side,
    pub(crate) stores: [Arc<MemoryStore>; 2],
    pub(crate) sources: Sources,
    pub(crate) clock: Arc<ManualClock>,
}

impl World {
    pub(crate) async fn new(side: Side) -> World {
        let (sources, clock) = Sources::manual(1);
        clock.set(DateTime::from_millis(1_000_000));
        let store = || Arc::new(MemoryStore::new(sources.clone()));
        let stores = [store(), store()];
        let world = World { side, stores, sources, clock };
        let database = world.process();
        for (name, balance) in [(BOB, UNPAID.0), (JOE, UNPAID.1)] {
            database.insert_one(&account(name), rawdoc! { "_id": name, "balance": balance }).await.unwrap();
        }
        database.flush().await.unwrap();
        world
    }

    fn routed(&self, parts: [Arc<dyn DocumentStore>; 2]) -> Routed {
        let [first, second] = parts;
        let route = if self.side == Side::Bank { "bank=second" } else { "shop=second" };
        let routes = ["*=first", route].map(|route| route.parse().unwrap());
        let parts = vec![Part::new("first", first), Part::new("second", second)];
        Routed::new(parts, &routes, self.sources.clone()).unwrap()
    }

    pub(crate) fn both(&self) -> Routed {
        self.routed([self.stores[0].clone(), self.stores[1].clone()])
    }

    fn over(&self, store: Arc<dyn DocumentStore>) -> Database {
        let options = PercolatorOptions { routing: Some(self.both().routing().clone()), ..options() };
        Database::percolator(store, self.sources.clone(), options).unwrap()
    }

    /// Returns a process that meets no faults.
    pub(crate) fn process(&self) -> Database {
        self.over(Arc::new(self.both()))
    }

    /// Returns a process whose connection meets faults, and the store that makes them.
    pub(crate) fn process_with(
        &self,
        connection: FaultyConnection,
        plan: Plan,
    ) -> (Database, Arc<Faulty<dyn DocumentStore>>) {
        let [first, second] = [0, 1].map(|part| self.stores[part].clone() as Arc<dyn DocumentStore>);
        let faulty = |store: Arc<dyn DocumentStore>| Arc::new(Faulty::new(store, plan.clone()));
        match connection {
            FaultyConnection::Process => {
                let faulty = faulty(Arc::new(self.both()));
                (self.over(faulty.clone()), faulty)
            }
            FaultyConnection::First => {
                let faulty = faulty(first);
                (self.over(Arc::new(self.routed([faulty.clone(), second]))), faulty)
            }
            FaultyConnection::Second => {
                let faulty = faulty(second);
                (self.over(Arc::new(self.routed([first, faulty.clone()]))), faulty)
            }
        }
    }

    /// Returns what a new process sees.
    pub(crate) async fn seen(&self) -> (i32, i32) {
        let tx = self.process().begin().await.unwrap();
        (balance(&tx, BOB).await.unwrap(), balance(&tx, JOE).await.unwrap())
    }

    async fn rows(&self) -> Vec<Document> {
        let store = self.both();
        let mut rows = Vec::new();
        for name in [BOB, JOE] {
            let found = store.find_all(Find::new(account(name), rawdoc! {})).await.unwrap();
            rows.extend(found.iter().map(|row| Document::try_from(row).unwrap()));
        }
        rows
    }
}

/// Returns a plan that makes a store unreachable from the first read of its accounts on.
pub(crate) fn away_from_the_first_read() -> Plan {
    Plan::at_request(Address::first(Operation::Find).of("accounts"), Fault::CrashBefore)
}

async fn balance(store: &impl DocumentStore, name: &str) -> handfast_store::Result<i32> {
    let found = store.find_one(&account(name), rawdoc! { "_id": name }).await?;
    Ok(found.expect("an account").get_i32("balance").expect("a balance"))
}

/// Moves 7 from Bob to Joe, from one store into the other.
pub(crate) async fn pay(database: &Database) -> Result<()> {
    let tx = database.begin().await?;
    for (name, amount) in [(BOB, -7), (JOE, 7)] {
        tx.update_one(&account(name), rawdoc! { "_id": name }, rawdoc! { "$inc": { "balance": amount } }).await?;
    }
    tx.commit().await.map(drop)
}

#[derive(Clone, Copy, Debug)]
struct Case {
    side: Side,
    connection: FaultyConnection,
    number: u64,
    fault: Fault,
    late: Late,
}

async fn scenario(case: Case) -> &'static str {
    let Case { side, connection, number, fault, late } = case;
    let world = World::new(side).await;
    let (database, faulty) = world.process_with(connection, Plan::at(number, fault));
    let paid = pay(&database).await;
    database.flush().await.ok();
    let case = format!("{case:?}: {paid:?}");
    if late == Late::Soon {
        faulty.deliver_late().await;
    }
    if paid.is_ok() && !is_crash(fault) {
        assert_eq!(world.seen().await, PAID, "{case}");
    }
    world.clock.advance(LOCK_TIME);
    // The process continues without the unreachable store.
    let answer =
        if is_crash(fault) { ask_while_away(&database, &paid, &case).await } else { AnswersWhileAway::default() };
    faulty.restart();
    let first = world.seen().await;
    assert!(first == PAID || first == UNPAID, "{case}: {first:?}");
    answer.holds(first, &case);
    if late == Late::PastRecovery {
        faulty.deliver_late().await;
        world.clock.advance(LOCK_TIME);
    }
    assert_eq!(world.seen().await, first, "{case}");
    let answer = answer_holds(&database, &paid, first == PAID, &case).await;
    nothing_left(&world, &case).await;
    assert_eq!(world.seen().await, first, "{case}");
    answer
}

fn is_crash(fault: Fault) -> bool {
    matches!(fault, Fault::CrashBefore | Fault::CrashAfter)
}

/// The answers that were given while a store was away.
#[derive(Debug, Default)]
struct AnswersWhileAway {
    bob: Option<i32>,
    joe: Option<i32>,
    is_committed: Option<bool>,
}

impl AnswersWhileAway {
    fn holds(&self, seen: (i32, i32), case: &str) {
        let is = |answer: Option<i32>, seen: i32| answer.is_none_or(|answer| answer == seen);
        assert!(is(self.bob, seen.0) && is(self.joe, seen.1), "{case}: {self:?}, then {seen:?}");
        assert!(self.is_committed.is_none_or(|answer| answer == (seen == PAID)), "{case}: {self:?}, then {seen:?}");
    }
}

/// Asks for both balances and the outcome. Each question without an answer fails because a store is unreachable.
async fn ask_while_away(database: &Database, paid: &Result<()>, case: &str) -> AnswersWhileAway {
    let known = |answer: handfast_store::Result<i32>| match answer {
        Ok(balance) => Some(balance),
        Err(error) => {
            assert_eq!(error.class(), ErrorClass::Outage, "{case}: {error}");
            None
        }
    };
    let is_committed = match paid {
        Err(Error::CommitUnknown { id, .. }) => match database.outcome(*id).await {
            Ok(outcome) => Some(matches!(outcome, Outcome::Committed(_))),
            Err(error) => {
                assert_eq!(error.class(), ErrorClass::Outage, "{case}: {error}");
                None
            }
        },
        _ => None,
    };
    AnswersWhileAway {
        bob: known(balance(database, BOB).await),
        joe: known(balance(database, JOE).await),
        is_committed,
    }
}

/// Checks that nothing is left after the retention and two passes of the cleaner.
async fn nothing_left(world: &World, case: &str) {
    let cleaner = Percolator::new(Arc::new(world.both()), world.sources.clone(), options()).unwrap();
    for time in [1_300, 100_000] {
        world.clock.advance(Duration::from_secs(time));
        cleaner.clean().await.unwrap();
    }
    for row in world.rows().await {
        let hidden = row.get_document("_hf").unwrap();
        assert!(hidden.keys().all(|name| ["v", "c", "s", "p"].contains(&name.as_str())), "{case}: {row}");
    }
}

async fn every_operation_meets_every_fault(side: Side) {
    let mut answers: BTreeMap<&str, u32> = BTreeMap::new();
    let mut operations_of = Vec::new();
    for connection in [FaultyConnection::Process, FaultyConnection::First, FaultyConnection::Second] {
        let (database, counting) = World::new(side).await.process_with(connection, Plan::none());
        pay(&database).await.unwrap();
        database.flush().await.unwrap();
        let operations = counting.operations();
        operations_of.push((connection, operations));
        for number in 0..operations {
            for fault in Fault::ALL_OUTCOMES {
                for late in [Late::Soon, Late::PastRecovery] {
                    *answers.entry(scenario(Case { side, connection, number, fault, late }).await).or_default() += 1;
                }
            }
        }
    }
    println!(
        "{operations_of:?} operations, {} faults, 2 times for late requests: {answers:?}",
        Fault::ALL_OUTCOMES.len()
    );
    // Each kind of answer occurs, and each store gets requests.
    assert!(answers.len() == 3 && answers.values().all(|count| *count >= 4), "{answers:?}");
    assert!(operations_of.iter().all(|(_, operations)| *operations >= 3), "{operations_of:?}");
}

#[tokio::test]
async fn a_transfer_out_of_the_store_with_the_clock_is_done_wholly_or_not_at_all() {
    every_operation_meets_every_fault(Side::Shop).await;
}

#[tokio::test]
async fn a_transfer_into_the_store_with_the_clock_is_done_wholly_or_not_at_all() {
    every_operation_meets_every_fault(Side::Bank).await;
}

/// The store without the clock is unreachable: a transfer into it fails and changes nothing, and a request that needs only the other
/// store succeeds. Then it is back.
#[tokio::test]
async fn requests_that_need_only_the_reachable_store_succeed() {
    let world = World::new(Side::Shop).await;
    let (database, faulty) = world.process_with(FaultyConnection::Second, away_from_the_first_read());
    // The store becomes unreachable during the first payment; the second payment does not reach it at all.
    pay(&database).await.unwrap_err();
    let refused = pay(&database).await.unwrap_err();
    assert!(matches!(&refused, Error::Store(error) if error.class() == ErrorClass::Outage), "{refused:?}");

    let raise = rawdoc! { "$inc": { "balance": 1 } };
    database.update_one(&account(BOB), rawdoc! { "_id": BOB }, raise.clone()).await.unwrap();
    assert_eq!(balance(&database, BOB).await.unwrap(), 11);
    let lower = rawdoc! { "$inc": { "balance": -1 } };
    database.update_one(&account(BOB), rawdoc! { "_id": BOB }, lower).await.unwrap();

    faulty.restart();
    pay(&database).await.unwrap();
    assert_eq!(world.seen().await, PAID);
}

/// A store that is unreachable has refused no statement: the request fails as a whole, and its transaction cannot be committed.
#[tokio::test]
async fn a_request_that_does_not_reach_the_store_fails_as_a_whole() {
    let world = World::new(Side::Shop).await;
    let (database, faulty) = world.process_with(FaultyConnection::Second, away_from_the_first_read());
    pay(&database).await.unwrap_err();
    let tx = database.begin().await.unwrap();
    tx.update_one(&account(BOB), rawdoc! { "_id": BOB }, rawdoc! { "$inc": { "balance": -7 } }).await.unwrap();
    let documents = vec![rawdoc! { "_id": "Ann", "balance": 1 }, rawdoc! { "_id": "Eve", "balance": 1 }];
    let refused = tx.insert(Insert { ordered: false, ..Insert::new(account(JOE), documents) }).await.unwrap_err();
    assert_eq!((refused.class(), refused.code()), (ErrorClass::Outage, Code::HostUnreachable), "{refused}");
    faulty.restart();
    let refused = tx.commit().await.unwrap_err();
    assert!(matches!(&refused, Error::Store(error) if error.class() == ErrorClass::Outage), "{refused:?}");
    assert_eq!(world.seen().await, UNPAID);
}

/// Unique keys are kept in the store with the clock, whichever store has the documents.
#[tokio::test]
async fn a_unique_index_holds_in_the_other_store() {
    let world = World::new(Side::Shop).await;
    let database = world.process();
    let index = IndexSpec { unique: true, ..IndexSpec::new(rawdoc! { "number": 1 }) };
    database.create_index(&account(JOE), index).await.unwrap();
    database.insert_one(&account(JOE), rawdoc! { "_id": "Ann", "number": 1 }).await.unwrap();
    let twice = database.insert_one(&account(JOE), rawdoc! { "_id": "Eve", "number": 1 }).await.unwrap_err();
    assert_eq!(twice.code(), Code::DuplicateKey);
    let [first, second] = [0, 1].map(|part| world.stores[part].clone());
    assert_eq!(second.list_databases().await.unwrap(), ["shop"]);
    assert!(first.list_databases().await.unwrap().contains(&"handfast".to_owned()));
    assert_eq!(first.list_collections("shop").await.unwrap().len(), 0);
}

/// A rename that is refused must not remove the target's indexes.
#[tokio::test]
async fn a_rename_to_another_store_is_refused_and_leaves_all_as_it_was() {
    let world = World::new(Side::Shop).await;
    let database = world.process();
    for name in [BOB, JOE] {
        let index = IndexSpec { unique: true, ..IndexSpec::new(rawdoc! { "number": 1 }) };
        database.create_index(&account(name), index).await.unwrap();
    }
    let request = RenameCollection { from: account(BOB), to: account(JOE), drop_target: true };
    let refused = database.rename_collection(request).await.unwrap_err();
    assert_eq!(refused.code(), Code::CommandNotSupported);
    for name in [BOB, JOE] {
        let names: Vec<_> = database.list_indexes(&account(name)).await.unwrap();
        assert_eq!(names.len(), 2, "{name}: {names:?}");
        database.insert_one(&account(name), rawdoc! { "_id": "Ann", "number": 1 }).await.unwrap();
        let twice = database.insert_one(&account(name), rawdoc! { "_id": "Eve", "number": 1 }).await.unwrap_err();
        assert_eq!(twice.code(), Code::DuplicateKey);
    }
}
