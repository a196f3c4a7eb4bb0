//! The buffer of several processes, in Redis: two scripts with the steps that write, of which each call is atomic.
//!
//! The scripts have the steps of [`KindState`](super::state::KindState). `redis/count.lua` counts views, and is short: it is nearly all of the
//! load. `redis/steps.lua` has the other steps, and says which keys there are. This file sends them and reads the answers. Totals are
//! read without a script: see [`reads`].
//!
//! # When Redis starts again, or another server takes its place
//! It may have lost everything, the last second, or nothing; a replica may lack what was not replicated. So each step but the
//! counting of views names the run of the server that its connection leads to; a kind whose state was left by another run is first *begun* anew, and gets another
//! *generation*. A view names the generation, which a connection knows once it has seen the state of the kind with its own run in it. A server that was a replica meanwhile, and is a master
//! again, counts as another run: it has the data of the server that it followed. It gets a next number above all that were used, by the clock of Redis in
//! microseconds, by [`Storage::last_number`] and by the state that was left, and an epoch that was never used. So no batch gets the name of another, no stored total that was
//! read before is taken for current, and what is in the queue although the store has it is left out by [`Storage::save`].
//!
//! ```text
//!   Redis                                        store
//!   pending 100 .. 104
//!   batch 104 of A                               batch 104: 100 .. 104          saved and acknowledged
//!   - is killed, and comes back as it was a second ago -
//!   pending 100 .. 104, other run
//!   begin: tail 1790000000000000, floor 1790000000000000, segments 100:5
//!   pending 100 .. 104, 1790000000000000
//!   batch 104 of B                               100 .. 104 are there: left out
//!   batch 1790000000000000 of B                  1790000000000000 is added
//! ```
//!
//! # One store
//! Redis has the queue of one store, and no other Redis has: see [`identity`].
//!
//! # Several servers
//! [`Servers`] knows which server has a key: that of an address, the master that sentinels name ([`sentinel`]), or the one of a cluster that has its slot ([`cluster`]).
//! A request that a server has refused, before it had an effect, because another one has its place or its slot, is sent again to that one.

mod answer;
mod beginning;
mod circuit_breaker;
mod cluster;
mod connection;
mod connector;
mod failure;
mod health;
mod identity;
mod instances;
mod mark;
mod reads;
mod refusals;
mod sentinel;
mod server_connection;
mod servers;
mod slots;
mod tls;
mod url;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use async_trait::async_trait;
use handfast_store::{Applied, Sources};
use jiff::civil::Date;
use redis::Value;

use crate::buffer::arrivals::Arrivals;
use crate::buffer::{
    BATCH_ITEMS_MAX, Buffer, Fence, IncrementOutcome, Instance, InstanceReport, Owner, QueueDepth, Reading, Stored,
    Total, UpsertOutcome,
};
use crate::{Batch, Error, IdempotencyKey, Item, ItemId, Kind, Result, Salt, Storage, View};

use answer::{Answer, Count};
use beginning::Beginning;
use failure::{Failure, unavailable};
use identity::Identity;
use server_connection::{Script, ServerConnection};
use servers::{Attempts, Servers};

pub use health::RedisHealth;

