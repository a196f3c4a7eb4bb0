//! Two-phase commit: the seed's walk-through document by document, every crash point, and many applications at once.

mod damaged;
mod killed;
mod recorded;
mod verified;

use std::sync::Arc;
use std::time::Duration;

use bson::{Bson, Document, doc, rawdoc};
use handfast_patterns::two_phase::{
    Cancel, Participant, PendingFields, Plan, State, Transfer, TwoPhase, TwoPhaseOptions, TwoPhaseOutcome,
};
use handfast_patterns::{CancellationToken, Error, Result, Round, RunnerOptions};
use handfast_store::decorator::{Fault, Faulty, Operation, Plan as Faults};
use handfast_store::{Find, Random, SeededRandom, StoreExt};

use crate::crash::World;
use crate::fault::{first, second, wait_until_frozen};

const HOUR: Duration = Duration::from_secs(3600);

fn options(world: &World, application: &str) -> TwoPhaseOptions {
    let options = TwoPhaseOptions::new(application, world.namespace("accounts"));
    TwoPhaseOptions { participants: vec![world.namespace("stock"), world.namespace("orders")], ..options }
}

async fn open_with(world: &World, options: TwoPhaseOptions) -> Result<TwoPhase> {
    TwoPhase::open_with(Arc::clone(&world.store), world.namespace("transactions"), world.sources.clone(), options).await
}

async fn open(world: &World, application: &str) -> Result<TwoPhase> {
    open_with(world, options(world, application)).await
}

/// Inserts the accounts of the seed.
async fn accounts(world: &World) {
    for id in ["A", "B"] {
        let account = rawdoc! { "_id": id, "balance": 1000, "pendingTransactions": [] };
        world.store.insert_one(&world.namespace("accounts"), account).await.unwrap();
    }
}

async fn all(world: &World, collection: &str) -> Vec<Document> {
    let find = Find { sort: rawdoc! { "_id": 1 }, ..Find::new(world.namespace(collection), rawdoc! {}) };
    let found = world.store.find_all(find).await.unwrap();
    found.iter().map(|document| Document::try_from(&**document).unwrap()).collect()
}

fn number(document: &Document, field: &str) -> i64 {
    match document.get(field) {
        Some(Bson::Int64(n)) => *n,
        Some(Bson::Int32(n)) => i64::from(*n),
        _ => 0,
    }
}

async fn balances(world: &World) -> Vec<i64> {
    all(world, "accounts").await.iter().map(|account| number(account, "balance")).collect()
}

/// Returns the documents in a line: `initial A 1000 [] B 1000 []`.
async fn shown(world: &World) -> String {
    let mut parts: Vec<String> = Vec::new();
    for transaction in all(world, "transactions").await {
        let application = transaction.get_str("application").map(|name| format!(" {name}")).unwrap_or_default();
        parts.push(format!("{}{application}", transaction.get_str("state").unwrap()));
    }
    for account in all(world, "accounts").await {
        let (id, balance) = (account.get_str("_id").unwrap(), number(&account, "balance"));
        parts
            .push(format!("{id} {balance} {}", Bson::Array(account.get_array("pendingTransactions").unwrap().clone())));
    }
    parts.join(" | ")
}

/// Returns the documents after each operation that changed them: the process is killed after the first one, then after
/// the second one, and so on.
async fn walk_through(run: impl AsyncFn(&World) -> Result<()>) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for number in 0.. {
        let world = World::in_memory();
        accounts(&world).await;
        let dying = Arc::new(Faulty::new(Arc::clone(&world.store), Faults::at(number, Fault::CrashAfter)));
        let result = run(&world.on(dying)).await;
        let line = shown(&world).await;
        if lines.last() != Some(&line) {
            lines.push(line);
        }
        if result.is_ok() {
            return lines;
        }
    }
    unreachable!()
}

