//! A process is killed while it writes; whatever it was told is durable must be there again.
//!
//! The test starts itself as a child, which opens the store and writes from several tasks. Each write that was
//! acknowledged is printed. The parent reads the lines, kills the child at a random moment, checks the directory, opens
//! it, and compares. `HANDFAST_KILLS` says how often (default 3, 200 in continuous integration).
//!
//! Each task also has a counter, incremented by writes with tickets: the number of the request is what the counter must
//! be after it. The parent sends again the last one that was acknowledged and the one after it, of which nobody knows
//! whether it was done: the counter must be exact, and the answers those of the first time.
//!
//! That the test can fail is shown by a store that acknowledges before it syncs: it must lose something.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "helpers of tests are tests")]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use bson::rawdoc;
use handfast_embedded::{EmbeddedStore, Options, Repair, check};
use handfast_mql::Code;
use handfast_store::{
    BatchLimit, CreateIndexes, DocumentStore, Find, FindAndModify, Hint, IndexSpec, Insert, Modification, Namespace,
    Random, ReturnDocument, SeededRandom, Sources, Ticket, UpdateSpec,
};

const CHILD_DIRECTORY: &str = "HANDFAST_KILL_TEST_DIRECTORY";
const CHILD_BROKEN: &str = "HANDFAST_KILL_TEST_BROKEN";
/// Tasks that write at the same time.
const WRITERS: u64 = 4;
/// Kills that one directory lives through. Each is followed by a look at everything, which costs more as it grows.
const KILLS_OF_A_LIFE: u64 = 20;

fn namespace() -> Namespace {
    Namespace::new("kill", "c").unwrap()
}

fn kills() -> u64 {
    std::env::var("HANDFAST_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(3)
}

fn options() -> Options {
    // Small buffers, so that kills also hit the writing of data files.
    Options { memory_sync_interval: std::time::Duration::from_secs(3600), ..Options::small() }
}

/// The child's part; as a test of its own it does nothing.
#[tokio::test(flavor = "multi_thread")]
async fn child() {
    let Ok(directory) = std::env::var(CHILD_DIRECTORY) else {
        return;
    };
    let broken = std::env::var(CHILD_BROKEN).is_ok();
    let options = Options { acknowledge_after_sync: !broken, ..options() };
    let store = EmbeddedStore::open(directory, Sources::system().unwrap(), options).await.unwrap();
    let index = CreateIndexes {
        namespace: namespace(),
        indexes: vec![
            IndexSpec { unique: true, ..IndexSpec::new(rawdoc! { "u": 1 }) },
            IndexSpec::new(rawdoc! { "tags": 1 }),
        ],
    };
    store.create_indexes(index).await.unwrap();
    println!("ready");
    let writers: Vec<_> = (0..WRITERS).map(|writer| tokio::spawn(write(store.clone(), writer))).collect();
    for writer in writers {
        writer.await.unwrap();
    }
}

/// Inserts documents and increments a counter, for ever; says each acknowledged write.
async fn write(store: EmbeddedStore, writer: u64) {
    let run = std::process::id();
    let counted = counter(&store, writer).await;
    for n in 0_i64.. {
        let id = format!("{run}-{writer}-{n}");
        let document = rawdoc! {
            "_id": id.as_str(), "u": id.as_str(), "tags": [n % 10, n % 7], "fill": "x".repeat((n % 500) as usize),
        };
        let outcome = store.insert(Insert::new(namespace(), vec![document])).await.unwrap();
        assert!(outcome.errors.is_empty(), "{:?}", outcome.errors);
        println!("insert {id}");
        let n = increment(&store, writer, counted + n + 1).await.unwrap();
        println!("counter {writer} {n}");
    }
}

/// The counter of a task.
async fn counter(store: &EmbeddedStore, writer: u64) -> i64 {
    let find = Find::new(namespace(), rawdoc! { "_id": format!("counter-{writer}") });
    let page = store.find(find).await.unwrap().next_page(BatchLimit::REPLY).await.unwrap();
    page.documents.first().map_or(0, |counter| counter.get_i64("n").unwrap())
}

/// Adds one to the counter of a task, in this request of its session; tells what it is then.
async fn increment(store: &EmbeddedStore, writer: u64, number: i64) -> handfast_store::Result<i64> {
    let ticket = Some(Ticket { session: [writer as u8; 16], number, statement: 0 });
    let modification = Modification::Update {
        update: UpdateSpec::Document(rawdoc! { "$inc": { "n": 1_i64 }, "$set": { "u": format!("c{writer}") } }),
        upsert: true,
        returns: ReturnDocument::After,
        array_filters: Vec::new(),
    };
    let filter = rawdoc! { "_id": format!("counter-{writer}") };
    let request = FindAndModify { ticket, ..FindAndModify::new(namespace(), filter, modification) };
    Ok(store.find_and_modify(request).await?.value.unwrap().get_i64("n").unwrap())
}

fn start(directory: &Path, broken: bool) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "child", "--nocapture", "--test-threads=1"]);
    command.env(CHILD_DIRECTORY, directory).stdout(Stdio::piped()).stderr(Stdio::null());
    if broken {
        command.env(CHILD_BROKEN, "1");
    }
    command.spawn().unwrap()
}

/// What the child was told is durable.
#[derive(Default)]
struct Acknowledged {
    inserted: Vec<String>,
    counters: BTreeMap<String, i64>,
}

