//! `handfast dump`: the documents and index definitions of a store as files, in the layout that mongodump and mongorestore use.
//!
//! ```text
//! dump/
//!   shop/                        a database
//!     orders.bson                documents, one after the other; or orders.json, one a line
//!     orders.metadata.json       the collection's name, options and indexes
//!     %C3%B6l.bson               names are percent-encoded; the metadata holds the true one
//! ```
//!
//! A dump is written under another name and renamed after all of it is synced, so that a directory of the right name is a complete dump.

pub(super) mod arguments;
pub(super) mod layout;
#[cfg(test)]
mod tests;
pub(super) mod write;

use handfast_embedded::must_be_outside;
use handfast_store::Sources;
use indicatif::ProgressBar;
use serde::Serialize;

use self::arguments::{DumpArguments, Selection};
use self::write::{Damaged, count_documents, find_collections, write_dump};
use crate::configuration::Settings;
use crate::console::Console;
use crate::exit::Exit;
use crate::listing::counted;
use crate::store::Directory;

/// Counts of what was written or read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Totals {
    pub(crate) collections: u64,
    pub(crate) indexes: u64,
    pub(crate) documents: u64,
    /// Bytes of BSON.
    pub(crate) bytes: u64,
}

/// The result of a dump.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Dumped {
    #[serde(flatten)]
    pub(crate) totals: Totals,
    /// Damaged places that were left out.
    pub(crate) skipped: u64,
}

impl Selection {
    pub(super) fn has_database(&self, name: &str) -> bool {
        self.database.as_deref().is_none_or(|database| database == name)
    }

    pub(super) fn has_collection(&self, name: &str) -> bool {
        self.collection.as_deref().is_none_or(|collection| collection == name)
    }
}

/// Adds documents to the totals and to the bar.
pub(super) fn count(totals: &mut Totals, progress: &ProgressBar, documents: u64, bytes: u64) {
    totals.documents += documents;
    totals.bytes += bytes;
    progress.inc(documents);
}

/// The report of a dump, for programs.
#[derive(Serialize)]
struct DumpReport {
    #[serde(flatten)]
    dumped: Dumped,
    /// Documents that were counted and are not in the dump.
    documents_missing: u64,
}

pub(super) async fn run(settings: &Settings, arguments: &DumpArguments, console: Console) -> anyhow::Result<Exit> {
    let directory = Directory::of(settings);
    directory.ensure_exists()?;
    must_be_outside(&settings.data, &arguments.to)?;
    let store = directory.open_existing(Sources::system()?).await?;
    let chosen = find_collections(&store, &arguments.selection).await?;
    let length = count_documents(&store, &chosen).await?;
    let progress = console.progress("dump", "documents", length);
    let damaged = if arguments.skip_damaged { Damaged::Skip(&store) } else { Damaged::Refuse };
    let dumped = write_dump(&store, damaged, &arguments.to, arguments.format, &chosen, &progress).await?;
    progress.finish_and_clear();
    store.close().await?;
    let Dumped { totals, skipped } = dumped;
    let documents_missing = match skipped {
        0 => 0,
        _ => length.saturating_sub(totals.documents),
    };
    let text = || match skipped {
        0 => done("dumped", &totals),
        _ => format!("{}; {}", done("dumped", &totals), left_out(documents_missing)),
    };
    console.report(text, &DumpReport { dumped, documents_missing })?;
    Ok(if skipped == 0 { Exit::Good } else { Exit::GuaranteeBroken })
}

/// Returns the text about documents that a dump with damage left out.
fn left_out(missing: u64) -> String {
    match missing {
        0 => "no document is left out: the damaged ones were found elsewhere, too".to_owned(),
        1 => "1 document is damaged and left out".to_owned(),
        _ => format!("{missing} documents are damaged and left out"),
    }
}

/// Returns the line that reports what was dumped or restored.
pub(super) fn done(what: &str, totals: &Totals) -> String {
    let Totals { collections, indexes, documents, bytes } = totals;
    format!(
        "{what} {} ({bytes} bytes) and {} of {}",
        counted(*documents, "documents"),
        counted(*indexes, "indexes"),
        counted(*collections, "collections")
    )
}
