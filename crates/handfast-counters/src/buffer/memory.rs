//! A buffer in memory, which is lost with its process: for tests, and the model that the other buffers are compared with.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use handfast_store::Sources;
use jiff::civil::Date;

use crate::buffer::instances::LocalInstances;
use crate::buffer::state::KindState;
use crate::buffer::{
    Buffer, Fence, IncrementOutcome, Instance, InstanceReport, Owner, QueueDepth, Reading, Stored, Total, UpsertOutcome,
};
use crate::visitor::{DailySalt, Marks};
use crate::{Batch, Change, Error, IdempotencyKey, Item, ItemId, Kind, Result, Salt, View};

/// A buffer that keeps nothing. Its idempotency keys never expire, and unused items stay until [`MemoryBuffer::evict`].
pub struct MemoryBuffer {
    sources: Sources,
    queue_events_max: usize,
    state: Mutex<State>,
    salt: DailySalt,
    instances: LocalInstances,
}

struct State {
    kinds: BTreeMap<Kind, KindState>,
    keys: BTreeSet<String>,
    marks: Marks,
}

impl State {
    fn kind(&mut self, kind: &Kind) -> &mut KindState {
        self.kinds.entry(kind.clone()).or_insert_with(|| KindState::new(1, 1))
    }

    fn remember(&mut self, view: &View, now: Duration) {
        self.keys.extend(key(view));
        if let Some(visitor) = &view.visitor {
            self.marks.set(visitor, now);
        }
    }
}

impl MemoryBuffer {
    /// Creates an empty buffer whose queues hold `queue_events_max` events each.
    pub fn new(sources: Sources, queue_events_max: usize) -> Self {
        let state = State { kinds: BTreeMap::new(), keys: BTreeSet::new(), marks: Marks::new(usize::MAX) };
        let (salt, instances) = Default::default();
        MemoryBuffer { sources, queue_events_max, state: Mutex::new(state), salt, instances }
    }

    /// Lets all items go that have no events in the queue.
    pub fn evict(&self) {
        let now = self.now();
        self.lock().kinds.values_mut().for_each(|kind| kind.evict(Duration::ZERO, now));
    }

    fn now(&self) -> Duration {
        self.sources.clock.elapsed()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn full(&self, kind: &KindState) -> Option<Error> {
        (kind.events() >= self.queue_events_max).then(|| Error::Full { events: self.queue_events_max as u64 })
    }
}

fn key(view: &View) -> Option<String> {
    view.key.as_ref().map(|key| key.of_view(&view.item))
}

#[async_trait]
impl Buffer for MemoryBuffer {
    fn name(&self) -> &'static str {
        "memory"
    }

    async fn check(&self) -> Result<()> {
        self.lock().kinds.values().find_map(|kind| self.full(kind)).map_or(Ok(()), Err)
    }

    async fn increment_if_exists(&self, view: &View) -> Result<IncrementOutcome> {
        let (now, mut state) = (self.now(), self.lock());
        let repeated = key(view).is_some_and(|key| state.keys.contains(&key));
        let known = view.visitor.is_some_and(|visitor| state.marks.has(&visitor.mark, now));
        let kind = state.kind(&view.item.kind);
        let Some(total) = kind.total(&view.item.id) else { return Ok(IncrementOutcome::Absent) };
        if repeated {
            return Ok(IncrementOutcome::Counted(total));
        }
        if known {
            return Ok(IncrementOutcome::Repeated(total));
        }
        total.ensure_countable(view.views)?;
        if let Some(full) = self.full(kind) {
            return Err(full);
        }
        let counted = kind.increment_if_exists(&view.item.id, Change::Views { views: view.views, day: view.day }, now);
        state.remember(view, now);
        Ok(counted)
    }

