//! The recovery, which finishes transactions that were left behind.

use std::collections::HashMap;

use bson::{Bson, Document, doc};
use tracing::Instrument;

use super::{Participant, Record, State, TwoPhase, TwoPhaseOutcome, requests};
use crate::metrics::Event as Counted;
use crate::steps::{Request, Steps};
use crate::value::{key_of, one_of, same_id};
use crate::{CancellationToken, Error, Result, Round, Runner, RunnerOptions};

impl TwoPhase {
    /// Takes over transactions (at most `batch`) that were left under way, and finishes them: those whose date is at
    /// least [`abandoned_after`](super::TwoPhaseOptions::abandoned_after) old, or further ahead than that. It may run
    /// in any process at any time. A transaction that fails is passed over, so that it keeps no others waiting.
    ///
    /// # Errors
    /// [`Error::Store`] if the search fails. A failure at a single transaction is logged and counted.
    pub async fn recover(&self, batch: u32) -> Result<Round> {
        self.recover_each(batch, |_| ()).await
    }

    /// Recovers as [`TwoPhase::recover`] does, and reports the outcome of each transaction that it has taken over.
    ///
    /// # Errors
    /// [`Error::Store`] if the search fails. A failure at a single transaction is logged and counted.
    pub async fn recover_each(&self, batch: u32, tell: impl Fn(&TwoPhaseOutcome)) -> Result<Round> {
        let mut round = Round::default();
        let left = requests::abandoned(self.fields(), self.sources.clock.now(), self.options.abandoned_after);
        let mut left = self.transactions.each_of(left, doc! { &self.fields().last_modified: 1 }, batch);
        while round.done < u64::from(batch)
            && let Some(document) = left.next().await?
        {
            self.recover_counted(&document, &mut round, &tell).await;
        }
        Ok(Round { more: round.done >= u64::from(batch), ..round })
    }

    /// Recovers a transaction, and counts it.
    async fn recover_counted(&self, document: &Document, round: &mut Round, tell: &impl Fn(&TwoPhaseOutcome)) {
        let id = document.get("_id").cloned().unwrap_or(Bson::Null);
        let span = tracing::info_span!("two_phase.recover", %id);
        match self.recover_one(document).instrument(span.clone()).await {
            Ok(Some(outcome)) => {
                self.count(Counted::TransactionTakenOver);
                span.in_scope(|| tracing::info!(?outcome, "a transaction was recovered"));
                tell(&outcome);
                round.done += 1;
            }
            // Another process was faster.
            Ok(None) => {}
            Err(error) => {
                span.in_scope(
                    || tracing::warn!(%error, "a transaction could not be recovered, it is tried again later"),
                );
                round.failed += 1;
            }
        }
    }

    async fn recover_one(&self, document: &Document) -> Result<Option<TwoPhaseOutcome>> {
        let seen = Record::read(&self.transactions, document, self.fields())?;
        let Request { filter, update } = requests::take_over(self.fields(), &seen, self.application());
        if !self.transactions.update_one(&filter, &update).await? {
            // An attempt of this process whose answer was lost may have taken it over.
            let now = self.show(seen.id.clone()).await?;
            let ours = |now: &Record| now.application.as_deref() == Some(self.application()) && !now.state.is_final();
            return match now.filter(ours) {
                Some(now) => self.drive(now).await.map(Some),
                None => Ok(None),
            };
        }
        self.drive(Record { application: Some(self.application().to_owned()), ..seen }).await.map(Some)
    }

    /// Repairs participants that have the id of a finished transaction ([`Remedy`](super::Remedy)): it takes back
    /// updates whose requests arrived late, and releases participants that were not released. It reads all
    /// participants with transactions under way, `page` at a time. A participant whose remedy is unclear is logged,
    /// and counted as failed.
    ///
    /// # Errors
    /// [`Error::Store`] if the search fails. A failure at a single participant is logged and counted.
    pub async fn repair(&self, page: u32) -> Result<Round> {
        let mut round = Round::default();
        for namespace in self.collections() {
            let documents = self.transactions.at(namespace.clone());
            let mut pages = documents.pages(&self.under_way(), page).await?;
            while let Some(found) = pages.next().await? {
                self.repair_page(&documents, &found, &mut round).await?;
            }
        }
        Ok(round)
    }

