#![doc = include_str!("../README.md")]

mod access;
mod connections;
pub mod counters;
mod openapi;
mod problem;
mod request;
mod route;

pub use access::{AccessOptions, InvalidTokenHash, TokenHash};
pub use connections::{ConnectionOptions, serve_connections};
pub use problem::ProblemKind;
