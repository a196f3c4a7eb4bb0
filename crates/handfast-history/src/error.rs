//! Errors of reading and writing histories. An anomaly is a finding and not an error.

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// The reason why a history cannot be read, written or checked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file could not be read or written.
    #[error("cannot read or write the history")]
    Io(#[from] std::io::Error),
    /// A line does not follow the format.
    #[error("line {line} of the history: {text}")]
    Line {
        /// The number of the line, from 1.
        line: u64,
        /// The fault in the line.
        text: String,
    },
    /// The events contradict each other.
    #[error("the events are not a history: {0}")]
    Malformed(String),
}

impl Error {
    pub(crate) fn malformed(text: impl Into<String>) -> Self {
        Error::Malformed(text.into())
    }
}
