//! The catalog in the store: read when its version has changed, and changed by compare-and-set.

use std::sync::{Arc, Mutex};

use handfast_store::{Namespace, Read, Result as StoreResult};

use super::catalog::{Catalog, IndexId};
use super::core::{Core, conflict, lock};

/// The catalog as it was read last.
#[derive(Default)]
pub(super) struct Definitions {
    newest: Mutex<Arc<Catalog>>,
    /// Held by who changes it: those of one process take turns, and are not in each other's way.
    changing: tokio::sync::Mutex<()>,
}

/// Which unique indexes a transaction has kept in each collection that it writes, all of which have to be open.
#[derive(Debug, Default)]
pub(super) struct Relied {
    version: u64,
    /// The version when it began.
    begun: u64,
    indexes: Vec<(Namespace, Vec<IndexId>)>,
    /// Other collections that it has read, if that is to be as it was.
    read: Vec<Namespace>,
}

impl Relied {
    /// What is to be kept in these collections by a version of the catalog, for a transaction that began with this one.
    ///
    /// # Errors
    /// `WriteConflict` (112) if one of them is closed, or was since then.
    pub(super) fn on(
        catalog: &Catalog,
        version: u64,
        begun: u64,
        namespaces: impl IntoIterator<Item = Namespace>,
    ) -> StoreResult<Self> {
        let of = |namespace: &Namespace| catalog.unique(namespace, version).map(|kept| kept.id).collect();
        let mut namespaces: Vec<_> = namespaces.into_iter().collect();
        namespaces.dedup();
        let indexes = namespaces.into_iter().map(|namespace| (namespace.clone(), of(&namespace))).collect();
        let relied = Relied { version, begun, indexes, read: Vec::new() };
        relied.check_open(catalog)?;
        Ok(relied)
    }

    /// The same for one that is to find these collections as it has read them.
    pub(super) fn and_read(self, reads: &[Read]) -> Self {
        let namespace = |read: &Read| match read {
            Read::Document(namespace, _) | Read::Matching { namespace, .. } => namespace.clone(),
        };
        let mut read: Vec<_> = reads.iter().map(namespace).collect();
        read.dedup();
        Relied { read, ..self }
    }

    fn check_open(&self, catalog: &Catalog) -> StoreResult<()> {
        let mut namespaces = self.indexes.iter().map(|(namespace, _)| namespace).chain(&self.read);
        namespaces.try_for_each(|namespace| catalog.closures.check(namespace, self.begun))
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
    async fn catalog_of(&self, version: u64) -> StoreResult<Arc<Catalog>> {
        let newest = Arc::clone(&lock(&self.definitions.newest));
        if newest.version >= version { Ok(newest) } else { self.newest_catalog().await }
    }

    /// The catalog as it is in the store.
    pub(super) async fn newest_catalog(&self) -> StoreResult<Arc<Catalog>> {
        let read = Arc::new(self.rows.whole::<Catalog>().await?);
        self.learn_catalog(&read);
        Ok(read)
    }

    fn learn_catalog(&self, read: &Arc<Catalog>) {
        let mut newest = lock(&self.definitions.newest);
        if read.version > newest.version {
            *newest = Arc::clone(read);
        }
    }

    /// Changes the catalog, and puts the change in force. The function may be called several times, as that of
    /// [`change_whole`](super::rows::Rows::change_whole).
    ///
    /// # Errors
    /// Those of the store: it may be changed, and in force or not. Those of the function.
    pub(super) async fn change_catalog<T>(
        &self,
        change: impl Fn(&mut Catalog) -> StoreResult<T> + Send + Sync,
    ) -> StoreResult<T> {
        let _turn = self.definitions.changing.lock().await;
        let (answer, catalog) = self.rows.change_whole::<Catalog, T>(change).await?;
        let catalog = Arc::new(catalog);
        self.learn_catalog(&catalog);
        // What is there may be so since an answer got lost, and not be announced.
        if catalog.version > 0 {
            self.oracle.announce(catalog.version).await?;
        }
        Ok(answer)
    }

    /// Whether what a transaction relied on is still so in a version that is in force now.
    ///
    /// # Errors
    /// `WriteConflict` (112) if not.
    pub(super) async fn check_relied(&self, relied: &Relied, version: u64) -> StoreResult<()> {
        if version == relied.version {
            return Ok(());
        }
        let catalog = self.catalog_of(version).await?;
        relied.check_open(&catalog)?;
        let is_same = |(namespace, ids): &(Namespace, Vec<IndexId>)| {
            catalog.unique(namespace, version).map(|kept| kept.id).eq(ids.iter().copied())
        };
        match relied.indexes.iter().find(|of| !is_same(of)) {
            None => Ok(()),
            Some((namespace, _)) => Err(conflict(format_args!("the unique indexes of {namespace} have changed"))),
        }
    }
}
