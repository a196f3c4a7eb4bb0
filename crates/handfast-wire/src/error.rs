//! What can be wrong with a message, MongoDB's code for it, and whether the connection can go on.

use crate::limits::{SEQUENCES_MAX, WRITE_BATCH_MAX};

/// What every fallible function of this crate returns.
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

/// What to do with the connection after an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Recovery {
    /// The frame is sound and its content is refused: answer with the error and read the next message.
    Answer,
    /// The sender speaks the protocol wrongly or its bytes were damaged: answer with the error, then close.
    AnswerAndClose,
    /// There is no telling where the next message begins, or no form to answer in: close.
    Close,
}

/// A message that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The announced length is below a header's or above the bound.
    #[error("message length {length} is not between 16 and {max} bytes")]
    MessageLength {
        /// As announced.
        length: i32,
        /// The bound.
        max: usize,
    },
    /// The frame handed over is not as long as its header says.
    #[error("the frame has {actual} bytes and its header announces {announced}")]
    FrameLength {
        /// As announced.
        announced: i32,
        /// As it is.
        actual: usize,
    },
    /// An opcode that is not spoken here.
    #[error("opcode {0} is not supported, use OP_MSG")]
    OpCode(i32),
    /// The message ends in the middle of something.
    #[error("the message ends inside {0}")]
    Truncated(&'static str),
    /// Bytes are left over behind the end of the message.
    #[error("{0} bytes follow the end of the message")]
    TrailingBytes(usize),
    /// A required flag (bits 0 to 15) that nobody has defined.
    #[error("unknown required flag bits {0:#06x} in OP_MSG")]
    UnknownFlags(u32),
    /// The bytes are not those that the sender made the checksum of.
    #[error("the checksum of the message is {computed:#010x} and it carries {carried:#010x}")]
    Checksum {
        /// Of the bytes that arrived.
        computed: u32,
        /// As sent.
        carried: u32,
    },
    /// A section of an unknown kind.
    #[error("unknown section kind {0} in OP_MSG")]
    SectionKind(u8),
    /// No section of kind 0, or more than one.
    #[error("an OP_MSG has exactly one body section, this one has {0}")]
    Bodies(usize),
    /// More document sequences than any command needs.
    #[error("an OP_MSG has at most {SEQUENCES_MAX} document sequences")]
    TooManySequences,
    /// More write statements than one command may have.
    #[error("Write batch sizes must be between 1 and {WRITE_BATCH_MAX}. Got {0} operations.")]
    BatchTooLarge(usize),
    /// A sequence that comes up twice, or in the body as well.
    #[error("the field '{0}' is given more than once in the message")]
    DuplicateSequence(String),
    /// A length prefix that does not fit its document, or no closing zero.
    #[error("{what} is no BSON document: {why}")]
    Document {
        /// Which document.
        what: &'static str,
        /// What is wrong.
        why: String,
    },
    /// A document above the bound.
    #[error("{what} has {length} bytes, at most {max} are allowed")]
    DocumentTooLarge {
        /// Which document.
        what: &'static str,
        /// As announced.
        length: usize,
        /// The bound.
        max: usize,
    },
    /// Text that is not UTF-8.
    #[error("{0} is not UTF-8")]
    NotUtf8(&'static str),
    /// A number that cannot be what it stands for.
    #[error("{what} is {value}")]
    BadNumber {
        /// Which number.
        what: &'static str,
        /// As sent.
        value: i64,
    },
    /// A compressor that is not known or was not negotiated.
    #[error("compressor {0} is not supported")]
    Compressor(u8),
    /// Compressed bytes that do not inflate to what was announced.
    #[error("the compressed message does not inflate: {0}")]
    Inflate(String),
}

impl Error {
    /// MongoDB's code.
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

    /// What to do with the connection.
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
