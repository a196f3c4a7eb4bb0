use std::num::NonZeroU32;

use super::{COMMANDS_MAX, Decision, OPERATIONS_MAX, Rule, Rules};
use crate::Fault;

/// Decides about the commands in turn, and writes each as `update:1`, with its fault if it meets one.
fn check(rules: &[(&str, u32)], commands: &[&str], expected: &[&str]) {
    let rules =
        rules.iter().map(|(pair, times)| Rule { pair: pair.parse().unwrap(), times: NonZeroU32::new(*times).unwrap() });
    let mut rules = Rules::new(rules.collect());
    for (command, expected) in commands.iter().zip(expected) {
        let decision = rules.decide(command, true);
        assert_eq!(decision != Decision::Forward, expected.contains('/'), "{command}: {expected}");
    }
    let written = rules.operations().iter().map(|observed| match observed.fault {
        Some(fault) => format!("{}/{fault}", observed.operation),
        None => observed.operation.to_string(),
    });
    assert_eq!(written.collect::<Vec<_>>(), expected);
}

#[test]
fn operations_are_numbered_by_their_commands() {
    check(&[], &["insert", "find", "insert", "find"], &["insert:1", "find:1", "insert:2", "find:2"]);
}

#[test]
fn a_fault_is_injected_once() {
    let expected = ["update:1", "update:2/lose-reply", "update:3"];
    check(&[("update:2/lose-reply", 1)], &["update"; 3], &expected);
}

#[test]
fn a_fault_is_injected_several_times_in_a_row() {
    let expected = ["update:1", "update:2/lose-request", "find:1", "update:3/lose-request", "update:4"];
    check(&[("update:2/lose-request", 2)], &["update", "update", "find", "update", "update"], &expected);
}

#[test]
fn the_first_rule_that_applies_decides() {
    let rules = [("find:1/lose-reply", 1), ("find:1/lose-request", 2)];
    check(&rules, &["find", "find"], &["find:1/lose-reply", "find:2/lose-request"]);
}

#[test]
fn an_unacknowledged_write_has_no_reply_to_lose() {
    let mut rules = Rules::new(vec![Rule::once("insert:1/lose-reply".parse().unwrap())]);
    assert_eq!(rules.decide("insert", false), Decision::Forward);
    let pairs: Vec<_> = rules.operations()[0].pairs().map(|pair| pair.to_string()).collect();
    assert_eq!(pairs, ["insert:1/lose-request"]);
}

#[test]
fn an_acknowledged_operation_is_paired_with_every_fault() {
    let mut rules = Rules::default();
    rules.decide("find", true);
    let pairs: Vec<_> = rules.operations()[0].pairs().map(|pair| pair.to_string()).collect();
    assert_eq!(pairs, ["find:1/lose-request", "find:1/lose-reply"]);
}

#[test]
fn memory_is_bounded() {
    let last = format!("find:{}/lose-request", OPERATIONS_MAX + 1);
    let mut rules = Rules::new(vec![Rule::once(last.parse().unwrap())]);
    for _ in 0..OPERATIONS_MAX {
        assert_eq!(rules.decide("find", true), Decision::Forward);
    }
    assert_eq!(rules.decide("find", true), Decision::Inject(Fault::LoseRequest));
    assert_eq!(rules.operations().len(), OPERATIONS_MAX);
    for number in 0..COMMANDS_MAX + 10 {
        rules.decide(&format!("command{number}"), true);
    }
    assert_eq!(rules.counts.len(), COMMANDS_MAX);
}
