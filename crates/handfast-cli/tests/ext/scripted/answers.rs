//! Each operation with each answer, with the drivers of five languages: what they repeat, and which error the program gets.

use bson::{RawDocumentBuf, rawdoc};
use handfast_blackpipe::{Answer, FailedWrite, Matcher, Role, Script};

use super::drivers::Driver;
use super::start;
use crate::support::turn;
use Outcome::{Failed, Repeated, Taken};

/// The operation of the program, the command that meets the answer, and the outcome if it succeeds.
const OPERATIONS: [(&str, &str, &str); 5] = [
    ("find", "find", "1 found"),
    ("find", "getMore", "2 found"),
    ("insert", "insert", "1 inserted"),
    ("update", "update", "1 updated"),
    ("delete", "delete", "1 deleted"),
];

/// The effect of an answer on the program.
#[derive(Clone, Copy)]
enum Outcome {
    /// The driver repeats the command once, and the program sees no error. The next batch of a cursor is not repeated, and ends with this error.
    Repeated { next_batch: &'static str },
    /// The driver repeats nothing, and the program gets this error.
    Failed(&'static str),
    /// The driver takes it as the reply.
    Taken,
}

const AS_NETWORK_ERROR: Outcome = Repeated { next_batch: "network error" };

/// The effects of the answers that are no replies, which differ from driver to driver.
#[derive(Clone, Copy)]
struct BrokenReplies {
    /// Bytes that are no message.
    garbage: Outcome,
    /// The reply to another request.
    wrong_response_to: Outcome,
    /// A message whose header announces too many bytes. Without one, the driver waits for them.
    oversized: Option<Outcome>,
}

impl BrokenReplies {
    /// Returns the answers with their outcomes, in the place of this reply.
    fn answers(self, reply: RawDocumentBuf) -> impl Iterator<Item = (&'static str, Answer, Outcome)> {
        let oversized = Answer::Oversized(reply.clone());
        [
            ("garbage", Answer::Garbage(vec![0xff; 64]), self.garbage),
            ("wrong_response_to", Answer::WrongResponseTo(reply), self.wrong_response_to),
        ]
        .into_iter()
        .chain(self.oversized.map(|outcome| ("oversized", oversized, outcome)))
    }
}

/// Returns the answers that mean the same to all drivers, in the place of this reply.
fn common(reply: RawDocumentBuf) -> [(&'static str, Answer, Outcome); 5] {
    let shut_down = Answer::error(91, "shutting down", &["RetryableWriteError"]);
    [
        ("reset", Answer::Reset, AS_NETWORK_ERROR),
        ("hang_up", Answer::HangUp, AS_NETWORK_ERROR),
        ("cut", Answer::Cut(reply), AS_NETWORK_ERROR),
        ("shut_down", shut_down, Repeated { next_batch: "error 91" }),
        ("error", Answer::error(96, "failed", &[]), Failed("error 96")),
    ]
}

/// Returns the reply of a server on which the operation succeeds.
fn success(command: &str, collection: &str) -> RawDocumentBuf {
    let cursor = |cursor: RawDocumentBuf| rawdoc! { "ok": 1.0, "cursor": cursor };
    match command {
        "find" => cursor(rawdoc! { "id": 0_i64, "ns": collection, "firstBatch": [{ "_id": 1 }] }),
        "getMore" => cursor(rawdoc! { "id": 0_i64, "ns": collection, "nextBatch": [{ "_id": 2 }] }),
        _ => rawdoc! { "ok": 1.0, "n": 1, "nModified": 1 },
    }
}

/// Sends each operation to a server that gives each answer. All of them run at the same time, each with a client and a collection of its own.
fn check(driver: Option<Driver>, broken: BrokenReplies) {
    let _turn = turn();
    let Some(driver) = driver else { return };
    let (mut script, mut operations, mut expected) = (Script::in_any_order(), Vec::new(), Vec::new());
    for (operation, command, succeeded) in OPERATIONS {
        let write_error = || {
            let answer = Answer::write_errors(
                0,
                [FailedWrite { index: 0, code: 11000, message: "E11000 duplicate key".to_owned() }],
            );
            ("write_error", answer, Failed("error 11000"))
        };
        let reply = |name: &str| success(command, &format!("shop.{command}_{name}"));
        let answers = common(reply("cut")).into_iter().chain(broken.answers(reply("wrong_response_to")));
        for (name, answer, outcome) in answers.chain((operation != "find").then(write_error)) {
            let collection = format!("shop.{command}_{name}");
            let request = |command: &str| Matcher::command(command).on(&collection);
            if command == "getMore" {
                script = script.expect(request("find"), Answer::first_batch(&collection, 7, [rawdoc! { "_id": 1 }]));
            }
            script = script.expect(request(command), answer);
            let printed = match outcome {
                Repeated { next_batch } if command == "getMore" => next_batch,
                Repeated { .. } => {
                    script = script.expect(request(command), success(command, &collection));
                    succeeded
                }
                Failed(error) => error,
                Taken => succeeded,
            };
            operations.push(format!("{operation}:{command}_{name}"));
            expected.push(format!("{operation}:{command}_{name} {printed}"));
        }
    }
    let (_runtime, server) = start(Role::Primary("rs".to_owned()), script);
    let printed = driver.run(&server.uri(), &operations).unwrap_or_else(|failure| panic!("{failure}"));
    assert_eq!(printed.lines().collect::<Vec<_>>(), expected);
    server.finish().unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn ext_scripted_answers_pymongo() {
    let failed = Failed("ProtocolError");
    check(Driver::pymongo(), BrokenReplies { garbage: failed, wrong_response_to: failed, oversized: Some(failed) });
}

/// The driver waits for all bytes that a header announces, however many.
#[test]
fn ext_scripted_answers_node() {
    let garbage = Failed("MongoParseError");
    check(Driver::node(), BrokenReplies { garbage, wrong_response_to: Taken, oversized: None });
    let _turn = turn();
    let Some(node) = Driver::node() else { return };
    let oversized = Answer::Oversized(rawdoc! { "ok": 1.0, "n": 1 });
    let script = Script::in_order().expect(Matcher::command("update"), oversized);
    let (_runtime, server) = start(Role::Primary("rs".to_owned()), script);
    let printed = node.run(&format!("{}?socketTimeoutMS=5000", server.uri()), &["update_many:oversized".to_owned()]);
    assert_eq!(printed.as_deref(), Ok("update_many:oversized network error\n"));
    server.finish().unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn ext_scripted_answers_go() {
    let (garbage, oversized) = (AS_NETWORK_ERROR, Some(AS_NETWORK_ERROR));
    check(Driver::go(), BrokenReplies { garbage, wrong_response_to: Taken, oversized });
}

#[test]
fn ext_scripted_answers_rust() {
    let failed = Failed("InvalidResponse");
    check(Driver::rust(), BrokenReplies { garbage: failed, wrong_response_to: Taken, oversized: Some(failed) });
}

#[test]
fn ext_scripted_answers_java() {
    let failed = Failed("MongoInternalException");
    check(Driver::java(), BrokenReplies { garbage: failed, wrong_response_to: failed, oversized: Some(failed) });
}
