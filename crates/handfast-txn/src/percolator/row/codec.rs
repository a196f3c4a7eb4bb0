//! Rows as documents of the store.

use std::time::Duration;

use bson::raw::cstr;
use bson::{RawArray, RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf, rawdoc};
use handfast_mql::Code;
use handfast_store::{Error as StoreError, Namespace, Result as StoreResult, insertion};

use super::{Body, Key, Lock, LockHeading, PrimaryStatus, Revision, Row, Status, Timestamp, Version, due};

/// The hidden field of a document, with its lock and versions.
pub const FIELD: &str = "_hf";

impl Row {
    /// Reads a row from a stored document.
    ///
    /// # Errors
    /// `InternalError` (1) if the field is not what Handfast writes.
    pub fn from_document(document: &RawDocument) -> StoreResult<Row> {
        let id = RawBson::from(insertion::id(document)?);
        let Some(hidden) = document.get(FIELD).map_err(handfast_mql::Error::from)? else {
            return Ok(Row::of(id, Revision::Plain, Body::Document(document.to_owned())));
        };
        let damaged = |why: &dyn std::fmt::Display| damaged(&id, why);
        let RawBsonRef::Document(hidden) = hidden else { return Err(damaged(&"it is no document")) };
        read(&id, document, hidden).map_err(|why| damaged(&why))
    }

    /// Returns the stored document.
    pub fn to_document(&self) -> RawDocumentBuf {
        let mut stored = RawDocumentBuf::new();
        match &self.visible.body {
            Body::Document(document) => {
                for (name, value) in document.iter().flatten() {
                    let is_id = name.as_str() == "_id";
                    stored.append(name, if is_id { self.id.as_raw_bson_ref() } else { value });
                }
            }
            Body::Deleted | Body::Cut => stored.append(cstr!("_id"), self.id.clone()),
        }
        if let Some(hidden) = self.hidden() {
            stored.append(cstr!("_hf"), hidden);
        }
        stored
    }

    /// Returns the value of [`FIELD`]; `None` if no transaction has written the row.
    pub(in crate::percolator) fn hidden(&self) -> Option<RawDocumentBuf> {
        let Revision::At(revision) = self.revision else { return None };
        let mut hidden = rawdoc! { "v": number(revision) };
        append_version(&mut hidden, &self.visible, false);
        if let Some(id) = self.respelled_id() {
            hidden.append(cstr!("id"), id);
        }
        if let Some(lock) = &self.lock {
            hidden.append(cstr!("lock"), lock_document(lock));
        }
        if !self.old.is_empty() {
            let mut old = RawArrayBuf::new();
            for version in &self.old {
                let mut entry = RawDocumentBuf::new();
                append_version(&mut entry, version, true);
                old.push(entry);
            }
            hidden.append(cstr!("old"), old);
        }
        if !self.rolled_back.is_empty() {
            let starts: RawArrayBuf = self.rolled_back.iter().map(|start| RawBson::Int64(number(start.0))).collect();
            hidden.append(cstr!("rb"), starts);
        }
        if let Some(due) = due(self) {
            hidden.append(cstr!("d"), due.stored());
        }
        Some(hidden)
    }

    /// Returns the `_id` of the visible version if it has another spelling than the row's: a store does not change an `_id`.
    fn respelled_id(&self) -> Option<RawBsonRef<'_>> {
        let Body::Document(document) = &self.visible.body else { return None };
        document.get("_id").ok().flatten().filter(|id| !is_spelled_like(*id, self.id.as_raw_bson_ref()))
    }

    /// Checks that the store accepts the row as a replacement, for which MongoDB has stricter rules than for an insert.
    ///
    /// # Errors
    /// `BSONObjectTooLarge` (10334), `Overflow` (15) for too many levels, `DollarPrefixedFieldName` (52).
    pub fn check(&self) -> StoreResult<()> {
        let stored = self.to_document();
        if let Some((name, _)) = stored.iter().flatten().find(|(name, _)| name.as_str().starts_with('$')) {
            let text =
                format!("a field of a document must not begin with '$' over a store of single documents: '{name}'");
            return Err(StoreError::command(Code::DollarPrefixedFieldName, text));
        }
        insertion::check_size(&stored).map_err(|_| too_large(&stored))?;
        insertion::check_structure(&stored)
    }
}

fn too_large(stored: &RawDocument) -> StoreError {
    let text = format!(
        "over a store of single documents a document and its new version have to fit into {} bytes together with what \
         transactions keep there, and these have {}: a document can have about half of that to be changed",
        insertion::DOCUMENT_BYTES_MAX,
        stored.as_bytes().len()
    );
    StoreError::command(Code::BSONObjectTooLarge, text)
}

/// Returns whether two values have the same bytes. -0.0 and 0.0 are equal but differ.
fn is_spelled_like(one: RawBsonRef<'_>, other: RawBsonRef<'_>) -> bool {
    match (one, other) {
        (RawBsonRef::Double(one), RawBsonRef::Double(other)) => one.to_bits() == other.to_bits(),
        _ => one == other,
    }
}

