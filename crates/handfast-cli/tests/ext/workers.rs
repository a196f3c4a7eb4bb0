//! Workers in Python, Node and Rust on one queue of a real server, which are killed at work (SIGKILL), as the server is.
//!
//! ```text
//! "mail"    Python, Node         a document in `sent`, in the transaction that completes the job and enqueues a job "count"
//! "count"   Python, Node, Rust   {$inc: {mails: 1}} of a document in `boxes`, guarded by a mark with the job and the number of its claims
//! ```
//!
//! A process is killed when it has jobs, so that it leaves them. The test counts kills and jobs, never time: its bounds only end a run that hangs.
//! The Rust worker is this test program itself, which runs only the test `rust_worker`.

use std::collections::BTreeMap;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::time::Duration;

use bson::{Document, doc, rawdoc};
use handfast_mongodb::{ConnectOptions, connect};
use handfast_patterns::job_queue::{Backoff, JobState, NewJob};
use handfast_patterns::{
    CancellationToken, Change, ExactlyOnce, JobError, JobQueue, JobQueueOptions, RunnerOptions, UpdateOutcome, Worker,
    WorkerOptions,
};
use handfast_store::{DocumentStore, Find, Namespace, Sources, StoreExt};

use crate::support::{Handfast, Tool};

/// The times that each language's worker is killed, at least. The server is killed as often.
const KILLS: usize = 3;
/// Limit on those times, if a worker has always ended its jobs in the moment before.
const KILLS_MAX: usize = 20;
/// The jobs "mail" that are enqueued before each kill, and again if all are done before it.
const MAILS: usize = 20;
/// The documents that count mails.
const BOXES: usize = 4;
/// The time after which a silent worker loses its jobs: short, so that it happens beside workers that live.
const LEASE: Duration = Duration::from_secs(1);
/// The pause between two looks.
const PAUSE: Duration = Duration::from_millis(10);
/// The looks after which something has not happened: some minutes, for a busy machine.
const LOOKS_MAX: usize = 20_000;
/// The attempts at a request of the test itself, while the server starts again.
const ATTEMPTS_MAX: usize = 50;

/// The name and the server of the Rust worker.
const CHILD: &str = "HANDFAST_TEST_WORKER";

/// The languages of workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Language {
    Python,
    Node,
    Rust,
}

/// A process that works on the queue, until it is killed or dropped.
struct WorkerProcess {
    name: String,
    child: Child,
}

impl WorkerProcess {
    fn start(server: &Handfast, language: Language, name: String) -> Option<Self> {
        let python = ["tests/clients/python/worker.py", &name];
        let node = ["tests/clients/node/worker.mjs", &name];
        let rust = ["--ignored", "--exact", "workers::rust_worker"];
        let mut command = match language {
            Language::Python => server.command(&Tool::Python.find()?, &python),
            Language::Node => server.command(&Tool::Node.find()?, &node),
            Language::Rust => {
                let this = std::env::current_exe().expect("this program");
                let mut command = server.command(&this.to_string_lossy(), &rust);
                command.env(CHILD, &name).stdout(Stdio::null());
                command
            }
        };
        let child = command.current_dir(crate::support::root()).stdin(Stdio::null()).spawn().expect("a worker");
        Some(WorkerProcess { name, child })
    }

