//! Elections of a scripted replica set, as drivers see them.

use bson::rawdoc;
use handfast_blackpipe::{Answer, Matcher, Script, ScriptedReplicaSet};

use super::drivers::Driver;
use crate::support::{START_SECONDS_MAX, turn, wait_until};

/// Drivers ask for the state every five minutes, so that they see an election in time only if a server sends it by itself.
const OPTIONS: &str = "&heartbeatFrequencyMS=300000&serverSelectionTimeoutMS=20000";

/// The operations of the program, and their outcomes.
const OPERATIONS: [(&str, &str); 9] = [
    ("insert:elected", "1 inserted"),
    ("insert:after", "1 inserted"),
    ("insert:interrupted", "1 inserted"),
    ("insert:closed", "1 inserted"),
    ("update_many:lost", "network error"),
    ("insert:known", "1 inserted"),
    ("find_secondary:read", "1 found"),
    ("insert:stepped_down", "1 inserted"),
    ("insert:waited", "1 inserted"),
];

fn script() -> Script {
    let insert = |name: &str, member| Matcher::command("insert").on(&format!("shop.{name}")).at(member);
    let interrupted = Answer::error(11602, "operation was interrupted", &["RetryableWriteError"]);
    let read = Matcher::command("find").on("shop.read").with("$readPreference.mode", "secondary");
    Script::in_order()
        // An election, and a write after it.
        .expect(insert("elected", 0), Answer::written(1).after_election(1))
        .expect(insert("after", 1), Answer::written(1))
        // Another member is elected in the middle of a write, which is interrupted, or whose connection is closed.
        .expect(insert("interrupted", 1), interrupted.after_election(2))
        .expect(insert("interrupted", 2), Answer::written(1))
        .expect(insert("closed", 2), Answer::HangUp.after_election(0))
        .expect(insert("closed", 0), Answer::written(1))
        // A write that drivers do not repeat.
        .expect(Matcher::command("update").on("shop.lost").at(0), Answer::HangUp.after_election(1))
        .expect(insert("known", 1), Answer::written(1))
        .expect(read, Answer::first_batch("shop.read", 0, [rawdoc! { "_id": 1 }]))
        // There is no primary until the test elects one.
        .expect(insert("stepped_down", 1), Answer::written(1).after_step_down())
        .expect(insert("waited", 2), Answer::written(1))
}

/// Plays elections to a driver. It sends each write to the primary of that time, repeats an interrupted one with the same number, waits for a primary, and reads from a
/// secondary.
fn check(driver: Option<Driver>) {
    let _turn = turn();
    let Some(driver) = driver else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("threads");
    let set = runtime.block_on(ScriptedReplicaSet::start("rs", 3, script())).expect("a replica set");
    let uri = format!("{}{OPTIONS}", set.uri());
    let operations = OPERATIONS.map(|(operation, _)| operation).join(",");
    let printed = std::thread::scope(|scope| {
        let program = scope.spawn(|| driver.run(&uri, &[operations]));
        let has_stepped_down = || set.primary().is_none() || program.is_finished();
        assert!(wait_until(START_SECONDS_MAX, has_stepped_down), "the primary has not stepped down");
        set.elect(2).expect("a member");
        program.join().expect("the program")
    });
    let received = set.finish().unwrap_or_else(|error| panic!("{error}\nprinted: {printed:?}"));
    let expected: String = OPERATIONS.map(|(operation, outcome)| format!("{operation} {outcome}\n")).concat();
    assert_eq!(printed.as_deref(), Ok(expected.as_str()));
    let number = |index: usize| ["lsid.id", "txnNumber"].map(|path| received[index].get(path).expect("a number"));
    assert_eq!((number(2), number(4)), (number(3), number(5)), "a repetition has the number of the first request");
    assert_ne!(number(1), number(2));
    assert_ne!(received[8].member(), Some(1), "the read reaches a secondary");
}

#[test]
fn ext_scripted_elections_pymongo() {
    check(Driver::pymongo());
}

#[test]
fn ext_scripted_elections_node() {
    check(Driver::node());
}

#[test]
fn ext_scripted_elections_go() {
    check(Driver::go());
}

#[test]
fn ext_scripted_elections_rust() {
    check(Driver::rust());
}

#[test]
fn ext_scripted_elections_java() {
    check(Driver::java());
}