impl LockHeading {
    /// Returns the projection of the fields of a heading.
    pub(in crate::percolator) fn projection() -> RawDocumentBuf {
        rawdoc! { "_hf.lock.s": 1, "_hf.lock.primary": 1, "_hf.lock.op": 1, "_hf.lock.ttl": 1 }
    }

    /// Reads the `_id` of a row and the heading of its lock, if it has one.
    ///
    /// # Errors
    /// `InternalError` (1) if the field is not what Handfast writes.
    pub(in crate::percolator) fn from_document(document: &RawDocument) -> StoreResult<(RawBson, Option<Self>)> {
        let id = RawBson::from(insertion::id(document)?);
        let heading = read_heading(document).map_err(|why| damaged(&id, &why))?;
        Ok((id, heading))
    }
}

impl PrimaryStatus {
    /// Returns the projection of the fields of a status.
    pub(in crate::percolator) fn projection() -> RawDocumentBuf {
        rawdoc! {
            "_hf.c": 1, "_hf.s": 1, "_hf.old.c": 1, "_hf.old.s": 1, "_hf.rb": 1, "_hf.lock.s": 1, "_hf.lock.ttl": 1,
        }
    }

    /// Reads the status of a transaction from a stored row.
    ///
    /// # Errors
    /// `InternalError` (1) if the field is not what Handfast writes.
    pub(in crate::percolator) fn from_document(document: &RawDocument, start: Timestamp) -> StoreResult<Self> {
        let id = RawBson::from(insertion::id(document)?);
        read_status(document, start).map_err(|why| damaged(&id, &why))
    }
}

/// Reads a status as [`status_of`](super::status_of) does: a decision comes before a lock.
fn read_status(document: &RawDocument, start: Timestamp) -> Decoded<PrimaryStatus> {
    let Some(hidden) = document.get(FIELD).map_err(text)? else { return Ok(PrimaryStatus::UNKNOWN) };
    let hidden = hidden.as_document().ok_or("it is no document")?;
    let of_start = |version: &RawDocument| Ok::<_, String>(timestamp(version, "s")? == start);
    let committed = |version: &RawDocument| Ok(PrimaryStatus::decided(Status::Committed(timestamp(version, "c")?)));
    if of_start(hidden)? {
        return committed(hidden);
    }
    for version in array(hidden, "old")?.into_iter().flatten() {
        let version = version.map_err(text)?.as_document().ok_or("an old version is none")?;
        if of_start(version)? {
            return committed(version);
        }
    }
    for record in array(hidden, "rb")?.into_iter().flatten() {
        if record.map_err(text)?.as_i64() == Some(start.stored()) {
            return Ok(PrimaryStatus::decided(Status::RolledBack));
        }
    }
    let lock = hidden.get("lock").map_err(text)?.and_then(RawBsonRef::as_document);
    match lock {
        Some(lock) if of_start(lock)? => Ok(PrimaryStatus { status: Status::Locked, ttl: Some(ttl_of(lock)?) }),
        _ => Ok(PrimaryStatus::UNKNOWN),
    }
}

/// Reads the start of the transaction that has locked a document, also if the rest of the row is damaged.
pub(in crate::percolator) fn lock_start(document: &RawDocument) -> Option<Timestamp> {
    let lock = document.get_document(FIELD).ok()?.get_document("lock").ok()?;
    timestamp(lock, "s").ok()
}

fn read_heading(document: &RawDocument) -> Decoded<Option<LockHeading>> {
    let Some(hidden) = document.get(FIELD).map_err(text)? else { return Ok(None) };
    let hidden = hidden.as_document().ok_or("it is no document")?;
    let lock = hidden.get("lock").map_err(text)?;
    lock.map(|lock| heading(lock.as_document().ok_or("the lock is no document")?)).transpose()
}

fn heading(lock: &RawDocument) -> Decoded<LockHeading> {
    let deletes = match lock.get_str("op").map_err(text)? {
        "put" => false,
        "delete" => true,
        other => return Err(format!("the lock is for '{other}'")),
    };
    let ttl = ttl_of(lock)?;
    let primary = lock.get("primary").map_err(text)?.ok_or("the lock names no primary")?;
    Ok(LockHeading { start: timestamp(lock, "s")?, primary: key(primary)?, deletes, ttl })
}

fn ttl_of(lock: &RawDocument) -> Decoded<Duration> {
    Ok(Duration::from_millis(u64::try_from(lock.get_i64("ttl").map_err(text)?).map_err(text)?))
}

/// Converts a lifetime to BSON's type.
pub(in crate::percolator) fn millis_of(ttl: Duration) -> i64 {
    i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX)
}

fn append_version(into: &mut RawDocumentBuf, version: &Version, is_old: bool) {
    into.append(cstr!("c"), number(version.commit.0));
    into.append(cstr!("s"), number(version.start.0));
    if version.decides {
        into.append(cstr!("p"), true);
    }
    match &version.body {
        Body::Document(document) if is_old => into.append(cstr!("doc"), document.clone()),
        Body::Document(_) => {}
        Body::Deleted => into.append(cstr!("del"), true),
        Body::Cut => into.append(cstr!("cut"), true),
    }
}

