//! The cache of totals and the queue of views, which change together in one atomic step.
//!
//! # The problem
//! A total in a cache and an event in a queue are two things, and a third, the stored total, lags behind both. A process that reads
//! the stored total, adds a view and writes the cache may overwrite what another wrote in between (two racing first views), and a
//! cache entry that is evicted before its views are saved comes back smaller.
//!
//! # The idea
//! For each item that is cached, an [entry](state::Entry) keeps the *stored* total and the *pending* views, those of events that no batch
//! has saved and acknowledged. The total is their sum. A view adds to `pending`; the acknowledgement of a batch moves its views from
//! `pending` to `stored`, so the total does not change while views are saved. An entry with pending views, or with a deletion that is not
//! acknowledged, is never evicted. So an item without an entry has no such events, and its stored total is all of it.
//!
//! Each kind has an *epoch*, which each claim, acknowledgement, deletion and refresh increases. A reader notes it ([`Reading::fence`]) before it asks
//! the store for a total, and hands it in with that total: if the epoch is still the same, no batch was saved and acknowledged in
//! between, and the total is right.
//!
//! ```text
//!   instance A                      buffer                            instance B                    store
//!   increment_if_exists(ad 7) ->    absent                                                          ad 7: 5
//!   read(ad 7)                ->    absent, epoch 40
//!                                   absent, epoch 40     <-           read(ad 7)
//!   5                         <-------------------------------------------------------------------- find
//!                                                                     5                   <-------- find
//!   upsert(ad 7, 5 at 40)     ->    stored 5, pending 1  -> 6
//!                                   stored 5, pending 2  <-           upsert(ad 7, 5 at 40)  -> 7
//! ```
//!
//! A *deletion* is an event of the queue, too. Its number parts the views before it, which are dropped wherever they are, from those
//! after it, which begin at zero. When a deletion is saved, the item's figures of before are dropped, so no later event may be in them: an event waits while
//! a batch has a deletion of its item that is not acknowledged.
//!
//! ```text
//!   instance A                      queue                             instance B                    store
//!                                   1: ad 7 deleted, 2: ad 7 viewed                                 ad 7: 5
//!   claim one event           ->    batch 1
//!                                   2 waits for batch 1  <-           claim                         if B saved 2 now: 6,
//!   save, acknowledge         ->    2                                                               then A: 0, and 2 is lost
//!                                   batch 2              <-           claim, save                   ad 7: 1
//! ```
//!
//! # Totals that something else changes
//! An import adds to stored totals, and no event says so. [`Buffer::refresh`] puts the new totals in the place of the old ones. It needs a moment
//! at which no batch is claimed: then the stored totals have the acknowledged views and no others, as the entries do. Between the import and that
//! moment, an entry has the old total; an item without an entry could get one with the old or the new total. So an item gets its entry
//! before the import ([`Counters::save_import`](crate::Counters::save_import)), and no reader sees the new total before the refresh:
//!
//! ```text
//!   import                            buffer                         a reader                 store
//!   fill(ad 7, 5 at 40)         ->    stored 5
//!   add 100                     --------------------------------------------------------->    ad 7: 105
//!                                     stored 5 (a total)      <-     read(ad 7)
//!   read(ad 7)                  ->    epoch 40
//!   105                         <---------------------------------------------------------    find
//!   refresh(ad 7, 105 at 40)    ->    no entry, epoch 41
//!                                     absent, epoch 41        <-     read(ad 7)
//!                                                                    105              <---    find
//! ```
//!
//! Source: seed 3 (`IncrementIfExists`, `Upsert`, the reliable queue), made exact.

use std::time::Duration;

use async_trait::async_trait;
use handfast_store::Sources;
use jiff::civil::Date;

use crate::{
    Batch, COUNTED_TOTAL_MAX, Error, IdempotencyKey, Item, ItemId, Kind, Result, Salt, SequenceNumber, View, hex,
};

mod arrivals;
mod embedded;
mod instances;
mod memory;
mod redis;
pub(crate) mod state;

pub use embedded::{EmbeddedBuffer, EmbeddedBufferOptions};
pub use instances::{Instance, InstanceReport};
pub use memory::MemoryBuffer;
pub use redis::{RedisBuffer, RedisBufferOptions, RedisHealth, RedisScripts};

/// The maximum number of items in a batch. A data directory commits one transaction at a time: one of thousands of items would keep all views waiting
/// for a quarter of a second.
pub const BATCH_ITEMS_MAX: usize = 500;

impl Total {
    /// Fails if the total would be too large with so many more views.
    fn ensure_countable(self, views: u32) -> Result<()> {
        match self.views.saturating_add(views.into()) > COUNTED_TOTAL_MAX {
            true => Err(Error::TotalTooLarge { views: self.views }),
            false => Ok(()),
        }
    }
}

