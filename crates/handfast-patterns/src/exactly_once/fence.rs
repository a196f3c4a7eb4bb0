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

/// Who does some work, out of several who may have done it one after the other.
#[derive(Clone, Debug, PartialEq)]
pub struct Fence {
    /// The id of the work, of a job for example.
    pub work: Bson,
    /// How many have had it, this one included.
    pub number: i64,
}

/// What a document remembers of an update.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Mark<'a> {
    /// That it was made.
    Token(Token),
    /// That this step of some work was made, and by which one of those who had it.
    Step(&'a Fence, &'a str),
    /// That this one has it.
    Fence(&'a Fence),
}

impl From<Token> for Mark<'_> {
    fn from(token: Token) -> Self {
        Mark::Token(token)
    }
}

impl Mark<'_> {
    /// As it is written in the list.
    pub(super) fn written(self) -> Bson {
        match self {
            Mark::Token(token) => token.into(),
            Mark::Step(Fence { work, number }, step) => {
                doc! { "work": work.clone(), "step": step, "number": *number }.into()
            }
            Mark::Fence(Fence { work, number }) => doc! { "work": work.clone(), "number": *number }.into(),
        }
    }

    /// What matches the list of a document that has made it.
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

    /// What matches the list of a document in which a later one has written; none if nobody can be later.
    pub(super) fn fenced(self) -> Option<Document> {
        match self {
            Mark::Token(_) => None,
            Mark::Step(Fence { work, number }, _) | Mark::Fence(Fence { work, number }) => {
                Some(doc! { "$elemMatch": { "work": work.clone(), "number": { "$gt": *number } } })
            }
        }
    }
}
