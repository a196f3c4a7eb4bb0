//! A buffer whose network fails, or whose process dies, at one request: the counterpart of the store's `Faulty`. And a process with one of the two.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use handfast_counters::jiff::civil::Date;
use handfast_counters::{
    Batch, Buffer, Counters, Error, Fence, IdempotencyKey, IncrementOutcome, Instance, InstanceReport, Item, ItemId,
    Kind, Owner, QueueDepth, Reading, Result, Salt, Stored, Total, UpsertOutcome, View,
};
use handfast_store::decorator::{Fault, Faulty, Plan};
use handfast_store::{Applied, MemoryStore};

use crate::world::World;

/// The requests that meet faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Of {
    Store,
    Buffer,
}

/// A process with a fault at a request to its store or to its buffer.
pub(crate) struct FaultyProcess {
    /// The error of a process that could not start.
    pub(crate) counters: Result<Counters>,
    store: Arc<Faulty<MemoryStore>>,
    /// None in a process that could not start.
    buffer: Option<Arc<FaultyBuffer>>,
    of: Of,
    fault: Option<(u64, Fault)>,
}

impl FaultyProcess {
    pub(crate) async fn start(world: &World, of: Of, fault: Option<(u64, Fault)>) -> Self {
        let on = |which: Of| fault.filter(|_| of == which);
        let plan = on(Of::Store).map_or_else(Plan::none, |(number, fault)| Plan::at(number, fault));
        let store = Arc::new(Faulty::new(world.store.clone(), plan));
        let mut faulty = None;
        let decorate = |buffer: Arc<dyn Buffer>| {
            let decorated = Arc::new(FaultyBuffer::new(buffer, on(Of::Buffer)));
            faulty = Some(Arc::clone(&decorated));
            decorated as Arc<dyn Buffer>
        };
        let counters = world.start_with(1, store.clone(), decorate).await;
        FaultyProcess { counters, store, buffer: faulty, of, fault }
    }

    /// Returns the number of requests to the store, or to the buffer.
    pub(crate) fn requests(&self) -> u64 {
        match self.of {
            Of::Store => self.store.operations(),
            Of::Buffer => self.buffer.as_ref().map_or(0, |buffer| buffer.operations()),
        }
    }

    /// Ends the process, and returns its store, which may have requests on their way.
    pub(crate) fn into_store(self) -> Arc<Faulty<MemoryStore>> {
        self.store.restart();
        self.store
    }

    /// Returns whether the fault was met.
    pub(crate) fn has_met_fault(&self) -> bool {
        match self.of {
            Of::Store => !self.store.injected().is_empty(),
            Of::Buffer => self.fault.is_some_and(|(number, _)| self.requests() > number),
        }
    }
}

/// A buffer with a fault at the request with this number, counted from 0.
pub(crate) struct FaultyBuffer {
    buffer: Arc<dyn Buffer>,
    fault: Option<(u64, Fault)>,
    next: AtomicU64,
    is_dead: AtomicBool,
    dies_at_refresh: bool,
}

impl FaultyBuffer {
    pub(crate) fn new(buffer: Arc<dyn Buffer>, fault: Option<(u64, Fault)>) -> Self {
        FaultyBuffer { buffer, fault, next: AtomicU64::new(0), is_dead: AtomicBool::new(false), dies_at_refresh: false }
    }

    /// A buffer whose process dies at its first refresh.
    pub(crate) fn that_never_refreshes(buffer: Arc<dyn Buffer>) -> Self {
        FaultyBuffer { dies_at_refresh: true, ..FaultyBuffer::new(buffer, None) }
    }

    /// Returns how many requests there were.
    pub(crate) fn operations(&self) -> u64 {
        self.next.load(Ordering::SeqCst)
    }

