//! Transactions on a store that is atomic one document at a time, and no more: the protocol, as functions from row to row.

pub mod row;
