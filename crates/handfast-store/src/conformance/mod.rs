//! The suite of cases that every backend must pass.
//!
//! ```no_run
//! # use std::sync::Arc;
//! # use handfast_store::{DocumentStore, conformance::{self, Subject}};
//! # async fn open_empty_store() -> Arc<dyn DocumentStore> { unimplemented!() }
//! # async fn my_backend_conforms() {
//! let report = conformance::run(async || Subject::new(open_empty_store().await)).await;
//! assert!(report.is_clean(), "{report}");
//! # }
//! ```
//!
//! The given function creates an empty store for each case. A case that fails is reported by its name and does
//! not stop the others; one that panics or takes longer than [`CASE_TIME_MAX`] fails.
//!
//! Cases check nothing that the contract does not promise: no order where none was requested, no snapshot of a
//! backend that has none. Messages are compared only where users rely on them (`E11000 duplicate key error ..`).
//!
//! A backend whose server lacks a feature declares this ([`Subject::without`]), and refuses requests that need it by name. A case
//! that fails with this refusal counts as [refused](Report::refused), which the backend's test compares with a list.

mod aggregation;
mod atomic;
mod collection;
mod concurrency;
mod counting;
mod delete;
mod find;
mod find_and_modify;
mod index;
mod insert;
mod prefixed;
mod reads;
mod subject;
mod tickets;
mod update;

#[cfg(test)]
pub(crate) mod broken;
#[cfg(test)]
mod tests;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

pub use prefixed::PrefixedStore;
pub use subject::{Failure, Subject};

/// A case that takes longer has failed. The limit is generous, because machines that run tests are busy.
pub const CASE_TIME_MAX: Duration = Duration::from_secs(600);

type CaseFuture = Pin<Box<dyn Future<Output = Result<(), Failure>> + Send>>;

/// A test of one thing that a backend must do.
#[derive(Clone, Copy)]
pub struct Case {
    /// The name of the case, which says what the backend must do.
    pub name: &'static str,
    needs: Needs,
    run: fn(Arc<Subject>) -> CaseFuture,
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// A requirement of a case beyond [`DocumentStore`](crate::DocumentStore).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Needs {
    Nothing,
    /// [`AtomicStore`](crate::AtomicStore).
    Atomic,
    /// Tickets, which every `AtomicStore` honours.
    Tickets,
    /// Cursors that read one snapshot.
    SnapshotCursors,
}

/// Lists the cases of a module: their functions, by name.
macro_rules! list_cases {
    ($needs:ident: $($name:ident),+ $(,)?) => {
        $crate::conformance::list_cases! { $needs as CASES: $($name),+ }
    };
    ($needs:ident as $list:ident: $($name:ident),+ $(,)?) => {
        pub(super) const $list: &[$crate::conformance::Case] = &[$($crate::conformance::Case {
            name: stringify!($name),
            needs: $crate::conformance::Needs::$needs,
            run: |subject| Box::pin(async move { $name(&subject).await }),
        }),+];
    };
}
use list_cases;

/// Fails the case unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err($crate::conformance::Failure::new(line!(), format!($($message)+)));
        }
    };
}
use ensure;

/// Fails the case unless both are equal.
macro_rules! ensure_eq {
    // The type of an empty list is ambiguous as soon as any crate compares other types with the elements.
    ($left:expr, []) => {{
        let left = &$left;
        if !left.is_empty() {
            let text = format!("{} is {left:?}, not empty", stringify!($left));
            return Err($crate::conformance::Failure::new(line!(), text));
        }
    }};
    ($left:expr, $right:expr) => {{
        let (left, right) = (&$left, &$right);
        if !(*left == *right) {
            let text = format!("{} is {left:?}, not {right:?}", stringify!($left));
            return Err($crate::conformance::Failure::new(line!(), text));
        }
    }};
}
use ensure_eq;

/// Returns all cases.
pub fn cases() -> impl Iterator<Item = &'static Case> {
    [
        insert::CASES,
        find::CASES,
        find::SNAPSHOT_CASES,
        update::CASES,
        find_and_modify::CASES,
        delete::CASES,
        counting::CASES,
        aggregation::CASES,
        index::CASES,
        collection::CASES,
        concurrency::CASES,
        atomic::CASES,
        reads::CASES,
        tickets::CASES,
        tickets::BATCH_CASES,
    ]
    .into_iter()
    .flatten()
}

/// The results of the cases.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Cases that passed.
    pub passed: Vec<&'static str>,
    /// Cases that failed, with the reason.
    pub failed: Vec<(&'static str, String)>,
    /// Cases that were refused because of a feature that the backend lacks, with its name.
    pub refused: Vec<(&'static str, &'static str)>,
    /// Cases that the backend cannot run, with the reason.
    pub skipped: Vec<(&'static str, &'static str)>,
}

impl Report {
    /// Returns whether some cases passed and none failed.
    pub fn is_clean(&self) -> bool {
        self.failed.is_empty() && !self.passed.is_empty()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (passed, failed) = (self.passed.len(), self.failed.len());
        let (refused, skipped) = (self.refused.len(), self.skipped.len());
        writeln!(f, "conformance: {passed} passed, {failed} failed, {refused} refused, {skipped} skipped")?;
        for (name, why) in &self.failed {
            writeln!(f, "  failed {name}: {why}")?;
        }
        for (name, lack) in &self.refused {
            writeln!(f, "  refused {name}: {lack}")?;
        }
        let mut reasons: Vec<&str> = self.skipped.iter().map(|(_, why)| *why).collect();
        reasons.dedup();
        for why in reasons {
            let skipped = self.skipped.iter().filter(|(_, other)| *other == why).count();
            writeln!(f, "  skipped {skipped}: {why}")?;
        }
        Ok(())
    }
}

/// Runs all cases, each on an empty store of its own. Needs a tokio runtime; with several threads the races are real.
pub async fn run(make: impl AsyncFn() -> Subject) -> Report {
    run_matching(make, |_| true).await
}

/// Runs the cases for whose names the function returns `true`.
pub async fn run_matching(make: impl AsyncFn() -> Subject, pick: impl Fn(&str) -> bool) -> Report {
    let mut report = Report::default();
    for case in cases().filter(|case| pick(case.name)) {
        let subject = make().await;
        let lacks = subject.lacks_by_name();
        if let Some(why) = subject.lacks(case.needs) {
            report.skipped.push((case.name, why));
            continue;
        }
        // A task of its own, so that a panic in the backend fails this case alone.
        let task = tokio::spawn((case.run)(Arc::new(subject)));
        let stop = task.abort_handle();
        match tokio::time::timeout(CASE_TIME_MAX, task).await {
            Ok(Ok(Ok(()))) => report.passed.push(case.name),
            Ok(Ok(Err(failure))) => match failure.refused_for(&lacks) {
                Some(lack) => report.refused.push((case.name, lack)),
                None => report.failed.push((case.name, failure.to_string())),
            },
            Ok(Err(panic)) => report.failed.push((case.name, format!("panicked: {panic}"))),
            Err(_) => {
                stop.abort();
                report.failed.push((case.name, format!("not done after {} s", CASE_TIME_MAX.as_secs())));
            }
        }
    }
    report
}
