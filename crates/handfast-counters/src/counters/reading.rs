//! Reading totals and figures, also while a part of the counters is stopped and does not even refuse: totals are answered within
//! [`CountersOptions::read_time_max`](crate::CountersOptions::read_time_max).
//!
//! The buffer gets a half of the time, and then the store the other one:
//!
//! | does not answer | total in the cache | other totals | days and lists |
//! | --- | --- | --- | --- |
//! | the buffer | that of the store, partial | those of the store, partial | are read from the store |
//! | the store | is read | [`Error::Store`] | [`Error::Store`] |
//!
//! A list of the top items may read millions of documents. So what is late is no sign of a store that does not answer: it is asked a small
//! question then, and waited for as long as it answers such questions.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use jiff::civil::Date;

use super::{Counters, IDS_MAX};
use crate::buffer::{Reading, Stored, Total};
use crate::{DayViews, Error, Item, ItemId, Kind, Result, TopItem, time_limit};

/// The item that is read to see whether the store answers; it need not be there.
const PROBE: (&str, &str) = ("probe", "probe");

impl Counters {
    /// Reads the stored total of an item behind a fence; `None` if the store is down.
    pub(super) async fn stored(&self, item: &Item) -> Result<Option<Stored>> {
        let ids = std::slice::from_ref(&item.id);
        let fence = self.buffer.read(&item.kind, ids).await?.fence;
        match time_limit::of_store(self.part_time_max(), self.storage.totals(&item.kind, ids)).await {
            Ok(totals) => Ok(totals.first().map(|total| Stored { fence, total: *total })),
            Err(error @ Error::Damaged { .. }) => Err(error),
            Err(error) => {
                tracing::debug!(%item, %error, "the store has not told the total of an item");
                Ok(None)
            }
        }
    }

    /// Returns the totals of items, in their order; 0 for an item that was never viewed.
    ///
    /// # Errors
    /// [`Error::Invalid`] for more than [`IDS_MAX`] ids; [`Error::Store`] if the store is needed and down. If the buffer is down, the
    /// totals are those of the store, and partial: views that wait in the queue are not in them.
    pub async fn totals(&self, kind: &Kind, ids: &[ItemId]) -> Result<Vec<Total>> {
        if ids.len() > IDS_MAX {
            return Err(Error::invalid(format!("{} ids are more than {IDS_MAX}, the limit of a request", ids.len())));
        }
        let (part, begun) = (self.part_time_max(), self.sources.clock.elapsed());
        let stored_totals = |ids| time_limit::of_store(part, self.storage.totals(kind, ids));
        let reading = match time_limit::of_buffer(part, self.buffer.read(kind, ids)).await {
            Ok(reading) => reading,
            Err(error @ (Error::Buffer { .. } | Error::WrongQueue { .. })) => {
                tracing::debug!(%kind, %error, "the totals of the store are used");
                let stored = stored_totals(ids).await?;
                return Ok(stored.into_iter().map(|views| Total { views, partial: true }).collect());
            }
            Err(error) => return Err(error),
        };
        let wanted: Vec<ItemId> =
            ids.iter().zip(&reading.totals).filter(|(_, total)| is_unknown(total)).map(|(id, _)| id.clone()).collect();
        if wanted.is_empty() {
            return Ok(reading.totals.into_iter().flatten().collect());
        }
        let stored = match stored_totals(&wanted).await {
            Ok(stored) => stored,
            // What is partial is shown as such.
            Err(error) if reading.totals.iter().any(Option::is_none) => return Err(error),
            Err(_) => return Ok(reading.totals.into_iter().flatten().collect()),
        };
        let taken = self.sources.clock.elapsed().saturating_sub(begun);
        self.filled(kind, ids, reading, stored, self.options.read_time_max.saturating_sub(taken)).await
    }

