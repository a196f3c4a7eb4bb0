//! Builds an index while other transactions write, and removes one.
//!
//! ```text
//! catalog: building        from here on every commit keeps the index; all that committed before has a lower timestamp
//! the store's own index    the same fields, not unique: for queries, and for hints by its name
//! documents, by pages      each page is a transaction that reads the documents and writes the rows that are missing
//! catalog: ready           now it is listed
//! ```
//!
//! A writer that adds or removes a key writes its row, and so does the builder: one of the two conflicts and runs again. The builder indexes
//! the documents that exist, and later writes add their own rows, so in the end each document has them. A second document under a key ends
//! the building, and the index is removed.
//!
//! From the first step on the index refuses writes, although it is not listed yet.
//!
//! If the process dies, the index is not listed, and its creation was not acknowledged. A request for the same index goes on with it;
//! otherwise a cleaner finds it without a heartbeat and drops it. An index to drop is marked first, so that a cleaner goes on with that too:
//!
//! ```text
//! catalog: leaving         not listed, still in force
//! the store's own index    dropped, so long as the name is still taken
//! catalog: until           from here on no commit keeps the index
//! rows                     removed, then the index is forgotten
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bson::spec::BinarySubtype;
use bson::{Binary, RawBson, RawDocumentBuf, rawdoc};
use handfast_mql::Code;
use handfast_store::index::Index;
use handfast_store::{
    BatchLimit, CreateIndexes, Cursor, DropIndexes, Error as StoreError, ErrorClass, Find, IndexSelector, IndexSpec,
    Namespace, Result as StoreResult, insertion,
};

use super::catalog::{Catalog, EngineIndex, IndexId, State, uuid};
use super::committer::{self, Committer};
use super::core::{Core, conflict};
use super::definitions::Dependencies;
use super::resolver::Resolved;
use super::row::Timestamp;
use super::scan::next_rows;
use super::unique::{self, IndexKey};
use crate::error::is_transient;

/// The most documents whose keys are written in one transaction: many for few round trips, few for cheap conflicts.
const PAGE: BatchLimit = BatchLimit { documents: 100, bytes: 4 * 1024 * 1024 };
/// The most attempts at a page. An attempt fails if others have written the same keys.
const ATTEMPTS_MAX: u32 = 64;
/// The first pause between two attempts. Each further one is twice as long.
const PAUSE_FIRST: Duration = Duration::from_millis(1);
/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_millis(100);
/// The time for which an index under construction is kept without a heartbeat, by the oracle's time.
pub(super) const BUILDING_TTL: Duration = Duration::from_secs(60);
/// The interval between two heartbeats of its builder.
const SIGN_INTERVAL: Duration = Duration::from_secs(15);

impl Core {
    /// Builds an index that the engine keeps, or goes on with one that another process has begun.
    ///
    /// # Errors
    /// `DuplicateKey` (11000) if two documents have the same key, `CannotIndexParallelArrays` (171): then the index is removed. After an error
    /// of the store another call may go on with it, or it is removed later.
    pub(super) async fn build(self: &Arc<Self>, namespace: &Namespace, spec: &IndexSpec) -> StoreResult<()> {
        let kept = self.begin_building(namespace, spec).await?;
        if kept.state == State::Ready {
            return Ok(());
        }
        self.make_twin(&kept).await?;
        let built = if spec.unique { self.fill(&kept).await } else { Ok(()) };
        if let Err(error) = built {
            if !is_transient(&error) && error.class() == ErrorClass::Command {
                self.remove(std::slice::from_ref(&kept)).await?;
            }
            return Err(error);
        }
        let finish = |catalog: &mut Catalog| match catalog.get(kept.id).map(|kept| kept.state) {
            Some(State::Building | State::Ready) => {
                catalog.change(kept.id, |kept| kept.state = State::Ready);
                Ok(())
            }
            Some(State::Leaving) | None => Err(taken_away(&kept)),
        };
        self.change_catalog(finish).await
    }

