#![doc = include_str!("../README.md")]

pub mod adya;
pub mod checker;
mod error;
pub mod event;
pub mod lines;
pub mod report;
mod verdict;

pub use error::{Error, Result};
pub use event::{Event, EventKind, Expectation, Header, Isolation, MicroOp, Model, Name, Order, ReadValue};
pub use lines::{HistoryReader, HistoryWriter, Item};
pub use report::{Anomaly, AnomalyKind, Counts, MinimumCounts, Report};
pub use verdict::{Judges, Verdict, judge};
