//! Exactly-once updates: an update that may not be sent twice (`$inc`) becomes one that may.
//!
//! A caller that sends an increment and gets no answer cannot know whether it was counted; to send it again may count it twice,
//! not to send it may lose it. So each increment gets a name, a *token*, which is kept in the document itself, and changes
//! with it in one atomic step. There are two forms:
//!
//! ```text
//! ExactlyOnce   one round trip       {_id, applied: {$ne: token}}  ->  $inc, $push {applied: token}
//! TwoStep       two (seed 4)      1  {_id, applied: {$ne: token}}  ->  $addToSet {pending: token}
//!                                 2  {_id, pending: token}         ->  $inc, $pull {pending: token}, $push {applied: token}
//! ```
//!
//! In the one-round-trip form the caller must ask again with the same token until there is an answer. In the two-step
//! form no caller needs to ask again: a token that was left in `pending` is finished by [`TwoStep::clean_up`].
//!
//! # What can go wrong, and what then
//!
//! | at | what happens |
//! | --- | --- |
//! | the request is lost | it is sent again: the token is not there, the change is made |
//! | the answer is lost | it is sent again: the token is there, nothing matches |
//! | the process dies in between | one round trip: all or nothing. Two steps: the clean-up finishes it |
//! | a copy of a request arrives late | the token is in `applied`: nothing matches, as long as the list remembers it |
//! | two clean-ups at once, or beside step 2 | each is the update of step 2: one of them matches |
//! | two first updates of a document that is not there | one inserts it; the other meets a duplicate key and asks again |
//!
//! # How long must the list remember?
//!
//! A token may go once no copy of its request can arrive any more. [`Memory::tokens_max`] bounds the list by count: it
//! must be more than the updates that one document takes in the longest time between the first time that a request is
//! sent and the last one (with the driver's usual server selection of 30 s, and one repetition, about a minute: at 10
//! updates a second and document 600 tokens). [`ExactlyOnce::forget`] bounds it by age: a document whose last update is
//! older loses its list; that age should be hours. The date is the store's own (`$currentDate`), so that no clocks of two
//! clients are compared.
//!
//! Source: seed 4 ("How to write resilient applications"); the list of applied tokens is ours, because without it a
//! late copy of step 1 puts the token back, and the clean-up counts it again.

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

/// The name of one update. Who may have to ask again, also after a restart, keeps it where it survives, before it asks
/// for the first time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Token(pub ObjectId);

impl Token {
    /// A name that nothing else has.
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
pub enum Outcome {
    /// It was applied, now.
    Applied,
    /// It had been applied: by an earlier request with this token, or by the first attempt of this one.
    AlreadyApplied,
    /// There is no such document, and none was to be made.
    Missing,
    /// The guard does not hold: nothing was changed, and the token is not used up.
    Refused,
    /// Another holder of the work has written to the document: nothing was changed. Only with a [`Fence`].
    Fenced,
}

impl Outcome {
    /// Returns whether the update is in, exactly once.
    pub fn is_applied(self) -> bool {
        matches!(self, Outcome::Applied | Outcome::AlreadyApplied)
    }

    /// Returns its label in metrics.
    fn counted(self) -> Event {
        match self {
            Outcome::Applied => Event::UpdateApplied,
            Outcome::AlreadyApplied => Event::UpdateRepeated,
            Outcome::Missing => Event::UpdateMissing,
            Outcome::Refused => Event::UpdateRefused,
            Outcome::Fenced => Event::UpdateFenced,
        }
    }
}

/// An update of one document: update operators, and what is to be if the document is not there or not as wanted.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    pub(crate) update: Document,
    condition: Condition,
}

#[derive(Clone, Debug, PartialEq)]
enum Condition {
    /// The document must be there.
    There,
    /// It is made if it is not.
    Insert,
    /// It must be there and match.
    Guard(Document),
}

impl Change {
    /// Changes a document that is there, with update operators such as `{$inc: {counter: 1}}`.
    pub fn new(update: Document) -> Self {
        Change { update, condition: Condition::There }
    }

    /// Adds to a field.
    pub fn increment(field: &str, by: i64) -> Self {
        Change::new(doc! { "$inc": { field: by } })
    }

    /// Makes the document if it is not there; takes the place of a guard.
    #[must_use]
    pub fn or_insert(self) -> Self {
        Change { condition: Condition::Insert, ..self }
    }

    /// Changes the document only if it matches this filter at that moment.
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
