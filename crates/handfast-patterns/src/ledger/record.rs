//! The document of an entry.

use bson::{Bson, DateTime, Document, doc};
use handfast_store::Namespace;

use super::account::{Account, Cache};
use super::entry::{Draft, VALUE_MAX, check_id};
use super::{EntryState, Ledger, LedgerFields, Link, Proc, Status};
use crate::steps::damaged;
use crate::value::{array, date, parsed, same_id};
use crate::{Error, Result};

/// The name of the change at an abandoned place.
const ABANDONED: &str = "abandoned";
/// The name of the change from which on a minimum holds.
pub(super) const MINIMUM: &str = "minimum";

/// Limit on the places of an account, as shells write numbers that are exact up to there.
pub(super) const SEQUENCE_NUMBER_MAX: i64 = 1 << 53;

/// A change of an account as the entry's document stores it, with its sequence number in the account.
#[derive(Clone, Debug, PartialEq)]
pub struct EntryChange {
    /// The `_id` of the account.
    pub account: Bson,
    /// Its name, such as `deposit`.
    pub kind: String,
    /// The amount, in the smallest unit of the asset.
    pub value: i64,
    /// The currency or other unit; empty if the document has none.
    pub asset: String,
    /// The amount that it holds in the account or, if negative, frees.
    pub hold: i64,
    /// Its sequence number among the changes of the account, from 1. Messages and documentation call it its place.
    pub seq_id: i64,
    /// The balance of the account after it, which is reliable in a committed entry only.
    pub cached_balance: Option<i64>,
    /// The amount that is held in the account after it.
    pub cached_held: i64,
}

/// An entry as its document describes it.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Its `_id`.
    pub id: Bson,
    /// The time when it was posted.
    pub ts: DateTime,
    /// Its status.
    pub status: Status,
    /// Its changes of accounts.
    pub changes: Vec<EntryChange>,
    /// Its relation to another entry.
    pub link: Option<Link>,
    /// The time when it expires, if it is an authorisation that does.
    pub expires_at: Option<DateTime>,
    /// The reason why it was canceled, or reverses another one.
    pub reason: Option<String>,
    /// The caller's own fields.
    pub metadata: Document,
}

impl Entry {
    /// Returns whether the entry counts in balances.
    pub fn counts(&self) -> bool {
        self.status.state.counts()
    }

    /// Returns whether the entry is committed, and so cannot change any more.
    pub fn is_committed(&self) -> bool {
        self.status.proc == Proc::Committed
    }

    /// Returns its changes of an account, in the order of their sequence numbers.
    pub fn changes_of<'e>(&'e self, account: &'e Bson) -> impl Iterator<Item = &'e EntryChange> {
        let mut changes: Vec<_> = self.changes.iter().filter(|change| same_id(&change.account, account)).collect();
        changes.sort_by_key(|change| change.seq_id);
        changes.into_iter()
    }

    /// Returns the amount by which the account can spend more after it.
    pub(super) fn available(&self, account: &Bson) -> i64 {
        self.changes_of(account).fold(0, |sum, change| sum.saturating_add(change.value).saturating_sub(change.hold))
    }

    /// Creates an entry that counts for nothing, for places that have no entry.
    pub(super) fn abandoned(ledger: &Ledger, proc: Proc, changes: Vec<EntryChange>) -> Self {
        Entry {
            id: Bson::ObjectId(ledger.sources.ids.object_id()),
            ts: ledger.now(),
            status: Status { proc, state: EntryState::Abandoned },
            changes,
            link: None,
            expires_at: None,
            reason: None,
            metadata: Document::new(),
        }
    }

