use std::num::NonZeroU32;
use std::time::Duration;

use serde_json::{Value, json};

use super::{KEYS, KEYS_OF_FAULTS, Lines, SCHEMA, WrittenRule, parse, rules_of};
use crate::rules::{Condition, Probability, Rule};
use crate::{Direction, ErrorReply, Fault, Injection};

fn number(number: u32) -> NonZeroU32 {
    NonZeroU32::new(number).unwrap()
}

fn check(text: &str, injection: Injection, condition: Condition) {
    let rules = parse(&format!("# rules\n[[rule]]\n{text}")).unwrap();
    assert_eq!(rules.len(), 1);
    assert_eq!(rules[0], WrittenRule { line: 2, rule: Rule { injection, condition }, warning: None }, "{text}");
}

#[test]
fn a_rule_has_the_defaults_of_its_fault() {
    for fault in Fault::ALL {
        let injection = match fault {
            Fault::Duplicate => Injection::Duplicate { after: Some(Injection::DELAY) },
            fault => fault.into(),
        };
        check(&format!("fault = '{fault}'"), injection, Condition::default());
    }
}

#[test]
fn each_key_has_its_place() {
    let any = Condition::default;
    check("fault = 'delay'\ndelay = '500ms'", Injection::Delay(Duration::from_millis(500)), any());
    let after = Some(Duration::from_secs(2));
    check("fault = 'duplicate'\nafter = '2s'", Injection::Duplicate { after }, any());
    let error = ErrorReply { code: 112, name: None, message: "no".to_owned(), labels: vec!["A".to_owned()] };
    check("fault = 'error'\ncode = 0x70\nmessage = 'no'\nlabels = ['A']", Injection::Error(error), any());
    let (direction, bytes_per_second) = (Direction::Request, number(4096));
    let throttle = Injection::Throttle { direction, bytes_per_second };
    check("fault = 'throttle'\ndirection = 'request'\nbytes_per_second = 4_096", throttle, any());
    check("fault = 'reorder'\nwithin = '3s'", Injection::Reorder { within: Duration::from_secs(3) }, any());
    let unlabelled = ErrorReply { labels: Vec::new(), ..ErrorReply::default() };
    check("fault = 'error'\ncode = 10107\nlabels = []", Injection::Error(unlabelled), any());
    let condition = Condition {
        command: Some("update".to_owned()),
        collection: Some("bank.accounts".to_owned()),
        first: number(2),
        last: Some(number(9)),
        times: Some(number(3)),
        probability: Probability::new(0.25).unwrap(),
    };
    let text = "fault = 'cut'\ncommand = 'update'\ncollection = 'bank.accounts'\nfirst = 2\nlast = 9\ntimes = 3\nprobability = 0.25";
    check(text, Injection::Cut, condition);
    let third = Condition { first: number(3), last: Some(number(3)), ..any() };
    check("fault = 'cut'\nnth = 3\nprobability = 1", Injection::Cut, third);
}

#[test]
fn rules_keep_their_order_and_their_lines() {
    let rules = parse("\n[[rule]]\nfault = 'cut'\n\n[[rule]]\n\nfault = 'delay'\n").unwrap();
    let found: Vec<_> = rules.iter().map(|written| (written.line, written.rule.injection.fault())).collect();
    assert_eq!(found, [(2, Fault::Cut), (5, Fault::Delay)]);
}

/// The work for a rule does not grow with the lines before it.
#[test]
fn a_long_file_is_read() {
    let rule = |number: usize| format!("[[rule]]\nfault = 'cut'\ncollection = 'orders{number}'\nnth = 2\n\n");
    let text: String = (0..10_000).map(rule).collect();
    let lines = Lines::of(&text);
    let rules = rules_of(&text, &lines).unwrap();
    assert_eq!(rules.last().map(|written| written.line), Some(9_999 * 5 + 1));
    // Two to the power of 16 exceeds the 50,000 lines.
    let looked_at = lines.looked_at.get();
    assert!((10_000..=10_000 * 17).contains(&looked_at), "{looked_at}");
}

