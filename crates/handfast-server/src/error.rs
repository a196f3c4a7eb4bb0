//! The errors of the server itself ([`Error`]) and those of commands (`CommandError`), which clients receive.

use std::borrow::Cow;
use std::path::PathBuf;

use bson::RawDocumentBuf;
use handfast_mql::Code;
use handfast_store::Applied;

/// The result type of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The error of a server that cannot start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address is in use, does not belong to this machine, or is not allowed.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address from the configuration.
        address: String,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The path of the Unix socket is occupied by a running server, or by a file that is no socket.
    #[error("cannot listen on {path}: {why}")]
    SocketPath {
        /// The path from the configuration.
        path: PathBuf,
        /// The reason.
        why: &'static str,
    },
    /// The list of addresses is empty.
    #[error("no address to listen on was given")]
    NoAddress,
}

/// The error of a command: the code, the message and the details that the client receives.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub(crate) struct CommandError {
    pub(crate) code: Code,
    pub(crate) message: String,
    /// Fields that MongoDB puts beside code and text, such as `keyPattern` and `keyValue`.
    pub(crate) details: Option<RawDocumentBuf>,
    /// Whether the changes of the command may have been applied.
    pub(crate) applied: Applied,
    /// Whether something was written before the step that failed.
    pub(crate) partly: bool,
    /// Whether a change stream can be resumed after it; `None` if it is not of a change stream.
    pub(crate) resumable: Option<bool>,
}

/// The result type of commands.
pub(crate) type CommandResult<T> = std::result::Result<T, CommandError>;

impl CommandError {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        CommandError {
            code,
            message: message.into(),
            details: None,
            applied: Applied::No,
            partly: false,
            resumable: None,
        }
    }

    /// Marks the error of a write that was given up before the store returned its result.
    #[must_use]
    pub(crate) fn maybe_applied(self) -> Self {
        CommandError { applied: Applied::Maybe, ..self }
    }

    /// Returns the message, which begins with "the outcome is unknown" if the command may have been applied.
    pub(crate) fn text(&self) -> Cow<'_, str> {
        text(self.applied, &self.message)
    }

    /// Returns MongoDB's name of the code.
    pub(crate) fn name(&self) -> Cow<'static, str> {
        match SERVER_CODES.iter().find(|(code, _)| *code == self.code) {
            Some((_, name)) => Cow::Borrowed(name),
            None => self.code.name(),
        }
    }
}

pub(crate) const NO_REPLICATION_ENABLED: Code = Code(76);
pub(crate) const COMMAND_FAILED: Code = Code(125);
pub(crate) const INVALID_SSL_CONFIGURATION: Code = Code(140);

/// The names of codes that only commands of the server return, so that the language and the stores do not know them.
const SERVER_CODES: [(Code, &str); 3] = [
    (NO_REPLICATION_ENABLED, "NoReplicationEnabled"),
    (COMMAND_FAILED, "CommandFailed"),
    (INVALID_SSL_CONFIGURATION, "InvalidSSLConfiguration"),
];

impl From<handfast_store::Error> for CommandError {
    fn from(error: handfast_store::Error) -> Self {
        CommandError {
            code: error.code(),
            message: error.message().to_owned(),
            details: error.details().cloned(),
            applied: error.applied(),
            partly: false,
            resumable: None,
        }
    }
}

impl From<handfast_patterns::Error> for CommandError {
    fn from(error: handfast_patterns::Error) -> Self {
        match error {
            handfast_patterns::Error::Store(error) => error.into(),
            error => CommandError::new(error.code(), error.to_string()),
        }
    }
}

/// Returns the message of an error. It begins with "the outcome is unknown" if the command may have been applied.
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
