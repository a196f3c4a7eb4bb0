//! Carries out one transaction from any state to its end.

use bson::{Bson, doc};
use handfast_store::ErrorClass;

use super::requests;
use super::{Cancel, Event, Participant, Record, State, TwoPhase, TwoPhaseOutcome};
use crate::metrics::{self, Event as Counted, Span};
use crate::steps::Request;
use crate::value::equal;
use crate::{Error, Result};

/// Limit on the waiting transactions that [`TwoPhase::run_next`] chooses from, so that workers that look at the same
/// moment find different ones.
const CANDIDATES: u32 = 16;

/// The result of the first phase.
enum Applying {
    All,
    Refused(String),
}

impl TwoPhase {
    /// Carries out a transaction from its current state on. A transaction of another application is left to it.
    ///
    /// # Errors
    /// [`Error::Store`] if the store fails: the transaction keeps its state. Run it again, or leave it to the
    /// recovery.
    ///
    /// # Cancellation
    /// The transaction keeps its state: run it again, or leave it to the recovery.
    pub async fn run(&self, id: impl Into<Bson>) -> Result<TwoPhaseOutcome> {
        let id = id.into();
        let Request { filter, update } = self.claim(&id);
        if let Some(claimed) = self.transactions.find_and_update(&filter, &update).await? {
            self.count(Counted::TransactionClaimed);
            return self.begin_work(Record::read(&self.transactions, &claimed, self.fields())?).await;
        }
        match self.show(id).await? {
            Some(record) => self.drive(record).await,
            None => Ok(TwoPhaseOutcome::Missing),
        }
    }

    /// Claims one of the oldest waiting transactions, and carries it out; returns `None` if none waits.
    ///
    /// # Errors
    /// [`Error::Store`] if the store fails: the transaction keeps its state. Run it again, or leave it to the
    /// recovery.
    ///
    /// # Cancellation
    /// The transaction keeps its state: run it again, or leave it to the recovery.
    pub async fn run_next(&self) -> Result<Option<(Bson, TwoPhaseOutcome)>> {
        let waiting =
            doc! { &self.fields().state: State::Initial.name(), &self.fields().application: { "$exists": false } };
        let mut found = self.transactions.find(&waiting, &doc! { &self.fields().last_modified: 1 }, CANDIDATES).await?;
        let count = found.len().max(1);
        found.rotate_left(usize::try_from(self.sources.random.next_u64()).unwrap_or(0) % count);
        for candidate in found {
            let id = candidate.get("_id").cloned().unwrap_or(Bson::Null);
            let Request { filter, update } = self.claim(&id);
            // A worker that loses the race tries the next one.
            if let Some(claimed) = self.transactions.find_and_update(&filter, &update).await? {
                self.count(Counted::TransactionClaimed);
                let record = Record::read(&self.transactions, &claimed, self.fields())?;
                return Ok(Some((id, self.begin_work(record).await?)));
            }
        }
        Ok(None)
    }

    /// Rolls a transaction back unless it is applied, even if another application carries it out.
    ///
    /// # Errors
    /// [`Error::Store`] if the store fails: cancel it again, or leave it to the recovery.
    ///
    /// # Cancellation
    /// The transaction may be half rolled back: cancel it again, or leave it to the recovery.
    pub async fn cancel(&self, id: impl Into<Bson>, reason: &str) -> Result<Cancel> {
        let id = id.into();
        // If the process dies after this step, the recovery rolls the transaction back.
        let Request { filter, update } = requests::claim_to_refuse(self.claim(&id), self.fields(), reason);
        self.transactions.update_one(&filter, &update).await?;
        let Request { filter, update } = requests::refuse(self.fields(), &id, self.application(), reason);
        if self.transactions.update_one(&filter, &update).await? {
            self.count(Counted::TransactionRefused);
        }
        let Some(record) = self.show(id).await? else { return Ok(Cancel::Missing) };
        match record.state {
            State::Applied | State::Done => Ok(Cancel::TooLate),
            State::Canceled => Ok(Cancel::Canceled),
            State::Initial | State::Pending | State::Canceling => Ok(match self.drive(record).await? {
                TwoPhaseOutcome::Done => Cancel::TooLate,
                TwoPhaseOutcome::Canceled { .. } => Cancel::Canceled,
                TwoPhaseOutcome::TakenOver { .. } => Cancel::TakenOver,
                TwoPhaseOutcome::Missing => Cancel::Missing,
            }),
        }
    }

