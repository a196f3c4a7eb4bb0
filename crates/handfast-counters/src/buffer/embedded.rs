//! The buffer of one process, whose queue is durable in a store: nothing to install.
//!
//! Cache and queue are in memory ([`KindState`]). A view is acknowledged after it is in the collection `queue` as well, and shown to readers
//! not before: no answer shows what a crash takes back. One task writes: it takes all requests that wait, inserts their events as one document for
//! each kind ([`Group`]), applies them in memory and answers. So requests that arrive at the same time share one sync.
//!
//! | collection | document |
//! | --- | --- |
//! | `queue` | `{_id: {kind, first}, events: [{id, views, day} or {id, deleted: true}, ..], keys: [..]}`: events with the numbers `first`, `first` + 1, .. |
//! | `keys` | `{_id: "kind/id/key", at}`: idempotency keys of groups that were saved and removed; those of deletions are `"deletion kind/id/key"` |
//!
//! The marks of visitors are in memory alone, as the salt that they were made with: a process that starts again has neither.
//!
//! A group is removed when all its events were acknowledged. At a start the queue is read back without the events of
//! [batches that were saved](Storage::saved_batches).

mod group;
mod keys;
mod writer;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use async_trait::async_trait;
use bson::{RawArrayBuf, RawBson, RawDocumentBuf, rawdoc};
use handfast_store::{
    Applied, BatchLimit, CreateIndexes, DocumentStore, Find, IndexSpec, Insert, Namespace, Sources, StoreExt as _,
};
use jiff::civil::Date;
use tokio::sync::{mpsc, oneshot};

use crate::buffer::instances::LocalInstances;
use crate::buffer::state::KindState;
use crate::buffer::{
    Buffer, Fence, IncrementOutcome, Instance, InstanceReport, Owner, QueueDepth, Reading, RememberedKeys, Stored,
    Total, UpsertOutcome,
};
use crate::visitor::{DailySalt, Marks};
use crate::{Batch, Error, Event, IdempotencyKey, Item, ItemId, Kind, Result, Salt, SequenceNumber, Storage, View};

use group::Group;
use keys::Keys;
use writer::{Request, Work, Writer};

/// The maximum number of requests that wait for the writer; further ones wait to be queued.
const WAITING_REQUESTS_MAX: usize = 4_096;
/// The maximum number of keys or groups that one request moves or removes: a request of some hundred kilobytes.
const REMOVED_MAX: usize = 1_000;
/// The keys that are forgotten at most in one look at what is unused: a millisecond's work. Each step also looks at two for each of its requests, so that
/// they cannot pile up.
const KEYS_TRIMMED_MAX: usize = 10_000;
/// The documents of a page.
const PAGE_DOCUMENTS: usize = 1_000;
/// The time between two looks for unused items.
const TRIM_INTERVAL: Duration = Duration::from_secs(1);
/// The time for which a write that has failed shows that views cannot be counted, if none has succeeded since.
const FAILED_WRITE_TIME: Duration = Duration::from_secs(10);

/// The settings of the embedded buffer.
#[derive(Clone, Copy, Debug)]
pub struct EmbeddedBufferOptions {
    /// The maximum number of events in the queue. Requests above it are refused with [`Error::Full`].
    pub queue_events_max: usize,
    /// The maximum number of items in the cache. Items whose views are not saved do not count.
    pub cache_items_max: usize,
    /// The time after which an unused item leaves the cache.
    pub cache_time: Duration,
    /// The time for which idempotency keys are remembered.
    pub key_time: Duration,
    /// The maximum number of idempotency keys that are remembered, of about 100 bytes each. Requests with further ones are refused with
    /// [`Error::KeysFull`] until the time of the oldest is over, as none is forgotten early.
    pub keys_max: usize,
    /// The maximum number of visitors that are remembered until their window is over, of about 100 bytes each. Beyond it the one who was counted first
    /// is forgotten, and counted again.
    pub visitors_max: usize,
}

impl Default for EmbeddedBufferOptions {
    /// A million events, a million items for an hour after their last view, ten million keys for a day, a million visitors.
    fn default() -> Self {
        EmbeddedBufferOptions {
            queue_events_max: 1_000_000,
            cache_items_max: 1_000_000,
            cache_time: Duration::from_secs(3_600),
            key_time: Duration::from_secs(24 * 3_600),
            keys_max: 10_000_000,
            visitors_max: 1_000_000,
        }
    }
}

