//! A consumer of a change stream beside writers with transactions, on a server that is killed (SIGKILL) while they work.
//!
//! ```text
//! Python   3 writers: transactions of three documents, aborted ones, plain writes     1 consumer: begins anew after every 7 events
//! here     kill the server and start it again, when more transactions have committed
//! ```
//!
//! At the end the consumer has each committed change exactly once and in order. The test counts kills and commits, never time.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use crate::support::{Handfast, Tool, root};

/// The times that the server is killed.
const KILLS: usize = 5;

#[test]
fn ext_change_streams_after_kills() {
    let Some(python) = Tool::Python.find() else { return };
    let mut server = Handfast::start();
    let mut command = server.command(&python, &["tests/clients/python/change_stream_kills.py"]);
    let command = command.current_dir(root()).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("the program starts");
    let mut lines = BufReader::new(child.stdout.take().expect("its output")).lines().map_while(Result::ok);
    for kill in 0..KILLS {
        // The lines that were printed before the last kill may be among these: then the kills are closer together.
        for _ in 0..3 {
            let line = lines.next().unwrap_or_else(|| panic!("it ended before kill {kill}"));
            assert!(line.starts_with("committed "), "{line}");
        }
        server.kill_and_restart();
    }
    for _ in 0..3 {
        assert!(lines.next().is_some(), "it ended by itself");
    }
    drop(child.stdin.take());
    let rest: Vec<String> = lines.collect();
    let status = child.wait().expect("its exit code");
    assert!(status.success(), "{status}: {rest:?}");
    println!("{}", rest.last().map_or("", String::as_str));
    server.stop();
}
