//! Faults at every operation, and copies of requests that arrive late.

use bson::{doc, rawdoc};
use handfast_patterns::Result;
use handfast_patterns::two_phase::{
    Cancel, Participant, ParticipantDocument, Plan, Transfer, TwoPhase, TwoPhaseOptions, TwoPhaseOutcome,
};
use handfast_store::StoreExt;
use handfast_store::decorator::{Fault, Operation};

use super::{HOUR, accounts, all, balances, number, open, open_with, options};
use crate::black_pipe::{assert_right, every_pair};
use crate::crash::{Stage, World, every_point};
use crate::fault::first;

/// Returns a plan over three collections, with a guard, an update at the end and paths with dots.
fn order(world: &World) -> Plan {
    let stock = Participant::increment(world.namespace("stock"), "lamp", "left.here", -1)
        .guarded(doc! { "left.here": { "$gte": 1 } });
    let payer = Participant::increment(world.namespace("accounts"), "A", "balance", -30);
    let order = Participant::new(
        world.namespace("orders"),
        7,
        doc! { "$set": { "status": "reserved" } },
        doc! { "$set": { "status": "open" } },
    )
    .finished_by(doc! { "$set": { "status": "paid" } });
    Plan::General(vec![stock, payer, order])
}

async fn shop(world: &World) {
    accounts(world).await;
    world.store.insert_one(&world.namespace("stock"), rawdoc! { "_id": "lamp", "left": { "here": 1 } }).await.unwrap();
    world.store.insert_one(&world.namespace("orders"), rawdoc! { "_id": 7, "status": "open" }).await.unwrap();
}

/// Checks that nothing is under way, and that each document follows from the states of the transactions.
async fn check_shop(world: &World) -> Result<(), String> {
    let (mut paid, mut transferred) = (0, 0);
    for transaction in all(world, "transactions").await {
        let done = match transaction.get_str("state") {
            Ok("done") => 1,
            // The transaction was never claimed: its process died, and any worker will claim it.
            Ok("initial" | "canceled") => 0,
            other => return Err(format!("a transaction is {other:?}")),
        };
        if transaction.contains_key("participants") { paid += done } else { transferred += done }
    }
    for collection in ["accounts", "stock", "orders"] {
        for document in all(world, collection).await {
            if document.get_array("pendingTransactions").is_ok_and(|pending| !pending.is_empty()) {
                return Err(format!("left under way: {document}"));
            }
        }
    }
    let left = all(world, "stock").await[0].get_document("left").map(|left| number(left, "here")).unwrap();
    let status = all(world, "orders").await[0].get_str("status").unwrap().to_owned();
    let balances = balances(world).await;
    let expected = vec![1000 - 30 * paid - 100 * transferred, 1000 + 100 * transferred];
    let right = balances == expected && left == 1 - paid && status == if paid == 1 { "paid" } else { "open" };
    if right {
        Ok(())
    } else {
        Err(format!("{paid} paid, {transferred} transferred: {balances:?}, {left} left, {status}"))
    }
}

async fn recovered(world: &World, application: &str) -> Result<()> {
    let two_phase = open(world, application).await?;
    let (recovered, repaired) = (two_phase.recover(10).await?, two_phase.repair(10).await?);
    assert_eq!((recovered.failed, repaired.failed), (0, 0));
    Ok(())
}

async fn killed_at_every_operation(stage: Stage) {
    let run = async |world: &World| {
        let two_phase = open(world, "App1").await?;
        two_phase.begin("order", order(world)).await?;
        world.acknowledge("order is begun", "transactions", doc! { "_id": "order" });
        two_phase.begin("transfer", Transfer::new("A", "B", 100)).await?;
        world.acknowledge("transfer is begun", "transactions", doc! { "_id": "transfer" });
        let first = two_phase.run("order").await?;
        if first == TwoPhaseOutcome::Done {
            world.acknowledge(&first, "transactions", doc! { "_id": "order", "state": "done" });
        }
        let second = two_phase.run_next().await?;
        if let Some((id, TwoPhaseOutcome::Done)) = &second {
            world.acknowledge(&second, "transactions", doc! { "_id": id.clone(), "state": "done" });
        }
        Ok(())
    };
    let recover = async |world: &World, _: &Result<_>| recovered(world, "App2").await;
    let check = async |world: &World, _: &Result<()>| check_shop(world).await;
    let report = every_point(&stage, shop, run, recover, check).await;
    report.assert_clean("two-phase commit, two transactions that are carried out", &stage, 168);
}

#[tokio::test(flavor = "multi_thread")]
async fn carried_out_over_the_wire() {
    let run = async |world: &World| {
        let two_phase = open(world, "App1").await?;
        two_phase.begin("transfer", Transfer::new("A", "B", 100)).await?;
        world.acknowledge("transfer is begun", "transactions", doc! { "_id": "transfer" });
        let outcome = two_phase.run("transfer").await?;
        if outcome == TwoPhaseOutcome::Done {
            world.acknowledge(&outcome, "transactions", doc! { "_id": "transfer", "state": "done" });
        }
        Ok(())
    };
    let recover = async |world: &World, _: &Result<()>| recovered(world, "App2").await;
    let check = async |world: &World, _: &Result<()>| check_shop(world).await;
    assert_right("two-phase commit", &every_pair(shop, run, recover, check).await, 40);
}

