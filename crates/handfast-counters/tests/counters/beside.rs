//! Imports and repairs beside instances that have totals in their cache: the totals follow, whatever fails meanwhile, and an import takes none back.

use std::sync::Arc;
use std::time::Duration;

use handfast_counters::{Buffer, Counters, Owner, Result, Saved, StorageForm, Stored, Total};
use handfast_store::decorator::{Fault, Faulty, Plan};

use crate::faulty_buffer::{FaultyBuffer, FaultyProcess, Of};
use crate::imports::{Line, add};
use crate::rebuild::rebuild;
use crate::retention::break_total;
use crate::waiting::until_ok;
use crate::world::{World, ad, ads, broken_scripts, first_day, on_both_forms, save_all, total, whole};

/// The items: views of `a` wait, `b` is cached, `c` is not, `d` is deleted, and nobody has seen `e`.
const IDS: [&str; 5] = ["a", "b", "c", "d", "e"];
/// The saved views of each item before.
const SAVED: u32 = 10;
/// The views of `a` that wait.
const WAITING: u32 = 3;
/// The views of each item in the import.
const ADDED: u64 = 1_005;

/// A file with two lines of each item.
fn file() -> Vec<Line> {
    IDS.iter().flat_map(|id| [(*id, None, 1_000), (*id, Some(first_day()), 5)]).collect()
}

/// Starts an instance, and brings the items into their states.
async fn prepare(world: &World) -> Counters {
    let instance = world.healthy(5).await;
    for id in ["a", "b", "c", "d"] {
        instance.view(ad(id), SAVED, None).await.expect("counted");
    }
    save_all(&instance).await;
    if world.redis.is_some() {
        // As long after that all unused entries are gone.
        world.advance(Duration::from_secs(7_200)).await;
    }
    instance.view(ad("a"), WAITING, None).await.expect("counted");
    total(&instance, "b").await;
    instance.view(ad("d"), 1, None).await.expect("counted");
    instance.delete(&ad("d"), None).await.expect("deleted");
    instance
}

/// The process that imports or repairs: another one, if the form has several.
async fn second_instance(world: &World, instance: &Counters) -> Counters {
    match world.redis {
        Some(_) => world.healthy(6).await,
        None => instance.clone(),
    }
}

async fn totals(counters: &Counters) -> Vec<Total> {
    let mut totals = Vec::new();
    for id in IDS {
        totals.push(total(counters, id).await);
    }
    totals
}

/// Returns whether an import is refused, as it is without transactions.
async fn refuses_imports(world: &World, importer: &Counters) -> bool {
    if world.form == StorageForm::Transactions {
        return false;
    }
    let error = add(importer, "may", &file()).await.expect_err("refused");
    assert!(error.to_string().contains("needs transactions"), "{error}");
    true
}

async fn an_import_is_in_the_totals_of_other_instances_at_once(world: World) {
    let instance = prepare(&world).await;
    let importer = second_instance(&world, &instance).await;
    if refuses_imports(&world, &importer).await {
        return;
    }
    importer.flush_all().await.expect("saved");
    instance.view(ad("b"), 1, None).await.expect("counted");
    add(&importer, "may", &file()).await.expect("added");
    let expected = [13 + ADDED, 11 + ADDED, 10 + ADDED, ADDED, ADDED].map(whole);
    assert_eq!(totals(&instance).await, expected);
    for id in IDS {
        instance.view(ad(id), 1, None).await.expect("counted");
    }
    save_all(&instance).await;
    assert_eq!(totals(&instance).await, expected.map(|total| whole(total.views + 1)));
}

async fn a_deletion_that_waits_drops_an_import(world: World) {
    let instance = prepare(&world).await;
    let importer = second_instance(&world, &instance).await;
    if refuses_imports(&world, &importer).await {
        return;
    }
    add(&importer, "may", &file()).await.expect("added");
    assert_eq!(total(&instance, "d").await, whole(0));
    save_all(&instance).await;
    assert_eq!(total(&instance, "d").await, whole(0));
}