#[tokio::test]
async fn the_seeds_transfer_document_by_document() {
    let lines = walk_through(async |world| {
        let transfers = open(world, "App1").await?;
        transfers.begin(1, Transfer::new("A", "B", 100)).await?;
        assert_eq!(transfers.run(1).await?, TwoPhaseOutcome::Done);
        Ok(())
    })
    .await;
    let expected = [
        "A 1000 [] | B 1000 []",
        "initial | A 1000 [] | B 1000 []",
        "pending App1 | A 1000 [] | B 1000 []",
        "pending App1 | A 900 [1] | B 1000 []",
        "pending App1 | A 900 [1] | B 1100 [1]",
        "applied App1 | A 900 [1] | B 1100 [1]",
        "applied App1 | A 900 [] | B 1100 [1]",
        "applied App1 | A 900 [] | B 1100 []",
        "done App1 | A 900 [] | B 1100 []",
    ];
    assert_eq!(lines, expected);
}

#[tokio::test]
async fn the_end_of_a_transaction_removes_no_mark_of_another() {
    let world = World::in_memory();
    accounts(&world).await;
    // Its id has all fields of the id of the one that ends, and one more.
    let other = rawdoc! { "order": 7, "line": 2 };
    let mark = rawdoc! { "$set": { "pendingTransactions": [other.clone()] } };
    world.store.update_one(&world.namespace("accounts"), rawdoc! { "_id": "A" }, mark).await.unwrap();
    let transfers = open(&world, "App1").await.unwrap();
    transfers.begin(doc! { "order": 7 }, Transfer::new("A", "B", 100)).await.unwrap();
    assert_eq!(transfers.run(doc! { "order": 7 }).await.unwrap(), TwoPhaseOutcome::Done);
    let account = all(&world, "accounts").await.remove(0);
    let left = account.get_array("pendingTransactions").unwrap();
    assert_eq!(*left, [Bson::Document(doc! { "order": 7, "line": 2 })]);
}

#[tokio::test]
async fn the_seeds_rollback_document_by_document() {
    let lines = walk_through(async |world| {
        let transfers = open(world, "App1").await?;
        transfers.begin(1, Transfer::new("A", "C", 100)).await?;
        let reason = format!("{} \"C\" does not exist", world.namespace("accounts"));
        assert_eq!(transfers.run(1).await?, TwoPhaseOutcome::Canceled { reason });
        Ok(())
    })
    .await;
    let expected = [
        "A 1000 [] | B 1000 []",
        "initial | A 1000 [] | B 1000 []",
        "pending App1 | A 1000 [] | B 1000 []",
        "pending App1 | A 900 [1] | B 1000 []",
        "canceling App1 | A 900 [1] | B 1000 []",
        "canceling App1 | A 1000 [] | B 1000 []",
        "canceled App1 | A 1000 [] | B 1000 []",
    ];
    assert_eq!(lines, expected);
}

/// Compares the transaction's document with that of the seed, field by field.
#[tokio::test]
async fn the_documents_have_the_fields_of_the_seed() {
    let world = World::in_memory();
    accounts(&world).await;
    let transfers = open(&world, "App1").await.unwrap();
    transfers.begin(1, Transfer::new("A", "B", 100)).await.unwrap();
    let begun = world.sources.clock.now();
    let expected = doc! {
        "_id": 1, "source": "A", "destination": "B", "value": 100_i64, "state": "initial", "lastModified": begun,
    };
    assert_eq!(all(&world, "transactions").await, [expected]);
    world.clock.advance(HOUR);
    assert_eq!(transfers.run(1).await.unwrap(), TwoPhaseOutcome::Done);
    let expected = doc! {
        "_id": 1, "source": "A", "destination": "B", "value": 100_i64, "state": "done",
        "lastModified": world.sources.clock.now(), "application": "App1",
    };
    assert_eq!(all(&world, "transactions").await, [expected]);
    let paid = doc! { "_id": "A", "balance": 900_i64, "pendingTransactions": [], "finishedTransactions": [1] };
    assert_eq!(all(&world, "accounts").await[0], paid);
}

/// A transfer that the seed's shell has written is carried out.
#[tokio::test]
async fn a_transfer_that_the_shell_wrote_is_carried_out() {
    let world = World::in_memory();
    accounts(&world).await;
    let now = world.sources.clock.now();
    let written = rawdoc! { "_id": 1, "source": "A", "destination": "B", "value": 100.0, "state": "initial", "lastModified": now };
    world.store.insert_one(&world.namespace("transactions"), written).await.unwrap();
    let transfers = open(&world, "App1").await.unwrap();
    assert_eq!(transfers.run_next().await.unwrap(), Some((Bson::Int32(1), TwoPhaseOutcome::Done)));
    assert_eq!(balances(&world).await, [900, 1100]);
}

