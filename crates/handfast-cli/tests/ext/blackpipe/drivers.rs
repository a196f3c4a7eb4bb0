//! The operations that drivers repeat by themselves, as the table in docs/blackpipe.md states them.

use super::programs::{FAULTS, Programs, name};
use crate::support::Tool;

/// The operations that the drivers do not repeat. The program fails after a fault of one of them.
const NOT_REPEATED: [&str; 8] = [
    "createIndexes:1",
    "update:3", // updateMany
    "update:4", // bulkWrite with updateMany
    "delete:2", // deleteMany
    "getMore:1",
    "aggregate:2", // with $out
    "count:1",     // command
    "insert:4",    // in a transaction
];

/// The operations that the drivers repeat once.
const REPEATED: [&str; 13] = [
    "insert:1", // insertOne
    "insert:2", // insertMany
    "insert:3", // bulkWrite
    "update:1", // updateOne
    "update:2", // replaceOne
    "findAndModify:1",
    "delete:1", // deleteOne
    "find:1",
    "find:2", // the first batch
    "aggregate:1",
    "distinct:1",
    "listCollections:1",
    "commitTransaction:1",
];

#[test]
fn ext_blackpipe_pymongo_repeats() {
    let Some(programs) = Programs::python("driver") else { return };
    check(&programs, "app", &NOT_REPEATED, &REPEATED);
}

#[test]
fn ext_blackpipe_node_repeats() {
    let Some(programs) = Programs::node("driver") else { return };
    check(&programs, "app", &NOT_REPEATED, &REPEATED);
}

#[test]
fn ext_blackpipe_go_repeats() {
    let Some(programs) = Programs::driver(Tool::GoClients) else { return };
    check(&programs, "repeats", &NOT_REPEATED, &REPEATED);
}

#[test]
fn ext_blackpipe_java_repeats() {
    let Some(programs) = Programs::java() else { return };
    check(&programs, "Repeats", &NOT_REPEATED, &REPEATED);
}

/// The Rust driver has no method for bulk writes to a collection.
#[test]
fn ext_blackpipe_rust_driver_repeats() {
    let Some(programs) = Programs::driver(Tool::RustDriver) else { return };
    let not_repeated = ["createIndexes:1", "update:3", "delete:2", "getMore:1", "aggregate:2", "count:1", "insert:3"];
    let repeated: Vec<_> = REPEATED.into_iter().filter(|operation| *operation != "insert:3").collect();
    check(&programs, "repeats", &not_repeated, &repeated);
}

/// The program fails after each fault of an operation that is not repeated, and succeeds after all others.
fn check(programs: &Programs, program: &str, not_repeated: &[&str], repeated: &[&str]) {
    let pairs = programs.explore(program, &["--check", "true"]);
    for (operations, exit_code) in [(not_repeated, 1), (repeated, 0)] {
        let ended = pairs.iter().filter(|pair| pair["program"]["exit_code"] == exit_code).map(name);
        let expected = operations.iter().flat_map(|operation| FAULTS.map(|fault| format!("{operation}/{fault}")));
        assert_eq!(ended.collect::<Vec<_>>(), expected.collect::<Vec<_>>(), "exit code {exit_code}");
    }
}
