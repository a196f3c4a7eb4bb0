//! The results of `verify` and `status`: a crash leaves no finding, and each kind of damage is one.

use std::sync::Arc;

use bson::{Bson, Document, doc, rawdoc};
use handfast_patterns::Result;
use handfast_patterns::two_phase::{Finding, PendingFields, Remedy, State, Transfer, TwoPhaseOptions, TwoPhaseOutcome};
use handfast_store::StoreExt;
use handfast_store::decorator::{Fault, Faulty, Operation, Plan as Faults};

use super::{HOUR, accounts, balances, open, open_with, options};
use crate::crash::World;
use crate::fault::second;

async fn verify(world: &World) -> Vec<Finding> {
    verify_by(world, options(world, "App2")).await
}

async fn verify_by(world: &World, options: TwoPhaseOptions) -> Vec<Finding> {
    let verified = open_with(world, options).await.unwrap().verify(1, |_| ()).await.unwrap();
    assert_eq!(verified.findings.len() as u64, verified.findings.count());
    verified.findings.to_vec()
}

async fn transfer(world: &World) -> Result<()> {
    transfer_by(world, options(world, "App1")).await
}

async fn transfer_by(world: &World, options: TwoPhaseOptions) -> Result<()> {
    let transfers = open_with(world, options).await?;
    transfers.begin(1, Transfer::new("A", "B", 100)).await?;
    transfers.run(1).await.map(|_| ())
}

async fn set_account(world: &World, id: &str, set: Document) {
    let update = bson::RawDocumentBuf::try_from(&doc! { "$set": set }).unwrap();
    world.store.update_one(&world.namespace("accounts"), rawdoc! { "_id": id }, update).await.unwrap();
}

fn with_pending(world: &World, application: &str) -> TwoPhaseOptions {
    let mut options = options(world, application);
    options.accounts.pending = Some(PendingFields::default());
    options
}

#[tokio::test]
async fn a_crash_leaves_nothing_to_be_found() {
    for options in [options, with_pending] {
        for number in 0.. {
            let world = World::in_memory();
            accounts(&world).await;
            let dying = Arc::new(Faulty::new(Arc::clone(&world.store), Faults::at(number, Fault::CrashAfter)));
            let result = transfer_by(&world.on(dying), options(&world, "App1")).await;
            assert_eq!(verify_by(&world, options(&world, "App2")).await, [], "after operation {number}");
            if result.is_ok() {
                assert!(number > 8, "{number} operations");
                break;
            }
        }
    }
}

/// The cases are marks of a finished transaction, and the balance after the repair of an account that has paid 100 of
/// 1000.
#[tokio::test]
async fn each_recommended_remedy_repairs_its_finding() {
    let forgotten: Vec<_> = (0..100).map(|id| 1000 + id).collect();
    let cases = [
        // The account was never released, for example because it was restored from a backup. The update is applied
        // once.
        (900, vec![], Remedy::Release, 900),
        (800, forgotten, Remedy::TakeBack, 900),
        // The mark was written by hand: the update may be applied or not, and nothing is done.
        (900, vec![1], Remedy::Unclear, 900),
    ];
    for (balance, finished, expected, repaired) in cases {
        let world = World::in_memory();
        accounts(&world).await;
        transfer(&world).await.unwrap();
        let set = doc! { "balance": balance, "pendingTransactions": [1], "finishedTransactions": finished };
        set_account(&world, "A", set).await;
        let found = verify(&world).await;
        assert!(matches!(&found[..], [Finding::Over { remedy, .. }] if *remedy == expected), "{found:?}");
        let round = open(&world, "App2").await.unwrap().repair(10).await.unwrap();
        let unclear = expected == Remedy::Unclear;
        assert_eq!((round.done, round.failed), (u64::from(!unclear), u64::from(unclear)), "{expected:?}");
        assert_eq!(balances(&world).await, [repaired, 1100], "{expected:?}");
        assert_eq!(verify(&world).await, if unclear { found } else { vec![] });
    }
}

