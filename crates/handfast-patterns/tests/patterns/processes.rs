//! Runs each pattern in three processes at once, through our own server, and kills them while they work (SIGKILL,
//! without a warning).
//!
//! ```text
//! each round:   start p1, p2, p3 ── until each has made progress ── kill one ── the others go on ── kill them, too
//!               count what is left behind ── recover, in a process of its own ── check
//! ```
//!
//! A process is this test program itself, which runs only the test `child` and gets its task from the environment. The
//! tests assert that something was left behind over all rounds, because kills that interrupt nothing test nothing. The
//! clock is the machine's, and leases are short, so that recoveries run beside processes that still work.

mod exactly_once;
mod job_queue;
mod sync_flag;
mod versioned_tree;

use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use bson::{Document, rawdoc};
use handfast_mongodb::{ConnectOptions, connect};
use handfast_patterns::Result;
use handfast_server::{Address, Listeners, Server};
use handfast_store::{DocumentStore, Find, MemoryStore, Namespace, Sources, StoreExt};
use handfast_txn::Database;

/// The number of processes that work at once.
const PROCESSES: u32 = 3;
/// The number of rounds, each of which kills them all.
const ROUNDS: u32 = 4;
/// The time for which the other processes continue after the first was killed.
const GO_ON: Duration = Duration::from_millis(300);
/// The pause between two checks of the progress of processes.
const PAUSE: Duration = Duration::from_millis(10);
/// The number of checks after which a process counts as hanging: a minute, as a busy machine is slow to start it.
const LOOKS_MAX: u32 = 6000;
/// The lease of workers, so short that recoveries run while processes are killed.
const LEASE: Duration = Duration::from_millis(400);

const CHILD: &str = "HANDFAST_TEST_CHILD";

/// The store, the sources and the name of a process.
#[derive(Clone)]
struct Process {
    store: Arc<dyn DocumentStore>,
    sources: Sources,
    name: String,
}

impl Process {
    async fn connect(uri: &str, name: &str) -> Self {
        let sources = Sources::system().unwrap();
        let store = connect(uri, sources.clone(), ConnectOptions::default()).await.unwrap().store;
        Process { store, sources, name: name.to_owned() }
    }

    fn namespace(&self, collection: &str) -> Namespace {
        Namespace::new("test", collection).unwrap()
    }

    async fn all(&self, collection: &str) -> Vec<Document> {
        let found = self.store.find_all(Find::new(self.namespace(collection), rawdoc! {})).await.unwrap();
        found.iter().map(|document| Document::try_from(&**document).unwrap()).collect()
    }

    /// Reports that the process has made progress.
    async fn progress(&self) -> Result<()> {
        let (id, more) = (rawdoc! { "_id": self.name.as_str() }, rawdoc! { "$inc": { "done": 1 } });
        self.store.upsert_one(&self.namespace("progress"), id, more).await?;
        Ok(())
    }

    /// Returns a random number below `below`.
    fn any(&self, below: u64) -> i32 {
        i32::try_from(self.sources.random.next_u64() % below).unwrap()
    }
}

/// A running process, which is killed when this is dropped.
struct ChildProcess(Child);

impl ChildProcess {
    fn kill(&mut self) {
        let _gone = self.0.kill();
        let _reaped = self.0.wait();
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Our server, and the processes that work through it.
struct Crew {
    role: &'static str,
    uri: String,
    here: Process,
    server: handfast_server::ShutdownHandle,
}

impl Crew {
    async fn new(role: &'static str) -> Self {
        let sources = Sources::system().unwrap();
        let database = Database::local(MemoryStore::new(sources.clone()), sources);
        let listen = Address::Tcp("127.0.0.1:0".parse().unwrap());
        let listeners = Listeners::bind(&[listen]).await.unwrap();
        let server = Server::new(listeners, handfast_server::Options::default(), database);
        let Some(Address::Tcp(address)) = server.addresses().first().cloned() else { panic!("no address") };
        let handle = server.shutdown_handle();
        tokio::spawn(server.run());
        let uri = format!("mongodb://{address}/");
        let here = Process::connect(&uri, "here").await;
        Crew { role, uri, here, server: handle }
    }

    fn start(&self, name: &str) -> ChildProcess {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "processes::child"])
            .env(CHILD, format!("{} {} {name}", self.role, self.uri))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn();
        ChildProcess(child.unwrap())
    }

    /// Starts processes, and kills them one after the other while they work.
    async fn round(&self, round: u32) {
        let names: Vec<_> = (0..PROCESSES).map(|number| format!("p{round}.{number}")).collect();
        let mut processes: Vec<_> = names.iter().map(|name| self.start(name)).collect();
        let mut looks = 0;
        while self.here.all("progress").await.iter().filter(|one| is_one_of(one, &names)).count() < names.len() {
            assert!(looks < LOOKS_MAX, "processes do nothing");
            for process in &mut processes {
                assert!(process.0.try_wait().unwrap().is_none(), "a process has ended by itself");
            }
            looks += 1;
            tokio::time::sleep(PAUSE).await;
        }
        if let Some(first) = processes.first_mut() {
            first.kill();
        }
        tokio::time::sleep(GO_ON).await;
        for process in &mut processes {
            process.kill();
        }
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.server.shutdown();
    }
}

fn is_one_of(progress: &Document, names: &[String]) -> bool {
    progress.get_str("_id").is_ok_and(|name| names.iter().any(|one| one == name))
}

/// The entry point of a process of a crew; it works until it is killed.
#[test]
#[ignore = "the other tests of this module start it"]
fn child() {
    let Ok(order) = std::env::var(CHILD) else { return };
    let mut words = order.split(' ').map(str::to_owned);
    let (role, uri, name) = (words.next().unwrap(), words.next().unwrap(), words.next().unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let process = Process::connect(&uri, &name).await;
        match role.as_str() {
            "job_queue" => job_queue::work(process).await,
            "sync_flag" => sync_flag::work(process).await,
            "versioned_tree" => versioned_tree::work(process).await,
            "exactly_once" => exactly_once::work(process).await,
            _ => panic!("no role is called {role}"),
        }
        .unwrap();
    });
}
