//! The decision about each operation of the application, and the list of the operations so far.
//!
//! ```text
//! rule update:2/lose-reply, once
//!
//! update   update:1   forward
//! find     find:1     forward
//! update   update:2   lose the reply
//! update   update:3   forward          the driver's own retry is the next operation
//! ```
//!
//! With `times` 2 the rule would hit `update:3`, too, so that the driver gives up and the application sees an error.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use crate::operation::{Fault, OperationNumber, Pair};

/// The number of operations that are remembered; later ones are numbered and meet their faults, and are not in the list. A program under test
/// sends far fewer.
pub const OPERATIONS_MAX: usize = 100_000;

/// The number of different commands that are numbered; operations of others are forwarded. MongoDB has about 150.
const COMMANDS_MAX: usize = 1_000;

/// A fault for one operation, or for several of the same command in a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The first operation, and the fault.
    pub pair: Pair,
    /// The number of operations that meet the fault.
    pub times: NonZeroU32,
}

impl Rule {
    /// Creates a rule for one operation.
    pub fn once(pair: Pair) -> Self {
        Rule { pair, times: NonZeroU32::MIN }
    }

    fn applies_to(&self, operation: &OperationNumber, has_reply: bool) -> bool {
        let first = self.pair.operation.number.get();
        let beyond = first.saturating_add(self.times.get());
        self.pair.operation.command == operation.command
            && (first..beyond).contains(&operation.number.get())
            && (has_reply || self.pair.fault != Fault::LoseReply)
    }
}

/// The decision about an operation: the proxy forwards it, or injects a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It forwards the request, and the reply.
    Forward,
    /// It injects the fault.
    Inject(Fault),
}

/// An operation that arrived at the proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedOperation {
    /// The operation.
    pub operation: OperationNumber,
    /// Whether the client waits for a reply. It does not for an unacknowledged write.
    pub has_reply: bool,
    /// The fault that it met.
    pub fault: Option<Fault>,
}

impl ObservedOperation {
    /// Returns the operation with each fault that it can meet.
    pub fn pairs(&self) -> impl Iterator<Item = Pair> {
        let possible = Fault::ALL.into_iter().filter(|fault| self.has_reply || *fault != Fault::LoseReply);
        possible.map(|fault| Pair { operation: self.operation.clone(), fault })
    }
}

/// Rules, and what they have seen.
#[derive(Debug, Default)]
pub struct Rules {
    rules: Vec<Rule>,
    counts: BTreeMap<String, NonZeroU32>,
    operations: Vec<ObservedOperation>,
}

impl Rules {
    /// Creates rules that have seen no operation. The first rule that applies decides.
    pub fn new(rules: Vec<Rule>) -> Self {
        Rules { rules, ..Rules::default() }
    }

    /// Numbers the next operation, and decides about it.
    pub fn decide(&mut self, command: &str, has_reply: bool) -> Decision {
        let Some(number) = self.count(command) else { return Decision::Forward };
        let operation = OperationNumber { command: command.to_owned(), number };
        let rule = self.rules.iter().find(|rule| rule.applies_to(&operation, has_reply));
        let fault = rule.map(|rule| rule.pair.fault);
        if self.operations.len() < OPERATIONS_MAX {
            self.operations.push(ObservedOperation { operation, has_reply, fault });
        }
        fault.map_or(Decision::Forward, Decision::Inject)
    }

    /// Returns the operations so far, the first [`OPERATIONS_MAX`] of them.
    pub fn operations(&self) -> &[ObservedOperation] {
        &self.operations
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