    async fn repair_page(&self, documents: &Steps, page: &[Document], round: &mut Round) -> Result<()> {
        let over = self.over(page).await?;
        for document in page {
            let place = document.get("_id").cloned().unwrap_or(Bson::Null);
            for id in self.pending(document) {
                let Some(over) = over.get(&key_of(id)?) else { continue };
                let span = tracing::info_span!("two_phase.repair", transaction = %id, participant = %place);
                match self.repair_one(documents, document, over).instrument(span.clone()).await {
                    Ok(true) => {
                        self.count(Counted::ParticipantRepaired);
                        round.done += 1;
                    }
                    Ok(false) => {}
                    Err(error) => {
                        span.in_scope(
                            || tracing::warn!(%error, "a participant of a finished transaction could not be repaired"),
                        );
                        round.failed += 1;
                    }
                }
            }
        }
        Ok(())
    }

    pub(super) fn pending<'a>(&self, document: &'a Document) -> impl Iterator<Item = &'a Bson> {
        document.get_array(&self.fields().pending).into_iter().flatten()
    }

    /// Returns those of the transactions under way in these documents that are finished, by id; the error describes a
    /// transaction that cannot be read. A missing transaction may belong to a process that keeps its transactions in
    /// another collection.
    async fn over(&self, page: &[Document]) -> Result<HashMap<Vec<u8>, Result<Record>>> {
        let ids: Vec<Bson> = page.iter().flat_map(|document| self.pending(document)).cloned().collect();
        let states: Vec<_> = State::ALL.into_iter().filter(|state| state.is_final()).map(State::name).collect();
        let limit = u32::try_from(ids.len()).unwrap_or(u32::MAX);
        if limit == 0 {
            return Ok(HashMap::new());
        }
        let filter = doc! { "_id": one_of(ids), &self.fields().state: { "$in": states } };
        let mut over = HashMap::new();
        for document in self.transactions.find(&filter, &doc! {}, limit).await? {
            let id = document.get("_id").cloned().unwrap_or(Bson::Null);
            over.insert(key_of(&id)?, Record::read(&self.transactions, &document, self.fields()));
        }
        Ok(over)
    }

    async fn repair_one(&self, documents: &Steps, document: &Document, over: &Result<Record>) -> Result<bool> {
        let record = over.as_ref().map_err(Clone::clone)?;
        let place = document.get("_id").unwrap_or(&Bson::Null);
        let by = self.by_settings_of(record)?;
        let ours = |participant: &Participant| {
            participant.namespace == *documents.namespace() && same_id(&participant.id, place)
        };
        let unclear =
            |what: &str| Error::invalid(format!("{what} transaction {}: another program has changed it", record.id));
        let Some(participant) = by.participants(record)?.into_iter().find(ours) else {
            return Err(unclear("the document carries the id, and is no participant of"));
        };
        let remedy = by.remedy(document, &record.id, record.state);
        match by.remedied(&record.id, &participant, remedy, record.state)? {
            Some(Request { filter, update }) => {
                tracing::info!(?remedy, state = %record.state, "a participant of a finished transaction is repaired");
                documents.update_one(&filter, &update).await
            }
            None => Err(unclear("the document carries the id both as under way and as finished of")),
        }
    }

    /// Runs [`TwoPhase::recover`] and [`TwoPhase::repair`] in the background.
    ///
    /// # Errors
    /// [`Error::Invalid`] for options that are out of range.
    pub fn spawn_recovery(&self, options: RunnerOptions, cancel: &CancellationToken) -> Result<Runner> {
        let two_phase = self.clone();
        Runner::spawn("two_phase.recovery", &self.sources, options, cancel, move |batch| {
            let two_phase = two_phase.clone();
            async move {
                let (recovered, repaired) = (two_phase.recover(batch).await?, two_phase.repair(batch).await?);
                Ok(Round {
                    done: recovered.done + repaired.done,
                    failed: recovered.failed + repaired.failed,
                    more: recovered.more,
                })
            }
        })
    }

    /// Carries out waiting transactions in the background, at most a batch in each round.
    ///
    /// # Errors
    /// [`Error::Invalid`] for options that are out of range.
    pub fn spawn_worker(&self, options: RunnerOptions, cancel: &CancellationToken) -> Result<Runner> {
        let two_phase = self.clone();
        Runner::spawn("two_phase.worker", &self.sources, options, cancel, move |batch| {
            let two_phase = two_phase.clone();
            async move {
                let mut round = Round::default();
                while round.done < u64::from(batch) && two_phase.run_next().await?.is_some() {
                    round.done += 1;
                }
                Ok(Round { more: round.done >= u64::from(batch), ..round })
            }
        })
    }
}
