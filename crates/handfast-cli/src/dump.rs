//! Dumps: the documents and index definitions of a store as files, in the layout that mongodump and mongorestore use.
//!
//! ```text
//! dump/
//!   shop/                        a database
//!     orders.bson                documents, one after the other; or orders.json, one a line
//!     orders.metadata.json       the collection's name, options and indexes
//!     %C3%B6l.bson               names are percent-encoded; the metadata holds the true one
//! ```
//!
//! A dump is written under another name and renamed when all of it is synced, so that a directory of the right name is
//! a whole dump. What is read back is checked like bytes from the network: a dump may come from anywhere.

mod layout;
mod read;
mod restored;
#[cfg(test)]
mod tests;
mod tickets;
mod write;

use indicatif::ProgressBar;
use serde::Serialize;

use crate::arguments::Selection;

pub(crate) use read::{find_sources, restore};
pub(crate) use restored::Restored;
pub(crate) use write::{Damaged, count_documents, dump, find_collections, listed};

/// What was written or read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Totals {
    pub(crate) collections: u64,
    pub(crate) indexes: u64,
    pub(crate) documents: u64,
    /// Bytes of BSON.
    pub(crate) bytes: u64,
}

/// What a dump wrote, and what it left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Dumped {
    #[serde(flatten)]
    pub(crate) totals: Totals,
    /// Places with documents that cannot be read.
    pub(crate) skipped: u64,
}

impl Selection {
    fn has_database(&self, name: &str) -> bool {
        self.database.as_deref().is_none_or(|database| database == name)
    }

    fn has_collection(&self, name: &str) -> bool {
        self.collection.as_deref().is_none_or(|collection| collection == name)
    }
}

/// Adds documents to the totals and to the bar.
fn count(totals: &mut Totals, progress: &ProgressBar, documents: u64, bytes: u64) {
    totals.documents += documents;
    totals.bytes += bytes;
    progress.inc(documents);
}
