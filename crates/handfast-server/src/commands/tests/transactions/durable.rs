//! What a commit's write concern asks of a server that acknowledges from memory.

use handfast_store::decorator::{Fault, Faulty, Metered, Operation, Plan};
use handfast_store::{Durability, MemoryStore, Sources};
use handfast_txn::Database;

use super::*;

/// A server with `--durability memory`, over this plan, whose operations are counted.
fn in_memory(plan: Plan) -> (TestServer, Arc<Metered<Faulty<MemoryStore>>>) {
    let (sources, clock) = Sources::manual(7);
    let faulty = Faulty::new(Arc::new(MemoryStore::new(sources.clone())), plan);
    let store = Arc::new(Metered::new(faulty, sources.clock.clone()));
    let options = Options { durability: Durability::Memory, ..Options::default() };
    (TestServer::over(Database::local(Arc::clone(&store), sources), clock, options), store)
}

fn of(store: &Metered<Faulty<MemoryStore>>, operation: Operation) -> u64 {
    store.report().iter().find(|of| of.operation == operation).map_or(0, |of| of.started)
}

fn commit_with(concern: RawDocumentBuf) -> RawDocumentBuf {
    within(rawdoc! { "commitTransaction": 1, "writeConcern": concern }, 1, 1)
}

/// The transaction was begun before anybody knew: what the commit asks for counts, each time that it is sent.
#[tokio::test]
async fn a_commit_that_asks_for_more_is_synced() {
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
        assert_eq!((of(&store, Operation::Commit), of(&store, Operation::Flush)), (0, 0));
        for repetition in 1..=2 {
            let reply = client.run("admin", commit_with(concern.clone())).await;
            assert_eq!(reply, rawdoc! { "ok": 1.0 }, "{concern:?}");
            let counts = (of(&store, Operation::Commit), of(&store, Operation::Flush));
            assert_eq!(counts, (1, flushes * repetition), "{concern:?}");
        }
    }
}

/// It has committed, and is not on the disk: no client may take it for durable.
#[tokio::test]
async fn a_commit_that_cannot_be_synced_is_no_success() {
    let (mut server, store) = in_memory(Plan::none());
    let mut client = server.connect();
    client.run("d", first(insert_of(1), 1, 1)).await;
    client.run("admin", within(commit(), 1, 1)).await;
    let commits = store.inner().operations();
    let (mut server, store) = in_memory(Plan::at(commits, Fault::LoseRequest));
    let mut client = server.connect();
    client.run("d", first(insert_of(1), 1, 1)).await;
    let reply = client.run("admin", commit_with(rawdoc! { "j": true })).await;
    assert_eq!(store.inner().injected().len(), 1);
    assert_eq!(error_of(&reply).0, 9001, "{reply:?}");
    assert!(!labels(&reply).iter().any(|label| label == TRANSIENT), "it has happened: {reply:?}");
    assert_eq!(client.run("admin", commit_with(rawdoc! { "j": true })).await, rawdoc! { "ok": 1.0 });
    assert_eq!(count(&mut client).await, 1);
}
