//! Queries of a snapshot: [`plan`] chooses the access path to the candidates ([`bounds`] from the filter, [`element`] from an
//! `$elemMatch`), [`scan`] reads them from the engine, [`candidates`] returns them in batches, [`find`] in pages.
//!
//! The filter is evaluated for every candidate, whatever the plan: an index only reduces their number.

pub(crate) mod bounds;
pub(crate) mod candidates;
mod element;
pub(crate) mod explain;
pub(crate) mod find;
pub(crate) mod plan;
pub(crate) mod scan;
