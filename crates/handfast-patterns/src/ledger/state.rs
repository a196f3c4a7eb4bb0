//! The states of an entry and of an authorisation, and the events that change them.

use std::fmt;
use std::str::FromStr;

/// Whether an entry is committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Proc {
    /// The entry has its places; the balances at them are not final yet.
    Uncommitted,
    /// Everything before the entry is committed. The entry never changes again, and the balances at its places are
    /// reliable.
    Committed,
}

/// Whether an entry counts in balances.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EntryState {
    /// The entry counts.
    Valid,
    /// The entry was canceled before it was committed. It keeps its places and counts for nothing.
    Canceled,
    /// The entry only fills places that were drawn for an entry that did not come, or whose entry is lost.
    Abandoned,
}

/// The state of an entry.
///
/// ```text
/// (UNCOMMITTED, VALID) ──── committed ───> (COMMITTED, VALID)
///         └── canceled ──> (UNCOMMITTED, CANCELED) ── committed ──> (COMMITTED, CANCELED)
/// (UNCOMMITTED, ABANDONED) ── committed ──> (COMMITTED, ABANDONED)
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Status {
    /// Whether it is committed.
    pub proc: Proc,
    /// Whether it counts.
    pub state: EntryState,
}

/// An event that changes the status of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryEvent {
    /// Everything before it is committed.
    Committed,
    /// It is canceled.
    Canceled,
}

impl Status {
    /// The status of an entry that was just posted.
    pub const POSTED: Status = Status { proc: Proc::Uncommitted, state: EntryState::Valid };

    /// Returns every status that an entry can have.
    pub fn all() -> impl Iterator<Item = Status> {
        Proc::ALL.into_iter().flat_map(|proc| EntryState::ALL.into_iter().map(move |state| Status { proc, state }))
    }

    /// Returns the status after the event; `None` if the event cannot happen in this status.
    pub fn after(self, event: EntryEvent) -> Option<Status> {
        match (self.proc, self.state, event) {
            (Proc::Uncommitted, _, EntryEvent::Committed) => Some(Status { proc: Proc::Committed, ..self }),
            (Proc::Uncommitted, EntryState::Valid, EntryEvent::Canceled) => {
                Some(Status { state: EntryState::Canceled, ..self })
            }
            (Proc::Uncommitted, EntryState::Canceled | EntryState::Abandoned, EntryEvent::Canceled)
            | (Proc::Committed, _, _) => None,
        }
    }
}

impl Proc {
    /// Both values.
    pub const ALL: [Proc; 2] = [Proc::Uncommitted, Proc::Committed];

    /// Returns the name that documents store.
    pub fn name(self) -> &'static str {
        match self {
            Proc::Uncommitted => "UNCOMMITTED",
            Proc::Committed => "COMMITTED",
        }
    }
}

impl EntryState {
    /// All states.
    pub const ALL: [EntryState; 3] = [EntryState::Valid, EntryState::Canceled, EntryState::Abandoned];

    /// Returns whether the entry counts in balances.
    pub fn counts(self) -> bool {
        match self {
            EntryState::Valid => true,
            EntryState::Canceled | EntryState::Abandoned => false,
        }
    }

    /// Returns the name that documents store.
    pub fn name(self) -> &'static str {
        match self {
            EntryState::Valid => "VALID",
            EntryState::Canceled => "CANCELED",
            EntryState::Abandoned => "ABANDONED",
        }
    }
}

/// The state of an authorisation. Its own entry never changes: the state follows from the entry that resolves it.
///
/// ```text
///        ┌── captured ──> captured
/// open ──┼── released ──> released
///        └── expired ───> expired
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HoldState {
    /// The amount is held.
    Open,
    /// The amount, or a part of it, went to the payee; the rest is free again.
    Captured,
    /// The amount is free again.
    Released,
    /// The amount is free again, as the time of the authorisation was over.
    Expired,
}

/// An event that resolves an authorisation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldEvent {
    /// The payee takes the amount, or a part of it.
    Captured,
    /// The payee does not need the amount any more.
    Released,
    /// The time of the authorisation is over.
    Expired,
}

impl HoldState {
    /// All states.
    pub const ALL: [HoldState; 4] = [HoldState::Open, HoldState::Captured, HoldState::Released, HoldState::Expired];

    /// Returns the state after the event; `None` if the event cannot happen in this state.
    pub fn after(self, event: HoldEvent) -> Option<HoldState> {
        match (self, event) {
            (HoldState::Open, HoldEvent::Captured) => Some(HoldState::Captured),
            (HoldState::Open, HoldEvent::Released) => Some(HoldState::Released),
            (HoldState::Open, HoldEvent::Expired) => Some(HoldState::Expired),
            (HoldState::Captured | HoldState::Released | HoldState::Expired, _) => None,
        }
    }
}

impl HoldEvent {
    /// All events.
    pub const ALL: [HoldEvent; 3] = [HoldEvent::Captured, HoldEvent::Released, HoldEvent::Expired];

    /// Returns the name of the changes of the entry that resolves it.
    pub fn name(self) -> &'static str {
        match self {
            HoldEvent::Captured => "capture",
            HoldEvent::Released => "release",
            HoldEvent::Expired => "expire",
        }
    }
}

/// The error for a text that names no state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an entry is UNCOMMITTED or COMMITTED, and VALID, CANCELED or ABANDONED")]
pub struct NoEntryState;

impl FromStr for Proc {
    type Err = NoEntryState;

    fn from_str(text: &str) -> Result<Self, NoEntryState> {
        Proc::ALL.into_iter().find(|proc| proc.name() == text).ok_or(NoEntryState)
    }
}

impl FromStr for EntryState {
    type Err = NoEntryState;

    fn from_str(text: &str) -> Result<Self, NoEntryState> {
        EntryState::ALL.into_iter().find(|state| state.name() == text).ok_or(NoEntryState)
    }
}

impl fmt::Display for Proc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for EntryState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for HoldState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            HoldState::Open => "open",
            HoldState::Captured => "captured",
            HoldState::Released => "released",
            HoldState::Expired => "expired",
        })
    }
}
