//! Lost entries: they are reported, no command does further damage, and each is restored from a copy or closed by an
//! abandoned entry.

use std::ops::RangeInclusive;

use bson::{Bson, Document, doc, rawdoc};
use handfast_patterns::ledger::{
    Amount, AsOf, Authorisation, Cancel, EntryState, ExportFormat, Finding, Gap, Ledger, LedgerOptions, NewAccount,
    NewEntry, Page, Restored, Verified,
};
use handfast_patterns::{Error, Round};
use handfast_store::StoreExt;

use super::{HOUR, all, balance, books, commit_all, open, open_with, options, posted};
use crate::crash::World;

/// Makes A pay B, and cash pay A, several times each; commits all of it. The places of A are the ids of the entries.
pub(super) async fn paid() -> (World, Ledger) {
    let world = World::in_memory();
    let ledger = open_with(&world, LedgerOptions { attempts_max: 3, ..options() }).await.unwrap();
    ledger.open_account(NewAccount::new("A", "EUR").with_minimum(0)).await.unwrap();
    let entries = [
        (1, "cash", "A", 100),
        (2, "A", "B", 30),
        (3, "cash", "A", 5),
        (4, "A", "B", 20),
        (5, "A", "B", 1),
        (6, "A", "C", 7),
    ];
    for (id, payer, payee, value) in entries {
        let entry = NewEntry::transfer(payer, payee, value, "EUR").with_id(id);
        posted(&ledger, entry.with_metadata(doc! { "number": i64::from(id) })).await;
    }
    commit_all(&ledger).await;
    (world, ledger)
}

fn raw(document: &Document) -> bson::RawDocumentBuf {
    bson::RawDocumentBuf::try_from(document).unwrap()
}

async fn lose(world: &World, id: impl Into<Bson>) {
    assert!(world.store.delete_one(&world.namespace("tx"), raw(&doc! { "_id": id.into() })).await.unwrap());
}

pub(super) async fn books_of(world: &World) -> (Vec<Document>, Vec<Document>) {
    (all(world, "tx").await, all(world, "account").await)
}

/// Returns every entry of an export, read back.
async fn exported(ledger: &Ledger) -> Vec<Document> {
    let (mut export, mut text) = (ledger.export(ExportFormat::Json).await.unwrap(), String::new());
    while let Some(lines) = export.next().await.unwrap() {
        text.push_str(&lines);
    }
    let read = |line: &str| -> Document {
        let value: serde_json::Value = serde_json::from_str(line).unwrap();
        Bson::try_from(value).unwrap().as_document().unwrap().clone()
    };
    text.lines().map(read).collect()
}

async fn copy_of(ledger: &Ledger, id: impl Into<Bson>) -> Document {
    let id = id.into();
    let copies = exported(ledger).await;
    copies.into_iter().find(|copy| copy.get("_id") == Some(&id)).unwrap()
}

fn says(document: &Document, field: &str, text: &str) -> bool {
    document.get(field) == Some(&text.into())
}

async fn is_back(ledger: &Ledger, copy: &Document) {
    let restored = ledger.restore(copy).await.unwrap();
    assert!(matches!(restored, Restored::Restored(_)), "{restored:?}");
}

async fn is_refused(world: &World, ledger: &Ledger, copy: &Document, why: &str) {
    let before = books_of(world).await;
    let restored = ledger.restore(copy).await.unwrap();
    assert!(matches!(&restored, Restored::Refused(text) if text.contains(why)), "{restored:?} instead of {why}");
    assert_eq!(books_of(world).await, before);
}

fn gap(account: &str, places: RangeInclusive<i64>, change: Option<i64>) -> Gap {
    let change = change.map(|balance| Amount { balance, held: 0 });
    Gap { account: account.into(), first: *places.start(), last: *places.end(), change }
}

/// Asserts that these gaps are the only findings.
fn assert_gaps(found: &Verified, gaps: &[Gap]) {
    assert_eq!((&*found.gaps, found.findings.count()), (gaps, 0), "{found:?}");
}