    /// Returns the index in the catalog, and adds it if it is not there.
    async fn begin_building(&self, namespace: &Namespace, spec: &IndexSpec) -> StoreResult<EngineIndex> {
        let (fresh, now) = (self.sources.uuid(), self.oracle.next().await?);
        let index = Arc::new(Index::compile(spec.clone())?);
        let id = self
            .change_catalog(|catalog| {
                let staying = catalog.staying(|of| of == namespace).find(|kept| kept.spec().name == spec.name);
                match staying.map(|kept| (kept.id, kept.state, kept.spec() == spec)) {
                    Some((id, State::Building | State::Ready, true)) => {
                        catalog.change(id, |kept| kept.alive = kept.alive.max(now));
                        Ok(id)
                    }
                    Some(_) => Err(in_the_way(catalog.mapping.name_of(namespace), &spec.name)),
                    None => {
                        catalog.add(fresh, namespace.clone(), Arc::clone(&index), State::Building, now);
                        Ok(fresh)
                    }
                }
            })
            .await?;
        let catalog = self.newest_catalog().await?;
        let Some(kept) = catalog.get(id) else {
            return Err(conflict(format_args!("the index '{}' of {namespace} was dropped meanwhile", spec.name)));
        };
        Ok(kept.clone())
    }

    /// Creates the twin in the store on the same fields. An existing index under another name serves as well.
    async fn make_twin(&self, kept: &EngineIndex) -> StoreResult<()> {
        let twin = IndexSpec { unique: false, expire_after_seconds: None, ..kept.spec().clone() };
        let request = CreateIndexes { namespace: kept.namespace.clone(), indexes: vec![twin] };
        match self.rows.store.create_indexes(request).await {
            Err(error) if error.code() == Code::IndexOptionsConflict => Ok(()),
            made => made.map(drop),
        }
    }

    /// Writes the key rows of all existing documents.
    async fn fill(self: &Arc<Self>, kept: &EngineIndex) -> StoreResult<()> {
        // The `_id`s are read from the store without a snapshot: the transaction of each page reads the documents.
        let find =
            Find { projection: rawdoc! { "_id": 1 }, ..Find::new(kept.namespace.clone(), RawDocumentBuf::new()) };
        let mut cursor = self.rows.store.find(find).await?;
        let mut sign = self.elapsed();
        while let Some(ids) = next_ids(&mut *cursor).await? {
            self.fill_page(kept, ids).await?;
            if self.elapsed().saturating_sub(sign) >= SIGN_INTERVAL {
                self.give_sign(kept).await?;
                sign = self.elapsed();
            }
        }
        Ok(())
    }

    /// Sends a heartbeat for an index that is being built.
    async fn give_sign(&self, kept: &EngineIndex) -> StoreResult<()> {
        let now = self.oracle.next().await?;
        let sign = |catalog: &mut Catalog| {
            let is_there = catalog.change(kept.id, |kept| kept.alive = kept.alive.max(now));
            if is_there { Ok(()) } else { Err(taken_away(kept)) }
        };
        self.change_catalog(sign).await
    }

    async fn fill_page(self: &Arc<Self>, kept: &EngineIndex, ids: Vec<RawBson>) -> StoreResult<()> {
        let mut pause = PAUSE_FIRST;
        for _ in 0..ATTEMPTS_MAX {
            match self.try_fill_page(kept, ids.clone()).await {
                Err(error) if matches!(error.code(), Code::WriteConflict | Code::SnapshotTooOld) => {
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(PAUSE_MAX);
                }
                result => return result,
            }
        }
        Err(conflict(format_args!("keys of the index '{}' were written again and again", kept.spec().name)))
    }

