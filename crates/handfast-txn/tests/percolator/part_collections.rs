//! Collections, indexes and history in the second of two stores, also while it is unreachable.

use std::sync::Arc;
use std::time::Duration;

use bson::rawdoc;
use handfast_mql::Code;

use handfast_store::{DocumentStore, ErrorClass, Find, IndexSpec, Namespace, RenameCollection, StoreExt};
use handfast_txn::{Database, Engine, Percolator, PercolatorOptions};

use crate::parts::{BOB, FaultyConnection, JOE, PAID, Side, UNPAID, World, account, away_from_the_first_read, pay};
use crate::queries::all;
use crate::support::options;

/// Returns the names of a collection's indexes in a store besides that on `_id`, sorted.
async fn indexes(store: &dyn DocumentStore, namespace: &Namespace) -> Vec<String> {
    let listed = store.list_indexes(namespace).await.unwrap();
    let mut names: Vec<_> = listed.into_iter().map(|of| of.spec.name).filter(|name| name != "_id_").collect();
    names.sort();
    names
}

/// A renamed collection of the second store keeps its unique index, whose keys are in the first store.
#[tokio::test]
async fn a_rename_within_the_second_store_keeps_a_unique_index() {
    let world = World::new(Side::Shop).await;
    let database = world.process();
    let index = IndexSpec { unique: true, ..IndexSpec::new(rawdoc! { "number": 1 }) };
    database.create_index(&account(JOE), index).await.unwrap();
    database.insert_one(&account(JOE), rawdoc! { "_id": "Ann", "number": 1 }).await.unwrap();
    let people = Namespace::new(JOE, "people").unwrap();
    let request = RenameCollection { from: account(JOE), to: people.clone(), drop_target: false };
    database.rename_collection(request).await.unwrap();

    // This also holds for a process that has never seen the old name.
    for database in [database, world.process()] {
        let twice = database.insert_one(&people, rawdoc! { "_id": "Eve", "number": 1 }).await.unwrap_err();
        assert_eq!(twice.code(), Code::DuplicateKey);
        assert_eq!(indexes(&database, &people).await, ["number_1"]);
    }
    let [first, second] = &world.stores;
    assert!(
        indexes(&**second, &account(JOE)).await.contains(&"number_1".to_owned()),
        "in the store nothing has changed"
    );
    assert_eq!(first.list_collections(JOE).await.unwrap().len(), 0);
    // The old name and its keys are free.
    let database = world.process();
    database.insert_one(&account(JOE), rawdoc! { "_id": "Eve", "number": 1 }).await.unwrap();
    database.insert_one(&account(JOE), rawdoc! { "_id": "Zoe", "number": 1 }).await.unwrap();
}

/// The indexes that find locks and old versions are in the store of their rows.
#[tokio::test]
async fn each_store_has_the_engines_own_indexes_on_its_collections() {
    let world = World::new(Side::Shop).await;
    let database = world.process();
    pay(&database).await.unwrap();
    database.flush().await.unwrap();
    for (store, name) in world.stores.iter().zip([BOB, JOE]) {
        assert_eq!(indexes(&**store, &account(name)).await, ["_hf.c_1", "_hf.d_1", "_hf.lock.s_1"], "{name}");
        assert!(indexes(&database, &account(name)).await.is_empty(), "{name}");
    }
}

/// An old snapshot stays readable in both stores, whichever process cleans: its lease, in the store with the clock, applies to
/// both.
#[tokio::test]
async fn a_lease_keeps_history_in_both_stores() {
    const RETENTION: Duration = Duration::from_secs(60);
    let world = World::new(Side::Shop).await;
    let lasting = PercolatorOptions { retention: RETENTION, lease_ttl: RETENTION, ..options() };
    let process = || Percolator::new(Arc::new(world.both()), world.sources.clone(), lasting.clone()).unwrap();
    let (reader, cleaner) = (process(), process());
    let snapshot = reader.begin(Duration::MAX).await.unwrap().snapshot;
    pay(&world.process()).await.unwrap();
    let balances = async || {
        let mut balances = Vec::new();
        for name in [BOB, JOE] {
            let found = all(&*snapshot, Find::new(account(name), rawdoc! {})).await;
            balances.push(found.map(|found| found[0].get_i32("balance").unwrap()));
        }
        balances
    };
    for _ in 0..20 {
        world.clock.advance(RETENTION / 3);
        reader.keep_history().await.unwrap();
        cleaner.clean().await.unwrap();
    }
    let read: Vec<_> = balances().await.into_iter().map(|balance| balance.unwrap()).collect();
    assert_eq!(read, [UNPAID.0, UNPAID.1]);
    let leases = Namespace::new("handfast", "leases").unwrap();
    let [first, second] = &world.stores;
    assert_eq!(first.count_matching(&leases, rawdoc! {}).await.unwrap(), 1);
    assert_eq!(second.count_matching(&leases, rawdoc! {}).await.unwrap(), 0);

    // Without heartbeats the history is forgotten in both.
    for _ in 0..20 {
        world.clock.advance(RETENTION / 3);
        cleaner.clean().await.unwrap();
    }
    for balance in balances().await {
        assert_eq!(balance.unwrap_err().code(), Code::SnapshotTooOld);
    }
}

/// Returns a process and its second store, which is unreachable from now on.
async fn with_the_second_away(world: &World) -> (Database, Arc<handfast_store::decorator::Faulty<dyn DocumentStore>>) {
    let (database, faulty) = world.process_with(FaultyConnection::Second, away_from_the_first_read());
    pay(&database).await.unwrap_err();
    world.clock.advance(crate::support::LOCK_TIME);
    (database, faulty)
}

/// A list of only some databases is never returned.
#[tokio::test]
async fn databases_are_not_listed_while_a_store_is_away() {
    let world = World::new(Side::Shop).await;
    let (database, faulty) = with_the_second_away(&world).await;
    assert_eq!(database.list_databases().await.unwrap_err().class(), ErrorClass::Outage);
    let collections = database.list_collections(BOB).await.unwrap();
    assert_eq!(collections.len(), 1, "those of a database in the store that is there are known");
    faulty.restart();
    let databases = database.list_databases().await.unwrap();
    assert!([BOB, JOE].iter().all(|name| databases.contains(&(*name).to_owned())), "{databases:?}");
}

/// A drop of a database whose store is unreachable fails and leaves it as it was; it succeeds when the store is back. A
/// database of the other store is dropped at once.
#[tokio::test]
async fn a_database_is_not_dropped_while_the_second_store_is_away() {
    let world = World::new(Side::Shop).await;
    let (database, faulty) = with_the_second_away(&world).await;
    let error = database.drop_database(JOE).await.unwrap_err();
    assert_eq!(error.class(), ErrorClass::Outage, "{error}");
    let other = Namespace::new(BOB, "other").unwrap();
    database.insert_one(&other, rawdoc! { "_id": 1 }).await.unwrap();
    assert!(database.drop_collection(&other).await.unwrap());
    faulty.restart();
    assert_eq!(world.seen().await, UNPAID);
    pay(&database).await.unwrap();
    assert_eq!(world.seen().await, PAID);
    assert!(database.drop_database(JOE).await.unwrap());
    assert_eq!(database.list_collections(JOE).await.unwrap().len(), 0);
    assert_eq!(database.list_collections(BOB).await.unwrap().len(), 1);
}
