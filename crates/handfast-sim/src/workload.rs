//! Plans transactions that are likely to conflict.
//!
//! The transactions of a workload use a few keys at a time, so that they conflict. The keys change over time, because
//! otherwise lists would grow without bound. The keys in use are a window that moves by one key after a number of writes:
//!
//! ```text
//! keys     0 1 2 3 4 5 6 7 8 ..
//! window       [     ]             `keys` wide; moves by one key every `writes_per_key` writes
//! ```

use std::ops::Range;

use handfast_history::Model;
use handfast_store::Random;

/// The initial balance of each account.
pub const ACCOUNT_MONEY: i64 = 100;

/// The kind of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkloadKind {
    /// Reads of lists mixed with appends.
    ListAppend,
    /// Reads and writes of registers; most writes follow a read, some are blind.
    Register,
    /// Transfers between accounts and reads of all accounts; the total does not change.
    Bank,
    /// Reads of a few keys followed by a write to one of them, which provoke write skew.
    WriteSkew,
    /// A few long scans of all keys, concurrent with many short writers.
    LongScan,
    /// Repeated reads of the same keys in one transaction, before and after its own appends.
    Repeated,
}

/// A kind of workload with its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Workload {
    /// Its kind.
    pub kind: WorkloadKind,
    /// The number of keys in use at a time; in a bank workload, of accounts.
    pub keys: i64,
    /// The number of writes after which the window moves by one key.
    pub writes_per_key: i64,
}

/// A planned transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Its steps in order.
    pub steps: Vec<Step>,
    /// Whether the client rolls it back at the end; its writes must never be visible.
    pub is_aborted: bool,
}

/// A step of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Reads a key.
    Read(i64),
    /// Reads all keys of a range.
    Scan(Range<i64>),
    /// Appends a unique value to a list.
    Append(i64),
    /// Writes a unique value to a register.
    Write(i64),
    /// Opens an account: writes a unique value and this balance to a register.
    Open(i64, i64),
    /// Transfers a random amount between accounts, as far as the balance allows.
    Transfer {
        /// The account that pays.
        from: i64,
        /// The account that is paid.
        to: i64,
        /// The largest amount.
        amount_max: i64,
    },
}

impl Workload {
    /// Creates a workload of a size that makes many conflicts.
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

    /// Returns the type of the values that its keys hold.
    pub fn model(&self) -> Model {
        match self.kind {
            WorkloadKind::ListAppend | WorkloadKind::WriteSkew | WorkloadKind::LongScan | WorkloadKind::Repeated => {
                Model::ListAppend
            }
            WorkloadKind::Register | WorkloadKind::Bank => Model::RwRegister,
        }
    }

    /// Returns the transaction that has to run before all others, if the workload needs one.
    pub fn setup(&self) -> Option<Plan> {
        let open = || (0..self.keys).map(|account| Step::Open(account, ACCOUNT_MONEY)).collect();
        (self.kind == WorkloadKind::Bank).then(|| Plan { steps: open(), is_aborted: false })
    }

    /// Returns the keys in use after a number of writes.
    pub fn window(&self, written: i64) -> Range<i64> {
        let first = if self.kind == WorkloadKind::Bank { 0 } else { written / self.writes_per_key };
        first..first.saturating_add(self.keys)
    }

    /// Plans a transaction after a number of writes.
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
                // A group of four keys, some of which do not exist yet, so that an insertion conflicts with a scan.
                let first = key() / 4 * 4;
                let written = Step::Append(first + below(random, 4));
                let reads = if one_in(random, 2) {
                    vec![Step::Scan(first..first + 4)]
                } else {
                    (first..first + 4).map(Step::Read).collect()
                };
                // Some transactions only read: a reader that sees one of two writes may contradict every order of the writers.
                let written = Some(written).filter(|_| !one_in(random, 4));
                reads.into_iter().chain(written).collect()
            }
            WorkloadKind::LongScan if one_in(random, 8) => {
                // The scan has several steps, so that writers run in between.
                let pieces = (window.start..window.end).step_by(4);
                pieces.map(|first| Step::Scan(first..(first + 4).min(window.end))).collect()
            }
            WorkloadKind::LongScan => vec![Step::Append(key()), Step::Append(key())],
            WorkloadKind::Repeated => {
                let first = key();
                let scan = || Step::Scan(first..(first + 3).min(window.end));
                let mut steps = vec![scan(), scan()];
                for _ in 0..below(random, 3) {
                    steps.extend([Step::Append(key()), scan()]);
                }
                steps
            }
        };
        Plan { steps, is_aborted: one_in(random, 20) }
    }
}

/// Returns a random number from 0 to below the bound.
pub(crate) fn below(random: &dyn Random, bound: i64) -> i64 {
    let bound = u64::try_from(bound.max(1)).unwrap_or(1);
    i64::try_from(random.next_u64() % bound).unwrap_or(0)
}

/// Returns true with a probability of one in `times`.
pub(crate) fn one_in(random: &dyn Random, times: i64) -> bool {
    below(random, times) == 0
}
