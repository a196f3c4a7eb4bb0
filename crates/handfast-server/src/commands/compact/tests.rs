use bson::rawdoc;

use crate::testing::{TestServer, check, insert, numbered};

#[tokio::test]
async fn there_is_nothing_to_free_and_arguments_are_checked() {
    let mut server = TestServer::checked();
    let mut client = server.connect();
    insert(&mut client, "c", &numbered(1)).await;
    client.run("d", rawdoc! { "create": "v", "viewOn": "c", "pipeline": [] }).await;
    check(&mut client, rawdoc! { "compact": "c" }, rawdoc! { "bytesFreed": 0_i64 }).await;
    let options = rawdoc! { "compact": "c", "force": true, "freeSpaceTargetMB": 20, "comment": "x" };
    check(&mut client, options, rawdoc! { "bytesFreed": 0_i64 }).await;
    let dry = rawdoc! { "compact": "c", "dryRun": true };
    check(&mut client, dry, rawdoc! { "estimatedBytesFreed": 0_i64 }).await;
    for (database, command, code) in [
        ("d", rawdoc! { "compact": "none" }, 26),
        ("d", rawdoc! { "compact": "v" }, 166),
        ("d", rawdoc! { "compact": 1 }, 73),
        ("d", rawdoc! { "compact": "c", "force": "x" }, 14),
        ("d", rawdoc! { "compact": "c", "dryRun": "x" }, 14),
        ("d", rawdoc! { "compact": "c", "freeSpaceTargetMB": 0 }, 51_024),
        ("d", rawdoc! { "compact": "c", "freeSpaceTargetMB": "x" }, 14),
        ("d", rawdoc! { "compact": "c", "x": 1 }, 40_415),
        ("admin", rawdoc! { "autoCompact": true, "runOnce": true }, 115),
        ("admin", rawdoc! { "autoCompact": false }, 115),
        ("admin", rawdoc! { "autoCompact": 1 }, 14),
        ("admin", rawdoc! { "autoCompact": true, "freeSpaceTargetMB": 0 }, 51_024),
        ("admin", rawdoc! { "autoCompact": true, "x": 1 }, 40_415),
        ("d", rawdoc! { "autoCompact": true }, 13),
    ] {
        assert_eq!(client.refused(database, command.clone()).await.0, code, "{command:?}");
    }
}
