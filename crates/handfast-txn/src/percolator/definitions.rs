//! The catalog in the store: read when its version has changed, and changed by compare-and-set.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use handfast_store::{Namespace, Read, Result as StoreResult};

use super::catalog::{Catalog, IndexId};
use super::core::{Core, conflict, lock};
use super::mapping::Meaning;
use super::snapshot::PercolatorSnapshot;

/// Times that the collections of a commit are looked up: others have dropped one each time.
const ATTEMPTS_MAX: usize = 8;

/// The catalog as it was read last.
#[derive(Default)]
pub(super) struct Definitions {
    newest: Mutex<Arc<Catalog>>,
    /// Held by who changes it: those of one process take turns, and are not in each other's way.
    changing: tokio::sync::Mutex<()>,
}

/// What of the catalog a commit depends on: it is refused if that is different in the version of its commit timestamp.
#[derive(Debug)]
pub(super) struct Dependencies {
    version: u64,
    /// What each name that it has used stands for.
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
    /// On the unique indexes of these collections of the store, as a version of the catalog has them.
    pub(super) fn on_indexes(
        catalog: &Catalog,
        version: u64,
        collections: impl IntoIterator<Item = Namespace>,
    ) -> Self {
        let of = |collection: &Namespace| catalog.unique(collection, version).map(|kept| kept.id).collect();
        let indexes = collections.into_iter().map(|collection| (collection.clone(), of(&collection))).collect();
        Dependencies { version, names: BTreeMap::new(), indexes }
    }

    /// The collection of the store that a name stands for.
    pub(super) fn collection(&self, name: &Namespace) -> Option<&Namespace> {
        self.names.get(name).and_then(Option::as_ref)
    }
}

impl Core {
    /// The catalog with the version that was in force when a timestamp was fetched here last.
    pub(super) async fn catalog(&self) -> StoreResult<(Arc<Catalog>, u64)> {
        let version = self.oracle.catalog();
        Ok((self.catalog_of(version).await?, version))
    }

    /// The same, if that takes no request.
    pub(super) fn catalog_at_hand(&self) -> Option<(Arc<Catalog>, u64)> {
        let version = self.oracle.catalog();
        let newest = Arc::clone(&lock(&self.definitions.newest));
        (newest.version >= version).then_some((newest, version))
    }

    /// The catalog, at least as new as this version, which was announced. Before the first version there is nothing in it.
    pub(super) async fn catalog_of(&self, version: u64) -> StoreResult<Arc<Catalog>> {
        let newest = Arc::clone(&lock(&self.definitions.newest));
        if newest.version >= version { Ok(newest) } else { self.newest_catalog().await }
    }

    /// The catalog as it is in the store.
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
    /// Those of the store: it may be changed, and in force or not. Those of the function.
    pub(super) async fn change_catalog<T>(
        &self,
        change: impl Fn(&mut Catalog) -> StoreResult<T> + Send + Sync,
    ) -> StoreResult<T> {
        let _turn = self.definitions.changing.lock().await;
        let (answer, catalog) = self.rows.change_versioned::<Catalog, T>(change).await?;
        let catalog = Arc::new(catalog);
        self.learn_catalog(&catalog);
        // What is there may be so since an answer got lost, and not be announced.
        if catalog.version > 0 {
            self.oracle.announce(catalog.version).await?;
        }
        Ok(answer)
    }

    /// The collections of the store that a commit writes to, each of which is made if it is not there, and those that it has
    /// read.
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
                // Where there was nothing, a read found nothing, whatever has come there since.
                if before.is_some() || written.contains(name) || checked.contains(name) {
                    names.insert(name.clone(), now);
                }
            }
            // Only now: what was dropped under the transaction does not come back by it.
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

    /// Makes the collections of a commit that are not there; whether there were such.
    async fn make_missing(&self, catalog: &Catalog, version: u64, written: &BTreeSet<Namespace>) -> StoreResult<bool> {
        let mut were_missing = false;
        for name in written.iter().filter(|name| !is_fixed(name)) {
            let is_missing = match catalog.mapping.meaning(name, version) {
                Meaning::Collection(_) => false,
                Meaning::Nothing => true,
                Meaning::Unlisted => !self.is_checked(name) && !self.is_in_store(name).await?,
            };
            if is_missing {
                self.make_collection(name).await?;
                were_missing = true;
            }
        }
        Ok(were_missing)
    }

    /// Whether what a commit depends on is still so in a version that is in force now.
    ///
    /// # Errors
    /// `WriteConflict` (112) if not.
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

/// Whether a name always stands for the collection of that name: what the engine keeps for itself, and records of outcomes.
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
