//! Settings: collections, names of fields, patience.

use std::time::Duration;

/// Settings of [`Ledger`](super::Ledger).
#[derive(Clone, Debug)]
pub struct LedgerOptions {
    /// The collection of the accounts' documents, beside that of the entries.
    pub accounts: String,
    /// The collection that says which authorisations expire, beside that of the entries.
    pub holds: String,
    /// An entry need not balance: money comes from nowhere and goes there. Without it the changes of an entry add up to
    /// zero in each asset.
    pub single_entry: bool,
    /// How often a post is tried that others keep racing with. Each time one of them has come through.
    pub attempts_max: u32,
    /// The longest pause after the first lost race; twice as long after each further one. The pause itself is random, so
    /// that those who lost together do not come back together.
    pub pause_first: Duration,
    /// The longest pause of all.
    pub pause_longest: Duration,
    /// How long a place that was drawn from a sequence waits for its entry. Nothing goes wrong if it is too short: an entry
    /// that comes later draws another place.
    pub abandoned_after: Duration,
    /// How long after its expiry an authorisation that was announced and never came is waited for: longer than any request
    /// can be under way.
    pub late_after: Duration,
    /// Names of fields.
    pub fields: LedgerFields,
}

impl Default for LedgerOptions {
    fn default() -> Self {
        LedgerOptions {
            accounts: "account".to_owned(),
            holds: "hold".to_owned(),
            single_entry: false,
            attempts_max: 64,
            pause_first: Duration::from_millis(1),
            pause_longest: Duration::from_millis(100),
            abandoned_after: Duration::from_secs(60),
            late_after: Duration::from_secs(24 * 3600),
            fields: LedgerFields::default(),
        }
    }
}

/// Names of fields.
#[derive(Clone, Debug)]
pub struct LedgerFields {
    /// Of an entry: when it was posted.
    pub ts: String,
    /// Of an entry: whether it can still change.
    pub proc: String,
    /// Of an entry: whether it counts.
    pub state: String,
    /// Of an entry: what it changes.
    pub changes: String,
    /// Of a change: the `_id` of the account.
    pub account: String,
    /// Of a change: what it is called, `deposit` or `withdraw` unless said otherwise.
    pub kind: String,
    /// Of a change: how much, in the smallest unit of the asset.
    pub value: String,
    /// Of a change and of an account: which currency, or whatever is counted.
    pub asset: String,
    /// Of a change: its place among the changes of the account. Of a cache: the place that it stands on.
    pub seq_id: String,
    /// Of a change: the balance of the account at its place, once the entry is committed.
    pub cached_balance: String,
    /// Of a change: what it holds of the account, or (negative) frees. Only where it is not 0.
    pub hold: String,
    /// Of a change: what is held of the account at its place, once the entry is committed. Only where it is not 0.
    pub cached_held: String,
    /// Of an entry: whatever the caller wants to remember.
    pub metadata: String,
    /// Of an entry: why it was canceled, or why it takes another one back.
    pub reason: String,
    /// Of an entry: the `_id` of the committed one that it takes back.
    pub reverses: String,
    /// Of an entry: the `_id` of the authorisation that it resolves.
    pub resolves: String,
    /// Of an entry: the `_id` of the one that is being canceled.
    pub cancels: String,
    /// Of an authorisation: whom the amount is for, and how much: `{account, value}`.
    pub authorises: String,
    /// Of an authorisation: when it expires.
    pub expires_at: String,
    /// Of an announcement of an authorisation that expires: its `_id`.
    pub entry: String,
    /// Of an account: `{balance, seqId}`, and what is held if that is not 0.
    pub cache: String,
    /// Of a cache: the balance.
    pub balance: String,
    /// Of a cache: what is held.
    pub held: String,
    /// Of an account: no entry may take what is available below it.
    pub minimum: String,
    /// Of an account with a sequence: the last place that was drawn.
    pub last_seq_id: String,
}

impl Default for LedgerFields {
    fn default() -> Self {
        let name = str::to_owned;
        LedgerFields {
            ts: name("ts"),
            proc: name("proc"),
            state: name("state"),
            changes: name("changes"),
            account: name("account"),
            kind: name("type"),
            value: name("value"),
            asset: name("asset"),
            seq_id: name("seqId"),
            cached_balance: name("cachedBal"),
            hold: name("hold"),
            cached_held: name("cachedHeld"),
            metadata: name("metadata"),
            reason: name("reason"),
            reverses: name("reverses"),
            resolves: name("resolves"),
            cancels: name("cancels"),
            authorises: name("authorises"),
            expires_at: name("expiresAt"),
            entry: name("entry"),
            cache: name("cache"),
            balance: name("balance"),
            held: name("held"),
            minimum: name("minimum"),
            last_seq_id: name("lastSeqId"),
        }
    }
}

impl LedgerFields {
    /// The path of a field of a change, from the entry.
    pub(super) fn of_change(&self, field: &str) -> String {
        format!("{}.{field}", self.changes)
    }

    /// The path of a field of a cache, from the account.
    pub(super) fn of_cache(&self, field: &str) -> String {
        format!("{}.{field}", self.cache)
    }
}
