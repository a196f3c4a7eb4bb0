//! `handfast serve --temporary`: a server for the tests of a program, which ends with that program and leaves nothing behind.

use std::io::Read as _;

use anyhow::Result;
use handfast_store::Sources;
use tokio::sync::oneshot;

use super::run;
use crate::configuration::Configuration;
use crate::console::Console;
use crate::exit::Exit;
use crate::scratch::Scratch;
use crate::setup::block_on;

/// Serves a store in a temporary directory until standard input ends. The program that has started the server holds the other end of it, which the system closes
/// also when that program is killed.
pub(in crate::command) fn run_temporary(configuration: Configuration, console: Console) -> Result<Exit> {
    // A number of its own, besides that of the process: one that was killed may have had the same, and left its directory.
    let number = Sources::system()?.random.next_u64();
    let scratch = Scratch::create(&std::env::temp_dir(), &format!("serve-{number:016x}"))?;
    let configuration = configuration.with_temporary_data(scratch.path.join("data"));
    block_on(run(&configuration, end_of_input(), console))
}

/// Returns at the end of standard input. What comes before it is read and dropped.
async fn end_of_input() {
    let (sender, ended) = oneshot::channel::<()>();
    // A thread of its own, which the end of the runtime does not wait for, as it would for a blocking task.
    std::thread::spawn(move || {
        let mut buffer = [0; 1024];
        while std::io::stdin().read(&mut buffer).is_ok_and(|bytes| bytes > 0) {}
        drop(sender);
    });
    let _closed = ended.await;
}
