//! MongoDB's language over BSON, as pure functions: filters, updates, projections, sorts, aggregation, the order of
//! values, and keys whose byte order is that order.
//!
//! This crate knows no I/O, no clock, no randomness and no threads: time and chance arrive in a [`Context`]. What a
//! caller compiles once ([`Filter`], [`Update`], [`Projection`], [`Sort`], [`Pipeline`]) it can apply to any number of
//! documents from any number of threads.
//!
//! Bytes from outside go through [`depth::check`] before anything in here sees them: everything else may recurse.

mod accumulator;
#[cfg(test)]
mod arbitrary;
pub mod context;
pub mod decimal;
pub mod depth;
mod element;
pub mod error;
pub mod expression;
mod field_path;
pub mod filter;
pub mod key;
pub mod number;
pub mod order;
pub mod path;
mod pattern;
pub mod pipeline;
pub mod projection;
pub mod sort;
pub mod text;
pub mod update;

pub use context::{CompileOptions, Context};
pub use decimal::Decimal;
pub use error::{Code, Error, Result};
pub use expression::Expression;
pub use filter::{Filter, MatchPosition};
pub use number::Number;
pub use path::Path;
pub use pipeline::Pipeline;
pub use projection::Projection;
pub use sort::{Sort, Sorter};
pub use update::{Applied, Update, UpdateOptions, UpdateSource};