    async fn upsert(&self, view: &View, stored: Option<Stored>) -> Result<UpsertOutcome> {
        let (now, mut state) = (self.now(), self.lock());
        let repeated = key(view).is_some_and(|key| state.keys.contains(&key));
        let known = view.visitor.is_some_and(|visitor| state.marks.has(&visitor.mark, now));
        let kind = state.kind(&view.item.kind);
        let cached = kind.total(&view.item.id);
        if cached.is_none() && stored.is_some_and(|stored| !kind.is_current(stored.fence)) {
            return Ok(UpsertOutcome::Outdated);
        }
        let stored_total = Total { views: stored.map_or(0, |stored| stored.total), partial: stored.is_none() };
        if repeated {
            return Ok(UpsertOutcome::Counted(cached.unwrap_or(stored_total)));
        }
        if known {
            return Ok(UpsertOutcome::Repeated(cached.unwrap_or(stored_total)));
        }
        cached.unwrap_or(stored_total).ensure_countable(view.views)?;
        if let Some(full) = self.full(kind) {
            return Err(full);
        }
        let change = Change::Views { views: view.views, day: view.day };
        let counted = kind.upsert(&view.item.id, change, stored, now);
        state.remember(view, now);
        Ok(counted)
    }

    async fn read(&self, kind: &Kind, ids: &[ItemId]) -> Result<Reading> {
        let state = self.lock();
        let of_kind = state.kinds.get(kind);
        let totals = ids.iter().map(|id| of_kind.and_then(|of_kind| of_kind.total(id))).collect();
        Ok(Reading { totals, fence: of_kind.map_or(Fence(0), KindState::fence) })
    }

    async fn fill(&self, item: &Item, stored: Stored) -> Result<Option<Total>> {
        let now = self.now();
        Ok(self.lock().kinds.get_mut(&item.kind).and_then(|kind| kind.fill(&item.id, stored, now)))
    }

    async fn refresh(&self, kind: &Kind, totals: &[(ItemId, u64)], fence: Fence) -> Result<bool> {
        Ok(self.lock().kind(kind).refresh(totals, fence))
    }

    async fn renew(&self, kind: &Kind, ids: &[ItemId]) -> Result<()> {
        let now = self.now();
        if let Some(of_kind) = self.lock().kinds.get_mut(kind) {
            of_kind.renew(ids, now);
        }
        Ok(())
    }

    async fn delete(&self, item: &Item, key: Option<&IdempotencyKey>) -> Result<()> {
        let (now, mut state) = (self.now(), self.lock());
        let key = key.map(|key| key.of_deletion(item));
        if key.as_ref().is_some_and(|key| state.keys.contains(key)) {
            return Ok(());
        }
        let kind = state.kind(&item.kind);
        if let Some(full) = self.full(kind) {
            return Err(full);
        }
        kind.delete(&item.id, now);
        state.keys.extend(key);
        Ok(())
    }

    async fn kinds(&self) -> Result<Vec<Kind>> {
        Ok(self.lock().kinds.keys().cloned().collect())
    }

    async fn claim(&self, kind: &Kind, owner: &Owner, events_max: usize) -> Result<Option<Batch>> {
        let now = self.now();
        Ok(self.lock().kinds.get_mut(kind).and_then(|of_kind| of_kind.claim(kind, owner, events_max, now)))
    }

    async fn take_over(&self, kind: &Kind, owner: &Owner, idle: Duration) -> Result<bool> {
        let now = self.now();
        Ok(self.lock().kinds.get_mut(kind).is_some_and(|of_kind| of_kind.take_over(owner, idle, now)))
    }

    async fn acknowledge(&self, batch: &Batch) -> Result<bool> {
        let mut state = self.lock();
        let of_kind = state.kinds.get_mut(&batch.kind);
        Ok(of_kind.is_some_and(|of_kind| !of_kind.acknowledge(batch.number()).is_empty()))
    }

    /// It loses no batch.
    async fn make_partial(&self, _: &Kind, _: &[ItemId]) -> Result<()> {
        Ok(())
    }

    async fn visitor_salt(&self, day: Date) -> Result<Salt> {
        self.salt.of(day)
    }

    async fn depth(&self, kind: &Kind) -> Result<QueueDepth> {
        let now = self.now();
        let unknown = QueueDepth { oldest: 1, next: 1, ..QueueDepth::default() };
        Ok(self.lock().kinds.get(kind).map_or(unknown, |of_kind| of_kind.depth(now)))
    }
    async fn announce(&self, report: InstanceReport, lifetime: Duration) -> Result<()> {
        self.instances.announce(report, lifetime, self.now());
        Ok(())
    }

    async fn withdraw(&self, name: &Owner) -> Result<()> {
        self.instances.withdraw(name);
        Ok(())
    }

    async fn instances(&self) -> Result<Vec<Instance>> {
        Ok(self.instances.list(self.now()))
    }
}
