use std::time::Duration;

use super::{Ended, Finished, Output, run, run_shell};
use crate::command::blackpipe::output::PART_BYTES_MAX;

/// A time that exceeds the duration of each of these commands.
const LONG: Duration = Duration::from_secs(60);

async fn finished(line: &str, timeout: Duration) -> Finished {
    run_shell(line, "mongodb://x/", timeout, Output::Kept).await.unwrap()
}

#[tokio::test]
async fn the_end_and_the_reason_are_kept() {
    let check = async |line: &str, expected: &str| assert_eq!(finished(line, LONG).await.to_string(), expected);
    check("exit 0", "exit 0").await;
    check("echo one; echo two >&2; echo; exit 7", "exit 7: two").await;
    check("kill -s TERM $$", "signal 15").await;
    check("echo $MONGODB_URI", "exit 0: mongodb://x/").await;
}

/// The output exceeds the buffer of the pipe, so that a process whose output is not read would not end.
#[tokio::test]
async fn a_long_output_is_kept_in_part() {
    let Finished { ended, output } = finished("echo first; yes | head -c 3000000; echo last", LONG).await;
    assert_eq!(ended, Ended::Exit(0));
    assert!(output.starts_with("first\n") && output.ends_with("y\nlast") && output.contains("bytes are left out]"));
    assert!(output.len() < 2 * PART_BYTES_MAX + 100, "{}", output.len());
}

/// The last output is kept, and a process in the background is neither awaited nor ended when its output is closed.
#[tokio::test]
async fn a_process_that_is_left_behind_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let (go, done) = (directory.path().join("go"), directory.path().join("done"));
    let waits = format!("while [ ! -e {} ]; do sleep 0.05; done; echo more && echo > {}", go.display(), done.display());
    let Finished { ended, output } = finished(&format!("({waits}) & echo out"), LONG).await;
    assert_eq!((ended, output.as_str()), (Ended::Exit(0), "out"));
    std::fs::write(go, "").unwrap();
    let is_done = async {
        while !done.exists() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(LONG, is_done).await.expect("it goes on");
}

#[tokio::test]
async fn a_process_that_hangs_is_killed_with_its_children() {
    let directory = tempfile::tempdir().unwrap();
    let alive = directory.path().join("alive");
    let line = format!("(while :; do echo >> {}; sleep 0.05; done) & wait", alive.display());
    let finished = run_shell(&line, "", Duration::from_millis(300), Output::Kept).await.unwrap();
    assert_eq!(finished.ended, Ended::TimedOut);
    // A write that was under way at the kill has ended by now.
    tokio::time::sleep(Duration::from_millis(100)).await;
    let length = std::fs::metadata(&alive).map(|file| file.len()).unwrap_or_default();
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(std::fs::metadata(&alive).map(|file| file.len()).unwrap_or_default(), length);
}

#[tokio::test]
async fn a_program_that_is_missing_is_named() {
    let missing = ["/nowhere/pyhton".to_owned()];
    let error = run(&missing, "", LONG, Output::Kept).await.unwrap_err();
    assert_eq!(error.to_string(), "cannot start '/nowhere/pyhton'");
}
