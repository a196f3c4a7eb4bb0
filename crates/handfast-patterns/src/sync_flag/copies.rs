//! New copies, and copies one by one.

use bson::{Bson, Document, doc};
use handfast_store::Namespace;

use super::carry::take;
use super::record::Copy;
use super::requests;
use super::{Link, Main, RACES_MAX, SyncFlag};
use crate::metrics::Event;
use crate::value::{at_path, set_path};
use crate::{Error, Result};

/// The result of [`SyncFlag::insert_copy`].
#[derive(Clone, Debug)]
#[must_use]
pub enum Copied {
    /// It is in, and equal to its main documents.
    Settled {
        /// Its `_id`.
        id: Bson,
    },
    /// It is in with its flag; it may have the values of an older version until the sweeper has seen it, or whoever
    /// calls [`SyncFlag::read_copy`].
    Later {
        /// Its `_id`.
        id: Bson,
        /// The error that stopped it.
        error: Error,
    },
    /// It names a main document that is not there: it was not inserted.
    MainMissing {
        /// The `_id` of the main document.
        main: Bson,
    },
}

/// The result of the insert alone.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub enum Inserted {
    /// It is in, with its flag.
    Flagged {
        /// Its `_id`.
        id: Bson,
    },
    /// It names a main document that is not there: it was not inserted.
    MainMissing {
        /// The `_id` of the main document.
        main: Bson,
    },
}

/// The result of [`SyncFlag::stamp`].
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub enum Stamped {
    /// With the copied fields, their versions and flags.
    Document(Document),
    /// It names a main document that is not there.
    MainMissing {
        /// The `_id` of the main document.
        main: Bson,
    },
}

impl SyncFlag {
    /// Inserts a document that names main documents, with the copies of their fields. It gets an `_id` if it has none; to insert
    /// the same document again does nothing.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a collection without links. Another document with this `_id` is taken for this one.
    ///
    /// # Cancellation
    /// It may be in, with its flag.
    pub async fn insert_copy(&self, target: &Namespace, document: Document) -> Result<Copied> {
        let id = match self.insert_flagged(target, document).await? {
            Inserted::Flagged { id } => id,
            Inserted::MainMissing { main } => return Ok(Copied::MainMissing { main }),
        };
        match self.refresh_copies(target, &id).await {
            Ok(()) => Ok(Copied::Settled { id }),
            Err(error) => {
                tracing::warn!(%id, %error, "a new copy could not be confirmed, the sweeper will see to it");
                Ok(Copied::Later { id, error })
            }
        }
    }

    /// The copied fields of a document as of now, with their versions and flags: for programs that insert it (or change its
    /// foreign key) themselves. Who has done so calls [`SyncFlag::read_copy`], or leaves it to the sweeper.
    ///
    /// # Errors
    /// As [`SyncFlag::insert_copy`].
    pub async fn stamp(&self, target: &Namespace, mut document: Document) -> Result<Stamped> {
        for link in self.links(target)? {
            let Some(id) = at_path(&document, &link.foreign_key).cloned().filter(|id| *id != Bson::Null) else {
                continue;
            };
            let Some(main) = self.main(&id).await?.filter(Main::is_alive) else {
                return Ok(Stamped::MainMissing { main: id });
            };
            for (path, value) in link.values(&main.document) {
                if let Some(value) = value {
                    set_path(&mut document, &path, value)?;
                }
            }
            set_path(&mut document, &link.version, main.version.into())?;
            set_path(&mut document, &link.syncing, self.sources.clock.now().into())?;
        }
        Ok(Stamped::Document(document))
    }

    /// A document with copies; those that are not equal to their main documents are brought up to date first.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a collection without links.
    pub async fn read_copy(&self, target: &Namespace, id: impl Into<Bson>) -> Result<Option<Document>> {
        let id = id.into();
        self.refresh_copies(target, &id).await?;
        self.mains.at(target.clone()).find_one(&doc! { "_id": id }).await
    }

    /// Inserts a document with its copies and their flags.
    pub(super) async fn insert_flagged(&self, target: &Namespace, mut document: Document) -> Result<Inserted> {
        let id = document.entry("_id".to_owned()).or_insert_with(|| self.sources.ids.object_id().into()).clone();
        match self.stamp(target, document).await? {
            Stamped::Document(document) => {
                self.mains.at(target.clone()).insert(&document).await?;
                Ok(Inserted::Flagged { id })
            }
            Stamped::MainMissing { main } => Ok(Inserted::MainMissing { main }),
        }
    }

    async fn refresh_copies(&self, target: &Namespace, id: &Bson) -> Result<()> {
        for link in self.links(target)? {
            self.refresh_copy(link, id).await?;
        }
        Ok(())
    }

    /// Brings one copy up to date; says whether there was something to do.
    pub(super) async fn refresh_copy(&self, link: &Link, id: &Bson) -> Result<bool> {
        let copies = self.copies(link);
        for _ in 0..RACES_MAX {
            let Some(document) = copies.find_one(&doc! { "_id": id.clone() }).await? else { return Ok(false) };
            let Some(copy) = Copy::read(document, link) else { return Ok(false) };
            // Read after the copy was: what is there now is no older than what the copy was made from.
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
