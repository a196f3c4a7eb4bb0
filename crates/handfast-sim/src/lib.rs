//! Puts the transactions of a store to the test: clients at once, everything they see recorded, two judges.
//!
//! ```text
//! Workload ── plans ──> process 0 ─┐                     ┌─> Recorder ──> history ──> handfast-history: two judges
//!                       process 1 ─┼─> Client (a store) ─┤
//!                       process n ─┘                     └─> outcomes: ok, failed, unknown
//! ```
//!
//! A *client* is anything that can begin a transaction and read and write keys in it ([`client`]): a library, a server
//! through a driver, the [`model`] here. A *workload* plans transactions that are likely to get into each other's way. A
//! [`run`](run::run) lets processes carry them out until enough have committed, reads every key once more, and has the
//! history judged. A run in which little happened fails like one in which something went wrong ([`Floors`]).
//!
//! Everything is drawn from one seed: plans, and where a process lets others go first. On a runtime of one thread, over a
//! store that does nothing in the background, the same seed gives the same history.
//!
//! Each kind of trouble that the judges look for is shown to be found: the [`model`] can be told to be broken in a dozen
//! ways, and a test demands that each be caught by name. `Database` is put to the test on a store that loses requests and
//! answers and whose process is killed, and at every crash point of a few transactions.
//!
//! The engine `Percolator` is also walked through state by state: `tests/percolator_model` has a model checker try all that
//! a few transactions can do, over the very functions from row to row that the engine carries out.
//!
//! Where to read first: [`workload`], [`mod@run`], then `tests/`.

pub mod client;
pub mod database;
pub mod directory;
pub mod documents;
pub mod model;
pub mod recorder;
pub mod run;
pub mod workload;

pub use client::{Cell, Client, Failure, Transaction};
pub use database::DatabaseClient;
pub use handfast_history::{Floors, Isolation, Order, Verdict};
pub use recorder::Recorder;
pub use run::{Error, Outcome, RunOptions, run};
pub use workload::{Plan, Step, Workload, WorkloadKind};
