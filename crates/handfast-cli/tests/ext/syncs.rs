//! The syncs of a server, counted as system calls by `strace`: what the engine says of itself (`EmbeddedStore::costs`) counts calls of a
//! function, and would not see a second sync beneath it, nor that there is none.

use std::path::PathBuf;
use std::sync::Arc;

use bson::rawdoc;
use handfast_mongodb::{ConnectOptions, connect};
use handfast_store::{DocumentStore, Namespace, Sources, StoreExt};

use crate::support::{Handfast, Tool, skipped_unless_ci, wait_until};

/// The system calls that make something durable.
const SYNCS: [&str; 6] = ["fsync", "fdatasync", "sync_file_range", "syncfs", "sync", "msync"];
/// Documents that are inserted, updated and deleted, one after the other.
const DOCUMENTS: i32 = 20;
/// Writes of one document: of those three kinds.
const WRITES: usize = 3 * DOCUMENTS as usize;
/// Clients that write at the same time.
const CLIENTS: i32 = 8;
/// The time until `strace` has written a system call.
const WRITTEN_DOWN_SECONDS_MAX: u64 = 10;

/// Looks in a row that find as many calls as the one before, until all are taken to be written down.
const SAME_LOOKS: usize = 10;

/// The output of `strace`.
struct Trace {
    path: PathBuf,
}

impl Trace {
    /// A command line that runs a program under `strace`, which is no parent of it. None, aloud, where that is not possible.
    fn prefix(&self) -> Option<Vec<String>> {
        let strace = Tool::Strace.find()?;
        let works = std::process::Command::new(&strace).args(["-o", "/dev/null", "true"]).output();
        if !works.as_ref().is_ok_and(|output| output.status.success()) {
            skipped_unless_ci(&format!("strace may not trace here: {works:?}"));
            return None;
        }
        let calls = format!("trace={}", SYNCS.join(","));
        let path = self.path.to_string_lossy();
        Some([&strace, "-D", "-f", "-qq", "-o", &path, "-e", &calls].map(str::to_owned).to_vec())
    }

    /// The calls so far.
    fn count(&self) -> usize {
        let trace = std::fs::read_to_string(&self.path).expect("a trace");
        let is_call = |line: &&str| SYNCS.iter().any(|call| line.contains(&format!(" {call}(")));
        trace.lines().filter(is_call).count()
    }

    /// Returns the number of calls, when it is at least `due` and no longer grows: strace writes a call down a moment after it is made.
    fn settled(&self, due: usize) -> usize {
        let (mut last, mut same) = (0, 0);
        let _settled = wait_until(WRITTEN_DOWN_SECONDS_MAX, || {
            let count = self.count();
            same = if count == last { same + 1 } else { 0 };
            last = count;
            count >= due && same >= SAME_LOOKS
        });
        last
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        let _removed = std::fs::remove_file(&self.path);
    }
}

#[test]
fn ext_syncs_of_single_writes() {
    let trace = Trace { path: std::env::temp_dir().join(format!("handfast-ext-syncs-{}.txt", std::process::id())) };
    let Some(prefix) = trace.prefix() else { return };
    let server = Handfast::started_by(&prefix);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("a runtime");
    runtime.block_on(async {
        let sources = Sources::system().expect("randomness");
        let connection = connect(&server.uri(), sources, ConnectOptions::default()).await.expect("a connection");
        let store = connection.store;
        // The first write makes the collection.
        store.insert_one(&items(), rawdoc! { "_id": "first" }).await.expect("inserted");

        let before = trace.settled(1);
        assert!(before > 0, "a new store is synced: the trace is empty");
        write_one_by_one(&*store).await;
        let after = trace.settled(before + WRITES);
        let syncs = after - before;
        println!("{WRITES} writes, one after the other: {syncs} syncs");
        assert_eq!(syncs, WRITES, "each is synced before it is acknowledged, once");

        let before = after;
        let clients = (0..CLIENTS).map(|client| tokio::spawn(update_some(store.clone(), client)));
        for client in clients.collect::<Vec<_>>() {
            client.await.expect("a client");
        }
        let (each, writes) = (DOCUMENTS as usize, (CLIENTS * DOCUMENTS) as usize);
        let after = trace.settled(before + each);
        let syncs = after - before;
        println!("{writes} writes of {CLIENTS} clients at the same time: {syncs} syncs");
        // Each client waits for its write before it sends the next one.
        assert!((each..=writes).contains(&syncs), "{syncs} syncs for {writes} writes");

        // Not each request is a sync.
        for id in 0..DOCUMENTS {
            assert!(store.find_one(&items(), rawdoc! { "_id": id }).await.expect("looked for").is_none());
        }
        assert_eq!(trace.settled(after) - after, 0, "{DOCUMENTS} finds take no sync");
    });
    server.stop();
}

fn items() -> Namespace {
    Namespace::new("shop", "items").expect("a name")
}

/// Inserts, updates and deletes documents, each as a request that is acknowledged before the next one is sent.
async fn write_one_by_one(store: &dyn DocumentStore) {
    for id in 0..DOCUMENTS {
        store.insert_one(&items(), rawdoc! { "_id": id, "stock": 5 }).await.expect("inserted");
    }
    for id in 0..DOCUMENTS {
        let updated = store.update_one(&items(), rawdoc! { "_id": id }, rawdoc! { "$inc": { "stock": -1 } }).await;
        assert_eq!(updated.expect("updated").matched, 1);
    }
    for id in 0..DOCUMENTS {
        assert!(store.delete_one(&items(), rawdoc! { "_id": id }).await.expect("deleted"));
    }
}

/// Updates a document of this client's, again and again.
async fn update_some(store: Arc<dyn DocumentStore>, client: i32) {
    for _ in 0..DOCUMENTS {
        let change = rawdoc! { "$inc": { "sold": 1 } };
        store.upsert_one(&items(), rawdoc! { "_id": format!("of {client}") }, change).await.expect("updated");
    }
}
