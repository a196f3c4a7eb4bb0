//! A scenario of views, deletions and passes, with a fault at each of its operations on the store, and on the buffer where that is a
//! service of its own. Behind each, a new process reads the queue back and saves it: what was answered is there, what was refused is not, and what
//! is in doubt is there once or not at all.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use handfast_counters::{Counters, Error, Owner};
use handfast_store::Applied;
use handfast_store::decorator::Fault;

use crate::faulty_buffer::{FaultyProcess, Of};
use crate::world::{World, ad, ads, key, save_all, total, whole};

/// The least and the most views that an item may have.
pub(crate) type Bounds = BTreeMap<&'static str, (u64, u64)>;

/// The answers that the scenario got.
#[derive(Default)]
pub(crate) struct Answers {
    pub(crate) bounds: Bounds,
}

impl Answers {
    pub(crate) async fn view(&mut self, counters: &Counters, id: &'static str, views: u32, name: Option<&str>) {
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
        match counters.delete(&ad(id), None).await {
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

/// Runs the scenario in a process with a fault.
async fn run(world: &World, of: Of, fault: Option<(u64, Fault)>) -> (Bounds, FaultyProcess) {
    let process = FaultyProcess::start(world, of, fault).await;
    let bounds = match &process.counters {
        Ok(counters) => scenario(counters).await,
        Err(_) => Bounds::new(),
    };
    (bounds, process)
}

/// Runs the scenario with a fault, then a new process, and returns whether the fault was met.
async fn point(world: World, of: Of, number: u64, fault: Fault) -> bool {
    let (bounds, process) = run(&world, of, Some((number, fault))).await;
    let met = process.has_met_fault();
    let late = process.into_store();
    let restarted = world.healthy(2).await;
    let cached = [total(&restarted, "a").await, total(&restarted, "b").await, total(&restarted, "c").await];
    save_all(&restarted).await;
    let saved = [total(&restarted, "a").await, total(&restarted, "b").await, total(&restarted, "c").await];
    for (cached, saved) in cached.iter().zip(&saved) {
        let least = cached.partial && cached.views <= saved.views;
        assert!(
            !saved.partial && (cached == saved || least),
            "{fault:?} at request {number} of the {of:?}: a total of {cached:?} became {saved:?} while it was saved"
        );
    }
    // A request that was on its way arrives after all was saved.
    drop(late.deliver_late().await);
    drop(restarted);
    let again = world.healthy(3).await;
    save_all(&again).await;
    for (id, (least, most)) in &bounds {
        let views = total(&again, id).await.views;
        assert!(
            (*least..=*most).contains(&views),
            "{fault:?} at request {number} of the {of:?}: {id} has {views} views, and must have {least} to {most}"
        );
    }
    // A request that is sent again with its key is counted exactly once in all.
    again.view(ad("a"), 10, key("k1")).await.expect("counted");
    save_all(&again).await;
    let tens = total(&again, "a").await.views / 10 % 10;
    assert_eq!(tens, 1, "{fault:?} at request {number} of the {of:?}");
    met
}

/// Meets each fault at each request, in a fresh world each.
async fn every_point(fresh: impl AsyncFn() -> World, of: Of, requests_min: u64) {
    let (bounds, process) = run(&fresh().await, of, None).await;
    assert_eq!(bounds, Bounds::from([("a", (111, 111)), ("b", (11, 11)), ("c", (1_000, 1_000))]));
    let requests = process.requests();
    assert!(requests > requests_min, "{requests}");
    let met = AtomicU64::new(0);
    let faults = match of {
        Of::Store => &Fault::ALL_OUTCOMES[..],
        Of::Buffer => &Fault::PROMPT_OUTCOMES[..],
    };
    for &fault in faults {
        for number in 0..requests {
            if point(fresh().await, of, number, fault).await {
                met.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
    let points = requests * faults.len() as u64;
    println!("{points} points of the {of:?}");
    assert_eq!(met.into_inner(), points, "each fault was met");
}

#[tokio::test]
async fn nothing_is_lost_or_doubled_by_a_fault_at_any_operation() {
    every_point(async || World::embedded(), Of::Store, 40).await;
}

#[tokio::test]
async fn ext_redis_nothing_is_lost_or_doubled_by_a_fault_at_any_operation() {
    let Some(world) = World::redis().await else { return };
    let server = world.redis.expect("a server");
    let fresh = async || {
        server.command(&["FLUSHALL"]).await;
        World::on(&server)
    };
    every_point(&fresh, Of::Store, 30).await;
    every_point(&fresh, Of::Buffer, 30).await;
}

#[tokio::test]
async fn nothing_is_lost_or_doubled_by_a_fault_at_any_operation_on_single_documents() {
    let fresh = async || World::in_memory().single_documents();
    every_point(&fresh, Of::Store, 60).await;
    every_point(&fresh, Of::Buffer, 30).await;
}

#[tokio::test]
async fn ext_redis_nothing_is_lost_or_doubled_by_a_fault_at_any_operation_on_single_documents() {
    let Some(world) = World::redis().await else { return };
    let server = world.redis.expect("a server");
    let fresh = async || {
        server.command(&["FLUSHALL"]).await;
        World::on(&server).single_documents()
    };
    every_point(&fresh, Of::Store, 60).await;
    every_point(&fresh, Of::Buffer, 30).await;
}

/// Two instances over one buffer: the one with the older batch dies, so the queue that is read back begins below what is saved.
#[tokio::test]
async fn an_older_batch_than_those_saved_is_read_back_and_new_events_get_new_numbers() {
    let world = World::embedded();
    let counters = world.healthy(1).await;
    for id in ["a", "a", "b", "b"] {
        counters.view(ad(id), 1, None).await.expect("counted");
    }
    let buffer = counters.buffer();
    let [dead, alive] = [5, 6].map(|process| Owner::new(&world.sources(process)));
    let left = buffer.claim(&ads(), &dead, 2).await.expect("claimed").expect("a batch");
    let saved = buffer.claim(&ads(), &alive, 2).await.expect("claimed").expect("a batch");
    assert!(left.number() < saved.first());
    counters.storage().save(&saved).await.expect("saved");
    buffer.acknowledge(&saved).await.expect("acknowledged");
    drop(counters);
    let restarted = world.healthy(2).await;
    restarted.view(ad("a"), 10, None).await.expect("counted");
    restarted.view(ad("b"), 10, None).await.expect("counted");
    save_all(&restarted).await;
    drop(restarted);
    let again = world.healthy(3).await;
    assert_eq!([total(&again, "a").await, total(&again, "b").await], [whole(12), whole(12)]);
}
