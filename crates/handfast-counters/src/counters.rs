//! Counting, reading and saving views: the buffer and the storage together.

mod begun_batches;
mod pass_limit;
mod passes;
mod reading;
mod stored_changes;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use handfast_store::Sources;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use tokio::sync::Notify;

use crate::buffer::{Buffer, IncrementOutcome, Owner, Total, UpsertOutcome};
use crate::readiness::LastPass;
use crate::visitor::VISITOR_WINDOW_MAX;
use crate::{Error, IdempotencyKey, Item, Kind, Result, Saved, Storage, View, Visitor};

use begun_batches::{BegunBatch, BegunBatches};
use pass_limit::PassLimit;

pub use passes::PassError;

/// How often a stored total is read again because the queue has changed meanwhile; then the total is partial.
const UPSERT_ATTEMPTS: usize = 5;
/// The time after which a batch that somebody waits for is taken over: one that holds up others, or that a command needs saved. Saving one takes less than
/// a second; one that two instances save is added once.
pub const AWAITED_IDLE: Duration = Duration::from_secs(10);
/// The number of full batches for which a pass begins before [`CountersOptions::flush_interval`] is over. Fewer would make a short burst of views wait for their own
/// saving.
const EARLY_PASS_BATCHES: usize = 10;
/// The maximum number of ids in one request.
pub const IDS_MAX: usize = 1_000;

/// The settings of counters.
#[derive(Clone, Debug)]
pub struct CountersOptions {
    /// The time zone in which days begin and end.
    pub time_zone: TimeZone,
    /// The time between two passes that save views.
    pub flush_interval: Duration,
    /// The maximum number of events that one transaction saves. A pass begins early when this instance has counted ten times as many since the
    /// last one.
    pub batch_events: usize,
    /// The time after which another instance saves a batch that its owner has not acknowledged. It may be short: a batch that two instances save is added
    /// once.
    pub idle: Duration,
    /// The number of days, 1 or more, for which daily figures are kept at least; `None` for ever. Whole months that are older become a part of the
    /// base of their item's total ([`Storage::trim`]).
    pub keep_days: Option<u32>,
    /// The time within which totals are read, or an error is returned. Buffer and store get a half of it each, so that a buffer which does
    /// not answer leaves time for the store. Days and lists are waited for as long as the store answers a small question within such a half. The store gets this half as well before a view of an item that is not cached is counted. A pass that saves views ends if the store does not answer such a question; after such a pass, the next one waits for twice as long, up to eight times the half.
    pub read_time_max: Duration,
}

impl Default for CountersOptions {
    /// Days in UTC, which are kept for ever; a pass every 2 seconds, of batches of 10,000 events; 15 minutes until a batch is taken over (seed 3). A read
    /// of totals takes at most 4 seconds.
    fn default() -> Self {
        CountersOptions {
            time_zone: TimeZone::UTC,
            flush_interval: Duration::from_secs(2),
            batch_events: 10_000,
            idle: Duration::from_secs(15 * 60),
            keep_days: None,
            read_time_max: Duration::from_secs(4),
        }
    }
}

/// The result of one pass over the queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flushed {
    /// The number of batches that were saved, or had been saved before.
    pub batches: u64,
    /// The number of their views.
    pub views: u64,
}

/// The result of [`Counters::count`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountOutcome {
    /// The views were counted, now or by an earlier request with the same key.
    Counted(Total),
    /// A view of the visitor was counted in this window: nothing was counted.
    Repeated(Total),
}

/// Counters of views. Clones are the same instance.
#[derive(Clone)]
pub struct Counters {
    buffer: Arc<dyn Buffer>,
    storage: Storage,
    sources: Sources,
    options: Arc<CountersOptions>,
    owner: Owner,
    last_pass: LastPass,
    begun: Arc<BegunBatches>,
    pass_limit: Arc<PassLimit>,
    counted: Arc<CountedViews>,
}

/// The views that this instance has counted since its last pass.
#[derive(Debug, Default)]
struct CountedViews {
    requests: AtomicUsize,
    /// Notified when they are [`EARLY_PASS_BATCHES`].
    are_many: Notify,
}

