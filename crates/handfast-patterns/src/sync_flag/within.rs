//! The steps of a sync flag that can be made within an open transaction.

use bson::{Bson, Document};
use handfast_store::Namespace;

use super::{Begun, Inserted, SyncFlag};
use crate::Result;
use crate::exactly_once::{Change, Token};

/// The first steps of a [`SyncFlag`], on an open transaction.
///
///
/// The later steps cannot be made in a transaction. Carrying a change to a million copies is too much for one, and
/// confirming a new copy needs a read of the main document *after* the copy is visible: a transaction reads its own
/// snapshot, and would remove the flag of a copy that is out of date. So after the commit, [`SyncFlag::sync`],
/// [`SyncFlag::read_copy`] or the sweeper carry on.
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
    /// [`Error::Store`](crate::Error::Store) if the transaction fails; [`Error::Invalid`](crate::Error::Invalid) for a
    /// change that would insert the document.
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
