#![doc = include_str!("../README.md")]

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
