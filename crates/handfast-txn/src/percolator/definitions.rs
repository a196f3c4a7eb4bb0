//! The catalog in the store: read when its version has changed, and changed by compare-and-set.

use std::sync::{Arc, Mutex};

use bson::rawdoc;
use handfast_mql::Code;
use handfast_store::{
    Error as StoreError, ErrorClass, Insert, Namespace, Result as StoreResult, StoreExt, Update, UpdateSpec,
    UpdateStatement,
};

use super::catalog::{CATALOG, Catalog, IndexId};
use super::core::{Core, conflict, lock};

/// The collection of the catalog, in the engine's own database.
const COLLECTION: &str = "catalog";
/// Attempts at a change of the catalog: others have changed it each time, or an answer got lost.
const ATTEMPTS_MAX: usize = 64;

/// The catalog as it was read last.
#[derive(Default)]
pub(super) struct Definitions {
    newest: Mutex<Arc<Catalog>>,
}

/// Which unique indexes a transaction has kept in each collection that it writes.
#[derive(Debug, Default)]
pub(super) struct Relied {
    version: u64,
    indexes: Vec<(Namespace, Vec<IndexId>)>,
}

impl Relied {
    /// What is to be kept in these collections by a version of the catalog.
    pub(super) fn on(catalog: &Catalog, version: u64, namespaces: impl IntoIterator<Item = Namespace>) -> Self {
        let of = |namespace: &Namespace| catalog.unique(namespace, version).map(|kept| kept.id).collect();
        let mut namespaces: Vec<_> = namespaces.into_iter().collect();
        namespaces.dedup();
        let indexes = namespaces.into_iter().map(|namespace| (namespace.clone(), of(&namespace))).collect();
        Relied { version, indexes }
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
        let found = self.rows.store.find_one(&namespace()?, rawdoc! { "_id": CATALOG }).await?;
        let read = Arc::new(found.map_or(Ok(Catalog::default()), |document| Catalog::from_document(&document))?);
        let mut newest = lock(&self.definitions.newest);
        if read.version > newest.version {
            *newest = Arc::clone(&read);
        }
        Ok(read)
    }

    /// Changes the catalog, and puts the change in force. The function may be called several times, on what is there then:
    /// also on what it has made of it before, if the answer to that got lost. What it leaves as it is is not written.
    ///
    /// # Errors
    /// Those of the store: it may be changed, and in force or not. Those of the function.
    pub(super) async fn change_catalog<T>(
        &self,
        change: impl Fn(&mut Catalog) -> StoreResult<T> + Send + Sync,
    ) -> StoreResult<T> {
        for _ in 0..ATTEMPTS_MAX {
            let before = self.newest_catalog().await?;
            let mut next = before.next();
            let answer = change(&mut next)?;
            let is_same = next.is_same(&before);
            if is_same || self.replace_catalog(before.version, &next).await? {
                // What is there may be so since an answer got lost, and not be announced.
                let version = if is_same { before.version } else { next.version };
                if version > 0 {
                    self.oracle.announce(version).await?;
                }
                return Ok(answer);
            }
        }
        Err(conflict("the catalog of indexes was changed by others again and again"))
    }

    /// Puts a version in the place of the one before; `false` if another one is there, or if the answer got lost.
    async fn replace_catalog(&self, before: u64, next: &Catalog) -> StoreResult<bool> {
        let (namespace, document) = (namespace()?, next.to_document());
        let result = if before == 0 {
            let outcome = self.rows.store.insert(Insert::new(namespace, vec![document])).await;
            outcome.map(|outcome| (outcome.inserted > 0, outcome.errors))
        } else {
            let version = i64::try_from(before).unwrap_or(i64::MAX);
            let filter = rawdoc! { "_id": CATALOG, "v": version };
            let statement = UpdateStatement::one(filter, UpdateSpec::Document(document));
            let outcome = self.rows.store.update(Update::new(namespace, vec![statement])).await;
            outcome.map(|outcome| (outcome.matched > 0, outcome.errors))
        };
        match result.map(|(is_there, errors)| (is_there, errors.into_iter().next())) {
            Ok((is_there, None)) => Ok(is_there),
            Ok((_, Some(refused))) if refused.error.code() == Code::DuplicateKey => Ok(false),
            Ok((_, Some(refused))) => Err(refused.error),
            Err(error) if error.class() == ErrorClass::TransientNetwork => Ok(false),
            Err(error) => Err(error),
        }
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
        let is_same = |(namespace, ids): &(Namespace, Vec<IndexId>)| {
            catalog.unique(namespace, version).map(|kept| kept.id).eq(ids.iter().copied())
        };
        match relied.indexes.iter().find(|of| !is_same(of)) {
            None => Ok(()),
            Some((namespace, _)) => Err(conflict(format_args!("the unique indexes of {namespace} have changed"))),
        }
    }
}

fn namespace() -> Result<Namespace, StoreError> {
    Namespace::new(super::DATABASE, COLLECTION)
}