/// From each state that a process can die in, the recovery of another process continues, and not before the threshold.
#[tokio::test]
async fn a_recovery_continues_from_each_state_of_the_seed() {
    let cases = [
        (first(Operation::Update, "accounts"), State::Pending),
        (first(Operation::Update, "transactions"), State::Applied),
    ];
    for (last, left) in cases {
        let world = World::in_memory();
        accounts(&world).await;
        let healthy = open(&world, "App1").await.unwrap();
        healthy.begin(1, Transfer::new("A", "B", 100)).await.unwrap();
        let dying = open(&world.on(world.fault_at(last, Fault::CrashAfter)), "App1").await.unwrap();
        let _ = dying.run(1).await.expect_err("killed");
        assert_eq!(healthy.show(1).await.unwrap().unwrap().state, left);
        let other = open(&world, "App2").await.unwrap();
        world.clock.advance(Duration::from_secs(29 * 60));
        assert_eq!(other.recover(10).await.unwrap(), Round::default(), "it may be under way");
        world.clock.advance(Duration::from_secs(2 * 60));
        assert_eq!(other.recover(10).await.unwrap().done, 1);
        assert_eq!(shown(&world).await, "done App2 | A 900 [] | B 1100 []");
        assert_eq!(healthy.run(1).await.unwrap(), TwoPhaseOutcome::Done, "the first one hears of it");
    }
}

/// Two applications claim one transaction: the one that loses the race takes the next one, or finds none.
#[tokio::test]
async fn a_transaction_is_claimed_once() {
    let world = World::in_memory();
    accounts(&world).await;
    let (one, other) = (open(&world, "App1").await.unwrap(), open(&world, "App2").await.unwrap());
    one.begin(1, Transfer::new("A", "B", 100)).await.unwrap();
    // App1 has claimed it and stopped.
    let dying = world.fault_at(first(Operation::FindAndModify, "transactions"), Fault::CrashAfter);
    let dying = open(&world.on(dying), "App1").await.unwrap();
    dying.run(1).await.expect_err("stopped");
    assert_eq!(other.run(1).await.unwrap(), TwoPhaseOutcome::TakenOver { by: Some("App1".to_owned()) });
    assert_eq!(other.run_next().await.unwrap(), None);
    // App2 takes it over after a while; App1 comes back and finds it finished.
    world.clock.advance(HOUR);
    assert_eq!(other.recover(1).await.unwrap().done, 1);
    assert_eq!(one.run(1).await.unwrap(), TwoPhaseOutcome::Done);
    assert_eq!(balances(&world).await, [900, 1100]);
}

#[tokio::test]
async fn a_transaction_can_be_canceled_until_it_is_applied_and_compensated_afterwards() {
    let world = World::in_memory();
    accounts(&world).await;
    let transfers = open(&world, "App1").await.unwrap();
    transfers.begin(1, Transfer::new("A", "B", 100)).await.unwrap();
    assert_eq!(transfers.cancel(1, "no").await.unwrap(), Cancel::Canceled);
    assert_eq!(transfers.run(1).await.unwrap(), TwoPhaseOutcome::Canceled { reason: "no".to_owned() });
    assert!(transfers.compensate(1, "back").await.is_err(), "there is nothing to take back");
    transfers.begin(2, Transfer::new("A", "B", 100)).await.unwrap();
    assert_eq!(transfers.run(2).await.unwrap(), TwoPhaseOutcome::Done);
    assert_eq!(transfers.cancel(2, "no").await.unwrap(), Cancel::TooLate);
    assert_eq!(transfers.compensate(2, "back").await.unwrap(), Plan::Transfer(Transfer::new("B", "A", 100)));
    assert_eq!(transfers.run("back").await.unwrap(), TwoPhaseOutcome::Done);
    assert_eq!(balances(&world).await, [1000, 1000]);
    // Neither the transaction that takes another one back nor one that happens to be the reverse takes this one back.
    for id in [4, 5] {
        transfers.begin(id, Transfer::new("A", "B", 100)).await.unwrap();
        assert_eq!(transfers.run(id).await.unwrap(), TwoPhaseOutcome::Done);
    }
    let _ = transfers.compensate(4, "4 back").await.unwrap();
    transfers.begin("rent", Transfer::new("B", "A", 100)).await.unwrap();
    for there in ["back", "4 back", "rent"] {
        let refused = transfers.compensate(5, there).await.expect_err("it is another's").to_string();
        assert!(refused.contains("another transaction has the id"), "{refused}");
    }
    assert_eq!(transfers.compensate(5, "5 back").await.unwrap(), Plan::Transfer(Transfer::new("B", "A", 100)));
    for id in ["4 back", "rent", "5 back"] {
        assert_eq!(transfers.run(id).await.unwrap(), TwoPhaseOutcome::Done);
    }
    assert_eq!(balances(&world).await, [1100, 900]);
    assert_eq!(transfers.cancel(3, "no").await.unwrap(), Cancel::Missing);
    assert_eq!(transfers.run(3).await.unwrap(), TwoPhaseOutcome::Missing);
}

