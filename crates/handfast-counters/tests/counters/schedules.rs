//! Random schedules of processes that save without transactions, each operation on the store by itself, each statement of an update as well.
//!
//! Three processes save batches, some of them twice, some with events of others; they delete items, raise the bound, and remove old months. A scheduler
//! lets one operation go on at a time, and some meet a fault: the request or its answer gets lost, arrives late or twice, or the process dies. Some
//! operations are held back until all else is done and forgotten, as those of a process that was frozen for a week. One batch may be lost by the
//! queue: nobody sends it again.
//!
//! At any time a check finds no item whose figures disagree without a batch being saved. In the end each item has the views of all events
//! after its last deletion, each once; of a batch that was lost, those of all its events that did not come too late, or none. Nothing is left behind.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bson::rawdoc;
use handfast_counters::jiff::civil::{Date, date};
use handfast_counters::{Batch, Change, Event, Item, Storage};
use handfast_store::decorator::{DelegatingStore, Fault, Faulty, Plan};
use handfast_store::{DocumentStore, MemoryStore, Namespace, Random, Sources, StoreExt as _, Update, UpdateOutcome};
use tokio::task::JoinHandle;

use crate::world::{World, ad, ads};

const PROCESSES: usize = 3;
const ITEMS: u64 = 3;
const EVENTS: u64 = 18;
/// A number above all events.
const END: u64 = 1_000;
/// The months that end before this day are removed at times.
const KEPT_FROM: Date = date(2026, 11, 1);
const DAYS: [Date; 3] = [date(2026, 10, 31), date(2026, 11, 30), date(2026, 12, 1)];
/// The operations of one schedule, at most: far more than any takes.
const STEPS_MAX: usize = 20_000;
/// The tasks run up to their next operation within so many turns.
const TURNS: usize = 24;
/// One of so many operations meets a fault.
const FAULT_ONE_IN: u64 = 30;
/// One of so many operations is held back until the end, [`HELD_MAX`] at most.
const HOLD_ONE_IN: u64 = 80;
const HELD_MAX: usize = 3;
/// The schedules of a run, unless `HANDFAST_SCHEDULES` says another number.
const SCHEDULES: u64 = 150;

/// A store that sends each statement of an update by itself.
struct OneByOne(Arc<Faulty<MemoryStore>>);

#[async_trait]
impl DelegatingStore for OneByOne {
    type Inner = Faulty<MemoryStore>;

    fn inner(&self) -> &Self::Inner {
        &self.0
    }

    async fn update(&self, request: Update) -> handfast_store::Result<UpdateOutcome> {
        let mut outcome = UpdateOutcome::default();
        for statement in &request.statements {
            let one = Update { statements: vec![statement.clone()], ..request.clone() };
            let of_one = DocumentStore::update(&*self.0, one).await?;
            outcome.matched += of_one.matched;
            outcome.errors.extend(of_one.errors);
        }
        Ok(outcome)
    }
}

#[derive(Clone, Copy, Debug)]
enum Job {
    Save(usize),
    Forget,
    Trim,
    Verify,
}

/// What the processes have to do.
struct Work {
    batches: Vec<Batch>,
    /// The batch that nobody sends again.
    lost: Option<usize>,
    jobs: Mutex<VecDeque<Job>>,
    acknowledged: Mutex<BTreeSet<usize>>,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Process {
    store: Arc<Faulty<MemoryStore>>,
    task: JoinHandle<()>,
    /// The operation that is held back.
    held: Option<u64>,
    is_dead: Arc<AtomicBool>,
}

impl Work {
    fn new(random: &dyn Random) -> Self {
        let below = |end: u64| random.next_u64() % end;
        let (mut number, mut events) = (0, Vec::new());
        for _ in 0..EVENTS {
            number += 1 + u64::from(below(6) == 0);
            let change = match below(6) {
                0 => Change::Delete,
                _ => Change::Views { views: 1 + below(50) as u32, day: DAYS[below(3) as usize] },
            };
            events.push(Event { number, id: ad(&below(ITEMS).to_string()).id, change });
        }
        let batch = |events: &[Event]| Batch { kind: ads(), events: events.to_vec() };
        let mut batches = Vec::new();
        let mut rest = &events[..];
        while !rest.is_empty() {
            let (events, others) = rest.split_at((1 + below(5) as usize).min(rest.len()));
            batches.push(batch(events));
            rest = others;
        }
        let lost = (below(2) == 0).then(|| below(batches.len() as u64) as usize);
        for _ in 0..below(3) {
            let first = below(EVENTS) as usize;
            let end = (first + 1 + below(6) as usize).min(events.len());
            batches.push(batch(&events[first..end]));
        }
        let mut jobs: Vec<(u64, Job)> = Vec::new();
        for at in 0..batches.len() {
            let times = if lost == Some(at) { 1 } else { 1 + below(2) };
            // Roughly in their order.
            jobs.extend((0..times).map(|_| (at as u64 * 4 + below(14), Job::Save(at))));
        }
        let others = [Job::Forget, Job::Forget, Job::Forget, Job::Trim, Job::Trim, Job::Verify, Job::Verify];
        jobs.extend(others.map(|job| (below(batches.len() as u64 * 4 + 10), job)));
        jobs.sort_by_key(|(at, _)| *at);
        let jobs = jobs.into_iter().map(|(_, job)| job).collect();
        Work { batches, lost, jobs: Mutex::new(jobs), acknowledged: Mutex::default() }
    }

