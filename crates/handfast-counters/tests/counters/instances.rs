//! Several instances over one Redis and one store, each with its own transactions: what was answered is counted exactly once, while
//! an instance is killed, and Redis as well.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use handfast_counters::{Counters, CountersOptions, Owner, RedisBuffer, Saved, Storage, StorageForm};
use handfast_store::{DocumentStore, MemoryStore, Sources};
use handfast_txn::{Database, PercolatorOptions};
use tokio::task::JoinHandle;

use crate::imports::{Line, add};
use crate::server::RedisServer;
use crate::waiting::{PATIENCE, until, until_ok};
use crate::world::{World, ad, ads, broken_scripts, first_day, key, patient_options, save_all, total, whole};

const ITEMS: usize = 5;
/// The requests of each instance.
const REQUESTS: usize = 240;
/// The tasks of each instance that send requests.
const WRITERS: usize = 4;
/// The lines of an import, in batches of few.
const IMPORTED: usize = 120;
/// The time between two looks at a condition, and between two passes.
const POLL: Duration = Duration::from_millis(5);
/// The time after which a batch is taken over; no test runs that long.
const IDLE: Duration = Duration::from_secs(3_600);

/// The number of killed imports after which the test fails, because the import makes no progress.
const KILLS_MAX: u32 = 100;

/// The requests that were answered, by the names of their keys.
type Answered = Arc<Mutex<BTreeSet<String>>>;

/// An instance with tasks that save and tasks that write.
struct Instance {
    counters: Counters,
    requests: Vec<(String, String)>,
    writers: Vec<JoinHandle<()>>,
    flusher: JoinHandle<()>,
}

impl Instance {
    async fn start(name: &str, server: &RedisServer, store: &Site, idle: Duration, answered: &Answered) -> Self {
        let counters = counters(server, store, idle).await;
        let requests: Vec<_> =
            (0..REQUESTS).map(|number| ((number % ITEMS).to_string(), format!("{name}{number}"))).collect();
        let writers = (0..WRITERS).map(|writer| {
            let mine: Vec<_> = requests.iter().skip(writer).step_by(WRITERS).cloned().collect();
            let (counters, answered) = (counters.clone(), Arc::clone(answered));
            tokio::spawn(async move { send(&counters, &mine, &answered).await })
        });
        let writers = writers.collect();
        let saving = counters.clone();
        let flusher = tokio::spawn(async move {
            loop {
                // Redis may be away: the views wait.
                drop(saving.flush().await);
                tokio::time::sleep(POLL).await;
            }
        });
        Instance { counters, requests, writers, flusher }
    }

    /// Ends all tasks wherever they are, and returns the requests that were not answered.
    fn kill(self, answered: &Answered) -> Vec<(String, String)> {
        self.flusher.abort();
        self.writers.iter().for_each(JoinHandle::abort);
        let answered = answered.lock().expect("the answers");
        self.requests.into_iter().filter(|(_, name)| !answered.contains(name)).collect()
    }

    async fn finish(self) -> Counters {
        for writer in self.writers {
            writer.await.expect("ended");
        }
        self.flusher.abort();
        self.counters
    }
}

/// The store that the instances share, and the way in which they save batches.
struct Site {
    store: Arc<dyn DocumentStore>,
    form: StorageForm,
}

impl Site {
    fn new(form: StorageForm) -> Self {
        Site { store: Arc::new(MemoryStore::new(Sources::system().expect("sources"))), form }
    }

    async fn storage(&self, sources: &Sources) -> Storage {
        let store = Arc::clone(&self.store);
        let storage = match self.form {
            StorageForm::Transactions => {
                let options = PercolatorOptions { lock_ttl: Duration::from_secs(1), ..PercolatorOptions::default() };
                let database = Database::percolator(store, sources.clone(), options).expect("a database");
                Storage::open(database, "counters").await
            }
            StorageForm::SingleDocuments => Storage::open_single_documents(store, sources.clone(), "counters").await,
        };
        storage.expect("a storage")
    }
}

async fn counters(server: &RedisServer, site: &Site, idle: Duration) -> Counters {
    let sources = Sources::system().expect("sources");
    let storage = site.storage(&sources).await;
    let buffer = RedisBuffer::connect(&server.url(), storage.clone(), sources.clone(), patient_options()).await;
    let buffer = buffer.expect("a buffer");
    let options = CountersOptions { batch_events: 20, idle, read_time_max: PATIENCE, ..CountersOptions::default() };
    Counters::new(Arc::new(buffer), storage, sources, options)
}

/// Sends each request again with its key until it is answered.
async fn send(counters: &Counters, requests: &[(String, String)], answered: &Answered) {
    for (id, name) in requests {
        until_ok("a view", || async { counters.view(ad(id), 1, key(name)).await }).await;
        answered.lock().expect("the answers").insert(name.clone());
    }
}