/// A buffer in this process, with a durable queue in a store that no other process uses.
pub struct EmbeddedBuffer {
    shared: Arc<Shared>,
    requests: mpsc::Sender<Request>,
}

/// The state that the writer and the callers share.
struct Shared {
    store: Arc<dyn DocumentStore>,
    queue: Namespace,
    keys: Namespace,
    sources: Sources,
    options: EmbeddedBufferOptions,
    state: RwLock<State>,
    salt: DailySalt,
    instances: LocalInstances,
    /// The last write of views that failed, with its time by the steady clock, unless one has succeeded since.
    failed_write: Mutex<Option<(Duration, Error)>>,
    /// Held while a batch is acknowledged: a group that two batches share is removed by the second one.
    acknowledging: tokio::sync::Mutex<()>,
}

/// The caches, the queues and the groups of the collection `queue`.
struct State {
    kinds: HashMap<Kind, KindState>,
    /// The groups that are in the collection, by the number of their first event.
    groups: HashMap<Kind, BTreeMap<SequenceNumber, Group>>,
    keys: Keys,
    marks: Marks,
    /// The time at which unused items were last let go.
    trimmed: Duration,
}

impl Shared {
    fn now(&self) -> Duration {
        self.sources.clock.elapsed()
    }

    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn new(options: &EmbeddedBufferOptions) -> Self {
        State {
            kinds: HashMap::new(),
            groups: HashMap::new(),
            keys: Keys::new(options.keys_max),
            marks: Marks::new(options.visitors_max),
            trimmed: Duration::ZERO,
        }
    }

    /// Returns the state of a kind; that of one without any events has begun with number 1.
    fn kind(&mut self, kind: &Kind) -> &mut KindState {
        self.kinds.entry(kind.clone()).or_insert_with(|| KindState::new(1, 0))
    }

    fn events(&self) -> usize {
        self.kinds.values().map(KindState::events).sum()
    }
}

impl EmbeddedBuffer {
    /// The name of the collection of the queue.
    pub const QUEUE: &str = "queue";

    /// Opens the buffer in the database of this name of a store, and reads back the queue. It has to be called within a runtime, which then
    /// runs the writer until the buffer is dropped.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a name that no database can have, and for a storage without transactions, whose totals may have a batch that is read
    /// back from the queue as well; [`Error::Store`]; [`Error::Damaged`] for a queue that cannot be read.
    pub async fn open(
        store: Arc<dyn DocumentStore>,
        name: &str,
        storage: &Storage,
        sources: Sources,
        options: EmbeddedBufferOptions,
    ) -> Result<Self> {
        storage.transactions("a queue in the store")?;
        let namespace = |collection: &str| {
            Namespace::new(name, collection).map_err(|error| Error::invalid(format!("database {name:?}: {error}")))
        };
        let state = RwLock::new(State::new(&options));
        let (queue, keys) = (namespace(Self::QUEUE)?, namespace("keys")?);
        let shared = Arc::new(Shared {
            store,
            queue,
            keys,
            sources,
            options,
            state,
            salt: DailySalt::default(),
            instances: LocalInstances::default(),
            failed_write: Mutex::default(),
            acknowledging: tokio::sync::Mutex::default(),
        });
        shared.create_index().await?;
        shared.load(storage).await?;
        let (requests, waiting) = mpsc::channel(WAITING_REQUESTS_MAX);
        tokio::spawn(Writer::new(Arc::clone(&shared), waiting).run());
        Ok(EmbeddedBuffer { shared, requests })
    }

    /// Hands work to the writer and waits for its result.
    async fn request<T>(&self, work: impl FnOnce(oneshot::Sender<Result<T>>) -> Work) -> Result<T> {
        let (answer, result) = oneshot::channel();
        let closed = |applied| Error::Buffer { what: "its writer has ended".into(), applied };
        self.requests.send(Request { work: work(answer) }).await.map_err(|_| closed(Applied::No))?;
        result.await.map_err(|_| closed(Applied::Maybe))?
    }
}

impl Shared {
    async fn create_index(&self) -> Result<()> {
        let seconds = i64::try_from(self.options.key_time.as_secs()).unwrap_or(i64::MAX);
        let expiring = IndexSpec { expire_after_seconds: Some(seconds), ..IndexSpec::new(rawdoc! { "at": 1 }) };
        let indexes = vec![expiring];
        self.store.create_indexes(CreateIndexes { namespace: self.keys.clone(), indexes }).await?;
        Ok(())
    }