    /// Returns the entry of a draft with the sequence numbers of its changes.
    pub(super) fn of_draft(draft: &Draft, seq_ids: &[i64]) -> Self {
        let entry_change = |(change, seq_id): (&super::Change, &i64)| EntryChange {
            account: change.account.clone(),
            kind: change.kind.clone(),
            value: change.value,
            asset: change.asset.clone(),
            hold: change.hold,
            seq_id: *seq_id,
            cached_balance: None,
            cached_held: 0,
        };
        Entry {
            id: draft.id.clone(),
            ts: draft.ts,
            status: Status::POSTED,
            changes: draft.changes.iter().zip(seq_ids).map(entry_change).collect(),
            link: draft.link.clone(),
            expires_at: draft.expires_at,
            reason: draft.reason.clone(),
            metadata: draft.metadata.clone(),
        }
    }

    /// Returns whether the entry was posted from this draft. The id of an entry with a link is made from the linked
    /// one, whatever the caller added to it.
    pub(super) fn is_of(&self, draft: &Draft) -> bool {
        let same = |(stored, change): (&EntryChange, &super::Change)| {
            same_id(&stored.account, &change.account)
                && (&stored.kind, stored.value, &stored.asset, stored.hold)
                    == (&change.kind, change.value, &change.asset, change.hold)
        };
        self.changes.len() == draft.changes.len()
            && self.changes.iter().zip(&draft.changes).all(same)
            && self.link == draft.link
            && self.expires_at == draft.expires_at
            && (draft.id.as_document().is_some() || self.metadata == draft.metadata)
    }

    /// Returns the document to insert.
    pub(super) fn to_document(&self, fields: &LedgerFields) -> Document {
        let changes: Vec<_> = self.changes.iter().map(|change| change.to_document(fields)).collect();
        let mut document = doc! {
            "_id": self.id.clone(),
            &fields.ts: self.ts,
            &fields.proc: self.status.proc.name(),
            &fields.state: self.status.state.name(),
            &fields.changes: changes,
        };
        let link = self.link.as_ref().map(|link| match link {
            Link::Reverses(id) => (&fields.reverses, id.clone()),
            Link::Resolves(id) => (&fields.resolves, id.clone()),
            Link::Cancels(id) => (&fields.cancels, id.clone()),
            Link::Authorises { payee, value } => {
                (&fields.authorises, Bson::Document(doc! { &fields.account: payee.clone(), &fields.value: *value }))
            }
        });
        let metadata = (!self.metadata.is_empty()).then(|| Bson::Document(self.metadata.clone()));
        let optional = [
            link,
            self.expires_at.map(|at| (&fields.expires_at, Bson::DateTime(at))),
            self.reason.clone().map(|reason| (&fields.reason, Bson::String(reason))),
            metadata.map(|metadata| (&fields.metadata, metadata)),
        ];
        document.extend(optional.into_iter().flatten().map(|(name, value)| (name.clone(), value)));
        document
    }

    /// Reads an entry from its document.
    ///
    /// # Errors
    /// [`Error::Damaged`], which says what is wrong.
    pub(super) fn read(entries: &Namespace, document: &Document, fields: &LedgerFields) -> Result<Self> {
        let read = || -> Result<Self, Box<dyn std::error::Error>> {
            let changes = array(document, &fields.changes)?.iter().map(|change| match change {
                Bson::Document(change) => EntryChange::read(change, fields),
                other => Err(format!("a change is {other}, not a document").into()),
            });
            Ok(Entry {
                id: document.get("_id").cloned().ok_or("it has no _id")?,
                ts: date(document, &fields.ts)?,
                status: Status {
                    proc: parsed(document, &fields.proc)?,
                    state: parsed::<EntryState>(document, &fields.state)?,
                },
                changes: changes.collect::<Result<_, _>>()?,
                link: link_of(document, fields)?,
                expires_at: document.get_datetime(&fields.expires_at).ok().copied(),
                reason: document.get_str(&fields.reason).ok().map(str::to_owned),
                metadata: document.get_document(&fields.metadata).cloned().unwrap_or_default(),
            })
        };
        read().map_err(|error| damaged(entries, document, error))
    }
}

