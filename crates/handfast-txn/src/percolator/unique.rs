//! Unique indexes: each key is a row of its own, written in the transaction of its document.
//!
//! ```text
//! shop.users         {_id: 7, mail: "joe@.."}
//! handfast.keys      {_id: {index: <UUID>, key: <bytes>}, owner: 7}
//! ```
//!
//! Two transactions that write the same key write the same row: one of them conflicts, runs again, and finds the other's document as the
//! owner. A key that moves between documents in one transaction is one write of its row. The bytes are those of
//! [`Index::keys`](handfast_store::index::Index::keys), so sparse, partial and multikey indexes work as in any other store.
//!
//! Invariant of a ready index, in every snapshot: a document has a key if and only if the key's row names it as owner. While the index is
//! being built, a row's owner has the key, and a document that was written since has its rows.
//!
//! Source: spec: transactions, "unique indexes across shards"; Peng and Dabek, section 2.2 (an index as rows).

use std::collections::{BTreeMap, HashMap};

use bson::spec::BinarySubtype;
use bson::{Binary, RawBson, RawBsonRef, RawDocument, RawDocumentBuf, rawdoc};
use handfast_mql::Code;
use handfast_mql::key::encoded;
use handfast_store::{Error as StoreError, Namespace, Result as StoreResult, insertion};

use super::catalog::{Catalog, EngineIndex, IndexId, uuid};
use super::row::{Body, Key};
use super::rows::RowChange;
use super::snapshot::PercolatorSnapshot;

/// The collection of the key rows, in the engine's own database.
pub(super) const COLLECTION: &str = "keys";
/// The most key rows that one transaction may change: the primary's lock names each, with some 150 bytes besides the key.
const CHANGES_MAX: usize = 100_000;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct IndexKey {
    pub(super) index: IndexId,
    pub(super) key: Vec<u8>,
}

/// The change of a key's owner by a transaction.
struct OwnerChange<'a> {
    kept: &'a EngineIndex,
    /// The documents that lose the key, as the keys of their `_id`s.
    former: Vec<Vec<u8>>,
    new: Option<&'a RawDocument>,
}

/// Returns the collection of the key rows.
pub(super) fn namespace() -> StoreResult<Namespace> {
    Namespace::new(super::DATABASE, COLLECTION)
}

pub(super) fn row_of(key: &IndexKey) -> StoreResult<Key> {
    let bytes = Binary { subtype: BinarySubtype::Generic, bytes: key.key.clone() };
    let id = RawBson::Document(rawdoc! { "index": uuid(key.index), "key": bytes });
    Ok(Key { namespace: namespace()?, id })
}

/// Returns the row of a key with a document as its owner.
pub(super) fn row_owned_by(key: &IndexKey, document: &RawDocument) -> StoreResult<RowChange> {
    let (key, owner) = (row_of(key)?, RawBson::from(insertion::id(document)?));
    let row = rawdoc! { "_id": key.id.clone(), "owner": owner };
    Ok(RowChange { key, body: Body::Document(row) })
}

/// Returns the owners of these keys in a snapshot, as `_id`s.
pub(super) async fn owners(
    snapshot: &PercolatorSnapshot,
    keys: impl IntoIterator<Item = &IndexKey>,
) -> StoreResult<HashMap<IndexKey, RawBson>> {
    let ids = keys.into_iter().map(|key| row_of(key).map(|key| key.id)).collect::<StoreResult<Vec<_>>>()?;
    let mut owners = HashMap::new();
    if ids.is_empty() {
        return Ok(owners);
    }
    for row in snapshot.by_ids(&namespace()?, ids).await? {
        let (key, owner) = read(&row).map_err(|why| damaged(&row, &why))?;
        owners.insert(key, owner);
    }
    Ok(owners)
}

/// Returns the index of a key row.
pub(super) fn index_of(id: RawBsonRef<'_>) -> Option<IndexId> {
    let RawBsonRef::Document(id) = id else { return None };
    IndexId::try_from(id.get_binary("index").ok()?.bytes).ok()
}

fn read(row: &RawDocument) -> Result<(IndexKey, RawBson), String> {
    let id = row.get_document("_id").map_err(|error| error.to_string())?;
    let index = index_of(RawBsonRef::Document(id)).ok_or("it is of no index")?;
    let key = id.get_binary("key").map_err(|error| error.to_string())?.bytes;
    let owner = row.get("owner").map_err(|error| error.to_string())?.ok_or("it has no owner")?;
    Ok((IndexKey { index, key: key.to_vec() }, owner.into()))
}

