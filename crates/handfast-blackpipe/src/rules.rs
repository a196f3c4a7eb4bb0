//! The decision about each operation of the application, and the list of the operations so far.
//!
//! ```text
//! rule lose-reply: command update, first 2, last 2
//!
//! update   update:1   forward
//! find     find:1     forward
//! update   update:2   lose the reply
//! update   update:3   forward          the driver's own retry is the next operation
//! ```
//!
//! With last 3 the rule would hit `update:3`, too, so that the driver gives up and the application sees an error.
//!
//! Each rule counts the operations that match its command and collection, whichever rule decides about them. A decision by chance depends on
//! the seed, the rule and this count alone: the same operations in the same order meet the same faults.

mod condition;
pub mod file;

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use crate::fault::{Fault, Injection};
use crate::operation::{Operation, OperationNumber, Pair};

pub use condition::{Condition, Probability};
pub use file::{SCHEMA, WrittenRule, parse};

/// The number of operations that are remembered; later ones are numbered and meet their faults, and are not in the list. A program under test
/// sends far fewer.
pub const OPERATIONS_MAX: usize = 100_000;

/// The number of different commands that are numbered; operations of others are forwarded. MongoDB has about 150.
const COMMANDS_MAX: usize = 1_000;

/// A fault, and the operations that meet it.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// The fault.
    pub injection: Injection,
    /// The operations.
    pub condition: Condition,
}

impl Rule {
    /// Creates a rule for one operation.
    pub fn once(pair: Pair) -> Self {
        Rule { injection: pair.fault.into(), condition: Condition::of_operations(pair.operation, NonZeroU32::MIN) }
    }
}

/// The decision about an operation: the proxy forwards it, or injects a fault.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// It forwards the request, and the reply.
    Forward,
    /// It injects the fault.
    Inject(Injection),
}

/// An operation that arrived at the proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedOperation {
    /// The operation.
    pub operation: OperationNumber,
    /// Its collection with its database, if it names one: `bank.accounts`.
    pub collection: Option<String>,
    /// Whether the client waits for a reply. It does not for an unacknowledged write.
    pub has_reply: bool,
    /// The fault that it met.
    pub fault: Option<Fault>,
    /// The number of the rule that decided so, which begins with 1.
    pub rule: Option<usize>,
}

impl ObservedOperation {
    /// Returns the operation with each of these faults that it can meet.
    pub fn pairs(&self, faults: &[Fault]) -> impl Iterator<Item = Pair> {
        let possible = faults.iter().copied().filter(|fault| self.has_reply || !Injection::from(*fault).needs_reply());
        possible.map(|fault| Pair { operation: self.operation.clone(), fault })
    }
}

/// A rule with the operations that it has seen.
#[derive(Debug)]
struct CountingRule {
    rule: Rule,
    /// The number of operations that match its command and collection.
    matches: u32,
    /// The number of these that met the fault.
    injected: u32,
    hold: Hold,
}

/// The request that a rule with the fault `reorder` holds back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hold {
    Nothing,
    /// The next matching request overtakes it.
    Next,
    /// A request overtakes it, and has not been answered yet.
    Overtaken,
}

/// The decision of the rules about an operation.
pub(crate) struct Observation {
    pub(crate) decision: Decision,
    /// The operation with its number; `None` if there are too many commands to number it.
    pub(crate) operation: Option<ObservedOperation>,
    /// The rules whose request it overtakes, by their numbers.
    pub(crate) overtakes: Vec<usize>,
}

/// Rules, and what they have seen.
#[derive(Debug, Default)]
pub struct Rules {
    rules: Vec<CountingRule>,
    seed: u64,
    counts: BTreeMap<String, NonZeroU32>,
    operations: Vec<ObservedOperation>,
    /// The number of all operations, those that are not remembered included.
    operation_count: u64,
    /// The number of these that met a fault.
    fault_count: u64,
}

impl Rules {
    /// Creates rules that have seen no operation. The first rule that applies decides.
    pub fn new(rules: Vec<Rule>) -> Self {
        let rules =
            rules.into_iter().map(|rule| CountingRule { rule, matches: 0, injected: 0, hold: Hold::Nothing }).collect();
        Rules { rules, ..Rules::default() }
    }

