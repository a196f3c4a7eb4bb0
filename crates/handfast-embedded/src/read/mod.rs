//! How the store is queried: a plan says how candidates are found ([`scan`]), the filter judges each ([`query`]), a
//! cursor cuts the answer into pages ([`find`]).

pub(crate) mod find;
pub(crate) mod query;
pub(crate) mod scan;
