#![doc = include_str!("../README.md")]

mod admin;
mod batch;
mod capability;
mod client_side;
mod command;
mod concern;
mod connection;
mod contact;
mod cursor;
mod direct;
mod error;
mod namespace_mapping;
mod needs;
mod options;
mod probe;
mod remote;
mod reply;
mod server;
mod topology;
mod transactions;

pub use admin::run_admin_command;
pub use capability::{Capabilities, Capability};
pub use concern::Deployment;
pub use connection::{Connection, connect};
pub use options::{
    ConnectOptions, FRONT_PROBE_DATABASE, POOL_CONNECTIONS_MAX, PROBE_DATABASE, REPLY_TIMEOUT, SELECTION_TIMEOUT, shown,
};
pub use server::Server;
pub use topology::{ServerDescription, ServerRole, TopologyObserver};
pub use transactions::{Session, SessionClient, TransactionError};