#[test]
fn a_rule_that_never_applies_is_refused() {
    let check = |text: &str, expected: &str| {
        let error = parse(text).unwrap_err().to_string();
        assert!(error.contains(expected) && !error.contains('\n'), "{text}\n{error}");
    };
    let command = |command: &str, expected: &str| {
        check(&format!("[[rule]]\nfault = 'cut'\ncommand = '{command}'"), &format!("line 3: {expected}"));
    };
    command("Update", "no driver sends a command 'Update': write \"update\", as it is on the wire");
    command("update_one", "no driver sends a command 'update_one': write \"update\"");
    command("findOneAndUpdate", "no driver sends a command 'findOneAndUpdate': write \"findAndModify\"");
    command("getmore", "no driver sends a command 'getmore': write \"getMore\"");
    command("bulk_write", "'bulk_write' is a method of drivers, and no command: that of a collection sends \"insert\"");
    command("startTransaction", "'startTransaction' is a method of drivers, and no command: the first operation");
    for of_none in ["bulkWrite", "commitTransaction", "ping"] {
        let expected = format!("line 4: the command '{of_none}' is not about a collection");
        check(&format!("[[rule]]\nfault = 'cut'\ncommand = '{of_none}'\ncollection = 'c'"), &expected);
    }
    check(
        "[[rule]]\nfault = 'cut'\ncommand = ''",
        "line 3: 'command' is a text in quotation marks, which is not empty",
    );
    command("find:3", "'find:3' is not the name of a command: write one such as \"find\"");
    command("updates", "no server knows a command 'updates': did you mean \"update\"?");
    for right in ["update", "findandmodify", "bulkWrite", "myOwnCommand", "_configsvrMoveChunk"] {
        assert!(parse(&format!("[[rule]]\nfault = 'cut'\ncommand = '{right}'")).is_ok(), "{right}");
    }
    for collection in [".x", "accounts.", "."] {
        let text = format!("[[rule]]\nfault = 'cut'\ncollection = '{collection}'");
        check(&text, &format!("line 3: there is no collection '{collection}': write one such as \"accounts\""));
    }
    check("[[rule]]\nfault = 'cut'\nprobability = 0", "line 3: with the probability 0 the rule never applies");
    check(
        "[[rule]]\nfault = 'cut'\nnth = 2\ntimes = 2",
        "line 4: 'times' is 2, and the rule is for 1 of the operations",
    );
    check("[[rule]]\nfault = 'cut'\nfirst = 2\nlast = 4\ntimes = 4", "line 5: 'times' is 4, and the rule is for 3 of");
    assert!(parse("[[rule]]\nfault = 'cut'\nfirst = 2\nlast = 4\ntimes = 3").is_ok());
    assert!(parse("[[rule]]\nfault = 'cut'\nfirst = 2\ntimes = 3").is_ok());
}

/// A server may have commands of its own.
#[test]
fn a_command_that_is_unknown_and_possible_is_a_warning() {
    let rules =
        parse("[[rule]]\nfault = 'cut'\ncommand = 'refreshViews'\n[[rule]]\nfault = 'cut'\ncommand = 'dbCheck'")
            .unwrap();
    let expected =
        "MongoDB has no command 'refreshViews': the rule applies if the server has one of its own with this name";
    assert_eq!(rules.iter().map(|rule| rule.warning.as_deref()).collect::<Vec<_>>(), [Some(expected), None]);
}