/// Waits until so many requests were answered, which these instances send.
async fn until_answered(answered: &Answered, count: usize, instances: &[&Instance]) {
    until("answers", || {
        let have_ended = instances.iter().flat_map(|instance| &instance.writers).all(JoinHandle::is_finished);
        let answers = answered.lock().expect("the answers").len();
        assert!(answers >= count || !have_ended, "all writers have ended after {answers} answers");
        answers >= count
    })
    .await;
}

/// Reads totals until it is told to stop: no whole total goes back.
fn reader(counters: Counters, stop: Arc<AtomicBool>) -> JoinHandle<u64> {
    tokio::spawn(async move {
        let (mut last, mut reads) = ([0; ITEMS], 0);
        while !stop.load(Ordering::SeqCst) {
            for (item, last) in last.iter_mut().enumerate() {
                let total = total(&counters, &item.to_string()).await;
                if !total.partial {
                    assert!(total.views >= *last, "item {item} went back from {last} to {}", total.views);
                    *last = total.views;
                    reads += 1;
                }
            }
            tokio::time::sleep(POLL).await;
        }
        reads
    })
}

async fn check(counters: &Counters, requests: usize) {
    save_all(counters).await;
    let mut views = 0;
    for item in 0..ITEMS {
        let total = total(counters, &item.to_string()).await;
        assert!(!total.partial, "{total:?}");
        views += total.views;
    }
    assert_eq!(views, requests as u64, "what was answered was counted, once");
    let depth = counters.buffer().depth(&ads()).await.expect("a depth");
    assert_eq!((depth.pending, depth.batches), (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ext_redis_three_instances_count_each_view_once_while_one_and_redis_are_killed() {
    count_while_some_are_killed(StorageForm::Transactions).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ext_redis_three_instances_without_transactions_count_each_view_once_while_one_and_redis_are_killed() {
    count_while_some_are_killed(StorageForm::SingleDocuments).await;
}

async fn count_while_some_are_killed(form: StorageForm) {
    let Some(server) = RedisServer::start_with("always").await else { return };
    let store = Site::new(form);
    let answered = Answered::default();
    let first = Instance::start("a", &server, &store, IDLE, &answered).await;
    let second = Instance::start("b", &server, &store, IDLE, &answered).await;
    let third = Instance::start("c", &server, &store, IDLE, &answered).await;
    let stop = Arc::new(AtomicBool::new(false));
    let reading = reader(first.counters.clone(), Arc::clone(&stop));

    until_answered(&answered, REQUESTS / 4, &[&first, &second, &third]).await;
    // The second instance dies, and two of its kind that had claimed a batch, one of which had saved it.
    let buffer = Arc::clone(second.counters.buffer());
    let storage = second.counters.storage().clone();
    let mut left = second.kill(&answered);
    let sources = Sources::seeded(9);
    let mut claimed = Vec::new();
    while claimed.len() < 2 {
        // There is a view to claim, also if the others have no request left. A client without an answer asks another instance.
        let request = left.pop().expect("two of the requests can be claimed");
        send(&third.counters, &[request], &answered).await;
        claimed.extend(buffer.claim(&ads(), &Owner::new(&sources), 5).await.expect("claimed"));
    }
    assert_eq!(storage.save(&claimed[0]).await.expect("saved"), Saved::Now);
    drop((buffer, storage));

    until_answered(&answered, REQUESTS, &[&first, &third]).await;
    server.kill();
    tokio::time::sleep(POLL).await;
    server.restart().await;

    send(&third.counters, &left, &answered).await;
    let (first, third) = (first.finish().await, third.finish().await);
    assert_eq!(answered.lock().expect("the answers").len(), 3 * REQUESTS);
    let waiting = first.buffer().depth(&ads()).await.expect("a depth").batches;
    assert!(waiting >= 2, "the batches of the dead wait: {waiting}");
    server.move_batches(-i64::try_from(IDLE.as_millis()).expect("a time")).await;
    third.flush().await.expect("saved");
    check(&first, 3 * REQUESTS).await;
    stop.store(true, Ordering::SeqCst);
    assert!(reading.await.expect("no total went back") > 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ext_redis_instances_that_take_each_other_s_batches_count_each_view_once() {
    take_each_other_s_batches(StorageForm::Transactions).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ext_redis_instances_without_transactions_that_take_each_other_s_batches_count_each_view_once() {
    take_each_other_s_batches(StorageForm::SingleDocuments).await;
}

async fn take_each_other_s_batches(form: StorageForm) {
    let Some(server) = RedisServer::start_with("no").await else { return };
    let store = Site::new(form);
    let answered = Answered::default();
    let first = Instance::start("a", &server, &store, Duration::ZERO, &answered).await;
    let second = Instance::start("b", &server, &store, Duration::ZERO, &answered).await;
    let (first, second) = (first.finish().await, second.finish().await);
    let flushed = tokio::join!(first.flush(), second.flush());
    flushed.0.and(flushed.1).expect("saved");
    check(&first, 2 * REQUESTS).await;
}

/// The lines of an import of all items: views of days and views without one.
fn lines() -> Vec<Line> {
    let ids = ["0", "1", "2", "3", "4"];
    (0..IMPORTED).map(|number| (ids[number % ITEMS], (number % 3 > 0).then(first_day), 10)).collect()
}

/// Imports are killed at all moments beside three instances, of which one dies, too, and are begun again until one has ended. Readers of two instances see no
/// total go back, and in the end all have the views of the instances and the import.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ext_redis_an_import_that_is_killed_again_and_again_is_counted_once_beside_three_instances() {
    let Some(server) = RedisServer::start_with("no").await else { return };
    let site = Site::new(StorageForm::Transactions);
    let answered = Answered::default();
    let mut instances = Vec::new();
    for name in ["a", "b", "c"] {
        instances.push(Instance::start(name, &server, &site, IDLE, &answered).await);
    }
    let stop = Arc::new(AtomicBool::new(false));
    let readers = [0, 1].map(|at| reader(instances[at].counters.clone(), Arc::clone(&stop)));
    until_answered(&answered, REQUESTS / 4, &instances.iter().collect::<Vec<_>>()).await;
    let step = Duration::from_millis(10);
    let (mut kills, mut lifetime) = (0, step);
    loop {
        assert!(kills < KILLS_MAX, "{kills} kills, and no end: what was added is not known again");
        let counters = counters(&server, &site, Duration::ZERO).await;
        let mut importing = tokio::spawn(async move {
            counters.flush_all().await?;
            add(&counters, "may", &lines()).await
        });
        if let Ok(ended) = tokio::time::timeout(lifetime, &mut importing).await {
            ended.expect("no panic").expect("added");
            break;
        }
        importing.abort();
        kills += 1;
        lifetime += step + lifetime / 20;
        if kills == 2 {
            let left = instances.pop().expect("an instance").kill(&answered);
            send(&instances[0].counters, &left, &answered).await;
        }
    }
    assert!(kills > 0, "no import was killed");
    println!("{kills} imports were killed");
    let mut finished = Vec::new();
    for instance in instances {
        finished.push(instance.finish().await);
    }
    assert_eq!(answered.lock().expect("the answers").len(), 3 * REQUESTS);
    server.move_batches(-i64::try_from(IDLE.as_millis()).expect("a time")).await;
    finished[0].flush().await.expect("saved");
    check(&finished[1], 3 * REQUESTS + 10 * IMPORTED).await;
    stop.store(true, Ordering::SeqCst);
    for reader in readers {
        assert!(reader.await.expect("no total went back") > 0);
    }
}

/// An instance holds a batch with a deletion while the next view of the item is counted, and another instance saves what waits.
async fn save_beside_a_deletion(world: World) {
    let (holds, saves) = (world.healthy(1).await, world.healthy(2).await);
    holds.view(ad("7"), 5, None).await.expect("counted");
    save_all(&holds).await;
    holds.delete(&ad("7"), None).await.expect("deleted");
    let owner = Owner::new(&world.sources(5));
    let batch = holds.buffer().claim(&ads(), &owner, 5).await.expect("claimed").expect("a batch");
    assert_eq!(saves.view(ad("7"), 3, None).await.expect("counted"), whole(3));
    let other = Owner::new(&world.sources(6));
    while let Some(waiting) = saves.buffer().claim(&ads(), &other, 5).await.expect("claimed") {
        saves.storage().save(&waiting).await.expect("saved");
        saves.buffer().acknowledge(&waiting).await.expect("acknowledged");
    }
    assert_eq!(holds.storage().save(&batch).await.expect("saved"), Saved::Now);
    holds.buffer().acknowledge(&batch).await.expect("acknowledged");
    save_all(&saves).await;
    assert_eq!(saves.storage().totals(&ads(), &[ad("7").id]).await.expect("totals"), [3]);
    assert_eq!(total(&holds, "7").await, whole(3));
}

#[tokio::test]
async fn ext_redis_a_view_behind_a_deletion_is_saved_behind_it() {
    if let Some(world) = World::redis().await {
        save_beside_a_deletion(world).await;
    }
}

#[tokio::test]
async fn ext_redis_a_claim_that_does_not_wait_for_deletions_is_caught() {
    let Some(world) = World::redis().await else { return };
    let (right, wrong) = ("if is_deleting and redis.call('SISMEMBER'", "if false and redis.call('SISMEMBER'");
    let broken = World { scripts: broken_scripts("a claim does not wait for deletions", right, wrong), ..world };
    assert!(tokio::spawn(save_beside_a_deletion(broken)).await.is_err());
}
