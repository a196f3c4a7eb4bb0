//! The error of a store: its class, whether the operation may have been applied, and MongoDB's code.

use bson::RawDocumentBuf;
use handfast_mql::Code;

/// The result of every operation of a store.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The class of an error, which says what the caller should do (spec: resilience).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorClass {
    /// A network failure or a change of the primary: retry once if the operation is idempotent.
    TransientNetwork,
    /// An outage: no server answers. Do not retry, as each attempt would wait for the full server selection again.
    Outage,
    /// The store refused the request: never retry.
    Command,
}

/// Whether a failed operation may have changed something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Applied {
    /// The operation was certainly not applied.
    No,
    /// The outcome is unknown.
    Maybe,
}

/// The error of a failed operation.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    class: ErrorClass,
    applied: Applied,
    code: Code,
    message: String,
    details: Option<Box<RawDocumentBuf>>,
    #[source]
    source: Option<std::sync::Arc<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    /// Creates a refusal: class [`ErrorClass::Command`], not applied.
    pub fn command(code: Code, message: impl Into<String>) -> Self {
        Error::new(ErrorClass::Command, Applied::No, code, message)
    }

    /// Creates an error of any class.
    pub fn new(class: ErrorClass, applied: Applied, code: Code, message: impl Into<String>) -> Self {
        Error { class, applied, code, message: message.into(), details: None, source: None }
    }

    /// Adds the fields that MongoDB puts beside code and message (`keyPattern` and `keyValue` of a duplicate key).
    #[must_use]
    pub fn with_details(mut self, details: RawDocumentBuf) -> Self {
        self.details = Some(Box::new(details));
        self
    }

    /// Marks the error as maybe applied, for a request that had, or may have had, an effect before.
    #[must_use]
    pub fn in_doubt(self) -> Self {
        Error { applied: Applied::Maybe, ..self }
    }

    /// Adds the cause of the error.
    #[must_use]
    pub fn with_source(mut self, source: impl std::error::Error + Send + Sync + 'static) -> Self {
        self.source = Some(std::sync::Arc::new(source));
        self
    }

    /// Returns the class.
    pub fn class(&self) -> ErrorClass {
        self.class
    }

    /// Returns whether the operation may have been applied.
    pub fn applied(&self) -> Applied {
        self.applied
    }

    /// Returns MongoDB's error code.
    pub fn code(&self) -> Code {
        self.code
    }

    /// Returns the message.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Returns the fields beside code and message.
    pub fn details(&self) -> Option<&RawDocumentBuf> {
        self.details.as_deref()
    }
}

impl From<handfast_mql::Error> for Error {
    fn from(error: handfast_mql::Error) -> Self {
        Error::command(error.code(), error.message())
    }
}