/// Returns the balance of an account, on which three sources must agree.
async fn agreed(ledger: &Ledger, account: &str) -> i64 {
    let balance = balance(ledger, account).await;
    for page in [Page::Last, Page::After(0)] {
        let lines = ledger.statement(account, page, 3).await.unwrap().lines;
        let line = lines.last().unwrap();
        let then = ledger.balance_at(account, AsOf::SequenceNumber(line.change.seq_id)).await.unwrap().unwrap();
        assert_eq!((page, line.balance), (page, then.balance), "the statement of {account}");
    }
    let lines = ledger.statement(account, Page::Last, 1).await.unwrap().lines;
    assert_eq!(lines[0].balance, balance, "the end of the statement of {account}");
    let cache = ledger.account(account).await.unwrap().unwrap().cache.unwrap();
    assert_eq!(cache.balance, balance, "the document of {account}");
    balance
}

/// An entry in the middle is lost, which is the newest one of one account, of the other, or of both: the other
/// balances stay, and new entries can be posted.
#[tokio::test]
async fn a_rebuild_changes_nothing_behind_a_lost_entry() {
    for lost in [1, 2, 4, 5, 6] {
        let (world, ledger) = paid().await;
        lose(&world, lost).await;
        let before = books_of(&world).await;
        let rebuilt = ledger.rebuild_all().await.unwrap();
        assert_eq!((rebuilt.gaps.count(), rebuilt.is_whole()), (2, false), "{rebuilt:?}");
        assert_eq!(books_of(&world).await, before, "without entry {lost}");
        assert_eq!((balance(&ledger, "A").await, balance(&ledger, "B").await), (47, 51), "without entry {lost}");
        posted(&ledger, NewEntry::transfer("A", "B", 40, "EUR")).await;
        commit_all(&ledger).await;
        assert_eq!((agreed(&ledger, "A").await, agreed(&ledger, "B").await), (7, 91), "without entry {lost}");
    }
}

/// If the cache is missing, too, it is not written from the balance before the gap.
#[tokio::test]
async fn a_rebuild_never_moves_a_cache_back() {
    let (world, ledger) = paid().await;
    lose(&world, 2).await;
    for spoilt in
        [rawdoc! { "$unset": { "cache": "" } }, rawdoc! { "$set": { "cache": { "balance": 100_i64, "seqId": 1_i64 } } }]
    {
        world.store.update_one(&world.namespace("account"), rawdoc! { "_id": "A" }, spoilt.clone()).await.unwrap();
        let before = books_of(&world).await;
        let rebuilt = ledger.rebuild("A").await.unwrap();
        assert_eq!((rebuilt.gaps.count(), rebuilt.caches), (1, 0), "{rebuilt:?}");
        assert_eq!(books_of(&world).await, before, "{spoilt:?}");
    }
    // A wrong balance before the gap is repaired.
    let wrong = rawdoc! { "$set": { "cache.balance": 7_i64 } };
    world.store.update_one(&world.namespace("account"), rawdoc! { "_id": "A" }, wrong).await.unwrap();
    assert_eq!(ledger.rebuild("A").await.unwrap().caches, 1);
    assert_eq!(ledger.account("A").await.unwrap().unwrap().cache.unwrap().balance, 100);
}

/// An entry is marked as uncommitted although those after it are committed: no balance is set back to before it.
#[tokio::test]
async fn a_rebuild_stops_at_an_entry_that_is_out_of_order() {
    let (world, ledger) = paid().await;
    let open = rawdoc! { "$set": { "proc": "UNCOMMITTED" } };
    world.store.update_one(&world.namespace("tx"), rawdoc! { "_id": 4 }, open).await.unwrap();
    let before = books_of(&world).await;
    let rebuilt = ledger.rebuild("A").await.unwrap();
    assert!(matches!(&*rebuilt.stops, [Finding::Order { seq_id: 4, .. }]), "{rebuilt:?}");
    assert_eq!(books_of(&world).await, before);
}

