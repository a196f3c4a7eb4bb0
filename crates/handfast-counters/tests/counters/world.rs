//! Instances of the counters over one store, as processes have them: each with its own randomness, and with its own buffer in the store or a
//! shared one in Redis.

use std::sync::Arc;
use std::time::Duration;

use handfast_counters::jiff::civil::{Date, date};
use handfast_counters::{
    Buffer, Counters, CountersOptions, EmbeddedBuffer, EmbeddedBufferOptions, IdempotencyKey, Item, ItemId, Kind,
    MemoryBuffer, RedisBuffer, RedisBufferOptions, RedisScripts, Storage, StorageForm, Total,
};
use handfast_store::{AtomicStore, DocumentStore, ManualClock, MemoryStore, Sources};
use handfast_txn::Database;

use crate::redis_cluster::RedisCluster;
use crate::server::RedisServer;
use crate::waiting::PATIENCE;

/// The number of events that a queue holds.
pub(crate) const QUEUE_EVENTS_MAX: usize = 50;

/// The first day of [`ManualClock::START`] is far back; the tests begin on this one.
pub(crate) fn first_day() -> Date {
    date(2026, 11, 30)
}

/// A store, a clock and a Redis if there is one, which outlive the processes.
#[derive(Clone)]
pub(crate) struct World {
    pub(crate) store: Arc<MemoryStore>,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) redis: Option<Arc<RedisServer>>,
    /// The cluster of the server, which is the one with the ads.
    pub(crate) cluster: Option<Arc<RedisCluster>>,
    /// The URL of a proxy before Redis, through which the next processes go.
    pub(crate) proxy: Option<String>,
    /// A buffer that outlives the processes, as Redis does.
    pub(crate) memory: Option<Arc<MemoryBuffer>>,
    /// The way in which batches are saved.
    pub(crate) form: StorageForm,
    /// The steps on Redis, which a test may break.
    pub(crate) scripts: RedisScripts,
    /// The number of idempotency keys that the embedded form remembers.
    pub(crate) keys_max: usize,
}

/// Makes a test of each function on the embedded form, and one on Redis with each form of the storage; `on_cluster` calls each of them on a Redis
/// Cluster.
macro_rules! on_both_forms {
    ($($name:ident,)*) => {
        mod embedded {
            $(
                #[tokio::test]
                async fn $name() {
                    super::$name($crate::world::World::embedded()).await;
                }
            )*
        }

        mod ext_redis {
            $(
                #[tokio::test]
                async fn $name() {
                    if let Some(world) = $crate::world::World::redis().await {
                        super::$name(world).await;
                    }
                }
            )*
        }

        mod ext_redis_single_documents {
            $(
                #[tokio::test]
                async fn $name() {
                    if let Some(world) = $crate::world::World::redis().await {
                        super::$name(world.single_documents()).await;
                    }
                }
            )*
        }

        /// Carries all of them out on a cluster, one after the other.
        pub(crate) async fn on_cluster(cluster: &std::sync::Arc<$crate::redis_cluster::RedisCluster>) {
            $({
                cluster.flush().await;
                $name($crate::world::World::on_cluster(cluster)).await;
            })*
        }
    };
}
pub(crate) use on_both_forms;

impl World {
    pub(crate) fn embedded() -> Self {
        let (sources, clock) = Sources::manual(1);
        let noon = first_day().at(12, 0, 0, 0).in_tz("UTC").expect("a time").timestamp().as_millisecond();
        clock.set(bson::DateTime::from_millis(noon));
        World {
            store: Arc::new(MemoryStore::new(sources)),
            clock,
            redis: None,
            cluster: None,
            proxy: None,
            memory: None,
            form: StorageForm::Transactions,
            scripts: RedisScripts::default(),
            keys_max: EmbeddedBufferOptions::default().keys_max,
        }
    }

    /// A world whose queue is in memory and outlives the processes.
    pub(crate) fn in_memory() -> Self {
        let world = World::embedded();
        let buffer = MemoryBuffer::new(world.sources(0), QUEUE_EVENTS_MAX);
        World { memory: Some(Arc::new(buffer)), ..world }
    }

    /// Returns a world that saves views without transactions.
    pub(crate) fn single_documents(self) -> Self {
        World { form: StorageForm::SingleDocuments, ..self }
    }

    /// Starts a Redis that does not sync, as most tests do not kill it; `None`, having said so, if it is not installed.
    pub(crate) async fn redis() -> Option<Self> {
        Some(Self::on(&Arc::new(RedisServer::start_with("no").await?)))
    }

    /// Starts a Redis that syncs each write before it answers.
    pub(crate) async fn durable_redis() -> Option<Self> {
        Some(Self::on(&Arc::new(RedisServer::start_with("always").await?)))
    }

    /// A new store beside a Redis.
    pub(crate) fn on(server: &Arc<RedisServer>) -> Self {
        World { redis: Some(Arc::clone(server)), ..World::embedded() }
    }

    /// A new store beside a cluster.
    pub(crate) fn on_cluster(cluster: &Arc<RedisCluster>) -> Self {
        World { cluster: Some(Arc::clone(cluster)), ..World::on(cluster.server("hf:{ads}:")) }
    }

    /// Returns a world whose processes reach Redis through a proxy.
    pub(crate) fn through(self, url: &str) -> Self {
        World { proxy: Some(url.to_owned()), ..self }
    }

