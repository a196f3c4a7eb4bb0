//! Runs work that waits for a disk, or evaluates an expression of unknown cost, on blocking threads, so that it does not hold up
//! the few threads that run all tasks.

use handfast_mql::Code;

use crate::{Error, OperationStatistics, Result};

/// Runs a function on a thread that may block.
///
/// # Errors
/// Returns the error of the function, and `InternalError` (1) if it panicked.
///
/// # Cancellation
/// The function continues if the future is dropped: the caller sets its interrupt.
pub async fn blocking<T, F>(run: F) -> Result<T>
where
    T: Send + 'static,
    F: FnOnce() -> Result<T> + Send + 'static,
{
    let statistics = OperationStatistics::current();
    let result = tokio::task::spawn_blocking(move || OperationStatistics::observe_here(statistics, run)).await;
    result.map_err(|error| Error::command(Code::InternalError, format!("a background task failed: {error}")))?
}

/// Runs a function as [`blocking`] does if `long` is true, and on this thread if not.
pub async fn blocking_if<T, F>(long: bool, run: F) -> Result<T>
where
    T: Send + 'static,
    F: FnOnce() -> Result<T> + Send + 'static,
{
    if long { blocking(run).await } else { run() }
}
