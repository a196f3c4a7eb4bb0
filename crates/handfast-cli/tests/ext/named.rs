//! The server that `HANDFAST_TEST_MONGODB_URI` names: the contract's suite on it, and transactions over it while answers get
//! lost and processes die.
//!
//! A MongoDB lacks nothing. Another server may refuse by name what it said at the start that it lacks.

use std::sync::Arc;
use std::time::Duration;

use bson::rawdoc;
use handfast_history::Expectation;
use handfast_sim::{DatabaseClient, Isolation, MinimumCounts, Order, RunOptions, Workload, WorkloadKind, run};
use handfast_store::conformance::PrefixedStore;
use handfast_store::decorator::{Fault, Faulty, Plan};
use handfast_store::{DocumentStore, Durability, Namespace, Sources, StoreExt};
use handfast_txn::percolator::Percolator;
use handfast_txn::{Database, PercolatorOptions};

use crate::own_databases::{OwnDatabases, in_own_databases, named};
use crate::stores::conform_in;

/// Transactions that commit in a workload.
const COMMITTED: u64 = 150;
/// Faults in a thousand operations.
const FAULTS_PER_THOUSAND: u16 = 20;
/// The lifetime of a lock: short, because each of many processes that die leaves some.
const LOCK_TTL: Duration = Duration::from_millis(400);
/// Operations that a payment has at most.
const OPERATIONS_MAX: u64 = 100;
/// The sum of the balances of Bob and Joe.
const MONEY: i32 = 12;

#[test]
fn ext_named_server_conforms() {
    let Some(uri) = named() else { return };
    let (report, server) =
        in_own_databases(&uri, async |databases: OwnDatabases| (conform_in(&databases).await, databases.server));
    println!("{report}");
    assert!(report.is_clean(), "{report}");
    assert!(report.refused.is_empty() || !server.product.starts_with("MongoDB"), "{report}");
}

/// Lists and a bank, judged, while requests and answers get lost.
#[test]
fn ext_named_server_keeps_histories_sound() {
    let Some(uri) = named() else { return };
    for kind in [WorkloadKind::ListAppend, WorkloadKind::Bank] {
        in_own_databases(&uri, |databases| histories_are_sound(databases, kind));
    }
}

async fn histories_are_sound(databases: OwnDatabases, kind: WorkloadKind) {
    let plan = Plan::seeded(1, FAULTS_PER_THOUSAND, [Fault::LoseRequest, Fault::LoseReply]).writes_only();
    let faulty = Arc::new(Faulty::new(Arc::new(databases.store), plan));
    let database = Database::percolator(faulty.clone(), databases.sources.clone(), options()).expect("a database");
    let keys = Namespace::new("sim", "keys").expect("a name");
    let client = DatabaseClient::new(database.clone(), keys, Isolation::Snapshot, Durability::Journaled);
    let minimum = MinimumCounts { committed: COMMITTED, failed: 1, old_version_reads: 1 };
    let expectation = Expectation { isolation: Isolation::Snapshot, order: Order::RealTime };
    let options = RunOptions { seed: 1, processes: 4, committed: COMMITTED, expectation, minimum };
    let outcome = run(Workload::new(kind), Arc::new(client), databases.sources, options).await.expect("a run");
    println!("{outcome}, {} faults", faulty.injected().len());
    assert_eq!(outcome.problems(), Vec::<String>::new(), "{outcome}");
    assert!(faulty.injected().len() > 10, "too little went wrong");
    database.flush().await.expect("flushed");
}

/// A process dies at each operation of a payment in turn. Whoever looks after that sees all of it or nothing.
#[test]
fn ext_named_server_keeps_payments_whole() {
    let Some(uri) = named() else { return };
    let deaths = in_own_databases(&uri, payments_are_whole);
    println!("a process died at each of {deaths} operations");
    assert!(deaths >= 8, "a payment takes more operations than {deaths}");
}

async fn payments_are_whole(OwnDatabases { store: own, sources, .. }: OwnDatabases) -> u64 {
    let accounts = Namespace::new("bank", "accounts").expect("a name");
    let operator = Percolator::new(Arc::new(own.clone()), sources.clone(), options()).expect("an operator");
    let reader = process(&own, &sources);
    for (name, balance) in [("Bob", 10), ("Joe", MONEY - 10)] {
        reader.insert_one(&accounts, rawdoc! { "_id": name, "balance": balance }).await.expect("inserted");
    }
    let mut left = 0;
    for number in 0..OPERATIONS_MAX {
        let dying = Arc::new(Faulty::new(Arc::new(own.clone()), Plan::at(number, Fault::CrashAfter)));
        let database = Database::percolator(dying.clone(), sources.clone(), options()).expect("a database");
        let before = balance(&reader, &accounts, "Bob").await;
        let paid = pay(&database, &accounts).await;
        let _died = database.flush().await;
        left += operator.count_locks().await.expect("counted");
        let bob = balance(&reader, &accounts, "Bob").await;
        assert_eq!(bob + balance(&reader, &accounts, "Joe").await, MONEY, "{number}: {paid:?}");
        assert!(bob == before - 1 || (bob == before && paid.is_err()), "{number}: {before} to {bob}, {paid:?}");
        tokio::time::sleep(LOCK_TTL).await;
        operator.resolve(None).await.expect("resolved");
        assert_eq!(operator.count_locks().await.expect("counted"), 0, "{number}");
        if dying.operations() <= number {
            assert!(left > 0, "nobody who died left a lock");
            return number;
        }
    }
    panic!("a payment takes more than {OPERATIONS_MAX} operations");
}

async fn pay(database: &Database, accounts: &Namespace) -> handfast_txn::Result<()> {
    let tx = database.begin().await?;
    for (name, amount) in [("Bob", -1), ("Joe", 1)] {
        tx.update_one(accounts, rawdoc! { "_id": name }, rawdoc! { "$inc": { "balance": amount } }).await?;
    }
    tx.commit().await.map(drop)
}

async fn balance(database: &Database, accounts: &Namespace, name: &str) -> i32 {
    let found = database.find_one(accounts, rawdoc! { "_id": name }).await.expect("read").expect("an account");
    found.get_i32("balance").expect("a balance")
}

fn process(store: &PrefixedStore, sources: &Sources) -> Database {
    Database::percolator(Arc::new(store.clone()), sources.clone(), options()).expect("a database")
}

fn options() -> PercolatorOptions {
    PercolatorOptions { lock_ttl: LOCK_TTL, cleaning_interval: None, ..PercolatorOptions::default() }
}
