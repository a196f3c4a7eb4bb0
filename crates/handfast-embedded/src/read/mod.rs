//! How the store is queried: [`plan`] chooses how candidates are found ([`bounds`] from the filter, [`element`] from an
//! `$elemMatch`), [`scan`] walks them, [`candidates`] hands them out, [`find`] cuts the answer into pages.
//!
//! Whatever the plan says, the filter has the last word on every document: an index only spares looking.

pub(crate) mod bounds;
pub(crate) mod candidates;
mod element;
pub(crate) mod explain;
pub(crate) mod find;
pub(crate) mod plan;
pub(crate) mod scan;
