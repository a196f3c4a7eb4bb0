#![doc = include_str!("../README.md")]

mod buffer;
mod counters;
mod error;
mod item;
mod readiness;
mod storage;
mod view;

pub use buffer::{
    Buffer, EmbeddedBuffer, EmbeddedBufferOptions, Fence, Increment, MemoryBuffer, Owner, QueueDepth, Reading,
    RedisBuffer, RedisBufferOptions, RedisHealth, RedisScripts, Stored, Total, Upsert,
};
pub use counters::{Counters, CountersOptions, Flushed, IDS_MAX};
pub use error::{Error, Result};
pub use item::{ID_BYTES_MAX, Item, ItemId, KIND_BYTES_MAX, Kind};
pub use jiff;
pub use readiness::Readiness;
pub use storage::{DayViews, Difference, REPORT_DAYS_MAX, Saved, Storage, TOP_ITEMS_MAX, TopItem, Verification};
pub use view::{Batch, Change, Event, IdempotencyKey, KEY_BYTES_MAX, SequenceNumber, VIEWS_MAX, View};
