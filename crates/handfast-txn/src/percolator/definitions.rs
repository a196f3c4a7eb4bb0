//! The catalog in the store: read when its version has changed, and changed by compare-and-set.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use handfast_store::{Namespace, Read, Result as StoreResult};

use super::catalog::{Catalog, IndexId};
use super::core::{Core, conflict, lock};
use super::mapping::NameTarget;
use super::snapshot::PercolatorSnapshot;

/// The most attempts at locating the collections of a commit. An attempt fails if others have dropped one.
const ATTEMPTS_MAX: usize = 8;

/// The catalog as it was read last.
#[derive(Default)]
pub(super) struct Definitions {
    newest: Mutex<Arc<Catalog>>,
    /// Held while the catalog is changed: changes of one process do not conflict.
    changing: tokio::sync::Mutex<()>,
}

/// The part of the catalog that a commit depends on. The commit is refused if it is different in the version at its commit timestamp.
#[derive(Debug)]
pub(super) struct Dependencies {
    version: u64,
    /// The stored collection of each name that it has used.
    names: BTreeMap<Namespace, Option<Namespace>>,
    /// The unique indexes of each collection that it writes.
    indexes: Vec<(Namespace, Vec<IndexId>)>,
}

/// The collections that a commit writes to and has read, in one version of the catalog.
pub(super) struct LocatedCollections {
    pub(super) catalog: Arc<Catalog>,
    pub(super) version: u64,
    pub(super) dependencies: Dependencies,
}

impl Dependencies {
    /// Returns dependencies on the unique indexes of these stored collections in a version of the catalog.
    pub(super) fn on_indexes(
        catalog: &Catalog,
        version: u64,
        collections: impl IntoIterator<Item = Namespace>,
    ) -> Self {
        let of = |collection: &Namespace| catalog.unique(collection, version).map(|kept| kept.id).collect();
        let indexes = collections.into_iter().map(|collection| (collection.clone(), of(&collection))).collect();
        Dependencies { version, names: BTreeMap::new(), indexes }
    }

    /// Returns the stored collection of a name.
    pub(super) fn collection(&self, name: &Namespace) -> Option<&Namespace> {
        self.names.get(name).and_then(Option::as_ref)
    }
}

impl Core {
    /// Returns the catalog, with the version that was in force at the last timestamp of this process.
    pub(super) async fn catalog(&self) -> StoreResult<(Arc<Catalog>, u64)> {
        let version = self.oracle.catalog();
        Ok((self.catalog_of(version).await?, version))
    }

    /// Returns the same as [`Core::catalog`], if that takes no request.
    pub(super) fn catalog_at_hand(&self) -> Option<(Arc<Catalog>, u64)> {
        let version = self.oracle.catalog();
        let newest = Arc::clone(&lock(&self.definitions.newest));
        (newest.version >= version).then_some((newest, version))
    }

    /// Returns a catalog at least as new as this version, which was announced.
    pub(super) async fn catalog_of(&self, version: u64) -> StoreResult<Arc<Catalog>> {
        let newest = Arc::clone(&lock(&self.definitions.newest));
        if newest.version >= version { Ok(newest) } else { self.newest_catalog().await }
    }

    /// Reads the catalog from the store.
    pub(super) async fn newest_catalog(&self) -> StoreResult<Arc<Catalog>> {
        let read = Arc::new(self.rows.read_versioned::<Catalog>().await?);
        self.learn_catalog(&read);
        Ok(read)
    }

    fn learn_catalog(&self, read: &Arc<Catalog>) {
        let mut newest = lock(&self.definitions.newest);
        if read.version > newest.version {
            *newest = Arc::clone(read);
            self.forget_checked();
        }
    }

    /// Changes the catalog, and puts the change in force. The function may be called several times, as that of
    /// [`change_versioned`](super::rows::Rows::change_versioned).
    ///
    /// # Errors
    /// Errors of the function. After an error of the store the catalog may be changed, and in force or not.
    pub(super) async fn change_catalog<T>(
        &self,
        change: impl Fn(&mut Catalog) -> StoreResult<T> + Send + Sync,
    ) -> StoreResult<T> {
        let _turn = self.definitions.changing.lock().await;
        let (answer, catalog) = self.rows.change_versioned::<Catalog, T>(change).await?;
        let catalog = Arc::new(catalog);
        self.learn_catalog(&catalog);
        // An unchanged catalog may be one whose announcement got lost.
        if catalog.version > 0 {
            self.oracle.announce(catalog.version).await?;
        }
        Ok(answer)
    }

