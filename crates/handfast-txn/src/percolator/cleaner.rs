//! What dead processes left behind, and what nobody needs any more.
//!
//! One pass, in this order: the safe point is chosen; all locks are looked at, those that are decided or abandoned are
//! resolved; then rows forget what is below the safe point. A commit record must outlive the locks that point at it: if a
//! lock from below the safe point is still there after the first part, nothing is forgotten in this pass.
//!
//! A row with which that cannot be done (the store refuses it, or its field is not what Handfast writes), and a collection that
//! cannot be read, are counted and left; all others have their turn. What is locked there counts as a lock that is still there.
//!
//! The safe point is so far back that no transaction from below it can fetch a commit timestamp that is not refused
//! ([`PercolatorOptions::retention`](super::PercolatorOptions::retention)), and that nobody reads there
//! ([`history_lease`](super::history_lease)). No time of day says where it is ([`ages`](super::ages)).

use std::fmt::Display;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bson::{RawDocumentBuf, rawdoc};
use handfast_store::{Error as StoreError, ErrorClass, Find, Namespace, Result as StoreResult, StoreExt, Ticket};

use super::core::{Core, conflict};
use super::inspection::locked_by;
use super::records;
use super::resolver::Resolved;
use super::row::{Collected, Key, Revision, Row, SafePoint, Step, Timestamp, collect};
use super::rows::unchecked;
use super::scan::{Found, next_found};

/// Rows of one look at a collection with which a pass fails before it leaves the others for the next one: then it is not the
/// rows, and each failure may have taken as long as the store lets one wait.
const FAILED_MAX: u64 = 100;

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
    /// Rows with which that could not be done, and collections that could not be read. The log says which was the first, and why.
    /// While a lock is among them that is older than the retention, no row forgets anything.
    pub failed: u64,
}

/// A pass under way.
#[derive(Default)]
pub(super) struct CleaningPass {
    pub(super) cleaned: Cleaned,
    /// What failed first, and why.
    first: Option<String>,
}

impl CleaningPass {
    /// Goes on without something that failed.
    ///
    /// # Errors
    /// If nobody answers: the same would become of all others.
    fn skip(&mut self, what: &dyn Display, error: StoreError) -> StoreResult<()> {
        if error.class() == ErrorClass::Outage {
            return Err(error);
        }
        self.cleaned.failed += 1;
        self.first.get_or_insert_with(|| format!("{what}: {error}"));
        Ok(())
    }

    /// Goes on with the next collection if more fails in this one than is to be borne.
    fn check_since(&self, failed_before: u64) -> StoreResult<()> {
        match self.cleaned.failed - failed_before < FAILED_MAX {
            true => Ok(()),
            false => Err(conflict(format_args!("{FAILED_MAX} rows could not be cleaned, the others are left"))),
        }
    }

    /// What was done; says in one line what was not.
    pub(super) fn end(self) -> Cleaned {
        if let Some(first) = &self.first {
            tracing::warn!(
                failed = self.cleaned.failed,
                first,
                "some of what was left behind could not be cleaned: it is tried again, and while old locks are among it no \
                 history is forgotten"
            );
        }
        self.cleaned
    }
}

impl Core {
    /// One pass over all collections.
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

    /// Forgets what is below the safe point, and outcomes from before that moment. No lock points at it any more.
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

    /// Removes the records of outcomes that are older than this, and than the safe point.
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
        // What a record decided must not be asked for any more.
        let oldest = self.resolve_all(None, &mut pass).await?;
        if oldest.is_none_or(|oldest| oldest >= safe) {
            self.remove_records(before, &mut pass).await?;
        }
        Ok(pass.end().forgotten)
    }

    /// Removes the records that were written before this, which is below the safe point. Notes first how far it forgets, so
    /// that nothing is gone unnoticed.
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

    /// Resolves all locks, or those of one transaction; returns the start of the oldest transaction of which one stays: as it is
    /// alive, or as that could not be done.
    pub(super) async fn resolve_all(
        &self,
        of: Option<Timestamp>,
        pass: &mut CleaningPass,
    ) -> StoreResult<Option<Timestamp>> {
        let mut oldest = None;
        for namespace in self.namespaces().await? {
            if let Err(error) = self.resolve_in(&namespace, of, pass, &mut oldest).await {
                pass.skip(&namespace, error)?;
                // Nobody knows what is locked there.
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
                        rows.push((key, row));
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

    /// Whether the row had something to forget.
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

    /// Removes the rows of indexes that are not there any more: what arrived after they were removed.
    async fn remove_orphans(&self, safe: SafePoint, pass: &mut CleaningPass) -> StoreResult<()> {
        let catalog = self.newest_catalog().await?;
        let (namespace, failed) = (super::unique::namespace()?, pass.cleaned.failed);
        // Rows that have just been made have more than one version. Older ones were looked at then.
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

/// A lock of this transaction stays.
fn note_oldest(oldest: &mut Option<Timestamp>, start: Timestamp) {
    *oldest = Some(oldest.map_or(start, |oldest| oldest.min(start)));
}

/// What was found as rows, without those that are damaged.
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

/// Rows that may have something to forget. (For readers they may have to wait longer.)
fn due_up_to(safe: SafePoint) -> RawDocumentBuf {
    rawdoc! { "_hf.d": { "$lte": safe.messages.stored() } }
}

/// Rows whose visible version is older than this.
fn older(than: Timestamp) -> RawDocumentBuf {
    rawdoc! { "_hf.c": { "$lt": than.stored() } }
}

/// Whether nothing in a row is of this time or later: no version, no lock, no record of a rollback. What made or changed
/// it then can no longer be sent once more.
fn is_forgettable(row: &Row, before: Timestamp) -> bool {
    let is_old = |at: &Timestamp| *at < before;
    let cannot_be_repeated = matches!(row.revision, Revision::At(revision) if revision < before.0);
    cannot_be_repeated && row.lock.is_none() && is_old(&row.visible.commit) && row.rolled_back.iter().all(is_old)
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
