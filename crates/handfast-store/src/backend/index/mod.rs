//! Indexes as every backend understands them: which definitions are accepted, what an index holds of a document, and
//! the error that a second document under a unique key gets.
//!
//! A backend keeps, for each document, the keys that [`Index::keys`] gives, in an ordered map; the bytes of two keys
//! compare as their values do. Whether a new key is taken is for the backend to see, atomically with the write.

mod catalog;
mod duplicate;
mod keys;
mod specification;
mod values;

#[cfg(test)]
mod tests;

pub use catalog::{Addition, addition, dropped, same_key, selected};
pub use duplicate::{duplicate_key, key_conflict};
pub use keys::{Index, IndexKeys};
pub use specification::{EXPIRE_AFTER_SECONDS_MAX, ID_INDEX_NAME, INDEX_FIELDS_MAX, INDEXES_MAX, check_expiry_seconds};
pub use values::{CANNOT_INDEX_PARALLEL_ARRAYS, Path, Tuple, Tuples, tuples};
