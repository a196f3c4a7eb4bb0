//! The engine Percolator over the store in memory, which is used as one that is atomic one document at a time.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "helpers of tests are tests"
)]

mod building;
mod catalog_snapshots;
mod claims;
mod cleaning;
mod clocks;
mod collections;
mod costs;
mod crash_points;
mod expressions;
mod expressions_on_both;
mod golden;
mod inspection;
mod large;
mod leases;
mod loose;
mod newest;
mod outcomes;
mod own_indexes;
mod part_collections;
mod parts;
mod queries;
mod refused;
mod respelled;
mod rules;
mod stubborn;
mod support;
mod tickets;
mod unique;
mod users;
mod waiting;
