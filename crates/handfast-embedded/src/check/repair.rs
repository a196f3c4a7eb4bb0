//! Repairs of indexes and counts, through the store.

use std::path::Path;

use handfast_store::{CreateIndexes, DropIndexes, IndexSelector, IndexSpec, Namespace, Sources};

use super::{CheckReport, Remedy};
use crate::Options;
use crate::error::{Error, Result};
use crate::store::EmbeddedStore;

fn needs_store(remedy: &Remedy) -> bool {
    matches!(remedy, Remedy::BuildIndex(..) | Remedy::Count(_))
}

/// Mends what can be mended in the open store.
pub(super) async fn in_store(path: &Path, sources: Sources, options: Options, report: &mut CheckReport) -> Result<()> {
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
            // It would be gone: its keys are in the documents.
            Remedy::BuildIndex(namespace, name) if report.unreadable.contains(namespace) => {
                report.repaired.push(format!(
                    "index {name} of {namespace} is left as it is: there are documents that cannot be read"
                ));
            }
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
