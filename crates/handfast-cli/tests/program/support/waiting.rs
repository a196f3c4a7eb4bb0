//! Waits for other programs, each with a timeout: a test that waited for ever would hide the cause.

use std::io::Read;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

/// The maximal time until an expected event, even on a busy machine: a program ends, a server prints its next line.
pub(super) const END_MAX: Duration = Duration::from_secs(300);
/// The maximal time until all output of an ended program has arrived.
pub(super) const REST_MAX: Duration = Duration::from_secs(20);
/// The pause between two checks.
const POLL: Duration = Duration::from_millis(1);

/// Runs a program to its end, as [`Command::output`] does, and fails with its output if it does not end: a server that must be
/// refused may serve instead.
pub(crate) fn output(command: &mut Command) -> Result<Output> {
    finish(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?)
}

/// Waits likewise for a running program whose output has no other reader.
pub(crate) fn finish(mut child: Child) -> Result<Output> {
    drop(child.stdin.take());
    let stdout = child.stdout.take().map(read_to_end);
    let stderr = child.stderr.take().map(read_to_end);
    let status = end(&mut child);
    let rest = |bytes: Option<Receiver<Vec<u8>>>| match bytes {
        Some(bytes) => bytes.recv_timeout(REST_MAX).context("another process has the output of one that has ended"),
        None => Ok(Vec::new()),
    };
    let (stdout, stderr) = (rest(stdout)?, rest(stderr)?);
    let said = || format!("{}{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    let status = status.with_context(said)?;
    Ok(Output { status, stdout, stderr })
}

/// Waits for the end of a program, and kills it if it does not end in time.
pub(super) fn end(child: &mut Child) -> Result<ExitStatus> {
    let began = now();
    while began.elapsed() < END_MAX {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        pause(POLL);
    }
    child.kill()?;
    child.wait()?;
    bail!("the program had not ended after {END_MAX:?}, and was killed");
}

/// Reads all output of a program, which would block if it had no reader.
pub(super) fn read_to_end(mut from: impl Read + Send + 'static) -> Receiver<Vec<u8>> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = from.read_to_end(&mut bytes);
        sender.send(bytes)
    });
    receiver
}

/// Waits until a condition holds, and otherwise fails with the name of the condition.
pub(crate) fn until(what: &str, mut condition: impl FnMut() -> Result<bool>) -> Result<()> {
    let began = now();
    while !condition()? {
        ensure!(began.elapsed() < END_MAX, "waited for {what} for {END_MAX:?}");
        pause(POLL);
    }
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "how long a person waits is measured from outside")]
pub(crate) fn now() -> std::time::Instant {
    std::time::Instant::now()
}

#[expect(clippy::disallowed_methods, reason = "other processes go on meanwhile, which no injected clock moves")]
pub(crate) fn pause(time: std::time::Duration) {
    std::thread::sleep(time);
}