impl Counters {
    /// Creates an instance over a buffer and a storage, which other instances may use, too.
    pub fn new(buffer: Arc<dyn Buffer>, storage: Storage, sources: Sources, options: CountersOptions) -> Self {
        let owner = Owner::new(&sources);
        Counters {
            buffer,
            storage,
            sources,
            options: Arc::new(options),
            owner,
            last_pass: LastPass::default(),
            begun: Arc::default(),
            pass_limit: Arc::default(),
            counted: Arc::default(),
        }
    }

    /// Returns the buffer.
    pub fn buffer(&self) -> &Arc<dyn Buffer> {
        &self.buffer
    }

    /// Returns the storage.
    pub fn storage(&self) -> &Storage {
        &self.storage
    }

    /// Returns the sources of time, randomness and ids.
    pub fn sources(&self) -> &Sources {
        &self.sources
    }

    /// Returns the settings.
    pub fn options(&self) -> &CountersOptions {
        &self.options
    }

    /// Returns the name of this instance.
    pub fn owner(&self) -> &Owner {
        &self.owner
    }

    pub(crate) fn last_pass(&self) -> &LastPass {
        &self.last_pass
    }

    /// Returns the day that it is now in the time zone of the counters.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the clock stands at no date of the calendar.
    pub fn today(&self) -> Result<Date> {
        let now = jiff::Timestamp::from_millisecond(self.sources.clock.now().timestamp_millis())
            .map_err(|error| Error::invalid(format!("the clock shows no date: {error}")))?;
        Ok(now.to_zoned(self.options.time_zone.clone()).date())
    }

    /// Counts views of an item, today, and returns its total. With a key, a request that was counted is not counted again.
    ///
    /// # Errors
    /// [`Error::Invalid`], [`Error::Full`], [`Error::KeysFull`], [`Error::Buffer`]. A store that is down is no error: the total is partial then.
    pub async fn view(&self, item: Item, views: u32, key: Option<IdempotencyKey>) -> Result<Total> {
        let view = View { key, ..View::new(item, views, self.today()?)? };
        Ok(self.count(&view).await?.total())
    }

    /// Counts a view, and returns the total of its item. The day of the view should be [today](Counters::today).
    ///
    /// # Errors
    /// Those of [`Counters::view`].
    pub async fn count(&self, view: &View) -> Result<CountOutcome> {
        let outcome = self.count_in_buffer(view).await?;
        if self.counted.requests.fetch_add(1, Ordering::Relaxed) + 1 == EARLY_PASS_BATCHES * self.options.batch_events {
            self.counted.are_many.notify_one();
        }
        Ok(outcome)
    }

    async fn count_in_buffer(&self, view: &View) -> Result<CountOutcome> {
        match self.buffer.increment_if_exists(view).await? {
            IncrementOutcome::Counted(total) => return Ok(CountOutcome::Counted(total)),
            IncrementOutcome::Repeated(total) => return Ok(CountOutcome::Repeated(total)),
            IncrementOutcome::Absent => {}
        }
        let mut attempts = UPSERT_ATTEMPTS;
        loop {
            let stored = if attempts == 0 { None } else { self.stored(&view.item).await? };
            match self.buffer.upsert(view, stored).await? {
                UpsertOutcome::Counted(total) => return Ok(CountOutcome::Counted(total)),
                UpsertOutcome::Repeated(total) => return Ok(CountOutcome::Repeated(total)),
                UpsertOutcome::Outdated if stored.is_some() => attempts -= 1,
                UpsertOutcome::Outdated => {
                    return Err(Error::damaged("a view without a stored total is never out of date"));
                }
            }
        }
    }

    /// Returns a visitor of an item for [`View::visitor`]. `name` is what tells visitors apart: a name that the caller gives them, or an address and a
    /// browser. It is not kept, and only a hash under the salt of today goes on.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a window of nothing or above [`VISITOR_WINDOW_MAX`]; [`Error::Buffer`] if the salt cannot be read.
    pub async fn visitor(&self, item: &Item, name: &str, window: Duration) -> Result<Visitor> {
        if window.is_zero() || window > VISITOR_WINDOW_MAX {
            return Err(Error::invalid(format!(
                "the window of a visitor must be longer than zero and at most {} hours",
                VISITOR_WINDOW_MAX.as_secs() / 3_600
            )));
        }
        let salt = self.buffer.visitor_salt(self.today()?).await?;
        Ok(Visitor { mark: salt.mark(item, name), window })
    }

