//! The recorded settings that main documents and their copies depend on.
//!
//! ```text
//! db.users.settings  {_id: "sync-flag", revision: 1, settings: {
//!                       links: [{collection: "comments", key: "user", version: "userVersion", syncing: "userSyncing",
//!                                copied: [{copy: "userInitial", expression: ".."}, {copy: "userName", field: "name"}],
//!                                onDelete: "set", values: [{copy: "userName", value: "somebody"}]}],
//!                       tokensMax: 20, fields: {syncing: "syncing", syncVersion: "syncVersion", ..}}}
//! ```
//!
//! Removing a flag states that *every* copy has the version. A process with fewer links, or with other fields, would
//! state that wrongly, and the remaining copies would never be found. So such a process is refused.
//!
//! Earlier builds recorded the links alone, in `<main documents>.links`. They count if nothing else is recorded.

use std::sync::Arc;

use bson::{Bson, Document, doc};
use handfast_store::{DocumentStore, Namespace};

use super::declared::{Declared, DeclaredLink, read_link, written_link};
use super::{Link, SyncFields, SyncFlag, SyncFlagOptions};
use crate::settings::SettingsRecord;
use crate::steps::Steps;
use crate::value::{array, count, subdocument};
use crate::{Error, FieldNames, Result, SettingsDifference};

/// The `_id` of the only document among the links of earlier builds.
const EARLIER: &str = "links";

impl SyncFlagOptions {
    /// Reads the recorded settings of main documents and their copies, with the default of the one that each process
    /// chooses for itself; `None` if nothing is recorded.
    ///
    /// # Errors
    /// [`Error::Damaged`] for a record that cannot be read. [`Error::Invalid`] if a function of the application
    /// computes a field of a copy ([`Link::computed`]), because no record can hold that function.
    pub async fn recorded(store: Arc<dyn DocumentStore>, mains: &Namespace) -> Result<Option<Self>> {
        let Some(Declared { links, tokens_max, fields, .. }) = SyncFlag::declared(store, mains).await? else {
            return Ok(None);
        };
        if let Some((link, field)) = links.iter().find_map(|link| Some((link.link(), link.functions().first()?))) {
            return Err(Error::invalid(format!(
                "{field} of {} is computed by a function of the application: only the application can change {mains} and its copies",
                link.target
            )));
        }
        let defaults = SyncFlagOptions::new(links.iter().map(|link| link.link().clone()));
        Ok(Some(SyncFlagOptions {
            tokens_max: tokens_max.unwrap_or(defaults.tokens_max),
            fields: fields.unwrap_or_default(),
            ..defaults
        }))
    }
}

impl SyncFlag {
    /// Reads the settings that the application recorded when it first opened its links, or last changed them; `None`
    /// if it has not.
    ///
    /// # Errors
    /// [`Error::Damaged`] for a record that cannot be read.
    pub async fn declared(store: Arc<dyn DocumentStore>, mains: &Namespace) -> Result<Option<Declared>> {
        let mains = Steps::new(store, mains.clone());
        let record = record(&mains)?;
        match record.read().await? {
            Some(recorded) => read(&recorded.settings, mains.namespace(), record.namespace().clone()).map(Some),
            None => earlier(&mains).await,
        }
    }

    /// Changes the recorded settings of main documents and their copies to those of `options`; records them if nothing
    /// is recorded. Processes that have opened them before keep the old links: stop them first. Copies of a new link
    /// get their values by [`SyncFlag::backfill`].
    ///
    /// # Errors
    /// [`Error::Invalid`] for other field names once main documents have versions, and while changes are being carried
    /// to copies by the recorded links. [`Error::Store`] if the store fails: call again.
    pub async fn change_settings(
        store: Arc<dyn DocumentStore>,
        mains: Namespace,
        options: &SyncFlagOptions,
    ) -> Result<()> {
        SyncFlag::check(options)?;
        let mains = Steps::new(store, mains);
        let place = mains.namespace();
        let (record, new) = (record(&mains)?, written(options, place));
        let Some(recorded) = record.read().await? else { return record.open(&new).await.map(|_| ()) };
        let old = read(&recorded.settings, place, record.namespace().clone())?;
        let fields = old.fields.unwrap_or_default();
        let versioned = doc! { &fields.version: { "$exists": true } };
        if fields.to_document() != options.fields.to_document() && mains.count(&versioned).await? > 0 {
            return Err(Error::invalid(format!(
                "{place} has main documents by other names of fields: they cannot be changed any more"
            )));
        }
        let mut under_way = mains.count(&doc! { &fields.syncing: { "$exists": true } }).await?;
        for link in old.links.iter().map(DeclaredLink::link) {
            under_way += mains.at(link.target.clone()).count(&doc! { &link.syncing: { "$exists": true } }).await?;
        }
        if under_way > 0 {
            return Err(Error::invalid(format!(
                "documents of {place} and copies with a flag of the recorded links: {under_way}; carry them first (sweep)"
            )));
        }
        record.change(&recorded, &new).await.map(|_| ())
    }

