//! The contract of a document store, and what belongs to it.
//!
//! A store promises that *an operation on one document is atomic*, and says of every failure what class it has and
//! whether the operation may have been applied all the same. Handfast assumes nothing else, so that a directory on a disk, a
//! standalone server and a sharded cluster can all be stores (spec: store).
//!
//! ```
//! use bson::rawdoc;
//! use handfast_store::{MemoryStore, Namespace, Sources, StoreExt};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> handfast_store::Result<()> {
//! let store = MemoryStore::new(Sources::seeded(1));
//! let accounts = Namespace::new("bank", "accounts")?;
//! store.insert_one(&accounts, rawdoc! { "_id": "alice", "balance": 100 }).await?;
//!
//! // The balance is checked and changed in one atomic step.
//! let enough = rawdoc! { "_id": "alice", "balance": { "$gte": 30 } };
//! let outcome = store.update_one(&accounts, enough, rawdoc! { "$inc": { "balance": -30 } }).await?;
//! assert_eq!(outcome.modified, 1);
//!
//! let alice = store.find_one(&accounts, rawdoc! { "_id": "alice" }).await?;
//! assert_eq!(alice, Some(rawdoc! { "_id": "alice", "balance": 70 }));
//! # Ok(())
//! # }
//! ```
//!
//! # Where to read
//!
//! | to | look at |
//! | --- | --- |
//! | use a store | [`contract`], then [`request`], [`outcome`], [`error`]; [`StoreExt`] for short forms |
//! | write a backend | [`backend`], the functions that all backends share, and the module `conformance` (feature `conformance`), the suite that every backend passes |
//! | test what uses a store | [`memory`], [`decorator::Faulty`], [`decorator::Checked`], [`Sources::seeded`] |
//! | run a store | [`decorator::Metered`], [`expiry`]; [`routed`] for several stores as one |
//!
//! The crate has no backend on a disk or a network (those are crates of their own), no transactions (they use this crate), and
//! no clock or randomness but that of [`source`].

pub mod backend;
#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
pub mod contract;
pub mod decorator;
pub mod durations;
pub mod error;
pub mod expiry;
pub mod ext;
pub mod memory;
pub mod notation;
pub mod operation_statistics;
pub mod outcome;
pub mod request;
pub mod routed;
pub mod source;
pub mod spill;
pub mod ticket;

pub use backend::blocking::{blocking, blocking_if};
pub use backend::{
    aggregation, change, change_stream, default_collation, distinct, index, insertion, page, selection, validation,
    view,
};
pub use contract::{AtomicStore, ChangeStream, Cursor, DocumentStore, Snapshot, check_by_reading};
pub use durations::Durations;
pub use error::{Applied, Error, ErrorClass, Result};
pub use ext::StoreExt;
pub use memory::MemoryStore;
pub use operation_statistics::{OperationStatistics, PlanSummary};
pub use outcome::*;
pub use request::*;
pub use routed::Routed;
pub use source::{
    Clock, ClusterClock, CountingIds, IdSource, ManualClock, ObjectIds, Random, SeededRandom, Sources, SystemClock,
};
pub use ticket::{RequestedDocument, Ticket};
