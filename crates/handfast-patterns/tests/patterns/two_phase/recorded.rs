//! Transactions are finished by the settings that they were begun with, in every process.

use std::sync::Arc;
use std::time::Duration;

use bson::Document;
use handfast_patterns::two_phase::{PendingFields, Transfer, TwoPhase, TwoPhaseOptions, TwoPhaseOutcome};
use handfast_patterns::{Error, Round};
use handfast_store::decorator::{Fault, Faulty, Operation, Plan as Faults};

use super::{HOUR, accounts, all, number, open, open_with, options};
use crate::crash::World;
use crate::fault::first;

fn with_pending(world: &World, application: &str) -> TwoPhaseOptions {
    let mut options = TwoPhaseOptions::new(application, world.namespace("accounts"));
    options.accounts.pending = Some(PendingFields::default());
    options
}

/// Returns each account as its balance, pending credits and pending debits.
async fn books(world: &World) -> Vec<[i64; 3]> {
    let line = |account: &Document| ["balance", "pendingCredits", "pendingDebits"].map(|field| number(account, field));
    all(world, "accounts").await.iter().map(line).collect()
}

/// Makes a transfer of 100 whose process dies after each of its operations; returns the number of operations.
async fn left_at_each_operation(options: fn(&World, &str) -> TwoPhaseOptions, finish: impl AsyncFn(&World)) -> u64 {
    for number in 0.. {
        let world = World::in_memory();
        accounts(&world).await;
        let writer = open_with(&world, options(&world, "App1")).await.unwrap();
        writer.begin(1, Transfer::new("A", "B", 100)).await.unwrap();
        let dying = Arc::new(Faulty::new(Arc::clone(&world.store), Faults::at(number, Fault::CrashAfter)));
        let ended = writer.within(dying).run(1).await.is_ok();
        world.clock.advance(HOUR);
        finish(&world).await;
        if ended {
            return number;
        }
    }
    unreachable!()
}

/// The recovery runs in a process with another form of the accounts. Without the record, money was lost at six of
/// seven operations.
#[tokio::test]
async fn a_process_with_other_settings_changes_no_balance() {
    let finish = async |world: &World| {
        let plain = TwoPhaseOptions::new("App2", world.namespace("accounts"));
        if let Ok(others) = open_with(world, plain).await {
            others.recover(10).await.unwrap();
        }
        let target = world.namespace("transactions");
        let options = TwoPhaseOptions::recorded(Arc::clone(&world.store), &target, "App3").await.unwrap();
        let recorded = open_with(world, options.expect("recorded")).await.unwrap();
        assert_eq!(recorded.recover(10).await.unwrap().failed, 0);
        let _ = recorded.run(1).await.unwrap();
        assert_eq!(books(world).await, [[900, 0, 0], [1100, 0, 0]]);
    };
    assert_eq!(left_at_each_operation(with_pending, finish).await, 7);
}

/// The error names each setting, as recorded and as given.
#[tokio::test]
async fn other_settings_are_refused_by_name() {
    let world = World::in_memory();
    open_with(&world, with_pending(&world, "App1")).await.unwrap();
    type Change = fn(&mut TwoPhaseOptions, &World);
    let changes: [(Change, &str); 7] = [
        (
            |options, _| options.accounts.pending = None,
            "accounts.pending.credits is recorded as \"pendingCredits\", given as nothing",
        ),
        (
            |options, _| options.accounts.balance = "saldo".to_owned(),
            "accounts.balance is recorded as \"balance\", given as \"saldo\"",
        ),
        (|options, _| options.accounts.overdraft = true, "accounts.overdraft is recorded as false, given as true"),
        (
            |options, world| options.accounts.namespace = world.namespace("stock"),
            "accounts.collection is recorded as \"accounts\", given as \"stock\"",
        ),
        (
            |options, world| options.participants = vec![world.namespace("stock")],
            "participants is recorded as [], given as [{ \"collection\": \"stock\" }]",
        ),
        (|options, _| options.finished_max = 7, "finishedMax is recorded as 100, given as 7"),
        (
            |options, _| options.fields.state = "status".to_owned(),
            "fields.state is recorded as \"state\", given as \"status\"",
        ),
    ];
    for (change, expected) in changes {
        let mut other = with_pending(&world, "App2");
        change(&mut other, &world);
        let refused = open_with(&world, other.clone()).await.map(|_| ()).unwrap_err();
        assert!(matches!(refused, Error::OtherSettings { .. }), "{refused}");
        assert!(refused.to_string().contains(expected), "{refused}");
        let attached =
            TwoPhase::attach(Arc::clone(&world.store), world.namespace("transactions"), world.sources.clone(), other);
        assert!(matches!(attached.await, Err(Error::OtherSettings { .. })));
    }
    let own = TwoPhaseOptions { abandoned_after: Duration::ZERO, ..with_pending(&world, "App2") };
    open_with(&world, own).await.expect("each process has its own name and its own patience");
}