    /// Reads back queue and keys.
    async fn load(&self, storage: &Storage) -> Result<()> {
        let now = self.now();
        let mut state = State::new(&self.options);
        for kind in storage.kinds().await? {
            let next = storage.last_number(&kind).await? + 1;
            state.kinds.insert(kind, KindState::new(next, 0));
        }
        // Before those of the queue, which end later.
        self.load_keys(&mut state.keys, now).await?;
        let all = Find { sort: rawdoc! { "_id": 1 }, ..Find::new(self.queue.clone(), rawdoc! {}) };
        let mut saved = HashMap::new();
        let mut finished: HashMap<Kind, Vec<Group>> = HashMap::new();
        for document in self.store.find_all(all).await? {
            let (kind, mut group, events) = Group::read(&document)?;
            if !saved.contains_key(&kind) {
                saved.insert(kind.clone(), storage.saved_batches(&kind).await?);
            }
            let ranges = saved.get(&kind).map_or(&[][..], Vec::as_slice);
            let is_saved = |event: &Event| ranges.iter().any(|range| range.contains(&event.number));
            let open: Vec<Event> = events.into_iter().filter(|event| !is_saved(event)).collect();
            group.unacknowledged = open.len();
            for key in &group.keys {
                state.keys.set(key, now + self.options.key_time);
            }
            if open.is_empty() {
                finished.entry(kind).or_default().push(group);
                continue;
            }
            let ids: Vec<ItemId> = open.iter().map(|event| event.id.clone()).collect();
            let totals = storage.totals(&kind, &ids).await?;
            let of_kind = state.kind(&kind);
            for (event, total) in open.into_iter().zip(totals) {
                of_kind.push(event, Some(total), now);
            }
            state.groups.entry(kind).or_default().insert(group.first, group);
        }
        *self.write() = state;
        for (kind, groups) in finished {
            self.remove(&kind, &groups).await?;
        }
        Ok(())
    }

    /// Reads back the keys of groups that were removed, page by page, the oldest first. The calendar's clock says how old they are; if it was set back, they
    /// are new.
    async fn load_keys(&self, keys: &mut Keys, now: Duration) -> Result<()> {
        let damaged = |error: bson::error::Error| Error::damaged(format!("a key: {error}"));
        let today = self.sources.clock.now().timestamp_millis();
        let oldest_first = Find { sort: rawdoc! { "at": 1 }, ..Find::new(self.keys.clone(), rawdoc! {}) };
        let mut cursor = self.store.find(oldest_first).await?;
        loop {
            let page = cursor.next_page(BatchLimit { documents: PAGE_DOCUMENTS, ..BatchLimit::REPLY }).await?;
            for document in page.documents {
                let (key, at) = (document.get_str("_id"), document.get_datetime("at"));
                let age = today.saturating_sub(at.map_err(damaged)?.timestamp_millis());
                let age = Duration::from_millis(u64::try_from(age).unwrap_or(0));
                keys.set(key.map_err(damaged)?, now + self.options.key_time.saturating_sub(age));
            }
            if page.exhausted {
                return Ok(());
            }
        }
    }

    /// Removes groups whose events were all saved; their keys are kept.
    async fn remove(&self, kind: &Kind, groups: &[Group]) -> Result<()> {
        let (at, keys) = (self.sources.clock.now(), groups.iter().flat_map(|group| &group.keys));
        let keys: Vec<RawDocumentBuf> = keys.map(|key| rawdoc! { "_id": key.as_str(), "at": at }).collect();
        // All keys first: a group that is gone must not take its keys with it.
        for keys in keys.chunks(REMOVED_MAX) {
            let insert = Insert { ordered: false, ..Insert::new(self.keys.clone(), keys.to_vec()) };
            let outcome = self.store.insert(insert).await?;
            // What is there already was put there before a crash.
            let duplicate = handfast_mql::Code::DuplicateKey;
            if let Some(refused) = outcome.errors.into_iter().find(|refused| refused.error.code() != duplicate) {
                return Err(refused.error.into());
            }
        }
        for groups in groups.chunks(REMOVED_MAX) {
            let ids: RawArrayBuf = groups.iter().map(|group| RawBson::Document(Group::id(kind, group.first))).collect();
            self.store.delete_many(&self.queue, rawdoc! { "_id": { "$in": ids } }).await?;
        }
        Ok(())
    }
}

