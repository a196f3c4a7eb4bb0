//! Exactly-once updates: every crash point, ten thousand increments with lost replies, and the errors without the
//! pattern.

use std::sync::Arc;
use std::time::Duration;

use bson::{Bson, Document, doc, rawdoc};
use handfast_patterns::exactly_once::{Memory, TwoStepOptions};
use handfast_patterns::{
    CancellationToken, Change, Error, ExactlyOnce, Result, RunnerOptions, Token, TwoStep, UpdateOutcome,
};
use handfast_store::decorator::{Fault, Faulty, Plan};
use handfast_store::{Applied, DocumentStore, Error as StoreError, ErrorClass, StoreExt};

use crate::black_pipe::{assert_right, every_pair};
use crate::crash::{Kind, Stage, World, every_point};

const HOUR: Duration = Duration::from_secs(3600);

fn count() -> Change {
    Change::increment("n", 1).or_insert()
}

/// Returns lists that are much shorter than a program's should be: no request of these tests is late by more than
/// a few updates.
fn memory() -> Memory {
    Memory { tokens_max: 50, ..Memory::default() }
}

async fn once(world: &World) -> Result<ExactlyOnce> {
    let store = Arc::clone(&world.store);
    ExactlyOnce::open_with(store, world.namespace("days"), world.sources.clone(), memory()).await
}

async fn two_step(world: &World) -> Result<TwoStep> {
    let (store, options) = (Arc::clone(&world.store), TwoStepOptions { memory: memory(), ..TwoStepOptions::default() });
    TwoStep::open_with(store, world.namespace("days"), world.sources.clone(), count(), options).await
}

/// Tokens that a program has stored durably.
fn tokens() -> [Token; 2] {
    let sources = handfast_store::Sources::seeded(99);
    [(); 2].map(|()| Token::fresh(&*sources.ids))
}

async fn day(world: &World) -> Document {
    let found = world.store.find_one(&world.namespace("days"), rawdoc! { "_id": "today" }).await.unwrap();
    found.map(|found| Document::try_from(&*found).unwrap()).unwrap_or_default()
}

fn number(day: &Document) -> i64 {
    match day.get("n") {
        Some(Bson::Int64(n)) => *n,
        Some(Bson::Int32(n)) => i64::from(*n),
        _ => 0,
    }
}

fn length(day: &Document, field: &str) -> usize {
    day.get_array(field).map_or(0, Vec::len)
}

fn has(day: &Document, field: &str, token: Token) -> bool {
    day.get_array(field).is_ok_and(|tokens| tokens.contains(&token.0.into()))
}

async fn ask_for_all(world: &World) -> Result<()> {
    let once = once(world).await?;
    for token in tokens() {
        assert!(once.apply(token, "today", &count()).await?.is_applied());
        world.acknowledge(token, "days", doc! { "_id": "today", "applied": token });
    }
    Ok(())
}

async fn in_one_round_trip(stage: Stage) {
    let recover = async |world: &World, _: &Result<()>| ask_for_all(world).await;
    let run = async |world: &World| ask_for_all(world).await;
    let report = every_point(&stage, async |_| {}, run, recover, is_counted_twice).await;
    report.assert_clean("exactly once, one round trip", &stage, 21);
}