    /// Deletes an item: its total is 0 at once, and its days go with the next pass. With a key, a deletion that arrives again, perhaps after further views, does not delete
    /// those.
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::KeysFull`], [`Error::Buffer`].
    pub async fn delete(&self, item: &Item, key: Option<&IdempotencyKey>) -> Result<()> {
        self.buffer.delete(item, key).await
    }

    /// Saves what waits in the queues of all kinds, first the batches of instances that are gone, and returns what was saved.
    ///
    /// # Errors
    /// The first error of the buffer or the store, also of a store that answers nothing; what was not saved waits for the next pass. A batch that the store may still save is
    /// saved again then, which adds it once in all.
    pub async fn flush(&self) -> Result<Flushed> {
        self.counted.requests.store(0, Ordering::Relaxed);
        let flushed = self.flush_kinds().await;
        self.last_pass.keep(&flushed, self.sources.clock.now());
        if flushed.is_ok() {
            self.pass_limit.succeeded();
        }
        flushed
    }

    async fn flush_kinds(&self) -> Result<Flushed> {
        let (mut flushed, mut failed, mut queues) = (Flushed::default(), None, Vec::new());
        // First of all kinds: a store that is away ends the pass at the first one, and the buffer knows ages from these looks.
        for kind in self.buffer.kinds().await? {
            if let Some(depth) = unless_of_kind(self.buffer.depth(&kind).await, &mut failed)? {
                queues.push((kind, depth.pending));
            }
        }
        self.in_pass(self.buffer.check_before_saving()).await?;
        for (kind, pending) in queues {
            unless_of_kind(self.flush_kind(&kind, pending, &mut flushed).await, &mut failed)?;
        }
        failed.map_or(Ok(flushed), Err)
    }

    /// Saves the batches of a kind, and the events that were `pending` at the start of the pass. Views that arrive meanwhile wait for the next one.
    async fn flush_kind(&self, kind: &Kind, pending: u64, flushed: &mut Flushed) -> Result<()> {
        let before = flushed.batches;
        let mut remaining = pending;
        let mut begun = self.begun.lock().await;
        self.finish_begun(&mut begun, kind, flushed).await?;
        loop {
            while let Some(batch) = self.buffer.claim(kind, &self.owner, self.options.batch_events).await? {
                remaining = remaining.saturating_sub(batch.events.len() as u64);
                begun.insert(kind.clone(), BegunBatch::new(batch));
                self.finish_begun(&mut begun, kind, flushed).await?;
                if remaining == 0 {
                    break;
                }
            }
            // Events that nobody may claim wait for the deletion of their item, which another instance has.
            let idle = if remaining > 0 { self.options.idle.min(AWAITED_IDLE) } else { self.options.idle };
            if !self.buffer.take_over(kind, &self.owner, idle).await? {
                break;
            }
            tracing::warn!(%kind, "a batch of another instance is saved, which has not done so in time");
        }
        if flushed.batches > before || !self.storage.is_finished(kind) {
            let oldest = self.buffer.depth(kind).await?.oldest;
            self.in_pass(self.storage.forget_batches(kind, oldest)).await?;
        }
        Ok(())
    }
}

/// Keeps the first error of a kind alone for the end of a pass: in a cluster, other kinds are on other servers, and what is damaged, or has the queue of
/// another store, is one kind.
fn unless_of_kind<T>(result: Result<T>, failed: &mut Option<Error>) -> Result<Option<T>> {
    match result {
        Ok(done) => Ok(Some(done)),
        Err(error @ (Error::Buffer { .. } | Error::WrongQueue { .. } | Error::Damaged { .. })) => {
            failed.get_or_insert(error);
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

impl CountOutcome {
    /// Returns the total of the item.
    pub fn total(self) -> Total {
        match self {
            CountOutcome::Counted(total) | CountOutcome::Repeated(total) => total,
        }
    }
}

impl Saved {
    /// Returns whether the views were added by this call.
    pub fn is_new(self) -> bool {
        self == Saved::Now
    }
}
