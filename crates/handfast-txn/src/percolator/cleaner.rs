//! What dead processes left behind, and what nobody needs any more.
//!
//! One pass, in this order: the safe point is chosen; all locks are looked at, those that are decided or abandoned are
//! resolved; then rows forget what is below the safe point. A commit record must outlive the locks that point at it: if a
//! lock from below the safe point is still there after the first part, nothing is forgotten in this pass.
//!
//! The safe point is so far back that nothing sent by a transaction from below it can arrive any more
//! ([`PercolatorOptions::retention`](super::PercolatorOptions::retention)), and that nobody reads there
//! ([`keeper`](super::keeper)).

use std::sync::{Arc, Weak};
use std::time::Duration;

use bson::{RawDocument, RawDocumentBuf, rawdoc};
use handfast_store::{BatchLimit, Cursor, Find, Namespace, Result as StoreResult, StoreExt, Ticket};

use super::core::Core;
use super::resolver::Resolved;
use super::row::{Collected, Key, Revision, Row, SafePoint, Step, Timestamp, collect};
use super::rows::unchecked;

/// Rows that are read at a time.
const PAGE: BatchLimit = BatchLimit { documents: 1000, bytes: 4 * 1024 * 1024 };

/// What a pass did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cleaned {
    /// Locks that are gone.
    pub resolved: u64,
    /// Locks of transactions that may still commit.
    pub alive: u64,
    /// Rows that have forgotten something, or are gone.
    pub collected: u64,
    /// Records of outcomes that are gone.
    pub forgotten: u64,
}

impl Core {
    /// One pass over all collections.
    pub(super) async fn clean(&self) -> StoreResult<Cleaned> {
        let now = self.oracle.next().await?;
        let safe = self.safe_point(now).await?;
        let mut cleaned = Cleaned::default();
        let oldest = self.resolve_all(&mut cleaned).await?;
        self.clean_catalog(now).await?;
        if oldest.is_none_or(|oldest| oldest >= safe.messages) {
            cleaned.collected += self.remove_orphans(safe.readers).await?;
            for namespace in self.namespaces().await? {
                cleaned.collected += self.collect(&namespace, safe).await?;
            }
            let before = now.minus(self.options.outcome_retention).min(safe.messages);
            cleaned.forgotten = self.remove_records(before).await?;
        }
        Ok(cleaned)
    }

    /// Removes the records of outcomes that are older than this, and than the safe point.
    pub(super) async fn forget_outcomes(&self, age: Duration) -> StoreResult<u64> {
        let now = self.oracle.next().await?;
        let (safe, before) = (now.minus(self.options.retention), now.minus(age.max(self.options.retention)));
        let any = Find { limit: Some(1), ..Find::new(Ticket::namespace()?, older(before)) };
        if self.rows.store.find_all(any).await?.is_empty() {
            return Ok(0);
        }
        // What a record decided must not be asked for any more.
        let oldest = self.resolve_all(&mut Cleaned::default()).await?;
        if oldest.is_some_and(|oldest| oldest < safe) { Ok(0) } else { self.remove_records(before).await }
    }

    /// Removes the records that were written before this, which is below the safe point.
    async fn remove_records(&self, before: Timestamp) -> StoreResult<u64> {
        let namespace = Ticket::namespace()?;
        let mut records = self.find(&namespace, &older(before)).await?;
        let mut removed = 0;
        while let Some(rows) = next_rows(&mut *records, &namespace).await? {
            for (key, row) in rows {
                if is_forgettable(&row, before) {
                    self.rows.remove(&key, row.revision).await?;
                    removed += 1;
                }
            }
        }
        Ok(removed)
    }

    /// Resolves all locks; returns the start of the oldest transaction that is alive.
    pub(super) async fn resolve_all(&self, cleaned: &mut Cleaned) -> StoreResult<Option<Timestamp>> {
        let mut oldest = None;
        for namespace in self.namespaces().await? {
            let mut locked = self.find(&namespace, &rawdoc! { "_hf.lock": { "$exists": true } }).await?;
            while let Some(rows) = next_rows(&mut *locked, &namespace).await? {
                for (key, row) in rows {
                    let start = row.lock.as_ref().map_or(Timestamp::default(), |lock| lock.start);
                    // The others come by themselves.
                    match self.resolve_one(&key, row).await?.0 {
                        Resolved::Free(_) => cleaned.resolved += 1,
                        Resolved::Alive => {
                            cleaned.alive += 1;
                            oldest = Some(oldest.map_or(start, |oldest: Timestamp| oldest.min(start)));
                        }
                    }
                }
            }
        }
        Ok(oldest)
    }

