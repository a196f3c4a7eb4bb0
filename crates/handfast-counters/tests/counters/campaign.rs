//! A long run of three instances over one Redis and one store, in which all that can fail does: instances die, Redis is killed and started again,
//! the store is away for a while and loses requests and answers at other times.
//!
//! Writers send requests of one to a hundred views. Three of four have a key and are sent again until they are answered, by another instance if
//! theirs has died; those without a key are sent once. In the end each item has exactly the views of the requests that were answered, and
//! at most those in doubt that had no key; its total is the sum of its days; no reader has seen a whole total go back.
//!
//! `HANDFAST_VIEWS` is the number of views (a million if it is not set, of 20,000 requests; twenty million for `scripts/check --long`). The faults come again with each
//! [`ROUND_REQUESTS`] requests.
//!
//! That the run can fail is shown by two broken scripts, which it must not pass. One forgets idempotency keys: the requests of dead instances are
//! counted again, so that a total is too large. The acknowledgement of the other takes views from `pending` and does not add them to the stored
//! total: a cached total is smaller than the stored one, or a reader sees it go back.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use handfast_counters::{
    Counters, CountersOptions, Error, ItemId, RedisBuffer, RedisScripts, Result, Storage, StorageForm, Total,
};
use handfast_store::decorator::{Fault, Faulty, Plan};
use handfast_store::{Applied, DocumentStore, MemoryStore, Sources};
use handfast_txn::{Database, PercolatorOptions};
use tokio::task::{JoinHandle, JoinSet};

use crate::server::RedisServer;
use crate::waiting::PATIENCE;
use crate::world::{ad, ads, key, patient_options};

const INSTANCES: usize = 3;
/// The tasks of each instance that send requests.
const WRITERS: usize = 16;
const ITEMS: u64 = 40;
/// The requests of a round of faults, at most.
const ROUND_REQUESTS: u64 = 8_000;
/// The time between two looks at a condition, and between two passes.
const POLL: Duration = Duration::from_millis(5);
/// The time after which a batch is taken over: short, so that instances which live take each other's batches, too.
const IDLE: Duration = Duration::from_millis(200);
/// The operations of the store between two of which the request or the answer gets lost.
const OPERATIONS_BETWEEN_LOSSES: u64 = 701;
/// The operations of the store between two moments at which it goes away: it does so several times in each round, and whenever it is back.
const OPERATIONS_BETWEEN_OUTAGES: u64 = 600;
/// The faults of a plan: more than a run meets.
const FAULTS_MAX: u64 = 100_000;
/// The looks without a finished request after which the store comes back: a second.
const STANDSTILL_POLLS: u32 = 200;
/// The looks without a finished request after which the run has failed: three minutes.
const STANDSTILL_POLLS_MAX: u32 = 36_000;
/// The passes within which the queue must be empty in the end.
const LAST_PASSES_MAX: usize = 1_000;

/// The runs of which one must catch a broken script: in a short one, no answer may get lost at the wrong moment.
const MUTANT_RUNS_MAX: usize = 10;

/// A disturbance. There are some after each tenth of the requests of a round.
#[derive(Clone, Copy)]
enum Step {
    /// An instance dies, and another one takes its place.
    Kill(usize),
    /// The store is there again, if it was away ([`plan`]).
    StoreIsBack,
    RestartRedis,
}

const ROUND: [&[Step]; 10] = [
    &[],
    &[Step::Kill(0)],
    &[Step::StoreIsBack],
    &[Step::Kill(1)],
    &[Step::StoreIsBack],
    &[Step::RestartRedis],
    &[Step::Kill(2)],
    &[Step::RestartRedis],
    &[Step::StoreIsBack],
    &[Step::Kill(0), Step::Kill(2)],
];

/// The name of an instance: a new one for each start.
type Incarnation = u64;

/// The requests, by their numbers.
struct Ledger(Mutex<Requests>);

struct Requests {
    /// The number of requests.
    all: u64,
    next: u64,
    /// The requests of dead instances that are sent again.
    again: Vec<u64>,
    /// The requests that were taken and are not finished.
    open: BTreeMap<u64, Incarnation>,
    alive: BTreeSet<Incarnation>,
    /// The number of requests that were answered, or are given up in doubt.
    finished: u64,
    in_doubt: u64,
    /// The least and the most views of each item.
    bounds: Vec<(u64, u64)>,
}

fn item_of(number: u64) -> u64 {
    // Some items are viewed more often than others.
    (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) % ITEMS * (number % 3) / 2 % ITEMS
}

fn views_of(number: u64) -> u32 {
    u32::try_from(number % 100).expect("a small number") + 1
}

