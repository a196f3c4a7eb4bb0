//! The ledger: the seed's documents, every crash point, and many posters at once.

mod altered;
mod books;
mod cancels;
mod committers;
mod holds;
mod killed;
mod lost;
mod posters;
mod recorded;
mod reports;
mod sequence;

use std::sync::Arc;
use std::time::Duration;

use bson::{Bson, DateTime, Document, doc, rawdoc};
use handfast_patterns::ledger::{
    AsOf, Authorisation, Cancel, Change, Ledger, LedgerFields, LedgerOptions, NewAccount, NewEntry, Page, Posting, Proc,
};
use handfast_patterns::{Error, Result, Round};
use handfast_store::decorator::{Faulty, Plan as Faults};
use handfast_store::{DropIndexes, Find, IndexSelector, StoreExt};

use crate::crash::World;

const HOUR: Duration = Duration::from_secs(3600);

fn options() -> LedgerOptions {
    LedgerOptions { pause_longest: Duration::from_millis(5), ..LedgerOptions::default() }
}

async fn open_with(world: &World, options: LedgerOptions) -> Result<Ledger> {
    Ledger::open_with(Arc::clone(&world.store), world.namespace("tx"), world.sources.clone(), options).await
}

async fn open(world: &World) -> Result<Ledger> {
    open_with(world, options()).await
}

/// Opens accounts that must not become negative, and gives them money.
async fn funded(ledger: &Ledger, accounts: &[(&str, i64)]) {
    for (id, value) in accounts {
        ledger.open_account(NewAccount::new(*id, "EUR").with_minimum(0)).await.unwrap();
        if *value > 0 {
            posted(ledger, NewEntry::transfer("cash", *id, *value, "EUR")).await;
        }
    }
}

async fn posted(ledger: &Ledger, entry: NewEntry) {
    let posting = ledger.post(entry).await.unwrap();
    assert!(matches!(posting, Posting::Posted(_)), "{posting:?}");
}

async fn all(world: &World, collection: &str) -> Vec<Document> {
    let find = Find { sort: rawdoc! { "_id": 1 }, ..Find::new(world.namespace(collection), rawdoc! {}) };
    let found = world.store.find_all(find).await.unwrap();
    found.iter().map(|document| Document::try_from(&**document).unwrap()).collect()
}

async fn commit_all(ledger: &Ledger) -> u64 {
    let mut done = 0;
    loop {
        let round = ledger.commit(50).await.unwrap();
        assert_eq!(round.failed, 0);
        done += round.done;
        if round.done == 0 {
            return done;
        }
    }
}

async fn balance(ledger: &Ledger, account: &str) -> i64 {
    ledger.balance(account).await.unwrap().map_or(0, |balance| balance.balance)
}

/// Compares the documents with those of the seed, field by field, before the commit and after it.
#[tokio::test]
async fn the_documents_have_the_fields_of_the_seed() {
    let world = World::in_memory();
    let ledger = open(&world).await.unwrap();
    posted(&ledger, NewEntry::new([Change::new(1234, 10_000, "EUR"), Change::new(1, -10_000, "EUR")]).with_id("first"))
        .await;
    let ts = world.sources.clock.now();
    let changes = [Change::new(1234, -100, "EUR"), Change::new(2345, 100, "EUR")];
    posted(&ledger, NewEntry::new(changes).with_id(7)).await;
    let entry = |proc: &str, state: &str, balances: [Bson; 2]| {
        let [payer, payee] = balances;
        doc! {
            "_id": 7, "ts": ts, "proc": proc, "state": state,
            "changes": [
                { "account": 1234, "type": "withdraw", "value": -100_i64, "asset": "EUR", "seqId": 2_i64, "cachedBal": payer },
                { "account": 2345, "type": "deposit", "value": 100_i64, "asset": "EUR", "seqId": 1_i64, "cachedBal": payee },
            ],
        }
    };
    assert_eq!(all(&world, "tx").await[0], entry("UNCOMMITTED", "VALID", [Bson::Null, Bson::Null]));
    assert_eq!(commit_all(&ledger).await, 2);
    assert_eq!(all(&world, "tx").await[0], entry("COMMITTED", "VALID", [Bson::Int64(9_900), Bson::Int64(100)]));
    let account = doc! { "_id": 1234, "asset": "EUR", "cache": { "balance": 9_900_i64, "seqId": 2_i64 } };
    assert_eq!(all(&world, "account").await[1], account);
}