/// Only the gaps are found, with the change of the lost entry: the balances after them were final, and stay.
#[tokio::test]
async fn a_lost_entry_is_reported_with_its_change() {
    for (lost, gaps) in [
        (4, [gap("A", 4..=4, Some(-20)), gap("B", 2..=2, Some(20))]),
        (5, [gap("A", 5..=5, Some(-1)), gap("B", 3..=3, Some(1))]),
        (6, [gap("A", 6..=6, Some(-7)), gap("C", 1..=1, Some(7))]),
    ] {
        let (world, ledger) = paid().await;
        lose(&world, lost).await;
        assert_gaps(&ledger.verify_all().await.unwrap(), &gaps);
    }
    let (world, ledger) = paid().await;
    for lost in [2, 3, 6] {
        lose(&world, lost).await;
    }
    let found = ledger.verify("A").await.unwrap();
    assert_gaps(&found, &[gap("A", 2..=3, Some(-25)), gap("A", 6..=6, Some(-7))]);
    // Damage after a gap is still found; nothing after it shows whether the balance or the entry is wrong.
    let wrong = rawdoc! { "$inc": { "changes.0.cachedBal": 1_i64 } };
    world.store.update_one(&world.namespace("tx"), rawdoc! { "_id": 5 }, wrong).await.unwrap();
    let found = ledger.verify("A").await.unwrap();
    assert!(matches!(&*found.findings, [Finding::Altered { seq_id: 5, .. }]), "{found:?}");
    assert_eq!(found.gaps.count(), 2);
}

/// An entry that was not committed leaves no balance to compute from: posters get an error, and the committer waits.
#[tokio::test]
async fn a_lost_uncommitted_entry_keeps_the_account_from_spending() {
    let (world, ledger) = paid().await;
    for id in [7, 8] {
        posted(&ledger, NewEntry::transfer("A", "B", 10, "EUR").with_id(id)).await;
    }
    let copy = copy_of(&ledger, 7).await;
    lose(&world, 7).await;
    let before = books_of(&world).await;
    assert_gaps(&ledger.verify_all().await.unwrap(), &[gap("A", 7..=7, None), gap("B", 4..=4, None)]);
    let error = ledger.post(NewEntry::transfer("A", "B", 1, "EUR")).await.unwrap_err();
    assert!(error.to_string().contains("1 places of account \"A\" have no entry: `verify`"), "{error}");
    assert_eq!(ledger.commit(10).await.unwrap(), Round { done: 0, failed: 1, more: false });
    assert!(!ledger.rebuild_all().await.unwrap().is_whole());
    assert_eq!(books_of(&world).await, before);
    is_back(&ledger, &copy).await;
    assert!(ledger.verify_all().await.unwrap().is_clean());
    assert_eq!(commit_all(&ledger).await, 2);
    assert_eq!((agreed(&ledger, "A").await, agreed(&ledger, "B").await), (27, 71));
    books::check(&world).await.unwrap();
}

/// For each lost entry, and each pair of them: the copies restore exactly the same documents.
#[tokio::test]
async fn a_restored_entry_equals_the_lost_one() {
    let (_, ledger) = paid().await;
    let copies = exported(&ledger).await;
    for first in 1..=6 {
        for second in first..=6 {
            let (world, ledger) = paid().await;
            let before = books_of(&world).await;
            for lost in std::collections::BTreeSet::from([first, second]) {
                lose(&world, lost).await;
            }
            for copy in &copies {
                let _ = ledger.restore(copy).await.unwrap();
            }
            assert_eq!(books_of(&world).await, before, "without {first} and {second}");
            assert!(ledger.verify_all().await.unwrap().is_clean());
            let again = ledger.restore(&copies[0]).await.unwrap();
            assert!(matches!(again, Restored::There(_)), "{again:?}");
        }
    }
}

