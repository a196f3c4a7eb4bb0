//! The first run over existing documents, and audits of all copies.

use std::collections::HashMap;

use bson::{Bson, Document, doc};
use tracing::Instrument;

use super::comparison::{CopyState, compare, not_comparable, report};
use super::record::Copy;
use super::{Link, Main, MainState, StaleCopy, SyncFlag};
use crate::metrics::Event;
use crate::steps::Pages;
use crate::value::{equal, key_of, one_of};
use crate::{CancellationToken, Error, Result, Round, Runner, RunnerOptions};

/// Attempts at a copy that seems to be stale, while its main document keeps changing.
const READS_MAX: u32 = 4;

/// The counts of an audit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Audit {
    /// The copies that were read.
    pub copies: u64,
    /// Copies that differ and have a flag: a change is under way, or the sweeper will carry it.
    pub in_flight: u64,
    /// Copies that differ without a flag, or cannot be compared. Each was reported.
    pub stale: u64,
}

/// The result of a comparison.
#[expect(clippy::large_enum_variant, reason = "there is one at a time")]
enum Finding {
    Equal,
    InFlight,
    Stale(StaleCopy),
}

impl SyncFlag {
    /// Gives every main document that existed before the pattern a version, and every copy the values and the version
    /// of its main document. It reads `page` main documents at a time. It may be run again at any time from the
    /// beginning, as after a new link was declared.
    ///
    /// # Errors
    /// [`Error::Store`] if the search fails. A failure at a single main document is logged and counted.
    pub async fn backfill(&self, page: u32) -> Result<Round> {
        let mut round = Round::default();
        let mut pages = self.mains.pages(&doc! {}, page).await?;
        while let Some(found) = pages.next().await? {
            for document in found {
                let id = document.get("_id").cloned().unwrap_or(Bson::Null);
                let span = tracing::info_span!("sync_flag.backfill", main = %id);
                match self.backfill_one(&id).instrument(span.clone()).await {
                    Ok(()) => round.done += 1,
                    Err(error) => {
                        span.in_scope(|| tracing::warn!(%error, "copies could not be brought up to date"));
                        round.failed += 1;
                    }
                }
            }
        }
        Ok(round)
    }

    async fn backfill_one(&self, id: &Bson) -> Result<()> {
        let Some(main) = self.begin_first(id).await? else { return Ok(()) };
        match main.state {
            // Its copies may be older than the declaration of their link.
            MainState::Settled => self.carry_version(&main).await,
            MainState::Syncing | MainState::Deleting | MainState::Gone => self.carry(&main).await.map(|_| ()),
        }
    }

    /// Reads every copy, `page` at a time, and reports each one that differs from its main document without a flag.
    /// Nothing is changed. It may run at any time: a copy is reported only if its main document had the same version
    /// and no flag both before and after the copy was read. If the version or the flag of a main document cannot be
    /// read, each of its copies is reported ([`Stale::MainUnreadable`](super::Stale::MainUnreadable)).
    pub async fn drift(&self, page: u32, mut stale: impl FnMut(StaleCopy)) -> Result<Audit> {
        let mut audit = Audit::default();
        for link in &self.options.links {
            let copies = self.copies(link);
            let mut pages = copies.pages(&doc! { &link.foreign_key: { "$exists": true } }, page).await?;
            while let Some(found) = self.next_stale(link, &mut pages, &mut audit).await? {
                self.count(Event::CopyStale, found.len() as u64);
                for copy in found {
                    stale(copy);
                }
            }
        }
        Ok(audit)
    }

    /// Repairs what [`SyncFlag::drift`] reports.
    ///
    /// # Errors
    /// [`Error::Store`] if the search fails. A failure at a single copy is logged and counted.
    pub async fn repair(&self, page: u32) -> Result<Round> {
        let mut round = Round::default();
        for link in &self.options.links {
            let copies = self.copies(link);
            let mut pages = copies.pages(&doc! { &link.foreign_key: { "$exists": true } }, page).await?;
            while let Some(found) = self.next_stale(link, &mut pages, &mut Audit::default()).await? {
                for copy in found {
                    self.repair_one(link, &copy, &mut round).await;
                }
            }
        }
        Ok(round)
    }

    /// Runs [`SyncFlag::repair`] in the background: each round reads all copies, so the interval should be long. A
    /// batch is a page.
    ///
    /// # Errors
    /// [`Error::Invalid`] for options that are out of range.
    pub fn spawn_repair(&self, options: RunnerOptions, cancel: &CancellationToken) -> Result<Runner> {
        let flag = self.clone();
        Runner::spawn("sync_flag.repair", &self.sources, options, cancel, move |page| {
            let flag = flag.clone();
            async move { flag.repair(page).await }
        })
    }

