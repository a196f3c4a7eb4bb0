//! Decodes a plain frame into one of the supported messages.

use crate::{Error, HEADER_BYTES, Header, Limits, OpCode, OpMsg, Query, Reply, Result};

/// A message, borrowed from its frame.
#[derive(Clone, Debug, PartialEq)]
pub enum Message<'a> {
    /// OP_MSG.
    Msg(OpMsg<'a>),
    /// OP_QUERY.
    Query(Query<'a>),
    /// OP_REPLY.
    Reply(Reply<'a>),
}

impl<'a> Message<'a> {
    /// Decodes a whole plain frame.
    ///
    /// # Errors
    /// [`Error::OpCode`] for an unsupported opcode and for OP_COMPRESSED, which has to be inflated first; other errors for a
    /// malformed frame.
    pub fn decode(frame: &'a [u8], limits: &Limits) -> Result<(Header, Self)> {
        let header = Header::of_frame(frame)?;
        if header.frame_bytes(limits)? != frame.len() {
            return Err(Error::FrameLength { announced: header.message_length, actual: frame.len() });
        }
        let body = frame.get(HEADER_BYTES..).unwrap_or_default();
        let message = match header.op_code {
            OpCode::Msg => Message::Msg(OpMsg::decode(frame, limits)?),
            OpCode::Query => Message::Query(Query::decode(body, limits)?),
            OpCode::Reply => Message::Reply(Reply::decode(body, limits)?),
            OpCode::Compressed | OpCode::Other(_) => return Err(Error::OpCode(header.op_code.number())),
        };
        Ok((header, message))
    }
}
