//! Instances under load: they count views of several kinds, save them, and read totals, while a test disturbs Redis.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use handfast_counters::{Counters, CountersOptions, Error, Item, Kind, RedisBuffer, Storage};
use handfast_store::{DocumentStore, MemoryStore, Sources};
use handfast_txn::{Database, PercolatorOptions};
use tokio::task::JoinSet;

use crate::world::{key, patient_options, save_all};

const INSTANCES: usize = 3;
/// The tasks of each instance that send requests to one kind.
const WRITERS: usize = 2;
/// The items of each kind.
const ITEMS: usize = 5;
/// The time between two looks at a condition, between two passes, and between two attempts.
const POLL: Duration = Duration::from_millis(5);
/// The time within which everything that is waited for happens, on a busy machine as well.
const PATIENCE: Duration = Duration::from_secs(120);

/// The views that were answered, by their items.
pub(crate) type Answered = BTreeMap<Item, u64>;

/// Requests that instances send until they are stopped, each again with its key until it is answered.
pub(crate) struct Load {
    pub(crate) counters: Vec<Counters>,
    answered: Arc<Mutex<Answered>>,
    stop: Arc<AtomicBool>,
    writers: JoinSet<()>,
    others: JoinSet<()>,
}

impl Load {
    /// Starts instances over a Redis, which send requests to these kinds. With `reads`, no total that is not partial may go back.
    pub(crate) async fn start(url: &str, kinds: &[&str], reads: bool) -> Self {
        let store: Arc<dyn DocumentStore> = Arc::new(MemoryStore::new(Sources::system().expect("sources")));
        let mut load = Load {
            counters: Vec::new(),
            answered: Arc::default(),
            stop: Arc::default(),
            writers: JoinSet::new(),
            others: JoinSet::new(),
        };
        for instance in 0..INSTANCES {
            let counters = counters(url, &store).await;
            for (kind, writer) in kinds.iter().flat_map(|kind| (0..WRITERS).map(move |writer| (*kind, writer))) {
                let (counters, answered, stop) = (counters.clone(), Arc::clone(&load.answered), Arc::clone(&load.stop));
                let (kind, name) = (kind.to_owned(), format!("{instance}-{writer}"));
                load.writers.spawn(async move { write(&counters, &kind, &name, &answered, &stop).await });
            }
            let saving = counters.clone();
            load.others.spawn(async move {
                loop {
                    // Redis may be away: the views wait.
                    drop(saving.flush().await);
                    tokio::time::sleep(POLL).await;
                }
            });
            load.counters.push(counters);
        }
        for kind in kinds.iter().filter(|_| reads) {
            let (counters, kind) = (load.counters[0].clone(), (*kind).to_owned());
            load.others.spawn(async move { read(&counters, &kind).await });
        }
        load
    }

