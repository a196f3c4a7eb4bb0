//! The self-check: the total of each item is its base and the sum of its days; and the repair of totals that are not.
//!
//! A repair computes a total again in a transaction that writes the item's document of `totals`, as everything does that changes the base or the
//! days of an item. So a batch, an import or a removal of old days that is saved at the same time conflicts with it, and one of the two runs again.
//! Without transactions (`storage/single/verification.rs`), an item whose figures disagree is looked at again, and counted apart if a batch with it is
//! being saved.

use bson::rawdoc;
use handfast_store::{Find, StoreExt as _};
use handfast_txn::Transaction;

use super::single::Checked;
use super::walk::{ItemFigures, Walk};
use super::{Storage, int, months_of, total_id};
use crate::{Error, Item, Kind, Result};

/// The result of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verification {
    /// The number of items, those that cannot be read among them.
    pub items: u64,
    /// The sum of the totals of those that can be read.
    pub views: u64,
    /// The items whose figures disagree.
    pub differences: Vec<Difference>,
    /// The number of items whose figures disagree because a batch with them is being saved, which a storage without transactions shows.
    pub in_progress: u64,
    /// The error of each item that cannot be read.
    pub damaged: Vec<String>,
}

/// An item whose total is not its base and the sum of its days.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The item.
    pub item: Item,
    /// The stored total.
    pub total: u64,
    /// The part of the total that has no days.
    pub base: u64,
    /// The sum of the days.
    pub days: u64,
}

/// A repair of totals, one item after the other.
pub(crate) struct Repair {
    storage: Storage,
    walk: Walk,
}

/// The result of the repair of an item.
pub(crate) enum Repaired {
    /// Its total was right.
    Right(Item),
    /// Its total was another one, and is right now.
    Changed(Difference),
    /// It cannot be read, and was left as it is.
    Unreadable(String),
}

impl Difference {
    /// Returns the total that the base and the days make.
    pub fn right_total(&self) -> u64 {
        self.base.saturating_add(self.days)
    }
}

impl ItemFigures {
    /// Returns the difference of the figures, if there is one.
    pub(super) fn difference(&self) -> Result<Option<Difference>> {
        let ItemFigures { item, total, base, .. } = self;
        Ok(match self.right_total()? == *total {
            true => None,
            false => Some(Difference { item: item.clone(), total: *total, base: *base, days: self.days()? }),
        })
    }
}

impl Storage {
    /// Compares the total of each item, or of each item of a kind, with its base and the sum of its days. `progress` is called with the
    /// number of items so far. An item that cannot be read does not end it.
    pub async fn verify(&self, kind: Option<&Kind>, mut progress: impl FnMut(u64)) -> Result<Verification> {
        let mut walk = self.walk(kind).await?;
        let mut result = Verification::default();
        while let Some(figures) = walk.next().await? {
            result.items += 1;
            let found = figures.and_then(|figures| Ok((figures.total, figures.difference()?)));
            let found = match found {
                Ok((total, Some(difference))) => self.checked(difference).await.map(|checked| (total, checked)),
                other => other.map(|(total, _)| (total, Checked::Right)),
            };
            match unless_damaged(found)? {
                Ok((total, checked)) => {
                    result.views = result.views.saturating_add(total);
                    match checked {
                        Checked::Right => {}
                        Checked::Wrong(difference) => result.differences.push(difference),
                        Checked::InProgress => result.in_progress += 1,
                    }
                }
                Err(what) => result.damaged.push(what),
            }
            progress(result.items);
        }
        Ok(result)
    }

    /// Begins a repair of all totals, or of those of a kind.
    pub(crate) async fn repair(&self, kind: Option<&Kind>) -> Result<Repair> {
        Ok(Repair { storage: self.clone(), walk: self.walk(kind).await? })
    }

    /// Looks at an item again whose figures were read at different moments.
    async fn checked(&self, difference: Difference) -> Result<Checked> {
        match self.database {
            Some(_) => Ok(Checked::Wrong(difference)),
            None => self.check_item(&difference.item).await,
        }
    }

    async fn rebuild_item(&self, item: &Item) -> Result<Option<Difference>> {
        let Some(database) = &self.database else { return self.rebuild_single(item).await };
        database.transaction(|transaction| async move { self.rebuild_in(&transaction, item).await }).await
    }

    /// Sets the total of an item, unless it is right, as another transaction may have made it.
    async fn rebuild_in(&self, transaction: &Transaction, item: &Item) -> Result<Option<Difference>> {
        let Item { kind, id } = item;
        let by_id = rawdoc! { "_id": total_id(kind, id) };
        let total = transaction.find_one(&self.totals, by_id.clone()).await?;
        let months = transaction.find_all(Find::new(self.days.clone(), months_of(kind, id))).await?;
        let difference = ItemFigures::read(item.clone(), total.as_deref(), &months)?.difference()?;
        if let Some(difference) = &difference {
            let change = rawdoc! { "$set": { "total": int(difference.right_total()) } };
            transaction.upsert_one(&self.totals, by_id, change).await?;
        }
        Ok(difference)
    }
}

impl Repair {
    /// Sets the total of the next item, in a transaction, if it differs from the base and the sum of the days; `None` behind the last one.
    pub(crate) async fn next(&mut self) -> Result<Option<Repaired>> {
        let Some(figures) = self.walk.next().await? else { return Ok(None) };
        let found = figures.and_then(|figures| Ok((figures.difference()?.is_some(), figures.item)));
        let repaired = match found {
            Ok((true, item)) => {
                let changed = self.storage.rebuild_item(&item).await;
                changed.map(|changed| changed.map_or(Repaired::Right(item), Repaired::Changed))
            }
            Ok((false, item)) => Ok(Repaired::Right(item)),
            Err(error) => Err(error),
        };
        Ok(Some(unless_damaged(repaired)?.unwrap_or_else(Repaired::Unreadable)))
    }
}

/// Returns what is wrong with a damaged item apart from other errors, which end a walk.
fn unless_damaged<T>(result: Result<T>) -> Result<Result<T, String>> {
    match result {
        Ok(found) => Ok(Ok(found)),
        Err(Error::Damaged { what }) => Ok(Err(what)),
        Err(error) => Err(error),
    }
}