#[tokio::test]
async fn all_names_can_be_set() {
    let world = World::in_memory();
    let fields = LedgerFields::default();
    // Each name gets the other case.
    let name = |name: &String| name.to_uppercase();
    let fields = LedgerFields {
        ts: name(&fields.ts),
        proc: name(&fields.proc),
        state: name(&fields.state),
        changes: name(&fields.changes),
        account: name(&fields.account),
        kind: name(&fields.kind),
        value: name(&fields.value),
        asset: name(&fields.asset),
        seq_id: name(&fields.seq_id),
        cached_balance: name(&fields.cached_balance),
        hold: name(&fields.hold),
        cached_held: name(&fields.cached_held),
        metadata: name(&fields.metadata),
        reason: name(&fields.reason),
        reverses: name(&fields.reverses),
        resolves: name(&fields.resolves),
        cancels: name(&fields.cancels),
        authorises: name(&fields.authorises),
        expires_at: name(&fields.expires_at),
        entry: name(&fields.entry),
        cache: name(&fields.cache),
        balance: name(&fields.balance),
        held: name(&fields.held),
        minimum: name(&fields.minimum),
        last_seq_id: name(&fields.last_seq_id),
    };
    let upper = LedgerOptions { fields, accounts: "ACCOUNT".to_owned(), holds: "HOLD".to_owned(), ..options() };
    let ledger = open_with(&world, upper).await.unwrap();
    funded(&ledger, &[("A", 100), ("B", 0)]).await;
    ledger.open_account(NewAccount::new("fees", "EUR").with_sequence()).await.unwrap();
    posted(&ledger, NewEntry::transfer("A", "fees", 1, "EUR").with_metadata(doc! { "for": "tea" })).await;
    holds::walk_through(&world, &ledger).await;
    cancels::walk_through(&ledger).await;
    commit_all(&ledger).await;
    let verified = ledger.verify_all().await.unwrap();
    assert!(verified.is_clean() && verified.places > 10, "{verified:?}");
    let mut names = Vec::new();
    for collection in ["tx", "ACCOUNT", "HOLD"] {
        let mut open: Vec<Bson> = all(&world, collection).await.into_iter().map(Bson::Document).collect();
        while let Some(value) = open.pop() {
            match value {
                Bson::Document(inner) => {
                    names.extend(inner.keys().filter(|name| *name != "_id").cloned());
                    open.extend(
                        inner
                            .into_iter()
                            .filter(|(name, _)| name != "_id" && name != "METADATA")
                            .map(|(_, value)| value),
                    );
                }
                Bson::Array(items) => open.extend(items),
                _ => {}
            }
        }
    }
    assert!(names.len() > 50 && names.iter().all(|name| *name == name.to_uppercase()), "{names:?}");
}

/// Checks balances while no, some and all entries are committed, at each place, entry and time.
#[tokio::test]
async fn balances_are_right_at_each_place_entry_and_time() {
    let world = World::in_memory();
    let ledger = open(&world).await.unwrap();
    let start = world.sources.clock.now();
    let mut times = Vec::new();
    for (number, value) in [100, -30, 50, -70].into_iter().enumerate() {
        world.clock.advance(HOUR);
        times.push(world.sources.clock.now());
        let changes = [Change::new("A", value, "EUR"), Change::new("bank", -value, "EUR")];
        posted(&ledger, NewEntry::new(changes).with_id(number as i32)).await;
    }
    let expected = [100, 70, 120, 50];
    for committed in 0..=4 {
        if committed > 0 {
            assert_eq!(ledger.commit(1).await.unwrap(), Round { done: 1, failed: 0, more: true });
        }
        let now = ledger.balance("A").await.unwrap().unwrap();
        let anchor = if committed == 0 { 0 } else { expected[committed - 1] };
        assert_eq!((now.balance, now.pending, now.available), (50, 50 - anchor, 50));
        assert_eq!((now.anchor_seq_id, now.seq_id, now.missing), (committed as i64, 4, 0));
        for (number, expected) in expected.iter().enumerate() {
            let place = AsOf::SequenceNumber(number as i64 + 1);
            for as_of in [place, AsOf::Entry((number as i32).into()), AsOf::Time(times[number])] {
                let then = ledger.balance_at("A", as_of.clone()).await.unwrap().unwrap();
                assert_eq!(then.balance, *expected, "{as_of:?} with {committed} committed");
            }
        }
        assert_eq!(ledger.balance_at("A", AsOf::Time(start)).await.unwrap().unwrap().balance, 0);
        assert_eq!(ledger.balance_at("A", AsOf::SequenceNumber(0)).await.unwrap().unwrap().balance, 0);
        assert_eq!(ledger.balance_at("A", AsOf::Entry(9.into())).await.unwrap(), None);
        let pending = ledger.pending("A", 10).await.unwrap();
        assert_eq!(pending.len(), 4 - committed);
        assert!(pending.iter().all(|line| line.status.proc == Proc::Uncommitted));
    }
    assert_eq!(ledger.balance("nobody").await.unwrap(), None);
    books::check(&world).await.unwrap();
}