    /// Returns the number of the oldest event that the queue has.
    fn oldest(&self) -> u64 {
        let acknowledged = lock(&self.acknowledged);
        let open =
            self.batches.iter().enumerate().filter(|(at, _)| !acknowledged.contains(at) && self.lost != Some(*at));
        open.map(|(_, batch)| batch.first()).min().unwrap_or(END)
    }

    async fn run(&self, job: Job, storage: &Storage) {
        match job {
            Job::Save(at) => match storage.save(&self.batches[at]).await {
                Ok(_) => drop(lock(&self.acknowledged).insert(at)),
                Err(_) if self.lost != Some(at) => lock(&self.jobs).push_back(job),
                Err(_) => {}
            },
            Job::Forget => drop(storage.forget_batches(&ads(), self.oldest()).await),
            Job::Trim => drop(storage.trim(KEPT_FROM, u64::MAX, |_| ()).await),
            Job::Verify => {
                if let Ok(verification) = storage.verify(None, |_| ()).await {
                    assert_eq!(verification.differences, [], "while batches are saved");
                    assert!(verification.damaged.is_empty(), "{verification:?}");
                }
            }
        }
    }

    /// Returns what the items may have in the end: with all events of the batch that was lost, with its last ones, with none.
    fn expected(&self) -> BTreeSet<Figures> {
        let events = |lost: bool| {
            let of = self.batches.iter().enumerate().filter(move |(at, _)| (self.lost == Some(*at)) == lost);
            of.flat_map(|(_, batch)| batch.events.iter().map(|event| (event.number, event.clone())))
        };
        let required: BTreeMap<u64, Event> = events(false).collect();
        let optional: Vec<(u64, Event)> = events(true).filter(|(number, _)| !required.contains_key(number)).collect();
        let with_last = |skipped: usize| {
            let all = required.clone().into_iter().chain(optional.iter().skip(skipped).cloned()).collect();
            figures_of(&all)
        };
        (0..=optional.len()).map(with_last).collect()
    }
}

/// The views of each item: all of them, and those of the days that are kept.
type Figures = BTreeMap<Item, (u64, BTreeMap<Date, u64>)>;

fn figures_of(events: &BTreeMap<u64, Event>) -> Figures {
    let mut figures = Figures::new();
    for event in events.values() {
        let item = Item { kind: ads(), id: event.id.clone() };
        let (total, days) = figures.entry(item).or_default();
        match event.change {
            Change::Delete => (*total, *days) = (0, BTreeMap::new()),
            Change::Views { views, day } => {
                *total += u64::from(views);
                if day >= KEPT_FROM {
                    *days.entry(day).or_default() += u64::from(views);
                }
            }
        }
    }
    figures.retain(|_, (total, _)| *total > 0);
    figures
}

async fn stored(storage: &Storage) -> Figures {
    let mut figures = Figures::new();
    for item in (0..ITEMS).map(|id| ad(&id.to_string())) {
        let total = storage.totals(&ads(), std::slice::from_ref(&item.id)).await.expect("a total")[0];
        let days = storage.daily(&item, KEPT_FROM, date(2026, 12, 31)).await.expect("days");
        let days = days.into_iter().filter(|day| day.views > 0).map(|day| (day.day, day.views));
        figures.insert(item, (total, days.collect()));
    }
    figures.retain(|_, (total, _)| *total > 0);
    figures
}

async fn open(store: Arc<dyn DocumentStore>, sources: Sources) -> handfast_counters::Result<Storage> {
    Storage::open_single_documents(store, sources, "counters").await
}

/// Starts a process that works until there is nothing left to do, or it is dead.
fn start(world: &World, work: &Arc<Work>) -> Process {
    let store = Arc::new(Faulty::new(world.store.clone(), Plan::always(Fault::FreezeBefore)));
    let (of_process, work, sources) = (Arc::clone(&store), Arc::clone(work), world.sources(1));
    let is_dead = Arc::new(AtomicBool::new(false));
    let dead = Arc::clone(&is_dead);
    let task = tokio::spawn(async move {
        let Ok(storage) = open(Arc::new(OneByOne(of_process)), sources).await else { return };
        while !dead.load(Ordering::SeqCst) {
            let Some(job) = lock(&work.jobs).pop_front() else { return };
            work.run(job, &storage).await;
        }
    });
    Process { store, task, held: None, is_dead }
}

/// Lets the processes work in an order that the seed decides; returns them with the operations that are held back.
async fn schedule(world: &World, work: &Arc<Work>, random: &dyn Random) -> Vec<Process> {
    let below = |end: u64| random.next_u64() % end;
    let mut processes: Vec<Process> = (0..PROCESSES).map(|_| start(world, work)).collect();
    for _ in 0..STEPS_MAX {
        for _ in 0..TURNS {
            tokio::task::yield_now().await;
        }
        let waiting = |process: &Process| match process.held {
            Some(_) => None,
            None => process.store.frozen_operations().first().map(|(number, _)| *number),
        };
        let ready: Vec<(usize, u64)> =
            processes.iter().enumerate().filter_map(|(at, process)| Some((at, waiting(process)?))).collect();
        let Some((at, number)) = ready.get(below(ready.len().max(1) as u64) as usize).copied() else {
            let is_idle = processes.iter().all(|process| process.held.is_some() || process.task.is_finished());
            match (is_idle, lock(&work.jobs).is_empty()) {
                (true, true) => return processes,
                (true, false) => processes.push(start(world, work)),
                (false, _) => {}
            }
            continue;
        };
        world.clock.advance(Duration::from_millis(1));
        let held = processes.iter().filter(|process| process.held.is_some()).count();
        if held < HELD_MAX && below(HOLD_ONE_IN) == 0 {
            processes[at].held = Some(number);
            // Another process takes over what it had.
            let acknowledged = lock(&work.acknowledged).clone();
            let open = (0..work.batches.len()).filter(|at| !acknowledged.contains(at) && work.lost != Some(*at));
            lock(&work.jobs).extend(open.map(Job::Save));
            processes.push(start(world, work));
            continue;
        }
        let fault =
            (below(FAULT_ONE_IN) == 0).then(|| Fault::ALL_OUTCOMES[below(Fault::ALL_OUTCOMES.len() as u64) as usize]);
        if matches!(fault, Some(Fault::CrashBefore | Fault::CrashAfter)) {
            processes[at].is_dead.store(true, Ordering::SeqCst);
        }
        processes[at].store.release_one(number, fault);
    }
    panic!("the schedule does not end");
}

/// Saves and forgets what is left, and compares the figures.
async fn check(world: &World, work: &Work, at: &str) -> Figures {
    let storage = open(world.store.clone(), world.sources(2)).await.expect("a storage");
    for (at, batch) in work.batches.iter().enumerate() {
        let is_open = !lock(&work.acknowledged).contains(&at) && work.lost != Some(at);
        if is_open {
            storage.save(batch).await.expect("saved");
            lock(&work.acknowledged).insert(at);
        }
    }
    storage.forget_batches(&ads(), END).await.expect("forgotten");
    storage.trim(KEPT_FROM, u64::MAX, |_| ()).await.expect("removed");
    let verification = storage.verify(None, |_| ()).await.expect("checked");
    assert_eq!(verification.differences, [], "{at}");
    assert!(verification.in_progress == 0 && verification.damaged.is_empty(), "{at}: {verification:?}");
    let stored = stored(&storage).await;
    let expected = work.expected();
    assert!(expected.contains(&stored), "{at}: {stored:?} is none of {expected:?}");
    let nothing = async |collection: &str, filter| {
        let namespace = Namespace::new("counters", collection).expect("a name");
        let left = world.store.find_one(&namespace, filter).await.expect("read");
        assert!(left.is_none(), "{at}: {left:?} is left in {collection}");
    };
    nothing("saving", rawdoc! {}).await;
    nothing("batches", rawdoc! { "saving.first": { "$gt": 0 } }).await;
    nothing("totals", rawdoc! { "folded.month": { "$gt": "" } }).await;
    for collection in ["totals", "days"] {
        nothing(collection, rawdoc! { "deleted": { "$gt": 0 } }).await;
    }
    nothing("days", rawdoc! { "folding": true }).await;
    stored
}

async fn run(seed: u64) {
    let random = Sources::seeded(seed).random;
    let (world, work) = (World::embedded(), Arc::new(Work::new(&*random)));
    let processes = schedule(&world, &work, &*random).await;
    for process in &processes {
        assert!(!process.task.is_finished() || process.held.is_none());
    }
    let before = check(&world, &work, "after all processes but those that are held back").await;
    for mut process in processes {
        while !process.task.is_finished() {
            process.store.release();
            tokio::task::yield_now().await;
            world.clock.advance(Duration::from_millis(1));
        }
        (&mut process.task).await.expect("a process without a failure");
        drop(process.store.deliver_late().await);
    }
    let after = check(&world, &work, "after what was held back and what was late").await;
    assert_eq!(before, after);
}

#[tokio::test]
async fn batches_are_saved_once_whatever_the_order_of_operations() {
    let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    let (first, count) = match number("HANDFAST_SEED") {
        Some(seed) => (seed, 1),
        None => (0, number("HANDFAST_SCHEDULES").unwrap_or(SCHEDULES)),
    };
    for seed in first..first + count {
        let ended = tokio::spawn(run(seed)).await;
        assert!(ended.is_ok(), "seed {seed}: HANDFAST_SEED={seed} runs it again");
    }
}