async fn a_repair_is_in_the_totals_of_other_instances_at_once(world: World) {
    let instance = prepare(&world).await;
    for id in ["a", "b", "c"] {
        break_total(&world, id, 7).await;
    }
    // The wrong totals are cached as well.
    let again = world.redis.is_some();
    let repairer = second_instance(&world, &instance).await;
    let (_, rebuilt) = rebuild(&repairer, None).await.expect("rebuilt");
    assert_eq!(rebuilt.len(), 3);
    assert_eq!(totals(&instance).await[..4], [13, 10, 10, 0].map(whole));
    if again {
        break_total(&world, "b", 7).await;
        world.advance(Duration::from_secs(7_200)).await;
        assert_eq!(total(&instance, "b").await, whole(17));
        rebuild(&repairer, None).await.expect("rebuilt");
        assert_eq!(total(&instance, "b").await, whole(10));
    }
    save_all(&instance).await;
    assert_eq!(totals(&instance).await[..4], [13, 10, 10, 0].map(whole));
}

on_both_forms! {
    an_import_is_in_the_totals_of_other_instances_at_once,
    a_deletion_that_waits_drops_an_import,
    a_repair_is_in_the_totals_of_other_instances_at_once,
}

/// A first view and a reader that have read a total before an import are too late after it, also in a kind without events.
async fn old_totals_come_too_late(world: World) {
    let instance = world.healthy(5).await;
    let importer = second_instance(&world, &instance).await;
    if refuses_imports(&world, &importer).await {
        return;
    }
    let fence = instance.buffer().read(&ads(), &[]).await.expect("read").fence;
    add(&importer, "may", &[("a", None, 1_000)]).await.expect("added");
    let old = Stored { fence, total: 0 };
    assert_eq!(instance.buffer().fill(&ad("a"), old).await.expect("asked"), None);
    let view = handfast_counters::View::new(ad("a"), 1, first_day()).expect("a view");
    let upserted = instance.buffer().upsert(&view, Some(old)).await.expect("asked");
    assert_eq!(upserted, handfast_counters::UpsertOutcome::Outdated);
    assert_eq!(instance.view(ad("a"), 1, None).await.expect("counted"), whole(1_001));
}

pub(crate) mod without_events {
    use crate::world::on_both_forms;

    use super::old_totals_come_too_late;

    on_both_forms! { old_totals_come_too_late, }
}

/// The work that meets the faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    Import,
    Rebuild,
}

impl Work {
    async fn run(self, counters: &Counters) -> Result<()> {
        match self {
            Work::Import => {
                counters.flush_all().await?;
                add(counters, "may", &file()).await.map(drop)
            }
            Work::Rebuild => rebuild(counters, None).await.map(drop),
        }
    }

    /// Starts an instance, with totals that are wrong in the store and in the cache if they are to be repaired.
    async fn prepare(self, world: &World) -> Counters {
        let instance = prepare(world).await;
        if self == Work::Rebuild {
            for id in ["a", "b", "c"] {
                break_total(world, id, 7).await;
            }
            let fence = instance.buffer().read(&ads(), &[]).await.expect("read").fence;
            let wrong = [("a", 17), ("b", 17)].map(|(id, total)| (ad(id).id, total));
            assert!(instance.buffer().refresh(&ads(), &wrong, fence).await.expect("refreshed"));
            assert_eq!([total(&instance, "a").await, total(&instance, "b").await], [whole(20), whole(17)]);
        }
        instance
    }

    fn expected(self) -> [Total; 5] {
        match self {
            Work::Import => [14 + ADDED, 11 + ADDED, 11 + ADDED, 1 + ADDED, 1 + ADDED].map(whole),
            Work::Rebuild => [14, 11, 11, 1, 1].map(whole),
        }
    }
}

