//! Authorisations: an amount is held first, and later captured in full or in part, or released, or it expires.
//!
//! ```text
//! authorise   {_id: 7, changes: [{A, "authorise", value: 0, hold: 100}], authorises: {account: B, value: 100}}
//! capture     {_id: {resolves: 7}, changes: [{A, "capture", value: -60, hold: -100}, {B, "capture", value: 60}]}
//! release     {_id: {resolves: 7}, changes: [{A, "release", value: 0, hold: -100}]}
//! ```
//!
//! A held amount counts in the balance and cannot be spent. The entry of the authorisation never changes: another
//! entry, whose id names it, resolves it, so that it is resolved at most once. No resolution takes more than was held,
//! so no resolution can be refused for lack of funds.
//!
//! An authorisation that expires is announced first, in a collection of open authorisations (`{entry: 7, expiresAt}`),
//! so that the search for expired ones does not read those that were resolved. If the process dies after the
//! announcement and the authorisation is never posted, the announcement is removed after a while.

use bson::{Bson, DateTime, Document, doc};
use handfast_store::Applied;
use tracing::Instrument;

use super::entry::{Draft, VALUE_MAX, check_callers_id};
use super::{Change, Entry, HoldEvent, HoldState, Ledger, Link, Posting};
use crate::metrics::Event;
use crate::value::equal;
use crate::{CancellationToken, Error, Result, Round, Runner, RunnerOptions};

/// Limit on the announcements of one authorisation that are removed at once; the expiry finds further ones.
const ANNOUNCED_MAX: u32 = 1000;

/// An authorisation to post: an amount that is held for a payee.
#[derive(Clone, Debug, PartialEq)]
pub struct Authorisation {
    id: Option<Bson>,
    payer: Bson,
    payee: Bson,
    value: i64,
    asset: String,
    expires_at: Option<DateTime>,
    metadata: Document,
}

impl Authorisation {
    /// Creates an authorisation that holds an amount of the payer for the payee. The amount is more than 0 and in the
    /// smallest unit of the asset.
    pub fn new(payer: impl Into<Bson>, payee: impl Into<Bson>, value: i64, asset: impl Into<String>) -> Self {
        let (payer, payee, asset) = (payer.into(), payee.into(), asset.into());
        Authorisation { id: None, payer, payee, value, asset, expires_at: None, metadata: Document::new() }
    }

    /// Sets an id of the caller's, which serves as idempotency key: authorising it again does nothing.
    #[must_use]
    pub fn with_id(self, id: impl Into<Bson>) -> Self {
        Authorisation { id: Some(id.into()), ..self }
    }

    /// Sets a time from which it cannot be captured any more. Soon after, the amount is free again
    /// ([`Ledger::expire`]).
    #[must_use]
    pub fn until(self, expires_at: DateTime) -> Self {
        Authorisation { expires_at: Some(expires_at), ..self }
    }

    /// Sets fields of the caller's own.
    #[must_use]
    pub fn with_metadata(self, metadata: Document) -> Self {
        Authorisation { metadata, ..self }
    }
}

/// The amount of an authorisation that the payee takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capture {
    /// The whole amount.
    Full,
    /// This amount, more than 0; the rest is free again.
    Part(i64),
}

/// The result of the request to resolve an authorisation.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub enum Resolution {
    /// It was resolved as requested by this entry, now or by an earlier equal request.
    Done(Box<Entry>),
    /// It had been resolved in another way before.
    Otherwise {
        /// The state that it was resolved to.
        state: HoldState,
        /// The entry that resolved it.
        by: Box<Entry>,
    },
    /// There is no authorisation with this id.
    Missing,
}

impl Ledger {
    /// Holds an amount of the payer, if it is available.
    ///
    /// # Errors
    /// [`Error::Store`] if the store fails: call again with the same id. [`Error::Invalid`] for an invalid
    /// authorisation, and if another entry has its id. [`Error::Contended`] if other posters take the places at each
    /// attempt.
    ///
    /// # Cancellation
    /// The amount may be held: call again with the same id.
    pub async fn authorise(&self, authorisation: Authorisation) -> Result<Posting> {
        let Authorisation { id, payer, payee, value, asset, expires_at, metadata } = authorisation;
        if !(1..=VALUE_MAX).contains(&value) {
            return Err(Error::invalid(format!("an authorisation is of {value}, it must be from 1 to {VALUE_MAX}")));
        }
        check_callers_id(id.as_ref())?;
        let id = id.unwrap_or_else(|| Bson::ObjectId(self.sources.ids.object_id()));
        let change = Change { hold: value, ..Change::new(payer, 0, asset).called("authorise") };
        let mut draft = Draft { metadata, ..Draft::new(id, self.now(), vec![change]) };
        draft.check(self.options.single_entry)?;
        self.check_capture(&draft, &payee, value).await?;
        (draft.link, draft.expires_at) = (Some(Link::Authorises { payee, value }), expires_at);
        let Some(expires_at) = expires_at else { return self.post_draft(draft).await };
        if let Some(posted) = self.posted(&draft).await? {
            self.count(Event::EntryRepeated, 1);
            return Ok(Posting::AlreadyPosted(posted));
        }
        let announced = self.announce(&draft.id, expires_at).await?;
        let posting = self.post_draft(draft).await;
        let is_posted = match &posting {
            Ok(Posting::Posted(_) | Posting::AlreadyPosted(_)) => true,
            Ok(Posting::Refused(_)) => false,
            Err(error) => error.applied() == Applied::Maybe,
        };
        if !is_posted {
            // No other process deletes this announcement: one that sends the same authorisation makes an announcement
            // of its own.
            self.holds.delete_one(&doc! { "_id": announced }).await?;
        }
        posting
    }

