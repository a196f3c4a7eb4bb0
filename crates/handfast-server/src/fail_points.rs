//! Fail points: failures that tests of drivers request from the server. They need the flag `--test-commands`.
//!
//! ```text
//! {configureFailPoint: "failCommand", mode: {times: 2}, data: {failCommands: ["insert"], errorCode: 91}}
//!     insert    fails with 91 and its labels         entered once
//!     find      succeeds
//!     insert    fails with 91                        entered twice
//!     insert    succeeds
//! ```
//!
//! `failCommand` ([`command`]) is entered before a command, or puts a write concern error into its reply.
//! `onPrimaryTransactionalWrite` ([`mod@write`]) is entered between a retryable write and its commit, or between its commit and
//! its reply. `maxTimeAlwaysTimeOut` ends every command that has a `maxTimeMS`. `pauseBeforeCommit` ([`commit`]) delays a commit
//! that has begun. `failGetMoreAfterCursorCheckout` ([`cursor`]) fails a `getMore` that has its cursor.
//!
//! Source: the test plans of the drivers' specifications for transactions and retryable writes.

pub(crate) mod command;
pub(crate) mod commit;
pub(crate) mod cursor;
pub(crate) mod write;

use std::sync::{Arc, Mutex};

use bson::raw::{RawBsonRef, RawDocument};
use handfast_mql::Code;
use tokio::sync::watch;

use self::command::FailCommand;
use self::commit::PauseBeforeCommit;
use self::cursor::FailGetMore;
use self::write::FailWrite;
use crate::arguments::Arguments;
use crate::error::{CommandError, CommandResult};
use crate::lock::lock;

/// The fail points of a server.
#[derive(Default)]
pub(crate) struct FailPoints {
    command: Point<FailCommand>,
    write: Point<FailWrite>,
    commit: Point<PauseBeforeCommit>,
    cursor: Point<FailGetMore>,
    time: Point<()>,
}

/// The fail point that lets every command with a `maxTimeMS` time out.
const TIME: &str = "maxTimeAlwaysTimeOut";

/// The condition under which a fail point is entered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Mode {
    #[default]
    Off,
    AlwaysOn,
    /// It is entered this number of times more, at least once.
    Times(u64),
    /// It is passed this number of times before it is entered.
    Skip(u64),
}

impl Mode {
    /// Returns whether it is entered now, and the next mode.
    fn step(self) -> (bool, Mode) {
        match self {
            Mode::Off => (false, Mode::Off),
            Mode::AlwaysOn | Mode::Skip(0) => (true, Mode::AlwaysOn),
            Mode::Times(0 | 1) => (true, Mode::Off),
            Mode::Times(left) => (true, Mode::Times(left - 1)),
            Mode::Skip(left) => (false, Mode::Skip(left - 1)),
        }
    }

    /// Reads `"off"`, `"alwaysOn"`, `{times: 3}` or `{skip: 3}`.
    pub(crate) fn read(value: RawBsonRef<'_>) -> CommandResult<Self> {
        let bad = |text: String| Err(CommandError::new(Code::BadValue, text));
        match value {
            RawBsonRef::String("off") => Ok(Mode::Off),
            RawBsonRef::String("alwaysOn") => Ok(Mode::AlwaysOn),
            RawBsonRef::String(other) => bad(format!("unknown mode: {other}")),
            RawBsonRef::Document(document) => {
                let mut arguments = Arguments::of_document("configureFailPoint.mode", document)?;
                let (times, skip) = (arguments.unsigned("times")?, arguments.unsigned("skip")?);
                arguments.finish()?;
                match (times, skip) {
                    (Some(0), None) => Ok(Mode::Off),
                    (Some(times), None) => Ok(Mode::Times(times)),
                    (None, Some(skip)) => Ok(Mode::Skip(skip)),
                    _ => bad("'mode' takes one of 'times' and 'skip'".to_owned()),
                }
            }
            _ => Err(CommandError::new(Code::TypeMismatch, "'mode' must be a string or JSON object")),
        }
    }
}

/// A fail point; `D` is its data, which say what it does.
pub(crate) struct Point<D> {
    set: Mutex<(Mode, Arc<D>)>,
    /// The number of times that it was entered since the server was started.
    entered: watch::Sender<u64>,
}

impl<D: Default> Default for Point<D> {
    fn default() -> Self {
        Point { set: Mutex::default(), entered: watch::channel(0).0 }
    }
}

impl<D> Point<D> {
    /// Sets mode and data, and returns how often it was entered before.
    fn set(&self, mode: Mode, data: D) -> u64 {
        *lock(&self.set) = (mode, Arc::new(data));
        *self.entered.borrow()
    }

    /// Returns its data, if it is entered now.
    fn enter(&self, applies: impl FnOnce(&D) -> bool) -> Option<Arc<D>> {
        let mut set = lock(&self.set);
        let (mode, data) = &mut *set;
        if *mode == Mode::Off || !applies(data) {
            return None;
        }
        let (entered, next) = mode.step();
        *mode = next;
        if !entered {
            return None;
        }
        self.entered.send_modify(|count| *count += 1);
        Some(Arc::clone(data))
    }
}

impl FailPoints {
    /// Sets the fail point of this name, and returns how often it was entered before.
    ///
    /// # Errors
    /// `FailPointSetFailed` (266) for an unknown name; the parser's errors for invalid `data`.
    pub(crate) fn configure(&self, name: &str, mode: Mode, data: &RawDocument) -> CommandResult<u64> {
        match name {
            FailCommand::NAME => Ok(self.command.set(mode, FailCommand::read(data)?)),
            FailWrite::NAME => Ok(self.write.set(mode, FailWrite::read(data)?)),
            PauseBeforeCommit::NAME => Ok(self.commit.set(mode, PauseBeforeCommit::read(data)?)),
            FailGetMore::NAME => Ok(self.cursor.set(mode, FailGetMore::read(data)?)),
            TIME => {
                Arguments::of_document("configureFailPoint.data", data)?.finish()?;
                Ok(self.time.set(mode, ()))
            }
            other => Err(unknown(other)),
        }
    }

    /// Returns whether a command with `maxTimeMS` times out at once.
    pub(crate) fn times_out(&self) -> bool {
        self.time.enter(|()| true).is_some()
    }

    /// Watches the number of times that the fail point of this name was entered.
    ///
    /// # Errors
    /// `FailPointSetFailed` (266) for an unknown name.
    pub(crate) fn entered(&self, name: &str) -> CommandResult<watch::Receiver<u64>> {
        match name {
            FailCommand::NAME => Ok(self.command.entered.subscribe()),
            FailWrite::NAME => Ok(self.write.entered.subscribe()),
            PauseBeforeCommit::NAME => Ok(self.commit.entered.subscribe()),
            FailGetMore::NAME => Ok(self.cursor.entered.subscribe()),
            TIME => Ok(self.time.entered.subscribe()),
            other => Err(unknown(other)),
        }
    }
}

fn unknown(name: &str) -> CommandError {
    let known = [FailCommand::NAME, FailWrite::NAME, PauseBeforeCommit::NAME, FailGetMore::NAME, TIME].join(", ");
    CommandError::new(Code::FailPointSetFailed, format!("there is no fail point '{name}'; the fail points are {known}"))
}

#[cfg(test)]
mod tests;
