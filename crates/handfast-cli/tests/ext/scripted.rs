//! Scripted servers with pymongo, which nobody here wrote: the cases that the documentation of mockupdb tells, and what drivers do today.

mod answers;
mod drivers;
mod mockupdb;
mod replica_set;
mod streams;

use std::process::Command;

use bson::rawdoc;
use handfast_blackpipe::{Answer, Error, FailedWrite, Matcher, ReceivedRequest, Role, Script, ScriptedServer};
use tokio::runtime::Runtime;

use crate::running::output;
use crate::support::{Tool, turn};

/// Begins each program: it stops soon if the server does not answer as it should, and keeps one connection.
const PRELUDE: &str = "
import os
import pymongo
from pymongo.errors import *
client = pymongo.MongoClient(os.environ['MONGODB_URI'], serverSelectionTimeoutMS=20000, socketTimeoutMS=20000)
orders = client.shop.orders
def result(operation):
    try:
        print(operation())
    except PyMongoError as error:
        print(type(error).__name__)
";

/// The output of a program, and the requests that its server received.
struct Played {
    printed: String,
    received: Result<Vec<ReceivedRequest>, Error>,
}

/// Starts a server that follows a script. It ends with the runtime.
fn start(role: Role, script: Script) -> (Runtime, ScriptedServer) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("threads");
    let server = runtime.block_on(ScriptedServer::start(role, script)).expect("a server");
    (runtime, server)
}

/// Runs a program against a server; returns what it printed, or how it failed.
fn run(python: &str, server: &ScriptedServer, program: &str) -> Result<String, String> {
    let program = format!("{PRELUDE}{program}");
    let output = output(Command::new(python).args(["-c", &program]).env("MONGODB_URI", server.uri()));
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(format!("{program}\n{output:?}")),
    }
}

/// Runs a program against a server that follows a script.
fn play(python: &str, role: Role, script: Script, program: &str) -> Played {
    let (_runtime, server) = start(role, script);
    let printed = match run(python, &server, program) {
        Ok(printed) => printed,
        Err(failure) => panic!("{failure}\n{:?}", server.finish()),
    };
    Played { printed, received: server.finish() }
}

/// Runs a program that follows the script; returns what it printed.
fn printed(python: &str, role: Role, script: Script, program: &str) -> String {
    let played = play(python, role, script, program);
    played.received.unwrap_or_else(|error| panic!("{error}\nprinted: {}", played.printed));
    played.printed
}

fn find() -> Matcher {
    Matcher::command("find").on("shop.orders")
}

fn found() -> Answer {
    Answer::first_batch("shop.orders", 0, [rawdoc! { "_id": 1 }])
}

/// Requests are matched by command, collection and fields; a cursor has batches; errors of writes and of commands arrive as such.
#[test]
fn ext_scripted_answers() {
    let _turn = turn();
    let Some(python) = Tool::Python.find() else { return };
    let script = Script::in_order()
        .expect(
            find().with("filter.a.$gt", 1).with("batchSize", 2),
            Answer::first_batch("shop.orders", 7, [rawdoc! { "_id": 1 }]),
        )
        .expect(
            Matcher::command("getMore").on("shop.orders").with("getMore", 7),
            Answer::next_batch("shop.orders", 0, [rawdoc! { "_id": 2 }]),
        )
        .expect(
            Matcher::command("insert").with("documents.0._id", 5),
            Answer::write_errors(
                0,
                [FailedWrite { index: 0, code: 11000, message: "E11000 duplicate key".to_owned() }],
            ),
        )
        .expect(Matcher::command("update").with("updates.0.u.$inc.n", 1), Answer::written(1))
        .expect(Matcher::command("ping"), Answer::error(13, "no", &[]));
    let program = "
result(lambda: list(orders.find({'a': {'$gt': 1}}, batch_size=2)))
result(lambda: orders.insert_one({'_id': 5}))
result(lambda: orders.update_one({}, {'$inc': {'n': 1}}).modified_count)
result(lambda: client.admin.command('ping'))
";
    let expected = "[{'_id': 1}, {'_id': 2}]\nDuplicateKeyError\n1\nOperationFailure\n";
    assert_eq!(printed(&python, Role::Standalone, script, program), expected);
}