/// The cases are the effects of a recovery that did not know the fields, and of changes by another program.
#[tokio::test]
async fn credits_and_debits_that_no_transaction_explains_are_found() {
    let world = World::in_memory();
    accounts(&world).await;
    let transfers = open_with(&world, with_pending(&world, "App1")).await.unwrap();
    transfers.begin(1, Transfer::new("A", "B", 100)).await.unwrap();
    assert_eq!(transfers.run(1).await.unwrap(), TwoPhaseOutcome::Done);
    assert_eq!(verify_by(&world, with_pending(&world, "App2")).await, []);
    for (account, field, value, text) in [
        (
            "A",
            "pendingDebits",
            Bson::Int64(100),
            "\"A\" has 100 in pendingDebits, and the transfers under way in it add up to 0",
        ),
        ("B", "pendingCredits", Bson::Int32(-7), "\"B\" has -7 in pendingCredits, and"),
        ("B", "pendingCredits", Bson::String("many".to_owned()), "\"B\" has \"many\" in pendingCredits, and"),
    ] {
        set_account(&world, account, doc! { field: value }).await;
        let found = verify_by(&world, with_pending(&world, "App2")).await;
        assert!(matches!(&found[..], [Finding::Pending { expected: 0, .. }]), "{found:?}");
        assert!(found[0].to_string().contains(text), "{}", found[0]);
        set_account(&world, account, doc! { field: 0 }).await;
    }
    // The transaction is under way, and the field lacks its amount.
    transfers.begin(2, Transfer::new("A", "B", 30)).await.unwrap();
    let dying = world.fault_at(second(Operation::Update, "accounts"), Fault::CrashAfter);
    let _ = transfers.within(dying).run(2).await.expect_err("killed");
    assert_eq!(verify_by(&world, with_pending(&world, "App2")).await, []);
    set_account(&world, "B", doc! { "pendingCredits": 0 }).await;
    let found = verify_by(&world, with_pending(&world, "App2")).await;
    assert!(matches!(&found[..], [Finding::Pending { expected: 30, .. }]), "{found:?}");
}

#[tokio::test]
async fn each_kind_of_damage_is_found() {
    let world = World::in_memory();
    accounts(&world).await;
    transfer(&world).await.unwrap();
    let target = world.namespace("accounts");
    let found =
        |participant: &str, transaction: i32| (target.clone(), Bson::from(participant), Bson::from(transaction));

    set_account(&world, "A", doc! { "pendingTransactions": [1, 7] }).await;
    let (namespace, participant, transaction) = found("A", 1);
    let over = Finding::Over { namespace, participant, transaction, state: State::Done, remedy: Remedy::Unclear };
    let (namespace, participant, transaction) = found("A", 7);
    let unknown = Finding::Unknown { namespace, participant, transaction };
    assert_eq!(verify(&world).await, [over, unknown]);

    let set = rawdoc! { "$set": { "state": "applied" } };
    world.store.update_one(&world.namespace("transactions"), rawdoc! { "_id": 1 }, set).await.unwrap();
    set_account(&world, "A", doc! { "pendingTransactions": [1] }).await;
    assert_eq!(verify(&world).await, [], "as it is after the first release");
    set_account(&world, "B", doc! { "finishedTransactions": [] }).await;
    let (namespace, participant, transaction) = found("B", 1);
    assert_eq!(verify(&world).await, [Finding::Lacking { namespace, participant, transaction }]);
    // A participant that keeps as many ids as it can may have forgotten this one.
    set_account(&world, "B", doc! { "finishedTransactions": (0..100).map(|id| 1000 + id).collect::<Vec<_>>() }).await;
    assert_eq!(verify(&world).await, []);
}

#[tokio::test]
async fn the_status_counts_states_and_what_was_left_alone() {
    let world = World::in_memory();
    accounts(&world).await;
    let transfers = open(&world, "App1").await.unwrap();
    for id in 1..=3 {
        transfers.begin(id, Transfer::new("A", "B", 100)).await.unwrap();
    }
    assert_eq!(transfers.run(1).await.unwrap(), TwoPhaseOutcome::Done);
    let set = rawdoc! { "$set": { "state": "pending", "application": "App2" } };
    world.store.update_one(&world.namespace("transactions"), rawdoc! { "_id": 2 }, set).await.unwrap();
    world.clock.advance(HOUR);
    let status = transfers.status().await.unwrap();
    let counts: Vec<_> = status.states.iter().map(|state| (state.state.name(), state.count)).collect();
    let expected = [("initial", 1), ("pending", 1), ("applied", 0), ("done", 1), ("canceling", 0), ("canceled", 0)];
    assert_eq!((counts, status.abandoned), (expected.to_vec(), 1));
    assert!(status.states[1].oldest >= Some(HOUR), "{status:?}");
}

/// A transaction that no recovery takes is a finding.
#[tokio::test]
async fn a_transaction_in_an_unknown_state_is_reported() {
    let world = World::in_memory();
    accounts(&world).await;
    transfer(&world).await.unwrap();
    assert_eq!(verify(&world).await, []);
    let namespace = world.namespace("transactions");
    for odd in [rawdoc! { "_id": 2, "state": "weird" }, rawdoc! { "_id": 3 }] {
        world.store.insert_one(&namespace, odd).await.unwrap();
    }
    let unknown = |transaction: i32, found: Option<&str>| Finding::UnknownState {
        namespace: namespace.clone(),
        transaction: transaction.into(),
        found: found.map(Bson::from),
    };
    let found = verify(&world).await;
    assert_eq!(found, [unknown(2, Some("weird")), unknown(3, None)]);
    assert!(
        found[0].to_string().contains("has the state \"weird\", which is not a state of a transaction"),
        "{}",
        found[0]
    );
}
