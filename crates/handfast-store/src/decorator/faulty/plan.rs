//! The faults, and the plan that says which operation meets which one.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::decorator::Operation;
use crate::source::SeededRandom;
use crate::{Namespace, Random};

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
    Duplicate,
    /// The request is lost, and every later operation meets an outage until [`Faulty::restart`](super::Faulty::restart).
    CrashBefore,
    /// The request is applied, its reply is lost, and every later operation meets an outage until
    /// [`Faulty::restart`](super::Faulty::restart).
    CrashAfter,
}

impl Fault {
    /// The faults that every network has, and that every program has to expect.
    pub const DEFAULT: [Fault; 2] = [Fault::LoseRequest, Fault::LoseReply];
    /// The faults with all outcomes of a request, in which a test of crash points meets each operation: applied or not, once or twice, now or later, by a
    /// process that goes on or is dead. The other faults stop or delay a request, or refuse it in another way.
    pub const ALL_OUTCOMES: [Fault; 7] = [
        Fault::Refuse,
        Fault::LoseRequest,
        Fault::LoseReply,
        Fault::DeliverLate,
        Fault::Duplicate,
        Fault::CrashBefore,
        Fault::CrashAfter,
    ];
    /// The faults after which no request arrives late.
    pub const PROMPT_OUTCOMES: [Fault; 5] =
        [Fault::Refuse, Fault::LoseRequest, Fault::LoseReply, Fault::CrashBefore, Fault::CrashAfter];

    /// Returns the name that people write. The black pipe injects faults of the same names between a driver and a server, as far as a network has them.
    pub fn name(self) -> &'static str {
        match self {
            Fault::Refuse => "refuse",
            Fault::StepDown => "step-down",
            Fault::LoseRequest => "lose-request",
            Fault::LoseReply => "lose-reply",
            Fault::Delay(_) => "delay",
            Fault::FreezeBefore => "freeze-before",
            Fault::FreezeAfter => "freeze-after",
            Fault::DeliverLate => "deliver-late",
            Fault::Duplicate => "duplicate",
            Fault::CrashBefore => "crash-before",
            Fault::CrashAfter => "crash-after",
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The address of a request to a store: the first, second, .. of an operation, or of an operation on one collection.
#[derive(Clone, Debug)]
pub struct Address {
    operation: Operation,
    collection: Option<String>,
    /// The requests that are counted before it.
    pub(super) earlier: u64,
}

impl Address {
    /// Returns the address of the first request of an operation.
    pub fn first(operation: Operation) -> Self {
        Address { operation, collection: None, earlier: 0 }
    }

    /// Returns the address of the second request of an operation.
    pub fn second(operation: Operation) -> Self {
        Address::first(operation).after(1)
    }

    /// Returns the address of the third request of an operation.
    pub fn third(operation: Operation) -> Self {
        Address::first(operation).after(2)
    }

    /// Counts requests on this collection only, whatever its database is. The pages of a cursor are requests on its collection. No collection
    /// is known of aggregations and of operations on whole collections and databases.
    #[must_use]
    pub fn of(self, collection: &str) -> Self {
        Address { collection: Some(collection.to_owned()), ..self }
    }

    /// Returns the address of the request that comes `more` matching requests later.
    #[must_use]
    pub fn after(self, more: u64) -> Self {
        Address { earlier: self.earlier + more, ..self }
    }

    pub(super) fn counts(&self, operation: Operation, collection: Option<&Namespace>) -> bool {
        let is_of = |name: &String| collection.is_some_and(|collection| collection.collection() == name);
        operation == self.operation && self.collection.as_ref().is_none_or(is_of)
    }
}

/// A plan that says which operations meet a fault. The same plan gives the same faults to the same sequence of operations.
#[derive(Clone, Debug)]
pub struct Plan(Kind);

#[derive(Clone, Debug)]
enum Kind {
    Explicit(BTreeMap<u64, Fault>),
    Addressed(Vec<(Address, Fault)>),
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

    /// Creates a plan with one fault, at the request of this address.
    pub fn at_request(address: Address, fault: Fault) -> Self {
        Plan::at_requests([(address, fault)])
    }

    /// Creates a plan with a fault at the request of each address.
    pub fn at_requests(faults: impl IntoIterator<Item = (Address, Fault)>) -> Self {
        Plan(Kind::Addressed(faults.into_iter().collect()))
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

    /// Returns the addresses with their faults.
    pub(super) fn addresses(&self) -> impl Iterator<Item = &(Address, Fault)> {
        match &self.0 {
            Kind::Addressed(faults) => faults.iter(),
            Kind::Explicit(_) | Kind::Always(_) | Kind::Seeded { .. } => [].iter(),
        }
    }

    /// Returns the fault that the plan chooses by the number of an operation; `None` for a plan of addresses.
    pub(super) fn fault(&self, number: u64, operation: Operation) -> Option<Fault> {
        match &self.0 {
            Kind::Explicit(faults) => faults.get(&number).copied(),
            Kind::Addressed(_) => None,
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
