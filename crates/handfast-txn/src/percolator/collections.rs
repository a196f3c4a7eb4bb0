//! Collections as users have them: created, listed, renamed and dropped in the catalog ([`super::mapping`]).
//!
//! Each of these is one change of the catalog, which another process sees from its next timestamp on. Documents are not
//! touched: a collection that was dropped is removed by a cleaner when no snapshot can read it any more.
//!
//! If the process dies before the change of the catalog, the request has no effect; if it dies after it, the request is done. The next
//! change of the catalog, or a cleaner, announces a change that was written and not announced.

use std::collections::{BTreeMap, BTreeSet};

use bson::{RawDocumentBuf, rawdoc};
use handfast_mql::Code;
use handfast_store::{
    Aggregate, AggregateSource, CollectionInfo, CollectionOptions, Error as StoreError, Explain, Explained, IndexInfo,
    Namespace, RenameCollection, Result as StoreResult, StoreExt, check_database_name,
};

use super::catalog::Catalog;
use super::core::{Core, conflict};
use super::definitions::is_fixed;
use super::mapping::{NameTarget, SeenName};
use super::newest::{notice, notice_id};
use super::oracle::Moment;
use super::row::{SafePoint, Timestamp};

/// The most attempts at a rename. An attempt fails if others have changed the target of a name.
const ATTEMPTS_MAX: usize = 32;

/// The target of a name, and whether its collection exists.
struct NameLookup {
    name_target: NameTarget,
    is_there: bool,
}

