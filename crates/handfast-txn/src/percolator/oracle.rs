//! Timestamps: strictly increasing over all processes that share a store, also after a restart.
//!
//! One document holds the last timestamp that was given out. A process that needs more increases it, on the condition that it is
//! still below the first one needed; the process then owns all timestamps in between. If another process was faster, it increments the
//! stored value instead, without a condition. Requests that wait at the same time share one such *move*:
//!
//! ```text
//! { _id: "oracle", ts: <last timestamp given out>, at: <the store's clock at the last move>, catalog: <version> }
//!
//! ask ─┐                                                                ts < first ?  ts := first + n - 1
//! ask ─┼─> wait for the move under way ─> one move for all who wait: ──┤
//! ask ─┘                                                                else          ts := ts + n, one more round trip
//! ```
//!
//! Either move is one atomic operation that makes `ts` larger, and what it gives out lies above the `ts` before it and up to the one
//! after it: so no two moves give out the same timestamp, and a later move gives out larger ones. The second kind never fails, so a
//! process with a slow clock needs two round trips beside one with a fast clock, and not more.
//!
//! Only a move that was sent after a request serves it: a timestamp that is fetched after all locks are
//! written is therefore above that of every reader that saw the rows without them.
//!
//! The first timestamp needed is the time of day or, if that is more, the last value that this process has read here plus the time
//! that its monotonic clock has measured since. So the oracle's time does not stand still where a time of day is slow or was set
//! back, and locks of dead processes run out all the same. It may be ahead of all times of day; nothing compares the two. A clock
//! that runs far ahead would move the oracle's time ahead, and the locks of open transactions would expire. So each move has the
//! store record its own clock, and a time of day that is more than [`AHEAD_MAX`] ahead of that counts as that much ahead. Whichever
//! of the two clocks is wrong, timestamps are given out, and the oracle's time goes on.
//!
//! A move whose answer is lost may have happened: then its timestamps are not used, and the next move goes beyond them.
//!
//! The document also says which version of the [catalog](super::catalog) is in force, and each move returns it: so a
//! change of the catalog has one position in the order of all timestamps, and a process that fetches a timestamp learns of the change
//! without a further request.
//!
//! If the store is one of several, their [`Routed`](handfast_store::Routed) keeps the name of the set in the document, too. It shows a
//! process that uses the store on its own that it may not do so any more ([`StandaloneStore`](handfast_store::routed::StandaloneStore)).
//!
//! Invariants: no timestamp is given out twice; a request that is made after the reply to another one gets the larger
//! timestamp. Assumes that the store's document survives a restart of the store (its write is journaled).

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bson::{RawDocument, rawdoc};
use handfast_mql::Code;
use handfast_store::{
    Applied, DocumentStore, Error as StoreError, ErrorClass, FindAndModify, Modification, Namespace,
    Result as StoreResult, ReturnDocument, Sources, StoreExt, UpdateSpec,
};
use tokio::sync::oneshot;

use super::row::Timestamp;

/// The most by which a client's clock may lead the store's in a timestamp: less than the lifetime of a lock.
pub const AHEAD_MAX: Duration = Duration::from_secs(2);
/// The most moves that are tried for one batch. A move fails if its answer got lost, or the document did not exist.
const MOVES_MAX: usize = 4;

/// The most attempts to announce a version of the catalog to a store that does not answer.
const ANNOUNCEMENTS_MAX: usize = 3;

/// A moment in the order of all timestamps.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    pub(super) at: Timestamp,
    /// The version of the catalog that was in force then.
    pub(super) catalog: u64,
}

type Waiting = oneshot::Sender<StoreResult<Moment>>;

/// The timestamp oracle.
pub(super) struct Oracle {
    waiting: Mutex<Vec<Waiting>>,
    allocator: tokio::sync::Mutex<Allocator>,
    /// The newest version of the catalog that a move returned.
    catalog: AtomicU64,
}

impl Oracle {
    pub(super) fn new(store: Arc<dyn DocumentStore>, namespace: Namespace, sources: Sources) -> Self {
        let allocator = Allocator { store, namespace, sources, known: None };
        Oracle { waiting: Mutex::default(), allocator: tokio::sync::Mutex::new(allocator), catalog: AtomicU64::new(0) }
    }

    /// Returns the version of the catalog that was in force when this process fetched its last timestamp.
    pub(super) fn catalog(&self) -> u64 {
        self.catalog.load(Ordering::SeqCst)
    }

    /// Puts a version of the catalog in force, unless a newer one is.
    ///
    /// # Errors
    /// Returns the error of the store, after which the version may be in force.
    pub(super) async fn announce(&self, catalog: u64) -> StoreResult<()> {
        let mut allocator = self.allocator.lock().await;
        for attempt in 1.. {
            match allocator.announce(catalog).await {
                Ok(()) => break,
                // The announcement is idempotent.
                Err(error) if error.class() == ErrorClass::TransientNetwork && attempt < ANNOUNCEMENTS_MAX => {}
                Err(error) => return Err(error),
            }
        }
        self.catalog.fetch_max(catalog, Ordering::SeqCst);
        Ok(())
    }

