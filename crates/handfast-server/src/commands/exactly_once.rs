//! The commands of exactly-once updates: the steps of the pattern, for programs in any language.
//!
//! ```text
//! handfastApplyOnce      {applied}                 an update that a token names, in one round trip
//! handfastFinishUpdates  {finished, failed, more}  the second steps of updates in two steps that their clients did not make
//! ```
//!
//! An update that is not made, because its document is missing or does not match the guard, is an error: a program that does not look at a reply
//! takes it for made.

pub(super) mod apply;
pub(super) mod finish;

#[cfg(test)]
mod tests;
