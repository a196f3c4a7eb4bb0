//! The header of 16 bytes at the start of every message.
//!
//! ```text
//! int32 messageLength   of the whole message, these 16 bytes included
//! int32 requestID       chosen by the sender
//! int32 responseTo      the requestID that this answers, or 0
//! int32 opCode
//! ```

use crate::{Error, Limits, Result};

/// The length of a header.
pub const HEADER_BYTES: usize = 16;

/// The kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OpCode {
    /// OP_REPLY: the answer to the legacy handshake.
    Reply,
    /// OP_QUERY: the legacy handshake.
    Query,
    /// OP_COMPRESSED: another message, compressed.
    Compressed,
    /// OP_MSG: all other commands and replies.
    Msg,
    /// An unsupported opcode.
    Other(i32),
}

impl OpCode {
    /// Returns the number of the opcode on the wire.
    pub fn number(self) -> i32 {
        match self {
            OpCode::Reply => 1,
            OpCode::Query => 2004,
            OpCode::Compressed => 2012,
            OpCode::Msg => 2013,
            OpCode::Other(number) => number,
        }
    }
}

impl From<i32> for OpCode {
    fn from(number: i32) -> Self {
        match number {
            1 => OpCode::Reply,
            2004 => OpCode::Query,
            2012 => OpCode::Compressed,
            2013 => OpCode::Msg,
            other => OpCode::Other(other),
        }
    }
}

/// A message header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The length of the whole message in bytes.
    pub message_length: i32,
    /// The number that the sender chose for the message.
    pub request_id: i32,
    /// The request that this message answers, or 0.
    pub response_to: i32,
    /// The kind of the message.
    pub op_code: OpCode,
}

impl Header {
    /// Decodes a header. Does not check the length: see [`Header::frame_bytes`].
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Self {
        let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = *bytes;
        Header {
            message_length: i32::from_le_bytes([a, b, c, d]),
            request_id: i32::from_le_bytes([e, f, g, h]),
            response_to: i32::from_le_bytes([i, j, k, l]),
            op_code: OpCode::from(i32::from_le_bytes([m, n, o, p])),
        }
    }

    /// Decodes the header of a frame.
    ///
    /// # Errors
    /// [`Error::Truncated`] if there are fewer than 16 bytes.
    pub fn of_frame(frame: &[u8]) -> Result<Self> {
        frame.first_chunk().map(Header::decode).ok_or(Error::Truncated("the header"))
    }

    /// Writes the header.
    pub fn encode(&self, out: &mut Vec<u8>) {
        for number in [self.message_length, self.request_id, self.response_to, self.op_code.number()] {
            out.extend_from_slice(&number.to_le_bytes());
        }
    }

    /// Returns the length of the whole message if it is within the limit.
    ///
    /// # Errors
    /// [`Error::MessageLength`] otherwise; the start of the next message is unknown then.
    pub fn frame_bytes(&self, limits: &Limits) -> Result<usize> {
        let max = limits.message_bytes_max;
        match usize::try_from(self.message_length) {
            Ok(length) if (HEADER_BYTES..=max).contains(&length) => Ok(length),
            _ => Err(Error::MessageLength { length: self.message_length, max }),
        }
    }
}

/// Writes a message: a header with the length of the message, and the bytes that `body` appends.
pub(crate) fn frame(
    out: &mut Vec<u8>,
    request_id: i32,
    response_to: i32,
    op_code: OpCode,
    body: impl FnOnce(&mut Vec<u8>),
) {
    let start = out.len();
    Header { message_length: 0, request_id, response_to, op_code }.encode(out);
    body(out);
    set_length(out, start);
}

/// Sets the length prefix at `start` to the number of bytes from there to the end.
pub(crate) fn set_length(out: &mut [u8], start: usize) {
    let length = i32::try_from(out.len() - start).unwrap_or(i32::MAX);
    if let Some(prefix) = out.get_mut(start..start + 4) {
        prefix.copy_from_slice(&length.to_le_bytes());
    }
}
