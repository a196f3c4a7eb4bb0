//! An import, a removal of old days and a repair, with a fault at each of their operations on the store. Behind each, a new process does the same
//! again. A request that the network has held back arrives before that, in the midst of it, or after it; the figures are exact in every case.

use std::sync::Arc;

use handfast_counters::jiff::civil::date;
use handfast_counters::{Counters, Result};
use handfast_store::MemoryStore;
use handfast_store::decorator::{Fault, Faulty, Plan};

use crate::imports::{add, check_file, file};
use crate::rebuild::rebuild;
use crate::retention::break_total;
use crate::world::{World, ad, save_all, total, whole};

/// When requests arrive that were held back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Arrival {
    BeforeTheRepetition,
    AfterTheRepetition,
}

/// The work that meets the faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    Import,
    Trim,
    Rebuild,
}

impl Work {
    async fn prepare(self, world: &World) {
        if self == Work::Import {
            return;
        }
        let counters = world.healthy(9).await;
        add(&counters, "may", &file()).await.expect("saved");
        if self == Work::Rebuild {
            break_total(world, "a", 9).await;
            break_total(world, "b", -7).await;
        }
    }

    async fn run(self, counters: &Counters) -> Result<()> {
        match self {
            Work::Import => add(counters, "may", &file()).await.map(drop),
            Work::Trim => counters.storage().trim(date(2026, 11, 1), u64::MAX, |_| ()).await.map(drop),
            Work::Rebuild => rebuild(counters, None).await.map(drop),
        }
    }

    async fn check(self, counters: &Counters) {
        save_all(counters).await;
        assert_eq!([total(counters, "a").await, total(counters, "b").await], [whole(1_125), whole(307)]);
        if self != Work::Trim {
            check_file(counters).await;
            return;
        }
        let bases = [counters.storage().base(&ad("a")).await, counters.storage().base(&ad("b")).await];
        assert_eq!(bases.map(|base| base.expect("a base")), [1_025, 307]);
    }
}

/// Does the work on a store with a fault, and returns the store.
async fn run(world: &World, work: Work, plan: Plan) -> Arc<Faulty<MemoryStore>> {
    let store = Arc::new(Faulty::new(world.store.clone(), plan));
    if let Ok(counters) = world.start(1, store.clone()).await {
        // What it says is in doubt or not; what matters is what is stored.
        drop(work.run(&counters).await);
    }
    store
}

async fn point(work: Work, number: u64, fault: Fault, arrival: Arrival) -> bool {
    let world = World::embedded();
    work.prepare(&world).await;
    let store = run(&world, work, Plan::at(number, fault)).await;
    let met = !store.injected().is_empty();
    store.restart();
    if arrival == Arrival::BeforeTheRepetition {
        drop(store.deliver_late().await);
    }
    let again = world.healthy(2).await;
    work.run(&again).await.expect("done");
    drop(store.deliver_late().await);
    work.check(&again).await;
    drop(again);
    let restarted = world.healthy(3).await;
    work.run(&restarted).await.expect("nothing is left to do");
    work.check(&restarted).await;
    met
}

async fn every_point(work: Work, operations_min: u64) {
    let world = World::embedded();
    work.prepare(&world).await;
    let counting = run(&world, work, Plan::none()).await;
    work.check(&world.healthy(2).await).await;
    let operations = counting.operations();
    assert!(operations > operations_min, "{operations}");
    let (mut met, mut points) = (0, 0);
    for fault in Fault::ALL_OUTCOMES {
        for number in 0..operations {
            met += u64::from(point(work, number, fault, Arrival::AfterTheRepetition).await);
            points += 1;
            if matches!(fault, Fault::DeliverLate | Fault::Duplicate) {
                met += u64::from(point(work, number, fault, Arrival::BeforeTheRepetition).await);
                points += 1;
            }
        }
    }
    println!("{points} points of {work:?}, {operations} operations");
    assert_eq!(met, points, "each fault was met");
}

#[tokio::test]
async fn an_import_adds_each_line_once_with_a_fault_at_any_operation() {
    every_point(Work::Import, 10).await;
}

#[tokio::test]
async fn a_removal_of_days_adds_each_month_once_with_a_fault_at_any_operation() {
    every_point(Work::Trim, 10).await;
}

#[tokio::test]
async fn a_repair_is_right_with_a_fault_at_any_operation() {
    every_point(Work::Rebuild, 10).await;
}
