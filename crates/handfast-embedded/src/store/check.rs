//! Checks a directory, and repairs indexes and counts in the open store.

use std::path::Path;

use handfast_store::{CreateIndexes, DropIndexes, IndexSelector, IndexSpec, Namespace, Sources, default_collation};

use super::EmbeddedStore;
use crate::check::{self, CheckReport, Progress, Remedy, Repair};
use crate::error::{Error, Result};
use crate::write::{collections, index_build, indexes};
use crate::{ChangeLog, Options};

/// Checks a directory, and repairs it if told to. No process may have it open. After a repair the report holds the findings
/// from before it; check again to see what is left. Needs a tokio runtime, and takes as long as reading everything.
///
/// # Errors
/// The directory cannot be opened for another reason than damage: [`Error::InUse`], [`Error::NotAStore`],
/// [`Error::NewerFormat`], [`Error::Io`].
pub async fn check(
    path: impl AsRef<Path>,
    sources: Sources,
    options: Options,
    repair: Repair,
    progress: impl FnMut(&Progress) + Send + 'static,
) -> Result<CheckReport> {
    let directory = path.as_ref().to_owned();
    let options = Options { expiry_interval: None, change_log: ChangeLog::AsItIs, ..options };
    let looked = {
        let options = options.clone();
        let mut progress = progress;
        tokio::task::spawn_blocking(move || check::look(&directory, &options, repair, &mut progress)).await
    };
    let mut report = looked.map_err(|error| Error::Engine(format!("the check did not finish: {error}")))??;
    if repair == Repair::Yes {
        repair_in_store(path.as_ref(), sources, options, &mut report).await?;
    }
    Ok(report)
}

fn needs_store(remedy: &Remedy) -> bool {
    matches!(remedy, Remedy::BuildIndex(..) | Remedy::Count(_))
}

/// Rebuilds indexes and corrects counts in the open store.
async fn repair_in_store(path: &Path, sources: Sources, options: Options, report: &mut CheckReport) -> Result<()> {
    if !report.findings.iter().any(|finding| needs_store(&finding.remedy)) {
        return Ok(());
    }
    let store = EmbeddedStore::open(path, sources, options).await?;
    let remedies: Vec<Remedy> = report.findings.iter().map(|finding| finding.remedy.clone()).collect();
    let mut done = Vec::new();
    for remedy in remedies {
        if done.contains(&remedy) {
            continue;
        }
        match &remedy {
            // It would be lost: its keys are in the documents.
            Remedy::BuildIndex(namespace, name) if report.unreadable.contains(namespace) => {
                report
                    .repaired
                    .push(format!("index {name} of {namespace} is left as it is, as documents cannot be read"));
            }
            Remedy::BuildIndex(namespace, name) => report.repaired.push(rebuild(&store, namespace, name).await),
            Remedy::Count(namespace) => report.repaired.push(recount(&store, namespace).await),
            _ => {}
        }
        done.push(remedy);
    }
    store.close().await.map_err(|error| Error::Engine(error.to_string()))
}

async fn rebuild(store: &EmbeddedStore, namespace: &Namespace, name: &str) -> String {
    let spec = store.context.snapshot().catalog().get(namespace).and_then(|collection| {
        let index = collection.indexes.iter().find(|index| index.spec().name == name)?;
        Some::<IndexSpec>(default_collation::copied_index(index.spec().clone(), collection.options.collation.as_ref()))
    });
    let Some(spec) = spec else {
        return format!("index {name} of {namespace} does not exist any more");
    };
    let selector = IndexSelector::Names(vec![name.to_owned()]);
    let dropped = indexes::drop_indexes(&store.context, DropIndexes { namespace: namespace.clone(), selector }).await;
    let built = match dropped {
        Ok(_) => {
            let request = CreateIndexes { namespace: namespace.clone(), indexes: vec![spec] };
            index_build::create_indexes(&store.context, request).await
        }
        Err(error) => Err(error),
    };
    match built {
        Ok(_) => format!("rebuilt index {name} of {namespace}"),
        Err(error) => format!("index {name} of {namespace} was dropped and cannot be built: {error}"),
    }
}

async fn recount(store: &EmbeddedStore, namespace: &Namespace) -> String {
    match collections::recount(&store.context, namespace).await {
        Ok(counts) => format!("corrected the count of documents in {namespace} to {}", counts.documents),
        Err(error) => format!("the documents of {namespace} could not be counted: {error}"),
    }
}
