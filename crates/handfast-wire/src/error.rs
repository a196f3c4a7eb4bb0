//! Errors of malformed messages, with MongoDB's codes, and whether the connection can continue.

use crate::limits::{SEQUENCES_MAX, WRITE_BATCH_MAX};

/// The result of this crate's fallible functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

// The numbers of MongoDB's published table of error codes, and those of single checks.
const BAD_VALUE: i32 = 2;
const INVALID_LENGTH: i32 = 16;
const PROTOCOL_ERROR: i32 = 17;
const INVALID_BSON: i32 = 22;
const ILLEGAL_OP_MSG_FLAG: i32 = 223;
const TOO_MANY_DOCUMENT_SEQUENCES: i32 = 224;
const BSON_OBJECT_TOO_LARGE: i32 = 10_334;
const SEVERAL_BODIES: i32 = 40_430;
const DUPLICATE_SEQUENCE: i32 = 40_431;
const UNKNOWN_SECTION_KIND: i32 = 40_432;
const NO_BODY: i32 = 40_587;

/// The action that the receiver takes after an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Recovery {
    /// The frame is valid and its content is refused: answer with the error and read the next message.
    Answer,
    /// The sender violates the protocol, or the bytes are damaged: answer with the error and close the connection.
    AnswerAndClose,
    /// The start of the next message or the form of an answer is unknown: close the connection.
    Close,
}

/// The reason why a message cannot be decoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The announced length is below the header's or above the limit.
    #[error("message length {length} is not between 16 and {max} bytes")]
    MessageLength {
        /// The announced length.
        length: i32,
        /// The limit.
        max: usize,
    },
    /// The frame does not have the length in its header.
    #[error("the frame has {actual} bytes and its header announces {announced}")]
    FrameLength {
        /// The announced length.
        announced: i32,
        /// The actual length.
        actual: usize,
    },
    /// The opcode is not supported.
    #[error("opcode {0} is not supported, use OP_MSG")]
    OpCode(i32),
    /// The message ends too early.
    #[error("the message ends inside {0}")]
    Truncated(&'static str),
    /// The frame has bytes after the end of the message.
    #[error("{0} bytes follow the end of the message")]
    TrailingBytes(usize),
    /// The message has an undefined flag among the required ones (bits 0 to 15).
    #[error("unknown required flag bits {0:#06x} in OP_MSG")]
    UnknownFlags(u32),
    /// The checksum does not match.
    #[error("the checksum of the message is {computed:#010x} and it carries {carried:#010x}")]
    Checksum {
        /// The checksum of the received bytes.
        computed: u32,
        /// The checksum in the message.
        carried: u32,
    },
    /// A section has an unknown kind.
    #[error("unknown section kind {0} in OP_MSG")]
    SectionKind(u8),
    /// The message has no section of kind 0, or more than one.
    #[error("an OP_MSG has exactly one body section, this one has {0}")]
    Bodies(usize),
    /// The message has more document sequences than any command needs.
    #[error("an OP_MSG has at most {SEQUENCES_MAX} document sequences")]
    TooManySequences,
    /// The message has more write statements than a command may have.
    #[error("Write batch sizes must be between 1 and {WRITE_BATCH_MAX}. Got {0} operations.")]
    BatchTooLarge(usize),
    /// A sequence has the name of another one or of a field of the body.
    #[error("the field '{0}' is given more than once in the message")]
    DuplicateSequence(String),
    /// A document has a wrong length prefix or no closing zero.
    #[error("{what} is no BSON document: {why}")]
    Document {
        /// The name of the document.
        what: &'static str,
        /// The fault.
        why: String,
    },
    /// A document is larger than the limit.
    #[error("{what} has {length} bytes, at most {max} are allowed")]
    DocumentTooLarge {
        /// The name of the document.
        what: &'static str,
        /// The announced length.
        length: usize,
        /// The limit.
        max: usize,
    },
    /// A text is not UTF-8.
    #[error("{0} is not UTF-8")]
    NotUtf8(&'static str),
    /// A number is out of range.
    #[error("{what} is {value}")]
    BadNumber {
        /// The name of the number.
        what: &'static str,
        /// The value of the number.
        value: i64,
    },
    /// The compressor is unknown or was not negotiated.
    #[error("compressor {0} is not supported")]
    Compressor(u8),
    /// The compressed bytes do not inflate to the announced size.
    #[error("the compressed message does not inflate: {0}")]
    Inflate(String),
}

impl Error {
    /// Returns MongoDB's code of the error.
    pub fn code(&self) -> i32 {
        match self {
            Error::MessageLength { .. } | Error::FrameLength { .. } | Error::OpCode(_) => PROTOCOL_ERROR,
            Error::Truncated(_) | Error::TrailingBytes(_) | Error::BadNumber { .. } => PROTOCOL_ERROR,
            Error::Checksum { .. } => PROTOCOL_ERROR,
            Error::Document { .. } | Error::NotUtf8(_) => INVALID_BSON,
            Error::DocumentTooLarge { .. } => BSON_OBJECT_TOO_LARGE,
            Error::Compressor(_) | Error::Inflate(_) => BAD_VALUE,
            Error::UnknownFlags(_) => ILLEGAL_OP_MSG_FLAG,
            Error::BatchTooLarge(_) => INVALID_LENGTH,
            Error::TooManySequences => TOO_MANY_DOCUMENT_SEQUENCES,
            Error::Bodies(0) => NO_BODY,
            Error::Bodies(_) => SEVERAL_BODIES,
            Error::SectionKind(_) => UNKNOWN_SECTION_KIND,
            Error::DuplicateSequence(_) => DUPLICATE_SEQUENCE,
        }
    }

    /// Returns the action that the receiver takes.
    pub fn recovery(&self) -> Recovery {
        match self {
            Error::MessageLength { .. } | Error::FrameLength { .. } | Error::OpCode(_) => Recovery::Close,
            Error::Document { .. } | Error::DocumentTooLarge { .. } | Error::DuplicateSequence(_) => Recovery::Answer,
            Error::NotUtf8(_) | Error::BatchTooLarge(_) => Recovery::Answer,
            Error::UnknownFlags(_)
            | Error::Checksum { .. }
            | Error::SectionKind(_)
            | Error::Bodies(_)
            | Error::TooManySequences
            | Error::Truncated(_)
            | Error::TrailingBytes(_)
            | Error::BadNumber { .. }
            | Error::Compressor(_)
            | Error::Inflate(_) => Recovery::AnswerAndClose,
        }
    }
}
