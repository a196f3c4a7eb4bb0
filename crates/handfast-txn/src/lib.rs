#![doc = include_str!("../README.md")]

mod claims;
pub mod database;
mod ending;
pub mod engine;
pub mod error;
mod hinted;
pub mod id;
pub mod local;
pub mod options;
pub mod percolator;
pub mod transaction;

pub use database::{Counts, Database, WeakDatabase};
pub use engine::{Catalog, Claims, Engine, EngineTraits, Holder, Indexes, Place, Start, StoreCatalog, WriteSet};
pub use error::{Error, Result};
pub use id::{Outcome, TransactionId};
pub use local::Local;
pub use options::{Isolation, OnRetry, TransactionOptions};
pub use percolator::{Percolator, PercolatorOptions};
pub use transaction::Transaction;
