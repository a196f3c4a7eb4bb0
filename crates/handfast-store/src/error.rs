//! What a store's failure means for the caller: a class, whether it may have been applied, and MongoDB's code.

use bson::RawDocumentBuf;
use handfast_mql::Code;

/// What every operation of a store returns.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What to do about an error (spec: resilience).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorClass {
    /// The network hiccuped or the primary changed: retry once, if the operation is idempotent.
    TransientNetwork,
    /// Nobody answers: give up and report; each retry would wait for the full server selection again.
    Outage,
    /// The store understood and refused: never retry.
    Command,
}

/// Whether an operation that failed has changed anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Applied {
    /// It did not happen.
    No,
    /// Nobody can tell from the error alone: the outcome is unknown.
    Maybe,
}

/// A failed operation.
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
    /// The store refused: class [`ErrorClass::Command`], not applied.
    pub fn command(code: Code, message: impl Into<String>) -> Self {
        Error::new(ErrorClass::Command, Applied::No, code, message)
    }

    /// An error of any class.
    pub fn new(class: ErrorClass, applied: Applied, code: Code, message: impl Into<String>) -> Self {
        Error { class, applied, code, message: message.into(), details: None, source: None }
    }

    /// Adds the fields that MongoDB puts beside code and message (`keyPattern` and `keyValue` of a duplicate key).
    #[must_use]
    pub fn with_details(mut self, details: RawDocumentBuf) -> Self {
        self.details = Some(Box::new(details));
        self
    }

    /// The same error of a request that has had an effect before, or may have had one.
    #[must_use]
    pub fn in_doubt(self) -> Self {
        Error { applied: Applied::Maybe, ..self }
    }

    /// Keeps what caused the error.
    #[must_use]
    pub fn with_source(mut self, source: impl std::error::Error + Send + Sync + 'static) -> Self {
        self.source = Some(std::sync::Arc::new(source));
        self
    }

    /// What to do about it.
    pub fn class(&self) -> ErrorClass {
        self.class
    }

    /// Whether it may have happened all the same.
    pub fn applied(&self) -> Applied {
        self.applied
    }

    /// MongoDB's code.
    pub fn code(&self) -> Code {
        self.code
    }

    /// The text for people.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The fields beside code and message.
    pub fn details(&self) -> Option<&RawDocumentBuf> {
        self.details.as_deref()
    }
}

impl From<handfast_mql::Error> for Error {
    fn from(error: handfast_mql::Error) -> Self {
        Error::command(error.code(), error.message())
    }
}
