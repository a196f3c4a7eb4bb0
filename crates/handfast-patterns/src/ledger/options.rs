//! Settings: collections, field names, attempts and waits.

use std::time::Duration;

use crate::fields::field_names;

/// Settings of [`Ledger`](super::Ledger). The collections, `single_entry` and `fields` are recorded in the store when
/// it is opened for the first time, and must be the same in all processes that open it.
#[derive(Clone, Debug)]
pub struct LedgerOptions {
    /// The collection of the accounts' documents, beside that of the entries. It belongs to one ledger.
    pub accounts: String,
    /// The collection of the announcements of authorisations that expire, beside that of the entries. It belongs to one
    /// ledger.
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
        /// The time when an entry was posted.
        ts: "ts" in "an entry",
        /// Whether an entry is committed.
        proc: "proc" in "an entry",
        /// Whether an entry counts.
        state: "state" in "an entry",
        /// The changes of accounts by an entry.
        changes: "changes" in "an entry",
        /// The `_id` of the account of a change.
        account: "account" in "a change" | "an authorisation",
        /// The name of a change, `deposit` or `withdraw` by default.
        kind: "type" in "a change",
        /// The amount of a change, in the smallest unit of the asset.
        value: "value" in "a change" | "an authorisation",
        /// The currency or other unit of a change or an account.
        asset: "asset" in "a change" | "an account",
        /// The place of a change in its account, or of a cached balance.
        seq_id: "seqId" in "a change" | "a cache",
        /// The balance of the account at the place of a change, once the entry is committed.
        cached_balance: "cachedBal" in "a change",
        /// The amount that a change holds or, if negative, frees; missing if it is 0.
        hold: "hold" in "a change",
        /// The held amount at the place of a change, once the entry is committed; missing if it is 0.
        cached_held: "cachedHeld" in "a change",
        /// The caller's own fields of an entry.
        metadata: "metadata" in "an entry",
        /// The reason why an entry was canceled, or reverses another one.
        reason: "reason" in "an entry",
        /// The `_id` of the committed entry that an entry reverses.
        reverses: "reverses" in "an entry",
        /// The `_id` of the authorisation that an entry resolves.
        resolves: "resolves" in "an entry",
        /// The `_id` of the entry that is being canceled while an entry keeps its place.
        cancels: "cancels" in "an entry",
        /// The payee and the amount of an authorisation: `{account, value}`.
        authorises: "authorises" in "an entry",
        /// The time when an authorisation expires.
        expires_at: "expiresAt" in "an entry" | "an announcement",
        /// The `_id` of the authorisation that is announced.
        entry: "entry" in "an announcement",
        /// The cached balance of an account: `{balance, seqId}`, and the held amount if that is not 0.
        cache: "cache" in "an account",
        /// The balance of a cache.
        balance: "balance" in "a cache",
        /// The held amount of a cache.
        held: "held" in "a cache",
        /// The limit below which no entry may take the available amount of an account.
        minimum: "minimum" in "an account",
        /// The last place that was drawn from the sequence of an account.
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
