//! Altered documents: each is named, none is used for a repair, and none ends the verification.

use std::sync::Arc;

use bson::{Bson, Document, doc, rawdoc};
use handfast_patterns::ledger::{
    Finding, Ledger, LedgerFields, LedgerOptions, NewAccount, NewEntry, Posting, Restored,
};
use handfast_patterns::{Error, Round};
use handfast_store::{DocumentStore, DropIndexes, IndexSelector, StoreExt};

use super::lost::{books_of, paid};
use super::{all, balance, commit_all, open, open_with, options, posted};
use crate::crash::World;

async fn alter(world: &World, collection: &str, id: impl Into<Bson>, update: Document) {
    let raw = |document: &Document| bson::RawDocumentBuf::try_from(document).unwrap();
    let outcome = world
        .store
        .update_one(&world.namespace(collection), raw(&doc! { "_id": id.into() }), raw(&update))
        .await
        .unwrap();
    assert_eq!(outcome.modified, 1, "{update:?}");
}

/// Returns the kinds of the findings.
async fn found(ledger: &Ledger) -> Vec<&'static str> {
    let verified = ledger.verify_all().await.unwrap();
    let mut names: Vec<_> =
        verified.gaps.iter().map(|_| "gap").chain(verified.findings.iter().map(Finding::kind)).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// An altered value of an entry contradicts all balances after it, which still result from the original value.
#[tokio::test]
async fn a_rebuild_stops_at_an_altered_entry() {
    let both = doc! { "$set": { "changes.0.value": -60_i64, "changes.1.value": 60_i64 } };
    for (entry, update, expected) in [
        (2, both.clone(), vec!["altered"]),
        (6, both, vec!["altered"]),
        (2, doc! { "$set": { "changes.0.value": -60_i64 } }, vec!["altered", "unbalanced"]),
        (2, doc! { "$set": { "state": "CANCELED" } }, vec!["altered"]),
        (6, doc! { "$set": { "state": "ABANDONED" } }, vec!["altered"]),
        (6, doc! { "$set": { "changes.0.hold": 5_i64 } }, vec!["altered"]),
    ] {
        let (world, ledger) = paid().await;
        alter(&world, "tx", entry, update.clone()).await;
        assert_eq!(found(&ledger).await, expected, "{update}");
        let before = books_of(&world).await;
        let rebuilt = ledger.rebuild_all().await.unwrap();
        assert!(!rebuilt.is_whole() && rebuilt.balances == 0 && rebuilt.caches == 0, "{update}: {rebuilt:?}");
        assert_eq!(books_of(&world).await, before, "{update}");
    }
}

/// A balance that all others contradict is recomputed, even beside an altered entry.
#[tokio::test]
async fn a_balance_that_all_others_contradict_is_counted_again() {
    let (world, ledger) = paid().await;
    let before = books_of(&world).await;
    for (entry, change) in [(2, 0), (3, 1), (6, 0)] {
        alter(&world, "tx", entry, doc! { "$inc": { format!("changes.{change}.cachedBal"): 7_i64 } }).await;
        assert_eq!(found(&ledger).await, ["balance"]);
        assert!(ledger.rebuild_all().await.unwrap().is_whole());
        assert_eq!(books_of(&world).await, before);
    }
    alter(&world, "account", "B", doc! { "$inc": { "cache.balance": 7_i64 } }).await;
    alter(&world, "tx", 6, doc! { "$set": { "changes.0.value": -8_i64, "changes.1.value": 8_i64 } }).await;
    assert_eq!(found(&ledger).await, ["altered", "cache"]);
    let rebuilt = ledger.rebuild_all().await.unwrap();
    assert_eq!((rebuilt.caches, rebuilt.stops.count()), (1, 2), "{rebuilt:?}");
}

