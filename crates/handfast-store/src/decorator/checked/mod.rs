//! A decorator that checks whether a store keeps the contract.
//!
//! It is for tests, and for the data directory of the program `handfast` in a debug build. It checks each result: error codes that
//! an operation may not return, pages over their limit, documents that do not match the filter or are out of order, counts that
//! are inconsistent. A breach is logged, kept ([`Checked::breaches`]) and returned to the caller as `InternalError` in place of the
//! result, so that no test overlooks it.
//!
//! It cannot see breaches that only show between operations; the [conformance suite](crate::conformance) tests those.

mod codes;
mod cursor;
mod outcome;
mod store;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, PoisonError};

use handfast_mql::Code;

use super::Operation;
use crate::{Applied, DocumentStore, Error, ErrorClass, Result, Sources};

/// The number of breaches that [`Checked::breaches`] returns at most, the first ones.
const BREACHES_KEPT_MAX: usize = 100;

/// A decorator that checks the results of a store. See the module's documentation.
pub struct Checked<S> {
    store: S,
    sources: Sources,
    breaches: Arc<Breaches>,
}

impl<S: DocumentStore> Checked<S> {
    /// Wraps a store. Filters are evaluated a second time with `sources`.
    pub fn new(store: S, sources: Sources) -> Self {
        Checked { store, sources, breaches: Arc::default() }
    }

    /// Returns the inner store.
    pub fn inner(&self) -> &S {
        &self.store
    }

    /// Unwraps the inner store.
    pub fn into_inner(self) -> S {
        self.store
    }

    /// Returns the breaches of the contract so far.
    pub fn breaches(&self) -> Vec<String> {
        self.breaches.kept.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the result if it keeps the contract, and an error if not.
    fn check<T>(&self, operation: Operation, result: Result<T>, check: impl FnOnce(&T) -> CheckResult) -> Result<T> {
        self.breaches.check(self.store.name(), operation, result, check)
    }
}

/// Ok, or a description of the breach.
type CheckResult = std::result::Result<(), String>;

#[derive(Default)]
struct Breaches {
    kept: Mutex<Vec<String>>,
}

impl Breaches {
    fn check<T>(
        &self,
        store: &str,
        operation: Operation,
        result: Result<T>,
        check: impl FnOnce(&T) -> CheckResult,
    ) -> Result<T> {
        let checked = match &result {
            Ok(answer) => check(answer),
            Err(error) => codes::error(operation, error),
        };
        match checked {
            Ok(()) => result,
            Err(what) => {
                let text = format!("the store '{store}' broke its contract in {operation}: {what}");
                tracing::error!("{text}");
                let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
                if kept.len() < BREACHES_KEPT_MAX {
                    kept.push(text.clone());
                }
                Err(Error::new(ErrorClass::Command, Applied::Maybe, Code::InternalError, text))
            }
        }
    }
}

/// Returns from a check with a description of the breach unless the condition holds.
macro_rules! require {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err(format!($($message)+));
        }
    };
}
use require;
