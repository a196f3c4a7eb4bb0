//! The candidates of a query as an iterator, which reads them in batches and holds nothing of the engine in between.

use std::collections::VecDeque;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bson::rawdoc;
use handfast_mql::context::Interrupt;
use handfast_store::selection::Candidate;
use handfast_store::{Find, OperationStatistics, Result as StoreResult};

use super::plan::Plan;
use super::scan::{Access, Examined, Found, Progress, Reader, Scan};
use crate::catalog::{Collection, CollectionIndex};
use crate::committer::{Shared, Snapshot};
use crate::engine::View;
use crate::format::{StoredDocument, Verify};

/// The first batch is small (many queries want one document), each next one twice as large, up to this.
const BATCH_DOCUMENTS_MAX: usize = 128;
const BATCH_BYTES_MAX: usize = 1024 * 1024;

/// The state that documents are read from.
#[derive(Clone)]
pub(crate) enum Source {
    /// A snapshot, which may be ended.
    Snapshot(Snapshot),
    /// A view, for a search on the committer.
    Latest(Arc<dyn View>),
    /// The newest state at each batch, for the search of a write that may take long. Only for scans by `_id`, which never changes.
    Newest(Arc<Shared>),
}

impl Source {
    fn view(&self) -> StoreResult<Arc<dyn View>> {
        match self {
            Source::Snapshot(snapshot) => snapshot.view(),
            Source::Latest(view) => Ok(view.clone()),
            Source::Newest(shared) => Ok(shared.latest().view),
        }
    }
}

/// The keys and documents that a scan has examined so far, readable while it runs.
#[derive(Debug, Default)]
pub(crate) struct ExaminedCounts {
    pub(crate) keys: AtomicU64,
    pub(crate) documents: AtomicU64,
}

/// A document that a scan found.
pub(crate) struct FoundDocument {
    pub(crate) id_key: Vec<u8>,
    pub(crate) stored: StoredDocument,
    /// The key of the index by which it was found.
    entry: Option<Vec<u8>>,
}

pub(crate) struct Candidates {
    source: Source,
    verify: Verify,
    scan: Scan,
    batch: VecDeque<FoundDocument>,
    batch_documents: usize,
    done: bool,
    examined: Arc<ExaminedCounts>,
    interrupt: Interrupt,
    metadata: RequestedMetadata,
}

/// The metadata of documents that a find asks for (`returnKey`, `showRecordId`).
#[derive(Clone, Debug, Default)]
pub(crate) struct RequestedMetadata {
    /// The keys of this index (`Some(None)`: of `_id`).
    pub(crate) key: Option<Option<Arc<CollectionIndex>>>,
    pub(crate) record: bool,
}

impl RequestedMetadata {
    /// Returns the metadata that a find asks for, by the index that its plan uses. A scan of documents counts as using the index
    /// on `_id` if it has bounds, or gives the order.
    pub(crate) fn of(plan: &Plan, request: &Find) -> Self {
        let everything = (Bound::Unbounded, Bound::Unbounded);
        let key = match &plan.access {
            Access::Index { index, .. } => Some(Some(index.clone())),
            Access::Points(_) => Some(None),
            Access::Documents { range, .. } => {
                let for_order = plan.sorted && !request.sort.is_empty();
                (for_order || *range != everything).then_some(None)
            }
            Access::Nothing => None,
        };
        RequestedMetadata { key: key.filter(|_| request.return_key), record: request.show_record_id }
    }
}

impl Candidates {
    pub(crate) fn new(
        source: Source,
        verify: Verify,
        collection: Arc<Collection>,
        access: Access,
        expected: Option<u64>,
    ) -> Self {
        OperationStatistics::add_plan(access.summary());
        Candidates {
            source,
            verify,
            scan: Scan::new(collection, access, expected),
            batch: VecDeque::new(),
            batch_documents: 4,
            done: false,
            examined: Arc::default(),
            interrupt: Interrupt::default(),
            metadata: RequestedMetadata::default(),
        }
    }

    #[must_use]
    pub(crate) fn with_metadata(mut self, metadata: RequestedMetadata) -> Self {
        self.metadata = metadata;
        self
    }

    #[must_use]
    pub(crate) fn counting(mut self, examined: Arc<ExaminedCounts>) -> Self {
        self.examined = examined;
        self
    }

    #[must_use]
    pub(crate) fn stopped_by(mut self, interrupt: Interrupt) -> Self {
        self.interrupt = interrupt;
        self
    }

    pub(crate) fn next_document(&mut self) -> StoreResult<Option<FoundDocument>> {
        while self.batch.is_empty() && !self.done {
            self.interrupt.check().inspect_err(|_| self.done = true)?;
            self.read_batch().inspect_err(|_| self.done = true)?;
        }
        Ok(self.batch.pop_front())
    }

    fn read_batch(&mut self) -> StoreResult<()> {
        let reader = Reader { view: self.source.view()?, verify: self.verify };
        let (batch, count) = (&mut self.batch, self.batch_documents);
        let mut bytes = 0;
        let progress = self.scan.run(&reader, &mut |found: Found<'_>, stored| {
            bytes += stored.bytes().len();
            let (id_key, entry) = (found.id_key.to_vec(), found.entry.map(<[u8]>::to_vec));
            batch.push_back(FoundDocument { id_key, stored, entry });
            let full = batch.len() >= count || bytes >= BATCH_BYTES_MAX;
            Ok(if full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        });
        let Examined { keys, documents } = self.scan.examined;
        let keys_before = self.examined.keys.swap(keys, Ordering::Relaxed);
        let documents_before = self.examined.documents.swap(documents, Ordering::Relaxed);
        OperationStatistics::add_examined(keys - keys_before, documents - documents_before);
        self.done = progress? == Progress::Done;
        self.batch_documents = (self.batch_documents * 2).min(BATCH_DOCUMENTS_MAX);
        Ok(())
    }

    fn candidate(&self, FoundDocument { id_key, stored, entry }: FoundDocument) -> StoreResult<Candidate> {
        let document = stored.document()?.to_owned();
        let key = match (&self.metadata.key, &entry) {
            (Some(Some(index)), Some(entry)) => index.index.shown(&document, entry)?,
            (Some(None), _) => Some(rawdoc! { "_id": handfast_store::insertion::id(&document)? }),
            _ => None,
        };
        // Documents have no record ids here; this hash is the same for the same `_id`, and almost always unique.
        let record = self.metadata.record.then(|| (xxhash_rust::xxh3::xxh3_64(&id_key) >> 1).cast_signed());
        Ok(Candidate { document, key, record })
    }
}

impl Iterator for Candidates {
    type Item = StoreResult<Candidate>;

    fn next(&mut self) -> Option<Self::Item> {
        let found = self.next_document().transpose()?;
        Some(found.and_then(|found| self.candidate(found)))
    }
}
