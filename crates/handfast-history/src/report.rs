//! What a judge says.

use std::collections::BTreeMap;
use std::fmt;

use crate::event::{Name, Order};

/// Anomalies of one kind that are told in full; more are counted. A broken store shows the same thing thousands of times.
pub const ANOMALIES_PER_KIND_MAX: usize = 10;

/// The shape of a cycle: which dependencies it is made of (Adya's names).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cycle {
    /// Writes over writes alone.
    WritesOnly,
    /// Writes over writes, and reads of what was written.
    Information,
    /// One read of what somebody then overwrote, besides those.
    OneAntidependency,
    /// Several of them, never two in a row: no snapshot shows this.
    Nonadjacent,
    /// Two of them in a row: write skew. Snapshot isolation allows it.
    Adjacent,
}

/// What can be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Transactions that cannot be put in an order. The second part says which order between transactions was needed to
    /// see it.
    Cycle(Cycle, CycleOrder),
    /// A read of a value whose transaction failed.
    AbortedRead,
    /// A read of a value that its own transaction overwrote before it ended.
    IntermediateRead,
    /// A transaction that does not see its own writes, or sees a key change under it.
    Internal,
    /// Two reads of a list of which neither is the beginning of the other.
    IncompatibleOrder,
    /// Two transactions that read the same version of a key and both wrote it.
    LostUpdate,
    /// A value that is in a list twice.
    DuplicateAppend,
    /// A read of a value that nobody wrote.
    UnwrittenRead,
    /// An acknowledged append that no read ever shows, although one began later.
    LostAppend,
    /// An acknowledged write that the last read does not know of.
    LostWrite,
    /// A transaction of unknown outcome of which a read showed one write, and a later read should have shown another.
    HalfCommit,
    /// A bank whose money is not all there.
    WrongTotal,
    /// An amount that is not the one written with its value.
    WrongAmount,
}

/// Which order between transactions a cycle needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CycleOrder {
    /// None: what was read and written says it all.
    Data,
    /// That of a process.
    Session,
    /// That of the world.
    RealTime,
}

impl Kind {
    /// Its name: Adya's where there is one.
    pub fn name(self) -> &'static str {
        use Cycle::{Adjacent, Information, Nonadjacent, OneAntidependency, WritesOnly};
        use CycleOrder::{Data, RealTime, Session};
        match self {
            Kind::Cycle(WritesOnly, Data) => "G0",
            Kind::Cycle(WritesOnly, Session) => "G0-session",
            Kind::Cycle(WritesOnly, RealTime) => "G0-real-time",
            Kind::Cycle(Information, Data) => "G1c",
            Kind::Cycle(Information, Session) => "G1c-session",
            Kind::Cycle(Information, RealTime) => "G1c-real-time",
            Kind::Cycle(OneAntidependency, Data) => "G-single",
            Kind::Cycle(OneAntidependency, Session) => "G-single-session",
            Kind::Cycle(OneAntidependency, RealTime) => "G-single-real-time",
            Kind::Cycle(Nonadjacent, Data) => "G-nonadjacent",
            Kind::Cycle(Nonadjacent, Session) => "G-nonadjacent-session",
            Kind::Cycle(Nonadjacent, RealTime) => "G-nonadjacent-real-time",
            Kind::Cycle(Adjacent, Data) => "G2",
            Kind::Cycle(Adjacent, Session) => "G2-session",
            Kind::Cycle(Adjacent, RealTime) => "G2-real-time",
            Kind::AbortedRead => "G1a",
            Kind::IntermediateRead => "G1b",
            Kind::Internal => "internal",
            Kind::IncompatibleOrder => "incompatible-order",
            Kind::LostUpdate => "lost-update",
            Kind::DuplicateAppend => "duplicate-append",
            Kind::UnwrittenRead => "unwritten-read",
            Kind::LostAppend => "lost-append",
            Kind::LostWrite => "lost-write",
            Kind::HalfCommit => "half-commit",
            Kind::WrongTotal => "wrong-total",
            Kind::WrongAmount => "wrong-amount",
        }
    }

    /// Whether the other judge looks for it too, and so has to agree.
    pub fn is_for_both_judges(self) -> bool {
        !matches!(
            self,
            Kind::UnwrittenRead
                | Kind::LostAppend
                | Kind::LostWrite
                | Kind::HalfCommit
                | Kind::WrongTotal
                | Kind::WrongAmount
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

/// One thing that no store which keeps its promise could have shown.
#[derive(Clone, Debug, PartialEq)]
pub struct Anomaly {
    /// Which.
    pub kind: Kind,
    /// The transactions that show it, by the number that the history gives them.
    pub transactions: Vec<u64>,
    /// The keys that it is about.
    pub keys: Vec<Name>,
    /// Why, in lines for people.
    pub explanation: String,
}

impl fmt::Display for Anomaly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind.name(), self.explanation)
    }
}