/// A process that keeps the old settings claims a transaction after they were changed, and dies.
#[tokio::test]
async fn a_transaction_is_finished_by_the_settings_that_it_was_claimed_by() {
    let changed = |world: &World, application: &str| TwoPhaseOptions::new(application, world.namespace("accounts"));
    for number in 0..8 {
        let world = World::in_memory();
        accounts(&world).await;
        let old = open_with(&world, with_pending(&world, "App1")).await.unwrap();
        old.begin(1, Transfer::new("A", "B", 100)).await.unwrap();
        let (store, target) = (Arc::clone(&world.store), world.namespace("transactions"));
        TwoPhase::change_settings(store, target, &changed(&world, "App2")).await.unwrap();
        let dying = Arc::new(Faulty::new(Arc::clone(&world.store), Faults::at(number, Fault::CrashAfter)));
        let _ = old.within(dying).run(1).await;
        world.clock.advance(HOUR);
        let new = open_with(&world, changed(&world, "App2")).await.unwrap();
        assert_eq!(new.recover(10).await.unwrap().failed, 0);
        assert_eq!(new.run(1).await.unwrap(), TwoPhaseOutcome::Done);
        assert_eq!(books(&world).await, [[900, 0, 0], [1100, 0, 0]], "after operation {number}");

        // A process that does not know the settings of a new transaction leaves it alone.
        new.begin(2, Transfer::new("A", "B", 100)).await.unwrap();
        let dying = world.fault_at(first(Operation::Update, "accounts"), Fault::CrashAfter);
        let _ = new.within(dying).run(2).await.expect_err("killed");
        world.clock.advance(HOUR);
        assert_eq!(old.recover(10).await.unwrap(), Round { failed: 1, ..Round::default() });
        assert_eq!(new.run(2).await.unwrap(), TwoPhaseOutcome::TakenOver { by: Some("App1".to_owned()) });
        world.clock.advance(HOUR);
        assert_eq!(new.recover(10).await.unwrap().done, 1);
        assert_eq!(books(&world).await, [[800, 0, 0], [1200, 0, 0]]);
    }
}

#[tokio::test]
async fn settings_are_not_changed_under_what_they_are_the_meaning_of() {
    let world = World::in_memory();
    accounts(&world).await;
    let change = async |options: TwoPhaseOptions| {
        TwoPhase::change_settings(Arc::clone(&world.store), world.namespace("transactions"), &options).await
    };
    let old = open_with(&world, with_pending(&world, "App1")).await.unwrap();
    let plain = TwoPhaseOptions::new("App1", world.namespace("accounts"));
    let mut renamed = plain.clone();
    renamed.fields.state = "status".to_owned();
    let moved = TwoPhaseOptions::new("App1", world.namespace("stock"));
    let mut other_balance = with_pending(&world, "App1");
    other_balance.accounts.balance = "saldo".to_owned();

    change(renamed.clone()).await.expect("nothing is there that it could change");
    change(with_pending(&world, "App1")).await.expect("as before");
    old.begin(1, Transfer::new("A", "B", 100)).await.unwrap();
    for other in [renamed, moved, other_balance] {
        let refused = change(other).await.expect_err("it would be read wrongly").to_string();
        assert!(refused.contains("cannot be changed any more"), "{refused}");
    }
    let dying = world.fault_at(first(Operation::Update, "accounts"), Fault::CrashAfter);
    let _ = old.within(dying).run(1).await.expect_err("killed");
    let refused = change(plain.clone()).await.expect_err("under way").to_string();
    assert!(refused.contains("1 transactions") && refused.contains("bring them to their end first"), "{refused}");
    world.clock.advance(HOUR);
    assert_eq!(old.recover(10).await.unwrap().done, 1);
    change(plain.clone()).await.expect("nothing is under way");
    open_with(&world, plain).await.expect("the settings in force");
    assert!(open_with(&world, with_pending(&world, "App1")).await.is_err());
}