#[tokio::test]
async fn statements_page_by_page_from_either_end() {
    let world = World::in_memory();
    let ledger = open(&world).await.unwrap();
    for number in 1..=7 {
        posted(&ledger, NewEntry::transfer("bank", "A", number, "EUR")).await;
        if number == 4 {
            commit_all(&ledger).await;
        }
    }
    let shown = |statement: &handfast_patterns::ledger::Statement| {
        let lines = statement.lines.iter().map(|line| format!("{}:{}", line.change.seq_id, line.balance));
        lines.collect::<Vec<_>>().join(" ")
    };
    let (mut page, mut forth) = (Some(Page::After(0)), Vec::new());
    while let Some(next) = page {
        let statement = ledger.statement("A", next, 3).await.unwrap();
        forth.push(shown(&statement));
        page = statement.later;
    }
    assert_eq!(forth, ["1:1 2:3 3:6", "4:10 5:15 6:21", "7:28"]);
    let (mut page, mut back) = (Some(Page::Last), Vec::new());
    while let Some(next) = page {
        let statement = ledger.statement("A", next, 3).await.unwrap();
        back.push(shown(&statement));
        page = statement.earlier;
    }
    assert_eq!(back, ["5:15 6:21 7:28", "2:3 3:6 4:10", "1:1"]);
    assert_eq!(ledger.statement("nobody", Page::Last, 3).await.unwrap().lines, []);
}

/// Posting twice posts once; another entry with the same id is refused.
#[tokio::test]
async fn an_entry_is_posted_once_for_its_id() {
    let world = World::in_memory();
    let ledger = open(&world).await.unwrap();
    funded(&ledger, &[("A", 100)]).await;
    let entry = NewEntry::transfer("A", "B", 100, "EUR").with_id("order 7").with_metadata(doc! { "n": 1 });
    posted(&ledger, entry.clone()).await;
    // This holds even if the account could not pay a second time.
    for _ in 0..2 {
        assert!(matches!(ledger.post(entry.clone()).await.unwrap(), Posting::AlreadyPosted(_)));
        commit_all(&ledger).await;
    }
    assert_eq!((balance(&ledger, "A").await, balance(&ledger, "B").await), (0, 100));
    for other in [
        NewEntry::transfer("cash", "B", 1, "EUR").with_id("order 7"),
        NewEntry::transfer("A", "B", 100, "EUR").with_id("order 7"),
    ] {
        assert!(matches!(ledger.post(other).await, Err(Error::Invalid { .. })));
    }
    books::check(&world).await.unwrap();
}

#[tokio::test]
async fn invalid_requests_are_refused_before_anything_is_sent() {
    let world = World::in_memory();
    let counting = Arc::new(Faulty::new(Arc::clone(&world.store), Faults::none()));
    let ledger = open(&world.on(counting.clone())).await.unwrap();
    let before = counting.operations();
    let change = |account: &str, value: i64, asset: &str| Change::new(account, value, asset);
    for (entry, text) in [
        (NewEntry::new([]), "from 1 to 100 changes"),
        (NewEntry::new([change("A", 1, "EUR")]), "the changes in EUR add up to 1, they must add up to 0"),
        (NewEntry::new([change("A", 1, "EUR"), change("B", -1, "USD")]), "add up to"),
        (NewEntry::new([change("A", 1, "EUR"), change("A", -1, "USD")]), "has one asset"),
        (NewEntry::new([change("A", 0, "EUR"), change("B", 0, "EUR")]), "is not 0"),
        (NewEntry::transfer("A", "B", i64::MAX, "EUR"), "it must be within"),
        (NewEntry::transfer("A", "B", i64::MIN, "EUR"), "it must be within"),
        (NewEntry::transfer("A", "B", 1, ""), "an asset has a code"),
        (NewEntry::transfer(Bson::Null, "B", 1, "EUR"), "cannot have the id null"),
        (
            NewEntry::transfer("A", "B", 1, "EUR").with_metadata(doc! { "text": "x".repeat(6 << 20) }),
            "at most 6291456 are allowed",
        ),
        (NewEntry::transfer("A", "B", 1, "EUR").with_id(doc! { "resolves": 1 }), "an entry's id is no document"),
    ] {
        let error = ledger.post(entry).await.unwrap_err();
        assert!(matches!(&error, Error::Invalid { what } if what.contains(text)), "{error} instead of {text}");
    }
    assert_eq!(counting.operations(), before);
    let both = NewAccount::new("hot", "EUR").with_minimum(0).with_sequence();
    assert!(matches!(ledger.open_account(both).await, Err(Error::Invalid { .. })));
}