/// The export is older than the commit: the balances around an entry show whether it was committed, or it is not
/// restored.
#[tokio::test]
async fn an_old_copy_is_restored_as_the_balances_show() {
    let world = World::in_memory();
    let ledger = open(&world).await.unwrap();
    for id in 1..=5 {
        posted(&ledger, NewEntry::transfer("A", "B", 10 * i64::from(id), "EUR").with_id(id)).await;
    }
    let copies = exported(&ledger).await;
    assert!(copies.iter().all(|copy| says(copy, "proc", "UNCOMMITTED")));
    assert_eq!(ledger.cancel(4, "a mistake").await.unwrap(), Cancel::Canceled);
    commit_all(&ledger).await;
    let before = books_of(&world).await;
    for lost in [2, 3] {
        lose(&world, lost).await;
    }
    is_refused(&world, &ledger, &copies[2], "the entry before place 3 of account \"A\" is lost, too").await;
    is_refused(&world, &ledger, &copies[1], "nothing says whether it was canceled since").await;
    // With one of the two restored, the balances decide about the other one.
    let entry = before.0.iter().find(|entry| entry.get("_id") == Some(&3.into())).unwrap();
    is_back(&ledger, entry).await;
    is_back(&ledger, &copies[1]).await;
    assert_eq!(books_of(&world).await, before);
    lose(&world, 4).await;
    is_refused(&world, &ledger, &copies[3], "it is another one, or was canceled later").await;
    assert_eq!(ledger.abandon("A", 4..=4, "canceled").await.unwrap(), 1);
    assert_eq!(ledger.abandon("B", 4..=4, "canceled").await.unwrap(), 1);
    let verified = ledger.verify_all().await.unwrap();
    assert!(verified.is_clean(), "a canceled entry counts for nothing, too: {verified:?}");
}

/// A document that is not the lost entry is refused with a reason.
#[tokio::test]
async fn a_document_that_is_not_the_lost_entry_is_refused() {
    let (world, ledger) = paid().await;
    let copy = copy_of(&ledger, 4).await;
    let with = |path: &str, value: Bson| {
        let mut other = copy.clone();
        let changes = other.get_array_mut("changes").unwrap();
        for (number, change) in changes.iter_mut().enumerate() {
            let sign = if number == 0 { -1 } else { 1 };
            let value = if path == "value" { Bson::Int64(sign * value.as_i64().unwrap()) } else { value.clone() };
            change.as_document_mut().unwrap().insert(path, value);
        }
        other
    };
    is_refused(&world, &ledger, &with("value", Bson::Int64(21)), "another entry has its id").await;
    lose(&world, 4).await;
    is_refused(&world, &ledger, &with("value", Bson::Int64(21)), "say that -20 with 0 held is lost there").await;
    is_refused(&world, &ledger, &with("seqId", Bson::Int64(5)), "place 5 of account \"A\" is taken by entry 5").await;
    is_refused(&world, &ledger, &with("seqId", Bson::Int64(9)), "has no entries at places 7 to 8").await;
    let nowhere = ledger.restore(&with("seqId", Bson::Int64(0))).await;
    assert!(matches!(nowhere, Err(Error::Damaged { .. })), "{nowhere:?}");
    let mut unbalanced = copy.clone();
    unbalanced.get_array_mut("changes").unwrap().truncate(1);
    is_refused(&world, &ledger, &unbalanced, "add up to -20").await;
    let wipe = rawdoc! { "$unset": { "cache": "" } };
    world.store.update_many(&world.namespace("account"), rawdoc! {}, wipe).await.unwrap();
    let newest = copy_of(&ledger, 6).await;
    lose(&world, 6).await;
    is_refused(&world, &ledger, &newest, "nothing says that it was lost").await;
    let none = ledger.restore(&doc! { "_id": 4, "name": "John" }).await;
    assert!(matches!(none, Err(Error::Damaged { .. })), "{none:?}");
    // The id was used again meanwhile for an entry at other places, so that the copy cannot be restored.
    posted(&ledger, NewEntry::transfer("A", "B", 20, "EUR").with_id(4)).await;
    is_refused(&world, &ledger, &copy, "another entry has its id").await;
}

