//! Indexes as all backends implement them: the accepted definitions, the keys of a document, and the error of a duplicate key.
//!
//! A backend keeps the keys that [`Index::keys`] returns for each document in an ordered map; the bytes of two keys
//! compare as their values do. The backend itself finds out, atomically with the write, whether a unique key exists.

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