/// Returns the changes of key rows for a transaction's changes, by the unique indexes of a version of the catalog.
///
/// # Errors
/// `DuplicateKey` (11000) for a key that another document has in the snapshot; `CannotIndexParallelArrays` (171);
/// `TransactionTooLarge` (257).
pub(super) async fn key_row_changes(
    snapshot: &PercolatorSnapshot,
    catalog: &Catalog,
    version: u64,
    changes: &[RowChange],
) -> StoreResult<Vec<RowChange>> {
    let mut of_namespace: BTreeMap<&Namespace, Vec<&RowChange>> = BTreeMap::new();
    for change in changes {
        of_namespace.entry(&change.key.namespace).or_default().push(change);
    }
    let mut changed = BTreeMap::new();
    for (namespace, changes) in of_namespace {
        let indexes: Vec<_> = catalog.unique(namespace, version).collect();
        if !indexes.is_empty() {
            let before = before(snapshot, namespace, &changes).await?;
            for change in changes {
                let before = before.get(&encoded(change.key.id.as_raw_bson_ref()));
                indexes.iter().try_for_each(|kept| note(&mut changed, catalog, kept, before, change))?;
            }
        }
    }
    if changed.len() > CHANGES_MAX {
        let text = format!("the transaction changes more than {CHANGES_MAX} keys of unique indexes: write less in one");
        return Err(StoreError::command(Code::TransactionTooLarge, text));
    }
    let owners = owners(snapshot, changed.keys()).await?;
    let mut rows = Vec::with_capacity(changed.len());
    for (key, change) in changed {
        let owner = owners.get(&key).map(|id| encoded(id.as_raw_bson_ref()));
        rows.extend(row_after(catalog, key, &change, owner.as_deref())?);
    }
    Ok(rows)
}

/// Reads the changed documents in the snapshot, by the keys of their `_id`s.
async fn before(
    snapshot: &PercolatorSnapshot,
    namespace: &Namespace,
    changes: &[&RowChange],
) -> StoreResult<HashMap<Vec<u8>, RawDocumentBuf>> {
    let ids = changes.iter().map(|change| change.key.id.clone()).collect();
    let mut before = HashMap::new();
    for document in snapshot.by_ids(namespace, ids).await? {
        before.insert(encoded(insertion::id(&document)?), document);
    }
    Ok(before)
}

/// Notes the keys of an index that a change of a document adds and removes.
fn note<'a>(
    changed: &mut BTreeMap<IndexKey, OwnerChange<'a>>,
    catalog: &Catalog,
    kept: &'a EngineIndex,
    before: Option<&RawDocumentBuf>,
    change: &'a RowChange,
) -> StoreResult<()> {
    // A document that an index under construction cannot hold has no keys in it.
    let old = before.and_then(|before| kept.index.keys(before).ok()).unwrap_or_default().keys;
    let after = match &change.body {
        Body::Document(document) => Some(&**document),
        Body::Deleted | Body::Cut => None,
    };
    let new = after.map(|after| kept.index.keys(after)).transpose()?.unwrap_or_default().keys;
    let empty = || OwnerChange { kept, former: Vec::new(), new: None };
    for lost in old.difference(&new) {
        let owner = changed.entry(IndexKey { index: kept.id, key: lost.clone() }).or_insert_with(empty);
        owner.former.push(encoded(change.key.id.as_raw_bson_ref()));
    }
    for gained in new.difference(&old) {
        let owner = changed.entry(IndexKey { index: kept.id, key: gained.clone() }).or_insert_with(empty);
        if let (Some(_), Some(after)) = (owner.new, after) {
            return Err(catalog.duplicate(kept, after, gained));
        }
        owner.new = after;
    }
    Ok(())
}

/// Returns the change of a key's row with this present owner; `None` if it stays.
fn row_after(
    catalog: &Catalog,
    key: IndexKey,
    change: &OwnerChange<'_>,
    owner: Option<&[u8]>,
) -> StoreResult<Option<RowChange>> {
    let has_lost_it = |owner: &[u8]| change.former.iter().any(|former| former == owner);
    match (change.new, owner) {
        (Some(document), Some(owner)) if !has_lost_it(owner) && owner != encoded(insertion::id(document)?) => {
            Err(catalog.duplicate(change.kept, document, &key.key))
        }
        (Some(document), _) => row_owned_by(&key, document).map(Some),
        // While the index is being built, two documents may have had the key: the owner of its row keeps it.
        (None, Some(owner)) if !has_lost_it(owner) => Ok(None),
        // Also for a row that does not exist yet: the builder of the index may be about to write it.
        (None, _) => Ok(Some(RowChange { key: row_of(&key)?, body: Body::Deleted })),
    }
}

fn damaged(row: &RawDocument, why: &str) -> StoreError {
    let row = handfast_store::notation::document(row);
    StoreError::command(
        Code::InternalError,
        format!("the row {row} of {} is not what Handfast writes: {why}", COLLECTION),
    )
}