    /// The URL of Redis.
    pub(crate) fn url(&self) -> String {
        if let Some(proxy) = &self.proxy {
            return proxy.clone();
        }
        self.cluster.as_ref().map_or_else(|| self.server().url(), |cluster| cluster.url())
    }

    /// All servers of Redis.
    pub(crate) fn servers(&self) -> Vec<&RedisServer> {
        match &self.cluster {
            Some(cluster) => cluster.servers.iter().map(|server| &**server).collect(),
            None => self.redis.iter().map(|server| &**server).collect(),
        }
    }

    pub(crate) fn server(&self) -> &RedisServer {
        self.redis.as_ref().expect("a world with Redis")
    }

    /// Starts a process on this store, which may have faults.
    pub(crate) async fn start<S: AtomicStore>(
        &self,
        process: u64,
        store: Arc<S>,
    ) -> handfast_counters::Result<Counters> {
        self.start_with(process, store, |buffer| buffer).await
    }

    /// Starts a process whose buffer is decorated.
    pub(crate) async fn start_with<S: AtomicStore>(
        &self,
        process: u64,
        store: Arc<S>,
        decorate: impl FnOnce(Arc<dyn Buffer>) -> Arc<dyn Buffer>,
    ) -> handfast_counters::Result<Counters> {
        let sources = self.sources(process);
        let storage = match self.form {
            StorageForm::Transactions => {
                let engine = handfast_txn::Local::new(store.clone(), sources.clone());
                Storage::open(Database::new(Arc::new(engine), sources.clone()), "counters").await?
            }
            StorageForm::SingleDocuments => {
                Storage::open_single_documents(store.clone(), sources.clone(), "counters").await?
            }
        };
        let buffer: Arc<dyn Buffer> = match (&self.redis, &self.memory) {
            (None, Some(memory)) => memory.clone(),
            (None, None) => {
                let store: Arc<dyn DocumentStore> = store;
                let (queue_events_max, keys_max) = (QUEUE_EVENTS_MAX, self.keys_max);
                let options = EmbeddedBufferOptions { queue_events_max, keys_max, ..EmbeddedBufferOptions::default() };
                Arc::new(EmbeddedBuffer::open(store, "counters", &storage, sources.clone(), options).await?)
            }
            (Some(_), _) => Arc::new(self.redis_buffer(&storage, sources.clone()).await),
        };
        // A process begins when the one before is dead: its batches are taken over at once.
        let options = CountersOptions {
            batch_events: 3,
            idle: Duration::ZERO,
            read_time_max: PATIENCE,
            ..CountersOptions::default()
        };
        Ok(Counters::new(decorate(buffer), storage, sources, options))
    }

    /// A buffer in Redis with a small queue, and time for busy machines.
    pub(crate) async fn redis_buffer(&self, storage: &Storage, sources: Sources) -> RedisBuffer {
        let url = self.url();
        let options = RedisBufferOptions {
            queue_events_max: QUEUE_EVENTS_MAX as u64,
            // Redis loses everything in some tests, and nobody else has the queue.
            replace_after: Duration::ZERO,
            ..patient_options()
        };
        let buffer = RedisBuffer::connect_with_scripts(&url, &self.scripts, storage.clone(), sources, options).await;
        buffer.expect("a buffer")
    }

    pub(crate) fn sources(&self, process: u64) -> Sources {
        Sources { clock: self.clock.clone(), ..Sources::seeded(process) }
    }

    /// Starts a process on the store without faults.
    pub(crate) async fn healthy(&self, process: u64) -> Counters {
        self.start(process, self.store.clone()).await.expect("a process")
    }

    /// Lets time pass, for Redis as well: what would have expired is gone.
    pub(crate) async fn advance(&self, time: Duration) {
        self.clock.advance(time);
        let passed = i64::try_from(time.as_millis()).expect("a time");
        for server in self.servers() {
            let mut client = server.client().await;
            let keys: Vec<String> = redis::cmd("KEYS").arg("*").query_async(&mut client).await.expect("keys");
            for key in keys {
                let left: i64 = redis::cmd("PTTL").arg(&key).query_async(&mut client).await.expect("a time");
                if left >= 0 {
                    // Without a positive time it is deleted.
                    redis::cmd("PEXPIRE").arg(&key).arg(left - passed).exec_async(&mut client).await.expect("set");
                }
            }
        }
    }
}

/// Returns the scripts with one part replaced, in the one that has it.
pub(crate) fn broken_scripts(name: &str, right: &str, wrong: &str) -> RedisScripts {
    let RedisScripts { count, steps } = RedisScripts::default();
    let broken = RedisScripts { count: count.replacen(right, wrong, 1), steps: steps.replacen(right, wrong, 1) };
    let changed = [broken.count != count, broken.steps != steps];
    assert_eq!(changed.iter().filter(|changed| **changed).count(), 1, "in one of the scripts: {name}");
    broken
}

/// The options of a buffer in Redis, with time for busy machines.
pub(crate) fn patient_options() -> RedisBufferOptions {
    RedisBufferOptions {
        connect_timeout: PATIENCE,
        response_timeout: PATIENCE,
        stall_timeout: PATIENCE,
        last_number_timeout: PATIENCE,
        ..RedisBufferOptions::default()
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
pub(crate) async fn save_all(counters: &Counters) {
    while counters.flush().await.expect("saved").batches > 0 {}
    let verification = counters.storage().verify(None, |_| ()).await.expect("checked");
    assert_eq!(verification.differences, []);
    assert!(verification.damaged.is_empty(), "{verification:?}");
}
