//! The states of a transaction, and what leads from one to the next.

use std::fmt;
use std::str::FromStr;

/// The state of a transaction. States only go forward, so that a request that arrives late finds a state that it does not
/// expect.
///
/// ```text
/// initial ── claimed ──> pending ── all applied ──> applied ── all released ──> done
///                           └── refused ──> canceling ── all undone ──> canceled
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Written down; no application has claimed it.
    Initial,
    /// The update of each participant is being applied.
    Pending,
    /// All are applied: there is no way back. The participants are being released.
    Applied,
    /// Everything is in order.
    Done,
    /// Refused: what was applied is being undone.
    Canceling,
    /// It was rolled back.
    Canceled,
}

/// An event in the life of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// An application took it.
    Claimed,
    /// Each participant has its update.
    AllApplied,
    /// A participant cannot take it, or the caller does not want it any more.
    Refused,
    /// No participant carries its id any more.
    AllReleased,
    /// No participant has its update any more.
    AllUndone,
}

impl State {
    /// Every state.
    pub const ALL: [State; 6] =
        [State::Initial, State::Pending, State::Applied, State::Done, State::Canceling, State::Canceled];

    /// The state after the event; none if it cannot happen in this one.
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

/// The text names no state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("states are initial, pending, applied, done, canceling and canceled")]
pub struct NoState;

impl FromStr for State {
    type Err = NoState;

    fn from_str(text: &str) -> Result<Self, NoState> {
        State::ALL.into_iter().find(|state| state.name() == text).ok_or(NoState)
    }
}