#[test]
fn a_rule_after_one_that_decides_about_the_same_operations_is_refused() {
    let check = |first: &str, second: &str, is_refused: bool| {
        let found = parse(&format!("[[rule]]\n{first}\n[[rule]]\n{second}"));
        assert_eq!(found.is_err(), is_refused, "{first}\n{second}\n{found:?}");
        if let Err(error) = found {
            let line = first.lines().count() + 2;
            let expected = format!(
                "line {line}: the rule never applies: the rule of line 1 decides about the same operations first; move this rule before it"
            );
            assert!(error.to_string().starts_with(&expected), "{error}");
        }
    };
    check("fault = 'cut'", "fault = 'lose-reply'", true);
    check("fault = 'cut'", "fault = 'lose-reply'\ncommand = 'find'\ncollection = 'a'\nnth = 2", true);
    check("fault = 'delay'\ncommand = 'find'", "fault = 'cut'\ncommand = 'find'\ncollection = 'a'", true);
    check("fault = 'delay'\ncollection = 'a'", "fault = 'duplicate'\ncommand = 'find'\ncollection = 'a'", true);
    let windows = [
        ("nth = 2", "nth = 2", true),
        ("first = 2\nlast = 5", "first = 3\nlast = 5", true),
        ("first = 3", "nth = 7", true),
    ];
    let others = [
        ("nth = 2", "nth = 3", false),
        ("first = 2\nlast = 5", "first = 2\nlast = 6", false),
        ("last = 5", "first = 1", false),
    ];
    for (first, second, is_refused) in windows.into_iter().chain(others) {
        let rule = |window: &str, of: &str| format!("fault = 'cut'\ncommand = 'update'\n{of}{window}");
        check(&rule(first, ""), &rule(second, ""), is_refused);
        // The operations of a collection have other numbers.
        check(&rule(first, ""), &rule(second, "collection = 'a'\n"), false);
        check(&rule(&format!("{first}\nprobability = 0.5"), ""), &rule(second, ""), false);
    }
    check("fault = 'cut'\nlast = 5\ntimes = 5", "fault = 'cut'\nnth = 5", true);
    check("fault = 'cut'\nlast = 5\ntimes = 4", "fault = 'cut'\nnth = 5", false);
    check("fault = 'cut'", "fault = 'delay'", false); // It delays what has no reply.
    check("fault = 'cut'\ncommand = 'find'", "fault = 'cut'", false);
    check("fault = 'cut'\ncommand = 'find'", "fault = 'cut'\ncommand = 'update'", false);
    for some in ["nth = 2", "first = 2", "last = 9", "times = 1", "probability = 0.5"] {
        check(&format!("fault = 'cut'\n{some}"), "fault = 'cut'", false);
    }
    check("fault = 'reorder'", "fault = 'delay'", false);
}

