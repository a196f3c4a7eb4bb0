#![doc = include_str!("../README.md")]

pub mod error;
mod frame;
mod hello;
pub mod operation;
pub mod proxy;
mod request;
pub mod rules;

pub use error::{Error, Result};
pub use operation::{Fault, OperationNumber, Pair};
pub use proxy::{Observer, Proxy};
pub use rules::{Decision, ObservedOperation, Rule, Rules};
