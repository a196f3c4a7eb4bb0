//! The operations that drivers repeat by themselves, as the table in docs/blackpipe.md states them.

use super::programs::{FAULTS, Programs, name};

/// The operations that both drivers do not repeat. The program fails after a fault of one of them.
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

/// The operations that both drivers repeat once.
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
    check(&programs);
}

#[test]
fn ext_blackpipe_node_repeats() {
    let Some(programs) = Programs::node("driver") else { return };
    check(&programs);
}

fn check(programs: &Programs) {
    let pairs = programs.explore("app", &["--check", "true"]);
    for (operations, exit_code) in [(&NOT_REPEATED[..], 1), (&REPEATED[..], 0)] {
        let ended = pairs.iter().filter(|pair| pair["program"]["exit_code"] == exit_code).map(name);
        let expected = operations.iter().flat_map(|operation| FAULTS.map(|fault| format!("{operation}/{fault}")));
        assert_eq!(ended.collect::<Vec<_>>(), expected.collect::<Vec<_>>(), "exit code {exit_code}");
    }
}
