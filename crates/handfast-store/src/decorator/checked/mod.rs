//! A store that watches whether the store behind it keeps the contract.
//!
//! For tests, and for the data directory of the program `handfast` in a debug build. It looks at each answer: error codes that an operation may not give, pages over their
//! limit, documents that do not match the filter or are out of order (the language is the judge, whatever the planner
//! thought), counts that do not add up. A breach is logged, kept ([`Checked::breaches`]) and given to the caller as
//! `InternalError` in place of the answer, so that no test passes over it.
//!
//! What it cannot see is what only shows between operations: that is for the
//! [conformance suite](crate::conformance).

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

/// Breaches kept for [`Checked::breaches`]; the first ones tell most.
const BREACHES_KEPT_MAX: usize = 100;

/// A store whose answers are checked. See the module's documentation.
pub struct Checked<S> {
    store: S,
    sources: Sources,
    breaches: Arc<Breaches>,
}

impl<S: DocumentStore> Checked<S> {
    /// Checks a store. The sources are for evaluating filters once more.
    pub fn new(store: S, sources: Sources) -> Self {
        Checked { store, sources, breaches: Arc::default() }
    }

    /// The store behind it.
    pub fn inner(&self) -> &S {
        &self.store
    }

    /// The store behind it, no longer checked.
    pub fn into_inner(self) -> S {
        self.store
    }

    /// The breaches of the contract so far.
    pub fn breaches(&self) -> Vec<String> {
        self.breaches.kept.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The answer, if it keeps the contract.
    fn judge<T>(&self, operation: Operation, result: Result<T>, check: impl FnOnce(&T) -> Verdict) -> Result<T> {
        self.breaches.judge(self.store.name(), operation, result, check)
    }
}

/// Ok, or what is wrong.
type Verdict = std::result::Result<(), String>;

#[derive(Default)]
struct Breaches {
    kept: Mutex<Vec<String>>,
}

impl Breaches {
    fn judge<T>(
        &self,
        store: &str,
        operation: Operation,
        result: Result<T>,
        check: impl FnOnce(&T) -> Verdict,
    ) -> Result<T> {
        let verdict = match &result {
            Ok(answer) => check(answer),
            Err(error) => codes::error(operation, error),
        };
        match verdict {
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

/// Ends the check with what is wrong.
macro_rules! require {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err(format!($($message)+));
        }
    };
}
use require;
