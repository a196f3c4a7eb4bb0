//! Commands about the server, its sessions and what runs.

use super::*;
use crate::frame::timer_now;

#[tokio::test]
async fn hello_says_what_drivers_need() {
    let mut server = TestServer::tiny();
    let mut client = server.connect();
    for (name, primary) in [("hello", "isWritablePrimary"), ("isMaster", "ismaster"), ("ismaster", "ismaster")] {
        let mut body = RawDocumentBuf::new();
        body.append(CString::try_from(name).unwrap(), 1);
        body.append(bson::raw::cstr!("backpressure"), true);
        body.append(
            bson::raw::cstr!("compression"),
            ["snappy", "lz4", "zlib", "snappy"].map(RawBson::from).into_iter().collect::<bson::RawArrayBuf>(),
        );
        let reply = client.run("admin", body).await;
        assert!(reply.flag(primary), "{reply:?}");
        assert_eq!(reply.int("maxBsonObjectSize"), 16_777_216);
        assert_eq!(reply.int("maxMessageSizeBytes"), 48_000_000);
        assert_eq!(reply.int("maxWriteBatchSize"), 100_000);
        assert_eq!(reply.int("logicalSessionTimeoutMinutes"), 30);
        assert_eq!(reply.int("maxWireVersion"), 25);
        assert_eq!(
            reply.get_array("compression").unwrap(),
            &*bson::rawbson!(["snappy", "zlib"]).as_array().unwrap().to_owned()
        );
        assert_eq!(reply.text("setName"), "handfast");
        assert!(reply.get("msg").unwrap().is_none());
    }
}

