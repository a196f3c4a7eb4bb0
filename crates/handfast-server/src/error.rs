//! The errors of the server itself ([`Error`]) and those of commands (`CommandError`), which clients receive.

use std::borrow::Cow;
use std::path::PathBuf;

use bson::RawDocumentBuf;
use handfast_mql::Code;
use handfast_store::Applied;

/// The result type of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a server does not start or go on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address is taken, not of this machine, or not allowed.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// As given.
        address: String,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// Something that is no abandoned socket of ours is where the Unix socket should be.
    #[error("cannot listen on {path}: {why}")]
    SocketPath {
        /// As given.
        path: PathBuf,
        /// The reason.
        why: &'static str,
    },
    /// No address to listen on was given.
    #[error("no address to listen on was given")]
    NoAddress,
}

/// Why a command was refused, as the client gets it: code, code name, text, and the fields beside them.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub(crate) struct CommandError {
    pub(crate) code: Code,
    pub(crate) message: String,
    /// Fields that MongoDB puts beside code and text, such as `keyPattern` and `keyValue`.
    pub(crate) details: Option<RawDocumentBuf>,
    /// Whether the changes of the command may have been applied.
    pub(crate) applied: Applied,
    /// Something was written before the step that failed.
    pub(crate) partly: bool,
}

/// The result type of commands.
pub(crate) type CommandResult<T> = std::result::Result<T, CommandError>;

impl CommandError {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        CommandError { code, message: message.into(), details: None, applied: Applied::No, partly: false }
    }

    /// The error of a write that was given up before the store answered.
    #[must_use]
    pub(crate) fn maybe_applied(self) -> Self {
        CommandError { applied: Applied::Maybe, ..self }
    }

    /// Returns the message, which says first if the outcome is unknown.
    pub(crate) fn text(&self) -> Cow<'_, str> {
        text(self.applied, &self.message)
    }

    pub(crate) fn name(&self) -> Cow<'static, str> {
        self.code.name()
    }
}

impl From<handfast_store::Error> for CommandError {
    fn from(error: handfast_store::Error) -> Self {
        CommandError {
            code: error.code(),
            message: error.message().to_owned(),
            details: error.details().cloned(),
            applied: error.applied(),
            partly: false,
        }
    }
}

/// The text of an error, which says first whether anything may have happened.
pub(crate) fn text(applied: Applied, message: &str) -> Cow<'_, str> {
    match applied {
        Applied::No => Cow::Borrowed(message),
        Applied::Maybe => Cow::Owned(format!("the outcome is unknown: {message}")),
    }
}

impl From<handfast_mql::Error> for CommandError {
    fn from(error: handfast_mql::Error) -> Self {
        CommandError::new(error.code(), error.message())
    }
}

impl From<bson::error::Error> for CommandError {
    fn from(error: bson::error::Error) -> Self {
        handfast_mql::Error::from(error).into()
    }
}

impl From<handfast_wire::Error> for CommandError {
    fn from(error: handfast_wire::Error) -> Self {
        CommandError::new(Code(error.code()), error.to_string())
    }
}