/// The set of all kinds.
const KINDS: &str = "hf:kinds";
/// A key that is written to see whether a server writes.
const PROBE: &str = "hf:probe";
/// The beginning of the key of the salt of a day.
const SALT: &str = "hf:salt:";
/// The time for which the salt of a day is kept: the day itself, and what the clocks of instances may differ.
const SALT_SECONDS: u64 = 25 * 3_600;
/// The end of a key of each kind that is never there. A server of a cluster refuses a script that names it while the slot of the kind is moved.
const NONE: &str = "none";
/// The fence of a kind that is not begun.
const NOT_BEGUN: Fence = Fence(0);
/// The settings of the Redis buffer.
#[derive(Clone, Copy, Debug)]
pub struct RedisBufferOptions {
    /// The maximum number of events in the queue of each kind. Requests above it are refused with [`Error::Full`].
    pub queue_events_max: u64,
    /// The time after which an item leaves the cache that has no views which are not saved.
    pub cache_time: Duration,
    /// The time for which idempotency keys are remembered.
    pub key_time: Duration,
    /// The time within which a connection must be made.
    pub connect_timeout: Duration,
    /// The time within which Redis must answer a request.
    pub response_timeout: Duration,
    /// The time after which a server that has not answered a request is taken for stopped: others are refused at once then, until it answers. It is shorter
    /// than the time that a read has for the buffer.
    pub stall_timeout: Duration,
    /// The time within which the store must answer the question for the last number of a kind, which begins without it otherwise. It is shorter than the time
    /// that a read has for the buffer, as the first read after a restart of Redis may begin the kind.
    pub last_number_timeout: Duration,
    /// The time within which instances over another Redis object when this one, which is empty, would take its place. It is longer than
    /// [`CountersOptions::flush_interval`](crate::CountersOptions::flush_interval) of theirs.
    pub replace_after: Duration,
}

impl Default for RedisBufferOptions {
    /// A million events in each queue, items for an hour after their last view was saved, keys for a day, 2 seconds to connect and 5 to answer; 1.5 seconds until
    /// a server is taken for stopped; a second for the last number; 15 seconds until another Redis is replaced.
    fn default() -> Self {
        RedisBufferOptions {
            queue_events_max: 1_000_000,
            cache_time: Duration::from_secs(3_600),
            key_time: Duration::from_secs(24 * 3_600),
            connect_timeout: Duration::from_secs(2),
            response_timeout: Duration::from_secs(5),
            stall_timeout: Duration::from_millis(1_500),
            last_number_timeout: Duration::from_secs(1),
            replace_after: Duration::from_secs(15),
        }
    }
}

/// A buffer in Redis, which several processes share.
pub struct RedisBuffer {
    servers: Servers,
    storage: Storage,
    sources: Sources,
    options: RedisBufferOptions,
    /// The kinds that this process has begun, or has tried to.
    kinds: RwLock<BTreeMap<Kind, Arc<Beginning>>>,
    /// The times at which the events of each kind came, as this process has seen.
    arrivals: Mutex<BTreeMap<Kind, Arrivals>>,
    identity: Identity,
    /// The URL without logins and files, for messages.
    url: String,
}

/// The texts of the scripts, which tests break on purpose.
#[doc(hidden)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisScripts {
    /// The steps that count views.
    pub count: String,
    /// The other steps.
    pub steps: String,
}

impl Default for RedisScripts {
    fn default() -> Self {
        let (count, steps) = (include_str!("redis/count.lua"), include_str!("redis/steps.lua"));
        RedisScripts { count: count.to_owned(), steps: steps.to_owned() }
    }
}

/// The beginning of the keys of a kind, which are in one slot of a cluster.
struct Keys(String);

impl Keys {
    fn new(kind: &Kind) -> Self {
        Keys(format!("hf:{{{kind}}}:"))
    }

    fn key(&self, rest: &str) -> String {
        [&*self.0, rest].concat()
    }

    fn items(&self, ids: &[ItemId]) -> Vec<String> {
        ids.iter().map(|id| self.item(id)).collect()
    }

    fn item(&self, id: &ItemId) -> String {
        [&*self.0, "item:", id.as_str()].concat()
    }
}

impl RedisBuffer {
    /// Creates a buffer in the Redis at a URL such as `redis://user:password@host:6379/0`, `rediss://..` with TLS, `redis+sentinel://host,host/MASTER/0`
    /// or `redis+cluster://host,host`. If it cannot be reached now, that is logged, and each request connects again; [`RedisBuffer::health`] tells.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a URL or certificates that cannot be read.
    pub async fn connect(url: &str, storage: Storage, sources: Sources, options: RedisBufferOptions) -> Result<Self> {
        Self::connect_with_scripts(url, &RedisScripts::default(), storage, sources, options).await
    }

