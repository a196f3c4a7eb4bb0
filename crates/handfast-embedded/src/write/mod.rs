//! The writes of the store: each request becomes operations of the committer.
//!
//! An update, a delete and a find-and-modify ([`modify`]) are compiled into a [`target`] (which documents) and an
//! [`evaluation`] (what happens to each), which [`change_one`] or [`change_many`] carries out.

pub(crate) mod batch;
pub(crate) mod change_many;
pub(crate) mod change_one;
pub(crate) mod collections;
pub(crate) mod context;
pub(crate) mod evaluation;
pub(crate) mod expiry;
pub(crate) mod index_build;
pub(crate) mod indexes;
pub(crate) mod insert;
pub(crate) mod key_removal;
pub(crate) mod log_trimming;
pub(crate) mod modify;
pub(crate) mod target;
#[cfg(test)]
mod tests;
pub(crate) mod ticketed;