    /// Puts stored totals into the cache as long as there is time, and returns the totals of all ids. `stored` are those that the reading does not know.
    async fn filled(
        &self,
        kind: &Kind,
        ids: &[ItemId],
        reading: Reading,
        stored: Vec<u64>,
        time: Duration,
    ) -> Result<Vec<Total>> {
        let mut filled = Vec::with_capacity(stored.len());
        let unknown = ids.iter().zip(&reading.totals).filter(|(_, total)| is_unknown(total));
        let filling = time_limit::of_buffer(time, async {
            for ((id, _), total) in unknown.zip(&stored) {
                let item = Item { kind: kind.clone(), id: id.clone() };
                filled.push(self.buffer.fill(&item, Stored { fence: reading.fence, total: *total }).await?);
            }
            Ok(())
        });
        match filling.await {
            // The totals are known without it.
            Err(error @ Error::Buffer { .. }) => tracing::debug!(%kind, %error, "a total was not put into the cache"),
            other => other?,
        }
        let mut stored = stored.into_iter().zip(filled.into_iter().chain(std::iter::repeat(None)));
        let totals = reading.totals.into_iter().map(|total| match total {
            Some(total) if !total.partial => total,
            cached => match (stored.next().unwrap_or_default(), cached) {
                ((_, Some(whole)), _) => whole,
                // Right as of the fence, whatever came since.
                ((views, None), None) => Total { views, partial: false },
                // The store may have some of the pending views, so the larger of the two is what is known.
                ((views, None), Some(pending)) => Total { views: views.max(pending.views), partial: true },
            },
        });
        Ok(totals.collect())
    }

    /// Returns the saved views of each day from `from` to `to`. Views of the last seconds may still wait in the queue.
    ///
    /// # Errors
    /// Those of [`Storage::daily`](crate::Storage::daily).
    pub async fn daily(&self, item: &Item, from: Date, to: Date) -> Result<Vec<DayViews>> {
        self.while_store_answers(self.storage.daily(item, from, to)).await
    }

    /// Returns the items with the most saved views, altogether or on a day.
    ///
    /// # Errors
    /// Those of [`Storage::top`](crate::Storage::top).
    pub async fn top(&self, kind: &Kind, items: usize, day: Option<Date>) -> Result<Vec<TopItem>> {
        self.while_store_answers(self.storage.top(kind, items, day)).await
    }

    /// Returns what the store answers, however long that takes, unless it does not answer a small question meanwhile.
    pub(crate) fn while_store_answers<T>(
        &self,
        answer: impl Future<Output = Result<T>>,
    ) -> impl Future<Output = Result<T>> {
        self.while_answered(answer, || self.ask_store(self.part_time_max()))
    }

    /// Returns an answer, and asks a small question from time to time until it is there. Fails if the question does.
    pub(super) async fn while_answered<T, Q: Future<Output = Result<()>>>(
        &self,
        answer: impl Future<Output = Result<T>>,
        ask: impl Fn() -> Q,
    ) -> Result<T> {
        let mut answer = pin!(answer);
        loop {
            if let Ok(answer) = tokio::time::timeout(self.part_time_max(), answer.as_mut()).await {
                return answer;
            }
            tokio::select! {
                biased;
                answer = answer.as_mut() => return answer,
                answers = ask() => answers?,
            }
        }
    }

    /// Fails if the store does not answer a small question in time.
    pub(crate) async fn ask_store(&self, time: Duration) -> Result<()> {
        time_limit::of_store(time, self.question()).await
    }

    /// Asks the store a small question.
    pub(super) async fn question(&self) -> Result<()> {
        let (kind, id) = (Kind::new(PROBE.0)?, ItemId::new(PROBE.1)?);
        self.storage.totals(&kind, &[id]).await.map(drop)
    }

    /// Returns the time that a read waits for the buffer, and for the store.
    pub(super) fn part_time_max(&self) -> Duration {
        self.options.read_time_max / 2
    }
}

/// Returns whether the store has to be asked for a total.
fn is_unknown(total: &Option<Total>) -> bool {
    total.is_none_or(|total| total.partial)
}