    /// Checks that the entry of the capture will be valid, too.
    async fn check_capture(&self, draft: &Draft, payee: &Bson, value: i64) -> Result<()> {
        let mut capture = draft.clone();
        let taken = draft.changes.iter().map(|change| Change { value: -value, hold: 0, ..change.clone() });
        let given = draft.changes.iter().map(|change| Change::new(payee.clone(), value, change.asset.clone()));
        capture.changes = taken.chain(given).collect();
        capture.check(self.options.single_entry)?;
        self.accounts_of(&capture).await.map(|_| ())
    }

    pub(super) async fn announce(&self, id: &Bson, expires_at: DateTime) -> Result<Bson> {
        let announced = Bson::ObjectId(self.sources.ids.object_id());
        let fields = self.fields();
        let document = doc! { "_id": announced.clone(), &fields.entry: id.clone(), &fields.expires_at: expires_at };
        self.holds.insert(&document).await?;
        Ok(announced)
    }

    /// Gives the payee the held amount, or a part of it. The rest is free again. An authorisation whose time is over
    /// expires instead.
    ///
    /// # Errors
    /// [`Error::Invalid`] for more than was held. [`Error::Store`] if the store fails: capture it again.
    ///
    /// # Cancellation
    /// It may have been captured: capture it again.
    pub async fn capture(&self, id: impl Into<Bson>, capture: Capture) -> Result<Resolution> {
        let Some(hold) = self.authorisation(id.into()).await? else { return Ok(Resolution::Missing) };
        if hold.expires_at.is_some_and(|expires_at| expires_at <= self.now()) {
            return Ok(match self.resolve(&hold, HoldEvent::Expired, 0).await?.0 {
                Resolution::Done(by) => Resolution::Otherwise { state: HoldState::Expired, by },
                other => other,
            });
        }
        let value = match capture {
            Capture::Full => hold.value,
            Capture::Part(value) if (1..=hold.value).contains(&value) => value,
            Capture::Part(value) => {
                let text = format!("{value} cannot be captured of {}, only from 1 to that", hold.value);
                return Err(Error::invalid(text));
            }
        };
        Ok(self.resolve(&hold, HoldEvent::Captured, value).await?.0)
    }

    /// Frees the held amount.
    ///
    /// # Errors
    /// [`Error::Store`] if the store fails: release it again.
    ///
    /// # Cancellation
    /// It may have been released: release it again.
    pub async fn release(&self, id: impl Into<Bson>) -> Result<Resolution> {
        match self.authorisation(id.into()).await? {
            Some(hold) => Ok(self.resolve(&hold, HoldEvent::Released, 0).await?.0),
            None => Ok(Resolution::Missing),
        }
    }

    /// Returns the state of an authorisation; `None` if there is none with this id.
    pub async fn hold_state(&self, id: impl Into<Bson>) -> Result<Option<HoldState>> {
        let id = id.into();
        if self.authorisation(id.clone()).await?.is_none() {
            return Ok(None);
        }
        Ok(Some(self.show(resolution_id(&id)).await?.map_or(HoldState::Open, |by| state_of(&by))))
    }

    async fn authorisation(&self, id: Bson) -> Result<Option<Hold>> {
        Ok(self.show(id).await?.and_then(|entry| Hold::of(&entry)))
    }

