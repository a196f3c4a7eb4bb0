//! Histories written by hand: one for each anomaly, and clean ones.
//!
//! A line is a transaction: its outcome and its operations. Lines of one group overlap in time; a group begins after the
//! previous one has ended (`--`). `p1 ok ..` names the process; otherwise each line has a process of its own.

use crate::event::{Bank, Event, EventKind, Expectation, Header, Isolation, MicroOp, Model, Name, Order, ReadValue};
use crate::{Judges, Verdict};

struct Case {
    name: &'static str,
    isolation: Isolation,
    order: Order,
    history: &'static str,
    /// The kinds of all anomalies that have to be found.
    kinds: &'static [&'static str],
}

const fn case(name: &'static str, kinds: &'static [&'static str], history: &'static str) -> Case {
    Case { name, isolation: Isolation::Snapshot, order: Order::RealTime, history, kinds }
}

const fn serializable(name: &'static str, kinds: &'static [&'static str], history: &'static str) -> Case {
    Case { isolation: Isolation::Serializable, ..case(name, kinds, history) }
}

const fn ordered(order: Order, name: &'static str, kinds: &'static [&'static str], history: &'static str) -> Case {
    Case { order, ..case(name, kinds, history) }
}

const CASES: &[Case] = &[
    case("one after the other", &[], "ok r x []; a x 1 -- ok r x [1]; a x 2 -- ok r x [1 2]"),
    case("own writes are seen", &[], "ok a x 1; r x [1]; a x 2; r x [1 2] -- ok r x [1 2]"),
    case("an aborted append is never seen", &[], "ok a x 1\nfail r x []; a x 2 -- ok r x [1]"),
    case("an append that was given up is never seen", &[], "ok a x 1\ngive-up r x []; a x 2 -- ok r x [1]"),
    case("an unknown append that is seen has committed", &[], "info a x 1 -- ok r x [1] -- ok r x [1]"),
    case("an unknown append that is not seen has not", &[], "info a x 1 -- ok r x []"),
    case(
        "a snapshot may be older than a concurrent commit",
        &[],
        "ok r x []; r y []\nok a x 1; a y 1 -- ok r x [1]; r y [1]",
    ),
    case(
        "write skew is allowed under snapshot isolation",
        &[],
        "ok r x []; r y []; a x 1\nok r x []; r y []; a y 1 -- ok r x [1]; r y [1]",
    ),
    case("registers", &[], "ok w x 1; w y 1 -- ok r x 1; w x 2\nok r y 1; w y 2 -- ok r x 2; r y 2"),
    case("blind writes of registers", &[], "ok w x 1\nok w x 2\nok r x nil -- ok r x 2"),
    case("an unknown write that is seen", &[], "ok w x 1 -- info r x nil; w x 2\nok r x 2 -- ok r x 2"),
    serializable("write skew", &["G2"], "ok r x []; r y []; a x 1\nok r x []; r y []; a y 1 -- ok r x [1]; r y [1]"),
    serializable(
        "write skew of registers",
        &["G2"],
        "ok w x 1; w y 1 -- ok r x 1; r y 1; w x 2\nok r x 1; r y 1; w y 2 -- ok r x 2; r y 2",
    ),
    serializable(
        "a reader that makes a history impossible",
        &["G2"],
        // Fekete, O'Neil, O'Neil, A Read-Only Transaction Anomaly (2004): the receipt is printed before the deposit.
        "ok r x []; r y []; a x 1\nok r y []; a y 2\nok r x []; r y [2] -- ok r x [1]; r y [2]",
    ),
    case("dirty write", &["G0"], "ok a x 1; a y 1\nok a x 2; a y 2 -- ok r x [1 2]; r y [2 1]"),
    case("aborted read", &["G1a"], "fail a x 1\nok r x [1]"),
    case("aborted read of a register", &["G1a"], "fail w x 1\nok r x 1"),
    case("intermediate read", &["G1b", "G-single"], "ok a x 1; a x 2\nok r x [1] -- ok r x [1 2]"),
    case("intermediate read of a register", &["G1b"], "ok w x 1; w x 2\nok r x 1 -- ok r x 2"),
    case("circular information flow", &["G1c"], "ok a x 1; r y [1]\nok a y 1; r x [1] -- ok r x [1]; r y [1]"),
    case("read skew", &["G-single"], "ok a x 1; a y 1\nok r x []; r y [1] -- ok r x [1]; r y [1]"),
    case("read skew of registers", &["G-single"], "ok w x 1; w y 1\nok r x nil; r y 1 -- ok r x 1; r y 1"),
    case(
        "long fork",
        &["G-nonadjacent"],
        "ok a x 1\nok a y 1\nok r x [1]; r y []\nok r x []; r y [1] -- ok r x [1]; r y [1]",
    ),
    case("lost update", &["G-single", "lost-update"], "ok r x []; a x 1\nok r x []; a x 2 -- ok r x [1 2]"),
    case(
        "lost update, overwritten",
        &["lost-append", "lost-update", "G-single"],
        "ok r x []; a x 1\nok r x []; a x 2 -- ok r x [2]",
    ),
    case("lost update of a register", &["lost-update"], "ok w x 1 -- ok r x 1; w x 2\nok r x 1; w x 3 -- ok r x 3"),
    case(
        "a list that changes its beginning",
        &["incompatible-order"],
        "ok a x 1\nok a x 2\nok r x [1 2]\nok r x [2 1] -- ok r x [1 2]",
    ),
    case("unrepeatable read", &["internal"], "ok a x 1\nok r x []; r x [1] -- ok r x [1]"),
    case("own write that is not seen", &["internal"], "ok a x 1; r x [] -- ok r x [1]"),
    case("own write of a register that is not seen", &["internal"], "ok w x 1; r x nil -- ok r x 1"),
    case("a value that nobody wrote", &["unwritten-read"], "ok a x 1 -- ok r x [1 9]"),
    case("a register's value that nobody wrote", &["unwritten-read"], "ok w x 1\nok r x 9 -- ok r x 1"),
    case("an acknowledged append that is gone", &["G-single-real-time", "lost-append"], "ok a x 1 -- ok r x []"),
    ordered(
        Order::None,
        "an append that is gone, whatever the order",
        &["lost-append"],
        "ok a x 1; a y 1 -- ok r x []; r y [1]",
    )
    .also_g_single(),
    case(
        "an acknowledged write that is gone",
        &["G-single-real-time", "lost-write"],
        "ok w x 1 -- ok r x 1; w x 2 -- ok r x 1",
    ),
    case("an append that is there twice", &["duplicate-append"], "ok a x 1 -- ok r x [1 1]"),
    case("half a commit", &["G-single", "lost-append"], "ok a x 1; a y 1 -- ok r x [1]; r y []"),
    case("half a commit of unknown outcome", &["G-single"], "info a x 1; a y 1 -- ok r x [1]; r y []"),
    case(
        "half a commit of unknown outcome, to a key that others wrote",
        &["G-single"],
        "ok a y 5 -- info a x 1; a y 1 -- ok r x [1]; r y [5]",
    ),
    case(
        "half a commit of unknown outcome, read in two steps",
        &["G-single-real-time", "half-commit"],
        "ok a y 5 -- info a x 1; a y 1 -- ok r x [1] -- ok r y [5]",
    ),
    case(
        "half a commit of unknown outcome, of registers",
        &["half-commit"],
        "ok w y 5 -- info w x 1; w y 1 -- ok r x 1 -- ok r y 5",
    ),
    case(
        "half a commit of unknown outcome, to nothing",
        &["G-single-real-time", "half-commit"],
        "info w x 1; w y 1 -- ok r x 1 -- ok r y nil",
    ),
    case("an unknown write may be written over", &[], "info w x 1; w y 1 -- ok r x 1; w y 5 -- ok r x 1; r y 5"),
    case("a read from before it was known", &[], "ok a y 5 -- info a x 1; a y 1\nok r y [5]\nok r x [1]"),
    case("stale read", &["G-single-real-time"], "ok a x 1 -- ok r x [] -- ok r x [1]"),
    ordered(Order::None, "stale reads are allowed without order", &[], "ok a x 1 -- ok r x [] -- ok r x [1]"),
    ordered(
        Order::Session,
        "a stale read of another session is allowed",
        &[],
        "p1 ok a x 1 -- p2 ok r x [] -- p2 ok r x [1]",
    ),
    ordered(
        Order::Session,
        "a stale read of the same session",
        &["G-single-session"],
        "p1 ok a x 1 -- p1 ok r x [] -- p1 ok r x [1]",
    ),
    case(
        "all money is there",
        &[],
        "bank ok w a 1=60; w b 2=40 -- ok r a 1=60; r b 2=40; w a 3=50; w b 4=50 -- ok r a 3=50; r b 4=50",
    ),
    case(
        "money is gone",
        &["wrong-total"],
        "bank ok w a 1=60; w b 2=40 -- ok r a 1=60; w a 3=50 -- ok r a 3=50; r b 2=40",
    ),
    case("another amount than was written", &["wrong-amount"], "ok w a 1=60 -- ok r a 1=61"),
];

impl Case {
    const fn also_g_single(self) -> Self {
        Case { kinds: &["G-single", "lost-append"], ..self }
    }
}

#[test]
fn exactly_the_expected_anomalies_are_found() {
    let mut wrong = Vec::new();
    for case in CASES {
        let expectation = Expectation { isolation: case.isolation, order: case.order };
        let verdict = judge(case.history, expectation);
        let mut found = verdict.report.kinds();
        let mut expected = case.kinds.to_vec();
        found.sort_unstable();
        expected.sort_unstable();
        if found != expected {
            wrong.push(format!("{}: {found:?} instead of {expected:?}", case.name));
        }
        wrong.extend(verdict.disagreement().map(|text| format!("{}: {text}", case.name)));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A client that stops leaves only its plan; one that fails also reports the operations that it executed.
#[test]
fn planned_writes_may_be_visible() {
    let mut seen = events("info w a 7=60\nok r a 7=60 -- ok r a 7=60");
    seen[0].operations = ["w a 7", "w b 8"].map(operation).to_vec();
    for (kind, kinds) in [(EventKind::Info, vec![]), (EventKind::Fail, vec!["G1a"])] {
        seen[2].kind = kind;
        let mut judges = Judges::new(&Header::default());
        seen.iter().for_each(|event| judges.observe(event.clone()).unwrap());
        let verdict = judges.finish(Expectation::default()).unwrap();
        assert_eq!(verdict.report.kinds(), kinds);
        assert_eq!(verdict.disagreement(), None);
        // The transaction has no end event.
        let mut judges = Judges::new(&Header::default());
        let others = seen.iter().enumerate().filter(|(position, _)| *position != 2);
        others.for_each(|(_, event)| judges.observe(event.clone()).unwrap());
        assert!(judges.finish(Expectation::default()).unwrap().is_clean());
    }
}

#[test]
fn an_explanation_names_the_transactions_and_the_keys() {
    let verdict = judge("ok a x 1; a y 1\nok r x []; r y [1] -- ok r x [1]; r y [1]", Expectation::default());
    let [anomaly] = verdict.report.anomalies.as_slice() else { panic!("{verdict:#?}") };
    assert_eq!(anomaly.keys, [Name::from("x"), Name::from("y")]);
    let expected = "G-single: 2 transactions cannot be put in an order\n  \
         T0 (process 0): append x 1, append y 1\n  \
         T1 (process 1): read x [], read y [1]\n  \
         T0 before T1: T1 read what T0 wrote to key y\n  \
         T1 before T0: T1 read key x as it was before T0 wrote it";
    assert_eq!(anomaly.to_string(), expected);
}

#[test]
fn transactions_and_operations_are_counted() {
    let history = "ok r x []; a x 1\nfail a x 2\ngive-up a x 5\ngive-up a x 6\ninfo a x 3\ninfo a x 4\nok r x [] \
                   -- ok r x [1 3]";
    let counts = judge(history, Expectation::default()).report.counts;
    assert_eq!((counts.transactions, counts.committed, counts.failed, counts.given_up), (8, 3, 1, 2));
    assert_eq!((counts.unknown_seen, counts.unknown_unseen), (1, 1));
    assert_eq!((counts.keys, counts.reads, counts.writes), (1, 3, 2));
    // The second reader ended after the first append had committed, and did not see it.
    assert_eq!(counts.old_version_reads, 1);
    assert_eq!(counts.unconfirmed, 0);
    assert_eq!(judge("ok a x 1", Expectation::default()).report.counts.unconfirmed, 1);
}

#[test]
fn malformed_histories_are_refused() {
    for (history, text) in [
        ("ok a x 1\nok a x 1", "the value 1 is written to key x twice"),
        ("ok a x 1\nok w x 2", "key x is used as a list and as a register"),
    ] {
        let mut judges = Judges::new(&Header::default());
        let error = events(history).into_iter().find_map(|event| judges.observe(event).err()).expect(history);
        assert!(error.to_string().contains(text), "{error}");
    }
    let mut judges = Judges::new(&Header::default());
    let end = Event { kind: EventKind::Ok, ..events("ok a x 1").remove(0) };
    assert!(judges.observe(end).is_err());
}

/// A recursive search for components would overflow the stack.
#[test]
fn a_long_chain_of_transactions_is_checked_without_recursion() {
    const LENGTH: i64 = 100_000;
    let mut checker = super::Checker::new(&Header { model: Some(Model::RwRegister), ..Header::default() });
    let mut event = |kind, process, operations| {
        let event = Event { kind, process, transaction: None, operations, nanoseconds: None, error: None };
        checker.observe(event).unwrap();
    };
    // Each transaction overwrites the value of the previous one; the first reads the value of the last.
    for value in 0..LENGTH {
        let seen = if value == 0 { LENGTH } else { value };
        let read = MicroOp::Read { key: 1.into(), seen: ReadValue::Value(seen.into()), amount: None };
        let write = MicroOp::Write { key: 1.into(), value: (value + 1).into(), amount: None };
        event(EventKind::Invoke, value, vec![]);
        event(EventKind::Ok, value, vec![read, write]);
    }
    let expectation = Expectation { order: Order::None, ..Expectation::default() };
    let report = checker.finish(expectation).unwrap();
    assert_eq!(report.kinds(), ["G0", "lost-write"]);
    // One cycle has all transactions, and its explanation is short.
    assert_eq!(report.anomalies[0].transactions.len(), LENGTH as usize);
    assert!(report.anomalies[0].explanation.lines().count() < 50);
}

fn judge(history: &str, expectation: Expectation) -> Verdict {
    let bank = history.starts_with("bank ").then_some(Bank { total: 100, accounts: 2 });
    let mut judges = Judges::new(&Header { bank, ..Header::default() });
    for event in events(history.trim_start_matches("bank ")) {
        judges.observe(event).unwrap();
    }
    judges.finish(expectation).unwrap()
}

fn events(history: &str) -> Vec<Event> {
    let (mut events, mut number) = (Vec::new(), 0);
    for group in history.split("--") {
        let mut ends = Vec::new();
        for line in group.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let (process, line) = match line.strip_prefix('p').and_then(|line| line.split_once(' ')) {
                Some((process, line)) => (process.parse().unwrap(), line),
                None => (number, line),
            };
            let (kind, operations) = line.split_once(' ').unwrap();
            let (kind, error) = match kind {
                "ok" => (EventKind::Ok, None),
                "fail" => (EventKind::Fail, Some("write conflict".to_owned())),
                "give-up" => (EventKind::Fail, None),
                "info" => (EventKind::Info, None),
                _ => panic!("{line}"),
            };
            let operations: Vec<MicroOp> = operations.split(';').map(operation).collect();
            let transaction = u64::try_from(number).ok();
            let end = Event { kind, process, transaction, operations, nanoseconds: None, error };
            events.push(Event { kind: EventKind::Invoke, operations: vec![], error: None, ..end.clone() });
            ends.push(end);
            number += 1;
        }
        events.extend(ends);
    }
    events
}

fn operation(text: &str) -> MicroOp {
    let mut words = text.trim().splitn(3, ' ');
    let (what, key, value) = (words.next().unwrap(), words.next().unwrap().into(), words.next().unwrap());
    let (value, amount) = match value.split_once('=') {
        Some((value, amount)) => (value, Some(amount.parse().unwrap())),
        None => (value, None),
    };
    let number = |text: &str| Name::Number(text.parse().unwrap());
    let seen = match value.strip_prefix('[') {
        Some(list) => ReadValue::List(list.trim_end_matches(']').split_whitespace().map(number).collect()),
        None if value == "nil" => ReadValue::Nothing,
        None => ReadValue::Value(number(value)),
    };
    match what {
        "r" => MicroOp::Read { key, seen, amount },
        "a" => MicroOp::Append { key, value: number(value) },
        _ => MicroOp::Write { key, value: number(value), amount },
    }
}
