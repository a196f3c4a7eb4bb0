//! The steps of a sync flag within an open transaction.

use bson::{Bson, Document};
use handfast_store::Namespace;

use super::{Begun, Inserted, SyncFlag};
use crate::Result;
use crate::exactly_once::{Change, Token};

/// The first steps of a [`SyncFlag`], on another store: an open transaction.
///
/// Only they are here. To carry a change to a million copies is not for a transaction; and to confirm a new copy needs a look
/// at the main document *after* the copy can be seen, which a transaction, who reads its own snapshot, cannot have: it would
/// take the flag from a copy that is stale. So what is flagged here is carried after the commit, by [`SyncFlag::sync`],
/// [`SyncFlag::read_copy`] or the sweeper.
#[derive(Clone)]
pub struct SyncFlagWithin {
    flag: SyncFlag,
}

impl SyncFlagWithin {
    pub(super) fn new(flag: SyncFlag) -> Self {
        SyncFlagWithin { flag }
    }

    /// Changes a main document and sets its flag.
    ///
    /// # Errors
    /// [`Error::Store`](crate::Error::Store) of the transaction; [`Error::Invalid`](crate::Error::Invalid) for a change that would insert
    /// the document.
    pub async fn begin(&self, token: Token, id: impl Into<Bson>, change: &Change) -> Result<Begun> {
        Ok(self.flag.begin(token, &id.into(), change).await?.begun())
    }

    /// Marks a main document as deleted.
    pub async fn begin_delete(&self, id: impl Into<Bson>) -> Result<Begun> {
        Ok(match self.flag.begin_delete(&id.into()).await? {
            Some(main) => Begun::Flagged { version: main.version },
            None => Begun::Missing,
        })
    }

    /// Inserts a document with its copies and their flags.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) for a collection without links.
    pub async fn insert_copy(&self, target: &Namespace, document: Document) -> Result<Inserted> {
        self.flag.insert_flagged(target, document).await
    }
}
