#![doc = include_str!("../README.md")]

mod accumulator;
#[cfg(test)]
mod arbitrary;
pub mod bson_type;
pub mod collation;
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
mod raw_writer;
pub mod schema;
pub mod sort;
pub mod spill;
pub mod text;
pub mod update;

pub use collation::Collation;
pub use context::{CompileOptions, Context};
pub use decimal::Decimal;
pub use error::{Code, Error, Result};
pub use expression::Expression;
pub use filter::{Filter, MatchPosition};
pub use number::Number;
pub use path::Path;
pub use pipeline::Pipeline;
pub use projection::Projection;
pub use schema::Schema;
pub use sort::{Sort, Sorter};
pub use update::{Applied, Update, UpdateOptions, UpdateSource};

#[cfg(test)]
pub(crate) mod testing;
