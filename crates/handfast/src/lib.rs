#![doc = include_str!("../README.md")]

pub mod collection;
#[cfg(feature = "mongodb")]
mod connect;
mod database;
mod routed;

pub use collection::{Collection, Collections, Documents, action::InsertManyError};
pub use database::{Database, OUTCOMES_KEPT};
pub use routed::open_store;

#[cfg(feature = "mongodb")]
pub use connect::connect_store;
#[cfg(feature = "mongodb")]
pub use handfast_mongodb as mongodb;

pub use bson;
pub use handfast_embedded::Options;
pub use handfast_mql::Code;
pub use handfast_patterns as patterns;
pub use handfast_store::{
    Aggregate, Applied, Count, DocumentStore, Durability, Error as StoreError, ErrorClass, Find, Hint, IndexSpec,
    Insert, Namespace, ReturnDocument, Sources, StoreExt, UpdateOutcome,
    decorator::{Resilient, WithDurability},
    routed::Part,
};
pub use handfast_txn::{
    Counts, Error, Isolation, Outcome, PercolatorOptions, Result, Transaction, TransactionId, TransactionOptions,
};

/// The items that most programs need.
pub mod prelude {
    pub use crate::{
        Collection, Collections, Database, DocumentStore, Error, Find, IndexSpec, Isolation, Namespace, Outcome,
        ReturnDocument, StoreExt, Transaction, TransactionId, TransactionOptions,
    };
    pub use bson::{doc, rawdoc};
}