    fn claim(&self, id: &Bson) -> Request {
        requests::claim(self.fields(), id, self.application(), self.revisions.to_write())
    }

    /// Carries out a transaction that was claimed just now, so that no participant has been changed.
    async fn begin_work(&self, mut record: Record) -> Result<TwoPhaseOutcome> {
        if let Err(error) = self.participants(&record) {
            // Another program has written a transaction that cannot be carried out. There is nothing to undo.
            let reason = error.to_string();
            let refuse = requests::refuse(self.fields(), &record.id, self.application(), &reason);
            if self.step(&mut record, Event::Refused, Some(refuse)).await? {
                record.reason = Some(reason);
                let undone = self.advance(&record, Event::AllUndone);
                self.step(&mut record, Event::AllUndone, undone).await?;
            }
        }
        self.drive(record).await
    }

    /// Moves a transaction from state to state. If a step does not match, another process made it, and the document is
    /// read again.
    pub(super) async fn drive(&self, record: Record) -> Result<TwoPhaseOutcome> {
        let clock = &*self.sources.clock;
        let begun = clock.elapsed();
        let outcome = self.drive_untimed(record).await?;
        metrics::took_since(Span::Transaction, self.transactions.namespace(), clock, begun);
        Ok(outcome)
    }

    async fn drive_untimed(&self, mut record: Record) -> Result<TwoPhaseOutcome> {
        // Whether all updates of an applied transaction are known to be in the participants.
        let mut is_seen = false;
        loop {
            let ours = record.application.as_deref() == Some(self.application());
            let (event, request) = match record.state {
                State::Done => return Ok(TwoPhaseOutcome::Done),
                State::Canceled => return Ok(TwoPhaseOutcome::Canceled { reason: record.reason.unwrap_or_default() }),
                State::Applied if ours && !is_seen => {
                    self.ensure_applied(&record).await?;
                    is_seen = true;
                    continue;
                }
                State::Pending | State::Applied | State::Canceling if ours => self.work(&mut record).await?,
                State::Initial | State::Pending | State::Applied | State::Canceling => {
                    return Ok(TwoPhaseOutcome::TakenOver { by: record.application });
                }
            };
            if self.step(&mut record, event, request).await? {
                is_seen |= event == Event::AllApplied;
            } else {
                match self.show(record.id).await? {
                    Some(now) => record = now,
                    None => return Ok(TwoPhaseOutcome::Missing),
                }
            }
        }
    }

    /// Makes the changes of participants that a state requires, by the settings that the transaction was claimed by;
    /// returns the step that follows.
    async fn work(&self, record: &mut Record) -> Result<(Event, Option<Request>)> {
        let by = self.by_settings_of(record)?;
        let event = match record.state {
            State::Pending => match by.apply_all(record).await? {
                Applying::All => Event::AllApplied,
                Applying::Refused(reason) => {
                    let refuse = requests::refuse(self.fields(), &record.id, self.application(), &reason);
                    record.reason = Some(reason);
                    return Ok((Event::Refused, Some(refuse)));
                }
            },
            State::Applied => {
                by.release_all(record).await?;
                Event::AllReleased
            }
            State::Initial | State::Canceling | State::Done | State::Canceled => {
                by.undo_all(record).await?;
                Event::AllUndone
            }
        };
        Ok((event, self.advance(record, event)))
    }

    /// Makes a step between states; returns whether this process made it.
    async fn step(&self, record: &mut Record, event: Event, request: Option<Request>) -> Result<bool> {
        let (Some(Request { filter, update }), Some(next)) = (request, record.state.after(event)) else {
            return Ok(false);
        };
        let made = self.transactions.update_one(&filter, &update).await?;
        if made {
            record.state = next;
            match next {
                State::Applied => self.count(Counted::TransactionApplied),
                State::Done => self.count(Counted::TransactionDone),
                State::Canceling => self.count(Counted::TransactionRefused),
                State::Canceled => self.count(Counted::TransactionCanceled),
                State::Initial | State::Pending => {}
            }
        }
        Ok(made)
    }

