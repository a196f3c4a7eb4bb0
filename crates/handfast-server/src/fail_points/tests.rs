use bson::raw::RawDocumentBuf;
use bson::{RawBson, RawDocument, rawdoc};
use handfast_wire::Flags;

use super::Mode;
use crate::options::Options;
use crate::testing::{ReplyFields, TestServer, batch, cursor_id, error_of, insert, labels, numbered, with_number};

#[test]
fn a_mode_decides_when_the_point_is_entered() {
    fn entered(mut mode: Mode) -> Vec<bool> {
        let step = |_| {
            let (entered, next) = mode.step();
            mode = next;
            entered
        };
        (0..4).map(step).collect()
    }
    assert_eq!(entered(Mode::Off), [false; 4]);
    assert_eq!(entered(Mode::AlwaysOn), [true; 4]);
    assert_eq!(entered(Mode::Times(2)), [true, true, false, false]);
    assert_eq!(entered(Mode::Skip(3)), [false, false, false, true]);
    assert_eq!(entered(Mode::Skip(0)), [true; 4]);
}

#[test]
fn the_four_modes_are_read_and_others_refused() {
    let read = |value: &RawDocument| Mode::read(value.get("mode").unwrap().unwrap());
    let check = |value: &RawDocument, expected| assert_eq!(read(value).unwrap(), expected);
    check(&rawdoc! { "mode": "off" }, Mode::Off);
    check(&rawdoc! { "mode": "alwaysOn" }, Mode::AlwaysOn);
    check(&rawdoc! { "mode": { "times": 2 } }, Mode::Times(2));
    check(&rawdoc! { "mode": { "times": 0 } }, Mode::Off);
    check(&rawdoc! { "mode": { "skip": 2.0 } }, Mode::Skip(2));
    for (value, code) in [
        (rawdoc! { "mode": "on" }, 2),
        (rawdoc! { "mode": 1 }, 14),
        (rawdoc! { "mode": {} }, 2),
        (rawdoc! { "mode": { "times": 1, "skip": 1 } }, 2),
        (rawdoc! { "mode": { "times": -1 } }, 51_024),
        (rawdoc! { "mode": { "activationProbability": 0.5 } }, 40_415),
    ] {
        assert_eq!(read(&value).unwrap_err().code.0, code, "{value:?}");
    }
}

fn server() -> TestServer {
    TestServer::in_memory(Options { test_commands: true, ..Options::default() })
}

async fn set(server: &mut TestServer, point: &str, mode: impl Into<RawBson>, data: RawDocumentBuf) -> i64 {
    let command = rawdoc! { "configureFailPoint": point, "mode": mode.into(), "data": data };
    let reply = server.connect().run("admin", command).await;
    assert_eq!(reply.double("ok"), 1.0, "{reply:?}");
    reply.long("count")
}

async fn fail_command(server: &mut TestServer, data: RawDocumentBuf) {
    set(server, "failCommand", rawdoc! { "times": 1 }, data).await;
}

async fn fail_write(server: &mut TestServer, mode: RawDocumentBuf, data: RawDocumentBuf) {
    set(server, "onPrimaryTransactionalWrite", mode, data).await;
}

fn within(command: RawDocumentBuf, number: i64, starts: bool) -> RawDocumentBuf {
    let mut command = with_number(command, number);
    command.append(bson::raw::cstr!("autocommit"), false);
    if starts {
        command.append(bson::raw::cstr!("startTransaction"), true);
    }
    command
}

/// Runs a command to which there must be no reply, because the connection is closed.
async fn hangs_up(server: &mut TestServer, database: &str, command: RawDocumentBuf) {
    let mut client = server.connect();
    client.send(Flags::default(), database, command, &[]).await;
    let received = client.receive().await;
    assert!(received.is_none(), "{received:?}");
}

async fn count(server: &mut TestServer) -> i32 {
    server.connect().run("d", rawdoc! { "count": "c" }).await.int("n")
}

fn one_insert() -> RawDocumentBuf {
    rawdoc! { "insert": "c", "documents": [{ "_id": 1 }] }
}

fn three_inserts() -> RawDocumentBuf {
    rawdoc! { "insert": "c", "documents": [{ "_id": 1 }, { "_id": 2 }, { "_id": 3 }] }
}

