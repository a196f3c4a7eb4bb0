//! The counters over real stores: what they count, and what is left of it when operations fail, answers get lost and processes die.
//!
//! Tests in modules named `ext_redis`, and functions `ext_redis_*`, run on a `redis-server` that they start; without the program they are
//! skipped aloud, and are a failure where `CI=true`.

#![allow(clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "helpers of tests are tests")]

mod announcements;
mod beside;
mod black_pipe;
mod campaign;
mod clocks;
mod cluster;
mod costs;
mod crash;
mod data_crash;
mod faulty_buffer;
mod identity;
mod imports;
mod instances;
mod keys;
mod late;
mod late_proxy;
mod late_saves;
mod load;
mod losses;
mod model;
mod outages;
mod passes;
mod rebuild;
mod redis_6_2;
mod redis_cluster;
mod reports;
mod retention;
mod rollbacks;
mod schedules;
mod sentinel;
mod server;
mod service;
mod single_documents;
mod stopped;
mod tls;
mod visitors;
mod waiting;
mod world;
