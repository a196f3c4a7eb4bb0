//! The faults, and the plan that says which operation meets which one.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::Random;
use crate::decorator::Operation;
use crate::source::SeededRandom;

/// A fault that an operation meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The request meets an outage, as if no server could be reached: certainly not applied.
    Refuse,
    /// The server is not the primary any more: a network failure, certainly not applied.
    StepDown,
    /// The connection breaks before the request arrives: not applied, but the caller cannot know.
    LoseRequest,
    /// The connection breaks after the request was applied: the caller cannot know.
    LoseReply,
    /// The request arrives after this delay.
    Delay(Duration),
    /// The request waits for [`Faulty::release`](super::Faulty::release) or [`Faulty::release_one`](super::Faulty::release_one),
    /// which may name another fault to continue with.
    FreezeBefore,
    /// The request is applied; the answer waits for [`Faulty::release`](super::Faulty::release).
    FreezeAfter,
    /// The connection breaks; the request arrives at [`Faulty::deliver_late`](super::Faulty::deliver_late), possibly long after a
    /// recovery.
    DeliverLate,
    /// The request succeeds; a copy of it arrives at [`Faulty::deliver_late`](super::Faulty::deliver_late).
    RepeatLater,
    /// The request is lost, and every later operation meets an outage until [`Faulty::restart`](super::Faulty::restart).
    CrashBefore,
    /// The request is applied, its reply is lost, and every later operation meets an outage until
    /// [`Faulty::restart`](super::Faulty::restart).
    CrashAfter,
}

/// A plan that says which operations meet a fault. The same plan gives the same faults to the same sequence of operations.
#[derive(Clone, Debug)]
pub struct Plan(Kind);

#[derive(Clone, Debug)]
enum Kind {
    Explicit(BTreeMap<u64, Fault>),
    Always(Fault),
    Seeded { seed: u64, per_thousand: u16, faults: Vec<Fault>, hits: fn(Operation) -> bool },
}

impl Plan {
    /// Creates a plan without faults, to count operations.
    pub fn none() -> Self {
        Plan(Kind::Explicit(BTreeMap::new()))
    }

    /// Creates a plan with the same fault at every operation.
    pub fn always(fault: Fault) -> Self {
        Plan(Kind::Always(fault))
    }

    /// Creates a plan with one fault, at the operation of this number.
    pub fn at(number: u64, fault: Fault) -> Self {
        Plan::explicit([(number, fault)])
    }

    /// Creates a plan with a fault at the operation of each number.
    pub fn explicit(faults: impl IntoIterator<Item = (u64, Fault)>) -> Self {
        Plan(Kind::Explicit(faults.into_iter().collect()))
    }

    /// Creates a plan in which `per_thousand` of a thousand operations meet one of the faults. The seed and the number of an
    /// operation alone decide.
    pub fn seeded(seed: u64, per_thousand: u16, faults: impl IntoIterator<Item = Fault>) -> Self {
        let faults = faults.into_iter().collect();
        Plan(Kind::Seeded { seed, per_thousand, faults, hits: |_| true })
    }

    /// Restricts a seeded plan to writes; other plans stay as they are.
    #[must_use]
    pub fn writes_only(self) -> Self {
        self.only(Operation::is_write)
    }

    /// Restricts a seeded plan to the operations for which `hit` is true; other plans stay as they are.
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
