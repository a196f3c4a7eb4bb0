//! Pins and names, which keep versions from being pruned.
//!
//! A pin is written *before* its reader reads the root, and a root is marked *before* the pruner reads the pins (see
//! the module `prune`). So either the reader sees the mark and gives up its pin, or the pruner sees the pin and keeps
//! the version.

use bson::oid::ObjectId;
use bson::{Bson, Document, doc};

use super::{Snapshot, VersionState, VersionedTree};
use crate::value::{integer, is_lapsed};
use crate::{Error, Result};

/// Limit on the pins and names of one tree, as a prune holds them all in memory.
const PINS_MAX: u32 = 100_000;

/// A reader's hold on a version, which ends when it is released or was not renewed for longer than the lease.
pub struct Pin {
    snapshot: Snapshot,
    id: ObjectId,
}

impl Snapshot {
    /// Keeps the version from being pruned while a reader needs it; `None` if it is being pruned already.
    ///
    /// # Cancellation
    /// The version may be pinned until the lease runs out.
    pub async fn pin(&self) -> Result<Option<Pin>> {
        let pin = Pin { snapshot: self.clone(), id: self.tree().sources.ids.object_id() };
        if pin.hold(true).await? && pin.snapshot.tree().can_be_pinned(self.version()).await? {
            return Ok(Some(pin));
        }
        pin.release().await?;
        Ok(None)
    }
}

impl Pin {
    /// Returns the version that is pinned.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// Extends the pin by another lease; returns `false` if the lease had run out and a sweep has removed the pin.
    pub async fn renew(&self) -> Result<bool> {
        Ok(self.hold(false).await? && self.snapshot.tree().can_be_pinned(self.snapshot.version()).await?)
    }

    /// Releases the pin.
    ///
    /// # Errors
    /// [`Error::Store`] if the store fails: the pin ends with its lease.
    pub async fn release(self) -> Result<()> {
        self.snapshot.tree().pins.delete_one(&doc! { "_id": self.id }).await.map(|_| ())
    }

    async fn hold(&self, new: bool) -> Result<bool> {
        let tree = self.snapshot.tree();
        let (filter, fields) = (doc! { "_id": self.id }, tree.fields());
        let set = doc! { &fields.tree: tree.root().clone(), &fields.version: self.snapshot.version() };
        let update = doc! { "$set": set, "$currentDate": { &fields.ts: true } };
        if new {
            return tree.pins.upsert_one(&filter, &update).await.map(|_| true);
        }
        tree.pins.update_one(&filter, &update).await
    }
}

impl VersionedTree {
    /// Gives a version a name. The version can be found by the name, and is kept for as long as it has it. If another
    /// version has the name, the name moves. Returns `false` if there is no such version, or it is being pruned.
    ///
    /// # Cancellation
    /// The version may have the name.
    pub async fn name(&self, version: i64, name: &str) -> Result<bool> {
        if !self.can_be_pinned(version).await? {
            return Ok(false);
        }
        let fields = self.fields();
        let set = doc! { &fields.tree: self.root().clone(), &fields.version: version, &fields.name: name };
        self.pins.upsert_one(&self.named(name), &doc! { "$set": set }).await?;
        if self.can_be_pinned(version).await? {
            return Ok(true);
        }
        let mut ours = self.named(name);
        ours.insert(&fields.version, version);
        self.pins.delete_one(&ours).await?;
        Ok(false)
    }

    /// Removes a name; returns whether there was one.
    pub async fn unname(&self, name: &str) -> Result<bool> {
        self.pins.delete_one(&self.named(name)).await
    }

    /// Returns the version that has a name.
    ///
    /// # Errors
    /// [`Error::Damaged`] for a name without a version.
    pub async fn named_version(&self, name: &str) -> Result<Option<i64>> {
        let found = self.pins.find_one(&self.named(name)).await?;
        found
            .map(|pin| integer(&pin, &self.fields().version).map_err(|error| self.pins.damaged(&pin, error)))
            .transpose()
    }

    /// Returns all names with their versions.
    pub async fn names(&self) -> Result<Vec<(String, i64)>> {
        let fields = self.fields();
        let names = self.all_pins().await?.into_iter().filter_map(|pin| {
            let name = pin.get_str(&fields.name).ok()?.to_owned();
            Some(integer(&pin, &fields.version).map(|version| (name, version)))
        });
        names.collect()
    }

    /// Returns the versions that a name or a pin keeps.
    pub(super) async fn pinned(&self) -> Result<Vec<i64>> {
        let (fields, now, lease) = (self.fields(), self.now(), self.options.pin_lease);
        let holds = |pin: &Document| {
            // A name has no lease.
            pin.contains_key(&fields.name) || pin.get_datetime(&fields.ts).is_ok_and(|ts| !is_lapsed(*ts, now, lease))
        };
        let pins = self.all_pins().await?;
        pins.iter().filter(|pin| holds(pin)).map(|pin| integer(pin, &fields.version)).collect()
    }

    /// Removes pins whose lease has run out; returns their number.
    pub(super) async fn unpin_silent(&self) -> Result<u64> {
        let mut removed = 0;
        for mut silent in self.requests().silent(self.now(), self.options.pin_lease) {
            silent.insert(&self.fields().name, doc! { "$exists": false });
            removed += self.pins.delete_many(&silent).await?;
        }
        Ok(removed)
    }

    async fn all_pins(&self) -> Result<Vec<Document>> {
        let pins = self.pins.find(&self.requests().of_tree(), &doc! {}, PINS_MAX + 1).await?;
        if pins.len() > PINS_MAX as usize {
            return Err(Error::invalid(format!("more than {PINS_MAX} pins and names of one tree: remove some")));
        }
        Ok(pins)
    }

    async fn can_be_pinned(&self, version: i64) -> Result<bool> {
        Ok(self.show(version).await?.is_some_and(|version| version.state == VersionState::Committed))
    }

    fn named(&self, name: &str) -> Document {
        doc! { "_id": { "tree": self.root().clone(), "name": Bson::from(name) } }
    }
}
