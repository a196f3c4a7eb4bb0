#![doc = include_str!("../README.md")]

mod backup;
mod catalog;
mod chain;
mod check;
mod committer;
mod directory;
mod engine;
mod error;
mod fjall_engine;
mod format;
mod journal;
mod keys;
mod lock;
mod options;
mod read;
mod salvage;
mod store;
#[cfg(test)]
mod testing;
mod write;

pub use backup::{Backup, must_be_outside};
pub use check::{CheckReport, Finding, Progress, Remedy, Repair};
pub use error::{Error, Result};
pub use options::{ChangeLog, JOURNAL_BYTES_MIN, Options, SEALED_BUFFERS_MAX};
pub use salvage::{Salvage, SalvagedPage};
pub use store::{Costs, EmbeddedStore, check};