fn has_key(number: u64) -> bool {
    !(number / 4).is_multiple_of(4)
}

impl Ledger {
    fn new(views: u64) -> Self {
        let bounds = vec![(0, 0); usize::try_from(ITEMS).expect("a count")];
        Ledger(Mutex::new(Requests {
            // A hundred requests have 5,050 views.
            all: (views * 100).div_ceil(5_050),
            next: 0,
            again: Vec::new(),
            open: BTreeMap::new(),
            alive: BTreeSet::new(),
            finished: 0,
            in_doubt: 0,
            bounds,
        }))
    }

    fn lock(&self) -> MutexGuard<'_, Requests> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives an instance a request to send; `None` if there is none now.
    fn take(&self, incarnation: Incarnation) -> Option<u64> {
        let mut requests = self.lock();
        if !requests.alive.contains(&incarnation) {
            return None;
        }
        let number = match requests.again.pop() {
            Some(number) => number,
            None if requests.next < requests.all => {
                requests.next += 1;
                requests.next - 1
            }
            None => return None,
        };
        requests.open.insert(number, incarnation);
        Some(number)
    }

    fn finish(&self, number: u64, incarnation: Incarnation, is_answered: bool) {
        let mut requests = self.lock();
        // What a dead instance had is another one's now.
        if requests.open.get(&number) == Some(&incarnation) {
            requests.finish(number, is_answered);
        }
    }

    /// Gives the open requests of an instance to others, but not those that must not be sent twice.
    fn died(&self, incarnation: Incarnation) {
        let mut requests = self.lock();
        requests.alive.remove(&incarnation);
        let open: Vec<u64> =
            requests.open.iter().filter(|(_, of)| **of == incarnation).map(|(number, _)| *number).collect();
        for number in open {
            if has_key(number) {
                requests.open.remove(&number);
                requests.again.push(number);
            } else {
                requests.finish(number, false);
            }
        }
    }

    fn is_finished(&self) -> bool {
        let requests = self.lock();
        requests.finished == requests.all
    }
}

impl Requests {
    fn finish(&mut self, number: u64, is_answered: bool) {
        self.open.remove(&number);
        self.finished += 1;
        let views = u64::from(views_of(number));
        let bounds = &mut self.bounds[usize::try_from(item_of(number)).expect("an item")];
        bounds.1 += views;
        if is_answered {
            bounds.0 += views;
        } else {
            self.in_doubt += 1;
        }
    }
}

/// The parts that outlive the instances.
#[derive(Clone)]
struct Site {
    server: Arc<RedisServer>,
    scripts: Arc<RedisScripts>,
    form: StorageForm,
    store: Arc<Faulty<MemoryStore>>,
    ledger: Arc<Ledger>,
}

impl Site {
    async fn counters(&self, store: Arc<dyn DocumentStore>, idle: Duration) -> Result<Counters> {
        let sources = Sources::system().expect("sources");
        let storage = match self.form {
            StorageForm::Transactions => {
                let options = PercolatorOptions { lock_ttl: Duration::from_secs(1), ..PercolatorOptions::default() };
                let database = Database::percolator(store, sources.clone(), options).expect("a database");
                Storage::open(database, "counters").await?
            }
            StorageForm::SingleDocuments => Storage::open_single_documents(store, sources.clone(), "counters").await?,
        };
        let options = patient_options();
        let (url, scripts) = (self.server.url(), &self.scripts);
        let buffer =
            RedisBuffer::connect_with_scripts(&url, scripts, storage.clone(), sources.clone(), options).await?;
        let options =
            CountersOptions { batch_events: 500, idle, read_time_max: PATIENCE, ..CountersOptions::default() };
        Ok(Counters::new(Arc::new(buffer), storage, sources, options))
    }

    /// Starts an instance, which tries until the store is there, then saves and sends requests until all are finished.
    fn start(&self, incarnation: Incarnation) -> JoinHandle<()> {
        self.ledger.lock().alive.insert(incarnation);
        let site = self.clone();
        tokio::spawn(async move {
            let counters = loop {
                match site.counters(site.store.clone(), IDLE).await {
                    Ok(counters) => break counters,
                    // The other instances have finished all requests, and the store has gone away once more.
                    Err(_) if site.ledger.is_finished() => return,
                    Err(_) => tokio::time::sleep(POLL).await,
                }
            };
            // Dropped with this task, which ends all of them.
            let mut tasks = JoinSet::new();
            for _ in 0..WRITERS {
                tasks.spawn(write(counters.clone(), Arc::clone(&site.ledger), incarnation));
            }
            tasks.spawn(async move {
                while !site.ledger.is_finished() {
                    // What cannot be saved now waits.
                    drop(counters.flush().await);
                    tokio::time::sleep(POLL).await;
                }
            });
            while let Some(ended) = tasks.join_next().await {
                ended.expect("a task without a failure");
            }
        })
    }
}

