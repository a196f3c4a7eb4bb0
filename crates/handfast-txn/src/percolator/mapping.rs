//! Maps each name to a collection of the store, in every version of the catalog.
//!
//! ```text
//! name           version 3     4 created    5 dropped    6 created      7 renamed to attic
//! shop.items     (not listed)  shop.items   -            shop.items~hf6 -
//! shop.attic     (not listed)                                           shop.items~hf6
//! retired                                   shop.items
//!
//! handfast.catalog   { .., names: [ { ns: "shop.items", of: [ {from: 4, at: "shop.items"}, {from: 5}, .. ] } ],
//!                      retired: [ { at: "shop.items", until: 5 } ], marks: [ {v: 7, ts: <timestamp>} ] }
//! ```
//!
//! A name that is not listed stands for the collection of the store that has this name, if there is one. A write to a
//! missing collection adds it to the list first. So creating, dropping and renaming a collection are one change of the catalog each,
//! with one position in the order of all timestamps ([`super::catalog`]); documents are not touched:
//!
//! - A snapshot reads the collection that its version of the catalog names, also when the name has been dropped since.
//! - A commit requires that the names it has used stand for the same collections in the version that comes with its
//!   commit timestamp. No transaction waits for another one.
//! - A collection of the store is never used for the documents of another name: a name that is dropped and created again stands
//!   for a new collection ([`Namespace::of_generation`]). A request that arrives late changes a collection that is no longer read.
//!
//! A collection that was dropped is *retired*: it stays in the store until every snapshot that may read it, and every lock
//! that was decided in it, is gone. Since a version does not contain a time, a *mark* records a timestamp that was fetched when a
//! version was in force: a snapshot above it knows that version.
//!
//! Source: spec: transactions, "Collections"; docs/decisions/0030-physical-names.md.

use std::collections::BTreeMap;

use bson::raw::cstr;
use bson::{RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf, rawdoc};
use handfast_mql::Code;
use handfast_store::{Error as StoreError, Namespace, Result as StoreResult};

use super::row::Timestamp;
use super::versioned_document::{number, signed};

#[cfg(test)]
mod tests;

/// The most marks: one for each pass of a cleaner that finds a change, until they are old.
const MARKS_MAX: usize = 64;

/// The target of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NameTarget {
    /// The collection of the store that has the name, if there is one.
    Unlisted,
    /// This collection of the store.
    Collection(Namespace),
    /// The collection was dropped or renamed.
    Nothing,
}

impl NameTarget {
    /// Returns the collection that a name with this target stands for; for `Nothing`, the one of that name.
    pub(super) fn of<'n>(&'n self, name: &'n Namespace) -> &'n Namespace {
        match self {
            NameTarget::Collection(collection) => collection,
            NameTarget::Unlisted | NameTarget::Nothing => name,
        }
    }
}

/// A name, and what it was seen to stand for.
pub(super) struct SeenName<'n> {
    pub(super) name: &'n Namespace,
    pub(super) name_target: &'n NameTarget,
}

/// The collection that a name stands for from a version on.
#[derive(Clone, Debug, PartialEq)]
struct Period {
    from: u64,
    /// `None` if the name stands for no collection.
    collection: Option<Namespace>,
}

/// A collection of the store that has no name any more.
#[derive(Clone, Debug, PartialEq)]
struct Retired {
    collection: Namespace,
    /// The first version in which it has no name.
    until: u64,
}

/// A version that was in force when a timestamp was fetched.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Mark {
    version: u64,
    at: Timestamp,
}

/// The mapping of all names.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Mapping {
    names: BTreeMap<Namespace, Vec<Period>>,
    retired: Vec<Retired>,
    marks: Vec<Mark>,
}