    /// Runs [`SyncFlag::drift`] in the background: each stale copy is logged, and counted as `stale` by
    /// [`metrics`](crate::metrics).
    ///
    /// # Errors
    /// [`Error::Invalid`] for options that are out of range.
    pub fn spawn_drift(&self, options: RunnerOptions, cancel: &CancellationToken) -> Result<Runner> {
        let (flag, page) = (self.clone(), options.batch);
        Runner::spawn_look("sync_flag.drift", &self.sources, options, cancel, move || {
            let flag = flag.clone();
            async move {
                let tell = |copy: StaleCopy| {
                    tracing::warn!(copy = %copy.id, target = %copy.target, main = %copy.main, why = %copy.why, "a copy is stale");
                };
                flag.drift(page, tell).await
            }
        })
    }

    /// Returns the stale copies of the next page; `None` after the last page.
    async fn next_stale(
        &self,
        link: &Link,
        pages: &mut Pages<'_>,
        audit: &mut Audit,
    ) -> Result<Option<Vec<StaleCopy>>> {
        let Some(found) = pages.next().await? else { return Ok(None) };
        self.audit_page(link, found, audit).await.map(Some)
    }

    async fn repair_one(&self, link: &Link, copy: &StaleCopy, round: &mut Round) {
        let span = tracing::info_span!("sync_flag.repair", copy = %copy.id, target = %link.target, why = %copy.why);
        match self.refresh_copy(link, &copy.id).instrument(span.clone()).await {
            Ok(repaired) => {
                self.count(Event::CopyRepaired, u64::from(repaired));
                round.done += 1;
            }
            Err(error) => {
                span.in_scope(|| tracing::warn!(%error, "a stale copy could not be repaired, it is tried again later"));
                round.failed += 1;
            }
        }
    }

    /// Returns the stale copies among these.
    async fn audit_page(&self, link: &Link, page: Vec<Document>, audit: &mut Audit) -> Result<Vec<StaleCopy>> {
        let copies: Vec<_> = page.into_iter().filter_map(|document| Copy::read(document, link)).collect();
        let mains = self.mains_of(&copies).await?;
        let mut stale = Vec::new();
        for copy in copies {
            audit.copies += 1;
            let main = mains.get(&key_of(&copy.main)?);
            // If its main document cannot be read, nothing says what a copy should be.
            let is_readable = !matches!(main, Some(None));
            if is_readable && compare(link, &copy, main.and_then(Option::as_ref)) == CopyState::Equal {
                continue;
            }
            let finding = match self.compare_again(link, copy.clone()).await {
                Err(Error::Damaged { .. }) => Finding::Stale(not_comparable(link, copy)),
                compared => compared?,
            };
            match finding {
                Finding::Equal => {}
                Finding::InFlight => audit.in_flight += 1,
                Finding::Stale(copy) => {
                    audit.stale += 1;
                    stale.push(copy);
                }
            }
        }
        Ok(stale)
    }

    /// Reads a copy again, between two reads of its main document that must be the same.
    async fn compare_again(&self, link: &Link, copy: Copy) -> Result<Finding> {
        let mut before = self.main(&copy.main).await?;
        for _ in 0..READS_MAX {
            let document = self.copies(link).find_one(&doc! { "_id": equal(&copy.id) }).await?;
            // A document that was deleted, or names no main document any more, is no copy.
            let Some(copy) = document.and_then(|document| Copy::read(document, link)) else {
                return Ok(Finding::Equal);
            };
            let after = self.main(&copy.main).await?;
            if same(before.as_ref(), after.as_ref()) {
                return Ok(match compare(link, &copy, after.as_ref()) {
                    CopyState::Equal => Finding::Equal,
                    CopyState::InFlight => Finding::InFlight,
                    CopyState::Stale(why) => Finding::Stale(report(link, &copy, after.as_ref(), why)),
                });
            }
            before = after;
        }
        // The main document changes faster than it can be compared.
        Ok(Finding::InFlight)
    }

    /// Returns the main documents of these copies by the key of their id; `None` for one that cannot be read. They are
    /// read after the copies.
    async fn mains_of(&self, copies: &[Copy]) -> Result<HashMap<Vec<u8>, Option<Main>>> {
        let ids: HashMap<Vec<u8>, Bson> =
            copies.iter().map(|copy| Ok((key_of(&copy.main)?, copy.main.clone()))).collect::<Result<_>>()?;
        if ids.is_empty() {
            return Ok(HashMap::new());
        }
        let limit = u32::try_from(ids.len()).unwrap_or(u32::MAX);
        let named = doc! { "_id": one_of(ids.into_values()) };
        let mut mains = HashMap::new();
        for document in self.mains.find(&named, &doc! {}, limit).await? {
            let key = key_of(document.get("_id").unwrap_or(&Bson::Null))?;
            mains.insert(key, Main::read(&self.mains, document, self.fields()).ok());
        }
        Ok(mains)
    }
}

/// Returns whether no change was begun between two reads of a main document.
fn same(before: Option<&Main>, after: Option<&Main>) -> bool {
    match (before, after) {
        (None, None) => true,
        (Some(before), Some(after)) => {
            (&before.id, before.version, before.state) == (&after.id, after.version, after.state)
        }
        _ => false,
    }
}
