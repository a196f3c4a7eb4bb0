//! Every process reads a ledger by the settings that its entries were written by.

use std::sync::Arc;

use bson::rawdoc;
use handfast_patterns::ledger::{Change, Ledger, LedgerFields, LedgerOptions, NewEntry};
use handfast_patterns::two_phase::{TwoPhase, TwoPhaseOptions};
use handfast_patterns::{Error, FieldNames, JobQueue, Result};
use handfast_store::{DocumentStore, StoreExt};

use super::{HOUR, balance, commit_all, open, open_with, options, posted};
use crate::crash::World;

fn single() -> LedgerOptions {
    LedgerOptions { single_entry: true, ..options() }
}

async fn attached(world: &World, options: LedgerOptions) -> Result<Ledger> {
    Ledger::attach(Arc::clone(&world.store), world.namespace("tx"), world.sources.clone(), options).await
}

async fn recorded(world: &World) -> Option<LedgerOptions> {
    LedgerOptions::recorded(Arc::clone(&world.store), &world.namespace("tx")).await.unwrap()
}

/// The error names each setting, as recorded and as given. Nothing is done, and no index is created.
#[tokio::test]
async fn other_settings_are_refused_by_name() {
    let world = World::in_memory();
    assert!(recorded(&world).await.is_none());
    attached(&world, options()).await.unwrap();
    assert!(recorded(&world).await.is_none(), "who only looks records nothing");
    open_with(&world, single()).await.unwrap();
    let fields = LedgerFields { balance: "bal".to_owned(), ..LedgerFields::default() };
    for (other, text) in [
        (options(), "singleEntry is recorded as true, given as false"),
        (
            LedgerOptions { accounts: "people".to_owned(), ..single() },
            "accounts is recorded as \"account\", given as \"people\"",
        ),
        (LedgerOptions { holds: "held".to_owned(), ..single() }, "holds is recorded as \"hold\", given as \"held\""),
        (LedgerOptions { fields, ..single() }, "fields.balance is recorded as \"balance\", given as \"bal\""),
    ] {
        for refused in [open_with(&world, other.clone()).await.err(), attached(&world, other).await.err()] {
            let error = refused.expect("other settings");
            assert!(matches!(error, Error::OtherSettings { .. }) && error.to_string().contains(text), "{error}");
        }
    }
    let names = world.store.list_collections(world.namespace("tx").database()).await.unwrap();
    assert!(names.iter().all(|one| one.name != "held" && one.name != "people"), "{names:?}");
    // The settings that each process chooses for itself are not compared.
    open_with(&world, LedgerOptions { attempts_max: 2, abandoned_after: HOUR, ..single() }).await.unwrap();
}

/// A tool without the application's settings opens a ledger by its record.
#[tokio::test]
async fn a_ledger_is_opened_by_its_record() {
    let world = World::in_memory();
    let fields = LedgerFields { value: "cents".to_owned(), seq_id: "number".to_owned(), ..LedgerFields::default() };
    let ledger = open_with(&world, LedgerOptions { fields, accounts: "people".to_owned(), ..single() }).await.unwrap();
    posted(&ledger, NewEntry::new([Change::new("A", 5, "EUR")])).await;
    let other = attached(&world, recorded(&world).await.unwrap()).await.unwrap();
    assert_eq!(commit_all(&other).await, 1);
    assert_eq!((balance(&other, "A").await, other.verify_all().await.unwrap().is_clean()), (5, true));
}

#[tokio::test]
async fn recorded_settings_are_changed_while_that_does_no_harm() {
    let world = World::in_memory();
    let change = async |options: LedgerOptions| {
        Ledger::change_settings(Arc::clone(&world.store), world.namespace("tx"), &options).await
    };
    let renamed = || LedgerOptions { accounts: "people".to_owned(), ..options() };
    open(&world).await.unwrap();
    change(renamed()).await.unwrap();
    let ledger = open_with(&world, renamed()).await.unwrap();
    posted(&ledger, NewEntry::transfer("A", "B", 1, "EUR")).await;
    let error = change(options()).await.unwrap_err();
    assert!(error.to_string().contains("has entries by other names"), "{error}");
    change(LedgerOptions { single_entry: true, ..renamed() }).await.unwrap();
    assert!(recorded(&world).await.is_some_and(|options| options.single_entry));
    // Entries that do not balance would never be committed.
    let error = change(renamed()).await.unwrap_err();
    assert!(error.to_string().contains("has entries that need not balance"), "{error}");
}

