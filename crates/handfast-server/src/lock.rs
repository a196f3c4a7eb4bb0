//! Locks a mutex, also a poisoned one.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex. The lints deny code that panics. If a thread panics with a lock all the same, the tables of this crate are
/// consistent after each single step, so that a poisoned lock can be used.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