    /// Locates the stored collections that a commit writes to and has read. Creates those to write to that do not exist.
    ///
    /// # Errors
    /// `WriteConflict` (112) if one of the names stood for another collection when the transaction began.
    pub(super) async fn locate(
        &self,
        snapshot: &PercolatorSnapshot,
        written: &BTreeSet<Namespace>,
        reads: &[Read],
    ) -> StoreResult<LocatedCollections> {
        let read = snapshot.names();
        let checked: BTreeSet<_> = reads.iter().map(namespace_of).collect();
        for _ in 0..ATTEMPTS_MAX {
            let (catalog, version) = self.catalog().await?;
            let mut names = BTreeMap::new();
            for name in written.iter().chain(&read).chain(checked.iter().copied()) {
                let before = catalog.mapping.collection(name, snapshot.catalog);
                let now = catalog.mapping.collection(name, version);
                if before.is_some() && before != now {
                    return Err(collection_changed(name));
                }
                // A name without a collection at the start was read as empty, and needs no check.
                if before.is_some() || written.contains(name) || checked.contains(name) {
                    names.insert(name.clone(), now);
                }
            }
            // After the check above, so that a collection that was dropped since the start is not created again.
            if self.make_missing(&catalog, version, written).await? {
                continue;
            }
            let collections: BTreeSet<_> =
                written.iter().filter_map(|name| names.get(name).cloned().flatten()).collect();
            let dependencies = Dependencies { names, ..Dependencies::on_indexes(&catalog, version, collections) };
            return Ok(LocatedCollections { catalog, version, dependencies });
        }
        Err(conflict("the collections that the transaction writes to were dropped again and again"))
    }

    /// Creates the collections of a commit that do not exist. Returns whether there were any.
    async fn make_missing(&self, catalog: &Catalog, version: u64, written: &BTreeSet<Namespace>) -> StoreResult<bool> {
        let mut were_missing = false;
        for name in written.iter().filter(|name| !is_fixed(name)) {
            let is_missing = match catalog.mapping.name_target(name, version) {
                NameTarget::Collection(_) => false,
                NameTarget::Nothing => true,
                NameTarget::Unlisted => !self.is_checked(name) && !self.is_in_store(name).await?,
            };
            if is_missing {
                self.make_collection(name).await?;
                were_missing = true;
            }
        }
        Ok(were_missing)
    }

    /// Checks that the dependencies of a commit are the same in a version that is in force now.
    ///
    /// # Errors
    /// `WriteConflict` (112) if they have changed.
    pub(super) async fn check_dependencies(&self, on: &Dependencies, version: u64) -> StoreResult<()> {
        if version == on.version {
            return Ok(());
        }
        let catalog = self.catalog_of(version).await?;
        let is_same = |(name, collection): &(&Namespace, &Option<Namespace>)| {
            catalog.mapping.collection(name, version) == **collection
        };
        if let Some((name, _)) = on.names.iter().find(|of| !is_same(of)) {
            return Err(collection_changed(name));
        }
        let is_same = |(collection, ids): &(Namespace, Vec<IndexId>)| {
            catalog.unique(collection, version).map(|kept| kept.id).eq(ids.iter().copied())
        };
        match on.indexes.iter().find(|of| !is_same(of)) {
            None => Ok(()),
            Some((collection, _)) => {
                let name = catalog.mapping.name_of(collection);
                Err(conflict(format_args!("the unique indexes of {name} have changed")))
            }
        }
    }
}

/// Returns whether a name always stands for the collection of that name: the engine's own, and records of outcomes.
pub(super) fn is_fixed(name: &Namespace) -> bool {
    name.database() == super::DATABASE || handfast_store::Ticket::namespace().is_ok_and(|records| records == *name)
}

fn namespace_of(read: &Read) -> &Namespace {
    match read {
        Read::Document(namespace, _) | Read::Matching { namespace, .. } => namespace,
    }
}

fn collection_changed(name: &Namespace) -> handfast_store::Error {
    conflict(format_args!("the collection {name} was created, dropped or renamed since the transaction began"))
}
