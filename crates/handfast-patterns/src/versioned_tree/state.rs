//! The states of a version, and what leads from one to the next.

use std::fmt;
use std::str::FromStr;

/// The state of a version. Which of the first two arrows it takes is decided by one insert: that of its root, or that of a mark in
/// the same place.
///
/// ```text
/// writing ── root inserted ──> committed <── spared ── pruning ── condemned ──> pruned ── nodes removed ──> cleared
///    └────── given up ──> abandoned  └──── marked ───────^
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum VersionState {
    /// Its number was allocated; nothing stands in the place of its root.
    Writing,
    /// Its root is there.
    Committed,
    /// It is to be pruned, unless a reader turns out to use it. It can be read, but not pinned any more.
    Pruning,
    /// It cannot be read any more; the nodes that only it used are being removed.
    Pruned,
    /// They are gone; what is left keeps its place taken.
    Cleared,
    /// It will never be committed. Its nodes are in no version.
    Abandoned,
}

/// An event in the life of a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VersionEvent {
    /// Its writer has inserted the root.
    RootInserted,
    /// Another writer came first, or the writer fell silent.
    GivenUp,
    /// No rule keeps it.
    Marked,
    /// It is used after all.
    Spared,
    /// It is not used.
    Condemned,
    /// The nodes that only it used are gone.
    NodesRemoved,
}

impl VersionState {
    /// Every state.
    pub const ALL: [VersionState; 6] = [
        VersionState::Writing,
        VersionState::Committed,
        VersionState::Pruning,
        VersionState::Pruned,
        VersionState::Cleared,
        VersionState::Abandoned,
    ];

    /// The state after the event; none if it cannot happen in this one.
    pub fn after(self, event: VersionEvent) -> Option<VersionState> {
        match (self, event) {
            (VersionState::Writing, VersionEvent::RootInserted) | (VersionState::Pruning, VersionEvent::Spared) => {
                Some(VersionState::Committed)
            }
            (VersionState::Writing, VersionEvent::GivenUp) => Some(VersionState::Abandoned),
            (VersionState::Committed, VersionEvent::Marked) => Some(VersionState::Pruning),
            (VersionState::Pruning, VersionEvent::Condemned) => Some(VersionState::Pruned),
            (VersionState::Pruned, VersionEvent::NodesRemoved) => Some(VersionState::Cleared),
            (
                VersionState::Writing
                | VersionState::Committed
                | VersionState::Pruning
                | VersionState::Pruned
                | VersionState::Cleared
                | VersionState::Abandoned,
                _,
            ) => None,
        }
    }

    /// Returns whether all nodes that it uses are there.
    pub fn is_readable(self) -> bool {
        match self {
            VersionState::Committed | VersionState::Pruning => true,
            VersionState::Writing | VersionState::Pruned | VersionState::Cleared | VersionState::Abandoned => false,
        }
    }

    /// Returns the name that documents store.
    pub fn name(self) -> &'static str {
        match self {
            VersionState::Writing => "writing",
            VersionState::Committed => "committed",
            VersionState::Pruning => "pruning",
            VersionState::Pruned => "pruned",
            VersionState::Cleared => "cleared",
            VersionState::Abandoned => "abandoned",
        }
    }
}

impl fmt::Display for VersionState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The text names no state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("states of versions are writing, committed, pruning, pruned, cleared and abandoned")]
pub struct NoVersionState;

impl FromStr for VersionState {
    type Err = NoVersionState;

    fn from_str(text: &str) -> Result<Self, NoVersionState> {
        VersionState::ALL.into_iter().find(|state| state.name() == text).ok_or(NoVersionState)
    }
}
