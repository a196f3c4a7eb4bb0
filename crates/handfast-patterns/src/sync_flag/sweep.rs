//! The sweep, which carries changes whose flags were left behind.

use std::time::Duration;

use bson::{Bson, DateTime, Document, doc};
use tracing::Instrument;

use super::{Link, Main, SyncFlag, requests};
use crate::metrics::{self, Event, Level};
use crate::steps::Steps;
use crate::{CancellationToken, Result, Round, Runner, RunnerOptions};

/// The number and age of the documents that are not in sync.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Staleness {
    /// Main documents with a flag.
    pub mains: u64,
    /// Copies with a flag of their own.
    pub copies: u64,
    /// The age of the oldest of these flags: no copy has been out of date for longer.
    pub oldest: Option<Duration>,
}

impl SyncFlag {
    /// Carries the changes of main documents and new copies (at most `batch` of each kind) whose flag is older than
    /// [`abandoned_after`](super::SyncFlagOptions::abandoned_after), or further than that in the future because a
    /// clock was ahead. It may run in any process at any time. A document that fails is passed over, so that it keeps
    /// no others waiting.
    ///
    /// # Errors
    /// [`Error::Store`](crate::Error::Store) if the search fails. A failure at a single document is logged and counted.
    pub async fn sweep(&self, batch: u32) -> Result<Round> {
        let mut round = Round::default();
        for link in [None].into_iter().chain(self.options.links.iter().map(Some)) {
            round.more |= self.sweep_flags(link, batch, &mut round).await?;
        }
        Ok(round)
    }

    /// Sweeps main documents, or copies of a link, the oldest flag first; returns whether there may be more than `batch`.
    async fn sweep_flags(&self, link: Option<&Link>, batch: u32, round: &mut Round) -> Result<bool> {
        let (steps, flag) = self.flags_of(link);
        let mut swept = 0;
        let abandoned = requests::abandoned(flag, self.now(), self.options.abandoned_after);
        let mut abandoned = steps.each_of(abandoned, doc! { flag: 1 }, batch);
        while swept < batch
            && let Some(document) = abandoned.next().await?
        {
            swept += u32::from(self.sweep_one(link, document, round).await);
        }
        Ok(swept >= batch)
    }

    /// Sweeps a document and counts it; returns whether its flag is removed by this.
    async fn sweep_one(&self, link: Option<&Link>, document: Document, round: &mut Round) -> bool {
        let id = id_of(&document);
        let (span, swept) = match link {
            None => {
                let span = tracing::info_span!("sync_flag.sweep", main = %id);
                (span.clone(), self.sweep_main(document).instrument(span).await)
            }
            Some(link) => {
                let span = tracing::info_span!("sync_flag.sweep", copy = %id, target = %link.target);
                (span.clone(), self.refresh_copy(link, &id).instrument(span).await)
            }
        };
        let before = round.done;
        span.in_scope(|| self.count_swept(round, swept));
        round.done > before
    }

    /// Returns the collection and the field of the flags: those of main documents, or of the copies of a link.
    fn flags_of<'a>(&'a self, link: Option<&'a Link>) -> (Steps, &'a str) {
        match link {
            Some(link) => (self.copies(link), &link.syncing),
            None => (self.mains.clone(), &self.fields().syncing),
        }
    }

    async fn sweep_main(&self, document: Document) -> Result<bool> {
        self.carry(&Main::read(&self.mains, document, self.fields())?).await
    }

    /// Counts a document that was swept, unless another process was faster.
    fn count_swept(&self, round: &mut Round, swept: Result<bool>) {
        match swept {
            Ok(swept) => {
                if swept {
                    tracing::info!("a flag that was left behind is removed");
                }
                self.count(Event::FlagSwept, u64::from(swept));
                round.done += u64::from(swept);
            }
            Err(error) => {
                tracing::warn!(%error, "a change that was left behind could not be completed, it is tried again later");
                round.failed += 1;
            }
        }
    }

    /// Runs [`SyncFlag::sweep`] in the background.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) for options that are out of range.
    pub fn spawn_sweep(&self, options: RunnerOptions, cancel: &CancellationToken) -> Result<Runner> {
        let flag = self.clone();
        Runner::spawn("sync_flag.sweep", &self.sources, options, cancel, move |batch| {
            let flag = flag.clone();
            async move { flag.sweep(batch).await }
        })
    }

    /// Reads the staleness regularly in the background, for the gauges of [`metrics`].
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) for options that are out of range.
    pub fn spawn_staleness(&self, options: RunnerOptions, cancel: &CancellationToken) -> Result<Runner> {
        let flag = self.clone();
        Runner::spawn_look("sync_flag.staleness", &self.sources, options, cancel, move || {
            let flag = flag.clone();
            async move { flag.staleness().await }
        })
    }

    /// Returns the number and age of the flags, and sets the gauges of [`metrics`] to them.
    pub async fn staleness(&self) -> Result<Staleness> {
        let mut staleness = Staleness::default();
        let (mains, oldest) = self.flagged(None).await?;
        staleness.mains = mains;
        let mut oldest: Vec<_> = oldest.into_iter().collect();
        for link in &self.options.links {
            let (copies, since) = self.flagged(Some(link)).await?;
            staleness.copies += copies;
            oldest.extend(since);
        }
        let age = |since: &DateTime| self.now().timestamp_millis().saturating_sub(since.timestamp_millis());
        let oldest = oldest.iter().map(age).max();
        staleness.oldest = oldest.map(|millis| Duration::from_millis(u64::try_from(millis).unwrap_or(0)));
        let namespace = self.mains.namespace();
        metrics::level(Level::Flags("mains"), namespace, staleness.mains as f64);
        metrics::level(Level::Flags("copies"), namespace, staleness.copies as f64);
        metrics::age(Level::OldestFlag, namespace, staleness.oldest);
        Ok(staleness)
    }

    /// Returns how many documents have a flag, and the oldest one: main documents, or copies of a link.
    async fn flagged(&self, link: Option<&Link>) -> Result<(u64, Option<DateTime>)> {
        let (steps, field) = self.flags_of(link);
        // The filter is a range of dates, for which a store uses the index even without a sort.
        let flagged = doc! { field: { "$gte": DateTime::MIN } };
        let oldest = steps.find(&flagged, &doc! { field: 1 }, 1).await?;
        let since = oldest.first().and_then(|oldest| crate::value::at_path(oldest, field)?.as_datetime().copied());
        Ok((steps.count(&flagged).await?, since))
    }

    fn now(&self) -> DateTime {
        self.sources.clock.now()
    }
}

fn id_of(document: &Document) -> Bson {
    document.get("_id").cloned().unwrap_or(Bson::Null)
}
