//! A ledger is read by the settings that its entries were written by, whoever opens it.

use super::*;

fn single() -> LedgerOptions {
    LedgerOptions { single_entry: true, ..options() }
}

async fn attached(world: &World, options: LedgerOptions) -> Result<Ledger> {
    Ledger::attach(Arc::clone(&world.store), world.place("tx"), world.sources.clone(), options).await
}

async fn recorded(world: &World) -> Option<LedgerOptions> {
    LedgerOptions::recorded(Arc::clone(&world.store), &world.place("tx")).await.unwrap()
}

/// Each setting, as it is recorded and as it was given; nothing is done, not even an index is made.
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
    let names = world.store.list_collections(world.place("tx").database()).await.unwrap();
    assert!(names.iter().all(|one| one.name != "held" && one.name != "people"), "{names:?}");
    // What each process chooses for itself is not compared.
    open_with(&world, LedgerOptions { attempts_max: 2, abandoned_after: HOUR, ..single() }).await.unwrap();
}

/// Who knows nothing of the application opens a ledger by its record.
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
        Ledger::change_settings(Arc::clone(&world.store), world.place("tx"), &options).await
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
}