#[test]
fn a_mistake_is_named_with_its_line_and_what_to_write() {
    let check = |text: &str, expected: &str| {
        let error = parse(text).unwrap_err().to_string();
        assert!(error.contains(expected) && !error.contains('\n'), "{text}\n{error}");
    };
    check("", "line 1: there is no rule: begin each rule with [[rule]]");
    let advice =
        "write `key = value` with texts in quotation marks, each key once in a rule, and [[rule]] before each rule";
    let syntax = |text: &str, place: &str, line: &str| {
        check(text, &format!("{place}: the file is no TOML: "));
        check(text, &format!("; {line}; {advice}"));
    };
    syntax("\n[[rule\n", "line 2, column 7", "the line is: [[rule");
    syntax("[[rule]]\nfault = cut\n", "line 2, column 9", "the line is: fault = cut");
    syntax("[[rule]]\r\n  fault = 'ä' 'cut'\r\n", "line 2, column 15", "the line is: fault = 'ä' 'cut'");
    syntax("[[rule]]\nfault = \"cut\nnth = 1", "line 2, column 13", "the line is: fault = \"cut");
    syntax("[[rule]]\nfault = 'cut'\nfault = 'cut'", "line 3, column 1", "the line is: fault = 'cut'");
    syntax(&format!("x{}", "y".repeat(9_999)), "line 1, column 10001", &format!("the line is: x{}", "y".repeat(99)));
    check("[[rules]]\nfault = 'cut'", "line 1: unknown key 'rules': begin each rule with [[rule]]");
    check("rule = 1", "line 1: 'rule' is no list: begin each rule with [[rule]]");
    check("[rule]\nfault = 'cut'", "line 1: 'rule' is no list: begin each rule with [[rule]]");
    check("rule = [1]", "line 1: 'rule' is no list of tables: begin each rule with [[rule]]");
    check(
        "[[rule]]\n[[rule]]\nfault = 'cut'",
        "line 1: 'fault' is missing: write one of lose-request, lose-reply, cut",
    );
    check("[[rule]]\nfault = 'lose'", "line 2: 'lose' is not a fault: the faults are lose-request");
    check("[[rule]]\nfault = 1", "line 2: 'fault' is a text in quotation marks");
    check(
        "[[rule]]\nfault = 'cut'\ncollections = 'x'",
        "line 3: unknown key 'collections': the keys of a rule are fault, command, ",
    );
    check("[[rule]]\nfault = 'cut'\ndelay = '1s'", "line 3: 'delay' belongs to the fault delay, not to cut: remove it");
    check("[[rule]]\nfault = 'delay'\ndelay = 5", "line 3: 'delay' is a time in quotation marks, such as \"500ms\"");
    check("[[rule]]\nfault = 'error'\ncode = 'x'", "line 3: 'code' is the number of an error, such as 10107");
    check("[[rule]]\nfault = 'error'\nlabels = 'x'", "line 3: 'labels' is a list of texts");
    check("[[rule]]\nfault = 'error'\nlabels = [1]", "line 3: 'labels' is a list of texts");
    check(
        "[[rule]]\nfault = 'delay'\nwithin = '1s'",
        "line 3: 'within' belongs to the fault reorder, not to delay: remove it",
    );
    check(
        "[[rule]]\nfault = 'throttle'\ndirection = 'up'",
        "line 3: 'up' is not a direction: write \"request\" or \"reply\"",
    );
    check(
        "[[rule]]\nfault = 'throttle'\nbytes_per_second = 0",
        "line 3: 'bytes_per_second' is a whole number from 1 to",
    );
    check("[[rule]]\nfault = 'cut'\nnth = 0", "line 3: 'nth' is a whole number from 1 to");
    check("[[rule]]\nfault = 'cut'\ntimes = -1", "line 3: 'times' is a whole number from 1 to");
    check("[[rule]]\nfault = 'cut'\nfirst = 2\nnth = 2", "line 4: 'nth' and 'first' exclude each other");
    check("[[rule]]\nfault = 'cut'\nfirst = 3\nlast = 2", "line 4: 'last' is 2, which is before 'first', 3");
    check("[[rule]]\nfault = 'cut'\nprobability = 2", "line 3: 'probability' is a number between 0 and 1");
    check("[[rule]]\nfault = 'cut'\nprobability = nan", "line 3: 'probability' is a number between 0 and 1");
    check("[[rule]]\nfault = 'cut'\ncommand = 'hello'", "line 3: drivers send the command 'hello' by themselves");
}

/// The schema has the keys and the faults that are read, and each key of a fault is for this one alone.
#[test]
fn the_schema_has_what_is_read() {
    let schema: Value = serde_json::from_str(SCHEMA).unwrap();
    let rule = &schema["$defs"]["rule"];
    let keys: Vec<&str> = rule["properties"].as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(keys, KEYS);
    assert_eq!(rule["properties"]["fault"]["enum"], json!(Fault::ALL.map(Fault::name)));
    assert_eq!(rule["properties"]["direction"]["enum"], json!(Direction::ALL.map(Direction::name)));
    let owned = rule["dependentSchemas"].as_object().unwrap().iter();
    let owned = owned.filter_map(|(key, owner)| Some((key.as_str(), owner["properties"]["fault"]["const"].as_str()?)));
    assert_eq!(owned.collect::<Vec<_>>(), KEYS_OF_FAULTS.map(|(key, fault)| (key, fault.name())));
}
