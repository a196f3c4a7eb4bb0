//! The record of a pattern's settings: a document beside the pattern's collection that says how to read its documents.
//!
//! The meaning of a document depends on settings, such as the name of the field with the balance, or the places of the
//! copies. Two processes with different settings read the same documents differently, and a recovery with other
//! settings than the writer's does damage. So the first process that opens a pattern records its settings, and every
//! later process compares its own with the record:
//!
//! ```text
//! db.transactions.settings   {_id: "two-phase", revision: 2, settings: {accounts: {balance: "balance", ..}, ..},
//!                             earlier: [{revision: 1, settings: {..}}]}
//!
//! open, nothing is recorded  insert {_id: "two-phase", revision: 1, settings: ours}; a second process compares with this
//! open, equal                the pattern opens
//! open, different            Error::OtherSettings with each setting, as recorded and as given; nothing is done
//! change                     update {_id, revision: 1} to {revision: 2, settings: new}, and keeps the old ones in `earlier`
//! ```
//!
//! Each step is one operation on one document and safe to repeat: a late copy of the insert meets the `_id`, a late
//! copy of a change meets a newer revision. A process that opened the pattern before a change keeps the old settings.
//! The pattern prevents damage by that: it refuses the change while documents are unfinished, or its documents name
//! the revision that they were written with, whose settings are in `earlier`.
//!
//! The name of the collection is that of the pattern's collection with the suffix `.settings`, so that a dump of the
//! database includes it.
//!
//! # How to add a record to a pattern
//!
//! 1. Write the settings as a document: everything that the meaning of documents depends on, in plain names and
//!    values, and nothing that each process may choose for itself (a lease, a batch size, the name of the process).
//! 2. Call [`SettingsRecord::open`] first in `open`, before indexes are created, and [`SettingsRecord::compare`] in `attach`.
//! 3. Offer the recorded settings as options (`XOptions::recorded`), for the command line and other tools: [`SettingsRecord::read`].
//! 4. Give a setting that is added later its default in `defaults`: a record that lacks the setting has this value.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use bson::{Bson, Document, doc};
use handfast_store::{DocumentStore, Namespace};

use crate::steps::{Added, Steps};
use crate::value::{same_id, string, subdocument, typed};
use crate::{Error, Result};

/// Limit on the changes of settings, since the earlier settings of each are kept. Each takes some hundred bytes of one
/// document.
const CHANGES_MAX: usize = 100;

/// Limit on the records that are read beside one collection, which has one for each pattern.
const RECORDS_MAX: u32 = 1000;

/// The suffix of the collection of records, after the name of the pattern's collection.
const SUFFIX: &str = ".settings";

/// A setting that is recorded with another value than the one that was given.
#[derive(Clone, Debug, PartialEq)]
pub struct SettingsDifference {
    /// The path of the setting in the record, such as `accounts.balance`.
    pub path: String,
    /// The recorded value; `None` if the record lacks the setting.
    pub recorded: Option<Bson>,
    /// The given value; `None` if the setting was not given.
    pub given: Option<Bson>,
}

impl fmt::Display for SettingsDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |value: &Option<Bson>| value.as_ref().map_or_else(|| "nothing".to_owned(), ToString::to_string);
        write!(f, "{} is recorded as {}, given as {}", self.path, shown(&self.recorded), shown(&self.given))
    }
}

/// Returns the stored records of settings beside a collection: one for each pattern on it.
pub async fn recorded_settings(store: Arc<dyn DocumentStore>, collection: &Namespace) -> Result<Vec<Document>> {
    let namespace = Namespace::new(collection.database(), format!("{}{SUFFIX}", collection.collection()))?;
    Steps::new(store, namespace).find(&Document::new(), &doc! { "_id": 1 }, RECORDS_MAX).await
}

/// The content of a record.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Recorded {
    /// The revision of the record: 1 at first, and 1 more after each change.
    pub(crate) revision: i64,
    /// The settings in force.
    pub(crate) settings: Document,
    /// The replaced settings with their revisions, the oldest first.
    pub(crate) earlier: Vec<(i64, Document)>,
}

/// The record of the settings of a pattern. See the [module's documentation](self).
#[derive(Clone)]
pub(crate) struct SettingsRecord {
    steps: Steps,
    id: Bson,
    defaults: Document,
}

