use std::time::Duration;

use bson::Timestamp;
use bson::raw::RawDocument;
use bson::{RawDocumentBuf, rawdoc};

use crate::options::{Options, Topology};
use crate::testing::{ReplyFields, TestServer, insert, numbered};

fn names(document: &RawDocument) -> Vec<&str> {
    document.iter().map(|field| field.unwrap().0.as_str()).collect()
}

fn of(topology: Topology) -> TestServer {
    TestServer::in_memory(Options { topology, ..Options::default() })
}

#[tokio::test]
async fn the_status_shows_one_primary() {
    let mut server = TestServer::transactional();
    let mut client = server.connect();
    insert(&mut client, "c", &numbered(1)).await;
    let before = client.run("admin", rawdoc! { "replSetGetStatus": 1 }).await;
    server.advance(Duration::from_secs(7));
    let status = client.run("admin", rawdoc! { "replSetGetStatus": 1, "initialSync": 1 }).await;
    assert_eq!((status.text("set"), status.int("myState"), status.long("term")), ("handfast", 1, 1));
    for count in ["majorityVoteCount", "writeMajorityCount", "votingMembersCount", "writableVotingMembersCount"] {
        assert_eq!(status.int(count), 1, "{count}");
    }
    let optimes = status.get_document("optimes").unwrap();
    let expected = [
        "lastCommittedOpTime",
        "lastCommittedWallTime",
        "readConcernMajorityOpTime",
        "appliedOpTime",
        "lastAppliedWallTime",
        "durableOpTime",
        "lastDurableWallTime",
    ];
    assert_eq!(names(optimes), expected);
    let applied = optimes.get_document("appliedOpTime").unwrap();
    assert_eq!(applied.long("t"), 1);
    assert!(applied.get_timestamp("ts").unwrap() > Timestamp { time: 0, increment: 0 });
    let member = status.get_array("members").unwrap().get_document(0).unwrap();
    assert_eq!((member.int("_id"), member.text("name")), (0, "localhost:27017"));
    assert_eq!((member.text("stateStr"), member.double("health"), member.flag("self")), ("PRIMARY", 1.0, true));
    let before = before.get_array("members").unwrap().get_document(0).unwrap();
    assert_eq!(member.int("uptime") - before.int("uptime"), 7);
    assert_eq!(member.get_datetime("electionDate").unwrap(), before.get_datetime("electionDate").unwrap());
}

#[tokio::test]
async fn the_configuration_is_that_of_one_member() {
    let advertise = Some("db.example.org:1".to_owned());
    let mut server = of(Topology::ReplicaSet { name: "rs0".to_owned(), advertise });
    let mut client = server.connect();
    let expected = rawdoc! { "config": {
        "_id": "rs0", "version": 1, "term": 1_i64,
        "members": [{
            "_id": 0, "host": "db.example.org:1", "arbiterOnly": false, "buildIndexes": true, "hidden": false, "priority": 1.0,
            "tags": {}, "secondaryDelaySecs": 0_i64, "votes": 1,
        }],
        "protocolVersion": 1_i64, "writeConcernMajorityJournalDefault": true,
        "settings": {
            "chainingAllowed": true, "heartbeatIntervalMillis": 2_000, "heartbeatTimeoutSecs": 10,
            "electionTimeoutMillis": 10_000, "catchUpTimeoutMillis": -1, "catchUpTakeoverDelayMillis": 30_000,
            "getLastErrorModes": {}, "getLastErrorDefaults": { "w": 1, "wtimeout": 0 },
        },
    } };
    let with = |name: &str, value: bson::RawBson| {
        let mut reply = expected.clone();
        if name == "commitmentStatus" {
            reply.append(bson::raw::cstr!("commitmentStatus"), value);
        }
        reply.append(bson::raw::cstr!("ok"), 1.0);
        reply
    };
    let plain = client.run("admin", rawdoc! { "replSetGetConfig": 1 }).await;
    assert_eq!(plain, with("", bson::RawBson::Null));
    let committed = client.run("admin", rawdoc! { "replSetGetConfig": 1, "commitmentStatus": true }).await;
    assert_eq!(committed, with("commitmentStatus", true.into()));
    // Its version is the one of hello.
    assert_eq!(client.run("admin", rawdoc! { "hello": 1 }).await.int("setVersion"), 1);
}

#[tokio::test]
async fn other_topologies_and_arguments_are_refused() {
    let (status, config) = (|| rawdoc! { "replSetGetStatus": 1 }, || rawdoc! { "replSetGetConfig": 1 });
    let standalone = of(Topology::Standalone).connect().refused("admin", status()).await;
    assert_eq!(standalone, (76, "NoReplicationEnabled".to_owned(), "not running with --replSet".to_owned()));
    let mut mongos = of(Topology::Mongos).connect();
    let reply = mongos.run("admin", status()).await;
    assert_eq!((reply.int("code"), reply.text("info")), (125, "mongos"));
    assert_eq!(mongos.refused("admin", config()).await.0, 59);
    assert_eq!(of(Topology::Standalone).connect().refused("admin", config()).await.0, 76);
    let mut client = TestServer::transactional().connect();
    let refused: [(&str, RawDocumentBuf, i32); 4] = [
        ("d", status(), 13),
        ("d", config(), 13),
        ("admin", rawdoc! { "replSetGetConfig": 1, "commitmentStatus": "x" }, 14),
        ("admin", rawdoc! { "replSetGetStatus": 1, "x": 1 }, 40_415),
    ];
    for (database, command, code) in refused {
        assert_eq!(client.refused(database, command.clone()).await.0, code, "{command:?}");
    }
}
