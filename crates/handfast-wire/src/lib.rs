//! The MongoDB wire protocol as values: headers, OP_MSG, OP_COMPRESSED, the legacy handshake, limits.
//!
//! A codec over byte buffers and nothing else: no socket, no clock, no task. Bytes from outside give a value or an
//! [`Error`], never a panic, and the error says whether the connection can go on ([`Error::recovery`]).
//!
//! A message on its way in, step by step:
//!
//! ```text
//! 16 bytes        Header::decode          is the announced length one that we accept?
//! the rest        (the caller's I/O)
//! whole frame     compressed::inflate     OP_COMPRESSED becomes the plain frame that it wraps, within bounds
//! plain frame     Message::decode         OP_MSG, OP_QUERY or OP_REPLY, borrowed from the frame
//! ```
//!
//! What is *not* checked here: the inside of documents. The codec looks at their length prefix and closing zero only;
//! whoever reads further checks structure and depth first.
//!
//! Where to read first: [`header`], [`msg`], [`compressed`], [`legacy`]; [`limits`] and [`error`] hold the numbers.
//!
//! Source: the published driver specifications (OP_MSG, OP_COMPRESSED, message header) of MongoDB's wire protocol.

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
