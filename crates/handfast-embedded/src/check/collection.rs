//! Checks one collection of an open store.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use handfast_mql::Code;
use handfast_store::index::ID_INDEX_NAME;
use handfast_store::{CollectionCheck, Error as StoreError, IndexCheck, Namespace, Result as StoreResult, blocking};

use super::{CheckReport, Progress, Remedy, records};
use crate::committer::Snapshot;

/// Stops the thread that checks when the request is dropped.
struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Checks every document and every index entry of a collection.
///
/// # Errors
/// `NamespaceNotFound` (26); `CommandNotSupportedOnView` (166); `SnapshotTooOld` (239) if writers fill so much memory meanwhile that the snapshot is ended.
pub(crate) async fn check_collection(snapshot: Snapshot, namespace: &Namespace) -> StoreResult<CollectionCheck> {
    let collection = snapshot.catalog().get(namespace).cloned().ok_or_else(|| {
        StoreError::command(Code::NamespaceNotFound, format!("Collection '{namespace}' does not exist to validate."))
    })?;
    handfast_store::view::refuse(namespace, &collection.options)?;
    let stop = StopOnDrop(Arc::default());
    let stopped = Arc::clone(&stop.0);
    let view = snapshot.view()?;
    blocking(move || {
        let mut report = CheckReport::default();
        let mut on_progress = |_: &Progress| match stopped.load(Ordering::Relaxed) || snapshot.view().is_err() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        };
        let keys = records::check_one(view.as_ref(), snapshot.catalog(), &collection, &mut report, &mut on_progress);
        // If the snapshot was ended, the check is not complete.
        snapshot.view()?;
        let mut check = CollectionCheck { documents: report.documents, ..CollectionCheck::default() };
        check.indexes.push(IndexCheck { name: ID_INDEX_NAME.to_owned(), keys: report.documents, valid: true });
        for (index, keys) in collection.indexes.iter().filter(|index| index.complete).zip(keys) {
            let name = index.spec().name.clone();
            let is_of_index = |remedy: &Remedy| matches!(remedy, Remedy::BuildIndex(_, of) if *of == name);
            let valid = !report.findings.iter().any(|finding| is_of_index(&finding.remedy));
            check.indexes.push(IndexCheck { name, keys, valid });
        }
        let of_documents = |remedy: &Remedy| !matches!(remedy, Remedy::BuildIndex(..));
        check.documents_damaged = report.findings.iter().filter(|finding| of_documents(&finding.remedy)).count() as u64;
        if let Some(first) = check.indexes.first_mut() {
            first.valid = check.documents_damaged == 0;
        }
        check.errors = report.findings.into_iter().map(|finding| finding.text).collect();
        if report.findings_beyond > 0 {
            check.errors.push(format!("and {} more", report.findings_beyond));
        }
        Ok(check)
    })
    .await
}