/// Does the work in a process with a fault.
async fn run(world: &World, work: Work, of: Of, fault: Option<(u64, Fault)>) -> FaultyProcess {
    let process = FaultyProcess::start(world, of, fault).await;
    if let Ok(counters) = &process.counters {
        // What it says is in doubt or not; what matters is what the others see.
        drop(work.run(counters).await);
    }
    process
}

/// Does the work with a fault, and again without one, beside an instance.
async fn point(world: World, work: Work, of: Of, number: u64, fault: Fault) -> bool {
    let instance = work.prepare(&world).await;
    // Not of the others, which get no entry by that.
    let before = [total(&instance, "a").await, total(&instance, "b").await];
    let met = run(&world, work, of, Some((number, fault))).await.has_met_fault();
    let between = totals(&instance).await;
    for id in IDS {
        instance.view(ad(id), 1, None).await.expect("counted");
    }
    let counted = totals(&instance).await;
    if work == Work::Import {
        for (at, id) in IDS.iter().enumerate() {
            let totals: Vec<Total> = before.get(at).into_iter().chain([&between[at], &counted[at]]).copied().collect();
            let whole = totals.iter().filter(|total| !total.partial).map(|total| total.views);
            assert!(whole.is_sorted(), "{fault:?} at request {number} of the {of:?}: {id} had {totals:?}");
        }
    }
    let again = world.healthy(2).await;
    work.run(&again).await.expect("done");
    let context = format!("{fault:?} at request {number} of the {of:?}");
    assert_eq!(totals(&instance).await, work.expected(), "{context}");
    save_all(&again).await;
    assert_eq!(totals(&instance).await, work.expected(), "{context}, saved");
    let ids = IDS.map(|id| ad(id).id);
    let stored = again.storage().totals(&ads(), &ids).await.expect("totals");
    assert_eq!(stored, work.expected().map(|total| total.views), "{context}, stored");
    met
}

async fn every_point(work: Work) {
    let Some(world) = World::redis().await else { return };
    let server = world.redis.expect("a server");
    let fresh = async || {
        server.command(&["FLUSHALL"]).await;
        World::on(&server)
    };
    for of in [Of::Store, Of::Buffer] {
        let world = fresh().await;
        let _instance = work.prepare(&world).await;
        let requests = run(&world, work, of, None).await.requests();
        assert!(requests > 1, "{requests}");
        let (mut met, mut points) = (0, 0);
        for fault in Fault::PROMPT_OUTCOMES {
            for number in 0..requests {
                met += u64::from(point(fresh().await, work, of, number, fault).await);
                points += 1;
            }
        }
        println!("{points} points of {work:?} at the {of:?}");
        assert_eq!(met, points, "each fault was met");
    }
}

#[tokio::test]
async fn ext_redis_totals_follow_an_import_with_a_fault_at_any_operation() {
    every_point(Work::Import).await;
}

#[tokio::test]
async fn ext_redis_totals_follow_a_repair_with_a_fault_at_any_operation() {
    every_point(Work::Rebuild).await;
}