    fn advance(&self, record: &Record, event: Event) -> Option<Request> {
        requests::advance(self.fields(), &record.id, self.application(), record.state, event)
    }

    pub(super) fn participants(&self, record: &Record) -> Result<Vec<Participant>> {
        self.checked(&record.id, record.plan()?)
    }

    /// Makes the first phase. Any failure at a participant is a reason to cancel, unless the store cannot be reached.
    async fn apply_all(&self, record: &Record) -> Result<Applying> {
        if let Some(reason) = &record.reason {
            return Ok(Applying::Refused(reason.clone()));
        }
        for participant in self.participants(record)? {
            if let Applying::Refused(reason) = self.apply(&record.id, &participant).await? {
                return Ok(Applying::Refused(reason));
            }
        }
        Ok(Applying::All)
    }

    async fn apply(&self, id: &Bson, participant: &Participant) -> Result<Applying> {
        let documents = self.transactions.at(participant.namespace.clone());
        let place = format!("{} {}", participant.namespace, participant.id);
        let Request { filter, update } = requests::apply(self.fields(), id, participant)?;
        match documents.update_one(&filter, &update).await {
            Ok(true) => return Ok(Applying::All),
            Ok(false) => {}
            Err(error) if error.class() == ErrorClass::Command => {
                return Ok(Applying::Refused(format!("{place} cannot be changed so: {error}")));
            }
            Err(error) => return Err(error),
        }
        if documents.find_one(&requests::has_it(self.fields(), id, participant)).await?.is_some() {
            return Ok(Applying::All);
        }
        let there = documents.find_one(&doc! { "_id": equal(&participant.id) }).await?.is_some();
        let why = if there { "does not allow it" } else { "does not exist" };
        Ok(Applying::Refused(format!("{place} {why}")))
    }

    /// Checks that every participant of an applied transaction has its update. A process that takes the transaction
    /// over has not applied them itself.
    pub(super) async fn ensure_applied(&self, record: &Record) -> Result<()> {
        match self.by_settings_of(record)?.lacking(record).await?.first() {
            Some(finding) => Err(Error::invalid(format!("{finding}: another program has changed it"))),
            None => Ok(()),
        }
    }

    /// Makes the second phase. A participant that was deleted since its update needs no release.
    async fn release_all(&self, record: &Record) -> Result<()> {
        for participant in self.participants(record)? {
            let Request { filter, update } =
                requests::release(self.fields(), &record.id, &participant, self.options.finished_max)?;
            self.transactions.at(participant.namespace).update_one(&filter, &update).await?;
        }
        Ok(())
    }

    /// Undoes the updates in the order of the seed, the last participant first, and keeps participants without the
    /// update from getting it: another process may be about to make it, and does not know yet that the transaction is
    /// canceled.
    async fn undo_all(&self, record: &Record) -> Result<()> {
        let (fields, max) = (self.fields(), self.options.finished_max);
        for participant in self.participants(record)?.iter().rev() {
            let documents = self.transactions.at(participant.namespace.clone());
            let undo = requests::undo(fields, &record.id, participant, max)?;
            if documents.update_one(&undo.filter, &undo.update).await? {
                continue;
            }
            let refuse = requests::refuse_update(fields, &record.id, participant, max);
            match documents.update_one(&refuse.filter, &refuse.update).await {
                Ok(true) => {}
                // The participant is over with the transaction, or is missing, or got the update just now.
                Ok(false) => _ = documents.update_one(&undo.filter, &undo.update).await?,
                // Its list of finished ids is none. If the update still comes, `repair` takes it back.
                Err(error) if error.class() == ErrorClass::Command => {
                    tracing::warn!(%error, transaction = %record.id, participant = %participant.id, "a participant cannot be kept from a canceled update");
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
