//! What clients of a store saw, and whether any store that keeps its promises could have shown it to them.
//!
//! A test that looks at the store's own state believes the store. A history holds only what went over the counter: each
//! transaction when it was begun, and how it ended, with every value that it read and wrote. From that alone follows in
//! which order the transactions must have happened; where the order bites its own tail, a promise was broken (Adya,
//! *Weak Consistency*, 1999; Kingsbury and Alvaro, *Elle*, 2020).
//!
//! ```text
//! T1: r x []   append x 1        T1 did not see the 2, so it is before T2;
//! T2: r x []   append x 2        T2 did not see the 1, so it is before T1: one of the two updates was lost
//! ```
//!
//! ```
//! use handfast_history::{Isolation, judge};
//!
//! let history = r#"
//! {"type":"invoke","process":0,"value":[["r","x",null],["append","x",1]]}
//! {"type":"invoke","process":1,"value":[["r","x",null],["append","x",2]]}
//! {"type":"ok","process":0,"value":[["r","x",[]],["append","x",1]]}
//! {"type":"ok","process":1,"value":[["r","x",[]],["append","x",2]]}
//! "#;
//! let verdict = judge(history.as_bytes(), Some(Isolation::Snapshot), None)?;
//! assert!(verdict.report.anomalies.iter().any(|anomaly| anomaly.kind.name() == "lost-update"));
//! # Ok::<(), handfast_history::Error>(())
//! ```
//!
//! # What is here
//!
//! | for | look at |
//! | --- | --- |
//! | whoever records | [`event`] for the format, [`HistoryWriter`] |
//! | whoever judges | [`judge`], [`Verdict`]; [`Judges`] for events as they come |
//! | whoever wants to know how | [`own`], the judge of this crate; [`second`], the crate `adya` |
//!
//! Two judges who share no code look at each history. Where they disagree, one of them is wrong, and that is an error
//! of its own ([`Verdict::disagreement`]).
//!
//! # What is not
//!
//! No clock, no chance, no store, no clients: whoever runs clients against a store is handfast-sim. Predicates are not
//! judged as such: a scan is recorded as reads of all keys of its range, those that were not there included.

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