/// Without its document the limits of an account are unknown: nothing is posted to it, and no document without limits
/// is inserted.
#[tokio::test]
async fn an_account_whose_document_is_lost_is_not_made_without_its_limits() {
    let (world, ledger) = paid().await;
    assert!(world.store.delete_one(&world.namespace("account"), rawdoc! { "_id": "A" }).await.unwrap());
    assert_eq!(found(&ledger).await, ["no account"]);
    let before = books_of(&world).await;
    assert!(!ledger.rebuild_all().await.unwrap().is_whole());
    let error = ledger.post(NewEntry::transfer("A", "B", 5000, "EUR")).await.unwrap_err();
    assert!(error.to_string().contains("has entries and no document"), "{error}");
    assert_eq!(books_of(&world).await, before);
    alter(&world, "tx", 6, doc! { "$set": { "proc": "UNCOMMITTED" } }).await;
    let before = books_of(&world).await;
    commit_all(&ledger).await;
    assert_eq!(books_of(&world).await, before, "nor does a committer");
    alter(&world, "tx", 6, doc! { "$set": { "proc": "COMMITTED" } }).await;
    let other = ledger.open_account(NewAccount::new("A", "USD")).await.unwrap_err();
    assert!(other.to_string().contains("are in \"EUR\""), "{other}");
    ledger.open_account(NewAccount::new("A", "EUR").with_minimum(0)).await.unwrap();
    assert!(ledger.rebuild_all().await.unwrap().is_whole());
    assert_eq!(found(&ledger).await, [""; 0]);
    let refused = ledger.post(NewEntry::transfer("A", "B", 5000, "EUR")).await.unwrap();
    assert!(matches!(refused, Posting::Refused(_)), "{refused:?}");
}

/// A document that cannot be read is named, and everything else is verified.
#[tokio::test]
async fn an_unreadable_document_does_not_end_a_verification() {
    for (collection, id, update, named) in [
        ("tx", Bson::from(2), doc! { "$set": { "changes.0.value": -30.5, "changes.1.value": 30.5 } }, "document 2 of"),
        ("tx", Bson::from(6), doc! { "$set": { "changes.0.seqId": 6.5 } }, "document 6 of"),
        ("tx", Bson::from(2), doc! { "$set": { "changes": { "a": 1 } } }, "document 2 of"),
        ("tx", Bson::from(2), doc! { "$set": { "changes.0.account": [1] } }, "document 2 of"),
        ("account", Bson::from("A"), doc! { "$set": { "minimum": "0" } }, "document \"A\" of"),
        ("account", Bson::from("A"), doc! { "$set": { "cache": "x" } }, "document \"A\" of"),
        ("account", Bson::from("A"), doc! { "$unset": { "cache.seqId": 1 } }, "document \"A\" of"),
    ] {
        let (world, ledger) = paid().await;
        alter(&world, collection, id, update.clone()).await;
        alter(&world, "account", "cash", doc! { "$inc": { "cache.balance": 1_i64 } }).await;
        let verified = ledger.verify_all().await.unwrap();
        let gaps = verified.gaps.iter().map(ToString::to_string);
        let said: Vec<_> = gaps.chain(verified.findings.iter().map(ToString::to_string)).collect();
        assert!(said.iter().any(|said| said.contains(named)), "{update}: {said:?}");
        assert!(said.iter().any(|said| said.contains("account \"cash\": its document says")), "{update}: {said:?}");
        let rebuilt = ledger.rebuild_all().await.unwrap();
        assert!(!rebuilt.is_whole() && rebuilt.caches == 1, "{update}: {rebuilt:?}");
    }
    let (world, ledger) = paid().await;
    alter(&world, "tx", 6, doc! { "$set": { "changes.0.seqId": 6.5 } }).await;
    let error = ledger.balance("A").await.unwrap_err();
    assert!(error.to_string().contains("document 6 of"), "{error}");
}