impl EntryChange {
    /// Creates the change of an abandoned place, with the balance there if that is final.
    pub(super) fn abandoned(account: &Account, seq_id: i64, at: Option<Cache>) -> Self {
        EntryChange {
            account: account.id.clone(),
            kind: ABANDONED.to_owned(),
            value: 0,
            asset: account.asset.clone(),
            hold: 0,
            seq_id,
            cached_balance: at.map(|at| at.balance),
            cached_held: at.map_or(0, |at| at.held),
        }
    }

    /// Returns whether the change only fills a place without another entry.
    pub(super) fn is_abandoned(&self) -> bool {
        self.kind == ABANDONED
    }

    fn to_document(&self, fields: &LedgerFields) -> Document {
        let mut change = doc! {
            &fields.account: self.account.clone(),
            &fields.kind: &self.kind,
            &fields.value: self.value,
            &fields.asset: &self.asset,
            &fields.seq_id: self.seq_id,
            &fields.cached_balance: self.cached_balance.map_or(Bson::Null, Bson::Int64),
        };
        let optional = [(&fields.hold, self.hold), (&fields.cached_held, self.cached_held)];
        for (name, number) in optional.into_iter().filter(|(_, number)| *number != 0) {
            change.insert(name, number);
        }
        change
    }

    fn read(change: &Document, fields: &LedgerFields) -> Result<Self, Box<dyn std::error::Error>> {
        let text = |name: &String| change.get_str(name).unwrap_or_default().to_owned();
        let account = change.get(&fields.account).cloned().ok_or("a change has no account")?;
        check_id(&account, "an account")?;
        let (kind, hold) = (text(&fields.kind), integer(change, &fields.hold)?.unwrap_or(0));
        // The amount of an abandoned place may be that of several entries.
        if hold.unsigned_abs() > VALUE_MAX.unsigned_abs() && kind != ABANDONED {
            return Err(format!("its {} is {hold}, it must be within {VALUE_MAX} of 0", fields.hold).into());
        }
        Ok(EntryChange {
            account,
            kind,
            value: integer(change, &fields.value)?.ok_or("a change has no value")?,
            asset: text(&fields.asset),
            hold,
            seq_id: place_of(change, fields)?,
            cached_balance: integer(change, &fields.cached_balance)?,
            cached_held: integer(change, &fields.cached_held)?.unwrap_or(0),
        })
    }
}

fn place_of(change: &Document, fields: &LedgerFields) -> Result<i64, Box<dyn std::error::Error>> {
    let place = integer(change, &fields.seq_id)?.ok_or("a change has no place")?;
    match (1..=SEQUENCE_NUMBER_MAX).contains(&place) {
        true => Ok(place),
        false => {
            Err(format!("its {} is {place}, and places are from 1 to {SEQUENCE_NUMBER_MAX}", fields.seq_id).into())
        }
    }
}

fn link_of(document: &Document, fields: &LedgerFields) -> Result<Option<Link>, Box<dyn std::error::Error>> {
    if let Ok(authorises) = document.get_document(&fields.authorises) {
        let payee = authorises.get(&fields.account).cloned().ok_or("an authorisation is for nobody")?;
        let value = integer(authorises, &fields.value)?.ok_or("an authorisation is for no amount")?;
        return Ok(Some(Link::Authorises { payee, value }));
    }
    let named = |name: &String| document.get(name).cloned();
    Ok(named(&fields.reverses)
        .map(Link::Reverses)
        .or_else(|| named(&fields.resolves).map(Link::Resolves))
        .or_else(|| named(&fields.cancels).map(Link::Cancels)))
}

/// Reads an integer; `None` if the field is missing or null. Any numeric type will do, because shells write several.
pub(super) fn integer(document: &Document, field: &str) -> Result<Option<i64>, Error> {
    match document.get(field) {
        None | Some(Bson::Null) => Ok(None),
        Some(Bson::Int32(number)) => Ok(Some(i64::from(*number))),
        Some(Bson::Int64(number)) => Ok(Some(*number)),
        Some(Bson::Double(number)) if number.fract() == 0.0 && number.abs() < 9e15 => Ok(Some(*number as i64)),
        Some(other) => Err(Error::invalid(format!("its {field} is {other}, not an integer"))),
    }
}