/// The first entry determines the asset of an account; an exchange balances in each asset.
#[tokio::test]
async fn assets_are_kept_apart() {
    let world = World::in_memory();
    let ledger = open(&world).await.unwrap();
    let exchange = [
        Change::new("ann EUR", -100, "EUR"),
        Change::new("exchange EUR", 99, "EUR"),
        Change::new("fees EUR", 1, "EUR").called("fee"),
        Change::new("exchange USD", -110, "USD"),
        Change::new("ann USD", 110, "USD"),
    ];
    posted(&ledger, NewEntry::new(exchange)).await;
    let wrong = ledger.post(NewEntry::transfer("ann EUR", "bob", 1, "USD")).await.unwrap_err();
    assert!(wrong.to_string().contains("is in \"EUR\", not in \"USD\""), "{wrong}");
    assert!(ledger.open_account(NewAccount::new("ann USD", "EUR")).await.is_err());
    ledger.open_account(NewAccount::new("ann USD", "USD")).await.unwrap();
    let totals = ledger.totals().await.unwrap();
    let shown: Vec<_> = totals.iter().map(|total| (total.asset.as_str(), total.debits, total.credits)).collect();
    assert_eq!(shown, [("EUR", -100, 100), ("USD", -110, 110)]);
    assert!(totals.iter().all(handfast_patterns::ledger::Totals::is_balanced));
    books::check(&world).await.unwrap();
}

#[tokio::test]
async fn a_ledger_of_single_entries_need_not_balance() {
    let world = World::in_memory();
    let single = LedgerOptions { single_entry: true, ..options() };
    let ledger = open_with(&world, single).await.unwrap();
    posted(&ledger, NewEntry::new([Change::new("A", 5, "points")])).await;
    posted(&ledger, NewEntry::new([Change::new("A", -2, "points").called("redeem")])).await;
    commit_all(&ledger).await;
    assert_eq!(balance(&ledger, "A").await, 3);
    assert!(ledger.verify_all().await.unwrap().is_clean());
    assert!(!ledger.totals().await.unwrap()[0].is_balanced());
}

/// Two changes of one entry in one account have their own places, and the minimum is checked for their sum.
#[tokio::test]
async fn an_entry_may_change_an_account_twice() {
    let world = World::in_memory();
    let ledger = open(&world).await.unwrap();
    funded(&ledger, &[("A", 100)]).await;
    let twice = |first: i64, second: i64| {
        NewEntry::new([
            Change::new("A", first, "EUR"),
            Change::new("A", second, "EUR").called("fee"),
            Change::new("B", -first - second, "EUR"),
        ])
    };
    posted(&ledger, twice(-90, -10)).await;
    assert!(matches!(ledger.post(twice(-1, -1)).await.unwrap(), Posting::Refused(_)));
    posted(&ledger, twice(-50, 51)).await;
    commit_all(&ledger).await;
    let statement = ledger.statement("A", Page::After(0), 10).await.unwrap();
    let shown: Vec<_> = statement.lines.iter().map(|line| (line.change.seq_id, line.balance)).collect();
    assert_eq!(shown, [(1, 100), (2, 10), (3, 0), (4, -50), (5, 1)]);
    books::check(&world).await.unwrap();
}

