//! The documents of accounts, which hold an account's settings and a cache of its balance.
//!
//! `{_id, asset, minimum?, lastSeqId?, cache: {balance, seqId}}`. An account has a document before it has its first
//! entry: the document determines the asset of the account, so that two processes that post to it first cannot
//! disagree.

use bson::{Bson, Document, doc};

use super::entry::{Draft, check_asset, check_id, check_length};
use super::record::{EntryChange, MINIMUM, SEQUENCE_NUMBER_MAX, integer};
use super::{Change, Ledger, LedgerFields, Posting, requests};
use crate::steps::{Added, Pages, Steps};
use crate::value::{equal, one_of, same_id, string};
use crate::{Error, Result};

/// The balance of an account at a place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cache {
    /// The balance after the place, in the smallest unit of the asset.
    pub balance: i64,
    /// The part of it that is held.
    pub held: i64,
    /// The place; 0 is before the first one.
    pub seq_id: i64,
}

/// An account as its document describes it.
#[derive(Clone, Debug, PartialEq)]
pub struct Account {
    /// Its `_id`.
    pub id: Bson,
    /// The currency or other unit; empty if the document has none.
    pub asset: String,
    /// The limit below which no entry may take the available amount.
    pub minimum: Option<i64>,
    /// The last place that was drawn, if its places come from a sequence.
    pub last_seq_id: Option<i64>,
    /// The cached balance at a committed place, if there is one.
    pub cache: Option<Cache>,
}

/// An account to be opened.
#[derive(Clone, Debug, PartialEq)]
pub struct NewAccount {
    id: Bson,
    asset: String,
    minimum: Option<i64>,
    sequence: bool,
}

impl NewAccount {
    /// Creates an account in an asset. Opening it is needed only for further settings, as the first entry opens an
    /// account, too.
    pub fn new(id: impl Into<Bson>, asset: impl Into<String>) -> Self {
        NewAccount { id: id.into(), asset: asset.into(), minimum: None, sequence: false }
    }

    /// Sets the limit below which no entry may take the available amount.
    #[must_use]
    pub fn with_minimum(self, minimum: i64) -> Self {
        NewAccount { minimum: Some(minimum), ..self }
    }

    /// Draws its places from a sequence in its document, for an account that many processes post to at the same time.
    /// It has no minimum, and an entry has at most one such account; the [module's documentation](super) says why.
    #[must_use]
    pub fn with_sequence(self) -> Self {
        NewAccount { sequence: true, ..self }
    }
}

impl Account {
    pub(super) fn read(steps: &Steps, document: &Document, fields: &LedgerFields) -> Result<Self> {
        let read = || -> Result<Self> {
            let cache = match document.get(&fields.cache) {
                None | Some(Bson::Null) => None,
                Some(Bson::Document(cache)) => Some(Cache::read(cache, fields)?),
                Some(other) => return Err(Error::invalid(format!("its {} is {other}, not a document", fields.cache))),
            };
            let last_seq_id = integer(document, &fields.last_seq_id)?;
            if let Some(last) = last_seq_id.filter(|last| !(0..SEQUENCE_NUMBER_MAX).contains(last)) {
                let name = &fields.last_seq_id;
                return Err(Error::invalid(format!(
                    "its {name} is {last}, and places are from 1 to {SEQUENCE_NUMBER_MAX}"
                )));
            }
            let minimum = integer(document, &fields.minimum)?;
            if minimum.is_some() && last_seq_id.is_some() {
                let LedgerFields { minimum, last_seq_id, .. } = fields;
                return Err(Error::invalid(format!(
                    "it has {minimum} and {last_seq_id}, and an account with a sequence has no minimum: remove one of them"
                )));
            }
            Ok(Account {
                id: document.get("_id").cloned().unwrap_or(Bson::Null),
                asset: match document.get(&fields.asset) {
                    None => String::new(),
                    Some(_) => string(document, &fields.asset)?.to_owned(),
                },
                minimum,
                last_seq_id,
                cache,
            })
        };
        read().map_err(|error| steps.damaged(document, error))
    }
}

impl Cache {
    fn read(cache: &Document, fields: &LedgerFields) -> Result<Self> {
        let number = |field| integer(cache, field);
        let (Some(balance), Some(seq_id)) = (number(&fields.balance)?, number(&fields.seq_id)?) else {
            let LedgerFields { cache, balance, seq_id, .. } = fields;
            return Err(Error::invalid(format!("its {cache} has no {balance} or no {seq_id}")));
        };
        Ok(Cache { balance, held: number(&fields.held)?.unwrap_or(0), seq_id })
    }