    /// Creates a buffer with these scripts: tests break one on purpose.
    ///
    /// # Errors
    /// Those of [`RedisBuffer::connect`].
    #[doc(hidden)]
    pub async fn connect_with_scripts(
        url: &str,
        scripts: &RedisScripts,
        storage: Storage,
        sources: Sources,
        options: RedisBufferOptions,
    ) -> Result<Self> {
        let servers = Servers::new(url, scripts, options)?;
        let (kinds, arrivals, identity) = Default::default();
        let buffer =
            RedisBuffer { servers, storage, sources, options, kinds, arrivals, identity, url: url::shown(url)? };
        if let Err(error) = buffer.servers.check().await {
            tracing::warn!(%error, "views are not counted until Redis is there");
        }
        Ok(buffer)
    }

    /// Returns a URL without logins and files, for messages.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a URL that [`RedisBuffer::connect`] would refuse. The message does not repeat it.
    pub fn shown(url: &str) -> Result<String> {
        url::shown(url)
    }

    /// Asks Redis for its version and its settings.
    ///
    /// # Errors
    /// [`Error::Buffer`] if it cannot be reached.
    pub async fn health(&self) -> Result<RedisHealth> {
        self.servers.health().await
    }

    /// Returns what a user should know about the settings of Redis, as of the last connection or look; one sentence each.
    pub fn warnings(&self) -> Vec<String> {
        self.servers.last_health().warnings
    }

    /// Returns the connection to the server that has a key: benchmarks send bare commands over it.
    ///
    /// # Errors
    /// [`Error::Buffer`] if the server cannot be reached.
    #[doc(hidden)]
    pub async fn connection(&self, key: &str) -> Result<redis::aio::MultiplexedConnection> {
        Ok(self.servers.get(key).await?.connection)
    }

    /// Runs a step, after the kind was begun if it has to be.
    async fn step(&self, kind: &Kind, step: &str, arguments: &[&str], lost: Applied) -> Result<Answer> {
        let keys = Keys::new(kind);
        let mut attempts = Attempts::default();
        loop {
            let live = self.servers.get(&keys.0).await?;
            match self.send(&live, &keys, step, arguments, lost).await {
                Ok(answer) if answer.outcome() != "begin" => return Ok(answer),
                Ok(_) => self.begin(kind, &live, &mut attempts).await?,
                Err(failure) => self.servers.prepare_again(&keys.0, &live, failure, &mut attempts).await?,
            }
        }
    }

    async fn send(
        &self,
        live: &ServerConnection,
        keys: &Keys,
        step: &str,
        arguments: &[&str],
        lost: Applied,
    ) -> Result<Answer, Failure> {
        let store = self.identity.store().unwrap_or_default();
        let mut all = vec![step, &live.run, &store];
        all.extend(arguments);
        let steps: &Script = &self.servers.scripts.steps;
        let answer = Answer::new(live.run(steps, &[&keys.key("state"), &keys.key(NONE)], &all, lost).await?)?;
        match answer.outcome() {
            "other_store" => Err(self.of_another_store(answer.text(1)?, Some(&store)).into()),
            _ => Ok(answer),
        }
    }