/// Entries that a shell has written by hand, as the seed shows it, are counted and committed.
#[tokio::test]
async fn entries_of_the_seeds_shell_are_counted_and_committed() {
    let world = World::in_memory();
    let ts = world.sources.clock.now();
    let account = rawdoc! { "_id": 1234, "cache": { "balance": 10000.0, "seqId": 800.0 } };
    world.store.insert_one(&world.namespace("account"), account).await.unwrap();
    for (id, seq, value) in [(1, 801.0, -100.0), (2, 802.0, 40.0)] {
        let entry = rawdoc! {
            "_id": id, "ts": ts, "proc": "UNCOMMITTED", "state": "VALID",
            "changes": [
                { "account": 1234, "type": "withdraw", "value": value, "seqId": seq, "cachedBal": null },
                { "account": 2345, "type": "deposit", "value": (-value), "seqId": f64::from(id), "cachedBal": null },
            ],
        };
        world.store.insert_one(&world.namespace("tx"), entry).await.unwrap();
    }
    let ledger = open(&world).await.unwrap();
    ledger.open_account(NewAccount::new(2345, "EUR")).await.unwrap();
    assert_eq!(balance(&ledger, "nobody").await, 0);
    let seen = ledger.balance(1234).await.unwrap().unwrap();
    assert_eq!((seen.balance, seen.pending, seen.anchor_seq_id), (9_940, -60, 800));
    assert_eq!(commit_all(&ledger).await, 2);
    posted(&ledger, NewEntry::transfer(1234, 2345, 40, "EUR")).await;
    assert_eq!(commit_all(&ledger).await, 1);
    let seen = ledger.balance(1234).await.unwrap().unwrap();
    assert_eq!((seen.balance, seen.pending, seen.seq_id), (9_900, 0, 803));
}

/// Counts the operations for a transfer: the accounts (a find, a page), the state of each (an aggregation, a page),
/// the insert. The commit takes one for the entry, and for each account three reads and its document.
#[tokio::test]
async fn operations_per_entry() {
    let world = World::in_memory();
    let counting = Arc::new(Faulty::new(Arc::clone(&world.store), Faults::none()));
    let ledger = open(&world.on(counting.clone())).await.unwrap();
    funded(&ledger, &[("A", 100), ("B", 100)]).await;
    ledger.open_account(NewAccount::new("fees", "EUR").with_sequence()).await.unwrap();
    posted(&ledger, NewEntry::transfer("A", "fees", 1, "EUR")).await;
    commit_all(&ledger).await;
    let mut before = counting.operations();
    let mut cost = || {
        let cost = counting.operations() - before;
        before += cost;
        cost
    };
    posted(&ledger, NewEntry::transfer("A", "B", 1, "EUR")).await;
    assert_eq!(cost(), 7, "accounts 2, standing 2 x 2, insert");
    posted(&ledger, NewEntry::transfer("A", "fees", 1, "EUR")).await;
    assert_eq!(cost(), 6, "accounts 2, standing 2, draw, insert");
    commit_all(&ledger).await;
    posted(&ledger, NewEntry::transfer("A", "B", 1, "EUR")).await;
    cost();
    assert_eq!(ledger.commit(50).await.unwrap().done, 1);
    assert_eq!(cost(), 2 + 1 + 2 * 5, "uncommitted 2, entry 1, for each account 4 to look and 1 to tell");
    for _ in 0..10 {
        posted(&ledger, NewEntry::transfer("A", "B", 1, "EUR")).await;
    }
    cost();
    assert_eq!(ledger.commit(50).await.unwrap().done, 10);
    assert_eq!(cost(), 2 + 10 + 2 * 5, "ten at once: each is one more");
}

/// The id of an entry is part of the ids of entries that cancel or resolve it, which must fit into an index, too. The
/// reason of a cancel is written into an entry that may be as large as an entry can be.
#[tokio::test]
async fn ids_and_reasons_leave_space_for_what_follows() {
    let world = World::in_memory();
    let ledger = open(&world).await.unwrap();
    funded(&ledger, &[("A", 100)]).await;
    let later = DateTime::from_millis(world.sources.clock.now().timestamp_millis() + 1000);
    let hold = |id: &str| Authorisation::new("A", "B", 1, "EUR").with_id(id).until(later);
    let (longest, longer) = ("x".repeat(8000), "x".repeat(9000));
    let entry = |id: &str| NewEntry::transfer("A", "B", 1, "EUR").with_id(id);
    let to = NewEntry::transfer("A", longer.as_str(), 1, "EUR");
    for error in [
        ledger.post(entry(&longer)).await.unwrap_err(),
        ledger.authorise(hold(&longer)).await.unwrap_err(),
        ledger.post(to).await.unwrap_err(),
    ] {
        assert!(matches!(error, Error::Invalid { .. }), "{error}");
        assert!(error.to_string().contains("bytes, at most"), "{error}");
    }
    assert_eq!(ledger.status().await.unwrap().expiring, 0);
    posted(&ledger, entry(&longest)).await;
    let error = ledger.cancel(longest.as_str(), &"x".repeat(2001)).await.unwrap_err();
    assert!(error.to_string().contains("at most 2000"), "{error}");
    commit_all(&ledger).await;
    let Cancel::Reversed(reversal) = ledger.cancel(longest.as_str(), &"x".repeat(2000)).await.unwrap() else {
        panic!("it was committed")
    };
    commit_all(&ledger).await;
    let reversed = ledger.cancel(reversal.id, "r").await.unwrap();
    assert!(matches!(reversed, Cancel::Reversed(_)), "{reversed:?}");
    let _ = ledger.authorise(hold(&"y".repeat(8000))).await.unwrap();
    world.clock.advance(HOUR);
    assert_eq!(ledger.expire(10).await.unwrap().done, 1);
    let error = ledger.abandon("A", 1..=1, &"x".repeat(2001)).await.unwrap_err();
    assert!(error.to_string().contains("at most 2000"), "{error}");
}

