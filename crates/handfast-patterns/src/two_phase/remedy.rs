//! The remedy for a participant that has the id of a finished transaction.
//!
//! A participant has the id of a transaction in one list from its update until its release, and then in the list of
//! finished ones. An update matches only a participant that has the id in neither list. So there are a few ways in
//! which the id of a finished transaction can be in the first list:
//!
//! | the transaction | the finished ids of the participant | what happened | remedy |
//! | --- | --- | --- | --- |
//! | is canceled | lack it | a copy of the update arrived after the transaction had been rolled back | take the update back |
//! | is done | lack it, and are as many as can be remembered | the same, after the participant had forgotten the id | take the update back |
//! | is done | lack it, and nothing was ever forgotten | the participant was not released: its update is in once | release it |
//! | is canceled or done | have it | no step of ours does that: another program has changed the document | none: it is unknown whether the update is in |
//!
//! The filter of the remedy has the state that it was decided by.

use bson::{Bson, Document, doc};

use super::requests;
use super::{Participant, State, TwoPhase};
use crate::Result;
use crate::steps::Request;
use crate::value::same_id;

/// The remedy for a participant that carries the id of a finished transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// Its update is one too many, and [`TwoPhase::repair`] takes it back.
    TakeBack,
    /// Its update is right but was not released, and [`TwoPhase::repair`] releases it.
    Release,
    /// It is unknown whether the participant has the update. A person who knows what the document should be has to
    /// decide.
    Unclear,
}

impl TwoPhase {
    /// Returns the remedy for a participant's document that has the id of a transaction that ended in this state.
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
        let Request { mut filter, update } = match remedy {
            Remedy::TakeBack => requests::undo(fields, id, participant, max)?,
            Remedy::Release => requests::release(fields, id, participant, max)?,
            Remedy::Unclear => return Ok(None),
        };
        filter.insert(&fields.finished, doc! { "$ne": id.clone() });
        if state == State::Done {
            let last = format!("{}.{}", fields.finished, self.remembered_min().saturating_sub(1));
            filter.insert(last, doc! { "$exists": remedy == Remedy::TakeBack });
        }
        Ok(Some(Request { filter, update }))
    }

    /// Returns the number of finished ids below which a participant has never forgotten one.
    pub(super) fn remembered_min(&self) -> usize {
        let max = self.revisions.all().map(|options| options.finished_max).min();
        max.and_then(|max| usize::try_from(max).ok()).unwrap_or(1)
    }
}
