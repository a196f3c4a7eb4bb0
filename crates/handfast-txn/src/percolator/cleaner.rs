//! The cleaner: resolves locks of dead processes, and removes history that is no longer needed.
//!
//! A pass first chooses the safe point. Then it reads all locks, and resolves those of decided and abandoned transactions. Then it
//! removes the history of rows below the safe point. A commit record must outlive the locks that refer to it: if a lock from below the
//! safe point remains after the second step, the pass removes no history.
//!
//! Rows that fail (the store refuses them, or their field is damaged) and collections that cannot be read are counted and skipped. Their locks
//! count as locks that are still there.
//!
//! The safe point is so far back that the commit of a transaction below it is refused
//! ([`PercolatorOptions::retention`](super::PercolatorOptions::retention)), and that no snapshot there is read
//! ([`history_lease`](super::history_lease)). It does not depend on a time of day ([`ages`](super::ages)).

use std::fmt::Display;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bson::{RawDocumentBuf, rawdoc};
use handfast_store::{Error as StoreError, ErrorClass, Find, Namespace, Result as StoreResult, StoreExt, Ticket};

use super::core::{Core, conflict};
use super::inspection::locked_by;
use super::records;
use super::resolver::{FoundRow, Resolved};
use super::row::{Collected, Key, Revision, Row, SafePoint, Step, Timestamp, collect};
use super::rows::unchecked;
use super::scan::{Found, next_found};

/// The most rows that may fail in one scan of a collection before a pass leaves it: then the cause is not the rows, and each failure may take
/// as long as the store's time-out.
const FAILED_MAX: u64 = 100;

/// The results of a pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cleaned {
    /// Locks that were resolved.
    pub resolved: u64,
    /// Locks of transactions that may still commit.
    pub alive: u64,
    /// Rows that were shortened or removed.
    pub collected: u64,
    /// Records of outcomes that were removed.
    pub forgotten: u64,
    /// Rows that failed, and collections that could not be read. The log names the first and its error. While a lock older than the retention is
    /// among them, no history is removed.
    pub failed: u64,
}

/// A pass under way.
#[derive(Default)]
pub(super) struct CleaningPass {
    pub(super) cleaned: Cleaned,
    /// The first failure and its error.
    first: Option<String>,
}

impl CleaningPass {
    /// Counts a failure and goes on.
    ///
    /// # Errors
    /// Returns the error itself if the store is unreachable: all others would fail, too.
    fn skip(&mut self, what: &dyn Display, error: StoreError) -> StoreResult<()> {
        if error.class() == ErrorClass::Outage {
            return Err(error);
        }
        self.cleaned.failed += 1;
        self.first.get_or_insert_with(|| format!("{what}: {error}"));
        Ok(())
    }

    /// Fails if too many rows have failed in this collection.
    fn check_since(&self, failed_before: u64) -> StoreResult<()> {
        match self.cleaned.failed - failed_before < FAILED_MAX {
            true => Ok(()),
            false => Err(conflict(format_args!("{FAILED_MAX} rows could not be cleaned, the others are left"))),
        }
    }

    /// Returns the results, and logs the first failure.
    pub(super) fn end(self) -> Cleaned {
        if let Some(first) = &self.first {
            tracing::warn!(
                failed = self.cleaned.failed,
                first,
                "some rows could not be cleaned: the next pass tries again, and while old locks are among them no history is \
                 removed"
            );
        }
        self.cleaned
    }
}

impl Core {
    /// Runs one pass over all collections.
    pub(super) async fn clean(&self) -> StoreResult<Cleaned> {
        let now = self.oracle.next().await?;
        let ages = self.ages(now).await?;
        let safe = self.safe_point(now, &ages).await?;
        let mut pass = CleaningPass::default();
        let oldest = self.resolve_all(None, &mut pass).await?;
        if let Err(error) = self.clean_catalog(now).await {
            pass.skip(&"the catalog", error)?;
        }
        if oldest.is_none_or(|oldest| oldest >= safe.messages) {
            if let Err(error) = self.clean_collections(safe).await {
                pass.skip(&"collections that were dropped", error)?;
            }
            let outcomes = self.older_than(self.options.outcome_retention, now, &ages);
            self.forget(safe, outcomes, &mut pass).await?;
        }
        Ok(pass.end())
    }

