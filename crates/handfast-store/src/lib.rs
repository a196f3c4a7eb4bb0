//! The one contract that everything in Handfast stands on, and what belongs to it.
//!
//! A store promises that *an operation on one document is atomic*, and says of every failure what class it has and
//! whether the operation may have been applied all the same. Nothing else is assumed, so that a directory on a disk, a
//! standalone server and a sharded cluster all serve (spec: store).
//!
//! Read [`contract`] first, then [`request`] and [`outcome`]; [`error`] says what can go wrong.

pub mod aggregation;
pub mod change;
#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
pub mod contract;
pub mod decorator;
pub mod distinct;
pub mod error;
pub mod index;
pub mod insertion;
pub mod memory;
pub mod notation;
pub mod outcome;
pub mod page;
pub mod request;
pub mod selection;
pub mod source;

pub use contract::{AtomicStore, Cursor, DocumentStore, Snapshot};
pub use error::{Applied, Error, ErrorClass, Result};
pub use memory::MemoryStore;
pub use outcome::*;
pub use request::*;
pub use source::{Clock, CountingIds, IdSource, ManualClock, ObjectIds, Random, SeededRandom, Sources, SystemClock};