/// How much happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Transactions that were begun.
    pub transactions: u64,
    /// Those that were told that they had committed.
    pub committed: u64,
    /// Those that were told that they had not, with an error: another was in their way.
    pub failed: u64,
    /// Those that ended without effect and without an error: their clients rolled them back on purpose.
    pub given_up: u64,
    /// Those of unknown outcome whose values were seen: they did commit.
    pub unknown_seen: u64,
    /// Those of unknown outcome of which nothing was seen.
    pub unknown_unseen: u64,
    /// Keys.
    pub keys: u64,
    /// Reads by committed transactions of what they had not written themselves.
    pub reads: u64,
    /// Writes and appends by committed transactions.
    pub writes: u64,
    /// Reads of a version that was no longer the newest when the transaction ended: those a snapshot served.
    pub old_version_reads: u64,
    /// Acknowledged appends of which no read could tell, because none began later: a final read is missing.
    pub unconfirmed: u64,
    /// Dependencies between transactions.
    pub dependencies: u64,
    /// Dependencies left out because a key was read by too many before its first write.
    pub dependencies_left_out: u64,
}

/// What has to have happened in a run: one that did nothing proves nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Floors {
    /// Transactions that committed.
    pub committed: u64,
    /// Transactions that failed because of another; those given up on purpose do not count.
    pub failed: u64,
    /// Reads that a snapshot served.
    pub old_version_reads: u64,
}

/// What the judge of this crate found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// How much was looked at.
    pub counts: Counts,
    /// What was found, by kind, worst first.
    pub anomalies: Vec<Anomaly>,
    /// Further anomalies, by the name of their kind.
    pub beyond: BTreeMap<&'static str, u64>,
}

impl Report {
    /// Whether nothing was found.
    pub fn is_clean(&self) -> bool {
        self.anomalies.is_empty()
    }

    /// The kinds of what was found.
    pub fn kinds(&self) -> Vec<&'static str> {
        let mut kinds: Vec<&'static str> = self.anomalies.iter().map(|anomaly| anomaly.kind.name()).collect();
        kinds.dedup();
        kinds
    }

    /// What did not happen often enough, a line each.
    pub fn below(&self, floors: &Floors) -> Vec<String> {
        let counts = &self.counts;
        let pairs = [
            ("committed transactions", counts.committed, floors.committed),
            ("failed transactions", counts.failed, floors.failed),
            ("reads of old versions", counts.old_version_reads, floors.old_version_reads),
        ];
        let short = pairs.iter().filter(|(_, count, floor)| count < floor);
        let mut lines: Vec<String> =
            short.map(|(what, count, floor)| format!("{count} {what}, where at least {floor} were due")).collect();
        if counts.unconfirmed > 0 {
            lines.push(format!("{} acknowledged appends that no final read could confirm", counts.unconfirmed));
        }
        lines
    }
}

/// Anomalies as they are found.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    by_kind: BTreeMap<Kind, (Vec<Anomaly>, u64)>,
}

impl Findings {
    /// Takes one down; the text is made only if it will be told.
    pub(crate) fn add(&mut self, kind: Kind, transactions: Vec<u64>, keys: Vec<Name>, text: impl FnOnce() -> String) {
        let (told, beyond) = self.by_kind.entry(kind).or_default();
        if told.len() < ANOMALIES_PER_KIND_MAX {
            told.push(Anomaly { kind, transactions, keys, explanation: text() });
        } else {
            *beyond += 1;
        }
    }

    pub(crate) fn into_report(self, counts: Counts) -> Report {
        let mut report = Report { counts, ..Report::default() };
        for (kind, (mut told, beyond)) in self.by_kind {
            report.anomalies.append(&mut told);
            if beyond > 0 {
                report.beyond.insert(kind.name(), beyond);
            }
        }
        report
    }
}
