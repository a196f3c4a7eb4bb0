//! Which operation fails, and how.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::Random;
use crate::decorator::Operation;
use crate::source::SeededRandom;

/// What happens to an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// No server can be reached: an outage, and nothing was applied for certain.
    Refuse,
    /// The server says that it is not the primary any more: a failure of the network, and nothing was applied for certain.
    StepDown,
    /// The connection breaks before the store has the request: not applied, but the caller cannot know.
    LoseRequest,
    /// The connection breaks after the store has done it: applied, but the caller cannot know.
    LoseReply,
    /// The request is slow to arrive.
    Delay(Duration),
    /// Nothing happens until [`Faulty::release`](super::Faulty::release), or
    /// [`Faulty::release_one`](super::Faulty::release_one), which may name another fault to go on with.
    FreezeBefore,
    /// The store does it; the answer waits for [`Faulty::release`](super::Faulty::release).
    FreezeAfter,
    /// The caller sees a broken connection; the request arrives at
    /// [`Faulty::deliver_late`](super::Faulty::deliver_late), perhaps long after somebody has cleaned up.
    DeliverLate,
    /// All is well, but the network keeps a copy, which arrives at
    /// [`Faulty::deliver_late`](super::Faulty::deliver_late).
    RepeatLater,
    /// The request is lost, and every later operation meets an outage until
    /// [`Faulty::restart`](super::Faulty::restart).
    CrashBefore,
    /// The request is done, its reply lost, and every later operation meets an outage until
    /// [`Faulty::restart`](super::Faulty::restart).
    CrashAfter,
}

/// Which operations meet a fault. The same plan gives the same faults to the same sequence of operations.
#[derive(Clone, Debug)]
pub struct Plan(Kind);

#[derive(Clone, Debug)]
enum Kind {
    Explicit(BTreeMap<u64, Fault>),
    Always(Fault),
    Seeded { seed: u64, per_thousand: u16, faults: Vec<Fault>, hits: fn(Operation) -> bool },
}

impl Plan {
    /// No faults: operations are only counted.
    pub fn none() -> Self {
        Plan(Kind::Explicit(BTreeMap::new()))
    }

    /// The same fault at every operation.
    pub fn always(fault: Fault) -> Self {
        Plan(Kind::Always(fault))
    }

    /// One fault, at the operation of this number.
    pub fn at(number: u64, fault: Fault) -> Self {
        Plan::explicit([(number, fault)])
    }

    /// A fault for each of these numbers.
    pub fn explicit(faults: impl IntoIterator<Item = (u64, Fault)>) -> Self {
        Plan(Kind::Explicit(faults.into_iter().collect()))
    }

    /// So many of a thousand operations meet one of the faults; which ones, and which fault, follows from the seed and
    /// the operation's number alone.
    pub fn seeded(seed: u64, per_thousand: u16, faults: impl IntoIterator<Item = Fault>) -> Self {
        let faults = faults.into_iter().collect();
        Plan(Kind::Seeded { seed, per_thousand, faults, hits: |_| true })
    }

    /// Spares the operations that change nothing. (An explicit plan is left as it is.)
    #[must_use]
    pub fn writes_only(self) -> Self {
        self.only(Operation::is_write)
    }

    /// Spares the operations of which this is not true. (An explicit plan is left as it is.)
    #[must_use]
    pub fn only(mut self, hit: fn(Operation) -> bool) -> Self {
        if let Kind::Seeded { hits, .. } = &mut self.0 {
            *hits = hit;
        }
        self
    }

    pub(super) fn fault(&self, number: u64, operation: Operation) -> Option<Fault> {
        match &self.0 {
            Kind::Explicit(faults) => faults.get(&number).copied(),
            Kind::Always(fault) => Some(*fault),
            Kind::Seeded { hits, .. } if !hits(operation) => None,
            Kind::Seeded { seed, per_thousand, faults, .. } => {
                let random = SeededRandom::new(seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
                let hit = random.next_u64() % 1000 < u64::from(*per_thousand);
                let choice = random.next_u64().checked_rem(faults.len() as u64)?;
                if hit { faults.get(usize::try_from(choice).ok()?).copied() } else { None }
            }
        }
    }
}