#[tokio::test]
async fn hello_in_other_shapes() {
    let shape = |topology| async {
        let options = Options { topology, ..Options::default() };
        let mut server = TestServer::new(Arc::new(TinyStore::default()), options);
        server.connect().run("admin", rawdoc! { "hello": 1 }).await
    };
    let reply = shape(Topology::ReplicaSet { name: "rs".to_owned(), advertise: None }).await;
    assert_eq!((reply.text("setName"), reply.text("primary")), ("rs", "localhost:27017"));
    assert_eq!(reply.get_array("hosts").unwrap().get_str(0).unwrap(), "localhost:27017");
    let reply = shape(Topology::ReplicaSet { name: "rs".to_owned(), advertise: Some("db:1".to_owned()) }).await;
    assert_eq!((reply.text("me"), reply.text("primary")), ("db:1", "db:1"));
    assert_eq!(shape(Topology::Mongos).await.text("msg"), "isdbgrid");
    let reply = shape(Topology::Standalone).await;
    assert!(reply.get("setName").unwrap().is_none() && reply.get("msg").unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn hello_waits_for_what_does_not_change() {
    let mut server = TestServer::tiny();
    let mut client = server.connect();
    let reply = client.run("admin", rawdoc! { "hello": 1 }).await;
    let version = reply.get_document("topologyVersion").unwrap().to_owned();
    let began = timer_now();
    let wait = rawdoc! { "hello": 1, "topologyVersion": version.clone(), "maxAwaitTimeMS": 10_000 };
    client.run("admin", wait).await;
    assert!(began.elapsed() >= Duration::from_secs(10));
    // A client that knows another run of the server is answered at once.
    let began = timer_now();
    let other = rawdoc! { "processId": bson::oid::ObjectId::from_bytes([9; 12]), "counter": 0_i64 };
    client.run("admin", rawdoc! { "hello": 1, "topologyVersion": other, "maxAwaitTimeMS": 10_000 }).await;
    assert!(began.elapsed() < Duration::from_secs(1));
    assert_eq!(client.refused("admin", rawdoc! { "hello": 1, "topologyVersion": version }).await.0, 31_368);
}

#[tokio::test(start_paused = true)]
async fn time_is_bounded() {
    let store = Arc::new(TinyStore::default());
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
async fn what_was_written_too_late_is_told_all_the_same() {
    let store = Arc::new(TinyStore::default());
    let mut server = TestServer::new(Arc::clone(&store) as Arc<dyn DocumentStore>, Options::default());
    let mut client = server.connect();
    *lock(&store.delay) = Duration::from_secs(5);
    // The command's time is over a moment before its answer is there.
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

#[tokio::test(start_paused = true)]
async fn commands_can_be_seen_and_killed() {
    let store = Arc::new(TinyStore::default());
    let mut server = TestServer::new(Arc::clone(&store) as Arc<dyn DocumentStore>, Options::default());
    let (mut client, mut admin) = (server.connect(), server.connect());
    *lock(&store.delay) = Duration::from_secs(1_000);
    client.send(handfast_wire::Flags::default(), "d", rawdoc! { "find": "c" }, &[]).await;
    tokio::time::sleep(Duration::from_millis(1)).await;
    let reply = admin.run("admin", rawdoc! { "currentOp": 1, "ns": "d.c" }).await;
    let running = reply.get_array("inprog").unwrap();
    assert_eq!(running.into_iter().count(), 1);
    let id = running.get_document(0).unwrap().int("opid");
    assert_eq!(admin.run("admin", rawdoc! { "killOp": 1, "op": id }).await.double("ok"), 1.0);
    let (_, _, reply) = client.receive().await.unwrap();
    assert_eq!(error_of(&reply), (11_601, "Interrupted".to_owned(), "operation was interrupted".to_owned()));
    let reply = admin.run("admin", rawdoc! { "currentOp": 1, "ns": "d.c" }).await;
    assert!(reply.get_array("inprog").unwrap().is_empty());

    let find = rawdoc! { "find": "c", "lsid": lsid(3) };
    client.send(handfast_wire::Flags::default(), "d", find, &[]).await;
    tokio::time::sleep(Duration::from_millis(1)).await;
    admin.run("admin", rawdoc! { "killSessions": [lsid(3)] }).await;
    assert_eq!(error_of(&client.receive().await.unwrap().2).0, 11_601);
}

#[tokio::test]
async fn durability_follows_server_and_client() {
    for (default, concern, expected) in [
        (Durability::Journaled, rawdoc! {}, Durability::Journaled),
        (Durability::Journaled, rawdoc! { "j": false }, Durability::Journaled),
        (Durability::Memory, rawdoc! {}, Durability::Memory),
        (Durability::Memory, rawdoc! { "j": true }, Durability::Journaled),
        (Durability::Memory, rawdoc! { "w": "majority" }, Durability::Journaled),
    ] {
        let store = Arc::new(TinyStore::default());
        let options = Options { durability: default, ..Options::default() };
        let mut server = TestServer::new(Arc::clone(&store) as Arc<dyn DocumentStore>, options);
        let body = rawdoc! { "insert": "c", "writeConcern": concern };
        server.connect().run_with("d", body, &[("documents", &numbered(1))]).await;
        assert_eq!(*lock(&store.inserts), [expected]);
    }
}

#[tokio::test]
async fn sessions() {
    let mut server = TestServer::tiny();
    let mut client = server.connect();
    let reply = client.run("admin", rawdoc! { "startSession": 1 }).await;
    let id = reply.get_document("id").unwrap();
    assert_eq!(id.get_binary("id").unwrap().bytes.len(), 16);
    client.run("d", rawdoc! { "ping": 1, "lsid": lsid(1) }).await;
    assert_eq!(server.shared.sessions.len(), 2);
    server.advance(Duration::from_secs(20 * 60));
    client.run("admin", rawdoc! { "refreshSessions": [lsid(1)] }).await;
    server.advance(Duration::from_secs(20 * 60));
    assert_eq!(server.shared.sessions.len(), 1);
    client.run("admin", rawdoc! { "endSessions": [lsid(1), lsid(2)] }).await;
    assert_eq!(server.shared.sessions.len(), 0);
}

#[tokio::test]
async fn what_the_server_says_of_itself() {
    let mut server = TestServer::tiny();
    let mut client = server.connect();
    insert(&mut client, "c", &numbered(3)).await;
    client.run("d", rawdoc! { "find": "c" }).await;
    let hello = rawdoc! { "hello": 1, "client": { "application": { "name": "app" } } };
    client.run("admin", hello).await;
    let reply = client.run("admin", rawdoc! { "currentOp": 1 }).await;
    let own = reply.get_array("inprog").unwrap().get_document(0).unwrap();
    assert_eq!(own.text("appName"), "app");
    let reply = client.run("admin", rawdoc! { "serverStatus": 1, "repl": 0 }).await;
    let operations = reply.get_document("opcounters").unwrap();
    assert_eq!((operations.long("insert"), operations.long("query")), (3, 1));
    assert_eq!(reply.get_document("network").unwrap().long("numRequests"), 5);
    let find = reply.get_document("metrics").unwrap().get_document("commands").unwrap().get_document("find").unwrap();
    assert_eq!((find.long("total"), find.long("failed")), (1, 0));
    let top = client.run("admin", rawdoc! { "top": 1 }).await;
    let used = top.get_document("totals").unwrap().get_document("d.c").unwrap();
    assert_eq!(used.get_document("writeLock").unwrap().long("count"), 1);
    let stats = client.run("d", rawdoc! { "collStats": "c" }).await;
    assert_eq!((stats.int("count"), stats.int("avgObjSize")), (3, 14));
    let stats = client.run("d", rawdoc! { "dbStats": 1, "scale": 2 }).await;
    assert_eq!((stats.long("objects"), stats.double("dataSize")), (3, 21.0));
    let reply = client.run("d", rawdoc! { "validate": "c" }).await;
    assert_eq!((reply.flag("valid"), reply.int("nrecords")), (true, 3));
    assert_eq!(reply.get_document("keysPerIndex").unwrap().int("_id_"), 3);
    assert_eq!(client.refused("d", rawdoc! { "validate": "none" }).await.0, 26);
    for command in ["buildInfo", "hostInfo", "connectionStatus", "whatsmyuri", "listCommands", "getCmdLineOpts"] {
        let mut body = RawDocumentBuf::new();
        body.append(CString::try_from(command).unwrap(), 1);
        assert_eq!(client.run("admin", body).await.double("ok"), 1.0, "{command}");
    }
    let reply = client.run("admin", rawdoc! { "getLog": "*" }).await;
    assert_eq!(reply.get_array("names").unwrap().into_iter().count(), 2);
    assert_eq!(client.refused("admin", rawdoc! { "getLog": "x" }).await.0, 96);
    let reply = client.run("admin", rawdoc! { "getParameter": 1, "featureCompatibilityVersion": 1 }).await;
    assert_eq!(reply, rawdoc! { "featureCompatibilityVersion": { "version": "8.0" }, "ok": 1.0 });
    assert_eq!(client.refused("admin", rawdoc! { "getParameter": 1, "nothing": 1 }).await.0, 72);
    assert!(client.run("admin", rawdoc! { "getParameter": "*" }).await.get_bool("requireApiVersion").is_ok());
}

/// Each reply of a replica set says when it is; a standalone server has no such time.
#[tokio::test]
async fn the_cluster_time_goes_on_with_each_write() {
    let mut server = TestServer::transactional();
    let mut client = server.connect();
    let mut latest = (0, 0);
    for (command, writes) in [
        (rawdoc! { "hello": 1 }, false),
        (rawdoc! { "insert": "c", "documents": [{ "_id": 1 }] }, true),
        (rawdoc! { "find": "c" }, false),
        (rawdoc! { "update": "c", "updates": [{ "q": {}, "u": { "$set": { "a": 1 } } }] }, true),
        (rawdoc! { "find": "c", "nonsense": 1 }, false),
        (
            rawdoc! { "find": "c", "readConcern": { "level": "majority", "afterClusterTime": bson::Timestamp { time: u32::MAX, increment: 1 } } },
            false,
        ),
    ] {
        client.send(handfast_wire::Flags::default(), "d", command.clone(), &[]).await;
        let (.., reply) = client.receive_all().await.unwrap();
        let now = reply.get_timestamp("operationTime").unwrap();
        let gossip = reply.get_document("$clusterTime").unwrap().get_timestamp("clusterTime").unwrap();
        assert_eq!(gossip, now);
        let now = (now.time, now.increment);
        assert!(if writes { now > latest } else { now >= latest }, "{command:?}: {now:?} after {latest:?}");
        latest = now;
    }
    assert_eq!(client.refused("d", rawdoc! { "find": "c", "readConcern": { "afterClusterTime": 1 } }).await.0, 14);
    let mut server = TestServer::in_memory(Options { topology: Topology::Standalone, ..Options::default() });
    let mut client = server.connect();
    client.send(handfast_wire::Flags::default(), "d", rawdoc! { "ping": 1 }, &[]).await;
    assert_eq!(client.receive_all().await.unwrap().2, rawdoc! { "ok": 1.0 });
}

#[tokio::test]
async fn sessions_are_listed() {
    let mut server = TestServer::transactional();
    let mut client = server.connect();
    client.run("d", rawdoc! { "ping": 1, "lsid": lsid(1) }).await;
    server.advance(Duration::from_secs(5));
    client.run("d", rawdoc! { "ping": 1, "lsid": lsid(2) }).await;
    let list = |options: RawDocumentBuf| {
        let stages = bson::rawbson!([{ "$listLocalSessions": options }, { "$sort": { "lastUse": 1 } }]);
        rawdoc! { "aggregate": 1, "pipeline": stages, "cursor": {} }
    };
    for options in [rawdoc! {}, rawdoc! { "allUsers": true }] {
        let listed = batch(&client.run("d", list(options)).await);
        let ids: Vec<_> = listed.iter().map(|session| session.get_document("_id").unwrap().to_owned()).collect();
        assert_eq!(ids, [lsid(1), lsid(2)]);
        let used = |place: usize| listed[place].get_datetime("lastUse").unwrap().timestamp_millis();
        assert_eq!(used(1) - used(0), 5_000);
    }
    assert_eq!(client.refused("d", list(rawdoc! { "users": [] })).await.0, 40_415);
    let of_collection = rawdoc! { "aggregate": "c", "pipeline": [{ "$listLocalSessions": {} }], "cursor": {} };
    assert_eq!(client.refused("d", of_collection).await.0, 73);
}

/// A session reads one snapshot outside of a transaction, for as long as a transaction may be open.
#[tokio::test]
async fn a_session_reads_a_snapshot() {
    let mut server = TestServer::transactional();
    let mut client = server.connect();
    insert(&mut client, "c", &numbered(3)).await;
    let of = |mut command: RawDocumentBuf, session: u8, at: Option<bson::Timestamp>| {
        let mut concern = rawdoc! { "level": "snapshot" };
        if let Some(at) = at {
            concern.append(bson::raw::cstr!("atClusterTime"), at);
        }
        command.append(bson::raw::cstr!("lsid"), lsid(session));
        command.append(bson::raw::cstr!("readConcern"), concern);
        command
    };
    let find = || rawdoc! { "find": "c", "batchSize": 2 };
    let first = client.run("d", of(find(), 1, None)).await;
    let at = first.get_document("cursor").unwrap().get_timestamp("atClusterTime").unwrap();
    insert(&mut client, "c", &[rawdoc! { "_id": 3 }]).await;

    // The cursor, further reads of each kind, and another session's.
    let more = rawdoc! { "getMore": cursor_id(&first), "collection": "c" };
    assert_eq!(batch(&client.run("d", of(more, 1, Some(at))).await), [rawdoc! { "_id": 2 }]);
    let again = client.run("d", of(rawdoc! { "find": "c" }, 1, Some(at))).await;
    assert_eq!(batch(&again).len(), 3);
    assert_eq!(again.get_document("cursor").unwrap().get_timestamp("atClusterTime").unwrap(), at);
    let distinct = client.run("d", of(rawdoc! { "distinct": "c", "key": "_id" }, 1, Some(at))).await;
    assert_eq!(distinct.get_array("values").unwrap().into_iter().count(), 3);
    assert_eq!(distinct.get_timestamp("atClusterTime").unwrap(), at);
    let count = rawdoc! { "aggregate": "c", "pipeline": [{ "$count": "n" }], "cursor": {} };
    assert_eq!(batch(&client.run("d", of(count, 1, Some(at))).await), [rawdoc! { "n": 3 }]);
    assert_eq!(client.refused("d", of(find(), 2, Some(at))).await.0, 239);
    assert_eq!(batch(&client.run("d", of(rawdoc! { "find": "c" }, 2, None)).await).len(), 4);

    // What cannot read one says so.
    let out = rawdoc! { "aggregate": "c", "pipeline": [{ "$out": "o" }], "cursor": {} };
    let write = rawdoc! { "insert": "c", "documents": [{}] };
    for command in [out, write, rawdoc! { "count": "c" }, rawdoc! { "listCollections": 1 }] {
        assert_eq!(client.refused("d", of(command.clone(), 1, Some(at))).await.0, 72, "{command:?}");
    }

    // A snapshot ends with its time, with its session, and by the next one, but not before the end of its cursors.
    assert_eq!(server.shared.database.counts().snapshots, 2);
    let before = client.run("d", of(find(), 2, None)).await;
    let at_before = before.get_document("cursor").unwrap().get_timestamp("atClusterTime").unwrap();
    assert_eq!(server.shared.database.counts().snapshots, 2);
    insert(&mut client, "c", &[rawdoc! { "_id": 4 }]).await;
    assert_eq!(batch(&client.run("d", of(rawdoc! { "find": "c" }, 2, None)).await).len(), 5);
    assert_eq!(server.shared.database.counts().snapshots, 3);
    let more = rawdoc! { "getMore": cursor_id(&before), "collection": "c" };
    assert_eq!(
        batch(&client.run("d", of(more, 2, Some(at_before))).await),
        [rawdoc! { "_id": 2 }, rawdoc! { "_id": 3 }]
    );
    assert_eq!(server.shared.database.counts().snapshots, 2);
    client.run("d", rawdoc! { "endSessions": [lsid(2)] }).await;
    assert_eq!(server.shared.database.counts().snapshots, 1);
    server.advance(Duration::from_secs(61));
    assert_eq!(server.shared.database.counts().snapshots, 0);
    assert_eq!(client.refused("d", of(find(), 1, Some(at))).await.0, 239);
}

/// A snapshot read is no transaction: it is counted apart, and its end is that of a snapshot.
#[tokio::test]
async fn a_snapshot_is_no_transaction() {
    let mut server = TestServer::transactional();
    let mut client = server.connect();
    insert(&mut client, "c", &numbered(3)).await;
    let read = rawdoc! { "level": "snapshot" };
    let find =
        |session: u8| rawdoc! { "find": "c", "batchSize": 1, "lsid": lsid(session), "readConcern": read.clone() };
    let cursors = [client.run("d", find(1)).await, client.run("d", find(2)).await].map(|reply| cursor_id(&reply));
    let counted = async |client: &mut TestClient| {
        let status = client.run("admin", rawdoc! { "serverStatus": 1 }).await;
        let transactions = status.get_document("transactions").unwrap();
        ["totalStarted", "totalAborted", "currentOpen", "currentSnapshots"].map(|name| transactions.long(name))
    };
    assert_eq!(counted(&mut client).await, [0, 0, 0, 2]);
    let more = |cursor: i64, session: u8| rawdoc! { "getMore": cursor, "collection": "c", "lsid": lsid(session) };
    // Too old before anybody has swept, and after it.
    server.clock.advance(Duration::from_secs(61));
    let reply = client.run("d", more(cursors[0], 1)).await;
    assert_eq!((error_of(&reply).0, reply.get("errorLabels").unwrap()), (239, None), "{reply:?}");
    server.advance(Duration::from_secs(1));
    assert_eq!(client.refused("d", more(cursors[1], 2)).await.0, 239);
    assert_eq!(counted(&mut client).await, [0, 0, 0, 0]);
}

/// The write is done, and the reply says that it is not on as many members as were asked for.
#[tokio::test]
async fn a_write_concern_that_nobody_can_satisfy() {
    let mut server = TestServer::transactional();
    let mut client = server.connect();
    for (w, code, text) in [
        (RawBson::Int32(2), 100, "Not enough data-bearing nodes"),
        (RawBson::String("far".to_owned()), 79, "No write concern mode named 'far' found in replica set configuration"),
    ] {
        let concern = rawdoc! { "w": w };
        let insert = rawdoc! { "insert": "c", "documents": [{}], "writeConcern": concern.clone() };
        let reply = client.run("d", insert).await;
        let error = reply.get_document("writeConcernError").unwrap();
        assert_eq!((reply.int("n"), error.int("code"), error.text("errmsg")), (1, code, text));
        assert_eq!(error.get_document("errInfo").unwrap().get_document("writeConcern").unwrap(), &*concern);
    }
    let refused = rawdoc! { "insert": "c", "documents": [{}], "nonsense": 1, "writeConcern": { "w": 2 } };
    let reply = client.run("d", refused).await;
    assert_eq!((error_of(&reply).0, reply.get_document("writeConcernError").unwrap().int("code")), (40_415, 100));
    let out = |level: &str| {
        rawdoc! {
            "aggregate": "c", "pipeline": [{ "$out": "o" }], "cursor": {},
            "readConcern": { "level": level }, "writeConcern": { "w": 2 },
        }
    };
    assert!(client.run("d", out("majority")).await.get_document("writeConcernError").is_ok());
    assert_eq!(client.refused("d", out("linearizable")).await.0, 72);
    assert_eq!(client.run("d", rawdoc! { "count": "c", "writeConcern": { "w": 1 } }).await.int("n"), 2);
    let mut server = TestServer::in_memory(Options { topology: Topology::Standalone, ..Options::default() });
    let insert = rawdoc! { "insert": "c", "documents": [{}], "writeConcern": { "w": 2 } };
    assert_eq!(server.connect().refused("d", insert).await.0, 2);
}

/// Whatever clients leave open ends when its time is over, and what was kept for those who ask again is forgotten.
#[tokio::test]
async fn nothing_is_left_when_its_time_is_over() {
    let mut server = TestServer::transactional();
    let mut client = server.connect();
    let of = |mut command: RawDocumentBuf, session: u8, more: RawDocumentBuf| {
        command.append(bson::raw::cstr!("lsid"), lsid(session));
        for element in &more {
            let (name, value) = element.unwrap();
            command.append(name, value);
        }
        command
    };
    let first = || rawdoc! { "txnNumber": 1_i64, "autocommit": false, "startTransaction": true };
    let insert = |id: i32| rawdoc! { "insert": "c", "documents": [{ "_id": id }, { "_id": id + 1 }] };
    for command in [
        of(insert(1), 1, rawdoc! { "txnNumber": 1_i64 }),
        of(insert(10), 2, first()),
        of(insert(20), 3, first()),
        of(rawdoc! { "find": "c" }, 4, rawdoc! { "readConcern": { "level": "snapshot" } }),
        of(rawdoc! { "find": "c", "batchSize": 1 }, 5, rawdoc! {}),
    ] {
        assert_eq!(client.run("d", command).await.double("ok"), 1.0);
    }
    let commit = rawdoc! { "commitTransaction": 1, "txnNumber": 1_i64, "autocommit": false };
    assert_eq!(client.run("admin", of(commit, 2, rawdoc! {})).await.double("ok"), 1.0);

    let counts = async |client: &mut TestClient| {
        let status = client.run("admin", rawdoc! { "serverStatus": 1 }).await;
        let transactions = status.get_document("transactions").unwrap();
        let cursors = status.get_document("metrics").unwrap().get_document("cursor").unwrap();
        let sessions = status.get_document("logicalSessionRecordCache").unwrap();
        let records = client.run("config", rawdoc! { "count": "transactions" }).await.int("n");
        (
            transactions.long("currentOpen"),
            transactions.long("currentSnapshots"),
            cursors.get_document("open").unwrap().long("total"),
            sessions.long("activeSessionsCount"),
            records,
        )
    };
    assert_eq!(counts(&mut client).await, (1, 1, 1, 5, 2));
    server.advance(Duration::from_secs(60));
    assert_eq!(counts(&mut client).await, (0, 0, 1, 5, 2));
    server.advance(Duration::from_secs(30 * 60));
    assert_eq!(counts(&mut server.connect()).await, (0, 0, 0, 0, 2));
    server.shared.forget_outcomes().await;
    assert_eq!(counts(&mut server.connect()).await, (0, 0, 0, 0, 2));
    server.advance(server.shared.options.outcome_retention);
    server.shared.forget_outcomes().await;
    // But for the record that says how far outcomes were forgotten.
    let mut client = server.connect();
    assert_eq!(counts(&mut client).await, (0, 0, 0, 0, 1));
    let status = client.run("admin", rawdoc! { "serverStatus": 1 }).await;
    let sessions = status.get_document("logicalSessionRecordCache").unwrap();
    assert_eq!(sessions.long("transactionReaperJobCount"), 2);
    assert_eq!(sessions.long("lastTransactionReaperJobEntriesCleanedUp"), 2);
    assert!(sessions.get_datetime("lastTransactionReaperJobTimestamp").is_ok());
}

#[tokio::test]
async fn an_index_that_disagrees_is_not_valid() {
    let index = |name: &str, keys, valid| IndexCheck { name: name.to_owned(), keys, valid };
    let check = CollectionCheck {
        documents: 3,
        indexes: vec![index("_id_", 3, true), index("a_1", 2, false)],
        errors: vec!["index a_1 of d.c: an entry is missing".to_owned()],
        documents_damaged: 0,
    };
    let store = TinyStore::default();
    *store.check.lock().expect("not poisoned") = Some(check);
    let mut server = TestServer::new(Arc::new(store), Options::default());
    let reply = server.connect().run("d", rawdoc! { "validate": "c", "full": true }).await;
    let expected = rawdoc! {
        "ns": "d.c", "nInvalidDocuments": 0, "nrecords": 3, "nIndexes": 2, "keysPerIndex": { "_id_": 3, "a_1": 2 },
        "indexDetails": { "_id_": { "valid": true }, "a_1": { "valid": false } },
        "valid": false, "repaired": false, "warnings": [], "errors": ["index a_1 of d.c: an entry is missing"], "ok": 1.0,
    };
    assert_eq!(reply, expected);
}

#[tokio::test(start_paused = true)]
async fn a_cursor_that_is_killed_while_it_is_read_does_not_look_read_to_its_end() {
    let store = Arc::new(TinyStore::default());
    let mut server = TestServer::new(store.clone(), Options::default());
    let (mut client, mut admin) = (server.connect(), server.connect());
    let documents: Vec<_> = (0..5).map(|id| rawdoc! { "_id": id }).collect();
    let documents = bson::RawArrayBuf::from_iter(documents);
    client.run("d", rawdoc! { "insert": "c", "documents": documents }).await;
    let reply = client.run("d", rawdoc! { "find": "c", "batchSize": 2 }).await;
    let id = reply.get_document("cursor").unwrap().get_i64("id").unwrap();
    *store.page_delay.lock().unwrap() = Duration::from_secs(5);
    let killed = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        admin.run("d", rawdoc! { "killCursors": "c", "cursors": [id] }).await
    };
    let (reply, _) =
        tokio::join!(client.refused("d", rawdoc! { "getMore": id, "collection": "c", "batchSize": 1 }), killed);
    assert_eq!(reply.0, 237);
}

#[tokio::test]
async fn collections_of_the_system_are_not_written_to() {
    let mut server = TestServer::transactional();
    let mut client = server.connect();
    let full = "d.system.x";
    for (database, command) in [
        ("d", rawdoc! { "create": "system.x" }),
        ("d", rawdoc! { "create": "system.profile" }),
        ("d", rawdoc! { "insert": "system.x", "documents": [{ "_id": 1 }] }),
        ("d", rawdoc! { "update": "system.x", "updates": [{ "q": {}, "u": { "a": 1 }, "upsert": true }] }),
        ("d", rawdoc! { "delete": "system.x", "deletes": [{ "q": {}, "limit": 1 }] }),
        ("d", rawdoc! { "findAndModify": "system.x", "update": { "a": 1 }, "upsert": true }),
        ("d", rawdoc! { "createIndexes": "system.x", "indexes": [{ "key": { "a": 1 }, "name": "a" }] }),
        (
            "admin",
            rawdoc! { "bulkWrite": 1, "ops": [{ "insert": 0, "document": { "_id": 1 } }], "nsInfo": [{ "ns": full }] },
        ),
    ] {
        let (code, name, text) = client.refused(database, command.clone()).await;
        assert_eq!((code, name.as_str()), (73, "InvalidNamespace"), "{command:?}");
        assert!(text.starts_with("Invalid system namespace: d.system."), "{text}");
    }
    // They can be read, and what looks like them is like any other.
    client.run("d", rawdoc! { "find": "system.x" }).await;
    for name in ["system.js", "systems", "system"] {
        client.run("d", rawdoc! { "insert": name, "documents": [{ "_id": 1 }] }).await;
    }
    let rename = rawdoc! { "renameCollection": "d.systems", "to": full };
    assert_eq!(client.refused("admin", rename).await.2, "Invalid system namespace: d.system.x");
}