/// An index and the record of the settings are missing.
#[tokio::test]
async fn verify_checks_indexes_and_settings() {
    let (world, ledger) = paid().await;
    alter(&world, "tx", 6, doc! { "$set": { "reverses": 99 } }).await;
    assert_eq!(found(&ledger).await, ["no such entry"]);
    let (world, ledger) = paid().await;
    world.store.delete_many(&world.namespace("tx.settings"), rawdoc! {}).await.unwrap();
    assert_eq!(found(&ledger).await, ["no settings"]);
    let fields = LedgerFields { value: "amount".to_owned(), ..LedgerFields::default() };
    let other = open_with(&world, LedgerOptions { fields, ..options() }).await.map(|_| ()).unwrap_err();
    assert!(other.to_string().contains("a change has no amount") || matches!(other, Error::Damaged { .. }), "{other}");
    open(&world).await.unwrap();
    assert_eq!(found(&ledger).await, [""; 0]);
    let forged = rawdoc! {
        "_id": "forged", "ts": world.sources.clock.now(), "proc": "UNCOMMITTED", "state": "VALID", "changes": [
            { "account": "A", "type": "withdraw", "value": -48_i64, "asset": "EUR", "seqId": 7_i64, "cachedBal": null },
            { "account": "C", "type": "deposit", "value": 48_i64, "asset": "EUR", "seqId": 2_i64, "cachedBal": null },
        ],
    };
    world.store.insert_one(&world.namespace("tx"), forged).await.unwrap();
    assert_eq!(found(&ledger).await, ["below minimum"]);
    ledger.set_minimum("A", Some(-1)).await.unwrap();
    assert_eq!(found(&ledger).await, [""; 0]);
    ledger.set_minimum("A", Some(0)).await.unwrap();
    assert_eq!(found(&ledger).await, [""; 0], "a minimum holds from then on");
}

/// Two entries have the same place, where no index prevents it.
#[tokio::test]
async fn two_entries_at_one_place_are_reported() {
    let (world, ledger) = paid().await;
    let all_of_them = DropIndexes { namespace: world.namespace("tx"), selector: IndexSelector::All };
    world.store.drop_indexes(all_of_them).await.unwrap();
    let mut entry = all(&world, "tx").await.into_iter().last().unwrap();
    entry.insert("_id", "again");
    world.store.insert_one(&world.namespace("tx"), bson::RawDocumentBuf::try_from(&entry).unwrap()).await.unwrap();
    assert_eq!(found(&ledger).await, ["no index", "same place"]);
    let before = books_of(&world).await;
    assert!(!ledger.rebuild_all().await.unwrap().is_whole());
    assert_eq!(books_of(&world).await, before);
}

/// A change has a place that no account has: no recommended command may make totals and balances differ without a
/// finding.
#[tokio::test]
async fn a_change_at_an_invalid_place_is_reported() {
    for seq_id in [0_i64, -3, i64::MAX] {
        let (world, ledger) = paid().await;
        alter(&world, "tx", 1, doc! { "$set": { "changes.0.seqId": seq_id } }).await;
        let before = found(&ledger).await;
        assert!(before.contains(&"gap") && before.len() > 1, "{seq_id}: {before:?}");
        let error = ledger.abandon("cash", 1..=1, "no copy").await.unwrap_err();
        assert!(error.to_string().contains("places are from 1"), "the entry may be the one that is missing: {error}");
        let _ = ledger.rebuild_all().await.unwrap();
        let after = ledger.verify_all().await.unwrap();
        assert!(!after.is_clean(), "{seq_id}: {after:?}");
    }
}

/// Balances after an entry that contradicts its account are not recomputed.
#[tokio::test]
async fn a_change_in_another_asset_stops_a_rebuild() {
    let (world, ledger) = paid().await;
    alter(&world, "tx", 2, doc! { "$set": { "changes.0.asset": "USD", "changes.1.asset": "USD" } }).await;
    alter(&world, "tx", 3, doc! { "$inc": { "changes.1.cachedBal": 7_i64 } }).await;
    assert_eq!(found(&ledger).await, ["asset", "balance"]);
    let before = books_of(&world).await;
    assert!(!ledger.rebuild_all().await.unwrap().is_whole());
    assert_eq!(books_of(&world).await, before);
}

/// The finding names the one entry that is marked as uncommitted, not those after it.
#[tokio::test]
async fn an_entry_that_was_marked_as_uncommitted_is_reported() {
    let (world, ledger) = paid().await;
    alter(&world, "tx", 2, doc! { "$set": { "proc": "UNCOMMITTED" } }).await;
    let verified = ledger.verify("A").await.unwrap();
    let named: Vec<_> = verified.findings.iter().map(ToString::to_string).collect();
    assert_eq!(named, ["account \"A\": entry 2 at place 2 is not committed, and those behind it are"]);
}

