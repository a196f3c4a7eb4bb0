//! The report of a check: anomalies and counts.

use std::collections::BTreeMap;
use std::fmt;

use crate::event::{Name, Order};

/// The number of anomalies of one kind that a report lists; further ones are only counted, as a broken store shows thousands.
pub const ANOMALIES_PER_KIND_MAX: usize = 10;

/// The shape of a cycle: the kinds of dependencies that it consists of (Adya's names).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cycle {
    /// Write dependencies only.
    WritesOnly,
    /// Write dependencies and read dependencies.
    Information,
    /// Those, and one antidependency: a read of a version that another transaction overwrote.
    OneAntidependency,
    /// Several antidependencies, never two in a row: snapshot isolation forbids it.
    Nonadjacent,
    /// Two antidependencies in a row, as in write skew: snapshot isolation allows it.
    Adjacent,
}

/// The kind of an anomaly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AnomalyKind {
    /// Transactions that depend on each other in a cycle.
    Cycle(Cycle, CycleOrder),
    /// A read of a value whose transaction was aborted.
    AbortedRead,
    /// A read of a value that its own transaction overwrote before it ended.
    IntermediateRead,
    /// A transaction that does not see its own writes, or whose repeated reads differ.
    Internal,
    /// Two reads of a list, neither of which is a prefix of the other.
    IncompatibleOrder,
    /// Two transactions that read the same version of a key and both wrote it.
    LostUpdate,
    /// A value that is in a list twice.
    DuplicateAppend,
    /// A read of a value that nobody wrote.
    UnwrittenRead,
    /// An acknowledged append that no read ever shows, although one began later.
    LostAppend,
    /// An acknowledged write that the last read does not show.
    LostWrite,
    /// A transaction of unknown outcome that was applied in part: a read showed one of its writes, and a later read lacks another.
    HalfCommit,
    /// A read of all accounts of a bank with a wrong sum.
    WrongTotal,
    /// A read of an amount that differs from the one written with its value.
    WrongAmount,
}

/// The order between transactions that a cycle relies on, beside reads and writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CycleOrder {
    /// The cycle consists of reads and writes only.
    Data,
    /// The order of transactions in a process.
    Session,
    /// The order of transactions in real time.
    RealTime,
}

impl AnomalyKind {
    /// Returns its name, by Adya where one exists.
    pub fn name(self) -> &'static str {
        use Cycle::{Adjacent, Information, Nonadjacent, OneAntidependency, WritesOnly};
        use CycleOrder::{Data, RealTime, Session};
        match self {
            AnomalyKind::Cycle(WritesOnly, Data) => "G0",
            AnomalyKind::Cycle(WritesOnly, Session) => "G0-session",
            AnomalyKind::Cycle(WritesOnly, RealTime) => "G0-real-time",
            AnomalyKind::Cycle(Information, Data) => "G1c",
            AnomalyKind::Cycle(Information, Session) => "G1c-session",
            AnomalyKind::Cycle(Information, RealTime) => "G1c-real-time",
            AnomalyKind::Cycle(OneAntidependency, Data) => "G-single",
            AnomalyKind::Cycle(OneAntidependency, Session) => "G-single-session",
            AnomalyKind::Cycle(OneAntidependency, RealTime) => "G-single-real-time",
            AnomalyKind::Cycle(Nonadjacent, Data) => "G-nonadjacent",
            AnomalyKind::Cycle(Nonadjacent, Session) => "G-nonadjacent-session",
            AnomalyKind::Cycle(Nonadjacent, RealTime) => "G-nonadjacent-real-time",
            AnomalyKind::Cycle(Adjacent, Data) => "G2",
            AnomalyKind::Cycle(Adjacent, Session) => "G2-session",
            AnomalyKind::Cycle(Adjacent, RealTime) => "G2-real-time",
            AnomalyKind::AbortedRead => "G1a",
            AnomalyKind::IntermediateRead => "G1b",
            AnomalyKind::Internal => "internal",
            AnomalyKind::IncompatibleOrder => "incompatible-order",
            AnomalyKind::LostUpdate => "lost-update",
            AnomalyKind::DuplicateAppend => "duplicate-append",
            AnomalyKind::UnwrittenRead => "unwritten-read",
            AnomalyKind::LostAppend => "lost-append",
            AnomalyKind::LostWrite => "lost-write",
            AnomalyKind::HalfCommit => "half-commit",
            AnomalyKind::WrongTotal => "wrong-total",
            AnomalyKind::WrongAmount => "wrong-amount",
        }
    }

    /// Returns whether both judges look for this kind, and so have to agree.
    pub fn is_found_by_both_judges(self) -> bool {
        !matches!(
            self,
            AnomalyKind::UnwrittenRead
                | AnomalyKind::LostAppend
                | AnomalyKind::LostWrite
                | AnomalyKind::HalfCommit
                | AnomalyKind::WrongTotal
                | AnomalyKind::WrongAmount
        )
    }
}