    /// Returns the resolution, and whether it was made now.
    async fn resolve(&self, hold: &Hold, event: HoldEvent, value: i64) -> Result<(Resolution, bool)> {
        let change =
            |account: &Bson, value: i64| Change::new(account.clone(), value, hold.asset.clone()).called(event.name());
        let mut changes = vec![Change { hold: -hold.value, ..change(&hold.payer, -value) }];
        if value > 0 {
            changes.push(change(&hold.payee, value));
        }
        let mut draft = Draft::new(resolution_id(&hold.id), self.now(), changes);
        draft.link = Some(Link::Resolves(hold.id.clone()));
        let (entry, is_new) = match self.posted(&draft).await? {
            Some(entry) => (entry, false),
            None => match self.post_draft(draft.clone()).await? {
                Posting::Posted(entry) => (entry, true),
                Posting::AlreadyPosted(entry) => (entry, false),
                Posting::Refused(refusal) => return Err(Error::invalid(refusal.to_string())),
            },
        };
        if hold.expires_at.is_some() {
            self.forget(&hold.id).await?;
        }
        let by = Box::new(entry);
        let resolution = match by.is_of(&draft) {
            true => Resolution::Done(by),
            false => Resolution::Otherwise { state: state_of(&by), by },
        };
        Ok((resolution, is_new))
    }

    /// Removes the announcements of an authorisation that is resolved. It has one for each time that it was sent.
    async fn forget(&self, id: &Bson) -> Result<()> {
        for _ in 0..ANNOUNCED_MAX {
            if !self.holds.delete_one(&doc! { &self.fields().entry: equal(id) }).await? {
                break;
            }
        }
        Ok(())
    }

    /// Frees authorisations (at most `batch`) whose time is over, and returns how many. It may run in any process at any
    /// time.
    ///
    /// # Errors
    /// [`Error::Store`] if the search fails. A failure at a single authorisation is logged and counted.
    pub async fn expire(&self, batch: u32) -> Result<Round> {
        let field = &self.fields().expires_at;
        let over = doc! { field: { "$lte": self.now() } };
        let found = self.holds.find(&over, &doc! { field: 1 }, batch).await?;
        let mut round = Round { more: found.len() as u64 >= u64::from(batch), ..Round::default() };
        for announced in found {
            let id = announced.get(&self.fields().entry).cloned().unwrap_or(Bson::Null);
            let span = tracing::info_span!("ledger.expire", %id);
            match self.expire_one(&id, &announced).instrument(span.clone()).await {
                Ok(expired) => round.done += u64::from(expired),
                Err(error) => {
                    span.in_scope(
                        || tracing::warn!(%error, "an authorisation could not be freed, it is tried again later"),
                    );
                    round.failed += 1;
                }
            }
        }
        Ok(round)
    }

    /// Returns whether the held amount was freed now.
    async fn expire_one(&self, id: &Bson, announced: &Document) -> Result<bool> {
        if let Some(hold) = self.authorisation(id.clone()).await? {
            let (_, is_new) = self.resolve(&hold, HoldEvent::Expired, 0).await?;
            self.count(Event::HoldExpired, u64::from(is_new));
            return Ok(is_new);
        }
        // The process that announced it died, or its request is still under way.
        let expires_at = announced.get_datetime(&self.fields().expires_at).copied().unwrap_or(DateTime::MIN);
        if expires_at <= self.ago(self.options.late_after) {
            let announced = announced.get("_id").cloned().unwrap_or(Bson::Null);
            self.holds.delete_one(&doc! { "_id": announced }).await?;
        }
        Ok(false)
    }

    /// Runs [`Ledger::expire`] in the background.
    ///
    /// # Errors
    /// [`Error::Invalid`] for options that are out of range.
    pub fn spawn_expiry(&self, options: RunnerOptions, cancel: &CancellationToken) -> Result<Runner> {
        let ledger = self.clone();
        Runner::spawn("ledger.expiry", &self.sources, options, cancel, move |batch| {
            let ledger = ledger.clone();
            async move { ledger.expire(batch).await }
        })
    }
}

/// An authorisation.
struct Hold {
    id: Bson,
    payer: Bson,
    payee: Bson,
    value: i64,
    asset: String,
    expires_at: Option<DateTime>,
}

impl Hold {
    fn of(entry: &Entry) -> Option<Self> {
        let Some(Link::Authorises { payee, value }) = &entry.link else { return None };
        let held = entry.changes.iter().find(|change| change.hold > 0).filter(|_| entry.counts())?;
        Some(Hold {
            id: entry.id.clone(),
            payer: held.account.clone(),
            payee: payee.clone(),
            value: (*value).min(held.hold),
            asset: held.asset.clone(),
            expires_at: entry.expires_at,
        })
    }
}

/// Returns the id of the entry that resolves an authorisation. As ids are unique, there is at most one.
fn resolution_id(id: &Bson) -> Bson {
    Bson::Document(doc! { "resolves": id.clone() })
}

/// Returns the state of the authorisation that an entry resolves.
fn state_of(entry: &Entry) -> HoldState {
    let called = |event: &HoldEvent| entry.changes.iter().any(|change| change.kind == event.name());
    let event = HoldEvent::ALL.into_iter().find(called);
    event.and_then(|event| HoldState::Open.after(event)).unwrap_or(HoldState::Open)
}
