//! Commands that exceed their `maxTimeMS`.

use std::sync::Arc;
use std::time::Duration;

use bson::rawdoc;
use handfast_store::DocumentStore;

use crate::lock::lock;
use crate::options::Options;
use crate::testing::{AdjustableStore, ReplyFields, TestServer, batch, insert, numbered};

#[tokio::test(start_paused = true)]
async fn a_command_that_exceeds_its_time_limit_is_refused() {
    let store = Arc::new(AdjustableStore::default());
    let mut server = TestServer::new(Arc::clone(&store) as Arc<dyn DocumentStore>, Options::default());
    let mut client = server.connect();
    insert(&mut client, "c", &numbered(10)).await;
    *lock(&store.delay) = Duration::from_secs(5);
    let expected = (50, "MaxTimeMSExpired".to_owned(), "operation exceeded time limit".to_owned());
    assert_eq!(client.refused("d", rawdoc! { "find": "c", "maxTimeMS": 4_000 }).await, expected);
    assert_eq!(batch(&client.run("d", rawdoc! { "find": "c", "maxTimeMS": 6_000 }).await).len(), 10);
    assert_eq!(client.refused("d", rawdoc! { "count": "c", "maxTimeMS": 1 }).await.0, 50);
    assert_eq!(client.run("d", rawdoc! { "count": "c" }).await.int("n"), 10);
}

#[tokio::test(start_paused = true)]
async fn a_write_that_is_finished_too_late_is_reported_as_done() {
    let store = Arc::new(AdjustableStore::default());
    let mut server = TestServer::new(Arc::clone(&store) as Arc<dyn DocumentStore>, Options::default());
    let mut client = server.connect();
    *lock(&store.delay) = Duration::from_secs(5);
    // The command's time limit passes just before its result is complete.
    for (command, ok) in [
        (rawdoc! { "count": "c", "maxTimeMS": 6_000 }, 0.0),
        (rawdoc! { "aggregate": "c", "pipeline": [], "cursor": {}, "maxTimeMS": 6_000 }, 0.0),
        (rawdoc! { "insert": "c", "documents": [{ "_id": 1 }], "maxTimeMS": 6_000 }, 1.0),
        (rawdoc! { "aggregate": "c", "pipeline": [{ "$out": "d" }], "cursor": {}, "maxTimeMS": 6_000 }, 1.0),
    ] {
        let late = async {
            tokio::time::sleep(Duration::from_secs(4)).await;
            server.clock.advance(Duration::from_secs(7));
        };
        let (reply, ()) = tokio::join!(client.run("d", command.clone()), late);
        assert_eq!(reply.double("ok"), ok, "{command:?}: {reply:?}");
    }
}
