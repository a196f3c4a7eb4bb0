//! Leftovers of clients on a server, by its own count.
//!
//! Sessions come last. The server keeps the sessions of a client that leaves without ending them for half an hour, so the test
//! ends all sessions.

use std::time::Duration;

use bson::{RawDocument, RawDocumentBuf, rawdoc};
use handfast_mongodb::run_admin_command;

use crate::support::wait_until;

/// The time after which everything that clients left open has ended by itself: the lifetime of a transaction or a snapshot, which
/// is a minute, and some seconds until the server looks.
const SECONDS_MAX: u64 = 90;
/// The time for one answer, even on a busy machine.
const ANSWER_MAX: Duration = Duration::from_secs(120);

/// The open transactions, cursors and sessions of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Leftovers {
    transactions: i64,
    snapshots: i64,
    cursors: i64,
    /// The sessions, including that of the query itself.
    sessions: i64,
    /// Records of outcomes and of retryable writes stay for a day; those that are older are looked for at the start, and
    /// again each hour.
    reaper_jobs: i64,
}

/// Waits until nothing is open on the server, and fails if something stays.
pub(crate) fn must_be_none(uri: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let run = |command| {
        let answer = async { tokio::time::timeout(ANSWER_MAX, run_admin_command(uri, command)).await };
        runtime.block_on(answer).expect("an answer in time")
    };
    let ask = || Leftovers::of(&run(rawdoc! { "serverStatus": 1 }).expect("the server tells what it counts"));
    let is_clean = wait_until(SECONDS_MAX, || {
        let left = ask();
        (left.transactions, left.snapshots, left.cursors) == (0, 0, 0) && left.reaper_jobs > 0
    });
    assert!(is_clean, "left behind: {:?}", ask());
    run(rawdoc! { "killAllSessions": [] }).expect("the server ends sessions");
    assert!(ask().sessions <= 1, "sessions do not end: {:?}", ask());
}

impl Leftovers {
    fn of(status: &RawDocumentBuf) -> Self {
        let number = |path: &[&str], field: &str| {
            let mut section: &RawDocument = status;
            for name in path {
                section = section.get_document(name).expect("a section of serverStatus");
            }
            section.get_i64(field).expect("a count of serverStatus")
        };
        Leftovers {
            transactions: number(&["transactions"], "currentOpen"),
            snapshots: number(&["transactions"], "currentSnapshots"),
            cursors: number(&["metrics", "cursor", "open"], "total"),
            sessions: number(&["logicalSessionRecordCache"], "activeSessionsCount"),
            reaper_jobs: number(&["logicalSessionRecordCache"], "transactionReaperJobCount"),
        }
    }
}
