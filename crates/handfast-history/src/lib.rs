#![doc = include_str!("../README.md")]

mod error;
pub mod event;
pub mod lines;
pub mod own;
pub mod report;
pub mod second;
mod verdict;

pub use error::{Error, Result};
pub use event::{Event, EventKind, Expectation, Header, Isolation, MicroOp, Model, Name, Order, Seen};
pub use lines::{HistoryReader, HistoryWriter, Item};
pub use report::{Anomaly, Counts, Floors, Kind, Report};
pub use verdict::{Judges, Verdict, judge};
