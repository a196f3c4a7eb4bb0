use std::path::PathBuf;
use std::time::Duration;

use super::{Ended, Finished, Output, run, run_shell};

/// More than any of these commands takes.
const LONG: Duration = Duration::from_secs(60);

struct OutputFile {
    _directory: tempfile::TempDir,
    path: PathBuf,
}

fn output_file() -> OutputFile {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("output");
    OutputFile { _directory: directory, path }
}

async fn finished(line: &str, timeout: Duration) -> Finished {
    let file = output_file();
    run_shell(line, "mongodb://x/", timeout, Output::File(&file.path)).await.unwrap()
}

#[tokio::test]
async fn the_end_and_the_last_line_are_kept() {
    let check = async |line: &str, expected: &str| assert_eq!(finished(line, LONG).await.to_string(), expected);
    check("exit 0", "exit 0").await;
    check("echo one; echo two >&2; echo; exit 7", "exit 7: two").await;
    check("kill -s TERM $$", "signal 15").await;
    check("echo $MONGODB_URI", "exit 0: mongodb://x/").await;
}

#[tokio::test]
async fn a_process_that_hangs_is_killed_with_its_children() {
    let file = output_file();
    let alive = file.path.with_file_name("alive");
    let line = format!("(while :; do echo >> {}; sleep 0.05; done) & wait", alive.display());
    let finished = run_shell(&line, "", Duration::from_millis(300), Output::File(&file.path)).await.unwrap();
    assert_eq!(finished.ended, Ended::TimedOut);
    // What was being written when it was killed has been written by now.
    tokio::time::sleep(Duration::from_millis(100)).await;
    let length = std::fs::metadata(&alive).map(|file| file.len()).unwrap_or_default();
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(std::fs::metadata(&alive).map(|file| file.len()).unwrap_or_default(), length);
}

#[tokio::test]
async fn a_program_that_is_missing_is_named() {
    let file = output_file();
    let missing = ["/nowhere/pyhton".to_owned()];
    let error = run(&missing, "", LONG, Output::File(&file.path)).await.unwrap_err();
    assert_eq!(error.to_string(), "cannot start '/nowhere/pyhton'");
}
