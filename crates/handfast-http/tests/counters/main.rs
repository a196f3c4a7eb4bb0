//! The service of the view counters: each route and each problem over the router, and the connections over a real socket.
//! Every answer is compared with the OpenAPI document.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests are tests")]

mod access;
mod clients;
mod document;
mod example;
mod metrics;
mod pages;
mod problems;
mod routes;
mod socket;
mod statuses;
mod world;
