//! Reads a damaged collection as far as possible.
//!
//! Every other read fails at damage, as an answer without a document that should be in it is wrong. This one returns the
//! documents that can be read, and says which ones are missing.

use bson::{Bson, RawDocumentBuf};
use handfast_store::{BatchLimit, Namespace, blocking};

use crate::committer::Snapshot;
use crate::engine::{Keyspace, Remaining, SalvageItem, SalvageScan, UnreadableKeys, View, prefix_range};
use crate::format::{StoredDocument, Verify, collection_prefix, describe as describe_key};

/// The documents of a collection that can be read, in the order of their `_id`.
pub struct Salvage {
    snapshot: Snapshot,
    remaining: Option<Remaining>,
}

/// A page of a [`Salvage`].
#[derive(Clone, Debug, Default)]
pub struct SalvagedPage {
    /// Documents with a correct checksum.
    pub documents: Vec<RawDocumentBuf>,
    /// The records left out since the previous page, with their places and the reasons, as text for people.
    pub skipped: Vec<String>,
    /// There are no more pages.
    pub exhausted: bool,
}

impl Salvage {
    pub(crate) fn new(snapshot: Snapshot, namespace: &Namespace) -> Self {
        let documents = |id| Remaining::new(Keyspace::Documents, prefix_range(&collection_prefix(id)));
        let remaining = snapshot.catalog().get(namespace).map(|collection| documents(collection.id));
        Salvage { snapshot, remaining }
    }

    /// Returns the next documents. A page has at least one, unless it is the last.
    ///
    /// # Cancellation
    /// The page is lost, and so are all later ones: salvage the collection again.
    ///
    /// # Errors
    /// `SnapshotTooOld` (239) if writers fill so much memory meanwhile that the snapshot is ended.
    pub async fn next_page(&mut self, limit: BatchLimit) -> handfast_store::Result<SalvagedPage> {
        let Some(remaining) = self.remaining.take() else {
            return Ok(SalvagedPage { exhausted: true, ..SalvagedPage::default() });
        };
        let view = self.snapshot.view()?;
        let (page, remaining) = blocking(move || Ok(read(view.as_ref(), remaining, limit))).await?;
        self.remaining = (!page.exhausted).then_some(remaining);
        Ok(page)
    }
}

fn read(view: &dyn View, remaining: Remaining, limit: BatchLimit) -> (SalvagedPage, Remaining) {
    let (mut page, mut bytes) = (SalvagedPage::default(), 0);
    let mut scan = SalvageScan::new(view, remaining);
    while page.documents.len() < limit.documents.max(1) && bytes < limit.bytes.max(1) {
        match scan.next() {
            Some(SalvageItem::Row(key, value)) => match StoredDocument::open(&key, value, Verify::Checksums) {
                Ok(stored) => match stored.document() {
                    Ok(document) => {
                        bytes += document.as_bytes().len();
                        page.documents.push(document.to_owned());
                    }
                    Err(error) => page.skipped.push(error.description()),
                },
                Err(error) => page.skipped.push(error.description()),
            },
            Some(SalvageItem::Unreadable(keys)) => page.skipped.push(describe(view, &keys)),
            None => {
                page.exhausted = true;
                break;
            }
        }
    }
    (page, scan.into_remaining())
}

/// Describes documents that cannot be read, for people.
pub(crate) fn describe(view: &dyn View, unreadable: &UnreadableKeys) -> String {
    let id = |key: &[u8]| id_text(view, key);
    let place = match (unreadable.after.as_deref(), unreadable.before.as_deref()) {
        (Some(after), Some(before)) => format!("documents between _id {} and _id {}", id(after), id(before)),
        (Some(after), None) => format!("documents after _id {}", id(after)),
        (None, Some(before)) => format!("documents before _id {}", id(before)),
        (None, None) => "all documents".to_owned(),
    };
    let recovered = match unreadable.recovered {
        0 => String::new(),
        count => format!("; {count} of them were recovered from another data file or the journal"),
    };
    format!("{place} cannot be read ({}){recovered}", unreadable.causes.join(", "))
}

/// Returns the `_id` of a document as text, or its key if it cannot be read.
fn id_text(view: &dyn View, key: &[u8]) -> String {
    let read = || {
        let value = view.get(Keyspace::Documents, key).ok()??;
        let stored = StoredDocument::open(key, value, Verify::Checksums).ok()?;
        let id = handfast_store::insertion::id(stored.document().ok()?).ok()?;
        Bson::try_from(id).ok().map(|id| id.to_string())
    };
    read().unwrap_or_else(|| describe_key(Keyspace::Documents, key))
}
