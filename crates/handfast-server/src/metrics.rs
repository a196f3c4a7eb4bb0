//! The counters of the server, for `serverStatus`, `top` and the program that runs the server.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bson::DateTime;
use handfast_store::{Durations, PlanSummary};

use crate::lock::lock;

/// The number of collections that `top` counts. Further ones are not counted.
const NAMESPACES_MAX: usize = 10_000;
/// The number of different plans of a collection that are counted; there are few more than the collection has indexes.
const PLANS_MAX: usize = 500;

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds one, and returns how many there are now.
    pub fn increment(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Adds several.
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    /// Returns the number of events.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// MongoDB's `opcounters`: documents for inserts, statements for updates and deletes, commands otherwise.
#[derive(Debug, Default)]
pub struct OperationCounters {
    /// Documents to insert.
    pub insert: Counter,
    /// Finds.
    pub query: Counter,
    /// Update statements.
    pub update: Counter,
    /// Delete statements.
    pub delete: Counter,
    /// Further batches of cursors.
    pub getmore: Counter,
    /// Everything else.
    pub command: Counter,
}

/// A number of events and their total duration.
#[derive(Debug, Default)]
struct Timed {
    count: Counter,
    nanos: Counter,
}

impl Timed {
    fn add(&self, time: Duration) {
        self.count.increment();
        self.nanos.add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    }

    fn get(&self) -> CountAndTime {
        CountAndTime { count: self.count.get(), time: Duration::from_nanos(self.nanos.get()) }
    }
}

/// The runs that remove old outcomes of transactions and old results of retryable writes (MongoDB: the transaction reaper).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ReaperJobs {
    /// The runs that were completed.
    pub(crate) count: u64,
    /// The end of the last run.
    pub(crate) last: Option<DateTime>,
    /// The records that the last run removed.
    pub(crate) last_removed: u64,
}

/// The counters of a command, which requests increment.
#[derive(Debug, Default)]
struct CommandCounters {
    all: Timed,
    failed: Counter,
}

/// The counters of a collection, which requests increment. A connection keeps those of the collection that it used last.
#[derive(Debug, Default)]
pub(crate) struct NamespaceCounters {
    reads: Timed,
    writes: Timed,
    plans: Mutex<PlanCounts>,
}

/// The numbers of commands that searched a collection, by their plans.
#[derive(Clone, Debug, Default)]
pub(crate) struct PlanCounts {
    /// The moment from which they are counted; `None` for the start of the server.
    pub(crate) since: Option<DateTime>,
    /// The counts by the text of a plan, such as `IXSCAN { a: 1 }`.
    counts: HashMap<String, u64>,
}

impl PlanCounts {
    /// Returns the number of commands that had this plan.
    pub(crate) fn of(&self, plan: &PlanSummary) -> u64 {
        self.counts.get(&plan.to_string()).copied().unwrap_or(0)
    }
}

/// Returns the plans of a text such as `IXSCAN { a: 1, b: 1 }, COLLSCAN`.
fn single(mut plans: &str) -> impl Iterator<Item = &str> {
    const SEPARATORS: [&str; 4] = [", IXSCAN {", ", COLLSCAN", ", IDHACK", ", EOF"];
    std::iter::from_fn(move || {
        if plans.is_empty() {
            return None;
        }
        let end = SEPARATORS.iter().filter_map(|separator| plans.find(separator)).min().unwrap_or(plans.len());
        let (plan, rest) = plans.split_at_checked(end)?;
        plans = rest.strip_prefix(", ").unwrap_or_default();
        Some(plan)
    })
}

impl NamespaceCounters {
    pub(crate) fn count(&self, write: bool, time: Duration) {
        if write { &self.writes } else { &self.reads }.add(time);
    }

    /// Counts the plans of a command, such as `IXSCAN { a: 1 }, COLLSCAN`, each once. Those of a `$lookup` are among them: to count a use too
    /// many is better than to call an index unused.
    pub(crate) fn count_plans(&self, plans: &str) {
        if plans.is_empty() {
            return;
        }
        let mut counted = lock(&self.plans);
        for plan in single(plans) {
            if let Some(count) = counted.counts.get_mut(plan) {
                *count += 1;
            } else if counted.counts.len() < PLANS_MAX {
                counted.counts.insert(plan.to_owned(), 1);
            }
        }
    }

    fn usage(&self) -> NamespaceUse {
        NamespaceUse { reads: self.reads.get(), writes: self.writes.get() }
    }

    /// Begins to count plans anew.
    fn forget_plans(&self, now: DateTime) {
        *lock(&self.plans) = PlanCounts { since: Some(now), counts: HashMap::new() };
    }
}

/// The counters of a command at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub struct CommandCount {
    /// The number of requests.
    pub total: u64,
    /// The number of failures.
    pub failed: u64,
    /// The total duration.
    pub time: Duration,
}

/// A number of events, and their total duration.
#[derive(Clone, Copy, Debug, Default)]
pub struct CountAndTime {
    /// The number of events.
    pub count: u64,
    /// Their total duration.
    pub time: Duration,
}

/// The counters of a collection at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub struct NamespaceUse {
    /// The reads of the collection.
    pub reads: CountAndTime,
    /// The writes to the collection.
    pub writes: CountAndTime,
}

