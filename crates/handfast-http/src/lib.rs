#![doc = include_str!("../README.md")]

mod access;
pub mod api;
mod client;
mod connections;
pub mod counters;
mod distinct_names;
pub mod id;
mod lingering_close;
mod metrics;
mod openapi;
mod problem;
mod request;
mod route;
mod unread_body;
mod write_timeout;

pub use access::{AccessOptions, InvalidTokenHash, TokenHash};
pub use client::{ClientLimit, PeerAddress};
pub use connections::{ConnectionOptions, serve_connections};
pub use problem::ProblemKind;
