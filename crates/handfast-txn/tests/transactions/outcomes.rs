//! The outcome of a transaction is known by its id: after other transactions, after a restart, and after a change of the clock.

use std::sync::Arc;
use std::time::Duration;

use bson::{DateTime, rawdoc};
use handfast_embedded::{EmbeddedStore, Options};
use handfast_store::{ManualClock, MemoryStore, Namespace, Sources, StoreExt};
use handfast_txn::{Database, Outcome, PercolatorOptions};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

fn items() -> Namespace {
    Namespace::new("d", "items").unwrap()
}

async fn write(database: &Database, id: i32) {
    let tx = database.begin().await.unwrap();
    tx.insert_one(&items(), rawdoc! { "_id": id }).await.unwrap();
    tx.commit().await.unwrap();
}

#[tokio::test]
async fn an_outcome_is_known_by_its_id_after_other_transactions_and_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let open = |run| {
        let directory = directory.path().to_owned();
        async move {
            let store = EmbeddedStore::open(directory, Sources::seeded(run), Options::default()).await.unwrap();
            Database::local(store, Sources::seeded(run))
        }
    };
    let database = open(1).await;
    let tx = database.begin().await.unwrap();
    let committed = tx.id();
    tx.insert_one(&items(), rawdoc! { "_id": 1 }).await.unwrap();
    let at = tx.commit().await.unwrap();
    let tx = database.begin().await.unwrap();
    let rolled_back = tx.id();
    tx.insert_one(&items(), rawdoc! { "_id": 2 }).await.unwrap();
    tx.abort();
    for id in 10..20 {
        write(&database, id).await;
    }
    for _ in 0..2 {
        assert_eq!(database.outcome(committed).await.unwrap(), Outcome::Committed(at));
        assert_eq!(database.outcome(rolled_back).await.unwrap(), Outcome::RolledBack);
    }
    drop(database);
    let database = open(2).await;
    write(&database, 30).await;
    assert_eq!(database.outcome(committed).await.unwrap(), Outcome::Committed(at));
    assert_eq!(database.outcome(rolled_back).await.unwrap(), Outcome::RolledBack);
    // The other transactions, whose names were not asked for, share a record, and so do those after the restart.
    let records = Namespace::new("config", "transactions").unwrap();
    assert_eq!(database.count_matching(&records, rawdoc! {}).await.unwrap(), 3);
}

#[tokio::test]
async fn the_seed_of_an_earlier_run_gives_no_name_of_an_earlier_transaction() {
    let directory = tempfile::tempdir().unwrap();
    let kept = Arc::new(MemoryStore::new(Sources::seeded(9)));
    for engine in ["local", "percolator"] {
        let open = async || match engine {
            "local" => {
                let store =
                    EmbeddedStore::open(directory.path(), Sources::seeded(1), Options::default()).await.unwrap();
                Database::local(store, Sources::seeded(1))
            }
            _ => {
                let options = PercolatorOptions { cleaning_interval: None, ..PercolatorOptions::default() };
                Database::percolator(kept.clone(), Sources::seeded(1), options).unwrap()
            }
        };
        let mut names = Vec::new();
        for run in 0..3 {
            let database = open().await;
            // Two sessions are open at once, and have transactions one after the other.
            let both = [database.begin().await.unwrap(), database.begin().await.unwrap()];
            for (place, tx) in both.into_iter().enumerate() {
                names.push(tx.id());
                tx.insert_one(&items(), rawdoc! { "_id": format!("{run} {place}") }).await.unwrap();
                tx.commit().await.unwrap();
            }
            for number in 0..3 {
                let tx = database.begin().await.unwrap();
                tx.insert_one(&items(), rawdoc! { "_id": format!("{run} in turn {number}") }).await.unwrap();
                tx.commit().await.unwrap();
            }
            let expected = 5 * (run + 1);
            assert_eq!(database.count_matching(&items(), rawdoc! {}).await.unwrap(), expected, "{engine}, run {run}");
        }
        let distinct: std::collections::BTreeSet<_> = names.iter().map(|name| name.session).collect();
        assert_eq!(distinct.len(), names.len(), "{engine}");
    }
}

