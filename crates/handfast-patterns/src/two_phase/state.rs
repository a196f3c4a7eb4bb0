//! The states of a transaction, and the events that change them.

use std::fmt;
use std::str::FromStr;

/// The state of a transaction. States only go forward, so that a request that arrives late finds a state that it does
/// not expect.
///
/// ```text
/// initial ── claimed ──> pending ── all applied ──> applied ── all released ──> done
///                           └── refused ──> canceling ── all undone ──> canceled
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// It was stored, and no application has claimed it.
    Initial,
    /// The updates of the participants are being made.
    Pending,
    /// All updates were made, and it cannot be rolled back. The participants are being released.
    Applied,
    /// All participants were released.
    Done,
    /// It was refused, and its updates are being undone.
    Canceling,
    /// It was rolled back.
    Canceled,
}

/// An event that changes the state of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// An application claimed it.
    Claimed,
    /// Each participant has its update.
    AllApplied,
    /// A participant refused its update, or the caller canceled it.
    Refused,
    /// No participant has its id any more.
    AllReleased,
    /// No participant has its update any more.
    AllUndone,
}

impl State {
    /// All states.
    pub const ALL: [State; 6] =
        [State::Initial, State::Pending, State::Applied, State::Done, State::Canceling, State::Canceled];

    /// Returns the state after the event; `None` if the event cannot happen in this state.
    pub fn after(self, event: Event) -> Option<State> {
        match (self, event) {
            (State::Initial, Event::Claimed) => Some(State::Pending),
            (State::Pending, Event::AllApplied) => Some(State::Applied),
            (State::Pending, Event::Refused) => Some(State::Canceling),
            (State::Applied, Event::AllReleased) => Some(State::Done),
            (State::Canceling, Event::AllUndone) => Some(State::Canceled),
            (
                State::Initial | State::Pending | State::Applied | State::Done | State::Canceling | State::Canceled,
                _,
            ) => None,
        }
    }

    /// Returns whether there is nothing left to do.
    pub fn is_final(self) -> bool {
        match self {
            State::Done | State::Canceled => true,
            State::Initial | State::Pending | State::Applied | State::Canceling => false,
        }
    }

    /// Returns the name that documents store.
    pub fn name(self) -> &'static str {
        match self {
            State::Initial => "initial",
            State::Pending => "pending",
            State::Applied => "applied",
            State::Done => "done",
            State::Canceling => "canceling",
            State::Canceled => "canceled",
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The error for a text that names no state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("states are initial, pending, applied, done, canceling and canceled")]
pub struct NoState;

impl FromStr for State {
    type Err = NoState;

    fn from_str(text: &str) -> Result<Self, NoState> {
        State::ALL.into_iter().find(|state| state.name() == text).ok_or(NoState)
    }
}