    /// Removes history below the safe point, and older outcomes. No lock refers to it any more.
    async fn forget(&self, safe: SafePoint, outcomes: Timestamp, pass: &mut CleaningPass) -> StoreResult<()> {
        if let Err(error) = self.remove_orphans(safe, pass).await {
            pass.skip(&"the keys of dropped indexes", error)?;
        }
        for namespace in self.namespaces().await? {
            if let Err(error) = self.collect(&namespace, safe, pass).await {
                pass.skip(&namespace, error)?;
            }
        }
        if let Err(error) = self.remove_records(outcomes.min(safe.messages), pass).await {
            pass.skip(&"the records of outcomes", error)?;
        }
        Ok(())
    }

    /// Removes the records of outcomes that are older than `age` and than the safe point.
    pub(super) async fn forget_outcomes(&self, age: Duration) -> StoreResult<u64> {
        let now = self.oracle.next().await?;
        let ages = self.ages(now).await?;
        let safe = self.older_than(self.options.retention, now, &ages);
        let before = self.older_than(age, now, &ages).min(safe);
        let any = Find { limit: Some(1), ..Find::new(Ticket::namespace()?, older(before)) };
        if self.rows.store.find_all(any).await?.is_empty() {
            return Ok(0);
        }
        let mut pass = CleaningPass::default();
        // No lock may refer to a decision in a removed record.
        let oldest = self.resolve_all(None, &mut pass).await?;
        if oldest.is_none_or(|oldest| oldest >= safe) {
            self.remove_records(before, &mut pass).await?;
        }
        Ok(pass.end().forgotten)
    }

    /// Removes the records that were written before a timestamp below the safe point. It writes the mark of forgotten outcomes first.
    async fn remove_records(&self, before: Timestamp, pass: &mut CleaningPass) -> StoreResult<()> {
        let (namespace, failed) = (Ticket::namespace()?, pass.cleaned.failed);
        let mut candidates = self.scan(&namespace, &older(before)).await?;
        let mut is_noted = false;
        while let Some(found) = next_found(&mut *candidates, &namespace).await? {
            for (key, row) in rows(found, pass, &namespace)? {
                pass.check_since(failed)?;
                if is_forgettable(&row, before) {
                    if !is_noted {
                        records::note_forgotten(self, before).await?;
                        is_noted = true;
                    }
                    match self.rows.remove(&key, row.revision).await {
                        Ok(()) => pass.cleaned.forgotten += 1,
                        Err(error) => pass.skip(&key, error)?,
                    }
                }
            }
        }
        Ok(())
    }

    /// Resolves all locks, or those of one transaction. Returns the oldest start of the locks that stay because their transaction is alive, or
    /// because resolving them failed.
    pub(super) async fn resolve_all(
        &self,
        of: Option<Timestamp>,
        pass: &mut CleaningPass,
    ) -> StoreResult<Option<Timestamp>> {
        let mut oldest = None;
        for namespace in self.namespaces().await? {
            if let Err(error) = self.resolve_in(&namespace, of, pass, &mut oldest).await {
                pass.skip(&namespace, error)?;
                // The locks in this collection are unknown.
                oldest = Some(Timestamp::default());
            }
        }
        Ok(oldest)
    }

    async fn resolve_in(
        &self,
        namespace: &Namespace,
        of: Option<Timestamp>,
        pass: &mut CleaningPass,
        oldest: &mut Option<Timestamp>,
    ) -> StoreResult<()> {
        let failed = pass.cleaned.failed;
        let mut locked = self.scan(namespace, &locked_by(of)).await?;
        while let Some(page) = next_found(&mut *locked, namespace).await? {
            let (mut keys, mut rows) = (Vec::new(), Vec::new());
            for found in page {
                match found {
                    Found::Row(key, row) => {
                        keys.push((row.lock.as_ref().map_or(Timestamp::default(), |lock| lock.start), key.clone()));
                        rows.push(FoundRow { key, row });
                    }
                    Found::Damaged { start, error } => {
                        pass.check_since(failed)?;
                        pass.skip(namespace, error)?;
                        note_oldest(oldest, start);
                    }
                }
            }
            for ((start, key), resolved) in keys.into_iter().zip(self.resolve_each(rows).await) {
                pass.check_since(failed)?;
                match resolved {
                    Ok(Resolved::Free(_)) => {
                        pass.cleaned.resolved += 1;
                        continue;
                    }
                    Ok(Resolved::Alive) => pass.cleaned.alive += 1,
                    Err(error) => pass.skip(&key, error)?,
                }
                note_oldest(oldest, start);
            }
        }
        Ok(())
    }

