//! A main document and a copy, as their documents describe them.

use bson::{Bson, DateTime, Document};

use super::{Link, MainState, SyncFields};
use crate::Result;
use crate::steps::Steps;
use crate::value::{at_path, integer, remove_path};

/// The version of copies that have outlived their main document. It is greater than any version that counting reaches,
/// so that no late request overwrites them.
pub const FINAL_VERSION: i64 = i64::MAX;

/// A main document as its document describes it.
#[derive(Clone, Debug, PartialEq)]
pub struct Main {
    /// Its `_id`.
    pub id: Bson,
    /// The number of its changes; 0 before the first one.
    pub version: i64,
    /// Its state.
    pub state: MainState,
    /// The time of the change that is under way.
    pub since: Option<DateTime>,
    /// The whole document.
    pub document: Document,
    /// The document without the fields of the pattern, which copies are made from: they change after the copies have been written.
    pub(super) content: Document,
}

impl Main {
    pub(super) fn read(steps: &Steps, document: Document, fields: &SyncFields) -> Result<Self> {
        let version = integer(&document, &fields.version).map_err(|error| steps.damaged(&document, error))?;
        let since = match at_path(&document, &fields.syncing) {
            None => None,
            Some(Bson::DateTime(since)) => Some(*since),
            Some(other) => {
                let what = format!("its {} is {other}, not a date", fields.syncing);
                return Err(steps.damaged(&document, what));
            }
        };
        let deleted = at_path(&document, &fields.deleted).is_some();
        if deleted && since.is_none() {
            let what = format!("it is {}, and has no {}, so that no sweep finds it", fields.deleted, fields.syncing);
            return Err(steps.damaged(&document, what));
        }
        let state = match (deleted, since) {
            (true, _) => MainState::Deleting,
            (false, Some(_)) => MainState::Syncing,
            (false, None) => MainState::Settled,
        };
        let mut content = document.clone();
        for path in fields.paths() {
            remove_path(&mut content, path);
        }
        Ok(Main { id: document.get("_id").cloned().unwrap_or(Bson::Null), version, state, since, document, content })
    }

    /// Returns whether the document exists for readers.
    pub(super) fn is_alive(&self) -> bool {
        match self.state {
            MainState::Settled | MainState::Syncing => true,
            MainState::Deleting | MainState::Gone => false,
        }
    }
}

/// A copy by one link, as its document describes it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Copy {
    pub(super) id: Bson,
    /// The `_id` of its main document.
    pub(super) main: Bson,
    /// The version that it was made from; 0 if the document has none.
    pub(super) version: i64,
    /// The value of its own flag, of any type.
    pub(super) syncing: Option<Bson>,
    pub(super) document: Document,
}

impl Copy {
    /// Returns `None` if the document names no main document, which a list does not.
    pub(super) fn read(document: Document, link: &Link) -> Option<Self> {
        let main = at_path(&document, &link.foreign_key).filter(|main| is_key(main))?.clone();
        Some(Copy {
            id: document.get("_id").cloned().unwrap_or(Bson::Null),
            main,
            // A version that is not a number was written by another program; any change of the main document
            // overwrites it.
            version: integer(&document, &link.version).unwrap_or(0),
            syncing: at_path(&document, &link.syncing).cloned(),
            document,
        })
    }
}

/// Returns whether a value can be the `_id` by which copies name a main document: not null, which documents without the
/// field have, too, and not a list.
pub(super) fn is_key(value: &Bson) -> bool {
    !matches!(value, Bson::Null | Bson::Array(_))
}