impl Acknowledged {
    /// Reads lines until the child has acknowledged so many writes, then kills it and reads the rest.
    fn watch(&mut self, mut child: Child, kill_after: u64) -> u64 {
        let mut acknowledged = 0;
        let mut killed = false;
        for line in BufReader::new(child.stdout.take().unwrap()).lines() {
            let Ok(line) = line else { break };
            match line.split(' ').collect::<Vec<_>>()[..] {
                ["insert", id] => self.inserted.push(id.to_owned()),
                // Acknowledged in order by one task, so the last is the largest.
                ["counter", writer, n] => {
                    let Ok(n) = n.parse() else { continue };
                    self.counters.insert(writer.to_owned(), n);
                }
                _ => continue,
            }
            acknowledged += 1;
            if acknowledged >= kill_after && !killed {
                child.kill().unwrap();
                killed = true;
            }
        }
        child.kill().unwrap();
        child.wait().unwrap();
        acknowledged
    }

    /// What is missing.
    async fn missing(&self, store: &EmbeddedStore) -> Vec<String> {
        let mut there = BTreeMap::new();
        let mut cursor = store.find(Find::new(namespace(), rawdoc! {})).await.unwrap();
        loop {
            let page = cursor.next_page(BatchLimit::REPLY).await.unwrap();
            for document in page.documents {
                let id = document.get_str("_id").unwrap().to_owned();
                there.insert(id, document.get_i64("n").unwrap_or(0));
            }
            if page.exhausted {
                break;
            }
        }
        let inserted = self.inserted.iter().filter(|id| !there.contains_key(*id)).cloned();
        let counters = self
            .counters
            .iter()
            .filter(|(writer, n)| there.get(&format!("counter-{writer}")).is_none_or(|there| there < n));
        inserted.chain(counters.map(|(writer, n)| format!("counter {writer} at {n}"))).collect()
    }
}

impl Acknowledged {
    /// Sends increments again, as a driver does that got no answer. Returns how many were done by the child though it did
    /// not say so.
    async fn send_again(&mut self, store: &EmbeddedStore) -> u64 {
        let mut unsaid = 0;
        for writer in 0..WRITERS {
            let said = self.counters.entry(writer.to_string()).or_default();
            let there = counter(store, writer).await;
            assert!((*said..=*said + 1).contains(&there), "counter {writer}: {said} acknowledged, {there} there");
            unsaid += u64::from(there > *said);
            if *said > 0 {
                match increment(store, writer, *said).await {
                    Ok(first) => assert_eq!(first, *said, "counter {writer}: not the first result"),
                    // The next request took the place of its record.
                    Err(error) => {
                        assert_eq!((error.code(), there), (Code::TransactionTooOld, *said + 1), "{error}");
                    }
                }
            }
            *said += 1;
            for _ in 0..2 {
                assert_eq!(increment(store, writer, *said).await.unwrap(), *said, "counter {writer}");
                assert_eq!(counter(store, writer).await, *said, "counter {writer} is not exact");
            }
        }
        unsaid
    }
}

async fn open(directory: &Path) -> Result<EmbeddedStore, handfast_embedded::Error> {
    EmbeddedStore::open(directory, Sources::seeded(1), options()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_acknowledged_survives_a_kill() {
    let mut directory = tempfile::tempdir().unwrap();
    let mut acknowledged = Acknowledged::default();
    let (mut inserted, mut unsaid) = (0, 0);
    let random = SeededRandom::new(kills());
    for kill in 0..kills() {
        if kill % KILLS_OF_A_LIFE == 0 && kill > 0 {
            directory = tempfile::tempdir().unwrap();
            inserted += std::mem::take(&mut acknowledged).inserted.len();
        }
        let kill_after = 1 + random.next_u64() % 1500;
        let child = start(directory.path(), false);
        let path = directory.path().to_owned();
        let mut known = std::mem::take(&mut acknowledged);
        let watched = tokio::task::spawn_blocking(move || {
            let count = known.watch(child, kill_after);
            (known, count)
        });
        let (known, count) = watched.await.unwrap();
        acknowledged = known;
        assert!(count > 0, "kill {kill}: the child wrote nothing in {}", path.display());
        let report = check(directory.path(), Sources::seeded(1), options(), Repair::No, |_| {}).await.unwrap();
        assert!(report.is_clean(), "kill {kill} after {kill_after}: {:?}", report.findings);
        let store = open(directory.path()).await.unwrap();
        let missing = acknowledged.missing(&store).await;
        assert!(missing.is_empty(), "kill {kill} after {kill_after}: lost {missing:?}");
        unsaid += acknowledged.send_again(&store).await;
        // The unique index finds what the collection has.
        if let Some(id) = acknowledged.inserted.last() {
            let mut find = Find::new(namespace(), rawdoc! { "u": id.as_str() });
            find.hint = Some(Hint::Name("u_1".to_owned()));
            let page = store.find(find).await.unwrap().next_page(BatchLimit::REPLY).await.unwrap();
            assert_eq!(page.documents.len(), 1, "kill {kill}: the index does not find {id}");
        }
        store.close().await.unwrap();
    }
    println!("{} kills, {} inserts acknowledged, none lost", kills(), inserted + acknowledged.inserted.len());
    println!("{unsaid} increments were done without an acknowledgement; sent again, they were not done again");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_acknowledges_before_the_sync_is_caught() {
    for _ in 0..10 {
        let directory = tempfile::tempdir().unwrap();
        let child = start(directory.path(), true);
        let watched = tokio::task::spawn_blocking(move || {
            let mut acknowledged = Acknowledged::default();
            acknowledged.watch(child, 300);
            acknowledged
        });
        let acknowledged = Arc::new(watched.await.unwrap());
        let store = open(directory.path()).await.unwrap();
        if !acknowledged.missing(&store).await.is_empty() {
            return;
        }
        store.close().await.unwrap();
    }
    panic!("ten kills of a store that does not sync, and nothing was lost: this test cannot fail");
}