    async fn collect(&self, namespace: &Namespace, safe: SafePoint) -> StoreResult<u64> {
        let filter = rawdoc! { "$or": [
            { "_hf.old": { "$exists": true } }, { "_hf.rb": { "$exists": true } }, { "_hf.del": { "$exists": true } },
        ] };
        let mut candidates = self.find(namespace, &filter).await?;
        let mut collected = 0;
        while let Some(rows) = next_rows(&mut *candidates, namespace).await? {
            for (key, row) in rows {
                match collect(&row, safe) {
                    Collected::Same => continue,
                    Collected::Nothing => self.rows.remove(&key, row.revision).await?,
                    Collected::Change(_) => {
                        let step = |row: &Row| match collect(row, safe) {
                            Collected::Change(left) => Ok::<_, std::convert::Infallible>(Step::Change(left)),
                            Collected::Same | Collected::Nothing => Ok(Step::Done),
                        };
                        let _ = self.rows.apply(&key, Some(row), step, unchecked).await?;
                    }
                }
                collected += 1;
            }
        }
        Ok(collected)
    }

    /// Removes the rows of indexes that are not there any more: what arrived after they were removed.
    async fn remove_orphans(&self, safe: Timestamp) -> StoreResult<u64> {
        let catalog = self.newest_catalog().await?;
        let namespace = super::unique::namespace()?;
        // Rows that have just been made have more than one version. Older ones were looked at then.
        let mut candidates = self.find(&namespace, &rawdoc! { "_hf.old": { "$exists": true } }).await?;
        let mut removed = 0;
        while let Some(rows) = next_rows(&mut *candidates, &namespace).await? {
            for (key, row) in rows {
                let index = super::unique::index_of(key.id.as_raw_bson_ref());
                let is_orphan = index.is_none_or(|id| !catalog.knows(id));
                if is_orphan && is_forgettable(&row, safe) {
                    self.rows.remove(&key, row.revision).await?;
                    removed += 1;
                }
            }
        }
        Ok(removed)
    }

    /// All collections that may have rows.
    async fn namespaces(&self) -> StoreResult<Vec<Namespace>> {
        let mut namespaces = Vec::new();
        for database in self.rows.store.list_databases().await? {
            let is_own = database == super::DATABASE;
            for collection in self.rows.store.list_collections(&database).await? {
                if is_own && collection.name != super::unique::COLLECTION {
                    continue;
                }
                namespaces.push(Namespace::new(database.clone(), collection.name)?);
            }
        }
        Ok(namespaces)
    }

    async fn find(&self, namespace: &Namespace, filter: &RawDocument) -> StoreResult<Box<dyn Cursor>> {
        self.rows.store.find(Find::new(namespace.clone(), filter.to_owned())).await
    }
}

/// Rows whose visible version is older than this.
fn older(than: Timestamp) -> RawDocumentBuf {
    rawdoc! { "_hf.c": { "$lt": i64::try_from(than.0).unwrap_or(i64::MAX) } }
}

/// Whether nothing in a row is of this time or later: no version, no lock, no record of a rollback. What made or changed
/// it then can no longer be sent once more.
fn is_forgettable(row: &Row, before: Timestamp) -> bool {
    let is_old = |at: &Timestamp| *at < before;
    let is_settled = matches!(row.revision, Revision::At(revision) if revision < before.0);
    is_settled && row.lock.is_none() && is_old(&row.visible.commit) && row.rolled_back.iter().all(is_old)
}

/// The next rows of a cursor over a collection, if there are any.
pub(super) async fn next_rows(cursor: &mut dyn Cursor, namespace: &Namespace) -> StoreResult<Option<Vec<(Key, Row)>>> {
    let documents = cursor.next_page(PAGE).await?.documents;
    if documents.is_empty() {
        return Ok(None);
    }
    let row = |document: &RawDocumentBuf| {
        let row = Row::from_document(document)?;
        Ok((Key { namespace: namespace.clone(), id: row.id.clone() }, row))
    };
    documents.iter().map(row).collect::<StoreResult<_>>().map(Some)
}

/// Cleans again and again, until the engine is gone.
pub(super) fn start(core: &Arc<Core>) {
    let Some(interval) = core.options.cleaning_interval else { return };
    let core: Weak<Core> = Arc::downgrade(core);
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(interval).await;
            let Some(core) = core.upgrade() else { return };
            match core.clean().await {
                Ok(cleaned) => tracing::debug!(?cleaned, "looked for what was left behind"),
                Err(error) => tracing::warn!(%error, "what was left behind could not be cleaned: it is tried again"),
            }
        }
    });
}
