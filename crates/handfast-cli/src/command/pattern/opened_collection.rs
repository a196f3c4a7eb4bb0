//! The collection that a command of a pattern works on.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use bson::{Bson, DateTime, Document, RawDocumentBuf, doc};
use handfast_store::{DocumentStore, Namespace, Sources, StoreExt};
use serde_json::Value;

use crate::configuration::Configuration;
use crate::console::Console;
use crate::listing::age;
use crate::store::{SingleDocumentStore, ensure_there, namespace};

/// A collection that exists, its store, and the sources that patterns need.
pub(in crate::command) struct OpenedCollection {
    pub(in crate::command) store: Arc<dyn DocumentStore>,
    pub(in crate::command) sources: Sources,
    pub(in crate::command) namespace: Namespace,
}

impl OpenedCollection {
    /// Opens the store and finds the collection; the caller closes the store.
    ///
    /// # Errors
    /// Fails if the store cannot be opened, the name is invalid, or the database or the collection is missing.
    pub(in crate::command) async fn open(
        configuration: &Configuration,
        database: &str,
        collection: &str,
    ) -> Result<(Self, SingleDocumentStore)> {
        let namespace = namespace(database, collection, "--collection")?;
        let sources = Sources::system()?;
        let opened = SingleDocumentStore::open(configuration, sources.clone()).await?;
        let collection = OpenedCollection { store: Arc::clone(&opened.store), sources, namespace };
        match ensure_there(&*collection.store, &collection.namespace, "--collection").await {
            Ok(()) => Ok((collection, opened)),
            Err(error) => {
                drop(collection);
                opened.close().await?;
                Err(error)
            }
        }
    }

    /// Returns another collection of the database, which a flag names.
    ///
    /// # Errors
    /// Fails if the collection is missing.
    pub(in crate::command) async fn sibling(&self, collection: &str, flag: &str) -> Result<Namespace> {
        let namespace = namespace(self.namespace.database(), collection, flag)?;
        ensure_there(&*self.store, &namespace, flag).await?;
        Ok(namespace)
    }

    /// Fails if the collection holds documents, and none with a mark of the pattern.
    pub(in crate::command) async fn ensure_holds(&self, what: &str, mark: Document) -> Result<()> {
        let find =
            async |filter| self.store.find_one(&self.namespace, raw(&filter)?).await.map_err(anyhow::Error::from);
        let ours = find(mark).await?.is_some() || find(doc! {}).await?.is_none();
        ensure!(
            ours,
            "{} holds no {what}: choose another collection with --collection, or name its fields with --field",
            self.namespace
        );
        Ok(())
    }

    pub(in crate::command) async fn document(&self, id: &Bson) -> Result<Option<Document>> {
        let found = self.store.find_one(&self.namespace, raw(&doc! { "_id": id.clone() })?).await?;
        Ok(found.map(|found| Document::try_from(&*found)).transpose()?)
    }

    /// Returns how long ago a time was, by this machine's clock.
    pub(in crate::command) fn since(&self, time: DateTime) -> Duration {
        let millis = self.sources.clock.now().timestamp_millis().saturating_sub(time.timestamp_millis());
        Duration::from_millis(u64::try_from(millis).unwrap_or(0))
    }

    /// Returns how long ago a time was, for people, or how far it is ahead of this machine's clock.
    pub(in crate::command) fn ago(&self, time: DateTime) -> String {
        let ahead = time.timestamp_millis().saturating_sub(self.sources.clock.now().timestamp_millis());
        match u64::try_from(ahead) {
            Ok(millis) if millis > 0 => format!("{} ahead", age(Duration::from_millis(millis))),
            _ => age(self.since(time)),
        }
    }

    /// Returns how far a time is ahead, for people, or for how long it has been over.
    pub(in crate::command) fn due(&self, time: DateTime) -> String {
        let now = self.sources.clock.now().timestamp_millis();
        let millis = |millis: i64| Duration::from_millis(u64::try_from(millis).unwrap_or(0));
        let ahead = time.timestamp_millis().saturating_sub(now);
        if ahead > 0 {
            format!("in {}", age(millis(ahead)))
        } else {
            format!("due for {}", age(millis(ahead.saturating_neg())))
        }
    }

    /// Returns the time that was so long ago, by this machine's clock.
    pub(in crate::command) fn before(&self, age: Duration) -> DateTime {
        let millis = i64::try_from(age.as_millis()).unwrap_or(i64::MAX);
        DateTime::from_millis(self.sources.clock.now().timestamp_millis().saturating_sub(millis))
    }

    /// Shows a document; for people with a remark on its meaning.
    ///
    /// # Errors
    /// Fails if the document is missing.
    pub(in crate::command) async fn show(&self, console: Console, id: &Bson, remark: Option<String>) -> Result<()> {
        let document = self.document(id).await?.with_context(|| self.missing(id))?;
        let json = crate::id::extended_json(&Bson::Document(document));
        let text = || match &remark {
            Some(remark) => format!("{}\n{remark}", pretty(&json)),
            None => pretty(&json),
        };
        Ok(console.report(text, &json)?)
    }

    /// Returns the message that there is no document with this id.
    pub(in crate::command) fn missing(&self, id: &Bson) -> String {
        format!("{} has no document with the _id {}", self.namespace, crate::id::shown(id))
    }
}

fn pretty(json: &Value) -> String {
    serde_json::to_string_pretty(json).unwrap_or_else(|_| json.to_string())
}

pub(in crate::command) fn raw(document: &Document) -> Result<RawDocumentBuf> {
    Ok(RawDocumentBuf::try_from(document)?)
}
