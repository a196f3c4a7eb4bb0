use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use handfast_mql::Code;
use handfast_store::{Error as StoreError, Sources};
use tokio_util::sync::CancellationToken;

use super::{Round, Runner, RunnerOptions, jittered};

const EVERY: RunnerOptions = RunnerOptions { interval: Duration::from_secs(10), jitter: 0.0, batch: 7 };

async fn let_go_by(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

#[test]
fn the_jitter_stays_within_its_part() {
    let second = Duration::from_secs(1);
    assert_eq!(jittered(second, 0.2, 0), Duration::from_millis(800));
    assert_eq!(jittered(second, 0.0, u64::MAX), second);
    let longest = jittered(second, 0.2, u64::MAX);
    assert!(longest > Duration::from_millis(1_199) && longest <= Duration::from_millis(1_200), "{longest:?}");
}

#[tokio::test(start_paused = true)]
async fn a_full_batch_is_followed_at_once_and_a_failure_by_the_interval() {
    let rounds = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&rounds);
    let runner = Runner::spawn("test", &Sources::seeded(1), EVERY, &CancellationToken::new(), move |batch| {
        assert_eq!(batch, 7);
        let number = counted.fetch_add(1, Ordering::SeqCst);
        async move {
            match number {
                0 | 1 => Ok(Round { done: 7, failed: 1, more: true }),
                2 => Ok(Round { done: 3, ..Round::default() }),
                3 => Ok(Round { failed: 7, more: true, ..Round::default() }),
                _ => Err(StoreError::command(Code::Unauthorized, "no").into()),
            }
        }
    })
    .expect("options");
    for (seconds, expected) in [(9, 0), (2, 3), (10, 4), (10, 5), (10, 6)] {
        let_go_by(seconds).await;
        assert_eq!(rounds.load(Ordering::SeqCst), expected);
    }
    let counts = runner.counts();
    assert_eq!((counts.rounds, counts.rounds_failed, counts.done, counts.failed), (6, 2, 17, 9));
    runner.stop().await;
}

#[tokio::test(start_paused = true)]
async fn cancelling_lets_the_round_come_to_its_end() {
    let (begun, ended) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let cancel = CancellationToken::new();
    let runner = Runner::spawn("test", &Sources::seeded(1), EVERY, &cancel, {
        let (begun, ended) = (Arc::clone(&begun), Arc::clone(&ended));
        move |_| {
            begun.fetch_add(1, Ordering::SeqCst);
            let ended = Arc::clone(&ended);
            async move {
                let_go_by(5).await;
                ended.fetch_add(1, Ordering::SeqCst);
                Ok(Round { done: 1, failed: 0, more: true })
            }
        }
    })
    .expect("options");
    let_go_by(12).await;
    cancel.cancel();
    runner.stop().await;
    assert_eq!((begun.load(Ordering::SeqCst), ended.load(Ordering::SeqCst)), (1, 1));
}

#[tokio::test]
async fn options_that_make_no_sense_are_refused() {
    for options in [
        RunnerOptions { jitter: 1.5, ..EVERY },
        RunnerOptions { jitter: f64::NAN, ..EVERY },
        RunnerOptions { batch: 0, ..EVERY },
        RunnerOptions { interval: Duration::ZERO, ..EVERY },
    ] {
        let round = |_| async { Ok(Round::default()) };
        assert!(Runner::spawn("test", &Sources::seeded(1), options, &CancellationToken::new(), round).is_err());
    }
}
