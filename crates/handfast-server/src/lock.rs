//! Locks whose holders cannot leave a half-changed state behind.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks. No code in this crate panics while it holds one (the lints deny it), and if it did, every table here is whole
/// after each single step: going on is right.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
