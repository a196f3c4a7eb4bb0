//! Programs with one mistake each, and mended twins: explore finds the mistake, and nothing in the twin. The comment at the beginning of each
//! program describes its mistake, and says why `--times 2` is needed to find it.

use super::programs::{Programs, name};
use crate::support::Tool;

/// Loses the driver's own repetition, too.
const TWICE: &[&str] = &["--times", "2"];

/// Requires the pairs with findings to be those that are named, and all others to be right.
fn must_find(programs: &Programs, program: &str, flags: &[&str], expected: &[&str]) {
    let pairs = programs.explore(program, flags);
    let with_result = |result| pairs.iter().filter(|pair| pair["result"] == result).map(name).collect::<Vec<_>>();
    assert_eq!(with_result("finding"), expected, "{program}: {pairs:#?}");
    assert_eq!(with_result("right").len() + expected.len(), pairs.len(), "{program}: {pairs:#?}");
    assert!(!pairs.is_empty(), "{program} was not explored");
}

/// An increment that is repeated by hand is applied twice; in two steps with a token it is not.
#[test]
fn ext_blackpipe_increment() {
    let Some(programs) = Programs::python("increment") else { return };
    must_find(&programs, "app", TWICE, &["update:1/lose-reply"]);
    must_find(&programs, "mended", TWICE, &[]);
}

/// Of two updates without a transaction, one may be applied alone.
#[test]
fn ext_blackpipe_transfer() {
    let Some(programs) = Programs::python("transfer") else { return };
    must_find(&programs, "app", TWICE, &["update:1/lose-reply", "update:2/lose-request"]);
    must_find(&programs, "mended", TWICE, &[]);
}

/// A value that is read, computed and written is computed from itself by a repetition, whatever its version.
#[test]
fn ext_blackpipe_read_modify_write() {
    let Some(programs) = Programs::python("salary") else { return };
    must_find(&programs, "app", TWICE, &["update:1/lose-reply"]);
    must_find(&programs, "mended", TWICE, &[]);
}

/// A job that is done before its effect loses the effect; one that is done after it repeats the effect, if the effect has no key.
#[test]
fn ext_blackpipe_job() {
    let Some(programs) = Programs::python("job") else { return };
    must_find(&programs, "done_first", TWICE, &["update:1/lose-reply", "insert:1/lose-request"]);
    let done_last = ["insert:1/lose-reply", "update:1/lose-request", "update:1/lose-reply"];
    must_find(&programs, "done_last", TWICE, &done_last);
    must_find(&programs, "mended", TWICE, &[]);
}

/// A request that was given up arrives after the next one.
#[test]
fn ext_blackpipe_late_request() {
    let Some(programs) = Programs::python("status") else { return };
    // The program does not wait for so long.
    let reorder = ["--only", "reorder", "--delay", "10m"];
    must_find(&programs, "app", &reorder, &["update:1/reorder"]);
    must_find(&programs, "mended", &reorder, &[]);
}

/// A task whose owner does not know that it owns it stays where it is.
#[test]
fn ext_blackpipe_queue() {
    let Some(programs) = Programs::python("queue") else { return };
    let abandoned =
        ["findAndModify:1/lose-reply", "update:1/lose-request", "update:1/lose-reply", "delete:1/lose-request"];
    must_find(&programs, "app", TWICE, &abandoned);
    must_find(&programs, "mended", TWICE, &[]);
}

/// An insert without an _id of its own makes a second document. The program turns the repetition of the driver off.
#[test]
fn ext_blackpipe_insert() {
    let Some(programs) = Programs::node("order") else { return };
    must_find(&programs, "app", &[], &["insert:1/lose-reply"]);
    must_find(&programs, "mended", &[], &[]);
}

/// A message that is written after the commit may be missing.
#[test]
fn ext_blackpipe_outbox() {
    let Some(programs) = Programs::node("outbox") else { return };
    must_find(&programs, "app", TWICE, &["insert:2/lose-request"]);
    must_find(&programs, "mended", TWICE, &[]);
}

/// A transaction that runs again after an unknown commit may be committed twice; a commit that is repeated is not.
#[test]
fn ext_blackpipe_commit() {
    let Some(programs) = Programs::node("payment") else { return };
    must_find(&programs, "app", TWICE, &["commitTransaction:1/lose-reply"]);
    must_find(&programs, "mended", TWICE, &[]);
}

/// An element that is pushed by hand again is there twice.
#[test]
fn ext_blackpipe_push() {
    let Some(programs) = Programs::node("comment") else { return };
    must_find(&programs, "app", TWICE, &["update:1/lose-reply"]);
    must_find(&programs, "mended", TWICE, &[]);
}

/// An error that is logged only lets the program report what it has not done.
#[test]
fn ext_blackpipe_swallowed_error() {
    let Some(programs) = Programs::node("erasure") else { return };
    must_find(&programs, "app", &[], &["delete:1/lose-request"]);
    must_find(&programs, "mended", &[], &[]);
}

/// An update of many documents that is repeated by hand multiplies them twice: the Go driver.
#[test]
fn ext_blackpipe_multiplication() {
    let Some(programs) = Programs::built_in(Tool::GoClients, "prices") else { return };
    must_find(&programs, "app", &[], &["update:1/lose-reply"]);
    must_find(&programs, "mended", &[], &[]);
}

/// Mongoose saves a changed array by pushing to it. A transaction is silent, too.
#[test]
fn ext_blackpipe_mongoose() {
    let Some(_) = Tool::Mongoose.find() else { return };
    let Some(programs) = Programs::node("mongoose") else { return };
    must_find(&programs, "app", &[], &["update:1/lose-reply"]);
    must_find(&programs, "mended", &[], &[]);
    must_find(&programs, "transaction", TWICE, &[]);
}
