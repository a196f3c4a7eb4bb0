//! The catalog: the mapping of names ([`super::mapping`]), and the indexes that the engine keeps because the store cannot: unique ones, and
//! those whose documents expire.
//!
//! One document contains all of it; each index has the versions of the catalog from which on and up to which it is in force:
//!
//! ```text
//! handfast.catalog   { _id: "catalog", v: 7, indexes: [
//!                        { id: <UUID>, ns: "shop.users", spec: {..}, state: "ready",    from: 3, alive: <timestamp> },
//!                        { id: <UUID>, ns: "shop.users", spec: {..}, state: "building", from: 6, alive: <timestamp> },
//!                        { id: <UUID>, ns: "shop.items", spec: {..}, state: "ready",    from: 2, until: 7, .. } ],
//!                      names: [ .. ], retired: [ .. ], marks: [ .. ] }
//! handfast.oracle    { _id: "oracle", ts: .., catalog: 6 }
//! ```
//!
//! Version 7 is written and not announced: no process uses its changes yet. The indexes in force are a
//! function of the version alone, and each timestamp comes with the version that was in force when it was fetched. A
//! transaction works with one version and checks, when it fetches its commit timestamp, whether the indexes of its
//! collections are still the same ([`Catalog::in_force`]); if not, it is run again. So *every transaction whose commit
//! timestamp is above an announcement knows the announced version*: there is no moment at which some writers maintain
//! an index and others, which commit after them, do not.
//!
//! The catalog names the collections of the store: a rename leaves the names as they are, and an index is removed with its
//! collection.
//!
//! The version is stored apart from the document for this reason: the document may be large, and is read when the version has changed;
//! the version is small and comes with every timestamp, so that a store without such indexes has no cost.
//!
//! Source: Rae et al., Online, Asynchronous Schema Change in F1 (the states); spec: transactions, unique indexes.

use std::sync::Arc;

use bson::raw::cstr;
use bson::spec::BinarySubtype;
use bson::{Binary, RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf, rawdoc};
use handfast_mql::Code;
use handfast_store::index::Index;
use handfast_store::{Error as StoreError, IndexSpec, Namespace, Result as StoreResult};

use super::mapping::Mapping;
use super::row::Timestamp;
use super::versioned_document::{VersionedDocument, number, signed};

/// A unique id of an index, also among indexes of the same name.
pub(super) type IndexId = [u8; 16];

/// The state of an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Writers keep it; older documents are being indexed.
    Building,
    /// It holds all documents.
    Ready,
    /// It is being dropped: still in force, no longer listed.
    Leaving,
}

/// An index that the engine keeps.
#[derive(Clone, Debug)]
pub(super) struct EngineIndex {
    pub(super) id: IndexId,
    /// Its collection of the store.
    pub(super) namespace: Namespace,
    pub(super) index: Arc<Index>,
    pub(super) state: State,
    /// The first version in which it is in force.
    from: u64,
    /// The first version in which it is no longer in force.
    until: Option<u64>,
    /// The last heartbeat of the process that builds it.
    pub(super) alive: Timestamp,
}

/// A version of the catalog.
#[derive(Clone, Debug, Default)]
pub(super) struct Catalog {
    pub(super) version: u64,
    indexes: Vec<EngineIndex>,
    pub(super) mapping: Mapping,
}

/// Returns whether the engine keeps an index, and not the store.
pub(super) fn is_kept_by_engine(spec: &IndexSpec) -> bool {
    !spec.is_id() && (spec.unique || spec.expire_after_seconds.is_some())
}

impl EngineIndex {
    pub(super) fn spec(&self) -> &IndexSpec {
        self.index.spec()
    }

    fn is_in_force(&self, version: u64) -> bool {
        self.from <= version && self.until.is_none_or(|until| version < until)
    }

    /// Returns whether it was dropped in some version.
    pub(super) fn is_dropped(&self) -> bool {
        self.until.is_some()
    }
}

impl Catalog {
    /// Returns the indexes of a collection that are in force in a version, which is not newer than this one.
    pub(super) fn in_force(&self, namespace: &Namespace, version: u64) -> impl Iterator<Item = &EngineIndex> {
        self.of(move |kept| kept.namespace == *namespace && kept.is_in_force(version))
    }

    /// Returns the unique indexes of a collection that are in force in a version.
    pub(super) fn unique(&self, namespace: &Namespace, version: u64) -> impl Iterator<Item = &EngineIndex> {
        self.in_force(namespace, version).filter(|kept| kept.spec().unique)
    }

    /// Returns the indexes that are not dropped, of the collections that a function picks.
    pub(super) fn staying(&self, pick: impl Fn(&Namespace) -> bool) -> impl Iterator<Item = &EngineIndex> {
        self.of(move |kept| pick(&kept.namespace) && !kept.is_dropped())
    }

    /// Returns the dropped indexes, of which rows may be left.
    pub(super) fn dropped(&self) -> impl Iterator<Item = &EngineIndex> {
        self.of(EngineIndex::is_dropped)
    }

    fn of(&self, pick: impl Fn(&EngineIndex) -> bool) -> impl Iterator<Item = &EngineIndex> {
        self.indexes.iter().filter(move |kept| pick(kept))
    }

