//! Makes a scenario meet faults of the network at each of its operations, between MongoDB's driver and our own server.
//!
//! ```text
//! each pair:    process 1 ── driver ── black pipe ── server        the fault is in the black pipe
//!               two hours later, process 2: recovery               on the database of the server
//!               check
//! ```
//!
//! The driver repeats nothing: `handfast_mongodb` leaves that to the code that uses the store. Each result that process 1 received must hold after the
//! recovery. The operations of the connection itself, which tries what the server can do, meet no fault.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bson::rawdoc;
use handfast_blackpipe::{Exploration, Explored, Fault, ObservedOperation, PairOutcome};
use handfast_mongodb::{ConnectOptions, connect};
use handfast_patterns::{Error, Result};
use handfast_store::{ErrorClass, MemoryStore, Sources, StoreExt};
use handfast_txn::Database;

use crate::crash::World;
use crate::stage::Served;

const FAULTS: [Fault; 4] = [Fault::LoseRequest, Fault::LoseReply, Fault::Cut, Fault::Duplicate];

/// Explores a scenario over the wire, with a server for each pair. `prepare`, `run`, `recover` and `check` are those of
/// [`every_point`](crate::crash::every_point).
pub(crate) async fn every_pair<T>(
    prepare: impl AsyncFn(&World),
    run: impl AsyncFn(&World) -> Result<T>,
    recover: impl AsyncFn(&World, &Result<T>) -> Result<()>,
    check: impl AsyncFn(&World, &Result<T>) -> Result<(), String>,
) -> Explored {
    let (current, answer) = (Mutex::new(None), Mutex::new(None));
    let start = async || {
        let (sources, clock) = Sources::manual(1);
        let database = Database::local(MemoryStore::new(sources.clone()), sources);
        let (served, address) = Served::start(database.clone()).await;
        let world = World::on_store(Arc::new(database), clock, "test");
        prepare(&world).await;
        *current.lock().unwrap() = Some(world.clone());
        (address.to_string(), (world, served))
    };
    let scenario = async |uri: String| {
        let world = current.lock().unwrap().take().unwrap();
        let connection = connect(&uri, Sources::seeded(2), ConnectOptions::default()).await.unwrap();
        let received = run(&world.on(connection.store)).await;
        *answer.lock().unwrap() = Some(received);
    };
    let invariant = async |(world, _): &(World, Served)| {
        let answer = answer.lock().unwrap().take().unwrap();
        let acknowledged = world.take_acknowledged();
        world.clock.advance(Duration::from_secs(2 * 3600));
        let recovery = recover(&world.process(2), &answer).await;
        recovery.map_err(|error| format!("the recovery failed: {error}"))?;
        world.holds(&acknowledged).await?;
        check(&world.process(4), &answer).await
    };
    let only = |operation: &ObservedOperation| {
        operation.collection.as_deref().is_some_and(|collection| collection.starts_with("test."))
    };
    let exploration = Exploration { faults: FAULTS.to_vec(), only, ..Exploration::default() };
    exploration.explore(start, scenario, invariant).await.unwrap()
}

/// Asserts that all pairs are right, and that there are so many at least: a scenario that makes fewer operations than it did tests less.
pub(crate) fn assert_right(name: &str, explored: &Explored, pairs_min: usize) {
    println!("{name} over the wire: {} pairs", explored.pairs.len());
    explored.check().unwrap();
    assert!(explored.pairs.len() >= pairs_min, "{name}: {explored:#?}");
}

/// Shows that the checks can fail: with a plain increment that is repeated when in doubt.
#[tokio::test(flavor = "multi_thread")]
async fn a_naive_retry_is_caught_over_the_wire() {
    let run = async |world: &World| {
        let increment = rawdoc! { "$inc": { "n": 1 } };
        let days = world.namespace("days");
        let send = || world.store.upsert_one(&days, rawdoc! { "_id": "today" }, increment.clone());
        match send().await {
            Err(error) if error.class() == ErrorClass::TransientNetwork => send().await,
            result => result,
        }
        .map_err(Error::from)
    };
    let check = async |world: &World, _: &Result<_>| {
        let one = rawdoc! { "_id": "today", "n": 1 };
        let found = world.store.find_one(&world.namespace("days"), one).await.unwrap();
        found.map(|_| ()).ok_or_else(|| "not counted once".to_owned())
    };
    let explored = every_pair(async |_| {}, run, async |_, _| Ok(()), check).await;
    let wrong = explored.pairs.iter().filter(|(_, outcome)| *outcome != PairOutcome::Right);
    let faults: Vec<_> = wrong.map(|(pair, _)| pair.fault).collect();
    assert_eq!(faults, [Fault::LoseReply, Fault::Cut, Fault::Duplicate], "{explored:#?}");
}
