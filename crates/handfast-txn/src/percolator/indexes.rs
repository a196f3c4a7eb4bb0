//! The indexes of users: those of the store, and those that the engine keeps.
//!
//! An index that the engine keeps has a twin in the store, on the same fields, that promises nothing: for queries, and for
//! hints by its name. So a list of indexes is the store's, with what the engine promises of each filled in.

use std::sync::Arc;

use bson::{RawDocumentBuf, rawdoc};
use handfast_mql::Code;
use handfast_store::index::{Addition, Index, addition, check_expiry_seconds, dropped, same_key, selected};
use handfast_store::{
    CreateIndexes, DropIndexes, Error as StoreError, IndexCounts, IndexInfo, IndexSelector, IndexSpec,
    ModifyCollection, ModifyIndex, Namespace, Result as StoreResult, default_collation,
};

use super::build::in_the_way;
use super::catalog::{Catalog, EngineIndex, State, is_kept_by_engine};
use super::core::Core;
use super::own_indexes::{check_not_own, is_own};

impl Core {
    /// Returns the listed indexes of a collection, `_id_` first.
    pub(super) async fn list_indexes(&self, namespace: &Namespace) -> StoreResult<Vec<IndexInfo>> {
        let (collection, stored, catalog) = self.indexes_of(namespace).await?;
        let specs = listed(stored, catalog.staying(|of| *of == collection), is_ready);
        Ok(specs.into_iter().map(|spec| IndexInfo { spec }).collect())
    }

    /// Returns the indexes that every write of a collection has to keep, `_id_` first.
    ///
    /// # Errors
    /// `CommandNotSupported` (115) for a unique index of the store; `NamespaceNotFound` (26).
    pub(super) async fn kept_indexes(&self, namespace: &Namespace) -> StoreResult<Vec<IndexSpec>> {
        let (catalog, version) = self.catalog().await?;
        let (collection, stored) =
            self.stored_indexes(namespace, catalog.mapping.name_target(namespace, version)).await?;
        check_not_unique(namespace, &stored)?;
        self.note_checked(&collection);
        self.make_own_indexes(&collection, &stored);
        let (catalog, version) = self.catalog().await?;
        Ok(listed(stored, catalog.in_force(&collection, version), |_| true))
    }

    /// Returns the stored collection of a name, its indexes in the store, and a catalog that was read after them: it lists each engine index
    /// that has a twin among them.
    async fn indexes_of(&self, name: &Namespace) -> StoreResult<(Namespace, Vec<IndexInfo>, Arc<Catalog>)> {
        let name_target = self.newest_catalog().await?.mapping.newest(name);
        let (collection, stored) = self.stored_indexes(name, name_target).await?;
        Ok((collection, stored, self.newest_catalog().await?))
    }

    /// Creates indexes, and the collection if it does not exist.
    pub(super) async fn create_indexes(self: &Arc<Self>, request: CreateIndexes) -> StoreResult<IndexCounts> {
        let CreateIndexes { namespace, indexes } = request;
        let indexes = indexes.into_iter().map(|spec| default_collation::of_index(spec, None));
        let indexes = indexes.collect::<StoreResult<Vec<_>>>()?;
        for spec in &indexes {
            Index::compile(spec.clone())?;
            check_not_own(spec)?;
        }
        let (there, mut specs) = match self.indexes_of(&namespace).await {
            Ok((collection, stored, catalog)) => {
                check_not_unique(&namespace, &stored)?;
                let specs = listed(stored, catalog.staying(|of| *of == collection), is_ready);
                (Some(collection), specs)
            }
            Err(error) if error.code() == Code::NamespaceNotFound => (None, vec![IndexSpec::id()]),
            Err(error) => return Err(error),
        };
        let before = specs.len();
        for spec in indexes {
            if addition(&specs, &spec)? == Addition::New {
                specs.push(spec);
            }
        }
        let after = specs.len();
        let collection = match there {
            Some(collection) => collection,
            None => self.make_collection(&namespace).await?,
        };
        self.check_not_being_built(&collection, &specs[before..]).await?;
        for spec in specs.drain(before..) {
            if is_kept_by_engine(&spec) {
                self.build(&collection, &spec).await?;
            } else {
                let request = CreateIndexes { namespace: collection.clone(), indexes: vec![spec] };
                self.rows.store.create_indexes(request).await?;
            }
        }
        Ok(IndexCounts::new(before, after))
    }

    /// Refuses new indexes with the name of one that is being built: its twin in the store has that name.
    async fn check_not_being_built(&self, collection: &Namespace, new: &[IndexSpec]) -> StoreResult<()> {
        let catalog = self.newest_catalog().await?;
        let mut built = catalog.staying(|of| of == collection);
        match built.find(|kept| new.iter().any(|spec| !is_kept_by_engine(spec) && spec.name == kept.spec().name)) {
            None => Ok(()),
            Some(kept) => Err(in_the_way(catalog.mapping.name_of(collection), &kept.spec().name)),
        }
    }