async fn write(counters: Counters, ledger: Arc<Ledger>, incarnation: Incarnation) {
    while !ledger.is_finished() {
        let Some(number) = ledger.take(incarnation) else {
            tokio::time::sleep(POLL).await;
            continue;
        };
        let name = if has_key(number) { key(&number.to_string()) } else { None };
        loop {
            match counters.view(ad(&item_of(number).to_string()), views_of(number), name.clone()).await {
                Ok(_) => break ledger.finish(number, incarnation, true),
                Err(Error::Buffer { applied: Applied::Maybe, .. }) if name.is_none() => {
                    break ledger.finish(number, incarnation, false);
                }
                Err(Error::Buffer { .. }) => tokio::time::sleep(POLL).await,
                Err(other) => panic!("{other}"),
            }
        }
    }
}

/// Reads all totals over and over, until the requests are finished: no whole total goes back.
async fn read(counters: Counters, ledger: Arc<Ledger>) -> u64 {
    let ids: Vec<ItemId> = (0..ITEMS).map(|id| ad(&id.to_string()).id).collect();
    let (mut last, mut reads) = (vec![0; ids.len()], 0);
    while !ledger.is_finished() {
        // While Redis or the store is away, there may be nothing to read.
        let totals = counters.totals(&ads(), &ids).await.unwrap_or_default();
        for (at, total) in totals.into_iter().enumerate() {
            if !total.partial {
                assert!(total.views >= last[at], "item {at} went back from {} to {}", last[at], total.views);
                last[at] = total.views;
                reads += 1;
            }
        }
        tokio::time::sleep(POLL).await;
    }
    reads
}

/// Waits until so many requests are finished. If the store is away, and no instance has seen it yet, nothing is finished: then it comes back.
async fn wait_for(site: &Site, due: u64, instances: &[(Incarnation, JoinHandle<()>)]) {
    let (mut last, mut polls) = (0, 0);
    loop {
        let finished = site.ledger.lock().finished;
        if finished >= due {
            return;
        }
        if let Some((_, ended)) =
            instances.iter().find(|(_, task)| task.is_finished()).filter(|_| !site.ledger.is_finished())
        {
            panic!("an instance has failed: {ended:?}");
        }
        polls = if finished == last { polls + 1 } else { 0 };
        last = finished;
        assert!(polls < STANDSTILL_POLLS_MAX, "{finished} requests are finished, and for minutes no other one");
        if polls > STANDSTILL_POLLS {
            site.store.restart();
        }
        tokio::time::sleep(POLL).await;
    }
}

/// Lets happen what is due when so many requests are finished, until all are.
async fn disturb(site: &Site, mut instances: Vec<(Incarnation, JoinHandle<()>)>) {
    let all = site.ledger.lock().all;
    let round = all.min(ROUND_REQUESTS);
    let mut incarnation = INSTANCES as u64;
    for tenth in 1.. {
        let due = tenth * round / 10;
        wait_for(site, due.min(all), &instances).await;
        if due >= all {
            break;
        }
        for step in ROUND[usize::try_from(tenth % 10).expect("a tenth")] {
            match *step {
                Step::Kill(slot) => {
                    let (dead, task) = &instances[slot];
                    task.abort();
                    site.ledger.died(*dead);
                    instances[slot] = (incarnation, site.start(incarnation));
                    incarnation += 1;
                }
                Step::StoreIsBack => site.store.restart(),
                Step::RestartRedis => {
                    site.server.kill();
                    tokio::time::sleep(POLL).await;
                    site.server.restart().await;
                }
            }
        }
    }
    site.store.restart();
    for (_, task) in instances {
        task.await.expect("an instance without a failure");
    }
    // It may have gone away once more, which ends here.
    site.store.restart();
}