#[tokio::test]
async fn pending_credits_cannot_be_spent() {
    let world = World::in_memory();
    accounts(&world).await;
    let mut options = options(&world, "App1");
    options.accounts.pending = Some(PendingFields::default());
    let healthy = open_with(&world, options.clone()).await.unwrap();
    healthy.begin(1, Transfer::new("A", "B", 100)).await.unwrap();
    // The process is killed when both updates are applied.
    let dying = world.fault_at(second(Operation::Update, "accounts"), Fault::CrashAfter);
    open_with(&world.on(dying), options).await.unwrap().run(1).await.expect_err("killed");
    let seen = all(&world, "accounts").await;
    assert_eq!((number(&seen[0], "balance"), number(&seen[0], "pendingDebits")), (900, 100));
    assert_eq!((number(&seen[1], "balance"), number(&seen[1], "pendingCredits")), (1000, 100));
    healthy.begin(2, Transfer::new("B", "A", 1001)).await.unwrap();
    assert!(matches!(healthy.run(2).await.unwrap(), TwoPhaseOutcome::Canceled { .. }));
    world.clock.advance(HOUR);
    assert_eq!(healthy.recover(10).await.unwrap().done, 1);
    let seen = all(&world, "accounts").await;
    assert_eq!((number(&seen[0], "balance"), number(&seen[0], "pendingDebits")), (900, 0));
    assert_eq!((number(&seen[1], "balance"), number(&seen[1], "pendingCredits")), (1100, 0));
}

#[tokio::test]
async fn invalid_plans_are_refused_before_they_are_written() {
    let world = World::in_memory();
    let two_phase = open(&world, "App1").await.unwrap();
    let stock = |id: Bson| Participant::increment(world.namespace("stock"), id, "n", 1);
    let with = |apply: Document, inverse: Document| Participant::new(world.namespace("stock"), 1, apply, inverse);
    let (up, down) = (doc! { "$inc": { "n": 1 } }, doc! { "$inc": { "n": -1 } });
    let plans: [Plan; 14] = [
        vec![with(doc! { "$increment": { "n": 1 } }, down.clone())].into(),
        vec![with(up.clone(), doc! { "$set": { "n": 0, "n.m": 0 } })].into(),
        vec![with(up.clone(), doc! { "$set": { "_id": 2 } })].into(),
        vec![with(up.clone(), down.clone()).finished_by(doc! { "$push": { "n": { "$each": 1 } } })].into(),
        vec![with(up.clone(), down.clone()).guarded(doc! { "n": { "$above": 1 } })].into(),
        vec![with(up, down).guarded(doc! { "$text": { "$search": "lamp" } })].into(),
        Transfer::new("A", "A", 1).into(),
        Transfer::new("A", "B", 0).into(),
        Transfer::new("A", "B", -1).into(),
        vec![].into(),
        vec![stock(1.into()), stock(1.0.into())].into(),
        vec![Participant::increment(world.namespace("elsewhere"), 1, "n", 1)].into(),
        vec![Participant::new(world.namespace("stock"), 1, doc! { "n": 1 }, doc! { "$set": { "n": 0 } })].into(),
        vec![Participant::increment(world.namespace("stock"), 1, "pendingTransactions", 1)].into(),
    ];
    for plan in plans {
        assert!(matches!(two_phase.begin(1, plan.clone()).await, Err(Error::Invalid { .. })), "{plan:?}");
    }
    assert!(all(&world, "transactions").await.is_empty());
    two_phase.begin(1, Transfer::new("A", "B", 1)).await.unwrap();
    two_phase.begin(1, Transfer::new("A", "B", 1)).await.expect("the same again");
    assert!(two_phase.begin(1, Transfer::new("A", "B", 2)).await.is_err(), "another one of that id");
}

