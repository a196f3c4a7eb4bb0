//! The closure form runs a transaction again for a bounded time, with pauses in between.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bson::rawdoc;
use handfast_mql::Code;
use handfast_store::{MemoryStore, Namespace, Sources, StoreExt};
use handfast_txn::{Database, Error, OnRetry, Transaction, TransactionOptions};

fn items() -> Namespace {
    Namespace::new("d", "items").unwrap()
}

/// Runs a transaction that always gets a conflict. Each run takes `run_time` on the database's clock. Returns the number of runs,
/// and the result.
async fn run_again_and_again(seed: u64, run_time: Duration, retry_time: Duration) -> (u32, Result<(), Error>) {
    let (sources, clock) = Sources::manual(seed);
    let database = Database::local(MemoryStore::new(sources.clone()), sources);
    database.insert_one(&items(), rawdoc! { "_id": 1, "n": 0 }).await.unwrap();
    let increment = || rawdoc! { "$inc": { "n": 1 } };
    let runs = AtomicU32::new(0);
    let run = |tx: Transaction| {
        runs.fetch_add(1, Ordering::Relaxed);
        clock.advance(run_time);
        let database = database.clone();
        async move {
            tx.update_one(&items(), rawdoc! { "_id": 1 }, increment()).await?;
            database.update_one(&items(), rawdoc! { "_id": 1 }, increment()).await?;
            Ok(())
        }
    };
    let retries = std::sync::Arc::new(AtomicU32::new(0));
    let heard = retries.clone();
    let on_retry = OnRetry::new(move |_| {
        heard.fetch_add(1, Ordering::Relaxed);
    });
    let options = TransactionOptions { retry_time, on_retry, ..TransactionOptions::default() };
    let ended = database.transaction_with(options, run).await;
    let runs = runs.into_inner();
    assert_eq!((retries.load(Ordering::Relaxed), database.counts().retries), (runs - 1, u64::from(runs - 1)));
    assert_eq!(database.counts().open(), 0);
    (runs, ended)
}

#[tokio::test(start_paused = true)]
async fn a_transaction_is_run_again_for_as_long_as_is_said() {
    let seconds = Duration::from_secs;
    for (run_time, retry_time, expected) in [
        // The transaction is given up if the time is over at the end of a run.
        (seconds(3), seconds(10), 4),
        (seconds(5), seconds(10), 2),
        (seconds(50), seconds(10), 1),
        (seconds(1), Duration::ZERO, 1),
        // The default is the retry time of `withTransaction` in MongoDB's drivers.
        (seconds(10), TransactionOptions::default().retry_time, 12),
    ] {
        let (runs, ended) = run_again_and_again(1, run_time, retry_time).await;
        assert_eq!(runs, expected, "{run_time:?} of {retry_time:?}");
        assert!(matches!(&ended, Err(Error::Conflict(error)) if error.code() == Code::WriteConflict), "{ended:?}");
    }
}

/// The sum of the pauses depends on chance and is bounded: there are five before the sixth run.
#[tokio::test(start_paused = true)]
async fn it_waits_for_a_random_time_in_between() {
    let mut waited = Vec::new();
    for seed in 0..20 {
        let begun = now();
        let (runs, _) = run_again_and_again(seed, Duration::from_secs(2), Duration::from_secs(12)).await;
        assert_eq!(runs, 6);
        waited.push(now() - begun);
    }
    // A timer has a resolution of a millisecond, and rounds up.
    let longest = Duration::from_micros(500 + 1_000 + 2_000 + 4_000 + 8_000) + Duration::from_millis(5);
    assert!(waited.iter().all(|waited| *waited <= longest), "{waited:?}");
    waited.sort_unstable();
    waited.dedup();
    assert!(waited.len() > 5, "{waited:?}");
    assert!(waited.last().is_some_and(|waited| *waited > Duration::from_millis(8)), "{waited:?}");
}

/// Returns the time of the timers, which stands still except during their pauses.
#[expect(clippy::disallowed_methods, reason = "it is the time of the test, paused")]
fn now() -> tokio::time::Instant {
    tokio::time::Instant::now()
}