    /// Returns the error for a second document with a key of an index.
    pub(super) fn duplicate(&self, kept: &EngineIndex, document: &RawDocument, key: &[u8]) -> StoreError {
        kept.index.duplicate(self.mapping.name_of(&kept.namespace), document, key)
    }

    /// Returns the index of this id, unless it was dropped.
    pub(super) fn get(&self, id: IndexId) -> Option<&EngineIndex> {
        self.of(move |kept| kept.id == id && !kept.is_dropped()).next()
    }

    /// Returns whether there is an index of this id, dropped or not.
    pub(super) fn knows(&self, id: IndexId) -> bool {
        self.of(|kept| kept.id == id).next().is_some()
    }

    /// Adds an index, in force from this version on.
    pub(super) fn add(&mut self, id: IndexId, namespace: Namespace, index: Arc<Index>, state: State, now: Timestamp) {
        self.indexes.push(EngineIndex { id, namespace, index, state, from: self.version, until: None, alive: now });
    }

    /// Changes the index of this id. Returns `false` if it was dropped.
    pub(super) fn change(&mut self, id: IndexId, change: impl FnOnce(&mut EngineIndex)) -> bool {
        let found = self.indexes.iter_mut().find(|kept| kept.id == id && !kept.is_dropped());
        found.map(change).is_some()
    }

    /// Drops indexes from this version on.
    pub(super) fn drop(&mut self, pick: impl Fn(&EngineIndex) -> bool) {
        let version = self.version;
        for kept in self.indexes.iter_mut().filter(|kept| !kept.is_dropped() && pick(kept)) {
            kept.until = Some(version);
        }
    }

    /// Forgets dropped indexes without rows.
    pub(super) fn forget(&mut self, pick: impl Fn(&EngineIndex) -> bool) {
        self.indexes.retain(|kept| !(kept.is_dropped() && pick(kept)));
    }
}

impl VersionedDocument for Catalog {
    const NAME: &'static str = "catalog";

    fn version(&self) -> u64 {
        self.version
    }

    fn next(&self) -> Self {
        Catalog { version: self.version + 1, ..self.clone() }
    }

    fn is_same(&self, other: &Self) -> bool {
        let entries = |catalog: &Catalog| catalog.indexes.iter().map(entry).collect::<Vec<_>>();
        entries(self) == entries(other) && self.mapping == other.mapping
    }

    fn from_document(document: &RawDocument) -> StoreResult<Self> {
        let version = number(document, "v").map_err(damaged)?;
        let mut indexes = Vec::new();
        for entry in document.get_array("indexes").map_err(damaged)? {
            let RawBsonRef::Document(entry) = entry.map_err(damaged)? else { return Err(damaged("an index is none")) };
            indexes.push(kept(entry)?);
        }
        Ok(Catalog { version, indexes, mapping: Mapping::from_document(document)? })
    }

    fn to_document(&self) -> RawDocumentBuf {
        let indexes: RawArrayBuf = self.indexes.iter().map(|kept| bson::RawBson::Document(entry(kept))).collect();
        let mut document = rawdoc! { "_id": Catalog::NAME, "v": signed(self.version), "indexes": indexes };
        self.mapping.append_to(&mut document);
        document
    }
}

fn entry(kept: &EngineIndex) -> RawDocumentBuf {
    let mut entry = rawdoc! {
        "id": uuid(kept.id),
        "ns": kept.namespace.to_string(),
        "spec": kept.spec().to_document(),
        "state": match kept.state {
            State::Building => "building",
            State::Ready => "ready",
            State::Leaving => "leaving",
        },
        "from": signed(kept.from),
        "alive": kept.alive.stored(),
    };
    if let Some(until) = kept.until {
        entry.append(cstr!("until"), signed(until));
    }
    entry
}

fn kept(entry: &RawDocument) -> StoreResult<EngineIndex> {
    let id = match entry.get("id").map_err(damaged)? {
        Some(RawBsonRef::Binary(binary)) => IndexId::try_from(binary.bytes).map_err(damaged)?,
        _ => return Err(damaged("an index has no id")),
    };
    let namespace = entry.get_str("ns").map_err(damaged)?;
    let (database, collection) = namespace.split_once('.').ok_or_else(|| damaged("an index is of no collection"))?;
    let spec = IndexSpec::from_document(entry.get_document("spec").map_err(damaged)?)?;
    let state = match entry.get_str("state").map_err(damaged)? {
        "building" => State::Building,
        "ready" => State::Ready,
        "leaving" => State::Leaving,
        other => return Err(damaged(format_args!("an index is in the state '{other}'"))),
    };
    let until = match entry.get("until").map_err(damaged)? {
        Some(_) => Some(number(entry, "until").map_err(damaged)?),
        None => None,
    };
    Ok(EngineIndex {
        id,
        namespace: Namespace::new(database, collection)?,
        index: Arc::new(Index::compile(spec)?),
        state,
        from: number(entry, "from").map_err(damaged)?,
        until,
        alive: Timestamp(number(entry, "alive").map_err(damaged)?),
    })
}

/// Converts the id of an index to BSON's type.
pub(super) fn uuid(id: IndexId) -> Binary {
    Binary { subtype: BinarySubtype::Uuid, bytes: id.to_vec() }
}

fn damaged(why: impl std::fmt::Display) -> StoreError {
    StoreError::command(Code::InternalError, format!("the catalog of indexes is not what Handfast writes: {why}"))
}
