//! What the server counts: for `serverStatus`, `top` and whoever else asks.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::lock::lock;

/// Collections that `top` keeps apart; what comes later is counted under no name.
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

    /// How many there were.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What MongoDB calls `opcounters`: documents for inserts, statements for updates and deletes, commands otherwise.
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

/// One command's counters.
#[derive(Clone, Copy, Debug, Default)]
pub struct CommandCount {
    /// How often it came.
    pub total: u64,
    /// How often it failed.
    pub failed: u64,
    /// How long it took in all.
    pub time: Duration,
}

/// What a collection saw.
#[derive(Clone, Copy, Debug, Default)]
pub struct NamespaceUse {
    /// Reads, and the time they took.
    pub reads: (u64, Duration),
    /// Writes, and the time they took.
    pub writes: (u64, Duration),
}

/// The server's counters.
#[derive(Debug, Default)]
pub struct Metrics {
    /// Connections accepted since the start.
    pub connections_created: Counter,
    /// Connections refused because there were too many.
    pub connections_refused: Counter,
    /// Connections closed for a message that could not be read, or a time-out in the middle of one.
    pub connections_broken: Counter,
    /// Bytes of requests, as they came over the network.
    pub bytes_in: Counter,
    /// Bytes of replies.
    pub bytes_out: Counter,
    /// Requests.
    pub requests: Counter,
    /// Retryable writes that had been done before, at least in part.
    pub retried_commands: Counter,
    /// Their statements that had been done before.
    pub retried_statements: Counter,
    /// By kind.
    pub operations: OperationCounters,
    commands: Mutex<HashMap<&'static str, CommandCount>>,
    unknown_commands: Counter,
    namespaces: Mutex<HashMap<String, NamespaceUse>>,
}

impl Metrics {
    pub(crate) fn count_command(&self, name: &'static str, time: Duration, failed: bool) {
        let mut commands = lock(&self.commands);
        let count = commands.entry(name).or_default();
        count.total += 1;
        count.failed += u64::from(failed);
        count.time += time;
    }

    pub(crate) fn count_unknown_command(&self) {
        self.unknown_commands.increment();
    }

    pub(crate) fn count_namespace(&self, namespace: &str, write: bool, time: Duration) {
        let mut namespaces = lock(&self.namespaces);
        if namespaces.len() >= NAMESPACES_MAX && !namespaces.contains_key(namespace) {
            return;
        }
        let used = match namespaces.get_mut(namespace) {
            Some(used) => used,
            None => namespaces.entry(namespace.to_owned()).or_default(),
        };
        let (count, total) = if write { &mut used.writes } else { &mut used.reads };
        *count += 1;
        *total += time;
    }

    /// Each command that came at least once.
    pub fn commands(&self) -> Vec<(&'static str, CommandCount)> {
        let mut commands: Vec<_> = lock(&self.commands).iter().map(|(name, count)| (*name, *count)).collect();
        commands.sort_unstable_by_key(|(name, _)| *name);
        commands
    }

    /// How many commands had a name that nobody knows.
    pub fn unknown_commands(&self) -> u64 {
        self.unknown_commands.get()
    }

    /// Each collection that was read or written.
    pub fn namespaces(&self) -> Vec<(String, NamespaceUse)> {
        let mut namespaces: Vec<_> = lock(&self.namespaces).iter().map(|(name, used)| (name.clone(), *used)).collect();
        namespaces.sort_unstable_by(|one, other| one.0.cmp(&other.0));
        namespaces
    }
}