    async fn perform<T>(&self, request: impl Future<Output = Result<T>>) -> Result<T> {
        let number = self.next.fetch_add(1, Ordering::SeqCst);
        let failed = |applied| Error::Buffer { what: format!("request {number} has a fault"), applied };
        if self.is_dead.load(Ordering::SeqCst) {
            return Err(failed(Applied::No));
        }
        let Some((_, fault)) = self.fault.filter(|(at, _)| *at == number) else { return request.await };
        match fault {
            Fault::Refuse => Err(failed(Applied::No)),
            Fault::LoseRequest => Err(failed(Applied::Maybe)),
            Fault::LoseReply => {
                let _ = request.await;
                Err(failed(Applied::Maybe))
            }
            Fault::CrashBefore => {
                self.is_dead.store(true, Ordering::SeqCst);
                Err(failed(Applied::Maybe))
            }
            Fault::CrashAfter => {
                let _ = request.await;
                self.is_dead.store(true, Ordering::SeqCst);
                Err(failed(Applied::Maybe))
            }
            other => panic!("{other:?} is no fault of a buffer"),
        }
    }
}

#[async_trait]
impl Buffer for FaultyBuffer {
    fn name(&self) -> &'static str {
        self.buffer.name()
    }

    async fn check(&self) -> Result<()> {
        self.perform(self.buffer.check()).await
    }

    async fn check_before_saving(&self) -> Result<()> {
        self.perform(self.buffer.check_before_saving()).await
    }

    async fn increment_if_exists(&self, view: &View) -> Result<IncrementOutcome> {
        self.perform(self.buffer.increment_if_exists(view)).await
    }

    async fn upsert(&self, view: &View, stored: Option<Stored>) -> Result<UpsertOutcome> {
        self.perform(self.buffer.upsert(view, stored)).await
    }

    async fn read(&self, kind: &Kind, ids: &[ItemId]) -> Result<Reading> {
        self.perform(self.buffer.read(kind, ids)).await
    }

    async fn fill(&self, item: &Item, stored: Stored) -> Result<Option<Total>> {
        self.perform(self.buffer.fill(item, stored)).await
    }

    async fn refresh(&self, kind: &Kind, totals: &[(ItemId, u64)], fence: Fence) -> Result<bool> {
        self.is_dead.fetch_or(self.dies_at_refresh, Ordering::SeqCst);
        self.perform(self.buffer.refresh(kind, totals, fence)).await
    }

    async fn renew(&self, kind: &Kind, ids: &[ItemId]) -> Result<()> {
        self.perform(self.buffer.renew(kind, ids)).await
    }

    async fn delete(&self, item: &Item, key: Option<&IdempotencyKey>) -> Result<()> {
        self.perform(self.buffer.delete(item, key)).await
    }

    async fn kinds(&self) -> Result<Vec<Kind>> {
        self.perform(self.buffer.kinds()).await
    }

    async fn claim(&self, kind: &Kind, owner: &Owner, events_max: usize) -> Result<Option<Batch>> {
        self.perform(self.buffer.claim(kind, owner, events_max)).await
    }

    async fn take_over(&self, kind: &Kind, owner: &Owner, idle: Duration) -> Result<bool> {
        self.perform(self.buffer.take_over(kind, owner, idle)).await
    }

    async fn acknowledge(&self, batch: &Batch) -> Result<bool> {
        self.perform(self.buffer.acknowledge(batch)).await
    }

    async fn make_partial(&self, kind: &Kind, ids: &[ItemId]) -> Result<()> {
        self.perform(self.buffer.make_partial(kind, ids)).await
    }

    async fn visitor_salt(&self, day: Date) -> Result<Salt> {
        self.perform(self.buffer.visitor_salt(day)).await
    }

    async fn depth(&self, kind: &Kind) -> Result<QueueDepth> {
        self.perform(self.buffer.depth(kind)).await
    }

    async fn announce(&self, report: InstanceReport, lifetime: Duration) -> Result<()> {
        self.perform(self.buffer.announce(report, lifetime)).await
    }

    async fn withdraw(&self, name: &Owner) -> Result<()> {
        self.perform(self.buffer.withdraw(name)).await
    }

    async fn instances(&self) -> Result<Vec<Instance>> {
        self.perform(self.buffer.instances()).await
    }
}