/// Entries that were lost at several places follow only from the balances around all of them: the places are abandoned
/// from the first one on.
#[tokio::test]
async fn a_gap_is_given_up_from_its_first_place_on() {
    let (world, ledger) = paid().await;
    for lost in [3, 4, 5] {
        lose(&world, lost).await;
    }
    let before = books_of(&world).await;
    let error = ledger.abandon("A", 4..=5, "no copy").await.unwrap_err();
    assert!(error.to_string().contains("place 3 of account \"A\" has no entry either"), "{error}");
    assert_eq!(books_of(&world).await, before);
    for places in [3..=3, 4..=5] {
        let _ = ledger.abandon("A", places, "no copy").await.unwrap();
    }
    for (account, place) in [("cash", 2), ("B", 2), ("B", 3)] {
        let _ = ledger.abandon(account, place..=place, "no copy").await.unwrap();
    }
    assert!(ledger.rebuild_all().await.unwrap().is_whole());
    assert!(ledger.verify_all().await.unwrap().is_clean());
    assert_eq!((balance(&ledger, "A").await, balance(&ledger, "B").await), (63, 30));
}

/// The last entries of an account are lost together. Only the other account of the second one shows that; its copy
/// shows the first one.
#[tokio::test]
async fn the_last_entries_of_an_account_are_put_back_one_by_the_other() {
    let (world, ledger) = paid().await;
    for (id, payer, payee) in [(7, "B", "C"), (8, "A", "B"), (9, "A", "cash")] {
        posted(&ledger, NewEntry::transfer(payer, payee, 3, "EUR").with_id(id)).await;
    }
    commit_all(&ledger).await;
    // The caches are behind, as after a committer that died.
    world
        .store
        .update_many(&world.namespace("account"), rawdoc! {}, rawdoc! { "$unset": { "cache": "" } })
        .await
        .unwrap();
    let copies = exported(&ledger).await;
    let before = books_of(&world).await;
    for id in [7, 8] {
        lose(&world, id).await;
    }
    is_refused(&world, &ledger, &copies[6], "nothing says that it was lost").await;
    is_back(&ledger, &copies[7]).await;
    assert_gaps(&ledger.verify("B").await.unwrap(), &[gap("B", 4..=4, Some(-3))]);
    is_back(&ledger, &copies[6]).await;
    assert_eq!(books_of(&world).await, before);
    assert!(ledger.verify_all().await.unwrap().is_clean());
}

/// An authorisation that is restored expires at its time.
#[tokio::test]
async fn an_authorisation_that_is_put_back_expires() {
    let (world, ledger) = paid().await;
    let until = bson::DateTime::from_millis(world.sources.clock.now().timestamp_millis() + 1000);
    let authorisation = Authorisation::new("A", "B", 10, "EUR").with_id("hold").until(until);
    let _ = ledger.authorise(authorisation).await.unwrap();
    commit_all(&ledger).await;
    let copy = copy_of(&ledger, "hold").await;
    lose(&world, "hold").await;
    world.store.delete_many(&world.namespace("hold"), rawdoc! {}).await.unwrap();
    let change = Some(Amount { balance: 0, held: 10 });
    assert_gaps(&ledger.verify_all().await.unwrap(), &[Gap { account: "A".into(), first: 7, last: 7, change }]);
    is_back(&ledger, &copy).await;
    world.clock.advance(HOUR);
    assert_eq!(ledger.expire(10).await.unwrap().done, 1);
    assert_eq!(ledger.balance("A").await.unwrap().unwrap().held, 0);
}

