//! The recorded settings that the documents of trees depend on: one record for all trees of a collection.
//!
//! ```text
//! db.items.settings   {_id: "versioned-tree", revision: 1, settings: {
//!                        writes: {collection: "items.writes"}, pins: {collection: "items.pins"}, children: "children",
//!                        fields: {itemId: "itemId", version: "version", ..}}}
//! ```

use std::sync::Arc;

use bson::{Bson, Document, doc};
use handfast_store::{DocumentStore, Namespace};

use super::{TreeFields, VersionedTree, VersionedTreeOptions};
use crate::settings::{SettingsRecord, read_namespace, written_namespace};
use crate::steps::Steps;
use crate::value::subdocument;
use crate::{Error, FieldNames, Result};

impl VersionedTreeOptions {
    /// Reads the recorded settings of the trees of a collection, for the tree with this root, and with defaults for
    /// those that each process chooses for itself; `None` if nothing is recorded.
    ///
    /// # Errors
    /// [`Error::Damaged`] for a record that cannot be read.
    pub async fn recorded(
        store: Arc<dyn DocumentStore>,
        nodes: &Namespace,
        root: impl Into<Bson>,
    ) -> Result<Option<Self>> {
        let recorded = record(&Steps::new(store, nodes.clone()))?.read().await?;
        recorded.map(|recorded| read(&recorded.settings, nodes, root.into())).transpose()
    }
}

impl VersionedTree {
    /// Changes the recorded settings of the trees of a collection to those of `options`; records them if nothing is
    /// recorded. Processes that have opened a tree before keep the old settings.
    ///
    /// # Errors
    /// [`Error::Invalid`] for other field names once there are nodes, and for another collection of writes or pins
    /// while the recorded one has documents. [`Error::Store`] if the store fails: call again.
    pub async fn change_settings(
        store: Arc<dyn DocumentStore>,
        nodes: Namespace,
        options: &VersionedTreeOptions,
    ) -> Result<()> {
        options.check()?;
        let steps = Steps::new(store, nodes);
        let nodes = steps.namespace();
        let (record, new) = (record(&steps)?, written(options, nodes)?);
        let Some(recorded) = record.read().await? else { return record.open(&new).await.map(|_| ()) };
        let old = read(&recorded.settings, nodes, options.root.clone())?;
        if old.fields.to_document() != options.fields.to_document() && steps.count(&Document::new()).await? > 0 {
            return Err(Error::invalid(format!(
                "{nodes} has nodes by other names of fields: they cannot be changed any more, begin another collection"
            )));
        }
        for (old, new) in [
            (old.writes_namespace(nodes)?, options.writes_namespace(nodes)?),
            (old.pins_namespace(nodes)?, options.pins_namespace(nodes)?),
        ] {
            if old != new && steps.at(old.clone()).count(&Document::new()).await? > 0 {
                return Err(Error::invalid(format!(
                    "{old} has documents of writers, readers or names: sweep the trees, and remove the names first"
                )));
            }
        }
        record.change(&recorded, &new).await.map(|_| ())
    }

    /// Records the settings if nothing is recorded, and compares them with the record otherwise.
    pub(super) async fn record_settings(&self) -> Result<()> {
        record(&self.nodes)?.open(&written(&self.options, self.nodes.namespace())?).await.map(|_| ())
    }

    /// Compares the settings with the record, if there is one.
    pub(super) async fn compare_settings(&self) -> Result<()> {
        record(&self.nodes)?.compare(&written(&self.options, self.nodes.namespace())?).await.map(|_| ())
    }
}

fn record(nodes: &Steps) -> Result<SettingsRecord> {
    SettingsRecord::new(nodes, "versioned-tree", doc! { "fields": TreeFields::default().to_document() })
}

fn written(options: &VersionedTreeOptions, nodes: &Namespace) -> Result<Document> {
    let mut written = doc! {
        "writes": written_namespace(&options.writes_namespace(nodes)?, nodes),
        "pins": written_namespace(&options.pins_namespace(nodes)?, nodes),
        "fields": options.fields.to_document(),
    };
    if let Some(children) = &options.children {
        written.insert("children", children);
    }
    Ok(written)
}

fn read(settings: &Document, nodes: &Namespace, root: Bson) -> Result<VersionedTreeOptions> {
    let parsed = || -> std::result::Result<VersionedTreeOptions, Box<dyn std::error::Error>> {
        let children = settings.get("children").map(|children| children.as_str().ok_or("children is no text"));
        Ok(VersionedTreeOptions {
            writes: Some(read_namespace(subdocument(settings, "writes")?, nodes)?),
            pins: Some(read_namespace(subdocument(settings, "pins")?, nodes)?),
            children: children.transpose()?.map(str::to_owned),
            fields: TreeFields::from_document(subdocument(settings, "fields")?)?,
            ..VersionedTreeOptions::new(root)
        })
    };
    parsed().map_err(|error| Error::invalid(format!("the recorded settings of {nodes} cannot be read: {error}")))
}
