//! OP_QUERY and OP_REPLY, which a driver uses for its handshake until it knows that the server supports OP_MSG.
//!
//! ```text
//! OP_QUERY  int32 flags, cstring fullCollectionName ("admin.$cmd"), int32 skip, int32 return, document query [, fields]
//! OP_REPLY  int32 flags, int64 cursorID, int32 startingFrom, int32 numberReturned, document..
//! ```

use bson::RawDocument;

use crate::header::frame;
use crate::reader::Reader;
use crate::{Error, Limits, OpCode, Result};

/// The flag of an OP_REPLY whose query failed.
pub const QUERY_FAILURE: i32 = 1 << 1;
/// The flag of OP_REPLY that every server since 2.x sets.
pub const AWAIT_CAPABLE: i32 = 1 << 3;
/// The number of documents in one OP_REPLY that is accepted: a handshake has one.
const REPLY_DOCUMENTS_MAX: i32 = 1_000;

/// An OP_QUERY message, borrowed from its frame.
#[derive(Clone, Debug, PartialEq)]
pub struct Query<'a> {
    /// Flags, which a handshake does not use.
    pub flags: i32,
    /// The collection: `database.$cmd` for commands.
    pub collection: &'a str,
    /// The number of documents to skip, which a handshake does not use.
    pub skip: i32,
    /// The number of documents to return: 1 or -1 for commands.
    pub limit: i32,
    /// The command.
    pub query: &'a RawDocument,
}

impl<'a> Query<'a> {
    pub(crate) fn decode(body: &'a [u8], limits: &Limits) -> Result<Self> {
        let mut reader = Reader::new(body);
        let query = Query {
            flags: reader.i32("the flags of OP_QUERY")?,
            collection: reader.text("the collection name of OP_QUERY")?,
            skip: reader.i32("the skip of OP_QUERY")?,
            limit: reader.i32("the limit of OP_QUERY")?,
            query: reader.document("the query of OP_QUERY", limits)?,
        };
        if !reader.is_empty() {
            reader.document("the field selector of OP_QUERY", limits)?;
        }
        match reader.remaining() {
            0 => Ok(query),
            rest => Err(Error::TrailingBytes(rest)),
        }
    }

    /// Appends the whole message to `out`.
    pub fn encode(&self, request_id: i32, out: &mut Vec<u8>) {
        frame(out, request_id, 0, OpCode::Query, |out| {
            out.extend_from_slice(&self.flags.to_le_bytes());
            out.extend(self.collection.bytes().filter(|&byte| byte != 0));
            out.push(0);
            out.extend_from_slice(&self.skip.to_le_bytes());
            out.extend_from_slice(&self.limit.to_le_bytes());
            out.extend_from_slice(self.query.as_bytes());
        });
    }
}

/// An OP_REPLY message, borrowed from its frame.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply<'a> {
    /// [`AWAIT_CAPABLE`], and [`QUERY_FAILURE`] for an error.
    pub flags: i32,
    /// The cursor, which is 0 for commands.
    pub cursor_id: i64,
    /// The position of the first document, which is 0 for commands.
    pub starting_from: i32,
    /// The documents; the answer of a command is one.
    pub documents: Vec<&'a RawDocument>,
}

impl<'a> Reply<'a> {
    /// Creates the answer of a command.
    pub fn command(document: &'a RawDocument) -> Self {
        Reply { flags: AWAIT_CAPABLE, cursor_id: 0, starting_from: 0, documents: vec![document] }
    }

    pub(crate) fn decode(body: &'a [u8], limits: &Limits) -> Result<Self> {
        let mut reader = Reader::new(body);
        let flags = reader.i32("the flags of OP_REPLY")?;
        let cursor_id = reader.i64("the cursor id of OP_REPLY")?;
        let starting_from = reader.i32("the position of OP_REPLY")?;
        let count = reader.i32("the count of OP_REPLY")?;
        if !(0..=REPLY_DOCUMENTS_MAX).contains(&count) {
            return Err(Error::BadNumber { what: "the count of OP_REPLY", value: i64::from(count) });
        }
        let documents =
            (0..count).map(|_| reader.document("a document of OP_REPLY", limits)).collect::<Result<Vec<_>>>()?;
        match reader.remaining() {
            0 => Ok(Reply { flags, cursor_id, starting_from, documents }),
            rest => Err(Error::TrailingBytes(rest)),
        }
    }

    /// Appends the whole message to `out`.
    pub fn encode(&self, request_id: i32, response_to: i32, out: &mut Vec<u8>) {
        frame(out, request_id, response_to, OpCode::Reply, |out| {
            out.extend_from_slice(&self.flags.to_le_bytes());
            out.extend_from_slice(&self.cursor_id.to_le_bytes());
            out.extend_from_slice(&self.starting_from.to_le_bytes());
            let count = i32::try_from(self.documents.len()).unwrap_or(i32::MAX);
            out.extend_from_slice(&count.to_le_bytes());
            for document in &self.documents {
                out.extend_from_slice(document.as_bytes());
            }
        });
    }
}

#[cfg(test)]
mod tests;
