//! Settings: names of fields, and how long a flag is left alone.

use std::time::Duration;

use super::Link;
use crate::fields::field_names;

/// Settings of [`SyncFlag`](super::SyncFlag). The links, `tokens_max` and `fields` are recorded in the store when it is opened for the first
/// time, and have to be the same for all who open it.
#[derive(Clone, Debug)]
pub struct SyncFlagOptions {
    /// The collection of the copies.
    pub links: Vec<Link>,
    /// How old a flag must be before the sweeper takes it for left behind; one that is by more than this in the future is, too. Nothing goes wrong if it is too short: two then
    /// do the same work.
    pub abandoned_after: Duration,
    /// Tokens of changes that each main document remembers, so that a late copy of a request does nothing. More than one
    /// main document is changed within the longest time that a request can be under way, at least 1.
    pub tokens_max: u32,
    /// Names of fields of main documents; those of copies are settings of their [`Link`].
    pub fields: SyncFields,
}

impl SyncFlagOptions {
    /// The settings of the seed: a flag is left behind when it is an hour old.
    pub fn new(links: impl IntoIterator<Item = Link>) -> Self {
        SyncFlagOptions {
            links: links.into_iter().collect(),
            abandoned_after: Duration::from_secs(3600),
            tokens_max: 20,
            fields: SyncFields::default(),
        }
    }
}

field_names! {
    /// Names of fields of main documents.
    pub struct SyncFields {
        /// The flag: when the change was made that is under way, by the store's clock.
        syncing: "syncing" in "a main document",
        /// How often it has been changed.
        version: "syncVersion" in "a main document",
        /// It is to be deleted.
        deleted: "syncDeleted" in "a main document",
        /// The last changes.
        tokens: "syncTokens" in "a main document",
    }
}