impl Owner {
    /// Creates a name that no other instance has.
    pub fn new(sources: &Sources) -> Self {
        Owner(hex::encode(&sources.uuid()).into())
    }

    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The total of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Total {
    /// The number of views.
    pub views: u64,
    /// Whether it is only a part of the total: the store could not be asked for what it has.
    pub partial: bool,
}

/// The result of [`Buffer::increment_if_exists`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IncrementOutcome {
    /// The view was counted, or a request with its key was counted before.
    Counted(Total),
    /// A view of its visitor was counted in this window: nothing was counted.
    Repeated(Total),
    /// The item has no entry: nothing was counted. Read the stored total and call [`Buffer::upsert`].
    Absent,
}

/// The result of [`Buffer::upsert`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpsertOutcome {
    /// The view was counted, or a request with its key was counted before.
    Counted(Total),
    /// A view of its visitor was counted in this window: nothing was counted.
    Repeated(Total),
    /// The stored total may be out of date: nothing was counted. Read it again.
    Outdated,
}

/// The state of a kind's queue at one moment; a stored total that is read afterwards is right as long as it has not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fence(pub u64);

impl Fence {
    /// The fence behind which no stored total is taken.
    pub const NONE: Fence = Fence(u64::MAX);
}

/// A stored total, read after its fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The fence that was read before the total.
    pub fence: Fence,
    /// The total in the store; 0 for an item that it does not have.
    pub total: u64,
}

/// The totals of the entries of some items.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    /// The total of each item, in the order of the ids; `None` for one without an entry.
    pub totals: Vec<Option<Total>>,
    /// The state of the queue as of before the totals; [`Fence::NONE`] if the totals of all ids are whole and the buffer did not look.
    pub fence: Fence,
}

/// The name of an instance that saves batches: a random one for each start of a program.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner(pub(crate) Box<str>);

/// The contents of a kind's queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueDepth {
    /// Events that no batch has claimed.
    pub pending: u64,
    /// Batches that are not acknowledged.
    pub batches: u64,
    /// The number of the oldest event that is not acknowledged; if there is none, the next number.
    pub oldest: SequenceNumber,
    /// The number that the next event gets.
    pub next: SequenceNumber,
    /// The time for which that event has waited, as far as this process has seen the queue; `None` if there is none. It begins anew with the process. It
    /// may be too long by a second, or by a two-thousandth of the time since the queue was empty if that is more; in Redis also by the time between two
    /// looks at the queue, of which each pass that saves views is one.
    pub oldest_age: Option<Duration>,
}

/// The number of idempotency keys that a buffer remembers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RememberedKeys {
    /// The number of keys.
    pub keys: u64,
    /// The number at which requests with further ones are refused.
    pub keys_max: u64,
}

