//! The states of a main document, and what leads from one to the next.

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
    /// Every copy is equal to it, or says itself that it may not be.
    Settled,
    /// It was changed, and the change is being carried to its copies.
    Syncing,
    /// It is to be deleted, and its copies are being told. For readers it is gone.
    Deleting,
    /// It is not there any more.
    Gone,
}

/// An event in the life of a main document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MainEvent {
    /// One of the fields that have copies may have changed.
    Changed,
    /// A delete was begun.
    Deleted,
    /// Every copy has been brought up to date.
    Carried,
}

impl MainState {
    /// Every state.
    pub const ALL: [MainState; 4] = [MainState::Settled, MainState::Syncing, MainState::Deleting, MainState::Gone];

    /// The state after the event; none if it cannot happen in this one.
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
