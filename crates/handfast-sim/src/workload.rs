//! What the processes do: transactions that are likely to get into each other's way.
//!
//! All of a workload's transactions touch a few keys at a time, so that they collide; but not the same few for ever, or
//! lists would grow without end. The keys in use are a window that moves on by one key with every so many writes:
//!
//! ```text
//! keys     0 1 2 3 4 5 6 7 8 ..
//! window       [     ]             `keys` wide; moves on every `writes_per_key` writes
//! ```

use std::ops::Range;

use handfast_history::Model;
use handfast_store::Random;

/// Money in each account at the beginning.
pub const ACCOUNT_MONEY: i64 = 100;

/// A kind of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkloadKind {
    /// Reads of lists and appends to them, mixed.
    ListAppend,
    /// Registers: most writes after a read, some blind.
    Register,
    /// Transfers between accounts, and looks at all of them: the total is always the same.
    Bank,
    /// A look at a few keys, one of which is then written: what serializability forbids and a snapshot does not.
    WriteSkew,
    /// A few scans of everything that take long, beside many short writers.
    LongScan,
    /// The same keys looked at again and again in one transaction, before and after its own appends.
    Repeated,
}

/// A kind of work, and on how many keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Workload {
    /// What is done.
    pub kind: WorkloadKind,
    /// Keys in use at a time; of the bank, accounts.
    pub keys: i64,
    /// Writes to a key before the window has moved past it.
    pub writes_per_key: i64,
}

/// A transaction to carry out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// In this order.
    pub steps: Vec<Step>,
    /// Whether it is rolled back at the end on purpose: what it wrote must never be seen.
    pub is_aborted: bool,
}

/// A step of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A look at a key.
    Read(i64),
    /// A look at all keys of a range.
    Scan(Range<i64>),
    /// A fresh value at the end of a list.
    Append(i64),
    /// A fresh value in a register.
    Write(i64),
    /// A fresh value and this much money in a register: how accounts are opened.
    Open(i64, i64),
    /// Money, of an amount up to this, from an account to another, as far as there is any.
    Transfer {
        /// From where.
        from: i64,
        /// Where to.
        to: i64,
        /// At most how much.
        amount_max: i64,
    },
}

impl Workload {
    /// A workload of a size that makes many collisions.
    pub fn new(kind: WorkloadKind) -> Self {
        let (keys, writes_per_key) = match kind {
            WorkloadKind::ListAppend => (8, 16),
            WorkloadKind::Register => (8, 32),
            WorkloadKind::Bank => (12, i64::MAX),
            WorkloadKind::WriteSkew => (16, 8),
            WorkloadKind::LongScan => (32, 16),
            WorkloadKind::Repeated => (8, 16),
        };
        Workload { kind, keys, writes_per_key }
    }

    /// What its keys hold.
    pub fn model(&self) -> Model {
        match self.kind {
            WorkloadKind::ListAppend | WorkloadKind::WriteSkew | WorkloadKind::LongScan | WorkloadKind::Repeated => {
                Model::ListAppend
            }
            WorkloadKind::Register | WorkloadKind::Bank => Model::RwRegister,
        }
    }

    /// The transaction that comes before all others, if the workload needs one.
    pub fn setup(&self) -> Option<Plan> {
        let open = || (0..self.keys).map(|account| Step::Open(account, ACCOUNT_MONEY)).collect();
        (self.kind == WorkloadKind::Bank).then(|| Plan { steps: open(), is_aborted: false })
    }

    /// The keys that are in use after so many writes.
    pub fn window(&self, written: i64) -> Range<i64> {
        let first = if self.kind == WorkloadKind::Bank { 0 } else { written / self.writes_per_key };
        first..first.saturating_add(self.keys)
    }

    /// The next transaction, when so many values have been written.
    pub fn plan(&self, random: &dyn Random, written: i64) -> Plan {
        let window = self.window(written);
        let key = || window.start + below(random, self.keys);
        let steps = match self.kind {
            WorkloadKind::ListAppend => {
                let mixed = |_| if one_in(random, 2) { Step::Read(key()) } else { Step::Append(key()) };
                (0..=below(random, 4)).map(mixed).collect()
            }
            WorkloadKind::Register => {
                let mut steps = Vec::new();
                for _ in 0..=below(random, 3) {
                    let key = key();
                    match below(random, 10) {
                        0 => steps.push(Step::Write(key)),
                        1..=4 => steps.push(Step::Read(key)),
                        _ => steps.extend([Step::Read(key), Step::Write(key)]),
                    }
                }
                steps
            }
            WorkloadKind::Bank if one_in(random, 4) => vec![Step::Scan(window)],
            WorkloadKind::Bank => {
                let from = key();
                let to = (from + 1 + below(random, self.keys - 1)) % self.keys;
                vec![Step::Transfer { from, to, amount_max: 20 }]
            }
            WorkloadKind::WriteSkew => {
                // A group of four keys, some of which are not there yet: inserting one is what ranges have to notice.
                let first = key() / 4 * 4;
                let written = Step::Append(first + below(random, 4));
                let reads = if one_in(random, 2) {
                    vec![Step::Scan(first..first + 4)]
                } else {
                    (first..first + 4).map(Step::Read).collect()
                };
                // Some only look: whoever sees the one write and not the other makes a history impossible by that alone.
                let written = Some(written).filter(|_| !one_in(random, 4));
                reads.into_iter().chain(written).collect()
            }
            WorkloadKind::LongScan if one_in(random, 8) => {
                // In pieces, so that writers get in between.
                let pieces = (window.start..window.end).step_by(4);
                pieces.map(|first| Step::Scan(first..(first + 4).min(window.end))).collect()
            }
            WorkloadKind::LongScan => vec![Step::Append(key()), Step::Append(key())],
            WorkloadKind::Repeated => {
                let first = key();
                let look = || Step::Scan(first..(first + 3).min(window.end));
                let mut steps = vec![look(), look()];
                for _ in 0..below(random, 3) {
                    steps.extend([Step::Append(key()), look()]);
                }
                steps
            }
        };
        Plan { steps, is_aborted: one_in(random, 20) }
    }
}

/// A number from 0 to just below the bound.
pub(crate) fn below(random: &dyn Random, bound: i64) -> i64 {
    let bound = u64::try_from(bound.max(1)).unwrap_or(1);
    i64::try_from(random.next_u64() % bound).unwrap_or(0)
}

/// True once in so many times.
pub(crate) fn one_in(random: &dyn Random, times: i64) -> bool {
    below(random, times) == 0
}