    /// Records the settings if nothing is recorded, and compares them with the record otherwise.
    pub(super) async fn record_settings(&self) -> Result<()> {
        let (record, ours) = (record(&self.mains)?, written(&self.options, self.mains.namespace()));
        if record.compare(&ours).await?.is_some() {
            return Ok(());
        }
        if let Some(earlier) = earlier(&self.mains).await? {
            earlier.ensure_links(&self.options.links, self.mains.namespace())?;
        }
        record.open(&ours).await.map(|_| ())
    }
}

impl Declared {
    /// Compares field names with the recorded ones.
    ///
    /// # Errors
    /// [`Error::OtherSettings`] for other field names.
    pub fn ensure_fields(&self, fields: &SyncFields) -> Result<()> {
        let Some(recorded) = &self.fields else { return Ok(()) };
        let given = fields.to_document();
        let differences = recorded.to_document().into_iter().filter_map(|(name, recorded)| {
            let given = given.get(&name).filter(|given| **given != recorded).cloned()?;
            Some(SettingsDifference { path: format!("fields.{name}"), recorded: Some(recorded), given: Some(given) })
        });
        self.refuse_if_any(differences.collect())
    }

    /// Compares all links with the recorded ones.
    fn ensure_links(&self, links: &[Link], mains: &Namespace) -> Result<()> {
        let is_same = |link: &Link| self.links.iter().any(|declared| declared.differs_from(link).is_none());
        if self.links.len() == links.len() && links.iter().all(is_same) {
            return Ok(());
        }
        let recorded = written_links(self.links.iter().map(DeclaredLink::link), mains);
        let given = written_links(links, mains);
        let path = "links".to_owned();
        self.refuse_if_any(vec![SettingsDifference { path, recorded: Some(recorded), given: Some(given) }])
    }

    fn refuse_if_any(&self, differences: Vec<SettingsDifference>) -> Result<()> {
        match differences.is_empty() {
            true => Ok(()),
            false => Err(Error::OtherSettings { record: self.record.to_string(), differences }),
        }
    }
}

fn record(mains: &Steps) -> Result<SettingsRecord> {
    SettingsRecord::new(mains, "sync-flag", doc! { "fields": SyncFields::default().to_document() })
}

fn written(options: &SyncFlagOptions, mains: &Namespace) -> Document {
    let SyncFlagOptions { links, tokens_max, fields, .. } = options;
    doc! {
        "links": written_links(links, mains),
        "tokensMax": i64::from(*tokens_max),
        "fields": fields.to_document(),
    }
}

/// Returns links as they are recorded, in a fixed order, as their order has no meaning.
fn written_links<'a>(links: impl IntoIterator<Item = &'a Link>, mains: &Namespace) -> Bson {
    let mut links: Vec<_> = links.into_iter().collect();
    links.sort_by_key(|link| (&link.target, &link.foreign_key));
    Bson::Array(links.into_iter().map(|link| Bson::Document(written_link(link, mains))).collect())
}

fn read(settings: &Document, mains: &Namespace, record: Namespace) -> Result<Declared> {
    let parsed = || -> std::result::Result<Declared, Box<dyn std::error::Error>> {
        let links = array(settings, "links")?.iter().map(|link| read_link(link, mains)).collect::<Result<_, _>>()?;
        Ok(Declared {
            links,
            tokens_max: Some(count(settings, "tokensMax")?.max(1)),
            fields: Some(SyncFields::from_document(subdocument(settings, "fields")?)?),
            record,
        })
    };
    parsed().map_err(|error| Error::invalid(format!("the recorded settings of {mains} cannot be read: {error}")))
}

/// Reads the links that an earlier build has recorded.
async fn earlier(mains: &Steps) -> Result<Option<Declared>> {
    let of = mains.namespace();
    let place = Namespace::new(of.database(), format!("{}.links", of.collection()))?;
    let steps = mains.at(place.clone());
    let Some(found) = steps.find_one(&doc! { "_id": EARLIER }).await? else { return Ok(None) };
    let links = array(&found, "links").map_err(|error| steps.damaged(&found, error))?;
    let links = links.iter().map(|link| read_link(link, of).map_err(|what| steps.damaged(&found, what)));
    Ok(Some(Declared { links: links.collect::<Result<_>>()?, tokens_max: None, fields: None, record: place }))
}