    async fn try_fill_page(self: &Arc<Self>, kept: &EngineIndex, ids: Vec<RawBson>) -> StoreResult<()> {
        let snapshot = self.begin().await?;
        let (catalog, version) = self.catalog().await?;
        let is_building = |other: &EngineIndex| other.id == kept.id && other.state != State::Leaving;
        if !catalog.in_force(&kept.namespace, version).any(is_building) {
            return Err(taken_away(kept));
        }
        let documents = snapshot.by_ids(&kept.namespace, ids).await?;
        let mut keys: BTreeMap<IndexKey, &RawDocumentBuf> = BTreeMap::new();
        for document in &documents {
            for key in kept.index.keys(document)?.keys {
                let key = IndexKey { index: kept.id, key };
                if keys.contains_key(&key) {
                    return Err(catalog.duplicate(kept, document, &key.key));
                }
                keys.insert(key, document);
            }
        }
        let owners = unique::owners(&snapshot, keys.keys()).await?;
        let mut missing = Vec::new();
        for (key, document) in keys {
            match owners.get(&key) {
                None => missing.push(unique::row_owned_by(&key, document)?),
                Some(owner) if insertion::same_id(owner.as_raw_bson_ref(), insertion::id(document)?) => {}
                Some(_) => return Err(catalog.duplicate(kept, document, &key.key)),
            }
        }
        let on = Dependencies::on_indexes(&catalog, version, [kept.namespace.clone()]);
        let committer = Committer::of(Arc::clone(self), snapshot, missing).depending_on(on);
        committer::carry_out(committer).await.map(drop)
    }

    /// Drops indexes with their twins and rows.
    ///
    /// # Errors
    /// Returns the error of the store; the rest is removed later.
    pub(super) async fn remove(&self, indexes: &[EngineIndex]) -> StoreResult<()> {
        self.mark_leaving(|kept| indexes.iter().any(|other| other.id == kept.id)).await?;
        self.remove_leaving().await
    }

    /// Drops indexes whose builder sends no heartbeat, and goes on with drops that were begun.
    pub(super) async fn clean_catalog(&self, now: Timestamp) -> StoreResult<()> {
        let is_abandoned = |kept: &EngineIndex| kept.state == State::Building && now > kept.alive.plus(BUILDING_TTL);
        let catalog = self.newest_catalog().await?;
        if catalog.version > self.oracle.catalog() {
            // The process that wrote it may have died before its announcement.
            self.oracle.announce(catalog.version).await?;
        }
        if catalog.staying(|_| true).any(is_abandoned) {
            self.mark_leaving(is_abandoned).await?;
        }
        self.remove_leaving().await
    }

    async fn mark_leaving(&self, pick: impl Fn(&EngineIndex) -> bool + Send + Sync) -> StoreResult<()> {
        let mark = |catalog: &mut Catalog| {
            let ids: Vec<_> = catalog.staying(|_| true).filter(|kept| pick(kept)).map(|kept| kept.id).collect();
            for id in ids {
                catalog.change(id, |kept| kept.state = State::Leaving);
            }
            Ok(())
        };
        self.change_catalog(mark).await
    }

    async fn remove_leaving(&self) -> StoreResult<()> {
        let catalog = self.newest_catalog().await?;
        let is_leaving = |kept: &EngineIndex| kept.state == State::Leaving;
        let leaving: Vec<_> = catalog.staying(|_| true).filter(|kept| is_leaving(kept)).cloned().collect();
        for kept in &leaving {
            self.drop_twin(kept).await?;
        }
        if !leaving.is_empty() {
            self.let_go(is_leaving).await?;
        }
        self.remove_dropped().await
    }

    /// Drops the indexes that a function picks: they are no longer in force.
    pub(super) async fn let_go(&self, pick: impl Fn(&EngineIndex) -> bool + Send + Sync) -> StoreResult<()> {
        let drop = |catalog: &mut Catalog| {
            catalog.drop(&pick);
            Ok(())
        };
        self.change_catalog(drop).await
    }

