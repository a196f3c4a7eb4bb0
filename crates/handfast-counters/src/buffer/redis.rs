//! The buffer of several processes, in Redis: two scripts with the steps that write, of which each call is atomic.
//!
//! The scripts have the steps of [`KindState`](super::state::KindState). `redis/count.lua` counts views, and is short: it is nearly all of the
//! load. `redis/steps.lua` has the other steps, and says which keys there are. This file sends them and reads the answers.
//!
//! # Reading without a script
//! A script costs Redis several times as much as a plain command. So totals are read by one `MGET` of their entries, as long as all of them are whole
//! and of the generation of the kind that this connection has found before. Redis begins no kind anew while it runs, unless the state of the
//! kind was lost; the entries were not, then, and are right.
//!
//! Otherwise the stored total of an item will be read, behind a fence, and the request is made again by a pipeline: the state of the kind first, which has
//! the epoch, then the generation and the entries. Redis may carry out steps of others between two commands of a pipeline:
//!
//! ```text
//!   pipeline                                     steps of others, in between
//!   HMGET state: run, epoch 40
//!                                                views, claims, acknowledgements, deletions
//!   GET now: generation 7
//!                                                views, claims, acknowledgements, deletions
//!   MGET item:a item:b: 2 pending, 5 stored, generation 7; nothing
//! ```
//!
//! - *An entry that is there* is right at the moment of its command; no total is older than the request. If it is compared with a later generation than
//!   the fence's, it can only be partial instead of whole.
//! - *An item without an entry.* At the moment of its own command the stored total was all of it, so a stored total that is read later has at least
//!   the views that any reader was shown before this request.
//! - *The epoch* is the oldest value of the pipeline. [`Buffer::fill`] and [`Buffer::upsert`] compare it at the moment of their own step,
//!   and look for the entry there again: if the epoch is the same and there is no entry, no batch was claimed or acknowledged since before the stored
//!   total was read, and none with views of the item was waiting for its acknowledgement. So the stored total is all of it, wherever the command
//!   for the entry stood. An epoch that was read after the entries would not show that: a batch may be acknowledged, and its entry expire, between the
//!   two.
//! - *The run* in the state is compared with that of the connection. If it differs, the kind is begun, and all is read again.
//!
//! # When Redis starts again
//! It may have lost everything, the last second, or nothing. So each step names the run of the server that its connection leads to; a kind
//! whose state was left by another run is first *begun* anew. It gets a next number above all that were used, by the clock of Redis in
//! microseconds and by [`Storage::last_number`], and an epoch that was never used. So no batch gets the name of another, no stored total that was
//! read before is taken for current, and what is in the queue although the store has it is left out by [`Storage::save`].
//!
//! ```text
//!   Redis                                        store
//!   pending 100 .. 104
//!   batch 104 of A                               batch 104: 100 .. 104          saved and acknowledged
//!   - is killed, and comes back as it was a second ago -
//!   pending 100 .. 104, other run
//!   begin: next 1790000000000000, floor 1790000000000000
//!   pending 100 .. 104, 1790000000000000
//!   batch 1790000000000000 of B                  100 .. 104 are there: left out, 1790000000000000 is added
//! ```

mod answer;
mod connection;
mod health;
mod instances;
mod url;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use async_trait::async_trait;
use handfast_store::{Applied, Sources};
use jiff::civil::Date;
use redis::Value;

use crate::buffer::arrivals::Arrivals;
use crate::buffer::{
    Buffer, Fence, Increment, Instance, InstanceReport, Owner, QueueDepth, Reading, Stored, Total, Upsert,
};
use crate::{Batch, Error, Item, ItemId, Kind, Result, Salt, SequenceNumber, Storage, View};

use answer::{Answer, Count, Entry, Row};
use connection::{Connection, Live, unavailable};

pub use health::RedisHealth;

/// The set of all kinds.
const KINDS: &str = "hf:kinds";
/// The beginning of the key of the salt of a day.
const SALT: &str = "hf:salt:";
/// The time for which the salt of a day is kept: the day itself, and what the clocks of instances may differ.
const SALT_SECONDS: u64 = 25 * 3_600;
/// How often a step is sent again because its kind had to be begun: Redis may lose everything in between, but hardly again.
const STEP_ATTEMPTS: usize = 3;
/// The fence of a kind that is not begun.
const NOT_BEGUN: Fence = Fence(0);
/// The largest number with which a kind begins: beyond, the numbers of Lua are not exact.
const NUMBER_MAX: SequenceNumber = 1 << 52;

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
    /// The time within which Redis must answer a request, and the store the question for the last number of a kind.
    pub response_timeout: Duration,
}

