//! The cases of the tutorial and of the tests of mockupdb, told again as scripts.

use bson::rawdoc;
use handfast_blackpipe::{Answer, Matcher, Role, Script};

use super::{found, play, printed, run, start};
use crate::support::{Tool, turn};

fn insert() -> Matcher {
    Matcher::command("insert").on("shop.orders")
}

/// Returns a batch that is the whole result, of one document.
fn only(id: i32) -> Answer {
    Answer::first_batch("shop.orders", 0, [rawdoc! { "_id": id }])
}

/// Runs a program that does not follow the script, and requires these parts in the report.
#[track_caller]
fn check_report(python: &str, script: Script, program: &str, parts: &[&str]) {
    let played = play(python, Role::Standalone, script, program);
    let report = played.received.expect_err("the script is not followed").to_string();
    for part in parts {
        assert!(report.contains(part), "{part} is not in the report:\n{report}\nprinted: {}", played.printed);
    }
}

/// mockupdb: `autoresponds('ismaster')`. The handshake, and what a driver sends at its end, need no script.
#[test]
fn ext_mockupdb_handshake() {
    let _turn = turn();
    let Some(python) = Tool::Python.find() else { return };
    let program = "
result(lambda: client.admin.command('hello')['isWritablePrimary'])
result(lambda: client.admin.command('ping'))
client.close()
";
    let played = play(&python, Role::Standalone, Script::in_order(), program);
    assert_eq!(played.printed, "True\n{'ok': 1.0}\n");
    assert_eq!(played.received.expect("nothing is expected"), []);
}

/// mockupdb: `ok`, `ok(field=..)`, `command_err`, `hangup` as replies to commands, in the order in which they are received.
#[test]
fn ext_mockupdb_replies() {
    let _turn = turn();
    let Some(python) = Tool::Python.find() else { return };
    let script = Script::in_order()
        .expect(insert().with("documents.0._id", 1), Answer::written(1))
        .expect(Matcher::command("foo"), rawdoc! { "ok": 1.0, "field": "value" })
        .expect(insert(), Answer::error(11000, "eek!", &[]))
        .expect(Matcher::command("foo"), Answer::error(112, "later", &["Tired", "Slow"]))
        .expect(insert(), Answer::HangUp)
        .expect(Matcher::command("shutdown"), Answer::HangUp);
    let program = "
result(lambda: orders.insert_one({'_id': 1}).inserted_id)
result(lambda: client.shop.command('foo')['field'])
result(lambda: orders.insert_one({'_id': 1}))
try:
    client.shop.command('foo')
except OperationFailure as error:
    print(error.code, error.details['errmsg'], error.has_error_label('Tired'), error.has_error_label('Slow'))
result(lambda: orders.insert_one({'_id': 1}))
result(lambda: client.admin.command('shutdown'))
";
    let expected = "1\nvalue\nDuplicateKeyError\n112 later True True\nAutoReconnect\nAutoReconnect\n";
    assert_eq!(printed(&python, Role::Standalone, script, program), expected);
}

/// mockupdb: a reply with a cursor, `getMore`, and `killCursors` of a cursor that is closed before its end.
#[test]
fn ext_mockupdb_cursor() {
    let _turn = turn();
    let Some(python) = Tool::Python.find() else { return };
    let batch = |id: i32| [rawdoc! { "_id": id }];
    let script = Script::in_order()
        .expect(Matcher::command("find").with("batchSize", 1), Answer::first_batch("shop.orders", 123, batch(1)))
        .expect(Matcher::command("getMore").with("getMore", 123), Answer::next_batch("shop.orders", 123, batch(2)))
        .expect(Matcher::command("killCursors").on("shop.orders").with("cursors.0", 123), Answer::ok());
    let program = "
cursor = orders.find(batch_size=1)
print(next(cursor), next(cursor))
cursor.close()
";
    assert_eq!(printed(&python, Role::Standalone, script, program), "{'_id': 1} {'_id': 2}\n");
}

/// mockupdb: `receives(OpMsg('find', 'coll', filter=..))`, `absent`, and the write concern that a client sends only if it is set.
#[test]
fn ext_mockupdb_matching() {
    let _turn = turn();
    let Some(python) = Tool::Python.find() else { return };
    let time = bson::DateTime::from_millis(1_543_644_366_012);
    let script = Script::in_order()
        .expect(insert().with("writeConcern.w", 1), Answer::written(1))
        .expect(insert().without("writeConcern"), Answer::written(1))
        .expect(insert().with("documents.0.at", time), Answer::written(1))
        .expect(Matcher::command("find").with("filter", rawdoc! { "a": 1, "b": 1 }).with("limit", 3), found())
        .expect(Matcher::any().with("pipeline.0.$match.a", 1), found());
    let program = "
import datetime
acknowledged = pymongo.MongoClient(os.environ['MONGODB_URI'], w=1, serverSelectionTimeoutMS=20000, socketTimeoutMS=20000)
acknowledged.shop.orders.insert_one({})
orders.insert_one({})
orders.insert_one({'at': datetime.datetime(2018, 12, 1, 6, 6, 6, 12345)})
result(lambda: list(orders.find({'a': 1, 'b': 1}, limit=3)))
result(lambda: list(orders.aggregate([{'$match': {'a': 1}}])))
";
    assert_eq!(printed(&python, Role::Standalone, script, program), "[{'_id': 1}]\n".repeat(2));
}

