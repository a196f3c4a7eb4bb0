//! Runs the program under test, the setup and the check: as processes of their own, within a time.

use std::fmt;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::process::Command;

/// The variable that holds the connection string.
const VARIABLE: &str = "MONGODB_URI";
/// The bytes at the end of an output in which its last line is looked for.
const TAIL_BYTES: u64 = 4 * 1024;
/// Characters of the last line that are shown.
const LINE_CHARACTERS_MAX: usize = 200;

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// With an exit code.
    Exit(i32),
    /// By a signal.
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
    /// The last line of its output, if it was kept.
    pub(super) last_line: String,
}

impl fmt::Display for Finished {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.last_line.as_str() {
            "" => self.ended.fmt(f),
            line => write!(f, "{}: {line}", self.ended),
        }
    }
}

/// The place to which a process writes its output.
#[derive(Clone, Copy, Debug)]
pub(super) enum Output<'a> {
    /// To a file, from which the last line is taken.
    File(&'a Path),
    /// To standard error of this process.
    Shown,
}

/// Runs a shell command.
pub(super) async fn run_shell(line: &str, uri: &str, timeout: Duration, output: Output<'_>) -> Result<Finished> {
    run(&["sh".to_owned(), "-c".to_owned(), line.to_owned()], uri, timeout, output).await
}

/// Runs a program with its arguments.
pub(super) async fn run(program: &[String], uri: &str, timeout: Duration, output: Output<'_>) -> Result<Finished> {
    let (name, arguments) = program.split_first().context("there is no program")?;
    let mut command = Command::new(name);
    command.args(arguments).env(VARIABLE, uri).stdin(Stdio::null()).process_group(0).kill_on_drop(true);
    match output {
        Output::File(path) => {
            let file = File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
            command.stdout(file.try_clone()?).stderr(file);
        }
        Output::Shown => {
            command.stdout(std::io::stderr());
        }
    }
    let mut child = command.spawn().with_context(|| format!("cannot start '{name}'"))?;
    let group = child.id().map(ProcessGroup);
    let ended = match tokio::time::timeout(timeout, child.wait()).await {
        Ok(status) => {
            group.into_iter().for_each(ProcessGroup::leave);
            Ended::from(status?)
        }
        Err(_) => {
            drop(group);
            child.wait().await?;
            Ended::TimedOut
        }
    };
    let last_line = match output {
        Output::File(path) => last_line(path)?,
        Output::Shown => String::new(),
    };
    Ok(Finished { ended, last_line })
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

/// Returns the last line of a file that is not empty.
fn last_line(path: &Path) -> Result<String> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
    let mut bytes = Vec::new();
    file.take(TAIL_BYTES).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let line = text.lines().rev().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    Ok(line.chars().take(LINE_CHARACTERS_MAX).collect())
}

#[cfg(test)]
mod tests;