#[tokio::test]
async fn without_the_flag_there_are_no_test_commands() {
    let mut server = TestServer::transactional();
    let mut client = server.connect();
    for command in [
        rawdoc! { "configureFailPoint": "failCommand", "mode": "off" },
        rawdoc! { "waitForFailPoint": "failCommand", "timesEntered": 1, "maxTimeMS": 1 },
    ] {
        assert_eq!(client.refused("admin", command).await.0, 59);
    }
    let listed = client.run("admin", rawdoc! { "listCommands": 1 }).await;
    assert!(!format!("{listed:?}").contains("FailPoint"));
    let parameter = rawdoc! { "getParameter": 1, "enableTestCommands": 1 };
    assert!(!client.run("admin", parameter.clone()).await.flag("enableTestCommands"));
    let mut client = self::server().connect();
    assert!(client.run("admin", parameter).await.flag("enableTestCommands"));
    let started = client.run("admin", rawdoc! { "getCmdLineOpts": 1 }).await;
    let parameters = started.get_document("parsed").unwrap().get_document("setParameter").unwrap();
    assert_eq!(parameters.text("enableTestCommands"), "1");
}

#[tokio::test]
async fn an_invalid_fail_point_is_refused_by_name() {
    let mut server = server();
    let mut client = server.connect();
    for (command, code, word) in [
        (rawdoc! { "configureFailPoint": "crash", "mode": "off" }, 266, "crash"),
        (rawdoc! { "configureFailPoint": "failCommand" }, 20, "mode"),
        (rawdoc! { "configureFailPoint": "failCommand", "mode": "on" }, 2, "on"),
        (rawdoc! { "configureFailPoint": "failCommand", "mode": "off", "data": { "thread": 1 } }, 40_415, "thread"),
        (rawdoc! { "configureFailPoint": "failCommand", "mode": "off", "extra": 1 }, 40_415, "extra"),
        (
            rawdoc! { "configureFailPoint": "failCommand", "mode": "off", "data": { "blockConnection": true } },
            40_414,
            "blockTimeMS",
        ),
        (
            rawdoc! { "configureFailPoint": "failCommand", "mode": "off", "data": { "failCommands": [1] } },
            14,
            "failCommands",
        ),
        (
            rawdoc! { "configureFailPoint": "onPrimaryTransactionalWrite", "mode": "off", "data": { "skip": 1 } },
            40_415,
            "skip",
        ),
        (rawdoc! { "waitForFailPoint": "crash", "timesEntered": 1, "maxTimeMS": 1 }, 266, "crash"),
        (rawdoc! { "waitForFailPoint": "failCommand", "timesEntered": 1 }, 40_414, "maxTimeMS"),
        (rawdoc! { "waitForFailPoint": "failCommand", "timesEntered": 1, "maxTimeMS": 20 }, 50, "time limit"),
    ] {
        let refused = client.refused("admin", command.clone()).await;
        assert!(refused.0 == code && refused.2.contains(word), "{command:?}: {refused:?}");
    }
    assert_eq!(client.refused("d", rawdoc! { "configureFailPoint": "failCommand", "mode": "off" }).await.0, 13);
}

#[tokio::test]
async fn a_command_fails_with_the_labels_of_a_real_error() {
    let mut server = server();
    let mut client = server.connect();
    for (code, command, expected) in [
        (91, with_number(one_insert(), 1), vec!["RetryableWriteError", "NoWritesPerformed"]),
        (112, with_number(one_insert(), 1), vec![]),
        (91, one_insert(), vec![]),
        (10_107, within(one_insert(), 2, true), vec!["TransientTransactionError"]),
        (112, within(one_insert(), 2, true), vec!["TransientTransactionError"]),
        (11_601, within(one_insert(), 2, true), vec![]),
    ] {
        fail_command(&mut server, rawdoc! { "failCommands": ["insert"], "errorCode": code }).await;
        assert_eq!(client.run("d", rawdoc! { "ping": 1 }).await.double("ok"), 1.0);
        let reply = client.run("d", command).await;
        assert_eq!((error_of(&reply).0, labels(&reply)), (code, expected.into_iter().map(str::to_owned).collect()));
    }
    let commit = within(rawdoc! { "commitTransaction": 1 }, 3, false);
    fail_command(&mut server, rawdoc! { "failCommands": ["commitTransaction"], "errorCode": 91 }).await;
    assert_eq!(labels(&client.run("admin", commit).await), ["RetryableWriteError"]);
    for given in [vec![], vec!["Mine"]] {
        let array: bson::RawArrayBuf = given.iter().copied().collect();
        let data = rawdoc! { "failCommands": ["insert"], "errorCode": 91, "errorLabels": array };
        fail_command(&mut server, data).await;
        assert_eq!(labels(&client.run("d", with_number(one_insert(), 4)).await), given);
    }
    assert_eq!(count(&mut server).await, 0);
}