impl Default for RedisBufferOptions {
    /// A million events in each queue, items for an hour after their last view was saved, keys for a day, 2 seconds to connect and 5 to answer.
    fn default() -> Self {
        RedisBufferOptions {
            queue_events_max: 1_000_000,
            cache_time: Duration::from_secs(3_600),
            key_time: Duration::from_secs(24 * 3_600),
            connect_timeout: Duration::from_secs(2),
            response_timeout: Duration::from_secs(5),
        }
    }
}

/// A buffer in Redis, which several processes share.
pub struct RedisBuffer {
    connection: Connection,
    storage: Storage,
    sources: Sources,
    options: RedisBufferOptions,
    /// The kinds to which this process has written.
    kinds: RwLock<BTreeSet<Kind>>,
    /// The times at which the events of each kind came, as this process has seen.
    arrivals: Mutex<BTreeMap<Kind, Arrivals>>,
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

/// The keys of a kind, which are in one slot of a cluster.
struct Keys(String);

impl Keys {
    fn new(kind: &Kind) -> Self {
        Keys(format!("hf:{{{kind}}}:"))
    }

    fn key(&self, rest: &str) -> String {
        [&*self.0, rest].concat()
    }

    fn item(&self, id: &ItemId) -> String {
        [&*self.0, "item:", id.as_str()].concat()
    }
}

impl RedisBuffer {
    /// Creates a buffer in the Redis at a URL such as `redis://user:password@host:6379/0`. If it cannot be reached now, that is logged,
    /// and each request connects again; [`RedisBuffer::health`] tells.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a URL that cannot be read.
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
        let connection = Connection::new(url, scripts, options)?;
        let (kinds, arrivals) = Default::default();
        let buffer = RedisBuffer { connection, storage, sources, options, kinds, arrivals };
        if let Err(error) = buffer.connection.get().await {
            tracing::warn!(%error, "views are not counted until Redis is there");
        }
        Ok(buffer)
    }

