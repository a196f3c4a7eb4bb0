use std::sync::Arc;

use bson::rawdoc;

use crate::lock::lock;
use crate::options::Options;
use crate::testing::{AdjustableStore, TestServer};

#[tokio::test]
async fn what_was_acknowledged_is_synced() {
    let store = Arc::new(AdjustableStore::default());
    let mut server = TestServer::new(store.clone(), Options::default());
    let mut client = server.connect();
    for command in [rawdoc! { "fsync": 1 }, rawdoc! { "fsync": 1, "lock": false, "async": true, "comment": "x" }] {
        assert_eq!(client.run("admin", command).await, rawdoc! { "numFiles": 1, "ok": 1.0 });
    }
    // The sync of the store is the one that fails here.
    *lock(&store.failure) =
        Some(handfast_store::Error::command(handfast_mql::Code::OutOfDiskSpace, "the disk is full"));
    assert_eq!(client.refused("admin", rawdoc! { "fsync": 1 }).await.0, 14_031);
}

#[tokio::test]
async fn locks_are_refused_and_arguments_are_checked() {
    let mut server = TestServer::adjustable();
    let mut client = server.connect();
    for (database, command, code) in [
        ("admin", rawdoc! { "fsync": 1, "lock": true }, 115),
        ("admin", rawdoc! { "fsync": 1, "lock": 1 }, 115),
        ("admin", rawdoc! { "fsync": 1, "lock": "x" }, 14),
        ("admin", rawdoc! { "fsync": 1, "fsyncLockAcquisitionTimeoutMillis": "x" }, 14),
        ("admin", rawdoc! { "fsync": 1, "x": 1 }, 40_415),
        ("d", rawdoc! { "fsync": 1 }, 13),
        ("admin", rawdoc! { "fsyncUnlock": 1 }, 20),
        ("admin", rawdoc! { "fsyncUnlock": 1, "x": 1 }, 40_415),
        ("d", rawdoc! { "fsyncUnlock": 1 }, 13),
    ] {
        assert_eq!(client.refused(database, command.clone()).await.0, code, "{command:?}");
    }
}