/// mockupdb: a request that does not match, comes too early, has its fields in another order, or never arrives.
#[test]
fn ext_mockupdb_not_followed() {
    let _turn = turn();
    let Some(python) = Tool::Python.find() else { return };
    let script = Script::in_order().expect(Matcher::command("commandBar"), Answer::ok());
    let parts = ["1. commandBar: DID NOT ARRIVE", "\"commandFoo\": 1", ": NOT EXPECTED"];
    check_report(&python, script, "result(lambda: client.shop.command('commandFoo'))", &parts);
    let script = Script::in_order().expect(Matcher::command("first"), Answer::ok()).expect(insert(), Answer::ok());
    let parts = ["1. first: arrived", "2. insert on shop.orders: DID NOT ARRIVE", "\"insert\": \"orders\""];
    let program = "
result(lambda: orders.insert_one({'_id': 1}))
client.shop.command('first')
";
    check_report(&python, script, program, &parts);
    let script = Script::in_order().expect(Matcher::any().with("filter", rawdoc! { "b": 1, "a": 1 }), found());
    let parts = ["any command, filter = { \"b\": 1, \"a\": 1 }: DID NOT ARRIVE", "\"filter\": { \"a\": 1, \"b\": 1 }"];
    check_report(&python, script, "result(lambda: orders.find_one({'a': 1, 'b': 1}))", &parts);
    let script = Script::in_order().expect(insert(), Answer::ok());
    check_report(&python, script, "pass", &["1. insert on shop.orders: DID NOT ARRIVE", "received:\n  nothing"]);
}

/// mockupdb: `autoresponds` instead of a loop with `got`. The autoresponder that was added last answers, and `cancel` ends it.
#[test]
fn ext_mockupdb_autoresponders() {
    let _turn = turn();
    let Some(python) = Tool::Python.find() else { return };
    let (_runtime, server) =
        start(Role::Standalone, Script::in_order().expect(Matcher::command("break"), Answer::ok()));
    let _everything = server.autorespond(Matcher::any(), Answer::error(59, "unrecognized request", &[]));
    let _find = server.autorespond(Matcher::command("find").on("shop.orders"), only(1));
    let restrictive = server.autorespond(Matcher::command("find").with("filter.a.$gt", 1), only(2));
    let program = "
result(lambda: list(orders.find()))
result(lambda: list(orders.find({'a': {'$gt': 1}})))
result(lambda: orders.count_documents({}))
";
    let answered = "[{'_id': 1}]\n[{'_id': 2}]\nOperationFailure\n";
    assert_eq!(run(&python, &server, program).as_deref(), Ok(answered));
    restrictive.cancel();
    let answered = "[{'_id': 1}]\n[{'_id': 1}]\nOperationFailure\n";
    assert_eq!(run(&python, &server, program).as_deref(), Ok(answered));
    let program = "result(lambda: client.shop.command('break'))";
    assert_eq!(run(&python, &server, program).as_deref(), Ok("{'ok': 1.0}\n"));
    let received = server.finish().expect("the script was followed");
    assert_eq!(received.len(), 1, "only the request of the script is reported");
}

/// mockupdb: several clients at once. Each waits until the others have connected, and gets its own answer.
#[test]
fn ext_mockupdb_several_clients() {
    let _turn = turn();
    let Some(python) = Tool::Python.find() else { return };
    let script = (0..4).fold(Script::in_any_order(), |script, id| {
        script.expect(Matcher::command("find").with("filter.client", id), only(id))
    });
    let program = "
import threading
barrier = threading.Barrier(4)
answers = {}
def ask(number):
    own = pymongo.MongoClient(os.environ['MONGODB_URI'], serverSelectionTimeoutMS=20000, socketTimeoutMS=20000)
    own.admin.command('ping')
    barrier.wait()
    answers[number] = own.shop.orders.find_one({'client': number})['_id']
threads = [threading.Thread(target=ask, args=[number]) for number in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(sorted(answers.items()))
";
    let expected = "[(0, 0), (1, 1), (2, 2), (3, 3)]\n";
    assert_eq!(printed(&python, Role::Standalone, script, program), expected);
}
