//! Time, randomness and new ids as arguments, so that a run can be replayed.
//!
//! A program creates [`Sources::system`] once at its start and passes it down; no other code asks the operating system.
//! A test uses [`Sources::seeded`]: its clock stands still until the test moves it, and the same seed gives the same
//! numbers and ids.
//!
//! ```
//! use handfast_store::Sources;
//!
//! let (one, other) = (Sources::seeded(7), Sources::seeded(7));
//! assert_eq!(one.ids.object_id(), other.ids.object_id());
//! assert_eq!(one.random.next_u64(), other.random.next_u64());
//! ```

pub mod cluster_clock;
mod manual;
mod object_ids;
mod system;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use bson::oid::ObjectId;
use bson::{DateTime, RawBsonRef, RawDocument, RawDocumentBuf, Timestamp};
use handfast_mql::context::QueryMemory;
use handfast_mql::expression::may_take_long;
use handfast_mql::{Code, CompileOptions, Context, Expression};

use crate::{Error, Result, blocking_if};

pub use cluster_clock::ClusterClock;
pub use manual::{CountingIds, ManualClock, SeededRandom};
pub use object_ids::ObjectIds;
pub use system::{SystemClock, os_random_bytes};

/// A source of time.
pub trait Clock: Send + Sync + 'static {
    /// Returns the time of day, in milliseconds since 1970. It may jump; never compare the times of two machines.
    fn now(&self) -> DateTime;

    /// Returns the time since some fixed moment, which never goes back, for durations and deadlines.
    fn elapsed(&self) -> Duration;
}

/// A source of random numbers.
pub trait Random: Send + Sync + 'static {
    /// Returns 64 random bits.
    fn next_u64(&self) -> u64;
}

/// A source of new document ids.
pub trait IdSource: Send + Sync + 'static {
    /// Returns an ObjectId that no other call anywhere returns.
    fn object_id(&self) -> ObjectId;
}

/// The sources of time, randomness and ids of a store, and the memory limits of its queries.
#[derive(Clone)]
pub struct Sources {
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// The random number generator.
    pub random: Arc<dyn Random>,
    /// The generator of new document ids.
    pub ids: Arc<dyn IdSource>,
    /// The memory limits of queries, which clones of these sources share.
    pub query_memory: QueryMemory,
    /// The cluster time, which clones of these sources share.
    pub cluster_clock: Arc<ClusterClock>,
    /// The time of day at the start of the clock, as these sources assumed it when they were created, for
    /// [`Sources::steady_now`].
    pub start: DateTime,
}

impl Sources {
    /// Creates sources with the clock of the machine and the randomness of the operating system.
    ///
    /// # Errors
    /// `InternalError` (1) if the operating system provides no random numbers.
    pub fn system() -> Result<Self> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let random: Arc<dyn Random> = Arc::new(SeededRandom::from_state(system::os_random_state().map_err(no_random)?));
        let ids = Arc::new(ObjectIds::new(Arc::clone(&clock), &*random));
        Ok(Sources::of(clock, random, ids))
    }

    fn of(clock: Arc<dyn Clock>, random: Arc<dyn Random>, ids: Arc<dyn IdSource>) -> Self {
        let start = moved(clock.now(), -millis(clock.elapsed()));
        let cluster_clock = Arc::new(ClusterClock::new(clock.now()));
        Sources { clock, random, ids, query_memory: QueryMemory::default(), cluster_clock, start }
    }

    /// Creates sources with a clock that stands at [`ManualClock::START`], and random numbers and ids that depend on the seed
    /// alone. Use another seed when a store is opened again: documents without an `_id` would get ids of the previous run.
    pub fn seeded(seed: u64) -> Self {
        Sources::manual(seed).0
    }

    /// Creates sources as [`Sources::seeded`] does, and returns their clock too.
    pub fn manual(seed: u64) -> (Self, Arc<ManualClock>) {
        let manual = Arc::new(ManualClock::new(ManualClock::START));
        let clock: Arc<dyn Clock> = manual.clone();
        let random: Arc<dyn Random> = Arc::new(SeededRandom::new(seed));
        let ids = Arc::new(ObjectIds::new(Arc::clone(&clock), &SeededRandom::new(!seed)));
        (Sources::of(clock, random, ids), manual)
    }
}

impl Sources {
    /// Returns a random UUID (version 4).
    pub fn uuid(&self) -> [u8; 16] {
        let mut uuid = [0; 16];
        uuid[..8].copy_from_slice(&self.random.next_u64().to_be_bytes());
        uuid[8..].copy_from_slice(&self.random.next_u64().to_be_bytes());
        uuid[6] = (uuid[6] & 0x0f) | 0x40;
        uuid[8] = (uuid[8] & 0x3f) | 0x80;
        uuid
    }

    /// Evaluates the `let` of a command, whose fields are expressions without a document. Requests carry values, so the front
    /// calls this once for each command.
    ///
    /// # Cancellation
    /// Loops run on a blocking thread and end when the future is dropped.
    pub async fn evaluate(&self, variables: RawDocumentBuf) -> Result<RawDocumentBuf> {
        let context = self.context(&RawDocumentBuf::new());
        let _stop = context.interrupt.stop_on_drop();
        blocking_if(may_take_long(&variables), move || evaluate(&variables, &context)).await
    }

    /// Creates the evaluation context of one request: time, randomness, memory limit and variables.
    pub fn context(&self, variables: &RawDocument) -> Context {
        let now = self.clock.now();
        Context::new(now, cluster_time(now), self.random.next_u64())
            .with_memory(self.query_memory.clone())
            .with_variables(variables.to_owned())
    }

    /// Returns a time of day that never jumps: the time when these sources were created plus the time since. The difference of
    /// two of these is the elapsed time, even if the clock was set in between; the time itself may be wrong.
    pub fn steady_now(&self) -> DateTime {
        moved(self.start, millis(self.clock.elapsed()))
    }

    /// Returns the value of an empty timestamp in an inserted document.
    pub fn cluster_time(&self) -> Timestamp {
        cluster_time(self.clock.now())
    }
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

fn moved(time: DateTime, millis: i64) -> DateTime {
    DateTime::from_millis(time.timestamp_millis().saturating_add(millis))
}

/// Returns the cluster time of a standalone store: the second of its clock.
fn cluster_time(now: DateTime) -> Timestamp {
    Timestamp { time: u32::try_from(now.timestamp_millis() / 1000).unwrap_or(0), increment: 1 }
}

fn no_random(error: std::io::Error) -> Error {
    Error::command(Code::InternalError, format!("the operating system provides no random numbers: {error}"))
}

fn evaluate(variables: &RawDocument, context: &Context) -> Result<RawDocumentBuf> {
    let (nothing, mut values) = (RawDocumentBuf::new(), RawDocumentBuf::new());
    for element in variables {
        let (name, expression) = element.map_err(handfast_mql::Error::from)?;
        let expression = Expression::compile(expression, &CompileOptions::default())?;
        // As in MongoDB, a variable whose value is missing is null.
        let value = expression.evaluate(&nothing, context)?;
        values.append(name, value.get().unwrap_or(RawBsonRef::Null));
    }
    Ok(values)
}

impl std::fmt::Debug for Sources {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sources").field("now", &self.clock.now()).finish_non_exhaustive()
    }
}
