//! The engine Percolator over the store in memory, which is used as one that is atomic one document at a time.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "helpers of tests are tests"
)]

mod building;
mod costs;
mod crash_points;
mod leases;
mod outcomes;
mod queries;
mod rules;
mod steps;
mod support;
mod tickets;
mod unique;
mod users;