    /// Counts a view. With `stored`, which is a stored total and the epoch before it, the item gets an entry if it has none.
    async fn count(&self, view: &View, stored: Option<[&str; 2]>) -> Result<Count> {
        self.ensure_own_queue().await?;
        let keys = Keys::new(&view.item.kind);
        let (present, item) = (keys.key("generation"), keys.item(&view.item.id));
        let (pending, state) = (keys.key("pending"), keys.key("state"));
        let key = view.key.as_ref().map(|key| keys.key(&format!("key:{}/{}", view.item.id, key.as_str())));
        let mark = view.visitor.map(|visitor| keys.key(&format!("visitor:{}", visitor.mark)));
        let named: Vec<&str> =
            [&*present, &item, &pending, &state].into_iter().chain(key.as_deref()).chain(mark.as_deref()).collect();
        let (views, event) = (view.views.to_string(), format!("{}|{}|{}", view.item.id, view.views, view.day));
        let events_max = self.options.queue_events_max.to_string();
        let key_time = key.as_ref().map_or_else(String::new, |_| millis(self.options.key_time));
        let window = view.visitor.map_or_else(String::new, |visitor| millis(visitor.window));
        let mut attempts = Attempts::default();
        loop {
            let live = self.servers.get(&keys.0).await?;
            let Some(generation) = live.generation(&view.item.kind) else {
                self.find_generation(&view.item.kind, &live, &mut attempts).await?;
                continue;
            };
            let known = [&*generation, "|"].concat();
            let mut arguments = vec![&*known, &views, &event, &events_max];
            if named.len() > 4 || stored.is_some() {
                arguments.extend([&*key_time, &window]);
                arguments.extend(stored.iter().flatten());
            }
            let answer = match live.run(&self.servers.scripts.count, &named, &arguments, Applied::Maybe).await {
                Ok(answer) => answer,
                Err(failure) => {
                    self.servers.prepare_again(&keys.0, &live, failure, &mut attempts).await?;
                    continue;
                }
            };
            match Count::new(&answer, view.views, &generation)? {
                Some(Count::TooLarge(total)) => return Err(Error::TotalTooLarge { views: total.views }),
                Some(Count::Full) => return Err(Error::Full { events: self.options.queue_events_max }),
                Some(count) => return Ok(count),
                None => live.keep_generation(&view.item.kind, None),
            }
        }
    }

    fn unless_full(&self, answer: Answer) -> Result<Answer> {
        match answer.outcome() {
            "full" => Err(Error::Full { events: self.options.queue_events_max }),
            _ => Ok(answer),
        }
    }
}

/// A time in milliseconds, 1 at least, as Redis wants it.
fn millis(time: Duration) -> String {
    time.as_millis().clamp(1, 1 << 52).to_string()
}