/// An abandoned entry takes an account below its minimum, which is reported until the balance is high enough again.
#[tokio::test]
async fn an_account_below_its_minimum_after_an_abandoned_gain_is_reported() {
    let (world, ledger) = paid().await;
    world.store.delete_one(&world.namespace("tx"), rawdoc! { "_id": 1 }).await.unwrap();
    for account in ["A", "cash"] {
        assert_eq!(ledger.abandon(account, 1..=1, "no copy").await.unwrap(), 1);
    }
    assert!(ledger.rebuild_all().await.unwrap().is_whole());
    assert_eq!(balance(&ledger, "A").await, -53);
    assert_eq!(found(&ledger).await, ["below minimum"]);
    posted(&ledger, NewEntry::transfer("cash", "A", 53, "EUR")).await;
    assert_eq!(found(&ledger).await, [""; 0]);
}

/// The record names a field that no account has, so that the minimum would not hold for any process that opens the
/// ledger by it.
#[tokio::test]
async fn a_record_with_a_field_that_no_account_has_is_reported() {
    let (world, _) = paid().await;
    let misspelt = rawdoc! { "$set": { "settings.fields.minimum": "mini" } };
    world.store.update_many(&world.namespace("tx.settings"), rawdoc! {}, misspelt).await.unwrap();
    let recorded = LedgerOptions::recorded(Arc::clone(&world.store), &world.namespace("tx")).await.unwrap().unwrap();
    let ledger =
        Ledger::attach(Arc::clone(&world.store), world.namespace("tx"), world.sources.clone(), recorded).await.unwrap();
    assert_eq!(found(&ledger).await, ["unreadable"]);
}

/// An entry that was altered before it was committed is not made final, while others are.
#[tokio::test]
async fn an_entry_that_is_altered_before_its_commit_is_not_committed() {
    let (world, ledger) = paid().await;
    posted(&ledger, NewEntry::transfer("A", "B", 1, "EUR").with_id(7)).await;
    posted(&ledger, NewEntry::transfer("cash", "C", 1, "EUR").with_id(8)).await;
    alter(&world, "tx", 7, doc! { "$set": { "changes.0.value": -2_i64 } }).await;
    assert_eq!(ledger.commit(10).await.unwrap(), Round { done: 1, failed: 1, more: false });
    assert_eq!(found(&ledger).await, ["unbalanced"]);
}

/// A document that cannot be read does not keep other entries from being restored.
#[tokio::test]
async fn an_unreadable_document_does_not_end_a_restore() {
    let (world, ledger) = paid().await;
    let copy = all(&world, "tx").await.remove(5);
    alter(&world, "tx", 5, doc! { "$set": { "changes.0.value": "x" } }).await;
    world.store.delete_one(&world.namespace("tx"), rawdoc! { "_id": 6 }).await.unwrap();
    let restored = ledger.restore(&copy).await.unwrap();
    assert!(matches!(&restored, Restored::Refused(why) if why.contains("document 5 of")), "{restored:?}");
}

/// The document of an account and its last final entry contradict each other. A committer that continued from one of
/// them would hide the error in the other one.
#[tokio::test]
async fn nothing_is_committed_behind_balances_that_contradict_each_other() {
    let (world, ledger) = paid().await;
    alter(&world, "tx", 5, doc! { "$inc": { "changes.1.cachedBal": 1000_i64 } }).await;
    assert_eq!(found(&ledger).await, ["balance"]);
    posted(&ledger, NewEntry::transfer("A", "B", 2, "EUR")).await;
    assert_eq!(ledger.commit(10).await.unwrap(), Round { done: 0, failed: 1, more: false });
    assert_eq!(found(&ledger).await, ["balance"], "the same as before");
    assert!(ledger.rebuild_all().await.unwrap().is_whole());
    assert_eq!(commit_all(&ledger).await, 1);
    assert_eq!((found(&ledger).await, balance(&ledger, "B").await), (Vec::new(), 53));
}

/// A sequence has a value that is not a place, and no poster draws from it.
#[tokio::test]
async fn no_place_is_drawn_from_an_invalid_sequence() {
    for last in [-3_i64, 1 << 53] {
        let (world, ledger) = paid().await;
        ledger.open_account(NewAccount::new("all", "EUR").with_sequence()).await.unwrap();
        alter(&world, "account", "all", doc! { "$set": { "lastSeqId": last } }).await;
        let error = ledger.post(NewEntry::transfer("all", "B", 2, "EUR")).await.unwrap_err();
        assert!(error.to_string().contains("places are from 1"), "{error}");
        assert_eq!(found(&ledger).await, ["unreadable"]);
    }
}