impl Core {
    /// Returns whether the store has a collection.
    pub(super) async fn is_in_store(&self, collection: &Namespace) -> StoreResult<bool> {
        match self.rows.store.list_indexes(collection).await {
            Ok(_) => Ok(true),
            Err(error) if error.code() == Code::NamespaceNotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Looks a name up in the newest catalog, and puts that in force.
    async fn look_up(&self, name: &Namespace) -> StoreResult<NameLookup> {
        let catalog = self.newest_catalog().await?;
        if catalog.version > self.oracle.catalog() {
            // The process that wrote it may have died before its announcement.
            self.oracle.announce(catalog.version).await?;
        }
        let name_target = catalog.mapping.newest(name);
        let is_there = match &name_target {
            NameTarget::Collection(_) => true,
            NameTarget::Nothing => false,
            NameTarget::Unlisted => self.is_in_store(name).await?,
        };
        Ok(NameLookup { name_target, is_there })
    }

    /// Returns the stored collection of a name in the newest catalog.
    ///
    /// # Errors
    /// `NamespaceNotFound` (26) if there is none.
    pub(super) async fn collection(&self, name: &Namespace) -> StoreResult<Namespace> {
        let catalog = self.newest_catalog().await?;
        catalog.mapping.collection(name, u64::MAX).ok_or_else(|| not_there(name))
    }

    /// Returns the stored collection of a name, with its indexes in the store. Creates it if the process that listed it died before.
    ///
    /// # Errors
    /// `NamespaceNotFound` (26).
    pub(super) async fn stored_indexes(
        &self,
        name: &Namespace,
        name_target: NameTarget,
    ) -> StoreResult<(Namespace, Vec<IndexInfo>)> {
        let collection = match &name_target {
            NameTarget::Unlisted => name,
            NameTarget::Collection(collection) => collection,
            NameTarget::Nothing => return Err(not_there(name)),
        };
        let indexes = match self.rows.store.list_indexes(collection).await {
            Err(error) if error.code() == Code::NamespaceNotFound && name_target != NameTarget::Unlisted => {
                self.rows.store.create_collection(collection, CollectionOptions::default()).await?;
                self.rows.store.list_indexes(collection).await?
            }
            indexes => indexes?,
        };
        Ok((collection.clone(), indexes))
    }

    /// Creates a collection if it does not exist.
    pub(super) async fn create_collection(&self, name: &Namespace) -> StoreResult<()> {
        match self.look_up(name).await?.is_there {
            true => Ok(()),
            false => self.make_collection(name).await.map(drop),
        }
    }

    /// Creates a collection, and returns its name in the store.
    pub(super) async fn make_collection(&self, name: &Namespace) -> StoreResult<Namespace> {
        let create = |catalog: &mut Catalog| {
            let version = catalog.version;
            catalog.mapping.create(name, version)?;
            Ok(catalog.mapping.collection(name, version))
        };
        let collection = self.change_catalog(create).await?.ok_or_else(|| not_there(name))?;
        self.rows.store.create_collection(&collection, CollectionOptions::default()).await?;
        self.note_checked(&collection);
        self.make_own_indexes(&collection, &[]);
        Ok(collection)
    }

    /// Drops a collection. Returns `false` if there was none.
    pub(super) async fn drop_collection(&self, name: &Namespace) -> StoreResult<bool> {
        check_not_fixed(name)?;
        let NameLookup { name_target, is_there } = self.look_up(name).await?;
        if !is_there {
            return Ok(false);
        }
        // If the name_target of the name has changed, another process has dropped the collection.
        let drop = |catalog: &mut Catalog| {
            let version = catalog.version;
            Ok(catalog.mapping.drop(name, &name_target, version))
        };
        let is_dropped = self.change_catalog(drop).await?;
        self.leave_notice(name_target.of(name)).await?;
        Ok(is_dropped)
    }

    /// Drops the collections of a database in one step. Returns `false` if there was none.
    pub(super) async fn drop_database(&self, database: &str) -> StoreResult<bool> {
        check_database_name(database)?;
        let (infos, catalog) = (self.list_collections(database).await?, self.newest_catalog().await?);
        let mut seen = Vec::new();
        for info in infos {
            let name = Namespace::new(database, info.name)?;
            let name_target = catalog.mapping.newest(&name);
            if !is_fixed(&name) && name_target != NameTarget::Nothing {
                seen.push((name_target, name));
            }
        }
        if seen.is_empty() {
            return Ok(false);
        }
        let drop = |catalog: &mut Catalog| {
            let version = catalog.version;
            for (name_target, name) in &seen {
                catalog.mapping.drop(name, name_target, version);
            }
            Ok(())
        };
        self.change_catalog(drop).await?;
        for (name_target, name) in &seen {
            self.leave_notice(name_target.of(name)).await?;
        }
        Ok(true)
    }

    /// Writes a notice into a stored collection that its name has changed in a version of the catalog that is in force, for reads of one
    /// document without a timestamp ([`super::newest`]).
    async fn leave_notice(&self, collection: &Namespace) -> StoreResult<()> {
        let filter = rawdoc! { "_id": notice_id() };
        let notice = notice(self.oracle.catalog());
        self.rows.store.upsert_one(collection, filter, notice).await.map(drop).map_err(StoreError::in_doubt)
    }

    pub(super) async fn rename_collection(&self, request: RenameCollection) -> StoreResult<()> {
        let RenameCollection { from, to, drop_target } = &request;
        self.options.routing.iter().try_for_each(|routing| routing.check_rename(from, to))?;
        [from, to].into_iter().try_for_each(check_not_fixed)?;
        for _ in 0..ATTEMPTS_MAX {
            let (source, target) = (self.look_up(from).await?, self.look_up(to).await?);
            check_names(&request, &source, &target)?;
            let rename = |catalog: &mut Catalog| {
                let version = catalog.version;
                let from = SeenName { name: from, name_target: &source.name_target };
                let to = SeenName { name: to, name_target: &target.name_target };
                Ok(catalog.mapping.rename(from, to, *drop_target && target.is_there, version))
            };
            if self.change_catalog(rename).await? {
                if target.is_there {
                    self.leave_notice(target.name_target.of(to)).await?;
                }
                return self.leave_notice(source.name_target.of(from)).await;
            }
        }
        Err(conflict(format_args!("{from} and {to} were created and dropped by others again and again")))
    }

    /// Returns the collections of a database, sorted by name.
    pub(super) async fn list_collections(&self, database: &str) -> StoreResult<Vec<CollectionInfo>> {
        let catalog = self.newest_catalog().await?;
        let mapping = &catalog.mapping;
        let listed: Vec<_> = mapping.listed().filter(|(name, _)| name.database() == database).collect();
        let mut stored = BTreeMap::new();
        for database in listed.iter().map(|(_, of)| of.database()).chain([database]).collect::<BTreeSet<_>>() {
            for info in self.rows.store.list_collections(database).await? {
                stored.insert(Namespace::new(database, info.name.clone())?, info);
            }
        }
        let mut infos = Vec::new();
        for (name, collection) in listed {
            let name = name.collection().to_owned();
            // A collection that is listed but not created in the store has no id yet.
            let (options, uuid) = match stored.get(collection) {
                Some(info) => (info.options.clone(), info.uuid),
                None => (CollectionOptions::default(), [0; 16]),
            };
            infos.push(CollectionInfo { name, options, uuid });
        }
        let is_unlisted =
            |name: &Namespace| name.database() == database && mapping.newest(name) == NameTarget::Unlisted;
        infos.extend(stored.into_iter().filter(|(name, _)| is_unlisted(name)).map(|(_, info)| info));
        infos.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(infos)
    }

    /// Returns the databases that have a collection, without the engine's own.
    pub(super) async fn list_databases(&self) -> StoreResult<Vec<String>> {
        let catalog = self.newest_catalog().await?;
        let mut names: BTreeSet<_> = self.rows.store.list_databases().await?.into_iter().collect();
        names.remove(super::DATABASE);
        let touched = catalog.mapping.retired().chain(catalog.mapping.listed().map(|(_, collection)| collection));
        for database in touched.map(Namespace::database).collect::<BTreeSet<_>>() {
            if names.contains(database) && self.list_collections(database).await?.is_empty() {
                names.remove(database);
            }
        }
        names.extend(catalog.mapping.listed().map(|(name, _)| name.database().to_owned()));
        Ok(names.into_iter().collect())
    }

    /// Explains how the store would carry out a request.
    pub(super) async fn explain(&self, mut request: Explain) -> StoreResult<RawDocumentBuf> {
        let name = match &mut request.explained {
            Explained::Find(find) => Some(&mut find.namespace),
            Explained::Aggregate(Aggregate { source: AggregateSource::Collection(name), .. }) => Some(name),
            Explained::Aggregate(_) => None,
        };
        if let Some(name) = name
            && let Some(collection) = self.newest_catalog().await?.mapping.collection(name, u64::MAX)
        {
            *name = collection;
        }
        self.rows.store.explain(super::push_down::explained(request, &self.sources)?).await
    }

    /// Removes retired collections that are no longer needed, and forgets names that need not be listed.
    pub(super) async fn clean_collections(&self, safe: SafePoint) -> StoreResult<()> {
        let mut catalog = self.newest_catalog().await?;
        if catalog.mapping.unmarked().is_some() {
            // The process that changed a name may have died before its notice.
            let renamed = catalog.mapping.listed().filter(|(name, collection)| name != collection);
            for collection in renamed.map(|(_, collection)| collection).chain(catalog.mapping.retired()) {
                self.leave_notice(collection).await?;
            }
            let Moment { at, catalog: version } = self.oracle.moment().await?;
            self.change_catalog(|catalog| {
                catalog.mapping.mark(version, at);
                Ok(())
            })
            .await?;
            catalog = self.newest_catalog().await?;
        }
        self.remove_retired(&catalog, safe.readers.min(safe.messages)).await
    }

    async fn remove_retired(&self, catalog: &Catalog, safe: Timestamp) -> StoreResult<()> {
        let removed = catalog.mapping.removable(safe);
        if !removed.is_empty() {
            self.let_go(|kept| removed.contains(&kept.namespace)).await?;
        }
        for collection in &removed {
            self.rows.store.drop_collection(collection).await?;
        }
        let mut there = Vec::new();
        for name in catalog.mapping.plain(safe) {
            if self.is_in_store(&name).await? {
                there.push(name);
            }
        }
        self.change_catalog(|catalog| {
            catalog.mapping.forget(safe, &removed, &there);
            Ok(())
        })
        .await
    }
}

fn check_names(request: &RenameCollection, source: &NameLookup, target: &NameLookup) -> StoreResult<()> {
    let RenameCollection { from, to, drop_target } = request;
    if !source.is_there {
        let text = format!("source collection {from} does not exist");
        return Err(StoreError::command(Code::NamespaceNotFound, text));
    }
    if from == to {
        return Err(StoreError::command(Code::IllegalOperation, "can't rename a collection to itself"));
    }
    if target.is_there && !drop_target {
        return Err(StoreError::command(Code::NamespaceExists, format!("target namespace {to} exists")));
    }
    if target.name_target != NameTarget::Unlisted || to.without_generation().is_none() {
        return Ok(());
    }
    Err(super::mapping::kept_name(to))
}

/// Refuses to drop or rename the engine's own collections.
fn check_not_fixed(name: &Namespace) -> StoreResult<()> {
    if !is_fixed(name) {
        return Ok(());
    }
    let text = format!("{name} is kept for transactions: it cannot be dropped or renamed");
    Err(StoreError::command(Code::IllegalOperation, text))
}

fn not_there(name: &Namespace) -> StoreError {
    StoreError::command(Code::NamespaceNotFound, format!("the collection {name} does not exist"))
}
