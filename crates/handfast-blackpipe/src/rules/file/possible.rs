//! Finds what would keep a rule from ever applying: a collection that cannot be, numbers that exclude each other, and an earlier rule that decides
//! about the same operations.

use super::WrittenRule;
use crate::Fault;
use crate::rules::{Condition, Probability};

/// Returns why there is no such collection.
pub(super) fn collection_mistake(collection: &str) -> Option<String> {
    let is_possible = !collection.starts_with('.') && !collection.ends_with('.') && !collection.contains('\0');
    let reason = || {
        format!(
            "there is no collection '{collection}': write one such as \"accounts\", or \"bank.accounts\" with its database"
        )
    };
    (!is_possible).then(reason)
}

/// Returns why a condition holds for fewer operations than it says, with the key to change.
pub(super) fn condition_mistake(condition: &Condition) -> Option<(&'static str, String)> {
    if condition.probability.get() == 0.0 {
        return Some(("probability", "with the probability 0 the rule never applies: remove the rule".to_owned()));
    }
    let window = condition.last.map(|last| last.get() - condition.first.get() + 1);
    match (condition.times, window) {
        (Some(times), Some(window)) if times.get() > window => {
            let reason = format!(
                "'times' is {times}, and the rule is for {window} of the operations alone: write fewer times, or more operations with 'first' and 'last'"
            );
            Some(("times", reason))
        }
        _ => None,
    }
}

/// The rules so far that decide about all operations of their window.
#[derive(Default)]
pub(super) struct Decisive(Vec<DecisiveRule>);

struct DecisiveRule {
    line: usize,
    condition: Condition,
    /// Operations without a reply are left to other rules.
    needs_reply: bool,
}

impl DecisiveRule {
    /// Returns whether it decides about all operations of a condition.
    fn covers(&self, condition: &Condition) -> bool {
        let Condition { command, collection, first, last, .. } = &self.condition;
        let is_of_all = |own: &Option<String>, other: &Option<String>| own.is_none() || own == other;
        if !is_of_all(command, &condition.command) || !is_of_all(collection, &condition.collection) {
            return false;
        }
        if (first.get(), last) == (1, &None) {
            return true;
        }
        // Operations are numbered for each command and collection, so that the windows of others cannot be compared.
        let is_numbered_alike = (command, collection) == (&condition.command, &condition.collection);
        let ends_later = last.is_none_or(|last| condition.last.is_some_and(|other| other <= last));
        is_numbered_alike && *first <= condition.first && ends_later
    }
}

impl Decisive {
    /// Adds a rule.
    ///
    /// # Errors
    /// Returns the reason why the rule never applies: one of the rules before decides about all its operations.
    pub(super) fn add(&mut self, WrittenRule { line, rule, .. }: &WrittenRule) -> Result<(), String> {
        let (condition, needs_reply) = (&rule.condition, rule.injection.needs_reply());
        let mut before = self.0.iter().filter(|earlier| needs_reply || !earlier.needs_reply);
        if let Some(DecisiveRule { line, .. }) = before.find(|earlier| earlier.covers(condition)) {
            return Err(format!(
                "the rule never applies: the rule of line {line} decides about the same operations first; move this rule before it"
            ));
        }
        let window = condition.last.map(|last| last.get() - condition.first.get() + 1);
        let has_times_for_all = condition.times.is_none_or(|times| window.is_some_and(|window| window <= times.get()));
        // One with reorder applies to no operation while it holds another one back.
        if rule.injection.fault() != Fault::Reorder
            && has_times_for_all
            && condition.probability == Probability::CERTAIN
        {
            self.0.push(DecisiveRule { line: *line, condition: condition.clone(), needs_reply });
        }
        Ok(())
    }
}
