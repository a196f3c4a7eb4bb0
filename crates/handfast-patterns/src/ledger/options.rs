//! Settings: collections, field names, attempts and waits.

use std::time::Duration;

use crate::fields::field_names;

/// Settings of [`Ledger`](super::Ledger). The collections, `single_entry` and `fields` are recorded in the store when
/// it is opened for the first time, and must be the same in all processes that open it.
#[derive(Clone, Debug)]
pub struct LedgerOptions {
    /// The collection of the accounts' documents, beside that of the entries.
    pub accounts: String,
    /// The collection of the announcements of authorisations that expire, beside that of the entries.
    pub holds: String,
    /// Whether an entry need not balance. Without this, the changes of an entry add up to 0 in each asset.
    pub single_entry: bool,
    /// The attempts at a post that races with others. At each attempt another one has succeeded.
    pub attempts_max: u32,
    /// The longest pause after the first lost race, which doubles after each further one. The pause itself is random,
    /// so that posters that lost together do not retry together.
    pub pause_first: Duration,
    /// The longest pause of all.
    pub pause_longest: Duration,
    /// The time for which a place that was drawn from a sequence waits for its entry. If it is too short, an entry
    /// that comes later draws another place, which does no harm.
    pub abandoned_after: Duration,
    /// The time after its expiry for which an announced authorisation is waited for. It must be longer than any
    /// request can be under way.
    pub late_after: Duration,
    /// The names of the fields.
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
    /// The names of the fields.
    pub struct LedgerFields {
        /// In an entry: the time when it was posted.
        ts: "ts" in "an entry",
        /// In an entry: whether it is committed.
        proc: "proc" in "an entry",
        /// In an entry: whether it counts.
        state: "state" in "an entry",
        /// In an entry: the changes of accounts.
        changes: "changes" in "an entry",
        /// In a change: the `_id` of the account.
        account: "account" in "a change" | "an authorisation",
        /// In a change: its name, which is `deposit` or `withdraw` by default.
        kind: "type" in "a change",
        /// In a change: the amount, in the smallest unit of the asset.
        value: "value" in "a change" | "an authorisation",
        /// In a change and in an account: the currency or other unit.
        asset: "asset" in "a change" | "an account",
        /// In a change: its place among the changes of the account. In a cache: the place of the balance.
        seq_id: "seqId" in "a change" | "a cache",
        /// In a change: the balance of the account at its place, once the entry is committed.
        cached_balance: "cachedBal" in "a change",
        /// In a change: the amount that it holds or, if negative, frees. Only if it is not 0.
        hold: "hold" in "a change",
        /// In a change: the held amount of the account at its place, once the entry is committed. Only if it is not 0.
        cached_held: "cachedHeld" in "a change",
        /// In an entry: the caller's own fields.
        metadata: "metadata" in "an entry",
        /// In an entry: the reason why it was canceled, or why it reverses another one.
        reason: "reason" in "an entry",
        /// In an entry: the `_id` of the committed one that it reverses.
        reverses: "reverses" in "an entry",
        /// In an entry: the `_id` of the authorisation that it resolves.
        resolves: "resolves" in "an entry",
        /// In an entry: the `_id` of the one that is being canceled.
        cancels: "cancels" in "an entry",
        /// In an authorisation: the payee and the amount, `{account, value}`.
        authorises: "authorises" in "an entry",
        /// In an authorisation: the time when it expires.
        expires_at: "expiresAt" in "an entry" | "an announcement",
        /// In an announcement of an authorisation that expires: the `_id` of the authorisation.
        entry: "entry" in "an announcement",
        /// In an account: `{balance, seqId}`, and the held amount if that is not 0.
        cache: "cache" in "an account",
        /// In a cache: the balance.
        balance: "balance" in "a cache",
        /// In a cache: the held amount.
        held: "held" in "a cache",
        /// In an account: the limit below which no entry may take the available amount.
        minimum: "minimum" in "an account",
        /// In an account with a sequence: the last place that was drawn.
        last_seq_id: "lastSeqId" in "an account",
    }
}

impl LedgerFields {
    /// Returns the path of a field of a change in an entry.
    pub(super) fn of_change(&self, field: &str) -> String {
        format!("{}.{field}", self.changes)
    }

    /// Returns the path of a field of a cache in an account.
    pub(super) fn of_cache(&self, field: &str) -> String {
        format!("{}.{field}", self.cache)
    }
}
