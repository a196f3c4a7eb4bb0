//! Giving a collection with unique indexes another name.
//!
//! The name is the store's to change, the indexes' rows do not have it in them; only the catalog has both:
//!
//! ```text
//! catalog: under both names       whichever of the two is there, its indexes are kept
//! the store renames               one step
//! catalog: under the new name
//! ```
//!
//! What if the process dies: the indexes stay under both names, until a cleaner sees that there is no further sign of life,
//! and which of the collections is there. The target's own indexes go in the first step, as for a drop.

use std::sync::Arc;

use handfast_store::{Applied, Error as StoreError, Namespace, RenameCollection, Result as StoreResult};

use super::build::BUILDING_TTL;
use super::catalog::{Catalog, IndexId, Kept};
use super::core::{Core, conflict};
use super::row::Timestamp;

impl Core {
    /// Gives a collection another name.
    pub(super) async fn rename_collection(&self, request: RenameCollection) -> StoreResult<()> {
        self.settle_all().await?;
        let (from, to) = (request.from.clone(), request.to.clone());
        let catalog = self.newest_catalog().await?;
        let has_indexes = catalog.staying(|of| *of == from || *of == to).next().is_some();
        if !has_indexes || from == to || !self.can_be_renamed(&request).await? {
            return self.rows.store.rename_collection(request).await;
        }
        let now = self.oracle.next().await?;
        let moving = self.change_catalog(|catalog| Ok(double(catalog, &from, &to, now))).await?;
        let renamed = self.rows.store.rename_collection(request).await;
        let gone = match &renamed {
            Ok(()) => &from,
            Err(error) if error.applied() == Applied::No => &to,
            Err(_) => return renamed,
        };
        let is_whole = self.change_catalog(|catalog| Ok(single(catalog, &moving, gone))).await?;
        self.remove_dropped().await?;
        if renamed.is_ok() && !is_whole {
            let text =
                format_args!("renaming {from} took so long that indexes of {to} were dropped: create them again");
            return Err(conflict(text));
        }
        renamed
    }

    /// Whether the store will not refuse: the target's indexes go before that.
    async fn can_be_renamed(&self, request: &RenameCollection) -> StoreResult<bool> {
        Ok(self.is_there(&request.from).await? && (request.drop_target || !self.is_there(&request.to).await?))
    }

    async fn is_there(&self, namespace: &Namespace) -> StoreResult<bool> {
        let collections = self.rows.store.list_collections(namespace.database()).await?;
        Ok::<_, StoreError>(collections.iter().any(|info| info.name == namespace.collection()))
    }

    /// Ends what was begun by those who give no sign of life any more.
    pub(super) async fn clean_doubles(&self, now: Timestamp) -> StoreResult<()> {
        let catalog = self.newest_catalog().await?;
        for (old, new) in catalog.doubles() {
            if now <= new.alive.plus(BUILDING_TTL) {
                continue;
            }
            let is_renamed = !self.is_there(&old.namespace).await? && self.is_there(&new.namespace).await?;
            let gone = if is_renamed { &old.namespace } else { &new.namespace };
            self.change_catalog(|catalog| Ok(single(catalog, &[old.id], gone))).await?;
        }
        Ok(())
    }
}

/// Puts the indexes of a collection under its new name too, and lets those go that are there; returns which those are.
fn double(catalog: &mut Catalog, from: &Namespace, to: &Namespace, now: Timestamp) -> Vec<IndexId> {
    let moving: Vec<Kept> = catalog.staying(|of| of == from).cloned().collect();
    let is_moving = |kept: &Kept| moving.iter().any(|other| other.id == kept.id);
    catalog.drop(|kept| kept.namespace == *to && !is_moving(kept));
    for kept in &moving {
        if !catalog.staying(|of| of == to).any(|other| other.id == kept.id) {
            catalog.add(kept.id, to.clone(), Arc::clone(&kept.index), kept.state, now);
        }
    }
    moving.iter().map(|kept| kept.id).collect()
}

/// Takes indexes out from under a name, if they have another one; whether each of them has.
fn single(catalog: &mut Catalog, ids: &[IndexId], gone: &Namespace) -> bool {
    let others: Vec<_> = catalog.staying(|of| of != gone).map(|kept| kept.id).collect();
    catalog.drop(|kept| kept.namespace == *gone && ids.contains(&kept.id) && others.contains(&kept.id));
    ids.iter().all(|id| others.contains(id))
}