impl SettingsRecord {
    /// Returns the record for a pattern on the collection of `pattern`. The `id` is the name of the pattern, with a
    /// suffix if several patterns of the kind share a collection. A setting that the record lacks has the value in
    /// `defaults`.
    pub(crate) fn new(pattern: &Steps, id: impl Into<Bson>, defaults: Document) -> Result<Self> {
        let of = pattern.namespace();
        if of.collection() == "system" {
            return Err(Error::invalid(
                "a pattern cannot use the collection system: its settings would be in system.settings, and those names are the store's own",
            ));
        }
        let namespace = Namespace::new(of.database(), format!("{}{SUFFIX}", of.collection()))?;
        Ok(SettingsRecord { steps: pattern.at(namespace), id: id.into(), defaults })
    }

    /// Returns the collection that holds the record.
    pub(crate) fn namespace(&self) -> &Namespace {
        self.steps.namespace()
    }

    /// Returns the recorded settings; `None` if the pattern was never opened.
    ///
    /// # Errors
    /// [`Error::Damaged`] for a document that is not a record.
    pub(crate) async fn read(&self) -> Result<Option<Recorded>> {
        let Some(found) = self.steps.find_one(&doc! { "_id": self.id.clone() }).await? else { return Ok(None) };
        let damaged = |error| self.steps.damaged(&found, format!("it is not a record of settings: {error}"));
        self.read_document(&found).map(Some).map_err(damaged)
    }

    /// Records the settings if none are recorded, and compares them with the record otherwise.
    ///
    /// # Errors
    /// [`Error::OtherSettings`] if the record has other settings; [`Error::Damaged`] for a document that is not a
    /// record.
    pub(crate) async fn open(&self, ours: &Document) -> Result<Recorded> {
        match self.compare(ours).await? {
            Some(recorded) => Ok(recorded),
            None => self.record(ours).await,
        }
    }

    async fn record(&self, ours: &Document) -> Result<Recorded> {
        self.check_pattern().await?;
        let record = doc! { "_id": self.id.clone(), "revision": 1_i64, "settings": ours.clone() };
        match self.steps.insert(&record).await? {
            Added::New => Ok(Recorded { revision: 1, settings: completed(ours, &self.defaults), earlier: Vec::new() }),
            // Another process has inserted its settings before, or an attempt of this process whose answer was lost.
            Added::There => self.compare(ours).await?.ok_or_else(|| self.removed()),
        }
    }

    /// Checks that the pattern's collection compares strings by their bytes, and does not hold the records of another pattern.
    async fn check_pattern(&self) -> Result<()> {
        let place = self.namespace();
        let Some(name) = place.collection().strip_suffix(SUFFIX) else { return Ok(()) };
        let pattern = self.steps.at(Namespace::new(place.database(), name)?);
        if pattern.has_default_collation().await? {
            return Err(Error::invalid(format!(
                "{} has a default collation, under which different ids and names would be equal: use a collection without one",
                pattern.namespace()
            )));
        }
        if !name.ends_with(SUFFIX) {
            return Ok(());
        }
        let is_record = doc! { "revision": { "$exists": true }, "settings": { "$type": "object" } };
        if pattern.find_one(&is_record).await?.is_none() {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "{} has recorded settings of another pattern, and can hold nothing else",
            pattern.namespace()
        )))
    }

    /// Compares the settings with the record and returns it; `None` if nothing is recorded.
    ///
    /// # Errors
    /// [`Error::OtherSettings`] if the record has other settings; [`Error::Damaged`] for a document that is not a
    /// record.
    pub(crate) async fn compare(&self, ours: &Document) -> Result<Option<Recorded>> {
        let Some(recorded) = self.read().await? else { return Ok(None) };
        let differences = differences(&recorded.settings, &completed(ours, &self.defaults));
        if differences.is_empty() {
            return Ok(Some(recorded));
        }
        Err(Error::OtherSettings { record: self.steps.namespace().to_string(), differences })
    }

    /// Replaces the recorded settings. The caller has made sure that no existing document changes its meaning.
    ///
    /// # Errors
    /// [`Error::OtherSettings`] if another process has changed the record since; [`Error::Store`] if the store fails:
    /// call again.
    pub(crate) async fn change(&self, from: &Recorded, to: &Document) -> Result<Recorded> {
        if differences(&from.settings, &completed(to, &self.defaults)).is_empty() {
            return Ok(from.clone());
        }
        if from.earlier.len() >= CHANGES_MAX {
            return Err(Error::invalid(format!(
                "the settings have been changed {CHANGES_MAX} times, and cannot be changed again"
            )));
        }
        let before = doc! { "revision": from.revision, "settings": from.settings.clone() };
        let update = doc! {
            "$set": { "revision": from.revision + 1, "settings": to.clone() },
            "$push": { "earlier": before },
        };
        let as_it_was = doc! { "_id": self.id.clone(), "revision": from.revision };
        // A second attempt matches nothing if the first one was carried out, so the current record decides.
        self.steps.update_one(&as_it_was, &update).await?;
        self.compare(to).await?.ok_or_else(|| self.removed())
    }

    /// Removes the record if it has these settings.
    pub(crate) async fn remove(&self, ours: &Document) -> Result<()> {
        let filter = doc! { "_id": self.id.clone(), "settings": ours.clone() };
        self.steps.delete_one(&filter).await.map(|_| ())
    }

    fn removed(&self) -> Error {
        Error::invalid(format!("the record of settings in {} was removed just now: open again", self.namespace()))
    }

    fn read_document(&self, found: &Document) -> Result<Recorded> {
        let read = |part: &Document| -> Result<_> {
            let as_integer = |value: &Bson| value.as_i64().or_else(|| value.as_i32().map(i64::from));
            let revision = typed(part, "revision", "an integer", as_integer)?;
            Ok((revision, completed(subdocument(part, "settings")?, &self.defaults)))
        };
        let (revision, settings) = read(found)?;
        let earlier = found.get_array("earlier").map(Vec::as_slice).unwrap_or_default();
        let earlier = earlier.iter().filter_map(Bson::as_document).map(read).collect::<Result<_, _>>()?;
        Ok(Recorded { revision, settings, earlier })
    }
}

