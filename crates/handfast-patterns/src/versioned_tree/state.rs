//! The states of a version, and the events that change them.

use std::fmt;
use std::str::FromStr;

/// The state of a version. One insert decides whether a version is committed or abandoned: that of its root, or that
/// of its mark.
///
/// ```text
/// writing ── root inserted ──> committed <── spared ── pruning ── condemned ──> pruned ── nodes removed ──> cleared
///    └────── given up ──> abandoned  └──── marked ───────^
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum VersionState {
    /// Its number was allocated, and it has neither a root nor a mark.
    Writing,
    /// Its root exists.
    Committed,
    /// It is to be pruned, unless a pin or a name keeps it. It can be read, but not pinned any more.
    Pruning,
    /// It cannot be read any more, and the nodes that only it used are being removed.
    Pruned,
    /// Its nodes were removed, and its root is only a mark.
    Cleared,
    /// It will never be committed, and its nodes are in no version.
    Abandoned,
}

/// An event that changes the state of a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VersionEvent {
    /// Its writer has inserted the root.
    RootInserted,
    /// Another writer came first, or its writer fell silent.
    GivenUp,
    /// No rule keeps it, and it is marked for pruning.
    Marked,
    /// A pin or a name keeps it.
    Spared,
    /// No pin and no name keeps it.
    Condemned,
    /// The nodes that only it used were removed.
    NodesRemoved,
}

impl VersionState {
    /// All states.
    pub const ALL: [VersionState; 6] = [
        VersionState::Writing,
        VersionState::Committed,
        VersionState::Pruning,
        VersionState::Pruned,
        VersionState::Cleared,
        VersionState::Abandoned,
    ];

    /// Returns the state after the event; `None` if the event cannot happen in this state.
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

    /// Returns whether all nodes that it uses exist.
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

/// The error for a text that names no state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("states of versions are writing, committed, pruning, pruned, cleared and abandoned")]
pub struct NoVersionState;

impl FromStr for VersionState {
    type Err = NoVersionState;

    fn from_str(text: &str) -> Result<Self, NoVersionState> {
        VersionState::ALL.into_iter().find(|state| state.name() == text).ok_or(NoVersionState)
    }
}
