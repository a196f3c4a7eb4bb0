//! The patterns, on the store in memory and on the embedded one: processes are killed at every operation, and
//! several run at once.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "helpers of tests are tests"
)]

mod black_pipe;
mod clocks;
mod crash;
mod exactly_once;
mod fault;
mod indexes;
mod job_queue;
mod ledger;
mod operators;
mod processes;
mod schedule;
mod sends;
mod stage;
mod sync_flag;
mod transactions;
mod turns;
mod two_phase;
mod versioned_tree;