    /// Drops indexes, those that are being built included.
    pub(super) async fn drop_indexes(&self, request: DropIndexes) -> StoreResult<u32> {
        let DropIndexes { namespace, selector } = request;
        let (collection, stored, catalog) = self.indexes_of(&namespace).await?;
        let in_store: Vec<_> = stored.iter().map(|info| info.spec.name.clone()).collect();
        let staying: Vec<_> = catalog.staying(|of| *of == collection).cloned().collect();
        let specs = listed(stored, staying.iter(), |_| true);
        let places = dropped(&namespace, &specs, &selector)?;
        let is_dropped = |name: &str| places.iter().any(|&place| specs[place].name == name);
        let kept: Vec<_> = staying.into_iter().filter(|kept| is_dropped(&kept.spec().name)).collect();
        let is_kept_by_engine = |name: &str| kept.iter().any(|kept| kept.spec().name == name);
        let plain: Vec<_> = in_store.into_iter().filter(|name| is_dropped(name) && !is_kept_by_engine(name)).collect();
        if !kept.is_empty() {
            self.remove(&kept).await?;
        }
        if !plain.is_empty() {
            let selector = IndexSelector::Names(plain);
            self.rows.store.drop_indexes(DropIndexes { namespace: collection, selector }).await?;
        }
        Ok(u32::try_from(specs.len()).unwrap_or(u32::MAX))
    }

    /// Changes settings of an index. The engine keeps the expiry; the store keeps whether it is hidden.
    pub(super) async fn modify_collection(&self, request: ModifyCollection) -> StoreResult<RawDocumentBuf> {
        let ModifyCollection { namespace, index, validator, view } = request;
        validator.refuse_any()?;
        view.refuse_any()?;
        let specs = self.list_indexes(&namespace).await?.into_iter().map(|info| info.spec).collect::<Vec<_>>();
        let Some(ModifyIndex { selector, expire_after_seconds, hidden }) = index else { return Ok(rawdoc! {}) };
        let spec = &specs[selected(&namespace, &specs, &selector)?];
        let mut answer = rawdoc! {};
        if let Some(seconds) = expire_after_seconds {
            check_expiry_seconds(seconds)?;
            self.set_lifetime(&namespace, IndexSpec { expire_after_seconds: Some(seconds), ..spec.clone() }).await?;
            if let Some(before) = spec.expire_after_seconds {
                answer.append(bson::raw::cstr!("expireAfterSeconds_old"), before);
            }
            answer.append(bson::raw::cstr!("expireAfterSeconds_new"), seconds);
        }
        if hidden.is_some() {
            let selector = IndexSelector::Names(vec![spec.name.clone()]);
            let index = Some(ModifyIndex { selector, expire_after_seconds: None, hidden });
            let namespace = self.collection(&namespace).await?;
            let request = ModifyCollection { index, ..ModifyCollection::new(namespace) };
            let shown = self.rows.store.modify_collection(request).await?;
            shown.iter().flatten().for_each(|(name, value)| answer.append(name, value));
        }
        Ok(answer)
    }

    /// Sets the expiry of an index in the catalog.
    async fn set_lifetime(&self, namespace: &Namespace, spec: IndexSpec) -> StoreResult<()> {
        let (fresh, now) = (self.sources.uuid(), self.oracle.next().await?);
        let index = Arc::new(Index::compile(spec)?);
        let (name, collection) = (&index.spec().name, self.collection(namespace).await?);
        let set = |catalog: &mut Catalog| {
            let id = catalog.staying(|of| *of == collection).find(|kept| kept.spec().name == *name).map(|kept| kept.id);
            match id {
                Some(id) => drop(catalog.change(id, |kept| kept.index = Arc::clone(&index))),
                None => catalog.add(fresh, collection.clone(), Arc::clone(&index), State::Ready, now),
            }
            Ok(())
        };
        self.change_catalog(set).await
    }
}

/// Returns the store's indexes with engine indexes in place of their twins, without the engine's own ones and the twins of those that are not
/// shown.
fn listed<'k>(
    stored: Vec<IndexInfo>,
    kept: impl Iterator<Item = &'k EngineIndex>,
    is_shown: impl Fn(&EngineIndex) -> bool,
) -> Vec<IndexSpec> {
    let mut specs: Vec<_> = stored.into_iter().map(|info| info.spec).filter(|spec| !is_own(spec)).collect();
    for kept in kept {
        let spec = kept.spec();
        let twin = specs.iter().position(|twin| twin.name == spec.name && same_key(&twin.key, &spec.key));
        match (twin, is_shown(kept)) {
            (Some(twin), true) => specs[twin] = IndexSpec { hidden: specs[twin].hidden, ..spec.clone() },
            (Some(twin), false) => drop(specs.remove(twin)),
            (None, true) => specs.push(spec.clone()),
            (None, false) => {}
        }
    }
    specs
}

fn is_ready(kept: &EngineIndex) -> bool {
    kept.state == State::Ready
}

/// Refuses a unique index of the store: it checks visible versions only, and could refuse the version of a committed transaction.
fn check_not_unique(namespace: &Namespace, stored: &[IndexInfo]) -> StoreResult<()> {
    match stored.iter().find(|info| info.spec.unique && !info.spec.is_id()) {
        None => Ok(()),
        Some(index) => {
            let name = &index.spec.name;
            let text = format!(
                "the store has a unique index '{name}' on {namespace} that was not made through transactions, and would \
                 refuse what they have decided: drop it in the store, and create it here"
            );
            Err(StoreError::command(Code::CommandNotSupported, text))
        }
    }
}