    /// Returns the views that were answered until now.
    pub(crate) fn answered(&self) -> Answered {
        self.answered.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until so many more views of a kind were answered.
    pub(crate) async fn until_more(&mut self, kind: &str, views: u64) {
        let of_kind = |answered: Answered| -> u64 {
            answered.iter().filter(|(item, _)| item.kind.as_str() == kind).map(|(_, views)| *views).sum()
        };
        let least = of_kind(self.answered()) + views;
        let waiting = async {
            while of_kind(self.answered()) < least {
                tokio::time::sleep(POLL).await;
            }
        };
        tokio::time::timeout(PATIENCE, waiting).await.expect("views are counted");
        self.expect_no_failure();
    }

    fn expect_no_failure(&mut self) {
        for tasks in [&mut self.writers, &mut self.others] {
            if let Some(ended) = tasks.try_join_next() {
                ended.expect("a task without a failure");
            }
        }
    }

    /// Ends all requests with their answers, and saves everything. Returns an instance, and the views that were answered.
    pub(crate) async fn finish(mut self) -> (Counters, Answered) {
        self.stop.store(true, Ordering::SeqCst);
        let writing = async {
            while let Some(ended) = self.writers.join_next().await {
                ended.expect("a task without a failure");
            }
        };
        tokio::time::timeout(PATIENCE, writing).await.expect("all requests are answered");
        self.expect_no_failure();
        self.others.shutdown().await;
        let answered = self.answered();
        // Another one may have had a batch.
        for counters in &self.counters {
            counters.flush().await.expect("saved");
        }
        let counters = self.counters.swap_remove(0);
        save_all(&counters).await;
        for queue in counters.queues().await {
            assert_eq!((queue.depth.pending, queue.depth.batches), (0, 0), "{queue:?}");
        }
        (counters, answered)
    }
}

/// Returns the views that must have been counted after a replica has taken over for the server of a kind: all that were `answered`, but for those of the kind
/// between the moment to which the replica had them and the moment before it took over.
pub(crate) fn surely_counted(answered: &Answered, kind: &str, replicated: &Answered, before: &Answered) -> Answered {
    let unsure = |item: &Item| before.get(item).unwrap_or(&0) - replicated.get(item).unwrap_or(&0);
    let of = |(item, views): (&Item, &u64)| {
        let unsure = if item.kind.as_str() == kind { unsure(item) } else { 0 };
        (item.clone(), views - unsure)
    };
    answered.iter().map(of).collect()
}

/// Compares all totals with what was answered. Of each item, `least` is the number of views that must have been counted.
pub(crate) async fn check(counters: &Counters, least: &Answered, most: &Answered) {
    for (item, most) in most {
        let total = counters.totals(&item.kind, std::slice::from_ref(&item.id)).await.expect("a total")[0];
        let least = least.get(item).copied().unwrap_or(0);
        assert!(
            !total.partial && (least..=*most).contains(&total.views),
            "{item:?} has {total:?}, and must have {least} to {most}"
        );
    }
}

async fn counters(url: &str, store: &Arc<dyn DocumentStore>) -> Counters {
    let sources = Sources::system().expect("sources");
    let options = PercolatorOptions { lock_ttl: Duration::from_secs(1), ..PercolatorOptions::default() };
    let database = Database::percolator(Arc::clone(store), sources.clone(), options).expect("a database");
    let storage = Storage::open(database, "counters").await.expect("a storage");
    let buffer =
        RedisBuffer::connect(url, storage.clone(), sources.clone(), patient_options()).await.expect("a buffer");
    let options = CountersOptions { batch_events: 1_000, read_time_max: PATIENCE, ..CountersOptions::default() };
    Counters::new(Arc::new(buffer), storage, sources, options)
}

/// Sends requests, each again with its key until it is answered.
async fn write(counters: &Counters, kind: &str, name: &str, answered: &Mutex<Answered>, stop: &AtomicBool) {
    for number in 0_usize.. {
        if stop.load(Ordering::SeqCst) {
            return;
        }
        let item = Item::new(kind, &(number % ITEMS).to_string()).expect("an item");
        loop {
            match counters.view(item.clone(), 1, key(&format!("{name}-{number}"))).await {
                Ok(_) => break,
                Err(Error::Buffer { .. }) => tokio::time::sleep(POLL).await,
                Err(other) => panic!("{other}"),
            }
        }
        *answered.lock().unwrap_or_else(PoisonError::into_inner).entry(item).or_default() += 1;
        // More views would only make the queue longer.
        tokio::time::sleep(POLL).await;
    }
}

/// Reads totals over and over: none that is not partial goes back.
async fn read(counters: &Counters, kind: &str) {
    let kind = Kind::new(kind).expect("a kind");
    let ids: Vec<_> = (0..ITEMS).map(|id| Item::new(kind.as_str(), &id.to_string()).expect("an item").id).collect();
    let mut last = [0; ITEMS];
    loop {
        let totals = counters.totals(&kind, &ids).await.unwrap_or_default();
        for (last, total) in last.iter_mut().zip(totals).filter(|(_, total)| !total.partial) {
            assert!(total.views >= *last, "a total of {kind} went back from {last} to {}", total.views);
            *last = total.views;
        }
        tokio::time::sleep(POLL).await;
    }
}