    /// Returns the balance after a change.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the balance does not fit into 64 bits.
    pub(super) fn after(self, change: &EntryChange, counts: bool) -> Result<Self> {
        let (value, hold) = if counts { (change.value, change.hold) } else { (0, 0) };
        let too_large = || Error::invalid(format!("the balance of account {} is too large", change.account));
        Ok(Cache {
            balance: self.balance.checked_add(value).ok_or_else(too_large)?,
            held: self.held.checked_add(hold).ok_or_else(too_large)?,
            seq_id: change.seq_id,
        })
    }

    /// Returns the stored document.
    pub(super) fn to_document(self, fields: &LedgerFields) -> Document {
        let mut cache = doc! { &fields.balance: self.balance, &fields.seq_id: self.seq_id };
        if self.held != 0 {
            cache.insert(&fields.held, self.held);
        }
        cache
    }
}

impl Ledger {
    /// Opens an account with its settings before anything is posted to it, or again if its document is lost. Opening
    /// it again with the same settings does nothing.
    ///
    /// # Errors
    /// [`Error::Invalid`] for options that exclude each other, for an account that is open with other options, and for one that has entries
    /// in another asset.
    ///
    /// # Cancellation
    /// The account may be open: open it again.
    pub async fn open_account(&self, account: NewAccount) -> Result<()> {
        let NewAccount { id, asset, minimum, sequence } = account;
        check_id(&id, "an account")?;
        check_length(&id, "an account")?;
        check_asset(&asset)?;
        if sequence && minimum.is_some() {
            return Err(Error::invalid(
                "an account with a sequence has no minimum: the order of its entries is unknown when they are posted",
            ));
        }
        if let Some(asset_of) = self.asset_of_entries(&id).await?.filter(|of| !of.is_empty() && *of != asset) {
            return Err(Error::invalid(format!("the entries of account {id} are in {asset_of:?}, not in {asset:?}")));
        }
        // The entries that have places may be older than the sequence.
        let last = if sequence { Some(self.last_place(&id).await?) } else { None };
        let wanted = Account { id, asset, minimum, last_seq_id: last, cache: None };
        if self.accounts.insert(&self.account_document(&wanted)).await? == Added::New {
            return Ok(());
        }
        let Some(there) = self.account(wanted.id.clone()).await? else {
            return Err(Error::invalid(format!("account {} was opened and removed by others", wanted.id)));
        };
        match there.differences(&wanted) {
            differences if differences.is_empty() => Ok(()),
            differences => Err(Error::invalid(format!(
                "account {} is open with other settings: {}; open it with these, or set its minimum in its document or by set_minimum",
                wanted.id,
                differences.join(", ")
            ))),
        }
    }

    /// Sets the amount that must stay available in an account, or removes the limit. It holds for every entry that is
    /// posted after this has returned. An account that is below it may only go up.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an account that does not exist or has a sequence. [`Error::Store`] if the store fails:
    /// call again.
    ///
    /// # Cancellation
    /// It may be set, but not hold yet for entries that are under way: set it again.
    pub async fn set_minimum(&self, account: impl Into<Bson>, minimum: Option<i64>) -> Result<()> {
        let id = account.into();
        let fields = self.fields();
        let Some(there) = self.account(id.clone()).await?.filter(|there| there.last_seq_id.is_none()) else {
            return Err(Error::invalid(format!("there is no account {id} that can have a minimum")));
        };
        let update = match minimum {
            Some(minimum) => doc! { "$set": { &fields.minimum: minimum } },
            None => doc! { "$unset": { &fields.minimum: "" } },
        };
        self.accounts.update_one(&doc! { "_id": equal(&id) }, &update).await?;
        // A poster that looked before this entry has lost the place that it wanted, and looks again.
        let fence = Change::new(id, 0, there.asset).called(MINIMUM);
        let draft = Draft::new(Bson::ObjectId(self.sources.ids.object_id()), self.now(), vec![fence]);
        match self.post_draft(draft).await? {
            Posting::Posted(_) | Posting::AlreadyPosted(_) => Ok(()),
            Posting::Refused(refusal) => Err(Error::invalid(refusal.to_string())),
        }
    }

    /// Returns an account; `None` if it has no document.
    ///
    /// # Errors
    /// [`Error::Damaged`] for a document that is not an account.
    pub async fn account(&self, id: impl Into<Bson>) -> Result<Option<Account>> {
        let found = self.accounts.find_one(&doc! { "_id": equal(&id.into()) }).await?;
        found.map(|document| Account::read(&self.accounts, &document, self.fields())).transpose()
    }

