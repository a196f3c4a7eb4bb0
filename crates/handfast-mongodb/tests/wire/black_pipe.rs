//! A transaction over MongoDB's driver, with faults of the network at each of its operations.
//!
//! ```text
//! process 1: Bob pays Joe 7 ── driver ── black pipe ── server      the fault is in the black pipe
//! locks expire, process 2 reads                                    on the database of the server
//! ```
//!
//! No money is lost, an answer that was given stays true, and nothing is left of the transaction.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bson::rawdoc;
use handfast_blackpipe::{Exploration, Fault, ObservedOperation};
use handfast_mongodb::ConnectOptions;
use handfast_server::Options;
use handfast_store::{Applied, DocumentStore, Find, ManualClock, MemoryStore, Namespace, Sources, StoreExt};
use handfast_txn::{Database, Percolator, PercolatorOptions, Result};

use crate::support::{TestServer, connected};

/// The least number of pairs: a scenario that makes fewer operations than it did tests less.
const PAIRS_MIN: usize = 40;
/// The time after which locks are not respected any more, and the one after which nothing old is kept.
const LOCK_TIME: Duration = Duration::from_secs(60);
const RETENTION: Duration = Duration::from_secs(100_000);

/// The balances of Bob and Joe.
const UNPAID: [i32; 2] = [10, 2];
const PAID: [i32; 2] = [3, 9];

/// A server for one pair.
struct Bank {
    database: Database,
    clock: Arc<ManualClock>,
    server: TestServer,
}

fn accounts() -> Namespace {
    Namespace::new("bank", "accounts").expect("a name")
}

fn options() -> PercolatorOptions {
    PercolatorOptions { cleaning_interval: None, ..PercolatorOptions::default() }
}

fn sources(clock: &Arc<ManualClock>, process: u64) -> Sources {
    Sources { clock: clock.clone(), ..Sources::seeded(process) }
}

impl Bank {
    async fn start() -> (String, Self) {
        let (sources, clock) = Sources::manual(1);
        let database = Database::local(MemoryStore::new(sources.clone()), sources);
        let server = TestServer::over(database.clone(), Options::default()).await;
        let bank = Bank { database, clock, server };
        let process = bank.process(3);
        for (name, balance) in ["Bob", "Joe"].into_iter().zip(UNPAID) {
            process.insert_one(&accounts(), rawdoc! { "_id": name, "balance": balance }).await.expect("inserted");
        }
        process.flush().await.expect("done");
        (format!("127.0.0.1:{}", bank.server.port), bank)
    }

    /// Returns a process beside the black pipe.
    fn process(&self, number: u64) -> Database {
        let store = Arc::new(self.database.clone());
        Database::percolator(store, sources(&self.clock, number), options()).expect("a database")
    }

    async fn balances(&self, process: u64) -> [i32; 2] {
        let tx = self.process(process).begin().await.expect("a snapshot");
        let mut balances = [0; 2];
        for (name, balance) in ["Bob", "Joe"].into_iter().zip(&mut balances) {
            let found = tx.find_one(&accounts(), rawdoc! { "_id": name }).await.expect("an answer");
            *balance = found.expect("an account").get_i32("balance").expect("a balance");
        }
        balances
    }

    /// Checks that an answer is true and stays so.
    async fn check(&self, paid: &Result<()>) -> std::result::Result<(), String> {
        let expected = match paid {
            Ok(()) => vec![PAID],
            Err(error) if error.applied() == Applied::No => vec![UNPAID],
            Err(_) => vec![UNPAID, PAID],
        };
        self.clock.advance(LOCK_TIME);
        let (first, again) = (self.balances(4).await, self.balances(5).await);
        if first != again || !expected.contains(&first) {
            return Err(format!("{paid:?} was answered, and the balances are {first:?} and then {again:?}"));
        }
        self.nothing_is_left().await
    }

    /// Checks that the rows have no lock after the retention and two passes of the cleaner.
    async fn nothing_is_left(&self) -> std::result::Result<(), String> {
        let store: Arc<dyn DocumentStore> = Arc::new(self.database.clone());
        let cleaner = Percolator::new(store.clone(), sources(&self.clock, 6), options()).expect("an engine");
        for _ in 0..2 {
            self.clock.advance(RETENTION);
            cleaner.clean().await.map_err(|error| error.to_string())?;
        }
        let rows = store.find_all(Find::new(accounts(), rawdoc! {})).await.map_err(|error| error.to_string())?;
        for row in rows {
            let mut hidden =
                row.get_document("_hf").expect("a row").iter_elements().filter_map(std::result::Result::ok);
            if hidden.any(|field| !["v", "c", "s", "p"].contains(&field.key().as_str())) {
                return Err(format!("a row has something left: {row:?}"));
            }
        }
        Ok(())
    }
}

/// Moves 7 from Bob to Joe.
async fn pay(database: &Database) -> Result<()> {
    let tx = database.begin().await?;
    for (name, amount) in [("Bob", -7), ("Joe", 7)] {
        let change = rawdoc! { "$inc": { "balance": amount } };
        tx.update_one(&accounts(), rawdoc! { "_id": name }, change).await?;
    }
    tx.commit().await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transfer_meets_each_fault_at_each_operation() {
    let (clock, paid) = (Mutex::new(None), Mutex::new(None));
    let start = async || {
        let (address, bank) = Bank::start().await;
        *clock.lock().expect("a lock") = Some(bank.clock.clone());
        (address, bank)
    };
    let scenario = async |uri: String| {
        let clock = clock.lock().expect("a lock").take().expect("a server was started");
        let store = connected(&uri, ConnectOptions::default()).await.store;
        let database = Database::percolator(store, sources(&clock, 2), options()).expect("a database");
        let answer = pay(&database).await;
        drop(database.flush().await);
        *paid.lock().expect("a lock") = Some(answer);
    };
    let invariant = async |bank: &Bank| {
        let paid = paid.lock().expect("a lock").take().expect("the scenario ended");
        bank.check(&paid).await
    };
    // The connection tries what the server can do in a collection of its own.
    let only = |operation: &ObservedOperation| {
        operation.collection.as_deref().is_some_and(|collection| !collection.contains("handfast_probe_"))
    };
    let faults = vec![Fault::LoseRequest, Fault::LoseReply, Fault::Cut, Fault::Duplicate];
    let exploration = Exploration { faults, only, ..Exploration::default() };
    let explored = exploration.explore(start, scenario, invariant).await.expect("right without any fault");
    println!("{} pairs over the wire", explored.pairs.len());
    explored.check().expect("all are right");
    assert!(explored.pairs.len() >= PAIRS_MIN, "{explored:#?}");
}
