//! Proves that a directory is whole, or says what is not; and repairs what can be repaired without guessing.
//!
//! 1. the file FORMAT, and the witness;
//! 2. the journal: every batch that was synced can be read, none is missing, the last one that the witness knows is there;
//! 3. the catalog;
//! 4. each document: its checksum, that it lies under its own `_id`, that every index has its entries, and that there are
//!    as many as were counted;
//! 5. each index entry: its checksum, that its document is there and has this key, that a unique key comes once;
//! 6. keys that belong to no collection.
//!
//! Behind a damaged block of a data file it goes on; what lies in it is one finding.
//!
//! A repair cuts the journal where it can no longer be read (and says how much that drops, and keeps a copy), writes FORMAT
//! and the witness anew, builds damaged indexes anew from the documents, and sets counts right. A damaged document is
//! reported and left as it is: nobody can know what was in it.

mod files;
mod one;
mod repair;
mod scrub;
#[cfg(test)]
mod tests;

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use handfast_store::{Namespace, Sources};

use crate::Options;
use crate::catalog::Catalog;
use crate::directory;
use crate::engine::Engine;
use crate::error::{Error, Result};

/// Findings kept in a report; more are only counted.
const FINDINGS_MAX: usize = 1000;

/// Whether to change anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repair {
    /// Only look.
    No,
    /// Repair what can be repaired without guessing.
    Yes,
}

/// Something that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Where and what, for people.
    pub text: String,
    /// What can be done: an index to build anew, counts to set right; none for what is lost.
    pub remedy: Remedy,
}

/// What can be done about a finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// Nothing here: restore a backup.
    None,
    /// Write the file FORMAT anew: the version is known.
    WriteFormat,
    /// Cut the journal where it cannot be read, or put a number in it right that is known.
    MendJournal,
    /// Accept that synced batches are gone.
    ResetWitness,
    /// Write the witness anew: accept that nobody can tell whether synced batches are gone.
    WriteWitness,
    /// Build an index anew.
    BuildIndex(Namespace, String),
    /// Count again.
    Count(Namespace),
}

/// How far a check is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// What is being looked at.
    pub stage: String,
    /// Records looked at so far.
    pub records: u64,
    /// Records that there should be in all, as far as is known.
    pub records_expected: u64,
}

/// What a check found.
#[derive(Clone, Debug, Default)]
pub struct CheckReport {
    /// Collections looked at.
    pub collections: u64,
    /// Documents looked at.
    pub documents: u64,
    /// Index entries looked at.
    pub entries: u64,
    /// What is not as it should be; at most a thousand.
    pub findings: Vec<Finding>,
    /// Findings beyond those.
    pub findings_beyond: u64,
    /// What a repair did.
    pub repaired: Vec<String>,
    /// Collections of which some documents cannot be read.
    pub(crate) unreadable: Vec<Namespace>,
}

impl CheckReport {
    /// Whether nothing was found.
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty()
    }

    fn mark_unreadable(&mut self, namespace: &Namespace) {
        if !self.unreadable.contains(namespace) {
            self.unreadable.push(namespace.clone());
        }
    }

    pub(crate) fn find(&mut self, remedy: Remedy, text: impl Into<String>) {
        if self.findings.len() < FINDINGS_MAX {
            self.findings.push(Finding { text: text.into(), remedy });
        } else {
            self.findings_beyond += 1;
        }
    }
}

/// Checks a directory, and repairs it if told to. Nobody else may have it open. After a repair the report holds what was
/// found before it; check again to see what is left. Needs a tokio runtime, and takes as long as reading everything.
///
/// # Errors
/// The directory cannot be opened for another reason than damage: it is in use, not ours, of a newer format.
pub async fn check(
    path: impl AsRef<Path>,
    sources: Sources,
    options: Options,
    repair: Repair,
    progress: impl FnMut(&Progress) + Send + 'static,
) -> Result<CheckReport> {
    let directory = path.as_ref().to_owned();
    let options = Options { expiry_interval: None, ..options };
    let looked = {
        let options = options.clone();
        let mut progress = progress;
        tokio::task::spawn_blocking(move || look(&directory, &options, repair, &mut progress)).await
    };
    let mut report = looked.map_err(|error| Error::Engine(format!("the check was broken off: {error}")))??;
    if repair == Repair::Yes {
        repair::in_store(path.as_ref(), sources, options, &mut report).await?;
    }
    Ok(report)
}

fn look(path: &Path, options: &Options, repair: Repair, progress: &mut dyn FnMut(&Progress)) -> Result<CheckReport> {
    let mut report = CheckReport::default();
    let directory = Arc::new(directory::lock_to_check(path)?);
    progress(&Progress { stage: "journal".to_owned(), ..Progress::default() });
    let Some(synced) = files::look(path, repair, &mut report)? else {
        return Ok(report);
    };
    let engine = match directory::open_engine(&directory, options, synced) {
        Ok((engine, _)) => engine,
        Err(Error::Damaged { what, .. }) => {
            report.find(Remedy::None, what);
            return Ok(report);
        }
        Err(error) => return Err(error),
    };
    let view = engine.view();
    match Catalog::load(view.as_ref()) {
        Ok(catalog) => {
            let mut told = |at: &Progress| {
                progress(at);
                ControlFlow::Continue(())
            };
            scrub::scrub(view.as_ref(), &catalog, &mut report, &mut told);
        }
        Err(error) => report.find(Remedy::None, format!("the catalog: {}", error.words())),
    }
    Ok(report)
}
