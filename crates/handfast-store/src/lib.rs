//! The one contract that everything in Handfast stands on, and what belongs to it.
//!
//! A store promises that *an operation on one document is atomic*, and says of every failure what class it has and
//! whether the operation may have been applied all the same. Nothing else is assumed, so that a directory on a disk, a
//! standalone server and a sharded cluster all serve (spec: store).
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
//! // Atomic: the balance is looked at and changed in one step.
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
//! # What is here
//!
//! | for | look at |
//! | --- | --- |
//! | whoever uses a store | [`contract`], then [`request`], [`outcome`], [`error`]; [`StoreExt`] for short forms |
//! | whoever writes a backend | [`insertion`], [`index`], [`selection`], [`change`], [`distinct`], [`aggregation`]: what every backend does in the same way, as functions; [`page`]; and the suite of the module `conformance` (feature `conformance`), which every backend passes |
//! | whoever tests what stands on a store | [`memory`], [`decorator::Faulty`], [`decorator::Checked`], [`Sources::seeded`] |
//! | whoever runs one | [`decorator::Metered`], [`expiry`]; [`routed`] for several as one |
//!
//! # What is not
//!
//! No backend that keeps anything on a disk or reaches a network (those are crates of their own), no transactions (they
//! stand on this), and no clock or chance but that of [`source`].

pub mod aggregation;
mod blocking;
pub mod change;
#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
pub mod contract;
pub mod decorator;
pub mod distinct;
pub mod error;
pub mod expiry;
pub mod ext;
pub mod index;
pub mod insertion;
pub mod memory;
pub mod notation;
pub mod outcome;
pub mod page;
pub mod request;
pub mod routed;
pub mod selection;
pub mod source;
pub mod ticket;

pub use blocking::{blocking, blocking_if};
pub use contract::{AtomicStore, Cursor, DocumentStore, Snapshot, check_by_reading};
pub use error::{Applied, Error, ErrorClass, Result};
pub use ext::StoreExt;
pub use memory::MemoryStore;
pub use outcome::*;
pub use request::*;
pub use routed::Routed;
pub use source::{Clock, CountingIds, IdSource, ManualClock, ObjectIds, Random, SeededRandom, Sources, SystemClock};
pub use ticket::{Asked, Ticket};