/// An entry is lost for good: after its places are abandoned and the balances rebuilt, the books are consistent again.
#[tokio::test]
async fn a_gap_is_closed_by_an_entry_that_says_so() {
    for (lost, places, expected) in [(2, [2, 1], (77, 21)), (4, [4, 2], (67, 31)), (5, [5, 3], (48, 50))] {
        let (world, ledger) = paid().await;
        lose(&world, lost).await;
        for (account, place) in ["A", "B"].into_iter().zip(places) {
            assert_eq!(ledger.abandon(account, place..=place, "lost in a fire").await.unwrap(), 1);
            let after = books_of(&world).await;
            assert_eq!(ledger.abandon(account, place..=place, "again").await.unwrap(), 0);
            assert_eq!(books_of(&world).await, after);
        }
        let found = ledger.verify_all().await.unwrap();
        assert!(found.gaps.count() == 0 && found.findings.iter().all(Finding::can_be_rebuilt), "{found:?}");
        assert!(ledger.rebuild_all().await.unwrap().is_whole());
        assert!(ledger.verify_all().await.unwrap().is_clean());
        assert_eq!((agreed(&ledger, "A").await, agreed(&ledger, "B").await), expected);
        posted(&ledger, NewEntry::transfer("A", "B", 40, "EUR")).await;
        commit_all(&ledger).await;
        books::check(&world).await.unwrap();
        let abandoned: Vec<_> =
            all(&world, "tx").await.into_iter().filter(|entry| says(entry, "state", "ABANDONED")).collect();
        assert_eq!(abandoned.len(), 2);
        assert!(abandoned.iter().all(|entry| says(entry, "reason", "lost in a fire")), "{abandoned:?}");
    }
}

/// If nothing after the gap is committed, the committer continues by itself afterwards.
#[tokio::test]
async fn a_gap_that_was_not_committed_is_closed() {
    let (world, ledger) = paid().await;
    for id in [7, 8] {
        posted(&ledger, NewEntry::transfer("A", "B", 10, "EUR").with_id(id)).await;
    }
    lose(&world, 7).await;
    assert_eq!(ledger.abandon("A", 7..=7, "lost").await.unwrap(), 1);
    assert_eq!(ledger.abandon("B", 4..=4, "lost").await.unwrap(), 1);
    posted(&ledger, NewEntry::transfer("A", "B", 1, "EUR")).await;
    assert_eq!(commit_all(&ledger).await, 4);
    assert_eq!((agreed(&ledger, "A").await, agreed(&ledger, "B").await), (36, 62));
    books::check(&world).await.unwrap();
    assert!(ledger.verify_all().await.unwrap().is_clean());
}

#[tokio::test]
async fn only_a_gap_is_closed() {
    let (world, ledger) = paid().await;
    ledger.open_account(NewAccount::new("fees", "EUR").with_sequence()).await.unwrap();
    posted(&ledger, NewEntry::transfer("A", "fees", 1, "EUR")).await;
    // A poster draws a place, and its entry may still come.
    let drawn = rawdoc! { "$set": { "lastSeqId": 2_i64 } };
    world.store.update_one(&world.namespace("account"), rawdoc! { "_id": "fees" }, drawn).await.unwrap();
    posted(&ledger, NewEntry::transfer("A", "fees", 1, "EUR")).await;
    lose(&world, 4).await;
    let before = books_of(&world).await;
    for (account, places, why) in [
        ("A", 3..=4, "place 3 of account \"A\" has entry 3: it is not lost"),
        ("A", 4..=5, "place 5 of account \"A\" has entry 5"),
        ("A", 4..=9, "has no entry at place 9 or behind it"),
        ("A", 0..=4, "the first place is 1"),
        ("A", std::ops::RangeInclusive::new(4, 3), "there are no places 4 to 3"),
        ("A", 4..=10_004, "at most 10000 places"),
        ("fees", 2..=2, "may still come"),
        ("nobody", 1..=1, "there is no account"),
    ] {
        let error = ledger.abandon(account, places, "").await.unwrap_err();
        assert!(error.to_string().contains(why), "{error} instead of {why}");
    }
    assert_eq!(books_of(&world).await, before);
}