#[tokio::test]
async fn failures_are_chosen_by_command_application_and_collection() {
    let mut server = server();
    let data = rawdoc! { "failCommands": ["isMaster"], "errorCode": 2 };
    set(&mut server, "failCommand", "alwaysOn", data).await;
    let mut client = server.connect();
    assert_eq!(client.refused("admin", rawdoc! { "isMaster": 1 }).await.0, 2);
    assert_eq!(client.refused("admin", rawdoc! { "ismaster": 1 }).await.0, 2);
    let mut client = server.connect();
    let named = rawdoc! { "hello": 1, "client": { "application": { "name": "mine" } } };
    assert_eq!(client.run("admin", named).await.double("ok"), 1.0);

    let data = rawdoc! { "failCommands": ["count"], "errorCode": 2, "appName": "mine", "namespace": "d.c" };
    set(&mut server, "failCommand", "alwaysOn", data).await;
    assert_eq!(client.refused("d", rawdoc! { "count": "c" }).await.0, 2);
    assert_eq!(client.run("d", rawdoc! { "count": "other" }).await.double("ok"), 1.0);
    assert_eq!(count(&mut server).await, 0);
    assert_eq!(set(&mut server, "failCommand", "off", rawdoc! {}).await, 3);
    assert_eq!(client.run("d", rawdoc! { "count": "c" }).await.double("ok"), 1.0);
}

#[tokio::test]
async fn a_command_whose_connection_is_closed_is_not_run() {
    let mut server = server();
    fail_command(&mut server, rawdoc! { "failCommands": ["insert"], "closeConnection": true }).await;
    hangs_up(&mut server, "d", one_insert()).await;
    assert_eq!(count(&mut server).await, 0);
}

#[tokio::test]
async fn commands_with_a_time_limit_exceed_it() {
    let mut server = server();
    let mut client = server.connect();
    insert(&mut client, "c", &numbered(5)).await;
    let bounded = || rawdoc! { "find": "c", "batchSize": 1, "maxTimeMS": 60_000 };
    let open = client.run("d", bounded()).await;
    set(&mut server, "maxTimeAlwaysTimeOut", "alwaysOn", rawdoc! {}).await;
    assert_eq!(client.refused("d", bounded()).await.0, 50);
    assert_eq!(client.refused("d", rawdoc! { "getMore": cursor_id(&open), "collection": "c" }).await.0, 50);
    assert_eq!(client.run("d", rawdoc! { "count": "c" }).await.int("n"), 5);
    set(&mut server, "maxTimeAlwaysTimeOut", "off", rawdoc! {}).await;
    assert_eq!(client.run("d", bounded()).await.double("ok"), 1.0);
}

#[tokio::test(start_paused = true)]
async fn a_blocked_command_can_be_awaited_and_continues_later() {
    let mut server = server();
    let block = rawdoc! { "failCommands": ["insert"], "blockConnection": true, "blockTimeMS": 5_000 };
    fail_command(&mut server, block).await;
    let mut client = server.connect();
    client.send(Flags::default(), "d", one_insert(), &[]).await;
    let wait = rawdoc! { "waitForFailPoint": "failCommand", "timesEntered": 1, "maxTimeMS": 1_000 };
    assert_eq!(server.connect().run("admin", wait).await.double("ok"), 1.0);
    assert_eq!(count(&mut server).await, 0);
    let (.., reply) = client.receive().await.unwrap();
    assert_eq!(reply.int("n"), 1);
}

#[tokio::test]
async fn a_write_concern_error_is_added_to_the_reply_of_an_applied_write() {
    let mut server = server();
    let mut client = server.connect();
    let data = rawdoc! { "failCommands": ["insert", "count"], "writeConcernError": { "code": 91, "errmsg": "bye" } };
    fail_command(&mut server, data).await;
    assert_eq!(count(&mut server).await, 0);
    let reply = client.run("d", with_number(one_insert(), 1)).await;
    let error = reply.get_document("writeConcernError").unwrap();
    assert_eq!((error.int("code"), error.text("errmsg")), (91, "bye"));
    assert_eq!((labels(&reply), reply.int("n")), (vec!["RetryableWriteError".to_owned()], 1));
    assert_eq!(count(&mut server).await, 1);
}