#[async_trait]
impl Buffer for EmbeddedBuffer {
    fn name(&self) -> &'static str {
        "embedded"
    }

    async fn check(&self) -> Result<()> {
        let events_max = self.shared.options.queue_events_max;
        if self.shared.read().events() >= events_max {
            return Err(Error::Full { events: events_max as u64 });
        }
        // A full disk can still be read. After a while a view must tell, because none may be sent as long as this fails.
        let failed = self.shared.failed_write.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some((at, error)) = failed
            && self.shared.now().saturating_sub(at) < FAILED_WRITE_TIME
        {
            return Err(error);
        }
        // The cache answers always; the queue is in the store.
        let found = self.shared.store.find_one(&self.shared.queue, rawdoc! { "_id": "" }).await;
        found.map(drop).map_err(|error| Error::Buffer { what: error.to_string(), applied: Applied::No })
    }

    async fn increment_if_exists(&self, view: &View) -> Result<IncrementOutcome> {
        // Nothing to write: answered at once.
        if !self.shared.read().kinds.get(&view.item.kind).is_some_and(|kind| kind.has(&view.item.id)) {
            return Ok(IncrementOutcome::Absent);
        }
        let view = view.clone();
        self.request(|answer| Work::Increment { view, answer }).await
    }

    async fn upsert(&self, view: &View, stored: Option<Stored>) -> Result<UpsertOutcome> {
        let view = view.clone();
        self.request(|answer| Work::Upsert { view, stored, answer }).await
    }

    async fn read(&self, kind: &Kind, ids: &[ItemId]) -> Result<Reading> {
        let state = self.shared.read();
        Ok(match state.kinds.get(kind) {
            None => Reading { totals: vec![None; ids.len()], fence: Fence(0) },
            Some(of_kind) => {
                Reading { totals: ids.iter().map(|id| of_kind.total(id)).collect(), fence: of_kind.fence() }
            }
        })
    }

    async fn fill(&self, item: &Item, stored: Stored) -> Result<Option<Total>> {
        let now = self.shared.now();
        let mut state = self.shared.write();
        state.trim(&self.shared.options, now);
        let full = state.kinds.values().map(KindState::entries).sum::<usize>() >= self.shared.options.cache_items_max;
        // A reader makes no kind: anybody can ask for any.
        let of_kind = state.kinds.get_mut(&item.kind).filter(|_| !full);
        Ok(of_kind.and_then(|of_kind| of_kind.fill(&item.id, stored, now)))
    }

    async fn refresh(&self, kind: &Kind, totals: &[(ItemId, u64)], fence: Fence) -> Result<bool> {
        // A kind without events gets a state, whose epoch says that totals of before are out of date.
        Ok(self.shared.write().kind(kind).refresh(totals, fence))
    }

    async fn renew(&self, kind: &Kind, ids: &[ItemId]) -> Result<()> {
        let now = self.shared.now();
        if let Some(of_kind) = self.shared.write().kinds.get_mut(kind) {
            of_kind.renew(ids, now);
        }
        Ok(())
    }

    async fn delete(&self, item: &Item, key: Option<&IdempotencyKey>) -> Result<()> {
        let (item, key) = (item.clone(), key.cloned());
        self.request(|answer| Work::Delete { item, key, answer }).await
    }

    async fn kinds(&self) -> Result<Vec<Kind>> {
        let mut kinds: Vec<Kind> = self.shared.read().kinds.keys().cloned().collect();
        kinds.sort();
        Ok(kinds)
    }

    async fn claim(&self, kind: &Kind, owner: &Owner, events_max: usize) -> Result<Option<Batch>> {
        let now = self.shared.now();
        Ok(self.shared.write().kinds.get_mut(kind).and_then(|of_kind| of_kind.claim(kind, owner, events_max, now)))
    }

    async fn take_over(&self, kind: &Kind, owner: &Owner, idle: Duration) -> Result<bool> {
        let now = self.shared.now();
        Ok(self.shared.write().kinds.get_mut(kind).is_some_and(|of_kind| of_kind.take_over(owner, idle, now)))
    }

    async fn acknowledge(&self, batch: &Batch) -> Result<bool> {
        let (kind, batch) = (&batch.kind, batch.number());
        // From the collection first: what is left there while its batch is forgotten would be counted again after a restart.
        let _one_at_a_time = self.shared.acknowledging.lock().await;
        let finished = self.shared.read().finished_groups(kind, batch);
        self.shared.remove(kind, &finished).await?;
        Ok(self.shared.write().acknowledge(kind, batch))
    }

    /// It loses no batch.
    async fn make_partial(&self, _: &Kind, _: &[ItemId]) -> Result<()> {
        Ok(())
    }

    async fn visitor_salt(&self, day: Date) -> Result<Salt> {
        self.shared.salt.of(day)
    }

    fn remembered_keys(&self) -> Option<RememberedKeys> {
        let (keys, keys_max) = self.shared.read().keys.count();
        Some(RememberedKeys { keys: keys as u64, keys_max: keys_max as u64 })
    }

    async fn depth(&self, kind: &Kind) -> Result<QueueDepth> {
        let now = self.shared.now();
        let state = self.shared.read();
        let Some(of_kind) = state.kinds.get(kind) else {
            return Ok(QueueDepth { oldest: 1, next: 1, ..QueueDepth::default() });
        };
        let depth = of_kind.depth(now);
        // A group in the collection may have events that were acknowledged.
        let oldest = state.groups.get(kind).and_then(|groups| groups.keys().next().copied());
        Ok(QueueDepth { oldest: oldest.unwrap_or(depth.oldest).min(depth.oldest), ..depth })
    }

    async fn announce(&self, report: InstanceReport, lifetime: Duration) -> Result<()> {
        self.shared.instances.announce(report, lifetime, self.shared.now());
        Ok(())
    }

    async fn withdraw(&self, name: &Owner) -> Result<()> {
        self.shared.instances.withdraw(name);
        Ok(())
    }

    async fn instances(&self) -> Result<Vec<Instance>> {
        Ok(self.shared.instances.list(self.shared.now()))
    }
}
impl State {
    /// Returns the groups that have no unacknowledged events once this batch is acknowledged.
    fn finished_groups(&self, kind: &Kind, batch: SequenceNumber) -> Vec<Group> {
        let (Some(of_kind), Some(groups)) = (self.kinds.get(kind), self.groups.get(kind)) else { return Vec::new() };
        let counts = events_of_groups(groups, of_kind.events_of(batch));
        let finished = counts
            .into_iter()
            .filter_map(|(first, count)| groups.get(&first).filter(|group| group.unacknowledged <= count).cloned());
        finished.collect()
    }

