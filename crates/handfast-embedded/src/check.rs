//! Proves that a directory is whole, or says what is not; and repairs what can be repaired without guessing.
//!
//! 1. the journal: every batch that was synced can be read, none is missing;
//! 2. the witness: the last synced batch is there;
//! 3. the catalog;
//! 4. each document: its checksum, that it lies under its own `_id`, that every index has its entries, and that there are
//!    as many as were counted;
//! 5. each index entry: its checksum, that its document is there and has this key, that a unique key comes once;
//! 6. keys that belong to no collection.
//!
//! A repair cuts the journal where it can no longer be read (and says how much that drops, and keeps a copy), builds
//! damaged indexes anew from the documents, and sets counts right. A damaged document is reported and left as it is:
//! nobody can know what was in it.

mod scrub;
#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::Arc;

use handfast_store::{CreateIndexes, DropIndexes, IndexSelector, IndexSpec, Namespace, Sources};

use crate::Options;
use crate::catalog::Catalog;
use crate::directory::{self, witness::Witness};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::store::EmbeddedStore;

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
    /// Cut the journal.
    CutJournal,
    /// Accept that synced batches are gone.
    ResetWitness,
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
}

impl CheckReport {
    /// Whether nothing was found.
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty()
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
    if repair == Repair::Yes && report.findings.iter().any(|finding| needs_store(&finding.remedy)) {
        repair_in_store(path.as_ref(), sources, options, &mut report).await?;
    }
    Ok(report)
}

fn needs_store(remedy: &Remedy) -> bool {
    matches!(remedy, Remedy::BuildIndex(..) | Remedy::Count(_))
}

fn look(path: &Path, options: &Options, repair: Repair, progress: &mut dyn FnMut(&Progress)) -> Result<CheckReport> {
    let mut report = CheckReport::default();
    let directory = Arc::new(directory::lock_existing(path)?);
    progress(&Progress { stage: "journal".to_owned(), ..Progress::default() });
    if !look_at_journal(path, repair, &mut report)? {
        return Ok(report);
    }
    let opened = match directory::open(&directory, options) {
        Ok(opened) => opened,
        Err(Error::Damaged { what, .. }) => {
            report.find(Remedy::None, what);
            return Ok(report);
        }
        Err(error) => return Err(error),
    };
    let view = opened.engine.view();
    match Catalog::load(view.as_ref()) {
        Ok(catalog) => scrub::scrub(view.as_ref(), &catalog, &mut report, progress),
        Err(error) => report.find(Remedy::None, format!("the catalog: {error}")),
    }
    Ok(report)
}

/// Whether the engine can be opened afterwards.
fn look_at_journal(path: &Path, repair: Repair, report: &mut CheckReport) -> Result<bool> {
    let engine = path.join(directory::ENGINE);
    if !engine.try_exists().map_err(|error| Error::io(format!("reading {}", engine.display()), error))? {
        // A store that was never written to, or whose files are gone: opening tells them apart.
        return Ok(true);
    }
    let mut witness = Witness::open(&path.join(directory::WITNESS_FILE))?;
    let journals = match directory::journal::read(&engine) {
        Ok(journals) => journals,
        Err(Error::Corrupt(what)) => {
            report.find(Remedy::None, what);
            return Ok(false);
        }
        Err(error) => return Err(error),
    };
    let last_in_journal = journals.last.map(|last| last.number);
    if let Err(what) = journals.judge(witness.number()) {
        report.find(Remedy::CutJournal, what);
        if repair == Repair::No {
            return Ok(false);
        }
        report.repaired.extend(journals.repair()?);
    }
    // The last batch may be in a data file and not in the journal any more.
    let last = match directory::last_in_engine(path) {
        Ok(last) => last.max(last_in_journal.unwrap_or(0)),
        Err(_) => return Ok(true),
    };
    if last < witness.number() {
        let text = format!("batch {} was synced, the last that is there is {last}", witness.number());
        report.find(Remedy::ResetWitness, text);
        if repair == Repair::No {
            return Ok(false);
        }
        report.repaired.push(format!("accepted that batches {} to {} are gone", last + 1, witness.number()));
        witness.reset(last)?;
    }
    Ok(true)
}

async fn repair_in_store(path: &Path, sources: Sources, options: Options, report: &mut CheckReport) -> Result<()> {
    let store = EmbeddedStore::open(path, sources, options).await?;
    let remedies: Vec<Remedy> = report.findings.iter().map(|finding| finding.remedy.clone()).collect();
    let mut done = Vec::new();
    for remedy in remedies {
        if done.contains(&remedy) {
            continue;
        }
        match &remedy {
            Remedy::BuildIndex(namespace, name) => report.repaired.push(rebuild(&store, namespace, name).await),
            Remedy::Count(namespace) => report.repaired.push(count(&store, namespace).await),
            _ => {}
        }
        done.push(remedy);
    }
    store.close().await.map_err(|error| Error::Engine(error.to_string()))
}

async fn rebuild(store: &EmbeddedStore, namespace: &Namespace, name: &str) -> String {
    let spec = store.collection(&store.snapshot_now(), namespace).and_then(|collection| {
        let index = collection.indexes.iter().find(|index| index.spec().name == name)?;
        Some::<IndexSpec>(index.spec().clone())
    });
    let Some(spec) = spec else {
        return format!("index {name} of {namespace} is not there any more");
    };
    let selector = IndexSelector::Names(vec![name.to_owned()]);
    let dropped = store.remove_indexes(DropIndexes { namespace: namespace.clone(), selector }).await;
    let built = match dropped {
        Ok(_) => store.add_indexes(CreateIndexes { namespace: namespace.clone(), indexes: vec![spec] }).await,
        Err(error) => Err(error),
    };
    match built {
        Ok(_) => format!("built index {name} of {namespace} anew"),
        Err(error) => format!("index {name} of {namespace} was dropped and cannot be built: {error}"),
    }
}

async fn count(store: &EmbeddedStore, namespace: &Namespace) -> String {
    match store.count_again(namespace).await {
        Ok(counts) => format!("counted {} documents in {namespace}", counts.documents),
        Err(error) => format!("the documents of {namespace} could not be counted: {error}"),
    }
}
