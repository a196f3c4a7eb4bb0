//! A mark at a participant whose transaction is over, and what can be done about it.
//!
//! A participant carries the id of a transaction from its update on until it is released, and then among those that are finished. An
//! update matches only a participant that has the id in neither list. So there are two ways to a mark of a transaction that is over:
//!
//! | the transaction | the finished ids of the participant | what happened | remedy |
//! | --- | --- | --- | --- |
//! | is canceled | lack it | a copy of the update arrived after the transaction had been rolled back | take the update back |
//! | is done | lack it, and are as many as can be remembered | the same, after the participant had forgotten the id | take the update back |
//! | is done | lack it, and nothing was ever forgotten | the participant was not released: its update is in once | release it |
//! | is over | have it | no step of ours does that: another program has changed the document | none: it is unknown whether the update is in |
//!
//! The filter of the remedy carries what it was decided by.

use bson::{Bson, Document, doc};

use super::requests::{self, Request};
use super::{Participant, State, TwoPhase};
use crate::Result;
use crate::value::same_id;

/// The remedy for a participant that carries the id of a finished transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// Its update is one too many: [`TwoPhase::repair`] takes it back.
    TakeBack,
    /// Its update is right, and was not brought to its end: [`TwoPhase::repair`] does that.
    Release,
    /// It is unknown whether the update is in: a person who knows what the document should say has to decide.
    Unclear,
}

impl TwoPhase {
    /// The remedy for a participant's document that carries the id of a transaction that is over in this state.
    pub(super) fn remedy(&self, document: &Document, transaction: &Bson, state: State) -> Remedy {
        let finished = document.get_array(&self.fields().finished).map(Vec::as_slice).unwrap_or_default();
        if finished.iter().any(|id| same_id(id, transaction)) {
            return Remedy::Unclear;
        }
        match state {
            State::Canceled => Remedy::TakeBack,
            State::Done if finished.len() >= self.remembered_min() => Remedy::TakeBack,
            State::Done => Remedy::Release,
            State::Initial | State::Pending | State::Applied | State::Canceling => Remedy::Unclear,
        }
    }

    /// Returns the request of a remedy; `None` for [`Remedy::Unclear`].
    pub(super) fn remedied(
        &self,
        id: &Bson,
        participant: &Participant,
        remedy: Remedy,
        state: State,
    ) -> Result<Option<Request>> {
        let (fields, max) = (self.fields(), self.options.finished_max);
        let (mut filter, update) = match remedy {
            Remedy::TakeBack => requests::undo(fields, id, participant, max)?,
            Remedy::Release => requests::release(fields, id, participant, max)?,
            Remedy::Unclear => return Ok(None),
        };
        filter.insert(&fields.finished, doc! { "$ne": id.clone() });
        if state == State::Done {
            let last = format!("{}.{}", fields.finished, self.remembered_min().saturating_sub(1));
            filter.insert(last, doc! { "$exists": remedy == Remedy::TakeBack });
        }
        Ok(Some((filter, update)))
    }

    /// A participant that has fewer finished ids has never forgotten one.
    pub(super) fn remembered_min(&self) -> usize {
        let max = self.revisions.all().map(|options| options.finished_max).min();
        max.and_then(|max| usize::try_from(max).ok()).unwrap_or(1)
    }
}