    fn must_live(&mut self) {
        let ended = self.child.try_wait().expect("a child to wait for");
        assert!(ended.is_none(), "{} has ended by itself: {ended:?}", self.name);
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// The queue as the test itself uses it.
struct Shop {
    store: Arc<dyn DocumentStore>,
    queue: JobQueue,
    enqueued: usize,
}

impl Shop {
    async fn open(uri: &str) -> Self {
        let sources = Sources::system().expect("randomness");
        let store = connect(uri, sources.clone(), ConnectOptions::default()).await.expect("a connection").store;
        let backoff = Backoff { first: PAUSE, longest: LEASE, jitter: 0.0 };
        // The kills are no fault of the jobs.
        let options = JobQueueOptions {
            lease: LEASE,
            crashes_max: 1000,
            attempts_max: 1000,
            backoff,
            ..JobQueueOptions::default()
        };
        let queue =
            JobQueue::open_with(Arc::clone(&store), namespace("jobs"), sources, options).await.expect("a queue");
        Shop { store, queue, enqueued: 0 }
    }

    /// Enqueues more jobs "mail".
    async fn enqueue(&mut self) {
        for number in self.enqueued..self.enqueued + MAILS {
            let details = doc! { "box": box_of(number) };
            let job = NewJob::new("mail", &details).expect("a job").with_id(format!("mail {number}"));
            let mut attempts = 1;
            while let Err(error) = self.queue.enqueue(job.clone()).await {
                assert!(attempts < ATTEMPTS_MAX, "{error}");
                attempts += 1;
                tokio::time::sleep(PAUSE).await;
            }
        }
        self.enqueued += MAILS;
    }

    /// Returns the documents of a collection that match.
    async fn find(&self, collection: &str, filter: bson::RawDocumentBuf) -> Vec<Document> {
        let mut attempts = 1;
        loop {
            match self.store.find_all(Find::new(namespace(collection), filter.clone())).await {
                Ok(found) => {
                    return found.iter().map(|found| Document::try_from(&**found).expect("a document")).collect();
                }
                Err(error) => assert!(attempts < ATTEMPTS_MAX, "{error}"),
            }
            attempts += 1;
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Returns the number of jobs that a worker has.
    async fn jobs_of(&self, worker: &str) -> usize {
        self.find("jobs", rawdoc! { "state": "PROCESSING", "worker.name": worker }).await.len()
    }

    /// Waits until a worker has jobs. There are always some to claim.
    async fn wait_until_busy(&mut self, worker: &mut WorkerProcess) {
        for _ in 0..LOOKS_MAX {
            worker.must_live();
            if self.jobs_of(&worker.name).await > 0 {
                return;
            }
            if self.find("jobs", rawdoc! { "undone": 1 }).await.is_empty() {
                self.enqueue().await;
            }
            tokio::time::sleep(PAUSE).await;
        }
        panic!("{} claims nothing", worker.name);
    }

    async fn wait_until_all_is_done(&self) {
        for _ in 0..LOOKS_MAX {
            if self.find("jobs", rawdoc! { "undone": 1 }).await.is_empty() {
                return;
            }
            tokio::time::sleep(PAUSE).await;
        }
        panic!("never done: {:?}", self.find("jobs", rawdoc! { "undone": 1 }).await);
    }

    /// Checks that each job was done and had its effect once, and that there is no other job.
    async fn check(&self) {
        let mails: Vec<String> = (0..self.enqueued).map(|number| format!("mail {number}")).collect();
        let mut expected: Vec<String> =
            mails.iter().flat_map(|mail| [mail.clone(), format!("count of {mail}")]).collect();
        let jobs = self.find("jobs", rawdoc! {}).await;
        let done = |job: &&Document| job.get_str("state").is_ok_and(|state| state == JobState::Done.name());
        assert_eq!(sorted(texts(jobs.iter().filter(done), "_id")), sorted(std::mem::take(&mut expected)), "{jobs:?}");
        assert_eq!(jobs.len(), 2 * self.enqueued, "a job that is not done");

        let sent = self.find("sent", rawdoc! {}).await;
        assert_eq!(sorted(texts(sent.iter(), "mail")), sorted(mails), "the mails that were sent");
        for counted in self.find("boxes", rawdoc! {}).await {
            let id = counted.get_str("_id").expect("an id");
            let due = (0..self.enqueued).filter(|number| box_of(*number) == id).count();
            assert_eq!(counted.get("mails").and_then(whole), i64::try_from(due).ok(), "{counted}");
        }
    }

    /// Returns how many jobs each language has done.
    async fn done_by(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for job in self.find("jobs", rawdoc! {}).await {
            let by = job.get_document("result").and_then(|result| result.get_str("by")).expect("who did it");
            let language = by.split(' ').next().unwrap_or_default().to_owned();
            *counts.entry(language).or_default() += 1;
        }
        counts
    }
}

fn namespace(collection: &str) -> Namespace {
    Namespace::new("shop", collection).expect("a name")
}

fn box_of(number: usize) -> String {
    format!("box {}", number % BOXES)
}

fn texts<'a>(documents: impl Iterator<Item = &'a Document>, field: &str) -> Vec<String> {
    documents.map(|document| document.get_str(field).expect("a text").to_owned()).collect()
}

fn sorted(mut texts: Vec<String>) -> Vec<String> {
    texts.sort();
    texts
}

fn whole(value: &bson::Bson) -> Option<i64> {
    value.as_i64().or_else(|| value.as_i32().map(i64::from))
}

#[test]
fn ext_workers_of_three_languages() {
    let (Some(python), Some(_)) = (Tool::Python.find(), Tool::Node.find()) else { return };
    let mut server = Handfast::start();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let mut shop = Shop::open(&server.uri()).await;
        for number in 0..BOXES {
            shop.store
                .insert_one(&namespace("boxes"), rawdoc! { "_id": box_of(number), "mails": 0 })
                .await
                .expect("a box");
        }
        let cancel = CancellationToken::new();
        let often = RunnerOptions { interval: LEASE / 4, ..RunnerOptions::default() };
        let reclaiming = shop.queue.spawn_reclaim(often, &cancel).expect("a sweep");

        let languages = [Language::Python, Language::Node, Language::Rust];
        let start = |server: &Handfast, language: Language, number: usize| {
            WorkerProcess::start(server, language, format!("{language:?} {number}")).expect("a tool that was found")
        };
        let mut workers = languages.map(|language| start(&server, language, 0));
        let mut left = BTreeMap::new();
        for number in 1..=KILLS_MAX {
            for (worker, language) in workers.iter_mut().zip(languages) {
                shop.enqueue().await;
                shop.wait_until_busy(worker).await;
                let killed = std::mem::replace(worker, start(&server, language, number));
                let name = killed.name.clone();
                drop(killed);
                *left.entry(language).or_insert(0) += shop.jobs_of(&name).await;
            }
            shop.enqueue().await;
            for worker in &mut workers {
                shop.wait_until_busy(worker).await;
            }
            server.kill_and_restart();
            if number >= KILLS && left.values().all(|left| *left > 0) {
                break;
            }
        }
        shop.wait_until_all_is_done().await;
        shop.check().await;
        workers.iter_mut().for_each(WorkerProcess::must_live);
        drop(workers);
        reclaiming.stop().await;

        let done = shop.done_by().await;
        println!("{} mails; jobs done by {done:?}; left by killed workers: {left:?}", shop.enqueued);
        assert_eq!(done.len(), languages.len(), "a language has done nothing: {done:?}");
        assert!(left.values().all(|left| *left > 0), "kills that interrupted nothing: {left:?}");
    });
    server.run(&python, &["tests/clients/python/schemas.py", "job-queue.md", "shop.jobs"]);
    server.stop();
}

/// The Rust worker: `Worker` over a connection to the server.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "it is the worker that another test starts and kills"]
async fn rust_worker() {
    let (Ok(name), Ok(uri)) = (std::env::var(CHILD), std::env::var("MONGODB_URI")) else { return };
    let shop = Shop::open(&uri).await;
    let sources = Sources::system().expect("randomness");
    let boxes = ExactlyOnce::open_with(Arc::clone(&shop.store), namespace("boxes"), sources, Default::default());
    let boxes = boxes.await.expect("boxes");
    let options = WorkerOptions { concurrency: 2, poll: PAUSE, ..WorkerOptions::default() };
    let by = name.clone();
    let worker = Worker::new(shop.queue.clone(), name).with_options(options).handle(
        "count",
        move |context, details: Document| {
            let (boxes, by) = (boxes.clone(), by.clone());
            async move {
                let one = Change::increment("mails", 1);
                let outcome = context.guard("count", &boxes, details.get_str("box")?, &one).await?;
                // A worker that has lost its job is told so when it completes it.
                assert!(
                    matches!(outcome, UpdateOutcome::Applied | UpdateOutcome::AlreadyApplied | UpdateOutcome::Fenced),
                    "{outcome:?}"
                );
                Ok::<_, JobError>(doc! { "by": by })
            }
        },
    );
    let cancel = CancellationToken::new();
    let _working = worker.spawn(&cancel).expect("a worker");
    cancel.cancelled().await;
}