impl From<Order> for CycleOrder {
    fn from(order: Order) -> Self {
        match order {
            Order::None => CycleOrder::Data,
            Order::Session => CycleOrder::Session,
            Order::RealTime => CycleOrder::RealTime,
        }
    }
}

/// An observation that contradicts the promised isolation.
#[derive(Clone, Debug, PartialEq)]
pub struct Anomaly {
    /// Its kind.
    pub kind: AnomalyKind,
    /// The transactions that show it, by their numbers in the history.
    pub transactions: Vec<u64>,
    /// The keys on which it shows.
    pub keys: Vec<Name>,
    /// The explanation, one or more lines of text.
    pub explanation: String,
}

impl fmt::Display for Anomaly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind.name(), self.explanation)
    }
}

/// The number of transactions, operations and dependencies in a history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Transactions that began.
    pub transactions: u64,
    /// Transactions whose commit was acknowledged.
    pub committed: u64,
    /// Transactions that failed with an error, such as a conflict.
    pub failed: u64,
    /// Transactions that their clients rolled back on purpose.
    pub given_up: u64,
    /// Transactions of unknown outcome that committed, as reads show.
    pub unknown_seen: u64,
    /// Transactions of unknown outcome that no read shows.
    pub unknown_unseen: u64,
    /// Keys.
    pub keys: u64,
    /// Reads by committed transactions of values that others wrote.
    pub reads: u64,
    /// Writes and appends by committed transactions.
    pub writes: u64,
    /// Reads from a snapshot of a version that was overwritten before the transaction ended.
    pub old_version_reads: u64,
    /// Acknowledged appends that no later read could confirm, because the history has no final read.
    pub unconfirmed: u64,
    /// Dependencies between transactions.
    pub dependencies: u64,
    /// Dependencies that were left out because too many transactions read a key before its first write.
    pub dependencies_left_out: u64,
}

/// The least counts that a run has to reach: a run without conflicts proves nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MinimumCounts {
    /// Committed transactions.
    pub committed: u64,
    /// Transactions that failed with an error; those rolled back on purpose do not count.
    pub failed: u64,
    /// Reads of old versions from a snapshot.
    pub old_version_reads: u64,
}

/// The findings of this crate's checker.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// The size of the history.
    pub counts: Counts,
    /// The anomalies, sorted by kind, the worst first.
    pub anomalies: Vec<Anomaly>,
    /// The number of further anomalies, by the name of their kind.
    pub unlisted: BTreeMap<&'static str, u64>,
}

impl Report {
    /// Returns whether no anomaly was found.
    pub fn is_clean(&self) -> bool {
        self.anomalies.is_empty()
    }

    /// Returns the names of the kinds of the anomalies.
    pub fn kinds(&self) -> Vec<&'static str> {
        let mut kinds: Vec<&'static str> = self.anomalies.iter().map(|anomaly| anomaly.kind.name()).collect();
        kinds.dedup();
        kinds
    }

    /// Describes each count that is below its minimum, in a line each.
    pub fn shortfalls(&self, minimum: &MinimumCounts) -> Vec<String> {
        let counts = &self.counts;
        let pairs = [
            ("committed transactions", counts.committed, minimum.committed),
            ("failed transactions", counts.failed, minimum.failed),
            ("reads of old versions", counts.old_version_reads, minimum.old_version_reads),
        ];
        let short = pairs.iter().filter(|(_, count, minimum)| count < minimum);
        let mut lines: Vec<String> =
            short.map(|(what, count, minimum)| format!("{count} {what}, where at least {minimum} were due")).collect();
        if counts.unconfirmed > 0 {
            lines.push(format!("{} acknowledged appends that no final read could confirm", counts.unconfirmed));
        }
        lines
    }
}

/// Collects anomalies by kind.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    by_kind: BTreeMap<AnomalyKind, (Vec<Anomaly>, u64)>,
}

impl Findings {
    /// Adds an anomaly; makes its text only if the report will list it.
    pub(crate) fn add(
        &mut self,
        kind: AnomalyKind,
        transactions: Vec<u64>,
        keys: Vec<Name>,
        text: impl FnOnce() -> String,
    ) {
        let (listed, unlisted) = self.by_kind.entry(kind).or_default();
        if listed.len() < ANOMALIES_PER_KIND_MAX {
            listed.push(Anomaly { kind, transactions, keys, explanation: text() });
        } else {
            *unlisted += 1;
        }
    }

    pub(crate) fn into_report(self, counts: Counts) -> Report {
        let mut report = Report { counts, ..Report::default() };
        for (kind, (mut listed, unlisted)) in self.by_kind {
            report.anomalies.append(&mut listed);
            if unlisted > 0 {
                report.unlisted.insert(kind.name(), unlisted);
            }
        }
        report
    }
}
