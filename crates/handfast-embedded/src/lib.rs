//! The embedded document store: one directory, nothing to install.
//!
//! Read [`engine`](mod@engine) for what lies underneath, [`format`](mod@format) for what is stored, `directory` for how
//! a store is opened, `committer` for how it is written, `read` for how it is queried, `check` for how it is proven
//! whole. [`EmbeddedStore`] puts them together behind the contract of `handfast_store`.
//!
//! What it is not: a store for several processes at once, or for several machines.

mod backup;
mod catalog;
mod check;
mod committer;
mod directory;
mod engine;
mod error;
mod format;
mod keys;
mod options;
mod read;
mod store;
mod write;

pub use backup::Backup;
pub use check::{CheckReport, Finding, Progress, Repair, check};
pub use error::{Error, Result};
pub use options::{JOURNAL_BYTES_MIN, Options, SEALED_BUFFERS_MAX};
pub use store::{Costs, EmbeddedStore};
