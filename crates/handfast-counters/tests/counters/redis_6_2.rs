//! A part of the tests with the oldest Redis that is promised, 6.2, which `scripts/install-test-tools` puts beside the one of the system: the steps
//! and their answers, faults at any operation, a cluster, and restarts of which the files are older than what was answered.
//!
//! This test runs its own binary once more, with the other `redis-server` first on the PATH.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::server::{PROGRAM, version};

const CHOSEN: [&str; 13] = [
    "cluster::ext_redis_a_cluster_behaves_as_one_server",
    "cluster::ext_redis_each_view_is_counted_once_while_a_slot_moves_and_a_server_is_killed",
    "cluster::ext_redis_no_step_is_carried_out_on_a_part_of_a_slot",
    "crash::ext_redis_nothing_is_lost_or_doubled_by_a_fault_at_any_operation",
    "instances::ext_redis_three_instances_count_each_view_once_while_one_and_redis_are_killed",
    "losses::ext_redis_without_the_store_the_clock_of_redis_gives_the_first_number",
    "model::ext_redis_gives_the_answers_of_the_model",
    "outages::ext_redis_a_full_memory_refuses_views_and_lets_the_queue_be_saved",
    "outages::ext_redis_a_kill_loses_no_view_that_was_answered",
    "outages::ext_redis_a_replica_and_an_empty_script_cache_are_no_harm",
    "rollbacks::ext_redis_a_server_that_was_a_replica_meanwhile_begins_anew",
    "rollbacks::ext_redis_what_is_left_of_lost_data_is_counted_once",
    "sentinel::ext_redis_each_view_that_a_replica_has_is_counted_once_when_it_takes_over",
];
/// As many as begin beside each other in `scripts/run-tests`.
const THREADS: usize = 2;

/// Returns the folder of the program; `None`, having said so, if it is not installed.
fn folder() -> Option<PathBuf> {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let tools = std::env::var_os("HANDFAST_TEST_TOOLS");
    let folder = tools.map_or_else(|| Path::new(root).join("target/test-tools"), PathBuf::from).join("redis-6.2");
    if folder.join(PROGRAM).exists() {
        return Some(folder);
    }
    let missing = format!("Redis 6.2 is not in {}: run scripts/install-test-tools", folder.display());
    assert!(std::env::var("CI").as_deref() != Ok("true"), "{missing}");
    let _ = writeln!(std::io::stderr(), "skipped: {missing}");
    None
}

#[test]
fn ext_redis_6_2_passes_the_chosen_tests() {
    let Some(folder) = folder() else { return };
    let version = version(&folder.join(PROGRAM));
    assert!(version.contains(" v=6.2."), "{version}");
    let before = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths([folder].into_iter().chain(std::env::split_paths(&before))).expect("a path");
    let mut command = Command::new(std::env::current_exe().expect("this binary"));
    command.args(CHOSEN).args(["--exact", "--test-threads", &THREADS.to_string()]);
    let output = command.env("PATH", path).output().expect("run");
    let said = String::from_utf8_lossy(&output.stdout);
    let all_passed = format!("test result: ok. {} passed", CHOSEN.len());
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains(&all_passed), "with {version}:\n{said}{errors}");
}