/// An account has lost all its entries.
#[tokio::test]
async fn all_entries_of_an_account_can_be_abandoned() {
    let world = World::in_memory();
    let ledger = open(&world).await.unwrap();
    for _ in 0..230 {
        posted(&ledger, NewEntry::transfer("A", "B", 1, "EUR")).await;
    }
    commit_all(&ledger).await;
    let copies = exported(&ledger).await;
    world.store.delete_many(&world.namespace("tx"), rawdoc! {}).await.unwrap();
    let lost = [gap("A", 1..=230, Some(-230)), gap("B", 1..=230, Some(230))];
    assert_gaps(&ledger.verify_all().await.unwrap(), &lost);
    for copy in copies.iter().skip(200) {
        is_back(&ledger, copy).await;
    }
    let lost = [gap("A", 1..=200, Some(-200)), gap("B", 1..=200, Some(200))];
    assert_gaps(&ledger.verify_all().await.unwrap(), &lost);
    for account in ["A", "B"] {
        assert_eq!(ledger.abandon(account, 1..=200, "lost").await.unwrap(), 200);
    }
    assert!(ledger.rebuild_all().await.unwrap().is_whole());
    assert!(ledger.verify_all().await.unwrap().is_clean());
    assert_eq!((agreed(&ledger, "A").await, agreed(&ledger, "B").await), (-30, 30));
    books::check(&world).await.unwrap();
}

/// In an account with a sequence an empty place is lost if anything after it is committed; otherwise its entry may
/// still come.
#[tokio::test]
async fn an_empty_place_of_a_sequence_is_lost_if_a_later_one_is_committed() {
    let world = World::in_memory();
    let ledger = open(&world).await.unwrap();
    ledger.open_account(NewAccount::new("fees", "EUR").with_sequence()).await.unwrap();
    for id in 1..=3 {
        posted(&ledger, NewEntry::transfer(format!("user {id}"), "fees", 1, "EUR").with_id(id)).await;
    }
    commit_all(&ledger).await;
    for id in 4..=6 {
        posted(&ledger, NewEntry::transfer(format!("user {id}"), "fees", 1, "EUR").with_id(id)).await;
    }
    let copies = exported(&ledger).await;
    for lost in [2, 5] {
        lose(&world, lost).await;
    }
    let found = ledger.verify("fees").await.unwrap();
    assert_gaps(&found, &[gap("fees", 2..=2, Some(1))]);
    assert_eq!(found.in_flight, 1);
    is_back(&ledger, &copies[1]).await;
    // The committer treats the other place as one whose poster died.
    world.clock.advance(HOUR);
    assert_eq!(commit_all(&ledger).await, 3);
    assert!(ledger.verify("fees").await.unwrap().is_clean(), "an abandoned place explains it");
    is_refused(&world, &ledger, &copies[4], "place 5 of account \"fees\" is taken by entry").await;
    assert_eq!(agreed(&ledger, "fees").await, 5);
    books::check(&world).await.unwrap();
}

/// A cancel resets a cache of another program, but never one that alone shows that entries are lost.
#[tokio::test]
async fn a_cancel_never_moves_a_cache_back_behind_a_lost_entry() {
    let (world, ledger) = paid().await;
    lose(&world, 6).await;
    let open = rawdoc! { "$set": { "proc": "UNCOMMITTED" } };
    world.store.update_one(&world.namespace("tx"), rawdoc! { "_id": 5 }, open).await.unwrap();
    assert_eq!(ledger.cancel(5, "a mistake").await.unwrap(), Cancel::Canceled);
    let cache = ledger.account("A").await.unwrap().unwrap().cache;
    assert_eq!(cache.map(|cache| cache.seq_id), Some(6));
}

