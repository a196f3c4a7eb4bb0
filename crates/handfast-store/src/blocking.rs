//! Work that waits for a disk, or computes for as long as a stranger's expression asks for, on threads of its own: the few
//! threads that serve everybody must not be held up by one.

use handfast_mql::Code;

use crate::{Error, Result};

/// Runs on a thread that may be busy or wait.
///
/// # Errors
/// Those of the work, and `InternalError` (1) if it panicked.
///
/// # Cancellation
/// The work goes on if the future is dropped: who drops it turns the work's interrupt.
pub async fn blocking<T, F>(run: F) -> Result<T>
where
    T: Send + 'static,
    F: FnOnce() -> Result<T> + Send + 'static,
{
    let result = tokio::task::spawn_blocking(run).await;
    result.map_err(|error| Error::command(Code::InternalError, format!("the work was broken off: {error}")))?
}

/// Runs on such a thread if the work may take long, and at once if not.
///
/// # Errors
/// As [`blocking`].
///
/// # Cancellation
/// As [`blocking`].
pub async fn blocking_if<T, F>(long: bool, run: F) -> Result<T>
where
    T: Send + 'static,
    F: FnOnce() -> Result<T> + Send + 'static,
{
    if long { blocking(run).await } else { run() }
}
