#![doc = include_str!("../README.md")]

pub mod compressed;
pub mod error;
pub mod header;
pub mod legacy;
pub mod limits;
pub mod message;
pub mod msg;
mod reader;

pub use compressed::Compressor;
pub use error::{Error, Recovery, Result};
pub use header::{HEADER_BYTES, Header, OpCode};
pub use legacy::{Query, Reply};
pub use limits::Limits;
pub use message::Message;
pub use msg::{Flags, OpMsg, Sequence};