/// Restores, abandonments, posters and committers run at once: each place gets one entry, and no entry is lost.
#[tokio::test(flavor = "multi_thread")]
async fn gaps_are_closed_beside_writers() {
    let (world, ledger) = paid().await;
    let copies = exported(&ledger).await;
    for lost in [2, 4, 6] {
        lose(&world, lost).await;
    }
    let mut tasks = Vec::new();
    for number in 0..4_u32 {
        let (world, copies) = (world.process(number + 10), copies.clone());
        tasks.push(tokio::spawn(async move {
            let ledger = open(&world).await.unwrap();
            for copy in &copies {
                let _ = ledger.restore(copy).await.unwrap();
                // One of these calls gets the place, and the others get an error.
                let _ = ledger.abandon("C", 1..=1, "lost").await;
                posted(&ledger, NewEntry::transfer("cash", "A", 1, "EUR")).await;
                let _ = ledger.commit(10).await.unwrap();
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    // If entry 6 was too late its other place is abandoned, too.
    if ledger.show(6).await.unwrap().is_none() {
        assert_eq!(ledger.abandon("A", 6..=6, "lost").await.unwrap(), 1);
        assert!(ledger.rebuild_all().await.unwrap().is_whole());
    }
    commit_all(&ledger).await;
    let _ = ledger.rebuild_all().await.unwrap();
    assert!(ledger.verify_all().await.unwrap().is_clean());
    let there = ledger.show(6).await.unwrap().is_some();
    let abandoned =
        all(&world, "tx").await.iter().filter(|entry| says(entry, "state", EntryState::Abandoned.name())).count();
    assert_eq!((balance(&ledger, "A").await, abandoned), if there { (47 + 24, 0) } else { (54 + 24, 2) });
    books::check(&world).await.unwrap();
}

/// A balance as of a place or a time says how many places up to there have no entry.
#[tokio::test]
async fn a_balance_as_of_says_what_is_missing() {
    let (world, ledger) = paid().await;
    let now = world.sources.clock.now();
    let at = async |as_of: AsOf| {
        let balance = ledger.balance_at("A", as_of).await.unwrap().unwrap();
        (balance.balance, balance.pending, balance.seq_id, balance.missing)
    };
    assert_eq!(at(AsOf::Time(now)).await, (47, 0, 6, 0));
    lose(&world, 2).await;
    assert_eq!(at(AsOf::Time(now)).await, (77, 0, 6, 1), "without the lost entry, and says so");
    assert_eq!(at(AsOf::SequenceNumber(2)).await, (100, 0, 2, 1));
    // A final balance includes what is lost before it.
    assert_eq!(at(AsOf::SequenceNumber(3)).await, (75, 0, 3, 0));
    assert_eq!(at(AsOf::Entry(6.into())).await, (47, 0, 6, 0));
    assert_eq!(at(AsOf::SequenceNumber(9)).await, (47, 0, 6, 0), "there is no such place");
    // The time of a lost entry is unknown, and the account's document alone shows that it was there.
    lose(&world, 6).await;
    assert_eq!(at(AsOf::Time(now)).await, (84, 0, 6, 2));
}

#[tokio::test]
async fn a_balance_as_of_a_time_says_what_is_not_final() {
    let (world, ledger) = paid().await;
    world.clock.advance(HOUR);
    posted(&ledger, NewEntry::transfer("A", "B", 10, "EUR").with_id(7)).await;
    let between = world.sources.clock.now();
    world.clock.advance(HOUR);
    posted(&ledger, NewEntry::transfer("A", "B", 20, "EUR").with_id(8)).await;
    let now = world.sources.clock.now();
    for (as_of, expected) in [
        (AsOf::Time(between), (37, -10)),
        (AsOf::Time(now), (17, -30)),
        (AsOf::SequenceNumber(6), (47, 0)),
        (AsOf::Entry(7.into()), (37, -10)),
    ] {
        let then = ledger.balance_at("A", as_of.clone()).await.unwrap().unwrap();
        assert_eq!((then.balance, then.pending), expected, "{as_of:?}");
    }
}