    /// Returns the URL of a Redis server without user and password, for messages.
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
        self.connection.health().await
    }

    /// Returns what a user should know about the settings of Redis, as of the last connection or look; one sentence each.
    pub fn warnings(&self) -> Vec<String> {
        self.connection.last_health().warnings
    }

    /// Runs a step, after the kind was begun if it has to be.
    async fn step(&self, kind: &Kind, step: &str, arguments: &[&str], lost: Applied) -> Result<Answer> {
        let state = Keys::new(kind).key("state");
        for _ in 0..STEP_ATTEMPTS {
            let live = self.connection.get().await?;
            let answer = self.send(&live, &state, step, arguments, lost).await?;
            if answer.word() != "begin" {
                return Ok(answer);
            }
            self.begin(kind, &live).await.map_err(not_applied)?;
        }
        Err(lost_again(kind))
    }

    async fn send(&self, live: &Live, state: &str, step: &str, arguments: &[&str], lost: Applied) -> Result<Answer> {
        let mut all = vec![step, &live.run];
        all.extend(arguments);
        Answer::new(self.connection.run(live, &self.connection.steps, &[state], &all, lost).await?)
    }

    /// Returns the generation of a kind, which is begun if it has to be.
    async fn generation(&self, kind: &Kind, live: &Live) -> Result<Arc<str>> {
        if let Some(generation) = live.generation(kind) {
            return Ok(generation);
        }
        // Most kinds were begun by others.
        self.try_read(kind, &[], live).await.map_err(not_applied)?;
        match live.generation(kind) {
            Some(generation) => Ok(generation),
            None => self.begin(kind, live).await.map_err(not_applied),
        }
    }

    /// Begins a kind, unless that was done in this run, and returns its generation.
    async fn begin(&self, kind: &Kind, live: &Live) -> Result<Arc<str>> {
        let least = match tokio::time::timeout(self.options.response_timeout, self.storage.last_number(kind)).await {
            Ok(Ok(last)) => last + 1,
            Ok(Err(error @ Error::Damaged { .. })) => return Err(error),
            // The clock of Redis alone decides.
            Ok(Err(_)) | Err(_) => 0,
        };
        if least > NUMBER_MAX {
            return Err(Error::damaged(format!(
                "the last number of {kind} in the store, {least}, is above {NUMBER_MAX}"
            )));
        }
        // Before the first event, so that each pass finds the kind.
        self.connection.send(redis::cmd("SADD").arg(KINDS).arg(kind.as_str())).await?;
        self.kinds.write().unwrap_or_else(PoisonError::into_inner).insert(kind.clone());
        let epoch = (self.sources.random.next_u64() >> 2).max(1);
        tracing::info!(%kind, "the queue begins with a new epoch");
        let state = Keys::new(kind).key("state");
        let answer = self.send(live, &state, "begin", &[&least.to_string(), &epoch.to_string()], Applied::No).await?;
        let generation: Arc<str> = answer.text(1)?.into();
        live.keep_generation(kind, Some(&generation));
        Ok(generation)
    }

    /// Counts a view. With `stored`, which is a stored total and the epoch before it, the item gets an entry if it has none.
    async fn count(&self, view: &View, stored: Option<[&str; 2]>) -> Result<Count> {
        let keys = Keys::new(&view.item.kind);
        let (now, item, pending) = (keys.key("now"), keys.item(&view.item.id), keys.key("pending"));
        let key = view.key.as_ref().map(|key| keys.key(&format!("key:{}/{}", view.item.id, key.as_str())));
        let mark = view.visitor.map(|visitor| keys.key(&format!("visitor:{}", visitor.mark)));
        let named: Vec<&str> =
            [&*now, &item, &pending].into_iter().chain(key.as_deref()).chain(mark.as_deref()).collect();
        let (views, event) = (view.views.to_string(), format!("{}|{}|{}", view.item.id, view.views, view.day));
        let events_max = self.options.queue_events_max.to_string();
        let key_time = key.as_ref().map_or_else(String::new, |_| millis(self.options.key_time));
        let window = view.visitor.map_or_else(String::new, |visitor| millis(visitor.window));
        for _ in 0..STEP_ATTEMPTS {
            let live = self.connection.get().await?;
            let generation = self.generation(&view.item.kind, &live).await?;
            let known = [&*generation, "|"].concat();
            let mut arguments = vec![&*known, &views, &event, &events_max];
            if named.len() > 3 || stored.is_some() {
                arguments.extend([&*key_time, &window]);
                arguments.extend(stored.iter().flatten());
            }
            let script = &self.connection.count;
            let answer = self.connection.run(&live, script, &named, &arguments, Applied::Maybe).await?;
            match Count::new(&answer, view.views, &generation)? {
                Some(Count::Full) => return Err(Error::Full { events: self.options.queue_events_max }),
                Some(count) => return Ok(count),
                None => live.keep_generation(&view.item.kind, None),
            }
        }
        Err(lost_again(&view.item.kind))
    }

    /// Reads totals by one command; nothing if one is not whole.
    async fn read_whole(&self, kind: &Kind, ids: &[ItemId], live: &Live) -> Result<Option<Vec<Total>>> {
        let Some(generation) = live.generation(kind) else { return Ok(None) };
        let keys = Keys::new(kind);
        let mut command = redis::cmd("MGET");
        for id in ids {
            command.arg(keys.item(id));
        }
        let entries = self.connection.send_on(live, &command).await?;
        let whole = |entry| Ok(Entry::total_of(entry, &generation)?.filter(|total| !total.partial));
        answer::values(&entries)?.iter().map(whole).collect()
    }

    /// Reads totals by plain commands; nothing if the kind must be begun.
    async fn try_read(&self, kind: &Kind, ids: &[ItemId], live: &Live) -> Result<Option<Reading>> {
        let keys = Keys::new(kind);
        let mut pipeline = redis::pipe();
        // First: see the description of this module.
        pipeline.cmd("HMGET").arg(keys.key("state")).arg(&["run", "epoch"]);
        pipeline.cmd("GET").arg(keys.key("now"));
        if !ids.is_empty() {
            pipeline.cmd("MGET");
            for id in ids {
                pipeline.arg(keys.item(id));
            }
        }
        let answers = self.connection.read(live, &pipeline).await?;
        let mut answers = answers.iter();
        let [Some(state), Some(now)] = [(); 2].map(|()| answers.next()) else {
            return Err(Error::damaged("Redis has answered fewer commands than it was sent"));
        };
        let (state, now) = (Row::new(state)?, answer::now(now)?);
        let generation = match (state.text(0)?, now) {
            (Some(run), Some((generation, _))) if run == &*live.run => generation,
            (None, None) => {
                // A kind that nobody has written to is not begun by a reader.
                let mut exists = redis::cmd("EXISTS");
                exists.arg(keys.key("pending")).arg(keys.key("since"));
                return match self.connection.send(&exists).await? {
                    Value::Int(0) => Ok(Some(Reading { totals: vec![None; ids.len()], fence: NOT_BEGUN })),
                    _ => Ok(None),
                };
            }
            _ => return Ok(None),
        };
        live.keep_generation(kind, Some(generation));
        let entries = answers.next().map_or(Ok(&[][..]), answer::values)?;
        let totals = entries.iter().map(|entry| Entry::total_of(entry, generation)).collect::<Result<Vec<_>>>()?;
        Ok(Some(Reading { totals, fence: Fence(state.number(1)?.unwrap_or(0)) }))
    }

    fn unless_full(&self, answer: Answer) -> Result<Answer> {
        match answer.word() {
            "full" => Err(Error::Full { events: self.options.queue_events_max }),
            _ => Ok(answer),
        }
    }
}