/// A damaged transaction does not delay others, and changes nothing.
#[tokio::test]
async fn a_transaction_that_cannot_be_read_is_canceled_when_it_is_claimed() {
    let world = World::in_memory();
    accounts(&world).await;
    let written = rawdoc! { "_id": 1, "source": "A", "state": "initial", "lastModified": world.sources.clock.now() };
    world.store.insert_one(&world.namespace("transactions"), written).await.unwrap();
    let transfers = open(&world, "App1").await.unwrap();
    let Some((_, TwoPhaseOutcome::Canceled { reason })) = transfers.run_next().await.unwrap() else {
        panic!("not canceled")
    };
    assert!(reason.contains("it has no value"), "{reason}");
    assert_eq!(balances(&world).await, [1000, 1000]);
}

#[tokio::test]
async fn finished_transactions_are_purged_by_age() {
    let world = World::in_memory();
    accounts(&world).await;
    let transfers = open(&world, "App1").await.unwrap();
    for id in 0..3 {
        transfers.begin(id, Transfer::new("A", "B", 1)).await.unwrap();
    }
    assert_eq!(transfers.run(0).await.unwrap(), TwoPhaseOutcome::Done);
    world.clock.advance(HOUR);
    assert_eq!(transfers.run(1).await.unwrap(), TwoPhaseOutcome::Done);
    assert_eq!(transfers.purge(HOUR / 2, 10).await.unwrap().done, 1);
    assert_eq!(transfers.list(State::Done, 10).await.unwrap().len(), 1);
    assert_eq!(transfers.list(State::Initial, 10).await.unwrap().len(), 1);
}

/// A purge removes a transaction only if it is still finished: another one that got the same id meanwhile stays.
#[tokio::test]
async fn a_transaction_that_came_back_is_not_purged() {
    let world = World::in_memory();
    accounts(&world).await;
    let transfers = open(&world, "App1").await.unwrap();
    transfers.begin(1, Transfer::new("A", "B", 1)).await.unwrap();
    assert_eq!(transfers.run(1).await.unwrap(), TwoPhaseOutcome::Done);
    world.clock.advance(HOUR);
    let slow = world.fault_at(first(Operation::Delete, "transactions"), Fault::FreezeBefore);
    let purging = open(&world.on(slow.clone()), "App2").await.unwrap();
    let purged = tokio::spawn(async move { purging.purge(HOUR / 2, 10).await });
    wait_until_frozen(&slow, &purged).await;
    assert!(world.store.delete_one(&world.namespace("transactions"), rawdoc! { "_id": 1 }).await.unwrap());
    transfers.begin(1, Transfer::new("B", "A", 5)).await.unwrap();
    slow.release();
    assert_eq!(purged.await.unwrap().unwrap().done, 0);
    assert_eq!(transfers.run(1).await.unwrap(), TwoPhaseOutcome::Done);
}

/// A process carries a transaction out while another one cancels it: an update that the first one is about to make is
/// not made any more, at the first participant and at the second one.
#[tokio::test]
async fn a_canceled_transaction_gets_no_update_from_the_process_that_carries_it_out() {
    for (place, update) in
        [first(Operation::Update, "accounts"), second(Operation::Update, "accounts")].into_iter().enumerate()
    {
        for fault in [Fault::FreezeBefore, Fault::FreezeAfter] {
            let world = World::in_memory();
            accounts(&world).await;
            let healthy = open(&world, "App1").await.unwrap();
            healthy.begin(1, Transfer::new("A", "B", 100)).await.unwrap();
            let slow = world.fault_at(update.clone(), fault);
            let running = open(&world.on(slow.clone()), "App2").await.unwrap();
            let running = tokio::spawn(async move { running.run(1).await });
            wait_until_frozen(&slow, &running).await;
            assert_eq!(healthy.cancel(1, "no").await.unwrap(), Cancel::Canceled);
            slow.release();
            let canceled = TwoPhaseOutcome::Canceled { reason: "no".to_owned() };
            assert_eq!(running.await.unwrap().unwrap(), canceled, "{place} {fault:?}");
            assert_eq!(shown(&world).await, "canceled App1 | A 1000 [] | B 1000 []", "{place} {fault:?}");
            for account in all(&world, "accounts").await {
                assert_eq!(account.get_array("finishedTransactions").unwrap(), &[Bson::Int32(1)], "{place} {fault:?}");
            }
        }
    }
}

