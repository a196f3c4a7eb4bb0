//! Exactly-once updates: an update that may not be sent twice (`$inc`) becomes one that may.
//!
//! A caller that sends an increment and gets no answer cannot know whether it was counted: sending it again may count
//! it twice, and not sending it again may lose it. So each increment gets a name, a *token*, which one atomic step
//! adds to the document together with the change. There are two forms:
//!
//! ```text
//! ExactlyOnce   one round trip       {_id, applied: {$ne: token}}  ->  $inc, $push {applied: token}
//! TwoStep       two (seed 4)      1  {_id, applied: {$ne: token}}  ->  $addToSet {pending: token}
//!                                 2  {_id, pending: token}         ->  $inc, $pull {pending: token}, $push {applied: token}
//! ```
//!
//! In the one-round-trip form the caller must repeat the request with the same token until it gets an answer. In the
//! two-step form no caller needs to repeat it: [`TwoStep::clean_up`] finishes tokens that were left in `pending`.
//!
//! # Failures and their effects
//!
//! | at | what happens |
//! | --- | --- |
//! | the request is lost | it is sent again: the token is not there, the change is made |
//! | the answer is lost | it is sent again: the token is there, nothing matches |
//! | the process dies in between | one round trip: all or nothing; two steps: the clean-up finishes it |
//! | a copy of a request arrives late | the token is in `applied`: nothing matches, as long as the token is in the list |
//! | two clean-ups at once, or a clean-up beside step 2 | each sends the update of step 2, and one of them matches |
//! | two first updates of a missing document | one inserts it; the other one meets a duplicate key and repeats its request |
//!
//! # How long tokens must be kept
//!
//! A token may be removed once no copy of its request can arrive any more. [`Memory::tokens_max`] bounds the list by
//! count: it must be greater than the number of updates that one document takes between the first and the last time
//! that a request is sent. With the driver's usual server selection of 30 s and one repetition that is about a minute:
//! at 10 updates per second and document, 600 tokens. [`ExactlyOnce::forget`] bounds the list by age: it removes the
//! list of a document whose last update is older, which should be hours. The date is the store's own (`$currentDate`),
//! so that the clocks of two clients are never compared.
//!
//! Source: seed 4 ("How to write resilient applications"). The list of applied tokens is our addition, because without
//! it a late copy of step 1 puts the token back, and the clean-up counts it again.

mod fence;
mod memory;
mod once;
mod two_step;

use bson::oid::ObjectId;
use bson::{Bson, Document, doc};
use handfast_store::IdSource;

use crate::metrics::Event;

pub use fence::Fence;
pub use memory::Memory;
pub use once::ExactlyOnce;
pub use two_step::{TwoStep, TwoStepOptions};

/// The name of one update. A caller that may have to repeat a request, even after a restart, stores its token durably
/// before the first request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Token(pub ObjectId);

impl Token {
    /// Returns a name that nothing else has.
    pub fn fresh(ids: &dyn IdSource) -> Self {
        Token(ids.object_id())
    }
}

impl From<Token> for Bson {
    fn from(token: Token) -> Self {
        Bson::ObjectId(token.0)
    }
}

/// The result of an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum UpdateOutcome {
    /// The update was applied by this call.
    Applied,
    /// The update had been applied before, by an earlier request with this token or by the first attempt of this one.
    AlreadyApplied,
    /// The document does not exist, and the change was not to make it.
    Missing,
    /// The guard does not hold. Nothing was changed, and the token can be used again.
    Refused,
    /// Another holder of the work has written to the document, and nothing was changed. Only updates with a [`Fence`]
    /// have this outcome.
    Fenced,
}

impl UpdateOutcome {
    /// Returns whether the update has been applied, exactly once.
    pub fn is_applied(self) -> bool {
        matches!(self, UpdateOutcome::Applied | UpdateOutcome::AlreadyApplied)
    }

    /// Returns its label in metrics.
    fn counted(self) -> Event {
        match self {
            UpdateOutcome::Applied => Event::UpdateApplied,
            UpdateOutcome::AlreadyApplied => Event::UpdateRepeated,
            UpdateOutcome::Missing => Event::UpdateMissing,
            UpdateOutcome::Refused => Event::UpdateRefused,
            UpdateOutcome::Fenced => Event::UpdateFenced,
        }
    }
}

/// An update of one document: update operators, and what to do if the document is missing or does not match a guard.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    pub(crate) update: Document,
    condition: Condition,
}

#[derive(Clone, Debug, PartialEq)]
enum Condition {
    /// The document must exist.
    There,
    /// A missing document is inserted.
    Insert,
    /// The document must exist and match.
    Guard(Document),
}

impl Change {
    /// Changes an existing document by update operators such as `{$inc: {counter: 1}}`.
    pub fn new(update: Document) -> Self {
        Change { update, condition: Condition::There }
    }

    /// Adds a number to a field.
    pub fn increment(field: &str, by: i64) -> Self {
        Change::new(doc! { "$inc": { field: by } })
    }

    /// Inserts the document if it is missing. Replaces a guard.
    #[must_use]
    pub fn or_insert(self) -> Self {
        Change { condition: Condition::Insert, ..self }
    }

    /// Changes the document only if it matches this filter at that moment. Replaces [`or_insert`](Self::or_insert).
    #[must_use]
    pub fn guarded(self, filter: Document) -> Self {
        Change { condition: Condition::Guard(filter), ..self }
    }

    pub(crate) fn inserts(&self) -> bool {
        self.condition == Condition::Insert
    }

    pub(crate) fn guard(&self) -> Option<&Document> {
        match &self.condition {
            Condition::Guard(filter) => Some(filter),
            Condition::There | Condition::Insert => None,
        }
    }
}