/// The server's counters.
#[derive(Debug)]
pub struct Metrics {
    /// Connections accepted since the start.
    pub connections_created: Counter,
    /// Connections refused because there were too many.
    pub connections_refused: Counter,
    /// Connections closed for a message that could not be read, or a time-out in the middle of one.
    pub connections_broken: Counter,
    /// Bytes of requests as received, compressed or not.
    pub bytes_in: Counter,
    /// Bytes of replies.
    pub bytes_out: Counter,
    /// Requests.
    pub requests: Counter,
    /// Retryable writes that had been applied before, at least in part.
    pub retried_commands: Counter,
    /// Statements of retryable writes that had been applied before.
    pub retried_statements: Counter,
    /// The runs that remove old outcomes and results.
    pub(crate) reaper: Mutex<ReaperJobs>,
    /// Operations by kind.
    pub operations: OperationCounters,
    /// The counters of all commands, by name.
    commands: BTreeMap<&'static str, CommandCounters>,
    unknown_commands: Counter,
    /// The durations of commands that read documents, without further batches of cursors.
    pub(crate) read_latencies: Durations,
    /// The durations of commands that write.
    pub(crate) write_latencies: Durations,
    namespaces: Mutex<HashMap<String, Arc<NamespaceCounters>>>,
}

impl Metrics {
    pub(crate) fn new(commands: impl Iterator<Item = &'static str>) -> Self {
        Metrics {
            connections_created: Counter::default(),
            connections_refused: Counter::default(),
            connections_broken: Counter::default(),
            bytes_in: Counter::default(),
            bytes_out: Counter::default(),
            requests: Counter::default(),
            retried_commands: Counter::default(),
            retried_statements: Counter::default(),
            reaper: Mutex::default(),
            operations: OperationCounters::default(),
            commands: commands.map(|name| (name, CommandCounters::default())).collect(),
            unknown_commands: Counter::default(),
            read_latencies: Durations::default(),
            write_latencies: Durations::default(),
            namespaces: Mutex::default(),
        }
    }

    pub(crate) fn count_command(&self, name: &str, time: Duration, failed: bool) {
        if let Some(counters) = self.commands.get(name) {
            counters.all.add(time);
            counters.failed.add(u64::from(failed));
        }
    }

    /// Counts the duration of a command that used collections.
    pub(crate) fn count_latency(&self, write: bool, time: Duration) {
        if write { &self.write_latencies } else { &self.read_latencies }.add(time);
    }

    pub(crate) fn count_unknown_command(&self) {
        self.unknown_commands.increment();
    }

    /// Returns the counters of a collection, or `None` if the limit of counted collections is reached.
    pub(crate) fn namespace(&self, namespace: &str) -> Option<Arc<NamespaceCounters>> {
        let mut namespaces = lock(&self.namespaces);
        if let Some(counters) = namespaces.get(namespace) {
            return Some(Arc::clone(counters));
        }
        if namespaces.len() >= NAMESPACES_MAX {
            return None;
        }
        Some(Arc::clone(namespaces.entry(namespace.to_owned()).or_default()))
    }

    /// Returns the counters of each command that was requested at least once.
    pub fn commands(&self) -> Vec<(&'static str, CommandCount)> {
        let counted = self.commands.iter().map(|(name, counters)| {
            let CountAndTime { count: total, time } = counters.all.get();
            (*name, CommandCount { total, failed: counters.failed.get(), time })
        });
        counted.filter(|(_, count)| count.total > 0).collect()
    }

    /// Returns the number of commands with an unknown name.
    pub fn unknown_commands(&self) -> u64 {
        self.unknown_commands.get()
    }

    /// Returns the counters of each collection that was read or written.
    pub fn namespaces(&self) -> Vec<(String, NamespaceUse)> {
        let mut namespaces: Vec<_> =
            lock(&self.namespaces).iter().map(|(name, counters)| (name.clone(), counters.usage())).collect();
        namespaces.sort_unstable_by(|one, other| one.0.cmp(&other.0));
        namespaces
    }

    /// Returns the counters of one collection; zeros if it was not used.
    pub(crate) fn namespace_use(&self, namespace: &str) -> NamespaceUse {
        lock(&self.namespaces).get(namespace).map(|counters| counters.usage()).unwrap_or_default()
    }

    /// Returns the numbers of commands that searched a collection, by their plans; `None` if they were not counted, because there are too many
    /// collections.
    pub(crate) fn plans(&self, namespace: &str) -> Option<PlanCounts> {
        let namespaces = lock(&self.namespaces);
        match namespaces.get(namespace) {
            Some(counters) => Some(lock(&counters.plans).clone()),
            None => (namespaces.len() < NAMESPACES_MAX).then(PlanCounts::default),
        }
    }

    /// Begins to count the plans of a collection anew, because it or one of its indexes was dropped.
    pub(crate) fn forget_plans(&self, namespace: &str, now: DateTime) {
        if let Some(counters) = lock(&self.namespaces).get(namespace) {
            counters.forget_plans(now);
        }
    }

    /// Begins to count the plans of all collections of a database anew, because it was dropped.
    pub(crate) fn forget_plans_of_database(&self, database: &str, now: DateTime) {
        for (namespace, counters) in lock(&self.namespaces).iter() {
            if namespace.strip_prefix(database).is_some_and(|rest| rest.starts_with('.')) {
                counters.forget_plans(now);
            }
        }
    }
}