/// Two fields have one name: a list of ids would overwrite a balance, or one field would be debited and credited.
#[tokio::test]
async fn fields_that_meet_are_refused() {
    type Change = fn(&mut TwoPhaseOptions);
    let pending = |options: &mut TwoPhaseOptions, credits: &str, debits: &str| {
        options.accounts.pending = Some(PendingFields { credits: credits.to_owned(), debits: debits.to_owned() });
    };
    let world = World::in_memory();
    let changes: [(Change, &str); 6] = [
        (|options| options.fields.pending = "finishedTransactions".to_owned(), "of a participant cannot both be named"),
        (|options| options.fields.state = "lastModified".to_owned(), "of a transaction cannot both be named"),
        (|options| options.accounts.balance = "_id".to_owned(), "the field of the balance cannot be named \"_id\""),
        (|options| options.accounts.balance = "pendingTransactions.0".to_owned(), "cannot both be at"),
        (|_| (), "the balance and of the pending credits of an account cannot both be at \"balance\""),
        (|options| options.accounts.balance = "money.balance".to_owned(), "cannot both be at \"money\""),
    ];
    for (number, (change, said)) in changes.into_iter().enumerate() {
        let mut options = TwoPhaseOptions::new("App", world.namespace("accounts"));
        change(&mut options);
        match number {
            4 => pending(&mut options, "balance", "debits"),
            5 => pending(&mut options, "credits", "money"),
            _ => {}
        }
        let error = open_with(&world, options).await.map(|_| ()).unwrap_err();
        assert!(error.to_string().contains(said), "{error}");
    }
    accounts(&world).await;
    let mut misspelt = TwoPhaseOptions::new("App", world.namespace("accounts"));
    misspelt.accounts.balance = "saldo".to_owned();
    let error = open_with(&world, misspelt).await.map(|_| ()).unwrap_err();
    assert!(error.to_string().contains("have the field balance, and none has \"saldo\""), "{error}");
    let target = world.namespace("transactions");
    assert!(TwoPhaseOptions::recorded(Arc::clone(&world.store), &target, "App").await.unwrap().is_none());
}

/// The marks in a participant are ids alone, so two collections of transactions cannot share participants.
#[tokio::test]
async fn participants_belong_to_one_collection_of_transactions() {
    let world = World::in_memory();
    accounts(&world).await;
    open(&world, "App1").await.unwrap();
    let open_others = async |options: TwoPhaseOptions| {
        TwoPhase::open_with(Arc::clone(&world.store), world.namespace("refunds"), world.sources.clone(), options).await
    };
    let plain = |accounts: &str| TwoPhaseOptions::new("App1", world.namespace(accounts));
    for options in [
        plain("accounts"),
        plain("stock"),
        TwoPhaseOptions { participants: vec![world.namespace("orders")], ..plain("purses") },
        TwoPhaseOptions { participants: vec![world.namespace("orders")], ..plain("a free one") },
    ] {
        let error = open_others(options).await.err().expect("refused");
        assert!(
            error.to_string().contains("has participants of the two-phase transactions in transactions"),
            "{error}"
        );
    }
    let recorded =
        TwoPhaseOptions::recorded(Arc::clone(&world.store), &world.namespace("refunds"), "App1").await.unwrap();
    assert!(recorded.is_none(), "a collection that is refused has no settings");
    let payments = world.namespace("payments");
    let opened =
        TwoPhase::open_with(Arc::clone(&world.store), payments, world.sources.clone(), plain("a free one")).await;
    assert!(opened.is_ok(), "and keeps no collection");
    // A collection becomes free when the settings do not name it any more.
    let fewer = TwoPhaseOptions { participants: vec![world.namespace("stock")], ..options(&world, "App1") };
    let change = async |options: &TwoPhaseOptions| {
        TwoPhase::change_settings(Arc::clone(&world.store), world.namespace("transactions"), options).await
    };
    change(&fewer).await.unwrap();
    open_others(plain("orders")).await.unwrap();
    let error = change(&options(&world, "App1")).await.unwrap_err();
    assert!(error.to_string().contains("has participants of the two-phase transactions in refunds"), "{error}");
    open_with(&world, fewer).await.unwrap();
}
