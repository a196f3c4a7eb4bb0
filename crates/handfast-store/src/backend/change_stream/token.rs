//! The places of changes in a log, and resume tokens.
//!
//! A token is `{_data: <hexadecimal text>}`, as in MongoDB. Its bytes sort in the order of the log:
//!
//! ```text
//! version u8 | commit u64 | index in the commit u32 | kind u8 | id of the log u64        (big-endian)
//!
//! kind 1  an event
//! kind 2  the invalidation that follows an event: the stream has ended
//! kind 3  everything up to here was read (`postBatchResumeToken`)
//! ```

use bson::raw::cstr;
use bson::{RawBsonRef, RawDocument, RawDocumentBuf};
use handfast_mql::Code;

use crate::{CommitTimestamp, Error, Result};

/// The place of a change: its commit, and its index among the changes of the commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChangePosition {
    /// The commit.
    pub commit: CommitTimestamp,
    /// The index among the changes of the commit, from 0.
    pub index: u32,
}

impl ChangePosition {
    /// Returns the position behind all changes of a commit.
    pub fn end_of(commit: CommitTimestamp) -> Self {
        ChangePosition { commit, index: u32::MAX }
    }
}

/// The random id of a change log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogId(pub u64);

/// What a token is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenKind {
    /// An event.
    Event,
    /// An invalidation.
    Invalidation,
    /// The end of what was read.
    ReadUpTo,
}

/// A resume token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResumeToken {
    /// The position in the log.
    pub position: ChangePosition,
    /// What it is of.
    pub kind: TokenKind,
    /// The log.
    pub log: LogId,
}

const VERSION: u8 = 1;
const TOKEN_BYTES: usize = 22;

/// MongoDB's code for a token without `_data`.
const NO_DATA: Code = Code(40_647);

impl ResumeToken {
    /// Returns `{_data: ..}`.
    pub fn to_document(self) -> RawDocumentBuf {
        let mut document = RawDocumentBuf::new();
        document.append(cstr!("_data"), self.to_text());
        document
    }

    /// Returns the hexadecimal text.
    pub fn to_text(self) -> String {
        let kind = match self.kind {
            TokenKind::Event => 1,
            TokenKind::Invalidation => 2,
            TokenKind::ReadUpTo => 3,
        };
        let ChangePosition { commit, index } = self.position;
        let parts = [&[VERSION][..], &commit.0.to_be_bytes(), &index.to_be_bytes(), &[kind], &self.log.0.to_be_bytes()];
        const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
        let digit = |half: u8| char::from(DIGITS[usize::from(half & 15)]);
        parts.concat().iter().flat_map(|byte| [digit(byte >> 4), digit(*byte)]).collect()
    }

    /// Reads a token that [`ResumeToken::to_document`] has made.
    ///
    /// # Errors
    /// 40647 if it has no text `_data`; `FailedToParse` (9) if the text is not hexadecimal; `InvalidResumeToken` (260) if this
    /// is no token of Handfast.
    pub fn read(document: &RawDocument) -> Result<Self> {
        let data = document.get("_data").map_err(handfast_mql::Error::from)?;
        let Some(RawBsonRef::String(text)) = data else {
            let text = format!(
                "Bad resume token: _data of missing or of wrong type {}",
                handfast_mql::text::document(document)
            );
            return Err(Error::command(NO_DATA, text));
        };
        let bytes = bytes_of(text).ok_or_else(|| {
            let text = format!("resume token string was not a valid hex string: '{text}'");
            Error::command(Code::FailedToParse, text)
        })?;
        Self::of_bytes(&bytes).ok_or_else(|| {
            let text = format!("the resume token '{text}' is not one of this server: begin a new stream");
            Error::command(Code::InvalidResumeToken, text)
        })
    }

    fn of_bytes(bytes: &[u8]) -> Option<Self> {
        if bytes.len() != TOKEN_BYTES || bytes.first() != Some(&VERSION) {
            return None;
        }
        let number =
            |range: std::ops::Range<usize>| bytes[range].iter().fold(0, |all, byte| all << 8 | u64::from(*byte));
        let kind = match bytes[13] {
            1 => TokenKind::Event,
            2 => TokenKind::Invalidation,
            3 => TokenKind::ReadUpTo,
            _ => return None,
        };
        let index = u32::try_from(number(9..13)).ok()?;
        let position = ChangePosition { commit: CommitTimestamp(number(1..9)), index };
        Some(ResumeToken { position, kind, log: LogId(number(14..22)) })
    }
}

fn bytes_of(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    let digit = |digit: u8| char::from(digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let pair = |pair: &[u8]| Some(digit(*pair.first()?)? << 4 | digit(*pair.get(1)?)?);
    digits.chunks(2).map(pair).collect()
}
