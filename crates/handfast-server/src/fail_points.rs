//! Fail points: what tests of drivers tell the server to do wrong. There are none without `--test-commands`.
//!
//! ```text
//! {configureFailPoint: "failCommand", mode: {times: 2}, data: {failCommands: ["insert"], errorCode: 91}}
//!     insert    91, with the labels of a real one    entered once
//!     find      as ever
//!     insert    91                                   entered twice
//!     insert    as ever
//! ```
//!
//! `failCommand` ([`command`]) stands before a command, or puts a write concern error into its reply.
//! `onPrimaryTransactionalWrite` ([`mod@write`]) stands between a retryable write and its commit, or between its commit and
//! its reply. `maxTimeAlwaysTimeOut` ends every command that has a `maxTimeMS`. `pauseBeforeCommit` ([`commit`]) lets a commit
//! wait that has begun.
//!
//! Source: the test plans of the drivers' specifications for transactions and retryable writes.

pub(crate) mod command;
pub(crate) mod commit;
pub(crate) mod write;

use std::sync::{Arc, Mutex};

use bson::raw::{RawBsonRef, RawDocument};
use handfast_mql::Code;
use tokio::sync::watch;

use self::command::FailCommand;
use self::commit::PauseBeforeCommit;
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
    time: Point<()>,
}

/// The fail point by which every command with a `maxTimeMS` takes too long.
const TIME: &str = "maxTimeAlwaysTimeOut";

/// The condition under which a fail point is entered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Mode {
    #[default]
    Off,
    AlwaysOn,
    /// So many times more, at least once.
    Times(u64),
    /// After it would have been entered so many times.
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

/// One fail point; `D` is what it does.
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
    /// Sets it anew; says how often it was entered before.
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
    /// Sets the fail point of this name; says how often it was entered before.
    ///
    /// # Errors
    /// `FailPointSetFailed` (266) for an unknown name; those of reading `data`.
    pub(crate) fn configure(&self, name: &str, mode: Mode, data: &RawDocument) -> CommandResult<u64> {
        match name {
            FailCommand::NAME => Ok(self.command.set(mode, FailCommand::read(data)?)),
            FailWrite::NAME => Ok(self.write.set(mode, FailWrite::read(data)?)),
            PauseBeforeCommit::NAME => Ok(self.commit.set(mode, PauseBeforeCommit::read(data)?)),
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
            TIME => Ok(self.time.entered.subscribe()),
            other => Err(unknown(other)),
        }
    }
}

fn unknown(name: &str) -> CommandError {
    let known = [FailCommand::NAME, FailWrite::NAME, PauseBeforeCommit::NAME, TIME].join(", ");
    CommandError::new(Code::FailPointSetFailed, format!("there is no fail point '{name}', only {known}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_say_when_it_is_entered() {
        fn entered(mut mode: Mode) -> Vec<bool> {
            let step = |_| {
                let (entered, next) = mode.step();
                mode = next;
                entered
            };
            (0..4).map(step).collect()
        }
        assert_eq!(entered(Mode::Off), [false; 4]);
        assert_eq!(entered(Mode::AlwaysOn), [true; 4]);
        assert_eq!(entered(Mode::Times(2)), [true, true, false, false]);
        assert_eq!(entered(Mode::Skip(3)), [false, false, false, true]);
        assert_eq!(entered(Mode::Skip(0)), [true; 4]);
    }

    #[test]
    fn a_mode_is_one_of_four() {
        use bson::rawdoc;
        let read = |value: &RawDocument| Mode::read(value.get("mode").unwrap().unwrap());
        let check = |value: &RawDocument, expected| assert_eq!(read(value).unwrap(), expected);
        check(&rawdoc! { "mode": "off" }, Mode::Off);
        check(&rawdoc! { "mode": "alwaysOn" }, Mode::AlwaysOn);
        check(&rawdoc! { "mode": { "times": 2 } }, Mode::Times(2));
        check(&rawdoc! { "mode": { "times": 0 } }, Mode::Off);
        check(&rawdoc! { "mode": { "skip": 2.0 } }, Mode::Skip(2));
        for (value, code) in [
            (rawdoc! { "mode": "on" }, 2),
            (rawdoc! { "mode": 1 }, 14),
            (rawdoc! { "mode": {} }, 2),
            (rawdoc! { "mode": { "times": 1, "skip": 1 } }, 2),
            (rawdoc! { "mode": { "times": -1 } }, 51_024),
            (rawdoc! { "mode": { "activationProbability": 0.5 } }, 40_415),
        ] {
            assert_eq!(read(&value).unwrap_err().code.0, code, "{value:?}");
        }
    }
}