impl Mapping {
    /// Returns what a name stands for in a version, which is not newer than this one.
    pub(super) fn name_target(&self, name: &Namespace, version: u64) -> NameTarget {
        let Some(periods) = self.names.get(name) else {
            // Only names that the engine gave are used without being listed.
            let is_own = name.without_generation().is_some() && self.is_used(name);
            return if is_own { NameTarget::Nothing } else { NameTarget::Unlisted };
        };
        match periods.iter().rev().find(|period| period.from <= version) {
            None => NameTarget::Unlisted,
            Some(Period { collection: None, .. }) => NameTarget::Nothing,
            Some(Period { collection: Some(collection), .. }) => NameTarget::Collection(collection.clone()),
        }
    }

    /// Returns the collection that a name stands for in a version, whether it exists or not.
    pub(super) fn collection(&self, name: &Namespace, version: u64) -> Option<Namespace> {
        match self.name_target(name, version) {
            NameTarget::Unlisted => Some(name.clone()),
            NameTarget::Collection(collection) => Some(collection),
            NameTarget::Nothing => None,
        }
    }

    /// Returns what a name stands for in the newest version.
    pub(super) fn newest(&self, name: &Namespace) -> NameTarget {
        self.name_target(name, u64::MAX)
    }

    /// Returns the listed names that stand for a collection now, with their collections.
    pub(super) fn listed(&self) -> impl Iterator<Item = (&Namespace, &Namespace)> {
        let last = |periods: &'_ [Period]| periods.last().map(|period| period.collection.is_some());
        let standing = self.names.iter().filter(move |(_, periods)| last(periods) == Some(true));
        standing.filter_map(|(name, periods)| Some((name, periods.last()?.collection.as_ref()?)))
    }

    /// Returns the collections that have no name any more.
    pub(super) fn retired(&self) -> impl Iterator<Item = &Namespace> {
        self.retired.iter().map(|retired| &retired.collection)
    }

    /// Returns whether a collection is listed under any name, or retired.
    pub(super) fn is_used(&self, collection: &Namespace) -> bool {
        let stands_for = |period: &Period| period.collection.as_ref() == Some(collection);
        self.retired().any(|retired| retired == collection) || self.names.values().flatten().any(stands_for)
    }

    /// Returns whether nothing is listed: each name stands for the collection of that name.
    pub(super) fn is_empty(&self) -> bool {
        self.names.is_empty() && self.retired.is_empty()
    }

    /// Returns the users' name of a collection.
    pub(super) fn name_of<'n>(&'n self, collection: &'n Namespace) -> &'n Namespace {
        let is_of = |periods: &[Period]| periods.iter().any(|period| period.collection.as_ref() == Some(collection));
        let current = self.listed().find(|(_, listed)| *listed == collection).map(|(name, _)| name);
        let former = || self.names.iter().find(|(_, periods)| is_of(periods)).map(|(name, _)| name);
        current.or_else(former).unwrap_or(collection)
    }

    /// Lists a name without a collection in the store from this version on.
    ///
    /// # Errors
    /// `InvalidNamespace` (73) for a name that the engine has given, or could give, to a collection itself.
    pub(super) fn create(&mut self, name: &Namespace, version: u64) -> StoreResult<()> {
        let collection = match self.newest(name) {
            NameTarget::Collection(_) => return Ok(()),
            _ if name.without_generation().is_some() => return Err(kept_name(name)),
            NameTarget::Unlisted => name.clone(),
            NameTarget::Nothing => name.of_generation(version)?,
        };
        self.set(name, version, Some(collection));
        Ok(())
    }

    /// Drops a name from this version on. Returns `false` if its target is no longer the one that was seen.
    pub(super) fn drop(&mut self, name: &Namespace, seen: &NameTarget, version: u64) -> bool {
        if self.newest(name) != *seen {
            return false;
        }
        if let Some(collection) = self.collection(name, u64::MAX) {
            self.set(name, version, None);
            self.retired.push(Retired { collection, until: version });
        }
        true
    }

