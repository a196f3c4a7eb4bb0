//! The commands of the sync flag: the steps of the pattern, for programs in any language.
//!
//! ```text
//! handfastOpenSyncFlag  {}                                    records the links from main documents to their copies
//! handfastSetSynced     {version, synced}                     changes a main document, and then its copies
//! handfastDeleteSynced  {deleted, synced}                     deletes a main document
//! handfastInsertSynced  {_id, synced}                         inserts a document with copies of fields
//! handfastSweepSynced   {swept, failed, more}                 carries changes whose clients or servers died
//! handfastAuditSynced   {copies, inFlight, stale, findings}   lists the copies that are out of date
//! ```
//!
//! In a driver's transaction the first three steps are made alone, and the copies follow after the commit: when the client sends the command again
//! outside of the transaction, or by the sweep.

pub(super) mod audit;
pub(super) mod delete;
pub(super) mod insert;
pub(super) mod open;
pub(super) mod set;
pub(super) mod sweep;

use super::pattern_steps::missing;

#[cfg(test)]
mod tests;
