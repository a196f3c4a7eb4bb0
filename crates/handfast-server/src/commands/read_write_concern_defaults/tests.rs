use bson::rawdoc;
use handfast_store::Durability;

use crate::options::{Options, Topology};
use crate::testing::TestServer;

fn with(durability: Durability) -> TestServer {
    TestServer::in_memory(Options { durability, ..Options::default() })
}

#[tokio::test]
async fn the_defaults_follow_from_the_durability() {
    for (durability, w) in
        [(Durability::Journaled, bson::rawbson!("majority")), (Durability::Memory, bson::rawbson!(1))]
    {
        let mut server = with(durability);
        let mut client = server.connect();
        let time = server.shared.started_at();
        let expected = rawdoc! {
            "defaultReadConcern": { "level": "local" }, "defaultWriteConcern": { "w": w.clone(), "wtimeout": 0 },
            "defaultWriteConcernSource": "implicit", "defaultReadConcernSource": "implicit", "localUpdateWallClockTime": time,
        };
        for (command, in_memory) in [
            (rawdoc! { "getDefaultRWConcern": 1 }, false),
            (rawdoc! { "getDefaultRWConcern": 1, "inMemory": true }, true),
            (rawdoc! { "setDefaultRWConcern": 1, "defaultReadConcern": { "level": "local" } }, false),
            (rawdoc! { "setDefaultRWConcern": 1, "defaultWriteConcern": { "w": w } }, false),
            (
                rawdoc! { "setDefaultRWConcern": 1, "defaultReadConcern": {}, "defaultWriteConcern": {}, "writeConcern": { "w": 1 } },
                false,
            ),
        ] {
            let mut expected = expected.clone();
            if in_memory {
                expected.append(bson::raw::cstr!("inMemory"), true);
            }
            expected.append(bson::raw::cstr!("ok"), 1.0);
            assert_eq!(client.run("admin", command.clone()).await, expected, "{command:?}");
        }
    }
}

#[tokio::test]
async fn other_defaults_are_refused() {
    let read = |concern: bson::RawBson| rawdoc! { "setDefaultRWConcern": 1, "defaultReadConcern": concern };
    let write = |concern: bson::RawBson| rawdoc! { "setDefaultRWConcern": 1, "defaultWriteConcern": concern };
    let (journaled, memory) = (Durability::Journaled, Durability::Memory);
    for (durability, database, command, code) in [
        (journaled, "admin", rawdoc! { "setDefaultRWConcern": 1 }, 2),
        (journaled, "admin", read(bson::rawbson!({ "level": "majority" })), 115),
        (journaled, "admin", read(bson::rawbson!({ "level": "available" })), 115),
        (journaled, "admin", read(bson::rawbson!({ "level": "linearizable" })), 2),
        (journaled, "admin", read(bson::rawbson!({ "level": "snapshot" })), 2),
        (journaled, "admin", read(bson::rawbson!({ "level": "x" })), 2),
        (journaled, "admin", read(bson::rawbson!({ "x": 1 })), 40_415),
        (journaled, "admin", read(bson::rawbson!({ "afterClusterTime": 1 })), 2),
        (journaled, "admin", read(bson::rawbson!("local")), 14),
        (journaled, "admin", write(bson::rawbson!({ "w": 1 })), 115),
        (journaled, "admin", write(bson::rawbson!({ "w": "majority", "wtimeout": 5 })), 115),
        (journaled, "admin", write(bson::rawbson!({ "w": 2 })), 115),
        (journaled, "admin", write(bson::rawbson!({ "w": 0 })), 2),
        (journaled, "admin", write(bson::rawbson!({ "w": 51 })), 9),
        (journaled, "admin", write(bson::rawbson!({ "x": 1 })), 40_415),
        (journaled, "admin", write(bson::rawbson!(1)), 14),
        (memory, "admin", write(bson::rawbson!({ "w": "majority" })), 115),
        (memory, "admin", write(bson::rawbson!({ "w": 1, "j": true })), 115),
        (journaled, "d", read(bson::rawbson!({})), 13),
        (journaled, "admin", rawdoc! { "getDefaultRWConcern": 1, "inMemory": "x" }, 14),
        (journaled, "admin", rawdoc! { "getDefaultRWConcern": 1, "x": 1 }, 40_415),
    ] {
        assert_eq!(with(durability).connect().refused(database, command.clone()).await.0, code, "{command:?}");
    }
    let mut standalone = TestServer::in_memory(Options { topology: Topology::Standalone, ..Options::default() });
    let mut client = standalone.connect();
    for command in [rawdoc! { "getDefaultRWConcern": 1 }, rawdoc! { "setDefaultRWConcern": 1 }] {
        assert_eq!(client.refused("admin", command).await.0, 51_300);
    }
}