    /// Returns the rules with the seed of their decisions by chance.
    #[must_use]
    pub fn with_seed(self, seed: u64) -> Self {
        Rules { seed, ..self }
    }

    /// Numbers the next operation, and decides about it.
    pub fn decide(&mut self, operation: &Operation<'_>) -> Decision {
        self.observe(operation).decision
    }

    /// Numbers the next operation, and decides about it.
    pub(crate) fn observe(&mut self, operation: &Operation<'_>) -> Observation {
        let Some(number) = self.count(operation.command) else {
            return Observation { decision: Decision::Forward, operation: None, overtakes: Vec::new() };
        };
        let overtakes = self.overtake(operation);
        let applying = self.apply(operation);
        let observed = ObservedOperation {
            operation: OperationNumber { command: operation.command.to_owned(), number },
            collection: operation.collection.map(str::to_owned),
            has_reply: operation.has_reply,
            fault: applying.as_ref().map(|(_, injection)| injection.fault()),
            rule: applying.as_ref().map(|(index, _)| index + 1),
        };
        self.operation_count += 1;
        self.fault_count += u64::from(applying.is_some());
        if self.operations.len() < OPERATIONS_MAX {
            self.operations.push(observed.clone());
        }
        let decision = applying.map_or(Decision::Forward, |(_, injection)| Decision::Inject(injection));
        Observation { decision, operation: Some(observed), overtakes }
    }

    /// Notes that a rule holds its request back no longer.
    pub(crate) fn end_hold(&mut self, rule: usize) {
        if let Some(rule) = self.rules.get_mut(rule - 1) {
            rule.hold = Hold::Nothing;
        }
    }

    /// Returns the rules whose request the operation overtakes, by their numbers. Requests are held back until it is answered.
    fn overtake(&mut self, operation: &Operation<'_>) -> Vec<usize> {
        let mut overtakes = Vec::new();
        for (index, CountingRule { rule, hold, .. }) in self.rules.iter_mut().enumerate() {
            if *hold == Hold::Next && operation.has_reply && rule.condition.matches(operation) {
                *hold = Hold::Overtaken;
                overtakes.push(index + 1);
            }
        }
        overtakes
    }

    /// Counts the operation in each rule that it matches. Returns the first rule that applies, by its index.
    fn apply(&mut self, operation: &Operation<'_>) -> Option<(usize, Injection)> {
        let mut applying = None;
        for (index, CountingRule { rule, matches, injected, hold }) in self.rules.iter_mut().enumerate() {
            let Rule { injection, condition } = rule;
            if !condition.matches(operation) {
                continue;
            }
            *matches = matches.saturating_add(1);
            let is_possible = *hold == Hold::Nothing && (operation.has_reply || !injection.needs_reply());
            if applying.is_none() && is_possible && condition.holds(self.seed, index, *matches, *injected) {
                *injected = injected.saturating_add(1);
                if injection.fault() == Fault::Reorder {
                    *hold = Hold::Next;
                }
                applying = Some((index, injection.clone()));
            }
        }
        applying
    }

    /// Returns the operations so far, the first [`OPERATIONS_MAX`] of them.
    pub fn operations(&self) -> &[ObservedOperation] {
        &self.operations
    }

    /// Returns the number of all operations so far.
    pub fn operation_count(&self) -> u64 {
        self.operation_count
    }

    /// Returns the number of operations that met a fault.
    pub fn fault_count(&self) -> u64 {
        self.fault_count
    }

    fn count(&mut self, command: &str) -> Option<NonZeroU32> {
        if let Some(count) = self.counts.get_mut(command) {
            *count = count.saturating_add(1);
            return Some(*count);
        }
        if self.counts.len() == COMMANDS_MAX {
            return None;
        }
        self.counts.insert(command.to_owned(), NonZeroU32::MIN);
        Some(NonZeroU32::MIN)
    }
}

#[cfg(test)]
mod tests;