    async fn collect(&self, namespace: &Namespace, safe: SafePoint, pass: &mut CleaningPass) -> StoreResult<()> {
        let failed = pass.cleaned.failed;
        let mut candidates = self.scan(namespace, &due_up_to(safe)).await?;
        let mut is_first = true;
        while let Some(found) = next_found(&mut *candidates, namespace).await? {
            if std::mem::take(&mut is_first) {
                self.ensure_own_indexes(namespace).await?;
            }
            for (key, row) in rows(found, pass, namespace)? {
                pass.check_since(failed)?;
                match self.collect_row(&key, row, safe).await {
                    Ok(has_changed) => pass.cleaned.collected += u64::from(has_changed),
                    Err(error) => pass.skip(&key, error)?,
                }
            }
        }
        Ok(())
    }

    /// Collects a row, and returns whether it had something to forget.
    async fn collect_row(&self, key: &Key, row: Row, safe: SafePoint) -> StoreResult<bool> {
        match collect(&row, safe) {
            Collected::Same => return Ok(false),
            Collected::Nothing => self.rows.remove(key, row.revision).await?,
            Collected::Change(_) => {
                let step = |row: &Row| match collect(row, safe) {
                    Collected::Change(left) => Ok::<_, std::convert::Infallible>(Step::Change(left)),
                    Collected::Same | Collected::Nothing => Ok(Step::Done),
                };
                let _ = self.rows.apply(key, Some(row), step, unchecked).await?;
            }
        }
        Ok(true)
    }

    /// Removes key rows of dropped indexes that arrived after the index was removed.
    async fn remove_orphans(&self, safe: SafePoint, pass: &mut CleaningPass) -> StoreResult<()> {
        let catalog = self.newest_catalog().await?;
        let (namespace, failed) = (super::unique::namespace()?, pass.cleaned.failed);
        // New rows have more than one version, so they are due. Older ones were checked when they were.
        let mut candidates = self.scan(&namespace, &due_up_to(safe)).await?;
        while let Some(found) = next_found(&mut *candidates, &namespace).await? {
            for (key, row) in rows(found, pass, &namespace)? {
                pass.check_since(failed)?;
                let index = super::unique::index_of(key.id.as_raw_bson_ref());
                let is_orphan = index.is_none_or(|id| !catalog.knows(id));
                if is_orphan && is_forgettable(&row, safe.readers) {
                    match self.rows.remove(&key, row.revision).await {
                        Ok(()) => pass.cleaned.collected += 1,
                        Err(error) => pass.skip(&key, error)?,
                    }
                }
            }
        }
        Ok(())
    }
}

/// Notes the start of a lock that stays.
fn note_oldest(oldest: &mut Option<Timestamp>, start: Timestamp) {
    *oldest = Some(oldest.map_or(start, |oldest| oldest.min(start)));
}

/// Returns the rows that were found, and counts the damaged ones as failures.
fn rows(found: Vec<Found>, pass: &mut CleaningPass, namespace: &Namespace) -> StoreResult<Vec<(Key, Row)>> {
    let mut rows = Vec::with_capacity(found.len());
    for found in found {
        match found {
            Found::Row(key, row) => rows.push((key, row)),
            Found::Damaged { error, .. } => pass.skip(namespace, error)?,
        }
    }
    Ok(rows)
}

/// Returns a filter for rows that may have something to forget. (Versions may have to wait longer for readers.)
fn due_up_to(safe: SafePoint) -> RawDocumentBuf {
    rawdoc! { "_hf.d": { "$lte": safe.messages.stored() } }
}

/// Returns a filter for rows whose visible version is older.
fn older(than: Timestamp) -> RawDocumentBuf {
    rawdoc! { "_hf.c": { "$lt": than.stored() } }
}

/// Returns whether all versions and rollback records of a row are older than this and it has no lock. No copy of a request that changed it can
/// still arrive then.
fn is_forgettable(row: &Row, before: Timestamp) -> bool {
    let is_old = |at: &Timestamp| *at < before;
    let cannot_be_repeated = matches!(row.revision, Revision::At(revision) if revision < before.0);
    cannot_be_repeated && row.lock.is_none() && is_old(&row.visible.commit) && row.rolled_back.iter().all(is_old)
}

/// Starts a task that cleans periodically until the engine is dropped.
pub(super) fn start(core: &Arc<Core>) {
    let Some(interval) = core.options.cleaning_interval else { return };
    let core: Weak<Core> = Arc::downgrade(core);
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(interval).await;
            let Some(core) = core.upgrade() else { return };
            match core.clean().await {
                Ok(cleaned) => tracing::debug!(?cleaned, "cleaned"),
                Err(error) => tracing::warn!(%error, "a pass of the cleaner failed: the next one tries again"),
            }
        }
    });
}
