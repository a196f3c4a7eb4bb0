//! Inserts of new copies, and reads of single copies.

use bson::{Bson, Document, doc};
use handfast_store::Namespace;

use super::carry::take;
use super::record::Copy;
use super::requests;
use super::{Link, Main, RACES_MAX, SyncFlag};
use crate::metrics::Event;
use crate::steps::{Added, Steps};
use crate::value::{at_path, equal, remove_path, same_id, set_path};
use crate::{Error, Result};

/// The result of [`SyncFlag::insert_copy`].
#[derive(Clone, Debug)]
#[must_use]
pub enum Copied {
    /// The document was inserted, and its copies equal their main documents.
    Settled {
        /// The `_id` of the document.
        id: Bson,
    },
    /// The document was inserted with its flag. It may have the values of an older version until the sweeper or
    /// [`SyncFlag::read_copy`] brings it up to date.
    Later {
        /// The `_id` of the document.
        id: Bson,
        /// The error of the step after the insert.
        error: Error,
    },
    /// The document names a main document that does not exist. It was not inserted.
    MainMissing {
        /// The `_id` of the main document.
        main: Bson,
    },
}

/// The result of an insert within a transaction.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub enum Inserted {
    /// The document was inserted with its flag.
    Flagged {
        /// The `_id` of the document.
        id: Bson,
    },
    /// The document names a main document that does not exist. It was not inserted.
    MainMissing {
        /// The `_id` of the main document.
        main: Bson,
    },
}

/// The result of [`SyncFlag::stamp`].
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub enum Stamped {
    /// The document with the copied fields, their versions and flags.
    Document(Document),
    /// The document names a main document that does not exist.
    MainMissing {
        /// The `_id` of the main document.
        main: Bson,
    },
}

impl SyncFlag {
    /// Inserts a document that names main documents, with copies of their fields. The document gets an `_id` if it has
    /// none; inserting the same document again does nothing.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a collection without links, and if a document with this `_id` is there and has other
    /// values in the given fields, those that are copied apart.
    ///
    /// # Cancellation
    /// The document may have been inserted, with its flag.
    pub async fn insert_copy(&self, target: &Namespace, document: Document) -> Result<Copied> {
        let id = match self.insert_flagged(target, document).await? {
            Inserted::Flagged { id } => id,
            Inserted::MainMissing { main } => return Ok(Copied::MainMissing { main }),
        };
        match self.refresh_copies(target, &id).await {
            Ok(()) => Ok(Copied::Settled { id }),
            Err(error) => {
                tracing::warn!(%id, %error, "a new copy could not be confirmed, the sweeper will try again");
                Ok(Copied::Later { id, error })
            }
        }
    }

    /// Returns the document with the current values of the copied fields, their versions and flags. It is meant for
    /// programs that insert the document, or change its foreign key, themselves. After that the program calls
    /// [`SyncFlag::read_copy`], or leaves it to the sweeper.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a collection without links; [`Error::Store`] if a main document cannot be read.
    pub async fn stamp(&self, target: &Namespace, mut document: Document) -> Result<Stamped> {
        for link in self.links(target)? {
            let Some(id) = at_path(&document, &link.foreign_key).cloned().filter(|id| *id != Bson::Null) else {
                continue;
            };
            let Some(main) = self.main(&id).await?.filter(Main::is_alive) else {
                return Ok(Stamped::MainMissing { main: id });
            };
            for (path, value) in link.values(&main.content) {
                if let Some(value) = value {
                    set_path(&mut document, &path, value)?;
                }
            }
            set_path(&mut document, &link.version, main.version.into())?;
            set_path(&mut document, &link.syncing, self.sources.clock.now().into())?;
        }
        Ok(Stamped::Document(document))
    }

    /// Returns a document with copies, and brings those up to date first that differ from their main documents.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a collection without links.
    pub async fn read_copy(&self, target: &Namespace, id: impl Into<Bson>) -> Result<Option<Document>> {
        let id = id.into();
        self.refresh_copies(target, &id).await?;
        self.mains.at(target.clone()).find_one(&doc! { "_id": equal(&id) }).await
    }

    /// Inserts a document with its copies and their flags.
    pub(super) async fn insert_flagged(&self, target: &Namespace, mut document: Document) -> Result<Inserted> {
        let id = document.entry("_id".to_owned()).or_insert_with(|| self.sources.ids.object_id().into()).clone();
        match self.stamp(target, document).await? {
            Stamped::Document(document) => {
                let copies = self.mains.at(target.clone());
                if copies.insert(&document).await? == Added::There {
                    self.ensure_same(&copies, &document, &id).await?;
                }
                Ok(Inserted::Flagged { id })
            }
            Stamped::MainMissing { main } => Ok(Inserted::MainMissing { main }),
        }
    }

    /// Checks that the document which is there has the given fields. Those that the links write follow from the main
    /// documents, which may have changed since it was inserted.
    async fn ensure_same(&self, copies: &Steps, given: &Document, id: &Bson) -> Result<()> {
        // It was deleted meanwhile, as after any insert.
        let Some(there) = copies.find_one(&doc! { "_id": equal(id) }).await? else { return Ok(()) };
        let links = self.links(copies.namespace())?;
        let own = |document: &Document| {
            let mut own = document.clone();
            for path in links.iter().flat_map(|link| link.paths()) {
                remove_path(&mut own, path);
            }
            own
        };
        let (there, given) = (own(&there), own(given));
        match given.iter().find(|(name, value)| !there.get(*name).is_some_and(|other| same_id(value, other))) {
            None => Ok(()),
            Some((name, _)) => Err(Error::invalid(format!(
                "another document of {} has the _id {id}: its {name} differs, so nothing was inserted",
                copies.namespace()
            ))),
        }
    }

    async fn refresh_copies(&self, target: &Namespace, id: &Bson) -> Result<()> {
        for link in self.links(target)? {
            self.refresh_copy(link, id).await?;
        }
        Ok(())
    }

    /// Brings one copy up to date; returns whether there was something to do.
    pub(super) async fn refresh_copy(&self, link: &Link, id: &Bson) -> Result<bool> {
        let copies = self.copies(link);
        for _ in 0..RACES_MAX {
            let Some(document) = copies.find_one(&doc! { "_id": equal(id) }).await? else { return Ok(false) };
            let Some(copy) = Copy::read(document, link) else { return Ok(false) };
            // It is read after the copy was, so that it is no older than what the copy was made from.
            let main = self.main(&copy.main).await?;
            let Some(step) = requests::refresh_copy(link, &copy, main.as_ref()) else { return Ok(false) };
            if take(&copies, &step).await? {
                self.count(Event::CopyWritten, 1);
                return Ok(true);
            }
        }
        Err(Error::Contended { what: format!("copy {id} was changed by others"), attempts: RACES_MAX })
    }

    fn links(&self, target: &Namespace) -> Result<Vec<&Link>> {
        let links: Vec<_> = self.options.links.iter().filter(|link| link.target == *target).collect();
        if links.is_empty() {
            return Err(Error::invalid(format!("no link leads to {target}")));
        }
        Ok(links)
    }
}