    /// Removes the rows of dropped indexes, and forgets the indexes.
    pub(super) async fn remove_dropped(&self) -> StoreResult<()> {
        let catalog = self.newest_catalog().await?;
        let dropped: Vec<IndexId> = catalog.dropped().map(|kept| kept.id).collect();
        if dropped.is_empty() {
            return Ok(());
        }
        // The version is written, but the process that wrote it may have died before its announcement.
        self.oracle.announce(catalog.version).await?;
        for id in &dropped {
            self.remove_rows(*id).await?;
        }
        self.change_catalog(|catalog| {
            catalog.forget(|kept| dropped.contains(&kept.id));
            Ok(())
        })
        .await
    }

    /// Removes the rows of a dropped index, which later commits do not write. It first waits until no row is locked, since one of the rows may be
    /// the primary of another's lock.
    async fn remove_rows(&self, id: IndexId) -> StoreResult<()> {
        for _ in 0..super::LOCK_LOOKS_MAX {
            if !self.resolve_rows(id).await? {
                tokio::time::sleep(super::LOCK_LOOKS_PAUSE).await;
                continue;
            }
            let mut removing = self.rows_of(id).await?;
            while let Some(rows) = next_rows(&mut *removing, &unique::namespace()?).await? {
                for (key, row) in rows.into_iter().filter(|(_, row)| row.lock.is_none()) {
                    self.rows.remove(&key, row.revision).await?;
                }
            }
            if next_rows(&mut *self.rows_of(id).await?, &unique::namespace()?).await?.is_none() {
                return Ok(());
            }
        }
        Err(conflict("a transaction that does not end has locked keys of an index that was dropped"))
    }

    /// Resolves the locks on an index's rows. Returns whether none is left.
    async fn resolve_rows(&self, id: IndexId) -> StoreResult<bool> {
        let mut is_free = true;
        let mut cursor = self.rows_of(id).await?;
        while let Some(rows) = next_rows(&mut *cursor, &unique::namespace()?).await? {
            for (key, row) in rows {
                is_free &= matches!(self.resolve(&key, row).await?, Resolved::Free(_));
            }
        }
        Ok(is_free)
    }

    /// Opens a cursor over an index's rows, by a range of `_id`.
    async fn rows_of(&self, id: IndexId) -> StoreResult<Box<dyn Cursor>> {
        let least = Binary { subtype: BinarySubtype::Generic, bytes: Vec::new() };
        let filter = rawdoc! { "_id": {
            "$gte": { "index": uuid(id), "key": least },
            "$lt": { "index": uuid(id), "key": RawBson::MaxKey },
        } };
        self.rows.store.find(Find::new(unique::namespace()?, filter)).await
    }

    async fn drop_twin(&self, kept: &EngineIndex) -> StoreResult<()> {
        let selector = IndexSelector::Names(vec![kept.spec().name.clone()]);
        let request = DropIndexes { namespace: kept.namespace.clone(), selector };
        match self.rows.store.drop_indexes(request).await {
            Err(error) if matches!(error.code(), Code::IndexNotFound | Code::NamespaceNotFound) => Ok(()),
            dropped => dropped.map(drop),
        }
    }
}

async fn next_ids(cursor: &mut dyn Cursor) -> StoreResult<Option<Vec<RawBson>>> {
    let documents = cursor.next_page(PAGE).await?.documents;
    if documents.is_empty() {
        return Ok(None);
    }
    documents.iter().map(|document| insertion::id(document).map(RawBson::from)).collect::<StoreResult<_>>().map(Some)
}

/// Returns the error for another index of this name that is not listed.
pub(super) fn in_the_way(namespace: &Namespace, name: &str) -> StoreError {
    conflict(format_args!("another index '{name}' of {namespace} is being built or dropped"))
}

fn taken_away(kept: &EngineIndex) -> StoreError {
    let text = format!("the index '{}' of {} was dropped while it was built", kept.spec().name, kept.namespace);
    StoreError::command(Code::IndexBuildAborted, text)
}
