//! Instances of the counters over one store, as processes have them: each with its own buffer and its own randomness.

use std::sync::Arc;
use std::time::Duration;

use handfast_counters::jiff::civil::{Date, date};
use handfast_counters::{
    Counters, CountersOptions, EmbeddedBuffer, EmbeddedBufferOptions, IdempotencyKey, Item, ItemId, Kind, Storage,
    Total,
};
use handfast_store::{AtomicStore, DocumentStore, ManualClock, MemoryStore, Sources};
use handfast_txn::Database;

/// The first day of [`ManualClock::START`] is far back; the tests begin on this one.
pub(crate) fn first_day() -> Date {
    date(2026, 11, 30)
}

/// A store and a clock, which outlive the processes.
#[derive(Clone)]
pub(crate) struct World {
    pub(crate) store: Arc<MemoryStore>,
    pub(crate) clock: Arc<ManualClock>,
}

impl World {
    pub(crate) fn new() -> Self {
        let (sources, clock) = Sources::manual(1);
        let noon = first_day().at(12, 0, 0, 0).in_tz("UTC").expect("a time").timestamp().as_millisecond();
        clock.set(bson::DateTime::from_millis(noon));
        World { store: Arc::new(MemoryStore::new(sources)), clock }
    }

    /// Starts a process on this store, which may have faults.
    pub(crate) async fn start<S: AtomicStore>(
        &self,
        process: u64,
        store: Arc<S>,
    ) -> handfast_counters::Result<Counters> {
        let sources = Sources { clock: self.clock.clone(), ..Sources::seeded(process) };
        let database =
            Database::new(Arc::new(handfast_txn::Local::new(store.clone(), sources.clone())), sources.clone());
        let storage = Storage::open(database, "counters").await?;
        let store: Arc<dyn DocumentStore> = store;
        let options = EmbeddedBufferOptions { queue_events_max: 50, ..EmbeddedBufferOptions::default() };
        let buffer = EmbeddedBuffer::open(store, "counters", &storage, sources.clone(), options).await?;
        let options = CountersOptions { batch_events: 3, ..CountersOptions::default() };
        Ok(Counters::new(Arc::new(buffer), storage, sources, options))
    }

    /// Starts a process on the store without faults.
    pub(crate) async fn healthy(&self, process: u64) -> Counters {
        self.start(process, self.store.clone()).await.expect("a process")
    }

    /// Lets time pass.
    pub(crate) fn advance(&self, time: Duration) {
        self.clock.advance(time);
    }
}

pub(crate) fn ads() -> Kind {
    Kind::new("ads").expect("a kind")
}

pub(crate) fn ad(id: &str) -> Item {
    Item::new("ads", id).expect("an item")
}

pub(crate) fn key(key: &str) -> Option<IdempotencyKey> {
    Some(IdempotencyKey::new(key).expect("a key"))
}

pub(crate) fn whole(views: u64) -> Total {
    Total { views, partial: false }
}

/// The total of an item as a reader sees it.
pub(crate) async fn total(counters: &Counters, id: &str) -> Total {
    let ids = [ItemId::new(id).expect("an id")];
    counters.totals(&ads(), &ids).await.expect("a total")[0]
}

/// Saves everything, and checks that totals and days agree.
pub(crate) async fn settle(counters: &Counters) {
    while counters.flush().await.expect("saved").batches > 0 {}
    let verification = counters.storage().verify(None, |_| ()).await.expect("checked");
    assert_eq!(verification.differences, []);
}
