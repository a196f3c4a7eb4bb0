use std::num::NonZeroU32;

use super::{COMMANDS_MAX, Condition, Decision, OPERATIONS_MAX, Probability, Rule, Rules};
use crate::{Direction, Fault, Injection, Operation};

fn number(number: u32) -> NonZeroU32 {
    NonZeroU32::new(number).unwrap()
}

/// Returns a rule for an operation, and the next ones of its command.
fn rule(pair: &str, times: u32) -> Rule {
    let Rule { injection, condition } = Rule::once(pair.parse().unwrap());
    let last = condition.first.saturating_add(times - 1);
    Rule { injection, condition: Condition { last: Some(last), ..condition } }
}

/// Returns a rule that loses the replies to all requests that fulfil the condition.
fn losing(condition: Condition) -> Rule {
    Rule { injection: Injection::LoseReply, condition }
}

/// Applies rules to operations in turn, each a command and its collection, and compares the results, written as `update:1`, with its fault
/// if it meets one.
fn check(rules: Vec<Rule>, operations: &[&str], expected: &[&str]) {
    let mut rules = Rules::new(rules);
    for (operation, expected) in operations.iter().zip(expected) {
        let (command, collection) = operation.split_once(' ').unzip();
        let operation = Operation { collection, ..Operation::of(command.unwrap_or(operation)) };
        let decision = rules.decide(&operation);
        assert_eq!(decision != Decision::Forward, expected.contains('/'), "{operation:?}: {expected}");
    }
    let written = rules.operations().iter().map(|observed| match observed.fault {
        Some(fault) => format!("{}/{fault}", observed.operation),
        None => observed.operation.to_string(),
    });
    assert_eq!(written.collect::<Vec<_>>(), expected);
}

#[test]
fn operations_are_numbered_by_their_commands() {
    check(vec![], &["insert", "find", "insert", "find"], &["insert:1", "find:1", "insert:2", "find:2"]);
}

#[test]
fn a_fault_is_injected_once() {
    let expected = ["update:1", "update:2/lose-reply", "update:3"];
    check(vec![rule("update:2/lose-reply", 1)], &["update"; 3], &expected);
}

#[test]
fn a_fault_is_injected_several_times_in_a_row() {
    let expected = ["update:1", "update:2/lose-request", "find:1", "update:3/lose-request", "update:4"];
    check(vec![rule("update:2/lose-request", 2)], &["update", "update", "find", "update", "update"], &expected);
}

#[test]
fn the_first_rule_that_applies_decides() {
    let rules = vec![rule("find:1/lose-reply", 1), rule("find:1/lose-request", 2)];
    check(rules, &["find", "find"], &["find:1/lose-reply", "find:2/lose-request"]);
}

#[test]
fn a_rule_without_conditions_hits_every_operation() {
    let expected = ["find:1/lose-reply", "ping:1/lose-reply", "find:2/lose-reply"];
    check(vec![losing(Condition::default())], &["find", "ping", "find"], &expected);
}

#[test]
fn a_rule_counts_the_operations_on_its_collection() {
    let second = Condition { collection: Some("orders".to_owned()), first: number(2), ..Condition::default() };
    let operations = ["find shop.orders", "find shop.items", "update shop.orders", "ping", "find shop.orders"];
    let expected = ["find:1", "find:2", "update:1/lose-reply", "ping:1", "find:3/lose-reply"];
    check(vec![losing(second.clone())], &operations, &expected);
    let updates = Condition { command: Some("update".to_owned()), first: number(1), ..second };
    check(vec![losing(updates)], &operations, &["find:1", "find:2", "update:1/lose-reply", "ping:1", "find:3"]);
}

#[test]
fn a_rule_ends_after_its_window_and_after_its_times() {
    let window = Condition { first: number(2), last: Some(number(3)), ..Condition::default() };
    check(vec![losing(window)], &["find"; 4], &["find:1", "find:2/lose-reply", "find:3/lose-reply", "find:4"]);
    let once = Condition { times: Some(number(1)), ..Condition::default() };
    check(vec![losing(once)], &["find"; 2], &["find:1/lose-reply", "find:2"]);
}

#[test]
fn a_rule_counts_what_another_one_decides() {
    let first = losing(Condition { times: Some(number(1)), ..Condition::default() });
    let second = Rule { injection: Injection::Cut, condition: Condition { first: number(2), ..Condition::default() } };
    check(vec![first, second], &["find"; 2], &["find:1/lose-reply", "find:2/cut"]);
}

