//! Time, chance and fresh ids as arguments, so that a run can be replayed.

use std::sync::Arc;
use std::time::Duration;

use bson::DateTime;
use bson::oid::ObjectId;

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

/// The three sources that a store is given at its start.
#[derive(Clone)]
pub struct Sources {
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Chance.
    pub random: Arc<dyn Random>,
    /// Fresh ids.
    pub ids: Arc<dyn IdSource>,
}