/// Documents that another program has written and that mean nothing are errors that name the field.
#[tokio::test]
async fn documents_that_contradict_themselves_are_reported() {
    let world = World::in_memory();
    let ledger = open(&world).await.unwrap();
    for (account, said) in [
        (rawdoc! { "_id": "both", "asset": "EUR", "minimum": 0, "lastSeqId": 0 }, "minimum"),
        (rawdoc! { "_id": "number", "asset": 5 }, "asset"),
    ] {
        let id = account.get_str("_id").unwrap().to_owned();
        world.store.insert_one(&world.namespace("account"), account).await.unwrap();
        let error = ledger.post(NewEntry::transfer(id.as_str(), "B", 1, "EUR")).await.unwrap_err();
        assert!(matches!(error, Error::Damaged { .. }) && error.to_string().contains(said), "{error}");
        assert!(!ledger.verify_all().await.unwrap().is_clean(), "{id}");
        world.store.delete_one(&world.namespace("account"), rawdoc! { "_id": id }).await.unwrap();
    }
    posted(&ledger, NewEntry::transfer("A", "B", 1, "EUR").with_id(1)).await;
    assert!(ledger.verify_all().await.unwrap().is_clean());
    let hold = rawdoc! { "$set": { "changes.0.hold": i64::MIN } };
    world.store.update_one(&world.namespace("tx"), rawdoc! { "_id": 1 }, hold).await.unwrap();
    let found = ledger.verify_all().await.unwrap();
    assert!(!found.is_clean() && format!("{found:?}").contains("hold"), "{found:?}");
}

#[tokio::test]
async fn an_account_that_is_open_otherwise_says_in_which_settings() {
    let world = World::in_memory();
    let ledger = open(&world).await.unwrap();
    ledger.open_account(NewAccount::new("A", "EUR").with_minimum(0)).await.unwrap();
    for (other, said) in [
        (NewAccount::new("A", "EUR"), "its minimum is 0, not none"),
        (NewAccount::new("A", "EUR").with_minimum(1), "its minimum is 0, not 1"),
        (NewAccount::new("A", "USD").with_minimum(0), "its asset is \"EUR\", not \"USD\""),
        (NewAccount::new("A", "EUR").with_sequence(), "it has no sequence"),
    ] {
        let error = ledger.open_account(other).await.unwrap_err().to_string();
        assert!(error.contains(said) && error.contains("open with other settings"), "{error}");
    }
}

/// Programs that post without the index take the same places.
#[tokio::test]
async fn entries_at_the_same_place_keep_a_ledger_closed() {
    let world = World::in_memory();
    let ledger = open(&world).await.unwrap();
    posted(&ledger, NewEntry::transfer("A", "B", 1, "EUR").with_id(1)).await;
    let all = DropIndexes { namespace: world.namespace("tx"), selector: IndexSelector::All };
    world.store.drop_indexes(all).await.unwrap();
    let mut copy = self::all(&world, "tx").await.remove(0);
    copy.insert("_id", 2);
    let copy = bson::RawDocumentBuf::try_from(&copy).unwrap();
    world.store.insert_one(&world.namespace("tx"), copy).await.unwrap();
    let error = open(&world).await.err().expect("there is no unique index");
    assert_eq!(error.code(), handfast_mql::Code::DuplicateKey);
    assert!(error.to_string().contains("two entries of test.tx have the same place"), "{error}");
    assert!(!ledger.verify_all().await.unwrap().is_clean());
}
