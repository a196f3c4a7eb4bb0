//! The buffer of several processes, in Redis: one script with all steps, of which each call is atomic.
//!
//! The script (`redis/scripts.lua`) has the steps of [`KindState`](super::state::KindState), and says which keys there are. This file sends
//! them and reads the answers.
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

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use async_trait::async_trait;
use handfast_store::{Applied, Sources};
use jiff::civil::Date;
use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisError, Value};

use crate::buffer::{Buffer, Fence, Increment, Owner, QueueDepth, Reading, Stored, Total, Upsert};
use crate::{Batch, Error, Item, ItemId, Kind, Result, Salt, SequenceNumber, Storage, View};

use answer::Answer;
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
}

/// The script with the steps.
#[derive(Clone)]
struct Script {
    text: Arc<str>,
    hash: String,
}

impl Script {
    const TEXT: &str = include_str!("redis/scripts.lua");

    fn new(text: &str) -> Self {
        Script { text: text.into(), hash: redis::Script::new(text).get_hash().to_owned() }
    }

    async fn load(&self, connection: &mut MultiplexedConnection) -> Result<(), RedisError> {
        redis::cmd("SCRIPT").arg("LOAD").arg(&*self.text).exec_async(connection).await
    }

    fn command(&self, state: &str, arguments: &[&[u8]]) -> Cmd {
        let mut command = redis::cmd("EVALSHA");
        command.arg(&self.hash).arg(1).arg(state).arg(arguments);
        command
    }
}

impl RedisBuffer {
    /// Creates a buffer in the Redis at a URL such as `redis://user:password@host:6379/0`. If it cannot be reached now, that is logged,
    /// and each request connects again; [`RedisBuffer::health`] tells.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a URL that cannot be read.
    pub async fn connect(url: &str, storage: Storage, sources: Sources, options: RedisBufferOptions) -> Result<Self> {
        Self::connect_with_script(url, Script::TEXT, storage, sources, options).await
    }

    /// Creates a buffer whose steps are these: tests break one on purpose.
    ///
    /// # Errors
    /// Those of [`RedisBuffer::connect`].
    #[doc(hidden)]
    pub async fn connect_with_script(
        url: &str,
        script: &str,
        storage: Storage,
        sources: Sources,
        options: RedisBufferOptions,
    ) -> Result<Self> {
        let connection = Connection::new(url, Script::new(script), options)?;
        let buffer = RedisBuffer { connection, storage, sources, options, kinds: RwLock::default() };
        if let Err(error) = buffer.connection.get().await {
            tracing::warn!(%error, "views are not counted until Redis is there");
        }
        Ok(buffer)
    }

    /// Returns the text of the script.
    #[doc(hidden)]
    pub fn script() -> &'static str {
        Script::TEXT
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
        let state = format!("hf:{{{kind}}}:state");
        for _ in 0..STEP_ATTEMPTS {
            let live = self.connection.get().await?;
            let answer = self.send(&live, &state, step, arguments, lost).await?;
            if answer.word() != "begin" {
                return Ok(answer);
            }
            self.begin(kind, &live, &state).await.map_err(not_applied)?;
        }
        Err(unavailable(format!("the queue of {kind} gets lost again and again"), Applied::No))
    }

    async fn send(&self, live: &Live, state: &str, step: &str, arguments: &[&str], lost: Applied) -> Result<Answer> {
        let mut all = vec![step.as_bytes(), live.run.as_bytes()];
        all.extend(arguments.iter().map(|argument| argument.as_bytes()));
        Answer::new(self.connection.run(live, state, &all, lost).await?)
    }

    async fn begin(&self, kind: &Kind, live: &Live, state: &str) -> Result<()> {
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
        self.send(live, state, "begin", &[&least.to_string(), &epoch.to_string()], Applied::No).await?;
        Ok(())
    }

    /// Sends a step with a view; `stored` are further arguments.
    async fn count(&self, step: &str, view: &View, stored: &[&str]) -> Result<Answer> {
        let (views, day) = (view.views.to_string(), view.day.to_string());
        let key = view.key.as_ref().map_or("", |key| key.as_str());
        let (key_time, events_max) = (millis(self.options.key_time), self.options.queue_events_max.to_string());
        let mark = view.visitor.map_or_else(String::new, |visitor| visitor.mark.to_string());
        let window = view.visitor.map_or_else(String::new, |visitor| millis(visitor.window));
        let mut arguments = vec![view.item.id.as_str(), &views, &day, key, &key_time, &events_max, &mark, &window];
        arguments.extend(stored);
        let answer = self.step(&view.item.kind, step, &arguments, Applied::Maybe).await?;
        self.unless_full(answer)
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

    async fn increment_if_exists(&self, view: &View) -> Result<Increment> {
        let answer = self.count("increment_if_exists", view, &[]).await?;
        match answer.word() {
            "absent" => Ok(Increment::Absent),
            "repeated" => Ok(Increment::Repeated(answer.counted()?)),
            _ => Ok(Increment::Counted(answer.counted()?)),
        }
    }

    async fn upsert(&self, view: &View, stored: Option<Stored>) -> Result<Upsert> {
        let answer = match stored {
            None => self.count("upsert", view, &["", ""]).await?,
            Some(Stored { fence, total }) => {
                self.count("upsert", view, &[&total.to_string(), &fence.0.to_string()]).await?
            }
        };
        match answer.word() {
            "outdated" => Ok(Upsert::Outdated),
            "repeated" => Ok(Upsert::Repeated(answer.counted()?)),
            _ => Ok(Upsert::Counted(answer.counted()?)),
        }
    }

    async fn read(&self, kind: &Kind, ids: &[ItemId]) -> Result<Reading> {
        let ids: Vec<&str> = ids.iter().map(ItemId::as_str).collect();
        let answer = self.step(kind, "read", &ids, Applied::No).await?;
        Ok(Reading { totals: answer.totals(ids.len())?, fence: Fence(answer.number(1)?) })
    }

    async fn fill(&self, item: &Item, stored: Stored) -> Result<Option<Total>> {
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
        let answer = self.step(kind, "depth", &[], Applied::No).await?;
        Ok(QueueDepth { pending: answer.number(1)?, batches: answer.number(2)?, oldest: answer.number(3)? })
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