#[async_trait]
impl Buffer for RedisBuffer {
    fn name(&self) -> &'static str {
        "redis"
    }

    async fn check(&self) -> Result<()> {
        self.ensure_own_queue().await?;
        self.servers.check().await?;
        // A server may answer and write nothing: its memory is full, it is a replica, or too few replicas follow it.
        let mut probe = redis::cmd("SET");
        probe.arg(PROBE).arg(1).arg("PX").arg(1_000);
        self.servers.send(PROBE, &probe).await?;
        for kind in self.kinds().await? {
            let keys = Keys::new(&kind);
            let mut pipeline = redis::pipe();
            pipeline.cmd("GET").arg(keys.key("generation")).cmd("LLEN").arg(keys.key("pending"));
            let answers = self.servers.read(&keys.0, &pipeline).await?;
            let claimed =
                answers.first().map(answer::generation).transpose()?.flatten().map_or(0, |(_, claimed)| claimed);
            let pending = answers.get(1).and_then(answer::number).unwrap_or(0);
            if claimed + pending >= self.options.queue_events_max {
                return Err(Error::Full { events: self.options.queue_events_max });
            }
        }
        Ok(())
    }

    async fn check_before_saving(&self) -> Result<()> {
        RedisBuffer::check_before_saving(self).await
    }

    async fn increment_if_exists(&self, view: &View) -> Result<IncrementOutcome> {
        match self.count(view, None).await? {
            Count::Counted(total) => Ok(IncrementOutcome::Counted(total)),
            Count::Repeated(total) => Ok(IncrementOutcome::Repeated(total)),
            _ => Ok(IncrementOutcome::Absent),
        }
    }

    async fn upsert(&self, view: &View, stored: Option<Stored>) -> Result<UpsertOutcome> {
        let count = match stored {
            None => self.count(view, Some(["", ""])).await?,
            Some(Stored { fence, total }) => self.count(view, Some([&total.to_string(), &fence.0.to_string()])).await?,
        };
        match count {
            Count::Counted(total) => Ok(UpsertOutcome::Counted(total)),
            Count::Repeated(total) => Ok(UpsertOutcome::Repeated(total)),
            _ => Ok(UpsertOutcome::Outdated),
        }
    }

    async fn read(&self, kind: &Kind, ids: &[ItemId]) -> Result<Reading> {
        self.ensure_own_queue().await?;
        let keys = Keys::new(kind);
        let mut attempts = Attempts::default();
        loop {
            let live = self.servers.get(&keys.0).await?;
            match self.try_read(kind, &keys, ids, &live).await {
                Ok(Some(reading)) => return Ok(reading),
                Ok(None) => self.begin(kind, &live, &mut attempts).await?,
                Err(failure) => self.servers.prepare_again(&keys.0, &live, failure, &mut attempts).await?,
            }
        }
    }

    async fn fill(&self, item: &Item, stored: Stored) -> Result<Option<Total>> {
        // Nobody had written to the kind, and a reader does not begin it; the epoch of one that was begun since is never 0.
        if stored.fence == NOT_BEGUN {
            return Ok(None);
        }
        let (total, fence) = (stored.total.to_string(), stored.fence.0.to_string());
        let arguments = [item.id.as_str(), &total, &fence, &millis(self.options.cache_time)];
        let answer = self.step(&item.kind, "fill", &arguments, Applied::Maybe).await?;
        match answer.outcome() {
            "refused" => Ok(None),
            _ => answer.counted().map(Some),
        }
    }

    async fn refresh(&self, kind: &Kind, totals: &[(ItemId, u64)], fence: Fence) -> Result<bool> {
        let (fence, numbers) = (fence.0.to_string(), totals.iter().map(|(_, total)| total.to_string()));
        let numbers: Vec<String> = numbers.collect();
        let mut arguments = vec![&*fence];
        arguments.extend(totals.iter().zip(&numbers).flat_map(|((id, _), total)| [id.as_str(), total]));
        Ok(self.step(kind, "refresh", &arguments, Applied::Maybe).await?.outcome() == "refreshed")
    }

    async fn renew(&self, kind: &Kind, ids: &[ItemId]) -> Result<()> {
        let lifetime = millis(self.options.cache_time);
        let arguments: Vec<&str> = std::iter::once(&*lifetime).chain(ids.iter().map(ItemId::as_str)).collect();
        self.step(kind, "renew", &arguments, Applied::No).await.map(drop)
    }

    async fn delete(&self, item: &Item, key: Option<&IdempotencyKey>) -> Result<()> {
        self.ensure_own_queue().await?;
        self.name_once(&item.kind).await?;
        let (events_max, key_time) = (self.options.queue_events_max.to_string(), millis(self.options.key_time));
        let mut arguments = vec![item.id.as_str(), &events_max];
        if let Some(key) = key {
            arguments.extend([key.as_str(), &key_time]);
        }
        let answer = self.step(&item.kind, "delete", &arguments, Applied::Maybe).await?;
        self.unless_full(answer).map(drop)
    }

    async fn kinds(&self) -> Result<Vec<Kind>> {
        // The set may be gone, or its server away, while the queues are there: in a cluster they are on other servers.
        let known = self.kinds.read().unwrap_or_else(PoisonError::into_inner).keys().cloned().collect::<BTreeSet<_>>();
        let names: Vec<String> = match self.servers.send(KINDS, redis::cmd("SMEMBERS").arg(KINDS)).await {
            Ok(answer) => redis::from_redis_value(answer)
                .map_err(|error| Error::damaged(format!("{KINDS:?} of Redis is no set of names: {error}")))?,
            Err(error) if known.is_empty() => return Err(error),
            Err(error) => {
                tracing::debug!(%error, "the kinds of others are not known now");
                Vec::new()
            }
        };
        let mut kinds = names.iter().map(|name| Kind::new(name)).collect::<Result<BTreeSet<Kind>>>()?;
        kinds.extend(known);
        Ok(kinds.into_iter().collect())
    }

    async fn claim(&self, kind: &Kind, owner: &Owner, events_max: usize) -> Result<Option<Batch>> {
        let arguments = [owner.as_str(), &events_max.to_string(), &BATCH_ITEMS_MAX.to_string()];
        let answer = self.step(kind, "claim", &arguments, Applied::Maybe).await?;
        if answer.outcome() == "none" {
            return Ok(None);
        }
        Ok(Some(Batch { kind: kind.clone(), events: answer.events()? }))
    }

    async fn take_over(&self, kind: &Kind, owner: &Owner, idle: Duration) -> Result<bool> {
        let arguments = [owner.as_str(), &idle.as_millis().min(1 << 52).to_string()];
        Ok(self.step(kind, "take_over", &arguments, Applied::Maybe).await?.outcome() == "taken")
    }

    async fn acknowledge(&self, batch: &Batch) -> Result<bool> {
        let arguments = [&*batch.number().to_string(), &batch.first().to_string(), &millis(self.options.cache_time)];
        let answer = self.step(&batch.kind, "acknowledge", &arguments, Applied::Maybe).await?;
        Ok(answer.outcome() == "acknowledged")
    }

    async fn make_partial(&self, kind: &Kind, ids: &[ItemId]) -> Result<()> {
        let ids: Vec<&str> = ids.iter().map(ItemId::as_str).collect();
        self.step(kind, "make_partial", &ids, Applied::Maybe).await.map(drop)
    }

    async fn visitor_salt(&self, day: Date) -> Result<Salt> {
        let key = format!("{SALT}{day}");
        let find = || async {
            let found = self.servers.send(&key, redis::cmd("GET").arg(&key)).await?;
            match &found {
                Value::Nil => Ok(None),
                found => text(found).and_then(Salt::read).map(Some).ok_or_else(|| {
                    Error::damaged(format!("{key:?} of Redis is no salt of visitors: delete it, and a new one is made"))
                }),
            }
        };
        if let Some(salt) = find().await? {
            return Ok(salt);
        }
        // Of two instances at once, the first one's salt is for both.
        let mut set = redis::cmd("SET");
        set.arg(&key).arg(Salt::new()?.digits()).arg("NX").arg("EX").arg(SALT_SECONDS);
        self.servers.send(&key, &set).await?;
        find().await?.ok_or_else(|| unavailable(format!("{key:?} gets lost again and again"), Applied::No))
    }

    async fn depth(&self, kind: &Kind) -> Result<QueueDepth> {
        // Before the answer: what has a later number came after this moment.
        let asked = self.sources.clock.elapsed();
        let answer = self.step(kind, "depth", &[], Applied::No).await?;
        let [pending, batches, oldest, next] =
            [answer.number(1)?, answer.number(2)?, answer.number(3)?, answer.number(4)?];
        let mut arrivals = self.arrivals.lock().unwrap_or_else(PoisonError::into_inner);
        self.known(kind).next.fetch_max(next, Ordering::SeqCst);
        let of_kind = arrivals.entry(kind.clone()).or_default();
        of_kind.look(oldest, next, asked);
        let age = of_kind.age(oldest, self.sources.clock.elapsed());
        let oldest_age = age.filter(|_| pending > 0 || batches > 0);
        Ok(QueueDepth { pending, batches, oldest, next, oldest_age })
    }

    async fn announce(&self, report: InstanceReport, lifetime: Duration) -> Result<()> {
        instances::announce(&self.servers, &report, lifetime).await
    }

    async fn withdraw(&self, name: &Owner) -> Result<()> {
        instances::withdraw(&self.servers, name).await
    }

    async fn instances(&self) -> Result<Vec<Instance>> {
        instances::list(&self.servers).await
    }
}

/// Returns an answer, or a part of one, as text.
fn text(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        Value::SimpleString(text) => Some(text),
        _ => None,
    }
}