/// The list of finished ids is none, so that the participant cannot be kept from the update. The rollback ends all the
/// same.
#[tokio::test]
async fn a_participant_with_a_damaged_list_does_not_stop_a_rollback() {
    let world = World::in_memory();
    accounts(&world).await;
    let damage = rawdoc! { "$set": { "finishedTransactions": 7 } };
    world.store.update_one(&world.namespace("accounts"), rawdoc! { "_id": "B" }, damage).await.unwrap();
    let transfers = open(&world, "App1").await.unwrap();
    transfers.begin(1, Transfer::new("A", "B", 100)).await.unwrap();
    assert_eq!(transfers.cancel(1, "no").await.unwrap(), Cancel::Canceled);
    assert_eq!(shown(&world).await, "canceled App1 | A 1000 [] | B 1000 []");
}

#[tokio::test(start_paused = true)]
async fn workers_and_recovery_run_in_the_background() {
    let world = World::in_memory();
    accounts(&world).await;
    let transfers = open(&world, "App1").await.unwrap();
    for id in 0..7 {
        transfers.begin(id, Transfer::new("A", "B", 1)).await.unwrap();
    }
    let cancel = CancellationToken::new();
    let worker = transfers.spawn_worker(RunnerOptions { batch: 3, ..RunnerOptions::default() }, &cancel).unwrap();
    let recovery = transfers.spawn_recovery(RunnerOptions::default(), &cancel).unwrap();
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert_eq!((worker.counts().done, recovery.counts().rounds), (7, 1));
    assert_eq!(balances(&world).await, [993, 1007]);
    cancel.cancel();
    worker.stop().await;
    recovery.stop().await;
}

