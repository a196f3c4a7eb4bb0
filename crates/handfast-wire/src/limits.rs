//! The limits of the protocol. They are MongoDB's: drivers read them from `hello` and split their batches by them.

/// The size of a message with its header, in bytes (`maxMessageSizeBytes`).
pub const MESSAGE_BYTES_MAX: usize = 48_000_000;
/// The size of a stored document, in bytes (`maxBsonObjectSize`).
pub const DOCUMENT_BYTES_MAX: usize = 16 * 1024 * 1024;
/// The size of a document on the wire, in bytes: the largest stored document and 16 KiB for the command around it.
pub const COMMAND_BYTES_MAX: usize = DOCUMENT_BYTES_MAX + 16 * 1024;
/// The number of write statements in a command (`maxWriteBatchSize`).
pub const WRITE_BATCH_MAX: usize = 100_000;
/// The number of document sequences (sections of kind 1) in an OP_MSG: `bulkWrite` needs two (`ops`, `nsInfo`).
pub const SEQUENCES_MAX: usize = 2;

/// The limits that the codec applies. Tests set smaller ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The size of a message with its header, compressed and inflated, in bytes.
    pub message_bytes_max: usize,
    /// The size of a document on the wire, in bytes.
    pub document_bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { message_bytes_max: MESSAGE_BYTES_MAX, document_bytes_max: COMMAND_BYTES_MAX }
    }
}
