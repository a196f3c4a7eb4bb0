//! Updates of those who may lose the right to make them: whose lease of a job is over, and who do not know.
//!
//! ```text
//! applied: [.., {work: 6b02.., step: "count", number: 3}]      the third who had job 6b02.. has made the step
//!   who is second may not write here any more               number > 2 is in the list
//!   nobody makes the step again, not the fourth either      work and step are in the list
//! ```
//!
//! Numbers are counted up by whoever gives the right away, in the document of the work: of two who have had it, the later one has the
//! greater number. A document knows no other documents, so it knows of a later one when that one has first written to it. Who must be
//! sure before it reads what it computes its change from calls [`ExactlyOnce::fence`](super::ExactlyOnce::fence) first.

use bson::{Bson, Document, doc};

use super::Token;

/// One holder of some work, of several who may have held it one after the other.
#[derive(Clone, Debug, PartialEq)]
pub struct Fence {
    /// The id of the work, of a job for example.
    pub work: Bson,
    /// The number of holders so far, this one included.
    pub number: i64,
}

/// The mark of an update that a document keeps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Mark<'a> {
    /// The update was made.
    Token(Token),
    /// The step of some work was made, by this holder of it.
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
