//! Updates by processes that may have lost the right to make them: the lease of their job is over, and they do not
//! know it yet.
//!
//! ```text
//! applied: [.., {work: 6b02.., step: "count", number: 3}]      the third holder of job 6b02.. has made the step
//!   the second holder may not write to this document any more   number > 2 is in the list
//!   no holder makes the step again, the fourth one neither      work and step are in the list
//! ```
//!
//! The document of the work counts its holders, so that a later holder has a greater number. Other documents know only
//! of holders that have written to them. A caller that computes a change from what a document says must keep earlier
//! holders from it before reading, by [`ExactlyOnce::fence`](super::ExactlyOnce::fence).

use bson::{Bson, Document, doc};

use super::Token;

/// A holder of some work. Several processes may have held it one after the other.
#[derive(Clone, Debug, PartialEq)]
pub struct Fence {
    /// The id of the work, such as that of a job.
    pub work: Bson,
    /// The number of holders so far, including this one.
    pub number: i64,
}

/// The mark of an update that a document keeps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Mark<'a> {
    /// The update with this token was made.
    Token(Token),
    /// This step of the work was made, by this holder.
    Step(&'a Fence, &'a str),
    /// The work belongs to this holder.
    Fence(&'a Fence),
}

impl From<Token> for Mark<'_> {
    fn from(token: Token) -> Self {
        Mark::Token(token)
    }
}

impl Mark<'_> {
    /// Returns the mark as the list stores it.
    pub(super) fn written(self) -> Bson {
        match self {
            Mark::Token(token) => token.into(),
            Mark::Step(Fence { work, number }, step) => {
                doc! { "work": work.clone(), "step": step, "number": *number }.into()
            }
            Mark::Fence(Fence { work, number }) => doc! { "work": work.clone(), "number": *number }.into(),
        }
    }

    /// Returns a condition on the list that holds if the document has made the update.
    pub(super) fn made(self) -> Bson {
        match self {
            Mark::Token(token) => token.into(),
            Mark::Step(Fence { work, .. }, step) => {
                doc! { "$elemMatch": { "work": work.clone(), "step": step } }.into()
            }
            Mark::Fence(Fence { work, number }) => {
                doc! { "$elemMatch": { "work": work.clone(), "number": *number } }.into()
            }
        }
    }

    /// Returns a condition on the list that holds if a later holder has written to the document; `None` for a token.
    pub(super) fn fenced(self) -> Option<Document> {
        match self {
            Mark::Token(_) => None,
            Mark::Step(Fence { work, number }, _) | Mark::Fence(Fence { work, number }) => {
                Some(doc! { "$elemMatch": { "work": work.clone(), "number": { "$gt": *number } } })
            }
        }
    }
}
