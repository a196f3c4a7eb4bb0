//! Settings: collections, names of fields, patience.

use std::time::Duration;

use crate::fields::field_names;

/// Settings of [`Ledger`](super::Ledger). The collections, `single_entry` and `fields` are recorded in the store when it is opened for the
/// first time, and have to be the same for all who open it.
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

field_names! {
    /// Names of fields.
    pub struct LedgerFields {
        /// In an entry: when it was posted.
        ts: "ts" in "an entry",
        /// In an entry: whether it can still change.
        proc: "proc" in "an entry",
        /// In an entry: whether it counts.
        state: "state" in "an entry",
        /// In an entry: what it changes.
        changes: "changes" in "an entry",
        /// In a change: the `_id` of the account.
        account: "account" in "a change" | "an authorisation",
        /// In a change: what it is called, `deposit` or `withdraw` unless said otherwise.
        kind: "type" in "a change",
        /// In a change: how much, in the smallest unit of the asset.
        value: "value" in "a change" | "an authorisation",
        /// In a change and of an account: which currency, or whatever is counted.
        asset: "asset" in "a change" | "an account",
        /// In a change: its place among the changes of the account. In a cache: the place that it stands on.
        seq_id: "seqId" in "a change" | "a cache",
        /// In a change: the balance of the account at its place, once the entry is committed.
        cached_balance: "cachedBal" in "a change",
        /// In a change: what it holds of the account, or (negative) frees. Only where it is not 0.
        hold: "hold" in "a change",
        /// In a change: what is held of the account at its place, once the entry is committed. Only where it is not 0.
        cached_held: "cachedHeld" in "a change",
        /// In an entry: whatever the caller wants to remember.
        metadata: "metadata" in "an entry",
        /// In an entry: why it was canceled, or why it takes another one back.
        reason: "reason" in "an entry",
        /// In an entry: the `_id` of the committed one that it takes back.
        reverses: "reverses" in "an entry",
        /// In an entry: the `_id` of the authorisation that it resolves.
        resolves: "resolves" in "an entry",
        /// In an entry: the `_id` of the one that is being canceled.
        cancels: "cancels" in "an entry",
        /// In an authorisation: whom the amount is for, and how much: `{account, value}`.
        authorises: "authorises" in "an entry",
        /// In an authorisation: when it expires.
        expires_at: "expiresAt" in "an entry" | "an announcement",
        /// In an announcement of an authorisation that expires: its `_id`.
        entry: "entry" in "an announcement",
        /// In an account: `{balance, seqId}`, and what is held if that is not 0.
        cache: "cache" in "an account",
        /// In a cache: the balance.
        balance: "balance" in "a cache",
        /// In a cache: what is held.
        held: "held" in "a cache",
        /// In an account: no entry may take what is available below it.
        minimum: "minimum" in "an account",
        /// In an account with a sequence: the last place that was drawn.
        last_seq_id: "lastSeqId" in "an account",
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