async fn is_counted_twice(world: &World, _: &Result<()>) -> Result<(), String> {
    match number(&day(world).await) {
        2 => Ok(()),
        n => Err(format!("counted {n} instead of 2")),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_round_trip_over_the_wire() {
    let recover = async |world: &World, _: &Result<()>| ask_for_all(world).await;
    let run = async |world: &World| ask_for_all(world).await;
    assert_right("exactly once", &every_pair(async |_| {}, run, recover, is_counted_twice).await, 12);
}

#[tokio::test]
async fn one_round_trip_killed_at_every_operation() {
    in_one_round_trip(Stage::Memory).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_round_trip_killed_at_every_operation_embedded() {
    let directory = tempfile::tempdir().unwrap();
    in_one_round_trip(Stage::embedded(directory.path()).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_round_trip_killed_at_every_operation_on_a_server() {
    in_one_round_trip(Stage::server().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ext_one_round_trip_killed_at_every_operation_on_ferretdb() {
    if let Some(stage) = Stage::ferretdb().await {
        in_one_round_trip(stage).await;
    }
}

/// Checks updates in two steps that no caller repeats: the clean-up finishes those that were begun, and every
/// acknowledged update is counted.
async fn in_two_steps(stage: Stage) {
    let run = async |world: &World| {
        let two_step = two_step(world).await?;
        for token in tokens() {
            if two_step.apply(token, "today").await.is_ok_and(UpdateOutcome::is_applied) {
                world.acknowledge(token, "days", doc! { "_id": "today", "applied": token });
            }
        }
        Ok(())
    };
    let recover = async |world: &World, _: &Result<()>| {
        let round = two_step(world).await?.clean_up(HOUR, 10).await?;
        assert_eq!(round.failed, 0);
        Ok(())
    };
    let check = async |world: &World, _: &Result<()>| {
        let day = day(world).await;
        // A change that is made twice adds its token twice.
        let applied = tokens().iter().filter(|token| has(&day, "applied", **token)).count();
        let right = number(&day) == applied as i64 && length(&day, "pending") == 0;
        if right { Ok(()) } else { Err(format!("now {day}")) }
    };
    let report = every_point(&stage, async |_| {}, run, recover, check).await;
    report.assert_clean("exactly once, two steps", &stage, 35);
}

#[tokio::test]
async fn two_steps_killed_at_every_operation() {
    in_two_steps(Stage::Memory).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_steps_killed_at_every_operation_embedded() {
    let directory = tempfile::tempdir().unwrap();
    in_two_steps(Stage::embedded(directory.path()).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_steps_killed_at_every_operation_on_a_server() {
    in_two_steps(Stage::server().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ext_two_steps_killed_at_every_operation_on_ferretdb() {
    if let Some(stage) = Stage::ferretdb().await {
        in_two_steps(stage).await;
    }
}

/// Shows that the checks can fail: with a plain increment that is repeated when in doubt.
#[tokio::test]
async fn a_naive_retry_is_caught() {
    let increment = async |world: &World| {
        let change = rawdoc! { "$inc": { "n": 1 } };
        let target = world.namespace("days");
        let send = || world.store.upsert_one(&target, rawdoc! { "_id": "today" }, change.clone());
        match send().await {
            Err(error) if error.class() == ErrorClass::TransientNetwork => send().await,
            result => result,
        }
        .map_err(Error::from)
    };
    let recover = async |world: &World, answer: &Result<_>| match answer {
        Ok(_) => Ok(()),
        Err(_) => increment(world).await.map(|_| ()),
    };
    let check = async |world: &World, _: &Result<_>| match number(&day(world).await) {
        1 => Ok(()),
        n => Err(format!("counted {n} instead of 1")),
    };
    let report = every_point(&Stage::Memory, async |_| {}, increment, recover, check).await;
    let caught = [
        Kind::LoseReply,
        Kind::CrashAfter,
        Kind::DuplicateBeforeRecovery,
        Kind::DuplicateAfterRecovery,
        Kind::DelayedPastRecovery,
    ];
    assert_eq!(report.kinds(), caught, "{report}");
}

/// Shows that the checks can fail: with the two steps of seed 4, where the clean-up counts a late copy of step 1.
#[tokio::test]
async fn two_steps_without_the_memory_are_caught() {
    let token = tokens()[0].0;
    let settle = async |world: &World| {
        let filter = rawdoc! { "_id": "today", "pending": token };
        let change = rawdoc! { "$pull": { "pending": token }, "$inc": { "n": 1 } };
        world.store.update_one(&world.namespace("days"), filter, change).await.map_err(Error::from)
    };
    let run = async |world: &World| {
        let announce = rawdoc! { "$addToSet": { "pending": token } };
        world.store.upsert_one(&world.namespace("days"), rawdoc! { "_id": "today" }, announce).await?;
        settle(world).await
    };
    let recover = async |world: &World, _: &Result<_>| settle(world).await.map(|_| ());
    let check = async |world: &World, _: &Result<_>| match number(&day(world).await) {
        0 | 1 => Ok(()),
        n => Err(format!("counted {n} instead of 1")),
    };
    let report = every_point(&Stage::Memory, async |_| {}, run, recover, check).await;
    assert_eq!(report.kinds(), [Kind::DuplicateBeforeRecovery, Kind::DuplicateAfterRecovery], "{report}");
}

const INCREMENTS: i64 = 10_000;
const LOST_OF_A_THOUSAND: u16 = 100;

fn losing_replies(world: &World) -> Arc<Faulty<dyn DocumentStore>> {
    let plan = Plan::seeded(7, LOST_OF_A_THOUSAND, [Fault::LoseReply]).writes_only();
    Arc::new(Faulty::new(Arc::clone(&world.store), plan))
}

fn assert_many_were_lost(lossy: &Faulty<dyn DocumentStore>) {
    let lost = lossy.injected().len();
    assert!((500..3_000).contains(&lost), "{lost} lost replies");
}

#[tokio::test]
async fn ten_thousand_in_one_round_trip_are_exact() {
    let world = World::in_memory();
    let lossy = losing_replies(&world);
    let once = loop {
        match once(&world.on(lossy.clone())).await {
            Ok(once) => break once,
            Err(error) => assert_eq!(error.applied(), Applied::Maybe),
        }
    };
    for _ in 0..INCREMENTS {
        let token = once.token();
        loop {
            match once.apply(token, "today", &count()).await {
                Ok(outcome) => break assert!(outcome.is_applied()),
                Err(error) => assert_eq!(error.applied(), Applied::Maybe),
            }
        }
    }
    let day = day(&world).await;
    assert_eq!(number(&day), INCREMENTS);
    assert_eq!(length(&day, "applied"), 50, "the list is bounded");
    assert_many_were_lost(&lossy);
}

#[tokio::test]
async fn ten_thousand_in_two_steps_are_exact() {
    let world = World::in_memory();
    let two_step = two_step(&world).await.unwrap();
    let lossy = losing_replies(&world);
    let hasty = self::two_step(&world.on(lossy.clone())).await.unwrap();
    let mut in_doubt = 0;
    for _ in 0..INCREMENTS {
        match hasty.apply(hasty.token(), "today").await {
            Ok(outcome) => assert!(outcome.is_applied()),
            // No caller repeats the update. The replies were lost, not the requests, so the clean-up finishes the
            // rest.
            Err(error) => {
                assert_eq!(error.applied(), Applied::Maybe);
                in_doubt += 1;
            }
        }
    }
    assert!(in_doubt > 100, "{in_doubt} in doubt");
    world.clock.advance(2 * HOUR);
    let mut finished = 0;
    loop {
        let round = two_step.clean_up(HOUR, 10).await.unwrap();
        finished += round.done;
        if !round.more {
            break;
        }
    }
    assert!(finished > 50, "{finished} finished by the clean-up");
    let day = day(&world).await;
    assert_eq!((number(&day), length(&day, "pending")), (INCREMENTS, 0));
    assert_many_were_lost(&lossy);
}

#[tokio::test]
async fn ten_thousand_with_naive_retries_are_too_many_and_without_any_unknown() {
    let world = World::in_memory();
    let lossy = losing_replies(&world);
    let (target, change) = (world.namespace("days"), rawdoc! { "$inc": { "n": 1 } });
    for _ in 0..INCREMENTS {
        while lossy.upsert_one(&target, rawdoc! { "_id": "today" }, change.clone()).await.is_err() {}
    }
    let n = number(&day(&world).await);
    assert!(n > INCREMENTS + 500, "{n} counted");
    assert_many_were_lost(&lossy);
}

#[tokio::test]
async fn each_outcome_has_its_case() {
    let world = World::in_memory();
    let once = once(&world).await.unwrap();
    let [one, other] = tokens();
    let withdraw = Change::increment("n", -5).guarded(doc! { "n": { "$gte": 5 } });
    assert_eq!(once.apply(one, "today", &withdraw).await.unwrap(), UpdateOutcome::Missing);
    assert_eq!(once.apply(one, "today", &Change::increment("n", 7)).await.unwrap(), UpdateOutcome::Missing);
    assert_eq!(once.apply(one, "today", &Change::increment("n", 7).or_insert()).await.unwrap(), UpdateOutcome::Applied);
    assert_eq!(once.apply(one, "today", &count()).await.unwrap(), UpdateOutcome::AlreadyApplied);
    assert_eq!(once.apply(other, "today", &withdraw).await.unwrap(), UpdateOutcome::Applied);
    // The condition no longer holds, but the token is there, so the condition held before.
    assert_eq!(once.apply(other, "today", &withdraw).await.unwrap(), UpdateOutcome::AlreadyApplied);
    assert_eq!(once.apply(once.token(), "today", &withdraw).await.unwrap(), UpdateOutcome::Refused);
    assert_eq!(number(&day(&world).await), 2);
}

#[tokio::test]
async fn two_step_leaves_the_documents_of_the_seed() {
    let world = World::in_memory();
    let [one, other] = tokens();
    let two_step = two_step(&world).await.unwrap();
    assert_eq!(two_step.apply(one, "today").await.unwrap(), UpdateOutcome::Applied);
    assert_eq!(two_step.apply(one, "today").await.unwrap(), UpdateOutcome::AlreadyApplied);
    let found = day(&world).await;
    let applied_at = world.sources.clock.now();
    let expected = doc! { "_id": "today", "pending": [], "n": 1_i64, "applied": [one], "appliedAt": applied_at };
    assert_eq!(sorted(&found), sorted(&expected));

    // A process died after step 1.
    let step_1 = rawdoc! { "$addToSet": { "pending": other.0 } };
    world.store.update_one(&world.namespace("days"), rawdoc! {}, step_1).await.unwrap();
    assert_eq!(two_step.clean_up(HOUR, 10).await.unwrap().done, 0, "it may be under way");
    world.clock.advance(2 * HOUR);
    assert_eq!(two_step.clean_up(HOUR, 10).await.unwrap().done, 1);
    assert_eq!(number(&day(&world).await), 2);
}

fn sorted(document: &Document) -> Vec<(&String, &Bson)> {
    let mut fields: Vec<_> = document.iter().collect();
    fields.sort_by_key(|(name, _)| *name);
    fields
}

#[tokio::test]
async fn many_clean_ups_at_once_finish_each_token_once() {
    let world = World::in_memory();
    let two_step = two_step(&world).await.unwrap();
    let pending: Vec<_> = (0..50).map(|_| Bson::from(two_step.token())).collect();
    let left = bson::RawDocumentBuf::try_from(&doc! { "_id": "today", "n": 0, "pending": pending }).unwrap();
    world.store.insert_one(&world.namespace("days"), left).await.unwrap();
    world.clock.advance(2 * HOUR);
    let tasks: Vec<_> = (0..4)
        .map(|_| {
            let two_step = two_step.clone();
            tokio::spawn(async move { while two_step.clean_up(HOUR, 7).await.unwrap().more {} })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let day = day(&world).await;
    assert_eq!((number(&day), length(&day, "pending")), (50, 0));
}

/// The oldest tokens belong to documents that cannot be changed; they are more than a batch, and share tokens.
#[tokio::test]
async fn tokens_that_cannot_be_finished_keep_no_others_waiting() {
    let world = World::in_memory();
    let visits = two_step(&world).await.unwrap();
    let [shared, other] = [visits.token(), visits.token()];
    for (id, tokens) in [("a", vec![shared]), ("b", vec![shared, other]), ("c", vec![shared]), ("d", vec![shared])] {
        let odd = rawdoc! { "_id": id, "n": "many", "pending": bson::RawArrayBuf::from_iter(tokens.iter().map(|token| token.0)) };
        world.store.insert_one(&world.namespace("days"), odd).await.unwrap();
    }
    let left = rawdoc! { "_id": "today", "pending": [shared.0, visits.token().0, visits.token().0] };
    world.store.insert_one(&world.namespace("days"), left).await.unwrap();
    world.clock.advance(HOUR);
    let round = visits.clean_up(HOUR / 2, 2).await.unwrap();
    assert_eq!((round.done, round.failed, round.more), (2, 5, true));
    let round = visits.clean_up(HOUR / 2, 2).await.unwrap();
    assert_eq!((round.done, round.failed, round.more), (1, 5, false));
    assert_eq!(number(&day(&world).await), 3);
}

#[tokio::test]
async fn tokens_are_forgotten_by_age() {
    let world = World::in_memory();
    let once = once(&world).await.unwrap();
    for id in ["a", "b", "c"] {
        assert!(once.apply(once.token(), id, &count()).await.unwrap().is_applied());
    }
    world.clock.advance(HOUR);
    assert!(once.apply(once.token(), "c", &count()).await.unwrap().is_applied());
    assert_eq!(once.forget(HOUR / 2, 1).await.unwrap(), handfast_patterns::Round { done: 1, failed: 0, more: true });
    assert_eq!(once.forget(HOUR / 2, 10).await.unwrap().done, 1);
    let left = world.store.count_matching(&world.namespace("days"), rawdoc! { "applied": { "$exists": true } }).await;
    assert_eq!(left.unwrap(), 1, "the one that was changed lately");
}

#[tokio::test(start_paused = true)]
async fn the_clean_up_runs_in_the_background() {
    let world = World::in_memory();
    let two_step = two_step(&world).await.unwrap();
    let left = rawdoc! { "_id": "today", "pending": [two_step.token().0] };
    world.store.insert_one(&world.namespace("days"), left).await.unwrap();
    world.clock.advance(2 * HOUR);
    let runner = two_step.spawn_clean_up(HOUR, RunnerOptions::default(), &CancellationToken::new()).unwrap();
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert_eq!(runner.counts().done, 1);
    assert_eq!(number(&day(&world).await), 1);
    runner.stop().await;
}

#[tokio::test]
async fn invalid_requests_are_refused() {
    let world = World::in_memory();
    let once = once(&world).await.unwrap();
    for update in [
        doc! {},
        doc! { "n": 1 },
        doc! { "$inc": 1 },
        doc! { "$set": { "applied": [] } },
        doc! { "$set": { "applied.0": 1 } },
        doc! { "$unset": { "appliedAt": "" } },
    ] {
        let refused = once.apply(once.token(), 1, &Change::new(update.clone()).or_insert()).await;
        assert!(matches!(refused, Err(Error::Invalid { .. })), "{update}");
    }
    // A field whose name begins with that of the list is another field.
    assert!(once.apply(once.token(), 1, &Change::increment("appliedTwice", 1).or_insert()).await.is_ok());
    let memory = Memory { tokens_max: 0, ..Memory::default() };
    let forgetful =
        ExactlyOnce::open_with(world.store.clone(), world.namespace("days"), world.sources.clone(), memory).await;
    assert!(matches!(forgetful, Err(Error::Invalid { .. })));
    let guarded = Change::increment("n", 1).guarded(doc! {});
    let options = TwoStepOptions::default();
    let refused =
        TwoStep::open_with(world.store.clone(), world.namespace("days"), world.sources.clone(), guarded, options).await;
    assert!(matches!(refused, Err(Error::Invalid { .. })));
}

#[tokio::test]
async fn a_refusal_of_the_store_is_an_error_and_not_retried() {
    let world = World::in_memory();
    let counting = Arc::new(Faulty::new(Arc::clone(&world.store), Plan::none()));
    let once = once(&world.on(counting.clone())).await.unwrap();
    world.store.insert_one(&world.namespace("days"), rawdoc! { "_id": "today", "n": "many" }).await.unwrap();
    let before = counting.operations();
    let refused: StoreError = once.apply(once.token(), "today", &count()).await.expect_err("no number").into();
    assert_eq!((refused.class(), refused.applied()), (ErrorClass::Command, Applied::No));
    assert_eq!(counting.operations() - before, 1);
}

/// Counts the operations of each form: one round trip or two, as documented.
#[tokio::test]
async fn operations_per_increment() {
    let world = World::in_memory();
    let counting = Arc::new(Faulty::new(Arc::clone(&world.store), Plan::none()));
    let (once, two_step) =
        (once(&world.on(counting.clone())).await.unwrap(), two_step(&world.on(counting.clone())).await.unwrap());
    let before = counting.operations();
    assert!(once.apply(once.token(), "today", &count()).await.unwrap().is_applied());
    assert_eq!(counting.operations() - before, 1);
    assert!(two_step.apply(two_step.token(), "today").await.unwrap().is_applied());
    assert_eq!(counting.operations() - before, 1 + 2);
}
