//! Commits on a server that acknowledges writes before they are synced: a commit with `j: true` or `w: "majority"` is synced.

use std::sync::Arc;

use bson::raw::RawDocumentBuf;
use bson::rawdoc;
use handfast_store::decorator::{Address, Fault, Faulty, Metered, Operation, Plan};
use handfast_store::{Durability, MemoryStore, Sources};
use handfast_txn::Database;

use super::{TRANSIENT, count, first, insert_of, within};
use crate::options::Options;
use crate::testing::{TestServer, error_of, labels};

/// Starts a server with `--durability memory` over a store with these faults, whose operations are counted.
fn in_memory(plan: Plan) -> (TestServer, Arc<Metered<Faulty<MemoryStore>>>) {
    let (sources, clock) = Sources::manual(7);
    let faulty = Faulty::new(Arc::new(MemoryStore::new(sources.clone())), plan);
    let store = Arc::new(Metered::new(faulty, sources.clock.clone()));
    let options = Options { durability: Durability::Memory, ..Options::default() };
    (TestServer::over(Database::local(Arc::clone(&store), sources), clock, options), store)
}

/// Returns how often an operation was started.
fn started(store: &Metered<Faulty<MemoryStore>>, operation: Operation) -> u64 {
    store.report().iter().find(|row| row.operation == operation).map_or(0, |row| row.started)
}

fn commit_with(concern: RawDocumentBuf) -> RawDocumentBuf {
    within(rawdoc! { "commitTransaction": 1, "writeConcern": concern }, 1, 1)
}

/// The write concern of the commit counts, and not that of its statements; it counts each time that the commit is sent.
#[tokio::test]
async fn a_commit_is_synced_if_its_write_concern_asks_for_it() {
    for (concern, flushes) in [
        (rawdoc! {}, 0),
        (rawdoc! { "w": 1 }, 0),
        (rawdoc! { "j": false }, 0),
        (rawdoc! { "j": true }, 1),
        (rawdoc! { "w": "majority" }, 1),
        (rawdoc! { "w": 1, "j": true }, 1),
    ] {
        let (mut server, store) = in_memory(Plan::none());
        let mut client = server.connect();
        client.run("d", first(insert_of(1), 1, 1)).await;
        assert_eq!((started(&store, Operation::Commit), started(&store, Operation::Flush)), (0, 0));
        for repetition in 1..=2 {
            let reply = client.run("admin", commit_with(concern.clone())).await;
            assert_eq!(reply, rawdoc! { "ok": 1.0 }, "{concern:?}");
            let counts = (started(&store, Operation::Commit), started(&store, Operation::Flush));
            assert_eq!(counts, (1, flushes * repetition), "{concern:?}");
        }
    }
}

/// The transaction has committed and is not on the disk, so its client must not learn that it is durable.
#[tokio::test]
async fn a_commit_that_cannot_be_synced_fails() {
    let (mut server, store) = in_memory(Plan::at_request(Address::first(Operation::Flush), Fault::LoseRequest));
    let mut client = server.connect();
    client.run("d", first(insert_of(1), 1, 1)).await;
    let reply = client.run("admin", commit_with(rawdoc! { "j": true })).await;
    assert_eq!(store.inner().injected().len(), 1);
    assert_eq!(error_of(&reply).0, 9001, "{reply:?}");
    assert!(!labels(&reply).iter().any(|label| label == TRANSIENT), "the transaction has committed: {reply:?}");
    assert_eq!(client.run("admin", commit_with(rawdoc! { "j": true })).await, rawdoc! { "ok": 1.0 });
    assert_eq!(count(&mut client).await, 1);
}
