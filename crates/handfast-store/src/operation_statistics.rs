//! What one command of a client examined, and how long it waited, for its line in the log of slow commands.
//!
//! The server runs a command within [`OperationStatistics::observe`], and a backend adds to what it finds there. Threads that work
//! for a command take it with them: [`blocking`](crate::blocking), the committer of the embedded store.

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bson::RawDocumentBuf;

/// The plans of one command that are kept: a `$lookup` can have one for each of its documents.
const PLANS_MAX: usize = 8;

tokio::task_local! {
    static CURRENT: Arc<OperationStatistics>;
}

/// How documents were found, as MongoDB's `planSummary` says it.
#[derive(Clone, Debug, PartialEq)]
pub enum PlanSummary {
    /// There is no such collection, or no document can match.
    Eof,
    /// All documents of a collection, or those of a range of ids.
    CollectionScan,
    /// Documents by their `_id`.
    IdHack,
    /// An index with this key.
    IndexScan(RawDocumentBuf),
}

/// The plans of one command, the keys and documents that it examined, and the time that it waited.
#[derive(Debug, Default)]
pub struct OperationStatistics {
    keys: AtomicU64,
    documents: AtomicU64,
    waited_nanos: AtomicU64,
    plans: Mutex<Vec<PlanSummary>>,
}

impl OperationStatistics {
    /// Runs a command, whose work is added to these statistics.
    pub async fn observe<F: Future>(self: &Arc<Self>, command: F) -> F::Output {
        CURRENT.scope(Arc::clone(self), command).await
    }

    /// Returns the statistics of the command that runs here.
    pub fn current() -> Option<Arc<Self>> {
        CURRENT.try_with(Arc::clone).ok()
    }

    /// Runs a part of a command in another task. `statistics` are the [`current`](OperationStatistics::current) ones of the command.
    pub async fn observe_task<F: Future>(statistics: Option<Arc<Self>>, part: F) -> F::Output {
        match statistics {
            Some(statistics) => statistics.observe(part).await,
            None => part.await,
        }
    }

    /// Runs a part of a command on another thread. `statistics` are the [`current`](OperationStatistics::current) ones of the command.
    pub fn observe_here<T>(statistics: Option<Arc<Self>>, part: impl FnOnce() -> T) -> T {
        match statistics {
            Some(statistics) => CURRENT.sync_scope(statistics, part),
            None => part(),
        }
    }

    /// Adds examined keys and documents to the command that runs here.
    pub fn add_examined(keys: u64, documents: u64) {
        let _ = CURRENT.try_with(|statistics| {
            statistics.keys.fetch_add(keys, Ordering::Relaxed);
            statistics.documents.fetch_add(documents, Ordering::Relaxed);
        });
    }

    /// Adds a plan to the command that runs here.
    pub fn add_plan(plan: PlanSummary) {
        let _ = CURRENT.try_with(|statistics| {
            let mut plans = statistics.plans.lock().unwrap_or_else(PoisonError::into_inner);
            if plans.len() < PLANS_MAX && !plans.contains(&plan) {
                plans.push(plan);
            }
        });
    }

    /// Adds time in which the command waited for other commands.
    pub fn add_wait(&self, time: Duration) {
        self.waited_nanos.fetch_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Returns the number of examined keys of indexes.
    pub fn keys_examined(&self) -> u64 {
        self.keys.load(Ordering::Relaxed)
    }

    /// Returns the number of examined documents.
    pub fn documents_examined(&self) -> u64 {
        self.documents.load(Ordering::Relaxed)
    }

    /// Returns the time in which the command waited for other commands.
    pub fn waited(&self) -> Duration {
        Duration::from_nanos(self.waited_nanos.load(Ordering::Relaxed))
    }

    /// Returns the plans as MongoDB's log shows them, such as `IXSCAN { a: 1 }, COLLSCAN`; empty if nothing was searched.
    pub fn plan_summary(&self) -> String {
        let plans = self.plans.lock().unwrap_or_else(PoisonError::into_inner);
        plans.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
    }
}

impl std::fmt::Display for PlanSummary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            PlanSummary::Eof => f.write_str("EOF"),
            PlanSummary::CollectionScan => f.write_str("COLLSCAN"),
            PlanSummary::IdHack => f.write_str("IDHACK"),
            PlanSummary::IndexScan(key) => {
                let fields = key.iter().flatten().map(|(name, direction)| match direction {
                    bson::RawBsonRef::Int32(direction) => format!("{name}: {direction}"),
                    bson::RawBsonRef::Int64(direction) => format!("{name}: {direction}"),
                    bson::RawBsonRef::Double(direction) => format!("{name}: {direction}"),
                    bson::RawBsonRef::String(kind) => format!("{name}: \"{kind}\""),
                    _ => format!("{name}: ?"),
                });
                write!(f, "IXSCAN {{ {} }}", fields.collect::<Vec<_>>().join(", "))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use bson::rawdoc;

    use super::{OperationStatistics, PLANS_MAX, PlanSummary};
    use crate::blocking;

    #[tokio::test]
    async fn work_is_added_to_the_command_that_it_is_done_for() {
        let (first, second) = (Arc::<OperationStatistics>::default(), Arc::<OperationStatistics>::default());
        first
            .observe(async {
                OperationStatistics::add_examined(1, 2);
                let on_thread = || {
                    OperationStatistics::add_examined(10, 20);
                    Ok(())
                };
                blocking(on_thread).await.unwrap();
                let statistics = OperationStatistics::current();
                let in_task = async { OperationStatistics::add_examined(3, 4) };
                tokio::spawn(OperationStatistics::observe_task(statistics, in_task)).await.unwrap();
                second.observe(async { OperationStatistics::add_examined(100, 200) }).await;
                OperationStatistics::current().unwrap().add_wait(Duration::from_millis(3));
            })
            .await;
        OperationStatistics::add_examined(1_000, 2_000);
        assert_eq!((first.keys_examined(), first.documents_examined()), (14, 26));
        assert_eq!((second.keys_examined(), second.documents_examined()), (100, 200));
        assert_eq!((first.waited(), second.waited()), (Duration::from_millis(3), Duration::ZERO));
        assert!(OperationStatistics::current().is_none());
    }

    #[tokio::test]
    async fn plans_are_shown_once_each_and_not_without_end() {
        let statistics = Arc::<OperationStatistics>::default();
        let plan = |number: i32| PlanSummary::IndexScan(rawdoc! { "a.b": 1, "c": -1_i64, "n": number });
        statistics
            .observe(async {
                for _ in 0..3 {
                    OperationStatistics::add_plan(PlanSummary::CollectionScan);
                    OperationStatistics::add_plan(plan(0));
                }
            })
            .await;
        assert_eq!(statistics.plan_summary(), "COLLSCAN, IXSCAN { a.b: 1, c: -1, n: 0 }");
        statistics.observe(async { (0..100).for_each(|number| OperationStatistics::add_plan(plan(number))) }).await;
        assert_eq!(statistics.plan_summary().matches("SCAN").count(), PLANS_MAX);
    }
}