    /// Renames a collection from this version on. With `replaces` the former collection of the new name is retired. Returns `false` if a target
    /// is no longer the one that was seen.
    pub(super) fn rename(&mut self, from: SeenName<'_>, to: SeenName<'_>, replaces: bool, version: u64) -> bool {
        let collection = from.name_target.of(from.name).clone();
        if self.newest(from.name) == NameTarget::Nothing
            && self.newest(to.name) == NameTarget::Collection(collection.clone())
        {
            return true;
        }
        if self.newest(from.name) != *from.name_target || self.newest(to.name) != *to.name_target {
            return false;
        }
        if replaces && let Some(replaced) = self.collection(to.name, u64::MAX) {
            self.retired.push(Retired { collection: replaced, until: version });
        }
        self.set(from.name, version, None);
        self.set(to.name, version, Some(collection));
        true
    }

    fn set(&mut self, name: &Namespace, version: u64, collection: Option<Namespace>) {
        let periods = self.names.entry(name.clone()).or_default();
        periods.retain(|period| period.from < version);
        periods.push(Period { from: version, collection });
    }

    /// Returns the newest version with a change that no mark covers.
    pub(super) fn unmarked(&self) -> Option<u64> {
        let changed = self.names.values().flatten().map(|period| period.from);
        let newest = changed.chain(self.retired.iter().map(|retired| retired.until)).max()?;
        let marked = self.marks.last().map_or(0, |mark| mark.version);
        (newest > marked).then_some(newest)
    }

    /// Notes a timestamp that was fetched when a version was in force.
    pub(super) fn mark(&mut self, version: u64, at: Timestamp) {
        if self.marks.last().is_none_or(|last| last.version < version) {
            self.marks.push(Mark { version, at });
        }
        if let Some(excess) = self.marks.len().checked_sub(MARKS_MAX) {
            self.marks.drain(..excess);
        }
    }

    /// Returns the newest version that was in force before all snapshots and requests above the safe point.
    fn collectable_version(&self, safe: Timestamp) -> u64 {
        self.marks.iter().filter(|mark| mark.at < safe).map(|mark| mark.version).max().unwrap_or(0)
    }

    /// Returns the retired collections that can be removed.
    pub(super) fn removable(&self, safe: Timestamp) -> Vec<Namespace> {
        let collectable = self.collectable_version(safe);
        let removable = self.retired.iter().filter(|retired| retired.until <= collectable);
        removable.map(|retired| retired.collection.clone()).collect()
    }

    /// Returns the names that have stood for the collection of the same name since before the safe point: they need not be listed if it exists.
    pub(super) fn plain(&self, safe: Timestamp) -> Vec<Namespace> {
        let collectable = self.collectable_version(safe);
        let is_plain = |name: &Namespace, periods: &[Period]| match periods {
            [only] => only.from <= collectable && only.collection.as_ref() == Some(name),
            _ => false,
        };
        self.names.iter().filter(|(name, periods)| is_plain(name, periods)).map(|(name, _)| name.clone()).collect()
    }

    /// Forgets retired collections that were removed from the store, names whose collections exist under the same name, and targets from before
    /// the safe point.
    pub(super) fn forget(&mut self, safe: Timestamp, removed: &[Namespace], there: &[Namespace]) {
        let collectable = self.collectable_version(safe);
        self.retired.retain(|retired| retired.until > collectable || !removed.contains(&retired.collection));
        let plain: Vec<_> = self.plain(safe).into_iter().filter(|name| there.contains(name)).collect();
        self.names.retain(|name, _| !plain.contains(name));
        for periods in self.names.values_mut() {
            let current = periods.iter().rposition(|period| period.from <= collectable).unwrap_or(0);
            periods.drain(..current);
        }
        let is_free = |name: &Namespace| !self.is_used(name);
        let is_over =
            |periods: &[Period]| matches!(periods, [only] if only.collection.is_none() && only.from <= collectable);
        let over = self.names.iter().filter(|(name, periods)| is_over(periods) && is_free(name));
        for name in over.map(|(name, _)| name.clone()).collect::<Vec<_>>() {
            self.names.remove(&name);
        }
        let keeps_marks = !self.is_empty();
        self.marks.retain(|mark| keeps_marks && mark.version >= collectable);
    }

