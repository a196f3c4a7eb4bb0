//! The self-check beside processes that save: figures that disagree are looked at again, at one moment.
//!
//! The documents of an item are read, then the batches that are being saved, then the documents again. If they are the same, they were so all the time
//! in between, as each change gives a document another version. So at the moment at which the batches were read, either one of them
//! has the item and is not in all of its documents yet, or the difference is real.

use bson::{RawDocumentBuf, rawdoc};
use handfast_store::{Find, StoreExt as _};

use super::super::verification::Difference;
use super::super::walk::ItemFigures;
use super::super::{Storage, int, months_of, total_id};
use super::ATTEMPTS_MAX;
use super::document::{CountedDocument, Shape};
use crate::{Item, Result};

/// The figures of an item at one moment.
pub(in crate::storage) enum Checked {
    /// The total is the base and the sum of the days.
    Right,
    /// It is not, and no batch is the reason.
    Wrong(Difference),
    /// A batch with the item is being saved.
    InProgress,
}

/// The documents of an item: the total, and the months in their order.
type Documents = (Option<RawDocumentBuf>, Vec<RawDocumentBuf>);

impl Storage {
    /// Compares the figures of an item at one moment.
    pub(in crate::storage) async fn check_item(&self, item: &Item) -> Result<Checked> {
        Ok(self.check_documents(item).await?.0)
    }

    /// Returns the figures of an item at one moment, or, if others change it all the time, the last that were read.
    pub(in crate::storage) async fn figures_of_item(&self, item: &Item) -> Result<ItemFigures> {
        let mut documents = self.documents_of_item(item).await?;
        for _ in 0..ATTEMPTS_MAX {
            let before = std::mem::replace(&mut documents, self.documents_of_item(item).await?);
            if before == documents {
                break;
            }
        }
        ItemFigures::read(item.clone(), documents.0.as_deref(), &documents.1)
    }

    async fn check_documents(&self, item: &Item) -> Result<(Checked, Option<RawDocumentBuf>)> {
        let mut documents = self.documents_of_item(item).await?;
        for _ in 0..ATTEMPTS_MAX {
            let is_being_saved = self.is_being_saved(item).await?;
            let again = self.documents_of_item(item).await?;
            if again == documents {
                let figures = ItemFigures::read(item.clone(), again.0.as_deref(), &again.1)?;
                let checked = match figures.difference()? {
                    None => Checked::Right,
                    Some(_) if is_being_saved => Checked::InProgress,
                    Some(difference) => Checked::Wrong(difference),
                };
                return Ok((checked, again.0));
            }
            documents = again;
        }
        Ok((Checked::InProgress, None))
    }

    /// Sets the total of an item to its base and the sum of its days, unless a batch with the item is being saved.
    pub(in crate::storage) async fn rebuild_single(&self, item: &Item) -> Result<Option<Difference>> {
        let id = total_id(&item.kind, &item.id);
        for _ in 0..ATTEMPTS_MAX {
            let (Checked::Wrong(difference), total) = self.check_documents(item).await? else { return Ok(None) };
            let counted = total.map(|total| CountedDocument::read(Shape::Total, &total)).transpose()?.flatten();
            let Some(counted) = counted else {
                self.create(&self.totals, Shape::Total, vec![id.clone()]).await?;
                continue;
            };
            // A batch changes the total before the months, so no month has changed if the total has not.
            let right = rawdoc! { "$inc": { "version": 1_i64 }, "$set": { "total": int(difference.right_total()) } };
            if self.store.update_one(&self.totals, counted.unchanged(&id), right).await?.matched > 0 {
                return Ok(Some(difference));
            }
        }
        Err(super::contended(&item.kind))
    }

    async fn documents_of_item(&self, item: &Item) -> Result<Documents> {
        let Item { kind, id } = item;
        let total = self.store.find_one(&self.totals, rawdoc! { "_id": total_id(kind, id) }).await?;
        let sort = rawdoc! { "_id": 1 };
        let months = Find { sort, ..Find::new(self.days.clone(), months_of(kind, id)) };
        Ok((total, self.store.find_all(months).await?))
    }

    /// Returns whether a batch with the item is admitted.
    async fn is_being_saved(&self, item: &Item) -> Result<bool> {
        let Some(bound) = self.bound_of(&item.kind).await? else { return Ok(false) };
        for range in bound.saving {
            if self.record_has(&item.kind, range, &item.id).await? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
