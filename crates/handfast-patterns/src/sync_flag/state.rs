//! The states of a main document, and the events that change them.

use std::fmt;

/// The state of a main document.
///
/// ```text
///             ┌── changed ──┐
///             v             │
/// settled ── changed ──> syncing ── carried ──> settled
///    └────────┬─────────────┘
///          deleted ──> deleting ── carried ──> gone
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MainState {
    /// Every copy is equal to it, or has a flag of its own.
    Settled,
    /// It was changed, and the change is being carried to its copies.
    Syncing,
    /// It is to be deleted, and the delete is being carried to its copies. Readers do not see it.
    Deleting,
    /// It does not exist any more.
    Gone,
}

/// An event that changes the state of a main document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MainEvent {
    /// A field with copies may have been changed.
    Changed,
    /// A delete was begun.
    Deleted,
    /// Every copy has been brought up to date.
    Carried,
}

impl MainState {
    /// All states.
    pub const ALL: [MainState; 4] = [MainState::Settled, MainState::Syncing, MainState::Deleting, MainState::Gone];

    /// Returns the state after the event; `None` if the event cannot happen in this state.
    pub fn after(self, event: MainEvent) -> Option<MainState> {
        match (self, event) {
            (MainState::Settled | MainState::Syncing, MainEvent::Changed) => Some(MainState::Syncing),
            (MainState::Settled | MainState::Syncing, MainEvent::Deleted) => Some(MainState::Deleting),
            (MainState::Syncing, MainEvent::Carried) => Some(MainState::Settled),
            (MainState::Deleting, MainEvent::Carried) => Some(MainState::Gone),
            (MainState::Settled | MainState::Deleting | MainState::Gone, _) => None,
        }
    }

    /// Returns the description for people.
    pub fn name(self) -> &'static str {
        match self {
            MainState::Settled => "settled",
            MainState::Syncing => "syncing",
            MainState::Deleting => "deleting",
            MainState::Gone => "gone",
        }
    }
}

impl fmt::Display for MainState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
