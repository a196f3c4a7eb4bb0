//! Waits for what other tasks and servers do, each with an end: a test that goes on waiting would hide why.

use std::time::Duration;

use handfast_counters::{Error, Result};
use handfast_store::MemoryStore;
use handfast_store::decorator::Faulty;
use tokio::task::JoinHandle;

/// The time in which what is waited for happens, on a busy machine as well.
pub(crate) const PATIENCE: Duration = Duration::from_secs(180);
/// The time between two attempts, and between two looks at a condition.
const POLL: Duration = Duration::from_millis(5);

/// Repeats what is refused while Redis is away, until it succeeds.
pub(crate) async fn until_ok<T, F: Future<Output = Result<T>>>(what: &str, mut attempt: impl FnMut() -> F) -> T {
    let mut last = None;
    let attempts = async {
        loop {
            match attempt().await {
                Ok(value) => return value,
                Err(error @ Error::Buffer { .. }) => last = Some(error),
                Err(other) => panic!("{what}: {other}"),
            }
            tokio::time::sleep(POLL).await;
        }
    };
    match tokio::time::timeout(PATIENCE, attempts).await {
        Ok(value) => value,
        Err(_) => panic!("{what} does not succeed within {PATIENCE:?}: {last:?}"),
    }
}

/// Waits until a condition holds.
pub(crate) async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let holds = async {
        while !condition() {
            tokio::time::sleep(POLL).await;
        }
    };
    assert!(tokio::time::timeout(PATIENCE, holds).await.is_ok(), "waited for {what} for {PATIENCE:?}");
}

/// Waits until an operation of a task is held up.
pub(crate) async fn until_frozen<T>(store: &Faulty<MemoryStore>, task: &JoinHandle<T>) {
    let held_up = async {
        while store.frozen() == 0 {
            assert!(!task.is_finished(), "the task has ended before it was held up");
            tokio::task::yield_now().await;
        }
    };
    assert!(tokio::time::timeout(PATIENCE, held_up).await.is_ok(), "no operation is held up within {PATIENCE:?}");
}
