//! Reading a collection of which some documents cannot be read.
//!
//! Every other read fails when it meets damage: an answer without a document that should be in it is wrong. This one is for
//! who wants the rest, and is told what is missing.

use bson::{Bson, RawDocumentBuf};
use handfast_store::{BatchLimit, Namespace, blocking};

use crate::committer::Snapshot;
use crate::engine::{Keyspace, Met, Rest, Unreadable, View, Walk, prefix_range};
use crate::format::{StoredDocument, Verify, collection_prefix, describe as describe_key};
use crate::store::EmbeddedStore;

/// The documents of a collection that can be read, in the order of their `_id`.
pub struct Salvage {
    snapshot: Snapshot,
    rest: Option<Rest>,
}

/// Some of them.
#[derive(Clone, Debug, Default)]
pub struct SalvagedPage {
    /// Documents whose checksum is right.
    pub documents: Vec<RawDocumentBuf>,
    /// What is left out since the page before: where it is, and why, for people.
    pub skipped: Vec<String>,
    /// There are no more pages.
    pub exhausted: bool,
}

impl EmbeddedStore {
    /// Reads a collection as it is now, around what is damaged; nothing if there is no such collection.
    pub fn salvage(&self, namespace: &Namespace) -> Salvage {
        let snapshot = self.snapshot_now();
        let collection = self.collection(&snapshot, namespace);
        let documents = |id| Rest::new(Keyspace::Documents, prefix_range(&collection_prefix(id)));
        let rest = collection.map(|collection| documents(collection.id));
        Salvage { snapshot, rest }
    }
}

impl Salvage {
    /// The next documents. A page has at least one, unless it is the last.
    ///
    /// Cancellation: the page is lost, and what would come after it; begin anew.
    ///
    /// # Errors
    /// `SnapshotTooOld` (239) if writers fill so much memory meanwhile that the snapshot is ended.
    pub async fn next_page(&mut self, limit: BatchLimit) -> handfast_store::Result<SalvagedPage> {
        let Some(rest) = self.rest.take() else {
            return Ok(SalvagedPage { exhausted: true, ..SalvagedPage::default() });
        };
        let view = self.snapshot.view()?;
        let (page, rest) = blocking(move || Ok(read(view.as_ref(), rest, limit))).await?;
        self.rest = (!page.exhausted).then_some(rest);
        Ok(page)
    }
}

fn read(view: &dyn View, rest: Rest, limit: BatchLimit) -> (SalvagedPage, Rest) {
    let (mut page, mut bytes) = (SalvagedPage::default(), 0);
    let mut walk = Walk::new(view, rest);
    while page.documents.len() < limit.documents.max(1) && bytes < limit.bytes.max(1) {
        match walk.next() {
            Some(Met::Row(key, value)) => match StoredDocument::open(&key, value, Verify::Checksums) {
                Ok(stored) => match stored.document() {
                    Ok(document) => {
                        bytes += document.as_bytes().len();
                        page.documents.push(document.to_owned());
                    }
                    Err(error) => page.skipped.push(error.words()),
                },
                Err(error) => page.skipped.push(error.words()),
            },
            Some(Met::Hole(hole)) => page.skipped.push(describe(view, &hole)),
            None => {
                page.exhausted = true;
                break;
            }
        }
    }
    (page, walk.into_rest())
}

/// Documents that cannot be read, for people.
pub(crate) fn describe(view: &dyn View, hole: &Unreadable) -> String {
    let id = |key: &[u8]| id_text(view, key);
    let place = match (hole.after.as_deref(), hole.before.as_deref()) {
        (Some(after), Some(before)) => format!("documents between _id {} and _id {}", id(after), id(before)),
        (Some(after), None) => format!("documents behind _id {}", id(after)),
        (None, Some(before)) => format!("documents before _id {}", id(before)),
        (None, None) => "all documents".to_owned(),
    };
    let elsewhere = match hole.elsewhere {
        0 => String::new(),
        count => format!("; {count} of them another data file or the journal has, too"),
    };
    format!("{place} cannot be read ({}){elsewhere}", hole.causes.join(", "))
}

/// The `_id` of a document that could be read, or else its key.
fn id_text(view: &dyn View, key: &[u8]) -> String {
    let read = || {
        let value = view.get(Keyspace::Documents, key).ok()??;
        let stored = StoredDocument::open(key, value, Verify::Checksums).ok()?;
        let id = handfast_store::insertion::id(stored.document().ok()?).ok()?;
        Bson::try_from(id).ok().map(|id| id.to_string())
    };
    read().unwrap_or_else(|| describe_key(Keyspace::Documents, key))
}
