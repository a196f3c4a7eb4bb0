#![doc = include_str!("../README.md")]

mod claims;
pub mod database;
pub mod engine;
pub mod error;
mod hinted_index;
pub mod id;
mod limit_cursor;
pub mod local;
pub mod options;
pub mod percolator;
pub mod transaction;

pub use database::{Counts, Database, WeakDatabase};
pub use engine::{Catalog, Claims, DocumentKey, Engine, EngineTraits, Holder, Indexes, Start, StoreCatalog, WriteSet};
pub use error::{Error, Result};
pub use id::{Outcome, TransactionId};
pub use local::Local;
pub use options::{Isolation, OnRetry, TransactionOptions};
pub use percolator::{Percolator, PercolatorOptions};
pub use transaction::Transaction;