/// A cache of totals and a queue of views. Each method that changes something is one atomic step; a failed one says whether it may have been
/// applied. A reading has each total as of one moment, and several may be of different ones.
#[async_trait]
pub trait Buffer: Send + Sync + 'static {
    /// Returns a short name for messages and metrics: `embedded`, `redis`.
    fn name(&self) -> &'static str;

    /// Fails if views cannot be counted now.
    ///
    /// # Errors
    /// [`Error::Full`] if a queue has no place; [`Error::Buffer`] if the buffer does not answer.
    async fn check(&self) -> Result<()>;

    /// Fails if the views in the queue may not be saved: they are those of another store, or the store has another queue. Each pass asks first.
    ///
    /// # Errors
    /// [`Error::WrongQueue`], which says what belongs together; [`Error::Buffer`] and
    /// [`Error::Store`] if it cannot be found out.
    async fn check_before_saving(&self) -> Result<()> {
        Ok(())
    }

    /// Counts a view if its item has an entry.
    ///
    /// # Errors
    /// [`Error::TotalTooLarge`] if the total would be above [`COUNTED_TOTAL_MAX`];
    /// [`Error::Full`] if the queue has no place; [`Error::KeysFull`] if the key cannot be remembered;
    /// [`Error::Buffer`].
    async fn increment_if_exists(&self, view: &View) -> Result<IncrementOutcome>;

    /// Counts a view, and makes an entry with the stored total if there is none. Without a stored total (the store is down) the total
    /// of the entry is partial.
    ///
    /// # Errors
    /// [`Error::TotalTooLarge`] if the total would be above [`COUNTED_TOTAL_MAX`];
    /// [`Error::Full`] if the queue has no place; [`Error::KeysFull`] if the key cannot be remembered;
    /// [`Error::Buffer`].
    async fn upsert(&self, view: &View, stored: Option<Stored>) -> Result<UpsertOutcome>;

    /// Returns the cached totals of items, and the state of the queue as of before them.
    async fn read(&self, kind: &Kind, ids: &[ItemId]) -> Result<Reading>;

    /// Makes an entry with a stored total, or completes a partial one, and returns the item's total; `None` if the stored total was not taken. A
    /// partial entry is not completed while a batch is claimed, as the store may have saved it or not.
    async fn fill(&self, item: &Item, stored: Stored) -> Result<Option<Total>>;

    /// Sets the stored totals of items that have entries, because something else than a batch has changed them in the store: an import or a repair.
    /// The totals were read after the change and after the fence. Returns `false`, and sets nothing, if the fence has changed since or a batch is claimed, as the
    /// store may have saved it or not: read fence and totals again.
    ///
    /// - An entry that differs and that the queue does not need is removed: the stored total is all of it.
    /// - An item with a deletion that is not acknowledged keeps its total: what was stored before is dropped when the deletion is saved.
    /// - The epoch increases, so that nobody puts in a total that was read before.
    async fn refresh(&self, kind: &Kind, totals: &[(ItemId, u64)], fence: Fence) -> Result<bool>;

    /// Lets entries that the queue does not need stay as long as new ones, so that none leaves the cache while something else changes its stored total.
    async fn renew(&self, kind: &Kind, ids: &[ItemId]) -> Result<()>;

    /// Deletes an item: its total is 0 from now on, and the views before are dropped wherever they are. A deletion with a key that was carried out
    /// before is not carried out again. The keys of deletions and those of views are apart.
    ///
    /// # Errors
    /// [`Error::Full`] if the queue has no place; [`Error::KeysFull`] if the key cannot be remembered; [`Error::Buffer`].
    async fn delete(&self, item: &Item, key: Option<&IdempotencyKey>) -> Result<()>;

    /// Returns the kinds that have had a view.
    async fn kinds(&self) -> Result<Vec<Kind>>;

    /// Returns the batch of this owner that is not acknowledged; if it has none, moves the oldest events that no batch has, `events_max`
    /// at most and of [`BATCH_ITEMS_MAX`] items at most, into a new one. So a claim whose answer was lost is repeated by the same call. An event of an item whose deletion is in another batch stays in
    /// the queue, with those behind it, until that batch is acknowledged.
    async fn claim(&self, kind: &Kind, owner: &Owner, events_max: usize) -> Result<Option<Batch>>;

    /// Gives the owner a batch that was claimed or taken over longer than `idle` ago and is not acknowledged: who had it may be dead. Returns
    /// whether there was one; [`Buffer::claim`] returns it. An owner that has a batch gets no other.
    async fn take_over(&self, kind: &Kind, owner: &Owner, idle: Duration) -> Result<bool>;

    /// Removes a batch that was saved, and returns whether it was there, with the same first and last event. If not, it was acknowledged before, or the
    /// buffer has lost it.
    async fn acknowledge(&self, batch: &Batch) -> Result<bool>;

    /// Makes the totals of items partial, because the store got views of them that the buffer has lost: a total that was read before lacks them. It is the
    /// least that it can be, until it is [filled](Buffer::fill).
    async fn make_partial(&self, kind: &Kind, ids: &[ItemId]) -> Result<()>;

    /// Returns the salt under which the visitors of a day are hashed, the same for all instances; the first call of a day makes it.
    async fn visitor_salt(&self, day: Date) -> Result<Salt>;

    /// Returns the number of idempotency keys that are remembered; `None` for a buffer that has no maximum of its own, as Redis has one for all its memory.
    fn remembered_keys(&self) -> Option<RememberedKeys> {
        None
    }

    /// Returns the contents of a kind's queue.
    async fn depth(&self, kind: &Kind) -> Result<QueueDepth>;

    /// Lists an instance among those that run until its lifetime is over; a later announcement of the same name replaces an earlier one.
    ///
    /// # Errors
    /// [`Error::Buffer`]. Nothing else depends on announcements.
    async fn announce(&self, report: InstanceReport, lifetime: Duration) -> Result<()>;

    /// Removes an instance from those that run.
    ///
    /// # Errors
    /// [`Error::Buffer`]: it leaves the list when its lifetime is over.
    async fn withdraw(&self, name: &Owner) -> Result<()>;

    /// Returns the instances that have announced themselves and whose lifetime is not over, in the order of their names.
    ///
    /// # Errors
    /// [`Error::Buffer`]. Reports that cannot be read are left out.
    async fn instances(&self) -> Result<Vec<Instance>>;
}