fn lock_document(lock: &Lock) -> RawDocumentBuf {
    let mut shown = rawdoc! { "s": number(lock.start.0), "primary": key_document(&lock.primary) };
    if !lock.keys.is_empty() {
        let keys: RawArrayBuf = lock.keys.iter().map(|key| RawBson::Document(key_document(key))).collect();
        shown.append(cstr!("keys"), keys);
    }
    match &lock.body {
        Body::Document(document) => {
            shown.append(cstr!("op"), "put");
            shown.append(cstr!("doc"), document.clone());
        }
        Body::Deleted | Body::Cut => shown.append(cstr!("op"), "delete"),
    }
    shown.append(cstr!("ttl"), millis_of(lock.ttl));
    shown
}

fn key_document(key: &Key) -> RawDocumentBuf {
    rawdoc! { "ns": key.namespace.to_string(), "id": key.id.clone() }
}

fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

type Decoded<T> = Result<T, String>;

fn read(id: &RawBson, document: &RawDocument, hidden: &RawDocument) -> Decoded<Row> {
    let mut visible = RawDocumentBuf::new();
    let respelled = hidden.get("id").map_err(text)?;
    for element in document {
        let (name, value) = element.map_err(text)?;
        match name.as_str() {
            FIELD => {}
            "_id" => visible.append(name, respelled.unwrap_or(value)),
            _ => visible.append(name, value),
        }
    }
    let mut old = Vec::new();
    for entry in array(hidden, "old")?.into_iter().flatten() {
        let RawBsonRef::Document(entry) = entry.map_err(text)? else { return Err("an old version is none".into()) };
        let body = match (entry.get("doc").map_err(text)?, flag(entry, "del")?) {
            (Some(RawBsonRef::Document(document)), false) => Body::Document(document.to_owned()),
            (None, true) => Body::Deleted,
            (None, false) if flag(entry, "cut")? => Body::Cut,
            _ => return Err("an old version has no document and no mark of a tombstone".into()),
        };
        old.push(version(entry, body)?);
    }
    let mut rolled_back = Vec::new();
    for start in array(hidden, "rb")?.into_iter().flatten() {
        let start = start.map_err(text)?.as_i64().ok_or("a rollback record is no timestamp")?;
        rolled_back.push(Timestamp(u64::try_from(start).map_err(text)?));
    }
    let body = if flag(hidden, "del")? { Body::Deleted } else { Body::Document(visible) };
    Ok(Row {
        id: id.clone(),
        revision: Revision::At(timestamp(hidden, "v")?.0),
        visible: version(hidden, body)?,
        lock: hidden.get("lock").map_err(text)?.map(lock).transpose()?,
        old,
        rolled_back,
    })
}

fn version(entry: &RawDocument, body: Body) -> Decoded<Version> {
    let (commit, start) = (timestamp(entry, "c")?, timestamp(entry, "s")?);
    Ok(Version { commit, start, decides: flag(entry, "p")?, body })
}

fn lock(value: RawBsonRef<'_>) -> Decoded<Lock> {
    let RawBsonRef::Document(lock) = value else { return Err("the lock is no document".into()) };
    let mut keys = Vec::new();
    for entry in array(lock, "keys")?.into_iter().flatten() {
        keys.push(key(entry.map_err(text)?)?);
    }
    let LockHeading { start, primary, deletes, ttl } = heading(lock)?;
    let body = match deletes {
        false => Body::Document(lock.get_document("doc").map_err(text)?.to_owned()),
        true => Body::Deleted,
    };
    Ok(Lock { start, primary, keys, body, ttl })
}

fn key(value: RawBsonRef<'_>) -> Decoded<Key> {
    let RawBsonRef::Document(key) = value else { return Err("a key is no document".into()) };
    let namespace = key.get_str("ns").map_err(text)?;
    let (database, collection) = namespace.split_once('.').ok_or("a key has no namespace")?;
    let id = key.get("id").map_err(text)?.ok_or("a key has no id")?;
    Ok(Key { namespace: Namespace::new(database, collection).map_err(text)?, id: id.into() })
}

fn timestamp(document: &RawDocument, name: &str) -> Decoded<Timestamp> {
    let value = document.get_i64(name).map_err(text)?;
    Ok(Timestamp(u64::try_from(value).map_err(text)?))
}

fn flag(document: &RawDocument, name: &str) -> Decoded<bool> {
    Ok(document.get(name).map_err(text)?.and_then(RawBsonRef::as_bool).unwrap_or(false))
}

fn array<'a>(document: &'a RawDocument, name: &str) -> Decoded<Option<&'a RawArray>> {
    match document.get(name).map_err(text)? {
        None => Ok(None),
        Some(RawBsonRef::Array(array)) => Ok(Some(array)),
        Some(_) => Err(format!("'{name}' is no array")),
    }
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn damaged(id: &RawBson, why: &dyn std::fmt::Display) -> StoreError {
    let id = handfast_store::notation::value(id.as_raw_bson_ref());
    let text = format!("the field '{FIELD}' of the document with _id {id} is not what Handfast writes: {why}");
    StoreError::command(Code::InternalError, text)
}
