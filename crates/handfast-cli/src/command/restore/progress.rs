//! The progress of a restore, for the message when it is interrupted.

use std::fmt;

use crate::listing::counted;
use handfast_store::Namespace;

/// Collections that a message names; more are counted.
const NAMED_MAX: usize = 20;

/// The collections and documents that a restore has inserted.
#[derive(Debug, Default)]
pub(crate) struct RestoreProgress {
    /// Finished collections, with the number of documents inserted.
    whole: Vec<(Namespace, u64)>,
    /// The current collection.
    begun: Option<(Namespace, u64)>,
    /// Whether a batch is being inserted, which may be in the store.
    under_way: bool,
    /// Collections that are not begun yet.
    left: usize,
}

impl RestoreProgress {
    /// Begins the progress of a restore of `collections` collections.
    pub(super) fn begin(&mut self, collections: usize) {
        *self = RestoreProgress { left: collections, ..RestoreProgress::default() };
    }

    pub(super) fn collection(&mut self, namespace: &Namespace) {
        self.left = self.left.saturating_sub(1);
        self.begun = Some((namespace.clone(), 0));
    }

    /// Notes that a batch is being inserted, which the store finishes even if the restore is stopped.
    pub(super) fn batch(&mut self) {
        self.under_way = true;
    }

    pub(super) fn documents(&mut self, inserted: u64) {
        self.under_way = false;
        if let Some((_, documents)) = &mut self.begun {
            *documents += inserted;
        }
    }

    pub(super) fn collection_is_whole(&mut self) {
        self.whole.extend(self.begun.take());
    }
}

impl fmt::Display for RestoreProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.whole[..] {
            [] => f.write_str("no collection is restored")?,
            whole => {
                f.write_str("restored are ")?;
                for (number, (namespace, documents)) in whole.iter().take(NAMED_MAX).enumerate() {
                    let comma = if number == 0 { "" } else { ", " };
                    write!(f, "{comma}{namespace} ({})", counted(*documents, "documents"))?;
                }
                if whole.len() > NAMED_MAX {
                    write!(f, " and {} more", whole.len() - NAMED_MAX)?;
                }
            }
        }
        if let Some((namespace, documents)) = &self.begun {
            let or_more = if self.under_way { "at least " } else { "" };
            write!(f, "; {or_more}{} of {namespace} are restored", counted(*documents, "documents"))?;
        }
        if self.left > 0 {
            write!(f, "; collections not begun: {}", self.left)?;
        }
        Ok(())
    }
}
