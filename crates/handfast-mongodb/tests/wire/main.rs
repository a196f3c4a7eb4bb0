//! The store through the wire: a server of this workspace behind a real socket, and a proxy that loses messages.
//!
//! Servers of other projects are in the program's `ext` tests.

#![allow(clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "helpers of tests are tests too")]

mod black_pipe;
mod conformance;
mod connecting;
mod faults;
mod support;
mod topology;
