//! The documents that a write is about, and the search for them.

use bson::RawDocumentBuf;
use handfast_mql::context::StopOnDrop;
use handfast_mql::{Context, Filter, Sort, Sorter};
use handfast_store::{Find, Hint, Namespace, OperationStatistics, PlanSummary, Result as StoreResult, view};

use crate::catalog::{Catalog, Collection};
use crate::committer::Latest;
use crate::format::{StoredDocument, Verify};
use crate::read::candidates::{Candidates, Source};
use crate::read::plan;
use crate::read::scan::Access;

/// Documents named by `_id` that are read on the committer without a search.
const IDS_MAX: usize = 16;

pub(crate) struct Target {
    pub(crate) namespace: Namespace,
    pub(crate) filter: Filter,
    pub(crate) sort: Sort,
    pub(crate) hint: Option<Hint>,
    pub(crate) context: Context,
}

impl Target {
    /// Interrupts search and evaluation when the request is dropped, also those on the committer.
    pub(crate) fn stop_on_drop(&self) -> StopOnDrop {
        self.context.interrupt.stop_on_drop()
    }

    /// Returns the way to the documents.
    ///
    /// # Errors
    /// `CommandNotSupportedOnView` (166) for a view, and the errors of a hint.
    pub(super) fn access(&self, collection: &Collection) -> StoreResult<Access> {
        view::refuse(&self.namespace, &collection.options)?;
        let mut find = Find::new(self.namespace.clone(), RawDocumentBuf::new());
        find.hint = self.hint.clone();
        // The plan need not give the order: `first` sorts.
        Ok(plan::choose(collection, &self.filter, &self.context, &self.sort, &find)?.access)
    }

    /// Makes chance (`$sampleRate`, `$rand`) the same each time that this write evaluates a document: in the search, and again before the
    /// change.
    pub(super) fn draw_for(&self, id_key: &[u8]) {
        self.context.random.restart(xxhash_rust::xxh3::xxh3_64(id_key));
    }

    pub(super) fn matches(&self, id_key: &[u8], stored: &StoredDocument) -> StoreResult<bool> {
        self.draw_for(id_key);
        Ok(self.filter.matches(stored.document()?, &self.context)?)
    }

    /// Returns the `_id` key of the first document that matches, by the sort.
    pub(super) fn first(&self, source: Source, catalog: &Catalog, verify: Verify) -> StoreResult<Option<Vec<u8>>> {
        let Some(collection) = catalog.get(&self.namespace).cloned() else {
            return Ok(None);
        };
        let access = self.access(&collection)?;
        let candidates = Candidates::new(source, verify, collection, access, None);
        let mut candidates = candidates.stopped_by(self.context.interrupt.clone());
        let mut sorter = Sorter::new(Some(1), &self.context);
        while let Some(found) = candidates.next_document()? {
            if !self.matches(&found.id_key, &found.stored)? {
                continue;
            }
            if self.sort.is_empty() {
                return Ok(Some(found.id_key));
            }
            let bytes = found.id_key.len();
            sorter.push(self.sort.key(found.stored.document()?)?, found.id_key, bytes)?;
        }
        Ok(sorter.into_sorted()?.next().transpose()?)
    }

    /// Returns the `_id` keys that the filter names, if they are few and their order does not matter.
    pub(super) fn few_ids(&self, latest: &Latest) -> StoreResult<Option<Vec<Vec<u8>>>> {
        let Some(collection) = latest.catalog.get(&self.namespace) else {
            return Ok(None);
        };
        Ok(match self.access(collection)? {
            Access::Points(keys) if keys.len() == 1 || (self.sort.is_empty() && keys.len() <= IDS_MAX) => {
                OperationStatistics::add_plan(PlanSummary::IdHack);
                OperationStatistics::add_examined(keys.len() as u64, keys.len() as u64);
                Some(keys)
            }
            _ => None,
        })
    }
}
