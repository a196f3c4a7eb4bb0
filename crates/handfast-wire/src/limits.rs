//! The bounds of the protocol. The numbers are MongoDB's: drivers learn them from `hello` and cut their batches by them.

/// One message, header included, in bytes (`maxMessageSizeBytes`).
pub const MESSAGE_BYTES_MAX: usize = 48_000_000;
/// One stored document, in bytes (`maxBsonObjectSize`).
pub const DOCUMENT_BYTES_MAX: usize = 16 * 1024 * 1024;
/// One document on the wire, in bytes: a stored document of the largest size inside a command, with 16 KiB for what the
/// command says about it.
pub const COMMAND_BYTES_MAX: usize = DOCUMENT_BYTES_MAX + 16 * 1024;
/// Write statements in one command (`maxWriteBatchSize`).
pub const WRITE_BATCH_MAX: usize = 100_000;
/// Document sequences (sections of kind 1) in one OP_MSG: `bulkWrite` needs two (`ops`, `nsInfo`), nothing needs more.
pub const SEQUENCES_MAX: usize = 2;

/// The bounds that a codec applies. They are settable so that tests reach them with small messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// One message, before and after it is inflated, header included, in bytes.
    pub message_bytes_max: usize,
    /// One document on the wire, in bytes.
    pub document_bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { message_bytes_max: MESSAGE_BYTES_MAX, document_bytes_max: COMMAND_BYTES_MAX }
    }
}