    /// Returns a timestamp above all that were given out before the call.
    pub(super) async fn next(&self) -> StoreResult<Timestamp> {
        self.moment().await.map(|moment| moment.at)
    }

    /// Returns the present time without taking a timestamp or writing: by this machine's clock, or the last timestamp if that is ahead. Returns
    /// `None` if no timestamp was ever given out.
    pub(super) async fn peek(&self) -> StoreResult<Option<Timestamp>> {
        let allocator = self.allocator.lock().await;
        let found = allocator.store.find_one(&allocator.namespace, rawdoc! { "_id": "oracle" }).await?;
        let Some(document) = found else { return Ok(None) };
        let elapsed = allocator.sources.clock.elapsed();
        let known = known_of(&document, elapsed, elapsed)?;
        Ok(Some(Timestamp::of_millis(allocator.now_millis()).max(known.last)))
    }

    /// Returns a timestamp as [`Oracle::next`] does, with the version of the catalog that was in force when it was fetched.
    pub(super) async fn moment(&self) -> StoreResult<Moment> {
        let (sender, mut receiver) = oneshot::channel();
        self.waiting().push(sender);
        let mut allocator = self.allocator.lock().await;
        let served = receiver.try_recv();
        let is_forgotten = match served {
            Ok(moment) => return moment,
            Err(oneshot::error::TryRecvError::Closed) => true,
            Err(oneshot::error::TryRecvError::Empty) => false,
        };
        let mut batch = std::mem::take(&mut *self.waiting());
        if is_forgotten {
            // The caller that took our request was dropped.
            let (sender, again) = oneshot::channel();
            receiver = again;
            batch.push(sender);
        }
        let first = allocator.allocate(batch.len() as u64).await;
        if let Ok(first) = &first {
            self.catalog.fetch_max(first.catalog, Ordering::SeqCst);
        }
        for (place, waiting) in batch.into_iter().enumerate() {
            let moment = first.clone().map(|first| Moment { at: Timestamp(first.at.0 + place as u64), ..first });
            // The timestamp of a caller that is gone is not used.
            let _ = waiting.send(moment);
        }
        receiver.try_recv().unwrap_or_else(|_| Err(damaged("a timestamp was lost on the way")))
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Allocator {
    store: Arc<dyn DocumentStore>,
    namespace: Namespace,
    sources: Sources,
    known: Option<LastMove>,
}

/// The oracle's document after the last move.
#[derive(Clone, Copy)]
struct LastMove {
    last: Timestamp,
    /// The time on our monotonic clock when the oracle's time had reached `last`. It goes on with the clock from there.
    reached: Duration,
    /// The store's clock, in milliseconds since 1970.
    store_millis: u64,
    /// The time on our monotonic clock when the request was sent.
    asked: Duration,
}

impl Allocator {
    /// Takes `count` timestamps, at least one, and returns the first.
    async fn allocate(&mut self, count: u64) -> StoreResult<Moment> {
        let mut failures = 0;
        for _ in 0..MOVES_MAX {
            match self.try_move(count).await {
                Ok(Some(first)) => return Ok(first),
                // The document does not exist: the next look makes it.
                Ok(None) => self.known = None,
                Err(error) if error.class() == ErrorClass::TransientNetwork && failures == 0 => failures += 1,
                Err(error) => return Err(harmless(error)),
            }
        }
        Err(damaged(format_args!("{} was not there {MOVES_MAX} times in a row", self.namespace)))
    }

    /// Returns `None` if the document does not exist.
    async fn try_move(&mut self, count: u64) -> StoreResult<Option<Moment>> {
        let known = match self.known {
            Some(known) => known,
            None => self.look().await?,
        };
        match self.move_to_time(known, count).await? {
            Some(first) => Ok(Some(first)),
            None => self.move_further(count).await,
        }
    }

    /// Moves the oracle to the time by this process's clocks. Returns `None` if another process has moved it there or beyond.
    async fn move_to_time(&mut self, known: LastMove, count: u64) -> StoreResult<Option<Moment>> {
        let asked = self.sources.clock.elapsed();
        let counted = known.last.plus(asked.saturating_sub(known.reached));
        let first = self.time_of_day(known).max(counted).max(Timestamp(known.last.0 + 1));
        let last = Timestamp(first.0 + count - 1);
        let filter = rawdoc! { "_id": "oracle", "ts": { "$lt": number(first)? } };
        let update = rawdoc! { "$set": { "ts": number(last)? }, "$currentDate": { "at": true } };
        let Some(document) = self.modify(filter, update, false).await? else { return Ok(None) };
        // The time is that of the request: it has gone on since.
        self.known = Some(known_of(&document, asked, asked)?);
        Ok(Some(Moment { at: first, catalog: catalog_of(&document)? }))
    }

    /// Moves the oracle from its present value. Returns `None` if the document does not exist.
    async fn move_further(&mut self, count: u64) -> StoreResult<Option<Moment>> {
        let asked = self.sources.clock.elapsed();
        let step = i64::try_from(count).map_err(damaged)?;
        let update = rawdoc! { "$inc": { "ts": step }, "$currentDate": { "at": true } };
        let Some(document) = self.modify(rawdoc! { "_id": "oracle" }, update, false).await? else { return Ok(None) };
        let known = known_of(&document, asked, self.sources.clock.elapsed())?;
        self.known = Some(known);
        let first = (known.last.0 + 1).checked_sub(count).ok_or_else(|| damaged("it was moved back"))?;
        Ok(Some(Moment { at: Timestamp(first), catalog: catalog_of(&document)? }))
    }

    async fn announce(&mut self, catalog: u64) -> StoreResult<()> {
        let version = i64::try_from(catalog).map_err(damaged)?;
        let update = rawdoc! { "$max": { "catalog": version } };
        if self.modify(rawdoc! { "_id": "oracle" }, update.clone(), false).await?.is_none() {
            // A collection may be created before the first timestamp.
            self.look().await?;
            self.modify(rawdoc! { "_id": "oracle" }, update, false).await?;
        }
        Ok(())
    }

    /// Reads the document and the store's clock, and makes the document if it does not exist.
    async fn look(&mut self) -> StoreResult<LastMove> {
        let asked = self.sources.clock.elapsed();
        let update = rawdoc! { "$setOnInsert": { "ts": 0_i64 }, "$currentDate": { "at": true } };
        let found = match self.modify(rawdoc! { "_id": "oracle" }, update.clone(), true).await {
            Ok(Some(document)) => Some(document),
            Err(error) if error.code() != Code::DuplicateKey => return Err(error),
            // Two processes made it at once: some servers then return no document to the second one.
            Ok(None) | Err(_) => self.modify(rawdoc! { "_id": "oracle" }, update, true).await?,
        };
        let document = found.ok_or_else(|| damaged("it is not there after it was made"))?;
        let known = known_of(&document, asked, self.sources.clock.elapsed())?;
        self.known = Some(known);
        Ok(known)
    }

    async fn modify(
        &self,
        filter: bson::RawDocumentBuf,
        update: bson::RawDocumentBuf,
        upsert: bool,
    ) -> StoreResult<Option<bson::RawDocumentBuf>> {
        let modification = Modification::Update {
            update: UpdateSpec::Document(update),
            upsert,
            returns: ReturnDocument::After,
            array_filters: Vec::new(),
        };
        let request = FindAndModify::new(self.namespace.clone(), filter, modification);
        Ok(self.store.find_and_modify(request).await?.value)
    }

    /// Returns this process's time of day, bounded by the store's clock.
    fn time_of_day(&self, known: LastMove) -> Timestamp {
        let since = self.sources.clock.elapsed().saturating_sub(known.asked);
        let of_store = Duration::from_millis(known.store_millis).saturating_add(since).saturating_add(AHEAD_MAX);
        Timestamp::of_millis(self.now_millis().min(u64::try_from(of_store.as_millis()).unwrap_or(u64::MAX)))
    }

    fn now_millis(&self) -> u64 {
        u64::try_from(self.sources.clock.now().timestamp_millis()).unwrap_or(0)
    }
}

/// Returns the error of a move as not applied: its timestamps are not used.
fn harmless(error: StoreError) -> StoreError {
    let text = format!("no timestamp: {error}");
    StoreError::new(error.class(), Applied::No, error.code(), text).with_source(error)
}

fn known_of(document: &RawDocument, asked: Duration, reached: Duration) -> StoreResult<LastMove> {
    let last = u64::try_from(document.get_i64("ts").map_err(damaged)?).map_err(damaged)?;
    let at = document.get_datetime("at").map_err(damaged)?;
    let store_millis = u64::try_from(at.timestamp_millis()).unwrap_or(0);
    Ok(LastMove { last: Timestamp(last), reached, store_millis, asked })
}

/// Reads the version of the catalog; 0 before the first one.
fn catalog_of(document: &RawDocument) -> StoreResult<u64> {
    match document.get("catalog").map_err(damaged)? {
        None => Ok(0),
        Some(version) => u64::try_from(version.as_i64().ok_or_else(|| damaged("it has no version"))?).map_err(damaged),
    }
}

fn number(timestamp: Timestamp) -> StoreResult<i64> {
    i64::try_from(timestamp.0).map_err(damaged)
}

fn damaged(why: impl std::fmt::Display) -> StoreError {
    StoreError::command(Code::InternalError, format!("the timestamp oracle's document is damaged: {why}"))
}