/// Returns the name of a collection as the record of a pattern in `home` stores it. The name of a collection in the
/// same database is stored without the database, so that it stays right when the database is restored under another
/// name.
pub(crate) fn written_namespace(namespace: &Namespace, home: &Namespace) -> Document {
    let mut written = doc! { "collection": namespace.collection() };
    if namespace.database() != home.database() {
        written.insert("database", namespace.database());
    }
    written
}

/// Reads a name that [`written_namespace`] has written.
pub(crate) fn read_namespace(
    written: &Document,
    home: &Namespace,
) -> std::result::Result<Namespace, Box<dyn std::error::Error>> {
    let database = written.get_str("database").unwrap_or(home.database());
    Ok(Namespace::new(database, string(written, "collection")?)?)
}

/// Returns the settings with the defaults of those that are missing.
fn completed(settings: &Document, defaults: &Document) -> Document {
    let mut completed = settings.clone();
    for (name, default) in defaults {
        match (settings.get(name), default) {
            (None, default) => {
                completed.insert(name, default.clone());
            }
            (Some(Bson::Document(inner)), Bson::Document(default)) => {
                completed.insert(name, self::completed(inner, default));
            }
            (Some(_), _) => {}
        }
    }
    completed
}

/// Returns the settings that differ, by path. Numbers are compared by value, because a shell or a dump may have
/// written another type.
fn differences(recorded: &Document, given: &Document) -> Vec<SettingsDifference> {
    let (recorded, given) = (by_path(recorded), by_path(given));
    let paths: BTreeSet<_> = recorded.keys().chain(given.keys()).collect();
    let differs = |path: &&String| match (recorded.get(*path), given.get(*path)) {
        (Some(recorded), Some(given)) => !same_id(recorded, given),
        _ => true,
    };
    let difference = |path: &String| SettingsDifference {
        path: path.clone(),
        recorded: recorded.get(path).cloned(),
        given: given.get(path).cloned(),
    };
    paths.into_iter().filter(differs).map(difference).collect()
}

/// Returns the values of a document by their paths. A document on the way counts as a value only if it is empty.
fn by_path(document: &Document) -> BTreeMap<String, Bson> {
    let mut values = BTreeMap::new();
    let mut open: Vec<_> = document.iter().map(|(name, value)| (name.clone(), value)).collect();
    while let Some((path, value)) = open.pop() {
        match value {
            Bson::Document(inner) if !inner.is_empty() => {
                open.extend(inner.iter().map(|(name, value)| (format!("{path}.{name}"), value)));
            }
            other => {
                values.insert(path, other.clone());
            }
        }
    }
    values
}
