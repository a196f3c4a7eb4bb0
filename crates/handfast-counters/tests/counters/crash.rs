//! A scenario of views, deletions and passes, with a fault at each of its operations on the store. Behind each, a new process reads the
//! queue back and saves it: what was answered is there, what was refused is not, and what is in doubt is there once or not at all.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use handfast_counters::{Counters, Error};
use handfast_store::Applied;
use handfast_store::decorator::{Fault, Faulty, Plan};

use crate::world::{World, ad, key, settle, total};

const FAULTS: [Fault; 5] = [Fault::Refuse, Fault::LoseRequest, Fault::LoseReply, Fault::CrashBefore, Fault::CrashAfter];

/// The least and the most views that an item may have.
type Bounds = BTreeMap<&'static str, (u64, u64)>;

/// What the scenario was answered.
#[derive(Default)]
struct Answers {
    bounds: Bounds,
}

impl Answers {
    async fn view(&mut self, counters: &Counters, id: &'static str, views: u32, name: Option<&str>) {
        let (least, most) = self.bounds.entry(id).or_default();
        let key = name.and_then(key);
        match counters.view(ad(id), views, key).await {
            Ok(_) => {
                *least += u64::from(views);
                *most += u64::from(views);
            }
            Err(error) if error.applied() == Applied::Maybe => *most += u64::from(views),
            Err(error) => assert!(!matches!(error, Error::Invalid { .. } | Error::Damaged { .. }), "{error}"),
        }
    }

    async fn delete(&mut self, counters: &Counters, id: &'static str) {
        let (_, most) = self.bounds.get(id).copied().unwrap_or_default();
        match counters.delete(&ad(id)).await {
            Ok(()) => self.bounds.insert(id, (0, 0)),
            Err(error) if error.applied() == Applied::Maybe => self.bounds.insert(id, (0, most)),
            Err(_) => None,
        };
    }
}

/// Views of three items, one deletion, and three passes with batches of three events.
async fn scenario(counters: &Counters) -> Bounds {
    let mut answers = Answers::default();
    answers.view(counters, "a", 1, None).await;
    answers.view(counters, "a", 10, Some("k1")).await;
    answers.view(counters, "b", 1, None).await;
    answers.view(counters, "c", 5, None).await;
    drop(counters.flush().await);
    answers.view(counters, "a", 100, None).await;
    answers.delete(counters, "c").await;
    answers.view(counters, "c", 1_000, None).await;
    drop(counters.flush().await);
    answers.view(counters, "b", 10, Some("k2")).await;
    drop(counters.flush().await);
    answers.bounds
}

/// Runs the scenario with a fault, then a new process, and returns whether the fault was met.
async fn point(number: u64, fault: Fault) -> bool {
    let world = World::new();
    let faulty = Arc::new(Faulty::new(world.store.clone(), Plan::at(number, fault)));
    let bounds = match world.start(1, faulty.clone()).await {
        Ok(counters) => scenario(&counters).await,
        Err(_) => Bounds::new(),
    };
    let met = !faulty.injected().is_empty();
    let restarted = world.healthy(2).await;
    let cached = [total(&restarted, "a").await, total(&restarted, "b").await, total(&restarted, "c").await];
    settle(&restarted).await;
    let saved = [total(&restarted, "a").await, total(&restarted, "b").await, total(&restarted, "c").await];
    assert_eq!(cached, saved, "{fault:?} at operation {number}: a total changed while it was saved");
    drop(restarted);
    let again = world.healthy(3).await;
    settle(&again).await;
    for (id, (least, most)) in &bounds {
        let views = total(&again, id).await.views;
        assert!(
            (*least..=*most).contains(&views),
            "{fault:?} at operation {number}: {id} has {views} views, and must have {least} to {most}"
        );
    }
    // A request that is sent again with its key is counted exactly once in all.
    again.view(ad("a"), 10, key("k1")).await.expect("counted");
    settle(&again).await;
    let (least, _) = bounds.get("a").copied().unwrap_or_default();
    let tens = total(&again, "a").await.views / 10 % 10;
    assert_eq!(tens, 1, "{fault:?} at operation {number}, {least}");
    met
}

#[tokio::test]
async fn nothing_is_lost_or_doubled_by_a_fault_at_any_operation() {
    let world = World::new();
    let counting = Arc::new(Faulty::new(world.store.clone(), Plan::none()));
    let counters = world.start(1, counting.clone()).await.expect("a process");
    let bounds = scenario(&counters).await;
    assert_eq!(bounds, Bounds::from([("a", (111, 111)), ("b", (11, 11)), ("c", (1_000, 1_000))]));
    drop(counters);
    let operations = counting.operations();
    assert!(operations > 40, "{operations}");
    let met = AtomicU64::new(0);
    for fault in FAULTS {
        for number in 0..operations {
            if point(number, fault).await {
                met.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
    let points = operations * FAULTS.len() as u64;
    println!("{points} points");
    assert_eq!(met.into_inner(), points, "each fault was met");
}
