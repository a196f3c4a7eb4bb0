//! Time, chance and fresh ids as arguments, so that a run can be replayed.
//!
//! A program takes [`Sources::system`] once, at its start, and hands it down; nothing below asks the operating system.
//! A test takes [`Sources::seeded`]: its clock stands still until it is told to move, and the same seed gives the same
//! numbers and the same ids.
//!
//! ```
//! use handfast_store::Sources;
//!
//! let (one, other) = (Sources::seeded(7), Sources::seeded(7));
//! assert_eq!(one.ids.object_id(), other.ids.object_id());
//! assert_eq!(one.random.next_u64(), other.random.next_u64());
//! ```

mod manual;
mod object_ids;
mod system;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use bson::oid::ObjectId;
use bson::{DateTime, RawBsonRef, RawDocument, RawDocumentBuf, Timestamp};
use handfast_mql::context::{STAGE_BYTES_MAX, STAGE_TOTAL_BYTES_MAX, StageTotal};
use handfast_mql::expression::may_take_long;
use handfast_mql::{CompileOptions, Context, Expression};

use crate::{Result, blocking_if};

pub use manual::{CountingIds, ManualClock, SeededRandom};
pub use object_ids::ObjectIds;
pub use system::{SystemClock, os_random_bytes};

/// Where time comes from.
pub trait Clock: Send + Sync + 'static {
    /// The time of day, in milliseconds since 1970. It may jump; never compare those of two machines.
    fn now(&self) -> DateTime;

    /// Time since some fixed moment, which never goes back: for durations and deadlines.
    fn elapsed(&self) -> Duration;
}

/// Where chance comes from.
pub trait Random: Send + Sync + 'static {
    /// 64 random bits.
    fn next_u64(&self) -> u64;
}

/// Where fresh document ids come from.
pub trait IdSource: Send + Sync + 'static {
    /// An ObjectId that no other call anywhere returns.
    fn object_id(&self) -> ObjectId;
}

/// The three sources that a store is given at its start, and the bound that all of its evaluations have.
#[derive(Clone)]
pub struct Sources {
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Chance.
    pub random: Arc<dyn Random>,
    /// Fresh ids.
    pub ids: Arc<dyn IdSource>,
    /// Bytes that one stage of a query (a sort, a group, what a lookup finds) may hold in memory.
    pub stage_bytes_max: usize,
    /// What the stages of all queries may hold together; copies of these sources share it.
    pub stage_total: StageTotal,
    /// The time of day at the clock's start, as it was thought to be when these sources were made: for
    /// [`Sources::steady_now`].
    pub start: DateTime,
}

impl Sources {
    /// The machine's clock, randomness of the operating system, ids made from both.
    ///
    /// # Errors
    /// The operating system gives no randomness.
    pub fn system() -> std::io::Result<Self> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let random: Arc<dyn Random> = Arc::new(SeededRandom::from_state(system::os_random_state()?));
        let ids = Arc::new(ObjectIds::new(Arc::clone(&clock), &*random));
        Ok(Sources::of(clock, random, ids))
    }

    fn of(clock: Arc<dyn Clock>, random: Arc<dyn Random>, ids: Arc<dyn IdSource>) -> Self {
        let start = moved(clock.now(), -millis(clock.elapsed()));
        Sources {
            clock,
            random,
            ids,
            stage_bytes_max: STAGE_BYTES_MAX,
            stage_total: StageTotal::new(STAGE_TOTAL_BYTES_MAX),
            start,
        }
    }

    /// A clock that stands at [`ManualClock::START`], and chance and ids that follow from the seed alone. Whoever opens a store
    /// again that is kept takes another seed: documents without an `_id` would get those of the run before.
    pub fn seeded(seed: u64) -> Self {
        Sources::manual(seed).0
    }

    /// The same as [`Sources::seeded`], with the clock to move.
    pub fn manual(seed: u64) -> (Self, Arc<ManualClock>) {
        let manual = Arc::new(ManualClock::new(ManualClock::START));
        let clock: Arc<dyn Clock> = manual.clone();
        let random: Arc<dyn Random> = Arc::new(SeededRandom::new(seed));
        let ids = Arc::new(ObjectIds::new(Arc::clone(&clock), &SeededRandom::new(!seed)));
        (Sources::of(clock, random, ids), manual)
    }
}

impl Sources {
    /// A random UUID (version 4).
    pub fn uuid(&self) -> [u8; 16] {
        let mut uuid = [0; 16];
        uuid[..8].copy_from_slice(&self.random.next_u64().to_be_bytes());
        uuid[8..].copy_from_slice(&self.random.next_u64().to_be_bytes());
        uuid[6] = (uuid[6] & 0x0f) | 0x40;
        uuid[8] = (uuid[8] & 0x3f) | 0x80;
        uuid
    }

    /// The values of a command's `let`, whose fields are expressions without a document. Requests carry values: who
    /// reads a command calls this once for it.
    ///
    /// # Errors
    /// Those of the expressions.
    ///
    /// # Cancellation
    /// Loops run on a thread where they are in nobody's way, and end when the future is dropped.
    pub async fn evaluate(&self, variables: RawDocumentBuf) -> Result<RawDocumentBuf> {
        let context = self.context(&RawDocumentBuf::new());
        let _stop = context.interrupt.stop_on_drop();
        blocking_if(may_take_long(&variables), move || evaluate(&variables, &context)).await
    }

    /// With another bound on what one stage of a query may hold, in bytes.
    #[must_use]
    pub fn with_stage_bytes(self, stage_bytes_max: usize) -> Self {
        Sources { stage_bytes_max, ..self }
    }

    /// With another bound on what the stages of all queries may hold together, in bytes.
    #[must_use]
    pub fn with_stage_total_bytes(self, bytes_max: usize) -> Self {
        Sources { stage_total: StageTotal::new(bytes_max), ..self }
    }

    /// What the language needs for one request: its time, its chance, its bound, and the values of its variables.
    pub fn context(&self, variables: &RawDocument) -> Context {
        let now = self.clock.now();
        Context::new(now, cluster_time(now), self.random.next_u64())
            .with_stage_bytes(self.stage_bytes_max)
            .with_stage_total(self.stage_total.clone())
            .with_variables(variables.to_owned())
    }

    /// The time of day that never jumps: as it was when these sources were made, and what has passed since. Two of these
    /// are as far apart as it took, whatever was done to the clock meanwhile. It may be wrong all the same.
    pub fn steady_now(&self) -> DateTime {
        moved(self.start, millis(self.clock.elapsed()))
    }

    /// What stands for an empty timestamp in a document that is inserted.
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

/// A standalone store's cluster time is its own clock's second.
fn cluster_time(now: DateTime) -> Timestamp {
    Timestamp { time: u32::try_from(now.timestamp_millis() / 1000).unwrap_or(0), increment: 1 }
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
