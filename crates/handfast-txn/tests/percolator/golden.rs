//! Golden scripts: the commands of processes, each with its result and the stored rows after it.
//!
//! ```text
//! # The subject of the script.
//! T begins                                  a command
//!     = 7                                   the result, if there is one
//!     Bob  10  v1 c6 s5                     the stored rows after the command
//!     Joe   2  v1 c6 s5
//! ```
//!
//! The results of a run must equal those in the script. `HANDFAST_GOLDEN=write cargo test -p handfast-txn --test percolator golden`
//! writes the results into the scripts instead; read them before you commit them.
//!
//! | a row | means |
//! | --- | --- |
//! | `Bob  10` | the visible balance; `-` for a tombstone |
//! | `v2 c6 s5 p` | revision, commit and start timestamp, and that the row is the primary of its transaction |
//! | `lock{s7 put 3 at Bob, with Joe}` | a lock with the new version and its primary; a primary's lock also with the other rows |
//! | `old[10 c6 s5]` `rb[7]` `d8` | old versions; rollbacks; the time when something may be forgotten |
//! | `7`, `6000ms`, `6000ms+1` | timestamps of the first millisecond, and of later ones |
//!
//! Timestamps begin at 7, and the clock stands still unless a command moves it. [`actors`] lists the commands. A command begins with
//! the name of a process.

mod actors;
mod local;
mod rows;

use std::path::{Path, PathBuf};

use self::actors::Stage;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/percolator/golden")
}

/// Runs a script, and compares the result with its text.
async fn check(name: &str) {
    let path = folder().join(name).with_extension("txt");
    let script = std::fs::read_to_string(&path).unwrap();
    let mut stage = Stage::new().await;
    let mut shown = String::new();
    for line in script.lines().filter(|line| !line.starts_with("    ")) {
        shown += line;
        shown.push('\n');
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let came = stage.play(line).await.unwrap_or_else(|| panic!("{name}: nobody knows how to play: {line}"));
        let came = came.map(|came| format!("= {came}"));
        for line in came.into_iter().chain(rows::shown(&stage.bank).await) {
            shown += &format!("    {line}\n");
        }
    }
    if std::env::var_os("HANDFAST_GOLDEN").is_some_and(|how| how == "write") {
        std::fs::write(&path, &shown).unwrap();
    }
    for (number, (expected, found)) in script.lines().zip(shown.lines()).enumerate() {
        assert_eq!(found, expected, "{name}, line {}:\n{shown}", number + 1);
    }
    assert_eq!(shown, script, "{name}");
}

macro_rules! scripts {
    ($($name:ident)*) => {
        const NAMES: &[&str] = &[$(stringify!($name)),*];
        $(
            #[tokio::test(start_paused = true)]
            async fn $name() {
                check(stringify!($name)).await;
            }
        )*
    };
}

scripts! {
    a_duplicate_changes_nothing
    a_late_request_locks_nothing
    a_locked_value_is_found_by_queries
    a_phantom_is_seen_at_the_commit
    a_reader_does_not_read_past_a_lock
    a_retry_runs_the_closure_again
    a_snapshot_shows_one_moment
    bob_pays_joe_7
    cleaner_removes_the_lock_while_the_committer_writes
    dies_after_the_commit_point
    dies_before_all_locks_are_there
    dies_while_it_resolves
    dies_with_all_locks
    no_old_version_before_the_roll_back_is_durable
    nobody_reads_what_is_not_committed
    nothing_is_left
    the_answer_to_the_commit_is_lost
    the_committer_was_first
    the_decision_comes_before_the_lock
    the_first_committer_wins
    the_record_stays_until_nothing_can_arrive
    the_request_to_commit_is_lost
    unknown_until_asked
    write_skew
    write_skew_serializable
}

#[test]
fn every_script_is_played() {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "txt") {
            found.push(path.file_stem().unwrap().to_str().unwrap().to_owned());
        }
    }
    found.sort();
    let mut played = NAMES.to_vec();
    played.sort_unstable();
    assert_eq!(found, played);
}

/// The minimal number of scripts that have only commands of clients.
const OF_CLIENTS_MIN: usize = 5;

/// Each command has the same result over the other engine, except for timestamps.
#[tokio::test]
async fn scripts_of_clients_are_so_over_local() {
    let mut played = 0;
    for name in NAMES {
        let script = std::fs::read_to_string(folder().join(name).with_extension("txt")).unwrap();
        played += usize::from(check_over_local(name, &script).await);
    }
    assert!(played >= OF_CLIENTS_MIN, "{played} scripts");
}

/// Runs a script over the engine `Local`; returns whether it has only commands of clients.
async fn check_over_local(name: &str, script: &str) -> bool {
    let mut stage = local::Stage::new().await;
    let mut lines = script.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).peekable();
    while let Some(line) = lines.next() {
        let Some(came) = stage.play(line).await else { return false };
        let mut expected = None;
        while let Some(shown) = lines.next_if(|line| line.starts_with("    ")) {
            expected =
                expected.or(shown.trim().strip_prefix("= ").filter(|_| !line.contains(" begins")).map(str::to_owned));
        }
        assert_eq!(came, expected, "{name}: {line}");
    }
    true
}
