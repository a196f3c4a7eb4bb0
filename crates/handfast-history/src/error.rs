//! What can be wrong with a history as a text, as opposed to what it tells.

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// A history that cannot be judged.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file could not be read or written.
    #[error("cannot read or write the history")]
    Io(#[from] std::io::Error),
    /// A line is not what the format says.
    #[error("line {line} of the history: {text}")]
    Line {
        /// Counted from 1.
        line: u64,
        /// What is wrong with it.
        text: String,
    },
    /// The events do not make a history.
    #[error("not a history that can be judged: {0}")]
    Malformed(String),
}

impl Error {
    pub(crate) fn malformed(text: impl Into<String>) -> Self {
        Error::Malformed(text.into())
    }
}