#[tokio::test]
async fn nothing_is_forgotten_because_a_clock_was_set() {
    let (sources, clock) = Sources::manual(1);
    let store = MemoryStore::new(sources.clone());
    let database = Database::local(store.clone(), sources.clone());
    let remembered =
        |database: Database, id| async move { matches!(database.outcome(id).await.unwrap(), Outcome::Committed(_)) };
    let mut ids = Vec::new();
    // The clock of a machine has just been started, then is set right, then is set wrong again.
    let days = [ManualClock::START, DateTime::from_millis(0), DateTime::from_millis(4_000_000_000_000)];
    for (n, day) in days.into_iter().cycle().take(6).enumerate() {
        clock.set(day);
        let tx = database.begin().await.unwrap();
        ids.push(tx.id());
        tx.insert_one(&items(), rawdoc! { "_id": i32::try_from(n).unwrap() }).await.unwrap();
        tx.commit().await.unwrap();
        assert_eq!(database.forget_outcomes(DAY).await.unwrap(), 0);
    }
    clock.advance(DAY - Duration::from_secs(1));
    write(&database, 100).await;
    assert_eq!(database.forget_outcomes(DAY).await.unwrap(), 0);
    for id in &ids {
        assert!(remembered(database.clone(), *id).await);
    }
    // After a restart the store does not know how long it was closed.
    drop(database);
    let database = Database::local(store, sources);
    clock.advance(DAY - Duration::from_secs(1));
    assert_eq!(database.forget_outcomes(DAY).await.unwrap(), 0);
    clock.advance(Duration::from_secs(2));
    assert_eq!(database.forget_outcomes(DAY).await.unwrap(), 7);
    assert_eq!(database.outcome(ids[0]).await.unwrap(), Outcome::Forgotten);
}

/// A transaction that has left no record was rolled back, or is so old that its record may have been removed: these are two
/// results.
#[tokio::test]
async fn a_forgotten_outcome_is_not_reported_as_rolled_back() {
    let (sources, clock) = Sources::manual(1);
    let store = MemoryStore::new(sources.clone());
    let database = Database::local(store.clone(), sources.clone());
    let rolled_back = |database: Database| async move {
        let tx = database.begin().await.unwrap();
        let id = tx.id();
        tx.insert_one(&items(), rawdoc! { "_id": "never" }).await.unwrap();
        tx.abort();
        id
    };
    let committed = |database: Database, n: i32| async move {
        let tx = database.begin().await.unwrap();
        let id = tx.id();
        tx.insert_one(&items(), rawdoc! { "_id": n }).await.unwrap();
        tx.commit().await.unwrap();
        id
    };
    let before = rolled_back(database.clone()).await;
    let old = committed(database.clone(), 1).await;
    assert_eq!(database.outcome(before).await.unwrap(), Outcome::RolledBack);
    clock.advance(DAY);
    let between = rolled_back(database.clone()).await;
    let young = committed(database.clone(), 2).await;
    clock.advance(Duration::from_secs(1));
    // The second record is kept for longer than the first, and each sweep forgets later transactions than the one before.
    assert_eq!(database.forget_outcomes(DAY).await.unwrap(), 1);
    for database in [database.clone(), Database::local(store.clone(), sources.clone())] {
        let outcome = |id| {
            let database = database.clone();
            async move { database.outcome(id).await.unwrap() }
        };
        assert_eq!((outcome(before).await, outcome(old).await), (Outcome::Forgotten, Outcome::Forgotten));
        assert_eq!(outcome(between).await, Outcome::RolledBack);
        assert!(matches!(outcome(young).await, Outcome::Committed(_)));
        let after = rolled_back(database.clone()).await;
        assert_eq!(outcome(after).await, Outcome::RolledBack);
        // A name that another program made does not show its age.
        assert_eq!(outcome("00112233445546778899aabbccddeeff:1".parse().unwrap()).await, Outcome::Forgotten);
    }
    clock.advance(DAY);
    assert_eq!(database.forget_outcomes(DAY).await.unwrap(), 1);
    for (id, expected) in [(between, Outcome::Forgotten), (young, Outcome::Forgotten)] {
        assert_eq!(database.outcome(id).await.unwrap(), expected);
    }
    // Nothing is left to forget: the mark is not counted as a record, and stays where it is.
    clock.advance(DAY);
    assert_eq!(database.forget_outcomes(DAY).await.unwrap(), 0);
    assert_eq!(database.outcome(young).await.unwrap(), Outcome::Forgotten);
}
