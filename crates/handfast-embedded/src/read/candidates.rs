//! The candidates of a query as an iterator: a few documents at a time, so that nothing of the engine is held between.

use std::collections::VecDeque;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bson::rawdoc;
use handfast_mql::context::Interrupt;
use handfast_store::selection::Candidate;
use handfast_store::{Find, Result as StoreResult};

use super::plan::Plan;
use super::scan::{Access, Found, Progress, Reader, Scan};
use crate::catalog::{Collection, CollectionIndex};
use crate::committer::{Shared, Snapshot};
use crate::engine::View;
use crate::format::{StoredDocument, Verify};

/// The first helping is small (many queries want one document), the next is twice as large, up to this.
const HELPING_DOCUMENTS_MAX: usize = 128;
/// Bytes of documents of a helping.
const HELPING_BYTES_MAX: usize = 1024 * 1024;

/// Where documents are read from.
#[derive(Clone)]
pub(crate) enum Source {
    /// A snapshot that readers may see; it may be ended.
    Snapshot(Snapshot),
    /// A state as of one moment, for a search in the committer's turn.
    Latest(Arc<dyn View>),
    /// At each helping the state that is the newest then, for a search on behalf of a write that may take long. Fit for
    /// scans whose keys do not move.
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

/// What a scan has looked at so far, for whoever wants to know while it goes on.
#[derive(Debug, Default)]
pub(crate) struct Looked {
    pub(crate) keys: AtomicU64,
    pub(crate) documents: AtomicU64,
}

/// A document that was found, with its `_id` key.
pub(crate) type Record = (Vec<u8>, StoredDocument, Option<Vec<u8>>);

/// Candidates, one after the other.
pub(crate) struct Candidates {
    source: Source,
    verify: Verify,
    scan: Scan,
    helping: VecDeque<Record>,
    helping_documents: usize,
    done: bool,
    looked: Arc<Looked>,
    /// Turned when nobody wants the answer any more.
    interrupt: Interrupt,
    shown: Shown,
}

/// What a find wants beside documents.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shown {
    /// The keys of this index (`Some(None)`: of `_id`).
    pub(crate) key: Option<Option<Arc<CollectionIndex>>>,
    pub(crate) record: bool,
}

impl Shown {
    /// What a find asks for, with the index that its plan uses. Documents lie in the order of `_id`: reading them counts as
    /// using the index on it if it is read between bounds, or for the sake of the order.
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
        Shown { key: key.filter(|_| request.return_key), record: request.show_record_id }
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
        Candidates {
            source,
            verify,
            scan: Scan::new(collection, access, expected),
            helping: VecDeque::new(),
            helping_documents: 4,
            done: false,
            looked: Arc::default(),
            interrupt: Interrupt::default(),
            shown: Shown::default(),
        }
    }

    #[must_use]
    pub(crate) fn showing(mut self, shown: Shown) -> Self {
        self.shown = shown;
        self
    }

    #[must_use]
    pub(crate) fn counting(mut self, looked: Arc<Looked>) -> Self {
        self.looked = looked;
        self
    }

    #[must_use]
    pub(crate) fn stopped_by(mut self, interrupt: Interrupt) -> Self {
        self.interrupt = interrupt;
        self
    }

    /// The next document.
    pub(crate) fn next_record(&mut self) -> StoreResult<Option<Record>> {
        while self.helping.is_empty() && !self.done {
            self.interrupt.check().inspect_err(|_| self.done = true)?;
            self.help().inspect_err(|_| self.done = true)?;
        }
        Ok(self.helping.pop_front())
    }

    fn help(&mut self) -> StoreResult<()> {
        let reader = Reader { view: self.source.view()?, verify: self.verify };
        let (helping, count) = (&mut self.helping, self.helping_documents);
        let mut bytes = 0;
        let progress = self.scan.run(&reader, &mut |found: Found<'_>, stored| {
            bytes += stored.bytes().len();
            helping.push_back((found.id_key.to_vec(), stored, found.entry.map(<[u8]>::to_vec)));
            let full = helping.len() >= count || bytes >= HELPING_BYTES_MAX;
            Ok(if full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        });
        self.looked.keys.store(self.scan.examined.keys, Ordering::Relaxed);
        self.looked.documents.store(self.scan.examined.documents, Ordering::Relaxed);
        self.done = progress? == Progress::Done;
        self.helping_documents = (self.helping_documents * 2).min(HELPING_DOCUMENTS_MAX);
        Ok(())
    }

    fn show(&self, (id_key, stored, entry): Record) -> StoreResult<Candidate> {
        let document = stored.document()?.to_owned();
        let key = match (&self.shown.key, &entry) {
            (Some(Some(index)), Some(entry)) => index.index.shown(&document, entry)?,
            (Some(None), _) => Some(rawdoc! { "_id": handfast_store::insertion::id(&document)? }),
            _ => None,
        };
        // Records have no numbers here; this one is the same for the same `_id`, and as good as unique.
        let record = self.shown.record.then(|| (xxhash_rust::xxh3::xxh3_64(&id_key) >> 1).cast_signed());
        Ok(Candidate { document, key, record })
    }
}

impl Iterator for Candidates {
    type Item = StoreResult<Candidate>;

    fn next(&mut self) -> Option<Self::Item> {
        let record = self.next_record().transpose()?;
        Some(record.and_then(|record| self.show(record)))
    }
}
