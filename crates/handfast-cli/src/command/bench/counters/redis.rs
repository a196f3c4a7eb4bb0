//! The buffer in Redis against bare commands through the same client: `GET` for reads, and for writes the script of the service that the counters
//! follow, which adds to a total that is there and puts an event into a list.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use handfast_counters::jiff::civil::date;
use handfast_counters::{
    Buffer as _, IncrementOutcome, Item, ItemId, Kind, RedisBuffer, RedisBufferOptions, Storage, Stored, View,
};
use handfast_store::{MemoryStore, Sources};
use handfast_txn::Database;
use redis::aio::MultiplexedConnection;

use super::super::measure::{Round, interleaved, round};
use super::super::report::Comparison;
use super::super::store::scattered;
use super::Plan;

/// The kind of the items. All keys of this name are removed before and after.
const KIND: &str = "handfast-bench";
/// The set of all kinds.
const KINDS: &str = "hf:kinds";
/// `IncrementIfExists` of seed 3, without anything else.
const BARE_SCRIPT: &str = "if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return -1 end \
    redis.call('LPUSH', KEYS[2], ARGV[1]) \
    return redis.call('HINCRBY', KEYS[1], ARGV[1], 1)";
const BARE_TOTALS: &str = "hf:{handfast-bench}:bare-totals";
const BARE_PENDING: &str = "hf:{handfast-bench}:bare-pending";
/// Keys that one look for them returns.
const SCAN_KEYS: usize = 1_000;
/// Larger than what is counted in a run.
const QUEUE_EVENTS_MAX: u64 = 1 << 40;

/// The buffer, and the connection for bare commands.
struct Bench<'a> {
    plan: &'a Plan,
    sources: &'a Sources,
    buffer: Arc<RedisBuffer>,
    kind: Kind,
    bare: MultiplexedConnection,
    /// The hash of the bare script.
    hash: Arc<str>,
}

/// Connects to the Redis of a URL.
pub(super) async fn connect(url: &str, sources: &Sources) -> Result<Arc<RedisBuffer>> {
    let store = MemoryStore::new(sources.clone());
    let storage = Storage::open(Database::local(store, sources.clone()), "counters").await?;
    let options = RedisBufferOptions { queue_events_max: QUEUE_EVENTS_MAX, ..RedisBufferOptions::default() };
    let buffer = RedisBuffer::connect(url, storage, sources.clone(), options).await.context("--redis")?;
    buffer.check().await.context("--redis")?;
    Ok(Arc::new(buffer))
}

/// Runs all cases on the Redis of a buffer.
pub(super) async fn run(
    plan: &Plan,
    buffer: Arc<RedisBuffer>,
    sources: &Sources,
    progress: &(dyn Fn(&str) + Sync),
) -> Result<Vec<Comparison>> {
    progress("totals and views in Redis");
    remove(&buffer).await?;
    let mut bare = buffer.connection(BARE_TOTALS).await?;
    let hash: String = redis::cmd("SCRIPT").arg("LOAD").arg(BARE_SCRIPT).query_async(&mut bare).await?;
    let bench = Bench { plan, sources, buffer, kind: Kind::new(KIND)?, bare, hash: hash.into() };
    let measured = bench.all().await;
    remove(&bench.buffer).await?;
    measured
}