    /// Returns all accounts that have a document, a page at a time, in the store's own order.
    pub async fn accounts(&self, page: u32) -> Result<Accounts<'_>> {
        Ok(Accounts { pages: self.accounts.pages(&Document::new(), page).await?, ledger: self })
    }

    /// Returns the accounts of a draft, and inserts documents for those that have none.
    pub(super) async fn accounts_of(&self, draft: &Draft) -> Result<Vec<Account>> {
        let wanted = draft.accounts();
        let ids = wanted.iter().map(|(id, _)| (*id).clone());
        let limit = u32::try_from(wanted.len()).unwrap_or(u32::MAX);
        let found = self.accounts.find(&doc! { "_id": one_of(ids) }, &Document::new(), limit).await?;
        let found = found
            .iter()
            .map(|document| Account::read(&self.accounts, document, self.fields()))
            .collect::<Result<Vec<_>>>()?;
        let mut accounts = Vec::with_capacity(wanted.len());
        for (id, asset) in wanted {
            let account = match found.iter().find(|account| same_id(&account.id, id)) {
                Some(account) if account.asset.is_empty() => self.name_asset(account, asset).await?,
                Some(account) => account.clone(),
                None => self.first_entry(id, asset).await?,
            };
            if account.asset != asset {
                return Err(Error::invalid(format!("account {id} is in {:?}, not in {asset:?}", account.asset)));
            }
            accounts.push(account);
        }
        if accounts.iter().filter(|account| account.last_seq_id.is_some()).count() > 1 {
            return Err(Error::invalid("an entry has one account with a sequence at most: post two entries"));
        }
        Ok(accounts)
    }

    /// Sets the asset of an account that another program has inserted.
    async fn name_asset(&self, account: &Account, asset: &str) -> Result<Account> {
        let field = &self.fields().asset;
        let filter = doc! { "_id": equal(&account.id), field: { "$exists": false } };
        self.accounts.update_one(&filter, &doc! { "$set": { field: asset } }).await?;
        self.opened(&account.id).await
    }

    /// Opens an account that an entry names.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the account has entries: its document was lost, and its limits with it.
    async fn first_entry(&self, id: &Bson, asset: &str) -> Result<Account> {
        if self.asset_of_entries(id).await?.is_some() && self.account(id.clone()).await?.is_none() {
            return Err(Error::invalid(format!(
                "account {id} has entries and no document, which said what its limits are: open it again with them"
            )));
        }
        let new = Account { id: id.clone(), asset: asset.to_owned(), minimum: None, last_seq_id: None, cache: None };
        if self.accounts.insert(&self.account_document(&new)).await? == Added::New {
            return Ok(new);
        }
        self.opened(id).await
    }

    /// Returns the asset of an account from one of its entries; `None` if it has no entry.
    pub(super) async fn asset_of_entries(&self, id: &Bson) -> Result<Option<String>> {
        let any = requests::places(self.fields(), id, doc! { "$gt": 0_i64 });
        let Some(document) = self.entries.find_one(&any).await? else { return Ok(None) };
        let entry = self.read(&document)?;
        Ok(Some(entry.changes_of(id).map(|change| change.asset.clone()).next().unwrap_or_default()))
    }

    async fn opened(&self, id: &Bson) -> Result<Account> {
        let gone = || Error::Contended { what: format!("account {id} was made and deleted by others"), attempts: 1 };
        self.account(id.clone()).await?.ok_or_else(gone)
    }

    fn account_document(&self, account: &Account) -> Document {
        let fields = self.fields();
        let mut document = doc! { "_id": account.id.clone(), &fields.asset: &account.asset };
        let numbers = [(&fields.minimum, account.minimum), (&fields.last_seq_id, account.last_seq_id)];
        for (name, number) in numbers.into_iter().filter_map(|(name, number)| Some((name, number?))) {
            document.insert(name, number);
        }
        document
    }
}

/// The pages of [`Ledger::accounts`].
pub struct Accounts<'l> {
    pages: Pages<'l>,
    ledger: &'l Ledger,
}

impl Accounts<'_> {
    /// Returns the next page, which is empty at the end. A document that is not an account has an error in its place.
    pub async fn next(&mut self) -> Result<Vec<Result<Account>>> {
        let page = self.pages.next().await?.unwrap_or_default();
        Ok(page.iter().map(|found| Account::read(&self.ledger.accounts, found, self.ledger.fields())).collect())
    }
}

impl Account {
    /// Returns what differs from the settings that are wanted.
    fn differences(&self, wanted: &Account) -> Vec<String> {
        let mut differences = Vec::new();
        if self.asset != wanted.asset {
            differences.push(format!("its asset is {:?}, not {:?}", self.asset, wanted.asset));
        }
        if self.minimum != wanted.minimum {
            let shown = |minimum: Option<i64>| minimum.map_or_else(|| "none".to_owned(), |minimum| minimum.to_string());
            differences.push(format!("its minimum is {}, not {}", shown(self.minimum), shown(wanted.minimum)));
        }
        match (self.last_seq_id, wanted.last_seq_id) {
            (None, Some(_)) => differences.push("it has no sequence".to_owned()),
            (Some(_), None) => differences.push("it has a sequence".to_owned()),
            (None, None) | (Some(_), Some(_)) => {}
        }
        differences
    }
}