/// A time in milliseconds, 1 at least, as Redis wants it.
fn millis(time: Duration) -> String {
    time.as_millis().clamp(1, 1 << 52).to_string()
}

/// The error of a request whose kind must be begun after each attempt.
fn lost_again(kind: &Kind) -> Error {
    unavailable(format!("the queue of {kind} gets lost again and again"), Applied::No)
}

/// The error of a request that did not get as far as its own step.
fn not_applied(error: Error) -> Error {
    match error {
        Error::Buffer { what, .. } => Error::Buffer { what, applied: Applied::No },
        other => other,
    }
}

#[async_trait]
impl Buffer for RedisBuffer {
    fn name(&self) -> &'static str {
        "redis"
    }

    async fn check(&self) -> Result<()> {
        let kinds = self.kinds().await?;
        let live = self.connection.get().await?;
        let mut pipeline = redis::pipe();
        for kind in &kinds {
            let keys = Keys::new(kind);
            pipeline.cmd("GET").arg(keys.key("now"));
            pipeline.cmd("LLEN").arg(keys.key("pending"));
        }
        let answers = if kinds.is_empty() { Vec::new() } else { self.connection.read(&live, &pipeline).await? };
        for of_kind in answers.chunks(2) {
            let [now, pending] = of_kind else { continue };
            let claimed = answer::now(now)?.map_or(0, |(_, claimed)| claimed);
            if claimed + answer::number(pending).unwrap_or(0) >= self.options.queue_events_max {
                return Err(Error::Full { events: self.options.queue_events_max });
            }
        }
        Ok(())
    }

    async fn increment_if_exists(&self, view: &View) -> Result<Increment> {
        match self.count(view, None).await? {
            Count::Counted(total) => Ok(Increment::Counted(total)),
            Count::Repeated(total) => Ok(Increment::Repeated(total)),
            _ => Ok(Increment::Absent),
        }
    }

    async fn upsert(&self, view: &View, stored: Option<Stored>) -> Result<Upsert> {
        let count = match stored {
            None => self.count(view, Some(["", ""])).await?,
            Some(Stored { fence, total }) => self.count(view, Some([&total.to_string(), &fence.0.to_string()])).await?,
        };
        match count {
            Count::Counted(total) => Ok(Upsert::Counted(total)),
            Count::Repeated(total) => Ok(Upsert::Repeated(total)),
            _ => Ok(Upsert::Outdated),
        }
    }

    async fn read(&self, kind: &Kind, ids: &[ItemId]) -> Result<Reading> {
        for _ in 0..STEP_ATTEMPTS {
            let live = self.connection.get().await?;
            if !ids.is_empty()
                && let Some(totals) = self.read_whole(kind, ids, &live).await?
            {
                return Ok(Reading { totals: totals.into_iter().map(Some).collect(), fence: Fence::NONE });
            }
            if let Some(reading) = self.try_read(kind, ids, &live).await? {
                return Ok(reading);
            }
            self.begin(kind, &live).await.map_err(not_applied)?;
        }
        Err(lost_again(kind))
    }

    async fn fill(&self, item: &Item, stored: Stored) -> Result<Option<Total>> {
        // Nobody had written to the kind, and a reader does not begin it; the epoch of one that was begun since is never 0.
        if stored.fence == NOT_BEGUN {
            return Ok(None);
        }
        let (total, fence) = (stored.total.to_string(), stored.fence.0.to_string());
        let arguments = [item.id.as_str(), &total, &fence, &millis(self.options.cache_time)];
        let answer = self.step(&item.kind, "fill", &arguments, Applied::Maybe).await?;
        match answer.word() {
            "refused" => Ok(None),
            _ => answer.counted().map(Some),
        }
    }

    async fn delete(&self, item: &Item) -> Result<()> {
        let arguments = [item.id.as_str(), &self.options.queue_events_max.to_string()];
        let answer = self.step(&item.kind, "delete", &arguments, Applied::Maybe).await?;
        self.unless_full(answer).map(drop)
    }

    async fn kinds(&self) -> Result<Vec<Kind>> {
        let answer = self.connection.send(redis::cmd("SMEMBERS").arg(KINDS)).await?;
        let names: Vec<String> = redis::from_redis_value(answer)
            .map_err(|error| Error::damaged(format!("{KINDS:?} of Redis is no set of names: {error}")))?;
        let mut kinds = names.iter().map(|name| Kind::new(name)).collect::<Result<BTreeSet<Kind>>>()?;
        // The set may be gone while the queues are there: in a cluster they are on other nodes.
        kinds.extend(self.kinds.read().unwrap_or_else(PoisonError::into_inner).iter().cloned());
        Ok(kinds.into_iter().collect())
    }

    async fn claim(&self, kind: &Kind, owner: &Owner, events_max: usize) -> Result<Option<Batch>> {
        let arguments = [owner.as_str(), &events_max.to_string()];
        let answer = self.step(kind, "claim", &arguments, Applied::Maybe).await?;
        if answer.word() == "none" {
            return Ok(None);
        }
        Ok(Some(Batch { kind: kind.clone(), events: answer.events()? }))
    }

    async fn take_over(&self, kind: &Kind, owner: &Owner, idle: Duration) -> Result<bool> {
        let arguments = [owner.as_str(), &idle.as_millis().min(1 << 52).to_string()];
        Ok(self.step(kind, "take_over", &arguments, Applied::Maybe).await?.word() == "taken")
    }

    async fn acknowledge(&self, batch: &Batch) -> Result<()> {
        let arguments = [&*batch.number().to_string(), &batch.first().to_string(), &millis(self.options.cache_time)];
        self.step(&batch.kind, "acknowledge", &arguments, Applied::Maybe).await.map(drop)
    }

    async fn visitor_salt(&self, day: Date) -> Result<Salt> {
        let key = format!("{SALT}{day}");
        let find = || async {
            let found = self.connection.send(redis::cmd("GET").arg(&key)).await?;
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
        self.connection.send(&set).await?;
        find().await?.ok_or_else(|| unavailable(format!("{key:?} gets lost again and again"), Applied::No))
    }

    async fn depth(&self, kind: &Kind) -> Result<QueueDepth> {
        // Before the answer: what has a later number came after this moment.
        let asked = self.sources.clock.elapsed();
        let answer = self.step(kind, "depth", &[], Applied::No).await?;
        let [pending, batches, oldest, next] =
            [answer.number(1)?, answer.number(2)?, answer.number(3)?, answer.number(4)?];
        let mut arrivals = self.arrivals.lock().unwrap_or_else(PoisonError::into_inner);
        let of_kind = arrivals.entry(kind.clone()).or_default();
        of_kind.look(oldest, next, asked);
        let age = of_kind.age(oldest, self.sources.clock.elapsed());
        Ok(QueueDepth { pending, batches, oldest, oldest_age: age.filter(|_| pending > 0 || batches > 0) })
    }

    async fn announce(&self, report: InstanceReport, lifetime: Duration) -> Result<()> {
        instances::announce(&self.connection, &report, lifetime).await
    }

    async fn withdraw(&self, name: &Owner) -> Result<()> {
        instances::withdraw(&self.connection, name).await
    }

    async fn instances(&self) -> Result<Vec<Instance>> {
        instances::list(&self.connection).await
    }
}

/// Answers of the script are arrays of texts and numbers.
fn text(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        Value::SimpleString(text) => Some(text),
        _ => None,
    }
}