    /// Appends the mapping to the stored catalog.
    pub(super) fn append_to(&self, document: &mut RawDocumentBuf) {
        let period = |period: &Period| {
            let mut entry = rawdoc! { "from": signed(period.from) };
            if let Some(collection) = &period.collection {
                entry.append(cstr!("at"), collection.to_string());
            }
            RawBson::Document(entry)
        };
        let name = |(name, periods): (&Namespace, &Vec<Period>)| {
            let of: RawArrayBuf = periods.iter().map(period).collect();
            RawBson::Document(rawdoc! { "ns": name.to_string(), "of": of })
        };
        let retired = |retired: &Retired| {
            RawBson::Document(rawdoc! { "at": retired.collection.to_string(), "until": signed(retired.until) })
        };
        let mark = |mark: &Mark| RawBson::Document(rawdoc! { "v": signed(mark.version), "ts": mark.at.stored() });
        if self.is_empty() {
            return;
        }
        document.append(cstr!("names"), self.names.iter().map(name).collect::<RawArrayBuf>());
        document.append(cstr!("retired"), self.retired.iter().map(retired).collect::<RawArrayBuf>());
        document.append(cstr!("marks"), self.marks.iter().map(mark).collect::<RawArrayBuf>());
    }

    /// Reads the mapping of a stored catalog.
    ///
    /// # Errors
    /// `InternalError` (1) if it is not what Handfast writes.
    pub(super) fn from_document(document: &RawDocument) -> StoreResult<Self> {
        let mut mapping = Mapping::default();
        for entry in entries(document, "names")? {
            let periods = entries(entry, "of")?.into_iter().map(period).collect::<StoreResult<_>>()?;
            mapping.names.insert(namespace(entry, "ns")?, periods);
        }
        for entry in entries(document, "retired")? {
            let until = number(entry, "until").map_err(damaged)?;
            mapping.retired.push(Retired { collection: namespace(entry, "at")?, until });
        }
        for entry in entries(document, "marks")? {
            let at = Timestamp(number(entry, "ts").map_err(damaged)?);
            mapping.marks.push(Mark { version: number(entry, "v").map_err(damaged)?, at });
        }
        Ok(mapping)
    }
}

fn period(entry: &RawDocument) -> StoreResult<Period> {
    let is_there = entry.get("at").map_err(damaged)?.is_some();
    let collection = is_there.then(|| namespace(entry, "at")).transpose()?;
    Ok(Period { from: number(entry, "from").map_err(damaged)?, collection })
}

fn entries<'d>(document: &'d RawDocument, name: &str) -> StoreResult<Vec<&'d RawDocument>> {
    let Some(value) = document.get(name).map_err(damaged)? else { return Ok(Vec::new()) };
    let array = value.as_array().ok_or_else(|| damaged(format_args!("'{name}' is no array")))?;
    let mut entries = Vec::new();
    for value in array {
        match value.map_err(damaged)? {
            RawBsonRef::Document(entry) => entries.push(entry),
            _ => return Err(damaged(format_args!("an entry of '{name}' is no document"))),
        }
    }
    Ok(entries)
}

fn namespace(entry: &RawDocument, name: &str) -> StoreResult<Namespace> {
    let text = entry.get_str(name).map_err(damaged)?;
    let (database, collection) = text.split_once('.').ok_or_else(|| damaged("a collection has no database"))?;
    Namespace::new(database, collection)
}

/// Returns the error for a name that the engine gives to collections itself.
pub(super) fn kept_name(name: &Namespace) -> StoreError {
    let text = format!(
        "names that end with '~hf' and a number, as {name} does, are kept for collections that take the place of dropped \
         ones: choose another name"
    );
    StoreError::command(Code::InvalidNamespace, text)
}

fn damaged(why: impl std::fmt::Display) -> StoreError {
    StoreError::command(Code::InternalError, format!("the names in the catalog are not what Handfast writes: {why}"))
}