#[tokio::test]
async fn carried_out_and_killed_at_every_operation() {
    killed_at_every_operation(Stage::Memory).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn carried_out_and_killed_at_every_operation_embedded() {
    let directory = tempfile::tempdir().unwrap();
    killed_at_every_operation(Stage::embedded(directory.path()).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn carried_out_and_killed_at_every_operation_on_a_server() {
    killed_at_every_operation(Stage::server().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ext_carried_out_and_killed_at_every_operation_on_ferretdb() {
    if let Some(stage) = Stage::ferretdb().await {
        killed_at_every_operation(stage).await;
    }
}

/// Begins one transaction that its guard refuses at the last participant, and one that its caller cancels.
async fn rolled_back_and_killed(stage: Stage) {
    let run = async |world: &World| {
        let two_phase = open(world, "App1").await?;
        let Plan::General(mut participants) = order(world) else { unreachable!() };
        participants[2] = participants[2].clone().guarded(doc! { "status": "unknown" });
        two_phase.begin("order", participants).await?;
        let refused = two_phase.run("order").await?;
        assert!(!matches!(refused, TwoPhaseOutcome::Done));
        world.acknowledge(refused, "transactions", doc! { "_id": "order", "state": "canceled" });
        two_phase.begin("transfer", Transfer::new("A", "B", 100)).await?;
        world.acknowledge("transfer is begun", "transactions", doc! { "_id": "transfer" });
        let canceled = two_phase.cancel("transfer", "changed my mind").await?;
        assert!(!matches!(canceled, Cancel::TooLate));
        world.acknowledge(canceled, "transactions", doc! { "_id": "transfer", "state": "canceled" });
        Ok(())
    };
    let recover = async |world: &World, _: &Result<()>| recovered(world, "App2").await;
    let check = async |world: &World, _: &Result<()>| {
        if balances(world).await != [1000, 1000] {
            return Err("money moved".to_owned());
        }
        check_shop(world).await
    };
    let report = every_point(&stage, shop, run, recover, check).await;
    report.assert_clean("two-phase commit, two transactions that are rolled back", &stage, 182);
}

#[tokio::test]
async fn rolled_back_and_killed_at_every_operation() {
    rolled_back_and_killed(Stage::Memory).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rolled_back_and_killed_at_every_operation_embedded() {
    let directory = tempfile::tempdir().unwrap();
    rolled_back_and_killed(Stage::embedded(directory.path()).await).await;
}

/// The recovery fails at every operation, and another process recovers.
#[tokio::test]
async fn a_recovery_that_is_killed_at_every_operation() {
    let prepare = async |world: &World| {
        shop(world).await;
        let two_phase = open(world, "App1").await.unwrap();
        two_phase.begin("order", order(world)).await.unwrap();
        let dying = world.fault_at(first(Operation::Update, "stock"), Fault::CrashAfter);
        two_phase.within(dying).run("order").await.expect_err("killed");
        world.clock.advance(HOUR);
    };
    let run = async |world: &World| {
        let recovered_one = open(world, "App2").await?.recover(10).await?;
        world.acknowledge(recovered_one, "transactions", doc! { "_id": "order", "state": "done" });
        recovered(world, "App2").await
    };
    let recover = async |world: &World, _: &Result<()>| recovered(world, "App3").await;
    let check = async |world: &World, _: &Result<()>| match all(world, "transactions").await[0].get_str("state") {
        Ok("done") => check_shop(world).await,
        other => Err(format!("{other:?}")),
    };
    let report = every_point(&Stage::Memory, prepare, run, recover, check).await;
    report.assert_clean("two-phase commit, the recovery", &Stage::Memory, 203);
}

/// Makes two transfers from A to B. A copy of the first update of A arrives when both are done.
async fn copy_arrives_after_two_transfers(world: &World, transfers: &TwoPhase) {
    for id in [1, 2] {
        transfers.begin(id, Transfer::new("A", "B", 100)).await.unwrap();
    }
    let lossy = world.fault_at(first(Operation::Update, "accounts"), Fault::Duplicate);
    for id in [1, 2] {
        assert_eq!(transfers.within(lossy.clone()).run(id).await.unwrap(), TwoPhaseOutcome::Done);
    }
    let arrived = lossy.deliver_late().await;
    assert!(matches!(arrived[..], [Ok(())]), "{arrived:?}");
}

/// A copy of an update arrives when the participant has forgotten its transaction: the balance is wrong until the
/// repair.
#[tokio::test]
async fn a_copy_that_arrives_very_late_is_repaired() {
    let world = World::in_memory();
    accounts(&world).await;
    let short = TwoPhaseOptions { finished_max: 1, ..options(&world, "App1") };
    let transfers = open_with(&world, short).await.unwrap();
    copy_arrives_after_two_transfers(&world, &transfers).await;
    assert_eq!(balances(&world).await, [700, 1200], "the copy was applied: a store alone does not know better");
    assert!(matches!(
        transfers.read(&world.namespace("accounts"), "A").await.unwrap(),
        Some(ParticipantDocument::UnderWay { .. })
    ));
    assert_eq!(transfers.repair(1).await.unwrap().done, 1);
    assert_eq!(balances(&world).await, [800, 1200]);
    assert!(matches!(
        transfers.read(&world.namespace("accounts"), "A").await.unwrap(),
        Some(ParticipantDocument::Settled(_))
    ));
}

/// The same copy arrives a little earlier, when the participant still has the id.
#[tokio::test]
async fn a_copy_that_arrives_late_does_nothing() {
    let world = World::in_memory();
    accounts(&world).await;
    let transfers = open(&world, "App1").await.unwrap();
    copy_arrives_after_two_transfers(&world, &transfers).await;
    assert_eq!(balances(&world).await, [800, 1200]);
}
