//! Runs the program under test, the setup and the check: as processes of their own, within a time.

use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe;
use tokio::process::{Child, Command};

use super::output::{KeptOutput, reason};

/// The variable that holds the connection string.
const VARIABLE: &str = "MONGODB_URI";
/// The bytes that are read from an output at once.
const CHUNK_BYTES: usize = 16 * 1024;
/// The bytes that a process may have written into its output before it ended, and that this process has not read yet: the largest pipe
/// that a process may make by default on Linux (pipe(7), "Pipe capacity").
const UNREAD_BYTES_MAX: usize = 1024 * 1024;

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// It ended with an exit code.
    Exit(i32),
    /// A signal ended it.
    Signal(i32),
    /// It was killed when its time was over.
    TimedOut,
}

impl Ended {
    pub(super) fn is_success(self) -> bool {
        self == Ended::Exit(0)
    }
}

impl From<ExitStatus> for Ended {
    fn from(status: ExitStatus) -> Self {
        match (status.code(), status.signal()) {
            (Some(code), _) => Ended::Exit(code),
            (None, signal) => Ended::Signal(signal.unwrap_or_default()),
        }
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ended::Exit(code) => write!(f, "exit {code}"),
            Ended::Signal(signal) => write!(f, "signal {signal}"),
            Ended::TimedOut => f.write_str("timed out"),
        }
    }
}

/// A finished process.
#[derive(Clone, Debug)]
pub(super) struct Finished {
    pub(super) ended: Ended,
    /// The beginning and the end of its output, if it was kept.
    pub(super) output: String,
}

impl Finished {
    /// Returns the line of its output that tells why it failed.
    pub(super) fn reason(&self) -> String {
        reason(&self.output)
    }
}

impl fmt::Display for Finished {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.reason().as_str() {
            "" => self.ended.fmt(f),
            line => write!(f, "{}: {line}", self.ended),
        }
    }
}

/// The destination of the output of a process.
#[derive(Clone, Copy, Debug)]
pub(super) enum Output {
    /// Its beginning and its end are kept in memory, so that nothing is left behind on a disk.
    Kept,
    /// It is shown on standard error of this process.
    Shown,
}

/// Runs a shell command.
pub(super) async fn run_shell(line: &str, uri: &str, timeout: Duration, output: Output) -> Result<Finished> {
    run(&["sh".to_owned(), "-c".to_owned(), line.to_owned()], uri, timeout, output).await
}

/// Runs a program with its arguments.
pub(super) async fn run(program: &[String], uri: &str, timeout: Duration, output: Output) -> Result<Finished> {
    let (name, arguments) = program.split_first().context("there is no program")?;
    let mut command = Command::new(name);
    command.args(arguments).env(VARIABLE, uri).stdin(Stdio::null()).process_group(0).kill_on_drop(true);
    let reader = match output {
        Output::Kept => {
            let (writer, reader) = pipe::pipe().context("cannot make a pipe")?;
            let writer = writer.into_blocking_fd()?;
            command.stdout(writer.try_clone()?).stderr(writer);
            Some(reader)
        }
        Output::Shown => {
            command.stdout(io::stderr());
            None
        }
    };
    let mut child = command.spawn().with_context(|| format!("cannot start '{name}'"))?;
    // It has the other end of the pipe.
    drop(command);
    let (ended, output) = match reader {
        Some(reader) => kept(reader, end(&mut child, timeout)).await?,
        None => (end(&mut child, timeout).await?, String::new()),
    };
    Ok(Finished { ended, output })
}

/// Waits until a process ends, and kills it with its children after this time.
async fn end(child: &mut Child, timeout: Duration) -> io::Result<Ended> {
    let group = child.id().map(ProcessGroup);
    match tokio::time::timeout(timeout, child.wait()).await {
        Ok(status) => {
            group.into_iter().for_each(ProcessGroup::leave);
            Ok(Ended::from(status?))
        }
        Err(_) => {
            drop(group);
            child.wait().await?;
            Ok(Ended::TimedOut)
        }
    }
}

/// Reads the output of a process until the process ends.
async fn kept(mut reader: pipe::Receiver, end: impl Future<Output = io::Result<Ended>>) -> Result<(Ended, String)> {
    let mut end = std::pin::pin!(end);
    let (mut output, mut chunk, mut is_open) = (KeptOutput::default(), vec![0; CHUNK_BYTES], true);
    let ended = loop {
        tokio::select! {
            read = reader.read(&mut chunk), if is_open => {
                let count = read?;
                is_open = count > 0;
                output.push(chunk.get(..count).unwrap_or_default());
            }
            ended = &mut end => break ended?,
        }
    };
    // What the process wrote at its end is in the pipe, which another process may hold open.
    let mut pipe = File::from(reader.into_nonblocking_fd()?);
    let mut unread_bytes = 0;
    while is_open && unread_bytes < UNREAD_BYTES_MAX {
        match pipe.read(&mut chunk) {
            Ok(count) => {
                is_open = count > 0;
                unread_bytes += count;
                output.push(chunk.get(..count).unwrap_or_default());
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
    if is_open {
        // A process that is left behind goes on writing: without a reader it would be ended by a signal.
        let mut rest = pipe::Receiver::from_file(pipe)?;
        tokio::spawn(async move { tokio::io::copy(&mut rest, &mut tokio::io::sink()).await });
    }
    Ok((ended, output.into_text()))
}

/// A process and its children, which are killed when this is dropped.
struct ProcessGroup(u32);

impl ProcessGroup {
    /// Leaves what is left of the group alone.
    fn leave(self) {
        std::mem::forget(self);
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        let kill = format!("kill -s KILL -- -{}", self.0);
        // It may have ended meanwhile.
        let _ = std::process::Command::new("sh").args(["-c", &kill]).stderr(Stdio::null()).status();
    }
}

#[cfg(test)]
mod tests;