    /// Removes a batch; returns whether it was there.
    fn acknowledge(&mut self, kind: &Kind, batch: SequenceNumber) -> bool {
        let events = self.kind(kind).acknowledge(batch);
        let Some(groups) = self.groups.get_mut(kind) else { return !events.is_empty() };
        for (first, count) in events_of_groups(groups, &events) {
            if let Some(group) = groups.get_mut(&first) {
                group.unacknowledged = group.unacknowledged.saturating_sub(count);
                if group.unacknowledged == 0 {
                    groups.remove(&first);
                }
            }
        }
        !events.is_empty()
    }

    /// Lets unused items and old keys go, once a second.
    fn trim(&mut self, options: &EmbeddedBufferOptions, now: Duration) {
        if now.saturating_sub(self.trimmed) < TRIM_INTERVAL {
            return;
        }
        self.trimmed = now;
        self.keys.trim(now, KEYS_TRIMMED_MAX);
        self.marks.trim(now);
        let mut unused = options.cache_time;
        loop {
            for of_kind in self.kinds.values_mut() {
                of_kind.evict(unused, now);
            }
            // Shorter and shorter, until they have room; the items of the queue stay.
            if unused.is_zero() || self.kinds.values().map(KindState::entries).sum::<usize>() <= options.cache_items_max
            {
                return;
            }
            unused = if unused < TRIM_INTERVAL { Duration::ZERO } else { unused / 2 };
        }
    }
}

/// Returns how many of the events are in each group, by the number of its first event.
fn events_of_groups(groups: &BTreeMap<SequenceNumber, Group>, events: &[Event]) -> BTreeMap<SequenceNumber, usize> {
    let mut counts = BTreeMap::new();
    for event in events {
        if let Some((first, _)) = groups.range(..=event.number).next_back() {
            *counts.entry(*first).or_default() += 1;
        }
    }
    counts
}