/// Returns which of a thousand operations met a fault.
fn drawn(rules: Vec<Rule>, seed: u64) -> Vec<Option<usize>> {
    let mut rules = Rules::new(rules).with_seed(seed);
    (0..1000).for_each(|_| drop(rules.decide(&Operation::of("find"))));
    rules.operations().iter().map(|observed| observed.rule).collect()
}

#[test]
fn a_seed_repeats_the_decisions() {
    let half = || losing(Condition { probability: Probability::new(0.5).unwrap(), ..Condition::default() });
    assert_eq!(drawn(vec![half()], 7), drawn(vec![half()], 7));
    assert_ne!(drawn(vec![half()], 7), drawn(vec![half()], 8));
    let twice = drawn(vec![half(), half()], 7);
    let without_second: Vec<_> = twice.iter().map(|rule| rule.filter(|rule| *rule == 1)).collect();
    assert_eq!(without_second, drawn(vec![half()], 7), "the second rule does not change the first one");
    assert!(twice.contains(&Some(2)) && twice.contains(&None));
}

#[test]
fn an_unacknowledged_write_does_not_meet_the_faults_of_replies() {
    for fault in Fault::ALL {
        let mut rules = Rules::new(vec![Rule { injection: fault.into(), condition: Condition::default() }]);
        let decision = rules.decide(&Operation { has_reply: false, ..Operation::of("insert") });
        assert_eq!(decision == Decision::Forward, Injection::from(fault).needs_reply());
        let pairs: Vec<_> = rules.operations()[0].pairs(&Fault::ALL).map(|pair| pair.to_string()).collect();
        assert_eq!(pairs, ["insert:1/lose-request", "insert:1/delay", "insert:1/duplicate", "insert:1/reorder"]);
    }
}

#[test]
fn an_acknowledged_operation_is_paired_with_each_fault() {
    let mut rules = Rules::default();
    rules.decide(&Operation::of("find"));
    let pairs: Vec<_> = rules.operations()[0].pairs(&Fault::DEFAULT).map(|pair| pair.to_string()).collect();
    assert_eq!(pairs, ["find:1/lose-request", "find:1/lose-reply"]);
}

#[test]
fn a_slow_request_needs_no_reply() {
    let injection = |direction| Injection::Throttle { direction, bytes_per_second: number(1) };
    assert!(injection(Direction::Reply).needs_reply() && !injection(Direction::Request).needs_reply());
}

/// While a request is delayed, the rule delays no other one; the first that matches and has a reply overtakes it.
#[test]
fn a_request_is_overtaken_by_the_next_one() {
    let updates = Condition { command: Some("update".to_owned()), ..Condition::default() };
    let reorder = Rule { injection: Fault::Reorder.into(), condition: updates };
    let mut rules = Rules::new(vec![losing(Condition { last: Some(number(1)), ..Condition::default() }), reorder]);
    let mut observe = |command: &str, has_reply: bool| {
        let observation = rules.observe(&Operation { has_reply, ..Operation::of(command) });
        (observation.operation.unwrap().fault == Some(Fault::Reorder), observation.overtakes)
    };
    assert_eq!(observe("find", true), (false, vec![]), "another rule applies");
    assert_eq!(observe("update", true), (true, vec![]));
    assert_eq!(observe("find", true), (false, vec![]), "another command");
    assert_eq!(observe("update", false), (false, vec![]), "without a reply");
    assert_eq!(observe("update", true), (false, vec![2]));
    assert_eq!(observe("update", true), (false, vec![]), "already overtaken");
    rules.end_hold(2);
    let observation = rules.observe(&Operation::of("update"));
    assert_eq!(observation.operation.unwrap().fault, Some(Fault::Reorder));
}

#[test]
fn memory_is_bounded() {
    let last = format!("find:{}/lose-request", OPERATIONS_MAX + 1);
    let mut rules = Rules::new(vec![Rule::once(last.parse().unwrap())]);
    for _ in 0..OPERATIONS_MAX {
        assert_eq!(rules.decide(&Operation::of("find")), Decision::Forward);
    }
    assert_eq!(rules.decide(&Operation::of("find")), Decision::Inject(Injection::LoseRequest));
    assert_eq!(rules.operations().len(), OPERATIONS_MAX);
    for number in 0..COMMANDS_MAX + 10 {
        rules.decide(&Operation::of(&format!("command{number}")));
    }
    assert_eq!(rules.counts.len(), COMMANDS_MAX);
}