impl Bench<'_> {
    async fn all(&self) -> Result<Vec<Comparison>> {
        self.load().await?;
        let mut comparisons = Vec::new();
        for tasks in [1, self.plan.connections] {
            let at_once = if tasks == 1 { "one at a time".to_owned() } else { format!("{tasks} at once") };
            let rounds = interleaved(
                self.plan.rounds,
                async |_| self.bare_reads(tasks).await,
                async |_| self.reads(tasks).await,
            )
            .await?;
            let case = format!("read a total, Redis, {at_once}");
            comparisons.push(Comparison::new(&case, "bare GET", &rounds, self.plan.promises.ratio(0.6)));
            let rounds = interleaved(
                self.plan.rounds,
                async |_| self.bare_writes(tasks).await,
                async |_| self.writes(tasks).await,
            )
            .await?;
            let case = format!("count a view, Redis, {at_once}");
            comparisons.push(Comparison::new(&case, "bare script", &rounds, self.plan.promises.ratio(0.5)));
        }
        Ok(comparisons)
    }

    /// Puts each item into the cache, and its bare counterparts beside it.
    async fn load(&self) -> Result<()> {
        self.buffer.upsert(&View::new(self.item(0)?, 1, date(2026, 11, 30))?, None).await?;
        let mut bare = self.bare.clone();
        for id in 0..self.plan.items {
            let item = self.item(id)?;
            let fence = self.buffer.read(&self.kind, &[]).await?.fence;
            self.buffer.fill(&item, Stored { fence, total: 1_000 }).await?;
            redis::cmd("SET").arg(bare_key(id)).arg(1_000).exec_async(&mut bare).await?;
            redis::cmd("HSET").arg(BARE_TOTALS).arg(id).arg(1_000).exec_async(&mut bare).await?;
        }
        Ok(())
    }

    fn item(&self, id: u64) -> Result<Item> {
        Ok(Item { kind: self.kind.clone(), id: ItemId::new(&id.to_string())? })
    }

    async fn reads(&self, tasks: usize) -> Result<Round> {
        let (buffer, kind, items) = (Arc::clone(&self.buffer), self.kind.clone(), self.plan.items);
        self.round(tasks, move |task, step| {
            let (buffer, kind) = (Arc::clone(&buffer), kind.clone());
            async move {
                let id = ItemId::new(&scattered(task, step, items).to_string())?;
                let reading = buffer.read(&kind, &[id]).await?;
                ensure!(reading.totals.iter().all(Option::is_some), "a loaded item is missing");
                Ok(())
            }
        })
        .await
    }

    async fn bare_reads(&self, tasks: usize) -> Result<Round> {
        let (bare, items) = (self.bare.clone(), self.plan.items);
        self.round(tasks, move |task, step| {
            let mut bare = bare.clone();
            async move {
                let key = bare_key(scattered(task, step, items));
                let total: Option<u64> = redis::cmd("GET").arg(key).query_async(&mut bare).await?;
                ensure!(total.is_some(), "a loaded key is missing");
                Ok(())
            }
        })
        .await
    }

    async fn writes(&self, tasks: usize) -> Result<Round> {
        let (buffer, kind, items) = (Arc::clone(&self.buffer), self.kind.clone(), self.plan.items);
        self.round(tasks, move |task, step| {
            let (buffer, kind) = (Arc::clone(&buffer), kind.clone());
            async move {
                let item = Item { kind, id: ItemId::new(&scattered(task, step, items).to_string())? };
                let counted = buffer.increment_if_exists(&View::new(item, 1, date(2026, 11, 30))?).await?;
                ensure!(matches!(counted, IncrementOutcome::Counted(_)), "a loaded item is missing");
                Ok(())
            }
        })
        .await
    }

    async fn bare_writes(&self, tasks: usize) -> Result<Round> {
        let (bare, hash, items) = (self.bare.clone(), Arc::clone(&self.hash), self.plan.items);
        self.round(tasks, move |task, step| {
            let (mut bare, hash) = (bare.clone(), Arc::clone(&hash));
            async move {
                let mut command = redis::cmd("EVALSHA");
                command.arg(&*hash).arg(2).arg(BARE_TOTALS).arg(BARE_PENDING).arg(scattered(task, step, items));
                let total: i64 = command.query_async(&mut bare).await?;
                ensure!(total > 0, "a loaded total is missing");
                Ok(())
            }
        })
        .await
    }

    async fn round<F, O>(&self, tasks: usize, operation: F) -> Result<Round>
    where
        F: Fn(usize, u64) -> O + Clone + Send + 'static,
        O: Future<Output = Result<()>> + Send,
    {
        let duration = Duration::from_secs_f64(self.plan.seconds);
        round(Arc::clone(&self.sources.clock), tasks, duration, operation).await
    }
}

fn bare_key(id: u64) -> String {
    format!("hf:{{{KIND}}}:bare:{id}")
}

/// Removes all keys of the kind, which are on one server, and its name.
async fn remove(buffer: &RedisBuffer) -> Result<()> {
    let mut connection = buffer.connection(BARE_TOTALS).await?;
    let pattern = format!("hf:{{{KIND}}}:*");
    let mut cursor = 0_u64;
    loop {
        let mut scan = redis::cmd("SCAN");
        scan.arg(cursor).arg("MATCH").arg(&pattern).arg("COUNT").arg(SCAN_KEYS);
        let (next, keys): (u64, Vec<String>) = scan.query_async(&mut connection).await?;
        if !keys.is_empty() {
            redis::cmd("UNLINK").arg(keys).exec_async(&mut connection).await?;
        }
        cursor = next;
        if cursor == 0 {
            break;
        }
    }
    let mut connection = buffer.connection(KINDS).await?;
    redis::cmd("SREM").arg(KINDS).arg(KIND).exec_async(&mut connection).await?;
    Ok(())
}
