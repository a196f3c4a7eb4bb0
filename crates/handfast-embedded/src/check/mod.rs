//! Checks that a directory is undamaged, or says what is damaged; and repairs the files that can be repaired without guessing.
//!
//! 1. the file FORMAT, and the witness;
//! 2. the journal: every synced batch can be read, none is missing, the last one that the witness has is there;
//! 3. the catalog;
//! 4. each document: its checksum, that its key is that of its `_id`, that every index has its entries, and that the number of
//!    documents is the one counted;
//! 5. each index entry: its checksum, that its document exists and has this key, that a unique key occurs once;
//! 6. keys that belong to no collection.
//!
//! The check continues after a damaged block of a data file, which is one finding.
//!
//! A repair cuts the journal where it can no longer be read (and says how much that drops, and keeps a copy), writes FORMAT
//! and the witness again, rebuilds damaged indexes from the documents, and corrects counts. A damaged document is reported
//! and left as it is, as its content is unknown.

mod collection;
mod files;
mod records;
#[cfg(test)]
mod tests;

use std::ops::ControlFlow;
use std::path::Path;

use handfast_store::Namespace;

use crate::Options;
use crate::catalog::Catalog;
use crate::directory;
use crate::engine::Engine;
use crate::error::{Error, Result};

pub(crate) use collection::check_collection;

/// Findings in a report; more are only counted.
const FINDINGS_MAX: usize = 1000;

/// Whether to change anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repair {
    /// Only look.
    No,
    /// Repair what can be repaired without guessing.
    Yes,
}

/// Something that is damaged or inconsistent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The place and the damage, as text for people.
    pub text: String,
    /// The repair.
    pub remedy: Remedy,
}

/// The repair of a finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// There is none: restore a backup.
    None,
    /// Write the file FORMAT again: the version is known.
    WriteFormat,
    /// Cut the journal where it cannot be read, or correct a number in it that is known.
    MendJournal,
    /// Accept that synced batches are lost.
    ResetWitness,
    /// Write the witness again: accept that it is unknown whether synced batches are lost.
    WriteWitness,
    /// Rebuild an index.
    BuildIndex(Namespace, String),
    /// Count the documents again.
    Count(Namespace),
}

/// The progress of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// The collection, or the part of the files, that is being checked.
    pub stage: String,
    /// Records checked so far.
    pub records: u64,
    /// The expected number of all records, as far as is known.
    pub records_expected: u64,
}

/// The result of a check.
#[derive(Clone, Debug, Default)]
pub struct CheckReport {
    /// Collections checked.
    pub collections: u64,
    /// Documents checked.
    pub documents: u64,
    /// Index entries checked.
    pub entries: u64,
    /// The first thousand findings.
    pub findings: Vec<Finding>,
    /// The number of further findings.
    pub findings_beyond: u64,
    /// The repairs that were made, as text for people.
    pub repaired: Vec<String>,
    /// Collections with documents that cannot be read.
    pub(crate) unreadable: Vec<Namespace>,
}

impl CheckReport {
    /// Returns whether there are no findings.
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty()
    }

    fn mark_unreadable(&mut self, namespace: &Namespace) {
        if !self.unreadable.contains(namespace) {
            self.unreadable.push(namespace.clone());
        }
    }

    pub(crate) fn add(&mut self, remedy: Remedy, text: impl Into<String>) {
        if self.findings.len() < FINDINGS_MAX {
            self.findings.push(Finding { text: text.into(), remedy });
        } else {
            self.findings_beyond += 1;
        }
    }
}

/// Checks the files and records of a directory, and repairs the files if told to.
pub(crate) fn look(
    path: &Path,
    options: &Options,
    repair: Repair,
    progress: &mut dyn FnMut(&Progress),
) -> Result<CheckReport> {
    let mut report = CheckReport::default();
    let directory = directory::lock_to_check(path)?;
    progress(&Progress { stage: "journal".to_owned(), ..Progress::default() });
    let Some(synced) = files::look(path, repair, &mut report)? else {
        return Ok(report);
    };
    let engine = match directory::open_engine(&directory, options, synced) {
        Ok((engine, _)) => engine,
        Err(Error::Damaged { what, .. }) => {
            report.add(Remedy::None, what);
            return Ok(report);
        }
        Err(error) => return Err(error),
    };
    let view = engine.view();
    match Catalog::load(view.as_ref()) {
        Ok(catalog) => {
            let mut on_progress = |at: &Progress| {
                progress(at);
                ControlFlow::Continue(())
            };
            records::check_all(view.as_ref(), &catalog, &mut report, &mut on_progress);
        }
        Err(error) => report.add(Remedy::None, format!("the catalog: {}", error.description())),
    }
    Ok(report)
}
