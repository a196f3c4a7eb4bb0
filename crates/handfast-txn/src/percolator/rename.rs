//! Giving a collection another name.
//!
//! It is closed meanwhile, as for a drop ([`super::departures`]). If it has unique indexes: the name is the store's to change, the indexes' rows do not have it in them; only the catalog has both:
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

use handfast_store::{Applied, Namespace, RenameCollection, Result as StoreResult};

use super::build::BUILDING_TTL;
use super::catalog::{Catalog, IndexId, Kept};
use super::closures::{Part, over_after};
use super::core::{Core, conflict};
use super::departures::{Closed, Going, to_the_end};
use super::row::Timestamp;

impl Core {
    /// Gives a collection another name.
    pub(super) async fn rename_collection(self: &Arc<Self>, request: RenameCollection) -> StoreResult<()> {
        // Before the target's indexes go.
        self.rows.store.check_rename(&request.from, &request.to)?;
        if request.from == request.to {
            return self.rows.store.rename_collection(request).await;
        }
        let core = Arc::clone(self);
        to_the_end(async move {
            let of = [&request.from, &request.to].map(|namespace| Part::Collection(namespace.clone()));
            let mut closed = core.close(&of).await?;
            let renamed = core.rename_closed(request, of.into(), &mut closed).await;
            core.open(closed).await;
            core.remove_what_was_let_go().await;
            renamed
        })
        .await
    }

    async fn rename_closed(&self, request: RenameCollection, of: Vec<Part>, closed: &mut Closed) -> StoreResult<()> {
        let (from, to) = (request.from.clone(), request.to.clone());
        let dropped = if request.drop_target { vec![Part::Collection(to.clone())] } else { Vec::new() };
        self.settle_going(&Going { of, dropped }).await?;
        let catalog = self.newest_catalog().await?;
        let has_indexes = catalog.staying(|of| *of == from || *of == to).next().is_some();
        if !has_indexes || !self.can_be_renamed(&request).await? {
            self.check_in_time(closed)?;
            return closed.sent(self.rows.store.rename_collection(request).await);
        }
        self.check_in_time(closed)?;
        let now = self.oracle.next().await?;
        let moving = self.change_catalog(|catalog| Ok(double(catalog, &from, &to, now))).await?;
        let renamed = match self.check_in_time(closed) {
            Ok(()) => closed.sent(self.rows.store.rename_collection(request).await),
            late => late,
        };
        let gone = match &renamed {
            Ok(()) => &from,
            Err(error) if error.applied() == Applied::No => &to,
            Err(_) => return renamed,
        };
        let is_whole = self.change_catalog(|catalog| Ok(single(catalog, &moving, gone))).await?;
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

    /// Ends what was begun by those who give no sign of life any more.
    pub(super) async fn clean_doubles(&self, now: Timestamp) -> StoreResult<()> {
        let catalog = self.newest_catalog().await?;
        for (old, new) in catalog.doubles() {
            // Before that the store may still rename what it was asked to.
            if now <= new.alive.plus(BUILDING_TTL.max(over_after(self.options.retention))) {
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