/// Broken connections and messages reach the program as the errors that it has to expect; the driver repeats a read once.
#[test]
fn ext_scripted_failures() {
    let _turn = turn();
    let Some(python) = Tool::Python.find() else { return };
    let reply = || rawdoc! { "ok": 1.0, "n": 1 };
    let mut script = Script::in_order();
    for answer in [Answer::HangUp, Answer::Reset, Answer::Cut(reply())] {
        script = script.expect(find(), answer).expect(find(), found());
    }
    for answer in
        [Answer::HangUp, Answer::WrongResponseTo(reply()), Answer::Oversized(reply()), Answer::Garbage(vec![7; 64])]
    {
        script = script.expect(Matcher::command("delete"), answer);
    }
    let program = "
for _ in range(3):
    result(lambda: list(orders.find()))
for _ in range(4):
    result(lambda: orders.delete_many({}))
";
    let expected = "[{'_id': 1}]\n".repeat(3) + "AutoReconnect\n" + &"ProtocolError\n".repeat(3);
    assert_eq!(printed(&python, Role::Standalone, script, program), expected);
    let script = Script::in_order().expect(Matcher::command("delete"), Answer::Silence);
    let program = "
client = pymongo.MongoClient(os.environ['MONGODB_URI'], socketTimeoutMS=500)
result(lambda: client.shop.orders.delete_many({}))
";
    assert_eq!(printed(&python, Role::Standalone, script, program), "NetworkTimeout\n");
}

/// A driver repeats a write to a primary with the same number, after an error that allows it, and asks for the primary before.
#[test]
fn ext_scripted_retryable_writes() {
    let _turn = turn();
    let Some(python) = Tool::Python.find() else { return };
    let insert = || Matcher::command("insert").on("shop.orders");
    let shutdown = Answer::error(91, "shutting down", &["RetryableWriteError"]);
    let script = Script::in_order().expect(insert(), shutdown).expect(insert(), Answer::written(1));
    let program = "result(lambda: orders.insert_one({'_id': 5}).inserted_id)";
    let played = play(&python, Role::Primary("rs".to_owned()), script, program);
    assert_eq!(played.printed, "5\n");
    let received = played.received.expect("the script was followed");
    let numbers: Vec<_> = received.iter().map(|request| (request.get("lsid.id"), request.get("txnNumber"))).collect();
    assert!(numbers[0] == numbers[1] && numbers[0].0.is_some() && numbers[0].1.is_some(), "{received:?}");
}

/// Several clients send their requests in any order; what no one expects is refused, and reported with both sides.
#[test]
fn ext_scripted_any_order() {
    let _turn = turn();
    let Some(python) = Tool::Python.find() else { return };
    let of_client = |id: i32| find().with("filter._id", id);
    let script = || Script::in_any_order().expect(of_client(1), found()).expect(of_client(2), found());
    let program = "
import threading
threads = [threading.Thread(target=lambda id=id: orders.find_one({'_id': id})) for id in (2, 1)]
for thread in threads: thread.start()
for thread in threads: thread.join()
";
    assert_eq!(printed(&python, Role::Standalone, script(), program), "");
    let program = "
orders.find_one({'_id': 1})
result(lambda: orders.count_documents({}))
";
    let played = play(&python, Role::Standalone, script(), program);
    assert_eq!(played.printed, "OperationFailure\n");
    let report = played.received.expect_err("a request was not expected").to_string();
    for part in ["2. find on shop.orders, filter._id = 2: DID NOT ARRIVE", "\"aggregate\": \"orders\"", "NOT EXPECTED"]
    {
        assert!(report.contains(part), "{report}");
    }
}