/// Eight applications run beside lost requests and answers, some cancellations, and recoveries without a threshold:
/// the total amount stays the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_applications_beside_recoveries_keep_the_total() {
    const TRANSFERS: i32 = 400;
    let world = World::in_memory();
    for id in 0..5 {
        world.store.insert_one(&world.namespace("accounts"), rawdoc! { "_id": id, "balance": 100 }).await.unwrap();
    }
    let begun = open(&world, "App").await.unwrap();
    let random = SeededRandom::new(3);
    for id in 0..TRANSFERS {
        let (source, step, value) = (random.next_u64() % 5, 1 + random.next_u64() % 4, 1 + random.next_u64() % 60);
        let destination = (source + step) % 5;
        let transfer = Transfer::new(source as i64, destination as i64, value as i64);
        begun.begin(id, transfer).await.unwrap();
    }
    let tasks: Vec<_> = (0..8_u64)
        .map(|number| {
            let world = world.process(number as u32 + 10);
            tokio::spawn(async move {
                let faults = Faults::seeded(number, 50, [Fault::LoseReply, Fault::LoseRequest]);
                let lossy = Arc::new(Faulty::new(Arc::clone(&world.store), faults.writes_only()));
                let hasty =
                    TwoPhaseOptions { abandoned_after: Duration::ZERO, ..options(&world, &format!("App{number}")) };
                let app = loop {
                    if let Ok(app) = open_with(&world.on(lossy.clone()), hasty.clone()).await {
                        break app;
                    }
                };
                loop {
                    world.clock.advance(Duration::from_millis(1));
                    if let Ok(None) = app.run_next().await {
                        break;
                    }
                    let victim = i32::try_from(world.sources.random.next_u64() % 400).unwrap();
                    if number == 0 {
                        let _ = app.cancel(victim, "a whim").await;
                    }
                    let _ = app.recover(3).await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    world.clock.advance(HOUR);
    while begun.recover(100).await.unwrap().more {}
    begun.repair(100).await.unwrap();
    assert_eq!(begun.verify(2, |_| ()).await.unwrap().findings[..], []);

    let accounts = all(&world, "accounts").await;
    assert!(
        accounts.iter().all(|account| account.get_array("pendingTransactions").is_ok_and(Vec::is_empty)),
        "{accounts:?}"
    );
    // A balance may be below 0: without fields for amounts under way, a rollback takes back what was spent meanwhile.
    let (mut done, mut canceled) = (0, 0);
    let mut expected = [100_i64; 5];
    for transaction in all(&world, "transactions").await {
        match transaction.get_str("state").unwrap() {
            "done" => {
                done += 1;
                expected[number(&transaction, "source") as usize] -= number(&transaction, "value");
                expected[number(&transaction, "destination") as usize] += number(&transaction, "value");
            }
            "canceled" => canceled += 1,
            other => panic!("{other}"),
        }
    }
    assert_eq!(balances(&world).await, expected, "each account follows from the transactions that are done");
    assert!(done > 50 && canceled > 20, "{done} done, {canceled} canceled");
}

/// Counts the operations for a transfer.
#[tokio::test]
async fn operations_per_transfer() {
    let world = World::in_memory();
    accounts(&world).await;
    let counting = Arc::new(Faulty::new(Arc::clone(&world.store), Faults::none()));
    let transfers = open(&world.on(counting.clone()), "App1").await.unwrap();
    let before = counting.operations();
    transfers.begin(1, Transfer::new("A", "B", 100)).await.unwrap();
    assert_eq!(transfers.run(1).await.unwrap(), TwoPhaseOutcome::Done);
    assert_eq!(counting.operations() - before, 8, "begin, claim, 2 x apply, applied, 2 x release, done");
}

/// In a transaction of the store, a transfer is begun if and only if that transaction commits.
#[tokio::test]
async fn a_transfer_begun_in_a_transaction_exists_if_and_only_if_it_commits() {
    let world = World::in_memory();
    let memory = handfast_store::MemoryStore::new(world.sources.clone());
    let database = handfast_txn::Database::local(memory, world.sources.clone());
    let world = world.on(Arc::new(database.clone()));
    accounts(&world).await;
    let transfers = open(&world, "App1").await.unwrap();
    for commit in [false, true] {
        let tx = database.begin().await.unwrap();
        transfers.within(Arc::new(tx.clone())).begin(1, Transfer::new("A", "B", 100)).await.unwrap();
        assert_eq!(transfers.run(1).await.unwrap(), TwoPhaseOutcome::Missing, "nobody sees it yet");
        if commit {
            tx.commit().await.unwrap();
        } else {
            tx.abort();
        }
        let expected = if commit { TwoPhaseOutcome::Done } else { TwoPhaseOutcome::Missing };
        assert_eq!(transfers.run(1).await.unwrap(), expected);
    }
    assert_eq!(balances(&world).await, [900, 1100]);
}

/// Two recoveries see the same transaction; the slower one finds that it was taken over, and leaves it.
#[tokio::test]
async fn a_transaction_is_taken_over_once() {
    let world = World::in_memory();
    accounts(&world).await;
    let healthy = open(&world, "App1").await.unwrap();
    healthy.begin(1, Transfer::new("A", "B", 100)).await.unwrap();
    let dying = world.fault_at(first(Operation::FindAndModify, "transactions"), Fault::CrashAfter);
    open(&world.on(dying), "App1").await.unwrap().run(1).await.expect_err("killed");
    world.clock.advance(HOUR);
    // The recovery has found the transaction and is about to take it over.
    let slow = world.fault_at(first(Operation::Update, "transactions"), Fault::FreezeBefore);
    let app2 = open(&world.on(slow.clone()), "App2").await.unwrap();
    let recovery = tokio::spawn(async move { app2.recover(10).await });
    wait_until_frozen(&slow, &recovery).await;
    assert_eq!(open(&world, "App3").await.unwrap().recover(10).await.unwrap().done, 1);
    slow.release();
    assert_eq!(recovery.await.unwrap().unwrap(), Round::default());
    assert_eq!(shown(&world).await, "done App3 | A 900 [] | B 1100 []");
}
