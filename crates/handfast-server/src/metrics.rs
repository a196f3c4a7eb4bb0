//! The counters of the server, for `serverStatus`, `top` and the program that runs the server.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bson::DateTime;
use handfast_store::Durations;

use crate::lock::lock;

/// The number of collections that `top` counts. Further ones are not counted.
const NAMESPACES_MAX: usize = 10_000;

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
}

impl NamespaceCounters {
    pub(crate) fn count(&self, write: bool, time: Duration) {
        if write { &self.writes } else { &self.reads }.add(time);
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
        let used =
            |counters: &NamespaceCounters| NamespaceUse { reads: counters.reads.get(), writes: counters.writes.get() };
        let mut namespaces: Vec<_> =
            lock(&self.namespaces).iter().map(|(name, counters)| (name.clone(), used(counters))).collect();
        namespaces.sort_unstable_by(|one, other| one.0.cmp(&other.0));
        namespaces
    }
}
