//! Settings: links, field names, and the age at which a flag counts as left behind.

use std::time::Duration;

use super::Link;
use crate::fields::field_names;

/// Settings of [`SyncFlag`](super::SyncFlag). The links, `tokens_max` and `fields` are recorded in the store when it
/// is opened for the first time, and must be the same in all processes that open it.
#[derive(Clone, Debug)]
pub struct SyncFlagOptions {
    /// The links from main documents to their copies.
    pub links: Vec<Link>,
    /// The age from which the sweeper treats a flag as left behind. A flag that is further in the future than this is
    /// treated in the same way. If it is too short, two processes do the same work, which does no harm.
    pub abandoned_after: Duration,
    /// The number of tokens of changes that each main document keeps, so that a late copy of a request does nothing.
    /// It must be at least 1, and greater than the number of changes of one main document within the longest time that
    /// a request can be under way.
    pub tokens_max: u32,
    /// The field names of main documents; those of copies are settings of their [`Link`].
    pub fields: SyncFields,
}

impl SyncFlagOptions {
    /// Creates the settings of the seed: a flag is left behind when it is an hour old.
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
    /// The field names of main documents.
    pub struct SyncFields {
        /// The flag: the time of the change that is under way, by the store's clock.
        syncing: "syncing" in "a main document",
        /// The number of its changes.
        version: "syncVersion" in "a main document",
        /// Whether it is to be deleted.
        deleted: "syncDeleted" in "a main document",
        /// The tokens of its last changes.
        tokens: "syncTokens" in "a main document",
    }
}

impl SyncFields {
    /// Returns the paths of the fields of main documents that the pattern keeps.
    pub(super) fn paths(&self) -> [&str; 4] {
        [&self.syncing, &self.version, &self.deleted, &self.tokens].map(String::as_str)
    }
}