/// Names that collide, names that no document has, and a collection of records are refused: nothing is recorded, and
/// no entry is written.
#[tokio::test]
async fn names_that_make_documents_meaningless_are_refused_at_the_first_opening() {
    let named = |renamed: &[(&str, &str)]| {
        let mut fields = LedgerFields::default();
        renamed.iter().for_each(|(default, name)| assert!(fields.rename(default, name)));
        LedgerOptions { fields, ..options() }
    };
    let world = World::in_memory();
    for (renamed, said) in [
        (&[("seqId", "value")][..], "the fields value and seqId of a change"),
        (&[("value", "a.b")], "the field value cannot be named \"a.b\""),
        (&[("state", "proc")], "the fields proc and state of an entry"),
        (&[("balance", "seqId")], "of a cache"),
        (&[("cache", "asset")], "of an account"),
    ] {
        let error = open_with(&world, named(renamed)).await.map(|_| ()).unwrap_err();
        assert!(error.to_string().contains(said), "{error}");
    }
    let account = rawdoc! { "_id": "A", "asset": "EUR", "minimum": 0_i64 };
    world.store.insert_one(&world.namespace("account"), account).await.unwrap();
    let error = open_with(&world, named(&[("minimum", "mini")])).await.map(|_| ()).unwrap_err();
    assert!(error.to_string().contains("have the field minimum, and none has \"mini\""), "{error}");
    assert!(recorded(&world).await.is_none());
    open_with(&world, named(&[("type", "kind")])).await.unwrap();
    let in_records = async || {
        let (store, records) = (Arc::clone(&world.store), world.namespace("tx.settings"));
        let options = TwoPhaseOptions::new("App", world.namespace("people"));
        TwoPhase::open_with(store, records, world.sources.clone(), options).await.map(|_| ())
    };
    let error = in_records().await.unwrap_err();
    assert!(error.to_string().contains("has recorded settings of another pattern"), "{error}");
    // Another collection may have such a name.
    world.store.delete_many(&world.namespace("tx.settings"), rawdoc! {}).await.unwrap();
    in_records().await.unwrap();
}

/// Two ledgers whose entries change the same accounts would each compute balances without the other's entries.
#[tokio::test]
async fn accounts_and_authorisations_belong_to_one_ledger() {
    let world = World::in_memory();
    let open_at = async |entries: &str, options: LedgerOptions| {
        Ledger::open_with(Arc::clone(&world.store), world.namespace(entries), world.sources.clone(), options).await
    };
    let named = |accounts: &str, holds: &str| LedgerOptions {
        accounts: accounts.to_owned(),
        holds: holds.to_owned(),
        ..options()
    };
    open(&world).await.unwrap();
    for (entries, options, taken) in [
        ("ty", options(), "test.account"),
        ("ty", named("account", "ty.hold"), "test.account"),
        ("ty", named("ty.account", "hold"), "test.hold"),
        ("ty", named("hold", "ty.hold"), "test.hold"),
        ("ty", named("tx", "ty.hold"), "test.tx"),
        ("account", named("ty.account", "ty.hold"), "test.account"),
    ] {
        let error = open_at(entries, options.clone()).await.err().expect("it is taken").to_string();
        assert!(error.contains(taken) && error.contains("the ledger test.tx"), "{error}");
        let recorded = LedgerOptions::recorded(Arc::clone(&world.store), &world.namespace(entries)).await.unwrap();
        assert!(recorded.is_none(), "{entries}");
        let (store, sources) = (Arc::clone(&world.store), world.sources.clone());
        let error = Ledger::attach(store, world.namespace(entries), sources, options).await.err();
        assert!(error.expect("it is taken").to_string().contains(taken), "{entries}");
    }
    let other = open_at("ty", named("ty.account", "ty.hold")).await.unwrap();
    posted(&other, NewEntry::transfer("A", "B", 1, "EUR")).await;
    open(&world).await.unwrap();
    attached(&world, options()).await.unwrap();
    // A ledger of an earlier version has no such records: it gets them when it is opened again.
    for parts in ["account.settings", "hold.settings"] {
        assert_eq!(world.store.delete_many(&world.namespace(parts), rawdoc! {}).await.unwrap(), 1, "{parts}");
    }
    open(&world).await.unwrap();
    assert!(open_at("tz", options()).await.is_err());
}

/// A ledger without entries may get other collections; another ledger can have the old ones then.
#[tokio::test]
async fn collections_that_a_ledger_no_longer_has_are_free() {
    let world = World::in_memory();
    let (store, tx) = (Arc::clone(&world.store), world.namespace("tx"));
    open(&world).await.unwrap();
    let renamed = LedgerOptions { accounts: "people".to_owned(), holds: "held".to_owned(), ..options() };
    Ledger::change_settings(Arc::clone(&store), tx, &renamed).await.unwrap();
    open_with(&world, renamed.clone()).await.unwrap();
    let (ty, sources) = (world.namespace("ty"), world.sources.clone());
    Ledger::open_with(Arc::clone(&store), ty.clone(), sources, options()).await.unwrap();
    let error = Ledger::change_settings(store, ty, &renamed).await.unwrap_err();
    assert!(error.to_string().contains("test.people"), "{error}");
}

#[tokio::test]
async fn a_queue_is_in_no_collection_of_a_ledger() {
    let world = World::in_memory();
    open(&world).await.unwrap();
    for collection in ["tx", "account", "hold"] {
        let (store, jobs) = (Arc::clone(&world.store), world.namespace(collection));
        let queue = JobQueue::open_with(store, jobs, world.sources.clone(), Default::default()).await;
        let error = queue.err().expect("it is taken").to_string();
        assert!(error.contains(collection) && error.contains("belongs to a ledger"), "{error}");
    }
}