#[tokio::test]
async fn a_retryable_write_whose_reply_is_lost_is_applied_once() {
    let mut server = server();
    let update = rawdoc! { "update": "c", "updates": [{ "q": { "_id": 1 }, "u": { "$inc": { "n": 1 } } }] };
    let modify = rawdoc! { "findAndModify": "c", "query": { "_id": 1 }, "update": { "$inc": { "n": 1 } } };
    let bulk = rawdoc! { "bulkWrite": 1, "nsInfo": [{ "ns": "d.c" }], "ops": [
        { "update": 0, "filter": { "_id": 1 }, "updateMods": { "$inc": { "n": 1 } } },
    ] };
    let commands = [("d", one_insert()), ("d", update), ("d", modify), ("admin", bulk)];
    for (number, (database, command)) in (1..).zip(commands) {
        fail_write(&mut server, rawdoc! { "times": 1 }, rawdoc! {}).await;
        let command = with_number(command, number);
        hangs_up(&mut server, database, command.clone()).await;
        let reply = server.connect().run(database, command).await;
        assert_eq!(reply.double("ok"), 1.0, "{reply:?}");
    }
    let found = batch(&server.connect().run("d", rawdoc! { "find": "c" }).await);
    assert_eq!(found, [rawdoc! { "_id": 1, "n": 3 }]);
    // A write that is not retryable does not enter the fail point.
    fail_write(&mut server, rawdoc! { "times": 1 }, rawdoc! {}).await;
    let delete = rawdoc! { "delete": "c", "deletes": [{ "q": {}, "limit": 1 }] };
    assert_eq!(server.connect().run("d", delete.clone()).await.int("n"), 1);
    hangs_up(&mut server, "d", with_number(delete, 5)).await;
}

#[tokio::test]
async fn a_retryable_write_is_not_committed() {
    let mut server = server();
    let silent = rawdoc! { "failBeforeCommitExceptionCode": 1 };
    fail_write(&mut server, rawdoc! { "times": 1 }, silent).await;
    hangs_up(&mut server, "d", with_number(three_inserts(), 1)).await;
    assert_eq!(count(&mut server).await, 0);
    assert_eq!(server.connect().run("d", with_number(three_inserts(), 1)).await.int("n"), 3);

    // The first statement is applied, the second fails, the third is not tried. When the request is sent again, both are applied.
    let with_reply = rawdoc! { "failBeforeCommitExceptionCode": 1, "closeConnection": false };
    fail_write(&mut server, rawdoc! { "skip": 1 }, with_reply.clone()).await;
    let delete = |id| rawdoc! { "q": { "_id": id }, "limit": 1 };
    let deletes = rawdoc! { "delete": "c", "deletes": [delete(1), delete(2), delete(3)] };
    let reply = server.connect().run("d", with_number(deletes.clone(), 2)).await;
    let errors = reply.get_array("writeErrors").unwrap();
    let error = errors.into_iter().next().unwrap().unwrap().as_document().unwrap();
    assert_eq!((reply.int("n"), error.int("index"), error.int("code")), (1, 1, 1));
    assert_eq!(count(&mut server).await, 2);
    fail_write(&mut server, rawdoc! { "times": 0 }, with_reply.clone()).await;
    assert_eq!(server.connect().run("d", with_number(deletes, 2)).await.int("n"), 3);

    fail_write(&mut server, rawdoc! { "times": 2 }, with_reply).await;
    let modify = rawdoc! { "findAndModify": "c", "query": { "_id": 1 }, "update": { "n": 1 }, "upsert": true };
    assert_eq!(server.connect().refused("d", with_number(modify, 3)).await.0, 1);
    let bulk = rawdoc! { "bulkWrite": 1, "nsInfo": [{ "ns": "d.c" }], "ops": [{ "insert": 0, "document": {} }] };
    assert_eq!(server.connect().run("admin", with_number(bulk, 4)).await.int("nErrors"), 1);
    assert_eq!(count(&mut server).await, 0);
}