/// Saves what is left, and compares all figures with what was answered.
async fn check(site: &Site) {
    let counters = site.counters(site.store.inner().clone(), Duration::ZERO).await.expect("counters");
    let mut passes = 0;
    loop {
        counters.flush().await.expect("saved");
        let depth = counters.buffer().depth(&ads()).await.expect("a depth");
        if (depth.pending, depth.batches) == (0, 0) {
            break;
        }
        passes += 1;
        assert!(passes < LAST_PASSES_MAX, "the queue does not get empty: {depth:?}");
    }
    let verification = counters.storage().verify(None, |_| ()).await.expect("checked");
    assert_eq!(verification.differences, []);
    let bounds = site.ledger.lock().bounds.clone();
    let ids: Vec<ItemId> = (0..ITEMS).map(|id| ad(&id.to_string()).id).collect();
    let stored = counters.storage().totals(&ads(), &ids).await.expect("totals");
    let totals = counters.totals(&ads(), &ids).await.expect("totals");
    for (at, (least, most)) in bounds.iter().enumerate() {
        let (stored, total) = (stored[at], totals[at]);
        assert!((*least..=*most).contains(&stored), "item {at} has {stored} views, and must have {least} to {most}");
        assert_eq!(total, Total { views: stored, partial: false }, "item {at}");
    }
    assert_eq!(verification.views, stored.iter().sum::<u64>());
}

/// The faults of the store, by the number of the operation.
fn plan() -> Plan {
    let losses = (1..FAULTS_MAX).map(|time| {
        let fault = if time.is_multiple_of(2) { Fault::LoseReply } else { Fault::LoseRequest };
        (time * OPERATIONS_BETWEEN_LOSSES, fault)
    });
    let outages = (1..FAULTS_MAX).map(|time| (time * OPERATIONS_BETWEEN_OUTAGES, Fault::CrashBefore));
    Plan::explicit(losses.chain(outages))
}

/// The long run with these steps of the buffer. Returns how many whole totals were read.
async fn run(server: RedisServer, scripts: RedisScripts, form: StorageForm, views: u64) -> u64 {
    let store = Arc::new(MemoryStore::new(Sources::system().expect("sources")));
    let site = Site {
        server: Arc::new(server),
        scripts: scripts.into(),
        form,
        store: Arc::new(Faulty::new(store, plan())),
        ledger: Arc::new(Ledger::new(views)),
    };
    let instances = (0..INSTANCES as u64).map(|incarnation| (incarnation, site.start(incarnation))).collect();
    let counters = site.counters(site.store.inner().clone(), IDLE).await.expect("counters");
    let reading = tokio::spawn(read(counters, Arc::clone(&site.ledger)));
    disturb(&site, instances).await;
    let reads = reading.await.unwrap_or_else(|failure| std::panic::resume_unwind(failure.into_panic()));
    check(&site).await;
    let injected = site.store.injected();
    let outages = injected.iter().filter(|met| met.fault == Fault::CrashBefore).count();
    let Requests { all: requests, in_doubt, .. } = *site.ledger.lock();
    println!(
        "{form:?}: {views} views in {requests} requests, {in_doubt} in doubt, {reads} totals read, {} faults and {outages} outages of the store",
        injected.len() - outages,
    );
    assert!(outages > 0, "the store was never away");
    assert!(in_doubt < requests / 10, "{in_doubt} requests are in doubt");
    reads
}

async fn long_run(form: StorageForm) {
    let views = std::env::var("HANDFAST_VIEWS").ok().and_then(|views| views.parse().ok()).unwrap_or(1_000_000);
    if let Some(server) = RedisServer::start_with("always").await {
        assert!(run(server, RedisScripts::default(), form, views).await > 0, "nothing was read");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ext_redis_a_long_run_counts_what_was_answered_once() {
    long_run(StorageForm::Transactions).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ext_redis_a_long_run_without_transactions_counts_what_was_answered_once() {
    long_run(StorageForm::SingleDocuments).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ext_redis_a_long_run_catches_broken_scripts() {
    let mutants = [
        (
            "keys are forgotten",
            "KEYS[5], '1', 'PX', ARGV[5], 'NX')",
            "KEYS[5], '1', 'PX', ARGV[5])",
            "views, and must have",
        ),
        ("acknowledged views leave the total", "if entry.s ~= '' then entry.s = sum(entry.s, views) end", "", "item "),
    ];
    for (name, right, wrong, failure) in mutants {
        let RedisScripts { count, steps } = RedisScripts::default();
        let scripts = RedisScripts { count: count.replacen(right, wrong, 1), steps: steps.replacen(right, wrong, 1) };
        assert_ne!(scripts, RedisScripts::default(), "{name}");
        let mut caught = None;
        for _ in 0..MUTANT_RUNS_MAX {
            let Some(server) = RedisServer::start_with("always").await else { return };
            caught = tokio::spawn(run(server, scripts.clone(), StorageForm::Transactions, 400_000)).await.err();
            if caught.is_some() {
                break;
            }
        }
        let caught = caught.expect(name).into_panic();
        let message = caught.downcast_ref::<String>().expect("a message");
        assert!(message.contains(failure), "{name}: {message}");
    }
}