/// Of two readers of an item without an entry, one has read the store before an import, and one after it. The first one's total is put in while the
/// second one waits for the store. The process that imports dies before it has set the cached totals.
#[tokio::test]
async fn ext_redis_no_total_goes_back_between_an_import_and_its_refresh() {
    let Some(world) = World::redis().await else { return };
    let instance = prepare(&world).await;
    let fence = instance.buffer().read(&ads(), &[]).await.expect("read").fence;
    let old = Stored { fence, total: u64::from(SAVED) };
    let decorate = |buffer| Arc::new(FaultyBuffer::that_never_refreshes(buffer)) as Arc<dyn Buffer>;
    let importer = world.start_with(1, world.store.clone(), decorate).await.expect("a process");
    add(&importer, "may", &[("c", None, 1_000)]).await.expect_err("not refreshed");
    let stored = instance.storage().totals(&ads(), &[ad("c").id]).await.expect("a total");
    assert_eq!(stored, [1_010], "it was added");

    let counting = Arc::new(Faulty::new(world.store.clone(), Plan::none()));
    drop(world.start(7, counting.clone()).await.expect("a process"));
    let slow = Arc::new(Faulty::new(world.store.clone(), Plan::at(counting.operations(), Fault::FreezeAfter)));
    let reader = world.start(7, slow.clone()).await.expect("a process");
    let of_reader = reader.clone();
    let reading = tokio::spawn(async move { total(&of_reader, "c").await });
    while slow.frozen() == 0 && !reading.is_finished() {
        tokio::task::yield_now().await;
    }
    instance.buffer().fill(&ad("c"), old).await.expect("asked");
    slow.release();
    let (first, second) = (reading.await.expect("read"), total(&reader, "c").await);
    assert!(!first.partial && first.views <= second.views, "{first:?}, then {second:?}");
    add(&world.healthy(2).await, "may", &[("c", None, 1_000)]).await.expect("refreshed");
    assert_eq!(total(&instance, "c").await, whole(1_010));
}

/// An entry that is about to leave the cache does not do so while an import changes its total: of two readers, one could then show the new total and the
/// other one put the old one in again.
#[tokio::test]
async fn ext_redis_no_entry_expires_between_an_import_and_its_refresh() {
    let Some(world) = World::redis().await else { return };
    let instance = prepare(&world).await;
    let minute = Duration::from_secs(60);
    world.advance(Duration::from_secs(3_600) - minute).await;
    let decorate = |buffer| Arc::new(FaultyBuffer::that_never_refreshes(buffer)) as Arc<dyn Buffer>;
    let importer = world.start_with(1, world.store.clone(), decorate).await.expect("a process");
    add(&importer, "may", &[("b", None, 1_000)]).await.expect_err("not refreshed");
    world.advance(2 * minute).await;
    assert_eq!(total(&instance, "b").await, whole(SAVED.into()), "it is there until the refresh");
    add(&world.healthy(2).await, "may", &[("b", None, 1_000)]).await.expect("refreshed");
    assert_eq!(total(&instance, "b").await, whole(1_010));
}

/// Redis comes back as it was before an instance has claimed a batch, which that one saves: the store has views that wait in Redis.
async fn import_after_a_loss(world: World) {
    let instance = world.healthy(5).await;
    instance.view(ad("a"), 5, None).await.expect("counted");
    let before = world.server().copy_files();
    let owner = Owner::new(&world.sources(7));
    let batch = instance.buffer().claim(&ads(), &owner, 5).await.expect("claimed").expect("a batch");
    world.server().kill();
    world.server().restore_files(&before);
    world.server().restart().await;
    until_ok("a read", || async { instance.buffer().read(&ads(), &[]).await }).await;
    assert_eq!(instance.storage().save(&batch).await.expect("saved"), Saved::Now);
    let importer = world.healthy(6).await;
    add(&importer, "may", &[("a", None, 1_000)]).await.expect("added");
    assert_eq!(total(&instance, "a").await, whole(1_005));
    save_all(&instance).await;
    assert_eq!(total(&instance, "a").await, whole(1_005));
}

#[tokio::test]
async fn ext_redis_an_import_after_a_loss_counts_no_view_twice() {
    if let Some(world) = World::durable_redis().await {
        import_after_a_loss(world).await;
    }
}

#[tokio::test]
async fn ext_redis_a_refresh_that_does_not_wait_for_old_events_is_caught() {
    let Some(world) = World::durable_redis().await else { return };
    let right = "if fence ~= epoch or may_be_saved() then";
    let wrong = "if fence ~= epoch or redis.call('ZCARD', key('since')) > 0 then";
    let broken = World { scripts: broken_scripts("a refresh does not wait", right, wrong), ..world };
    assert!(tokio::spawn(import_after_a_loss(broken)).await.is_err());
}
