//! Answers to requests that meet no expectation.

use bson::rawdoc;

use super::super::{Matcher, Role, Script, ScriptedServer};
use super::{Client, start};

#[tokio::test]
async fn autoresponders_answer_what_meets_no_expectation() {
    let script = Script::in_order().expect(Matcher::command("find").on("shop.a"), rawdoc! { "n": 0 });
    let server = ScriptedServer::start(Role::Standalone, script).await.unwrap();
    let mut client = Client::connect(&server).await;
    let _older = server.autorespond(Matcher::any(), rawdoc! { "n": 1 });
    let newer = server.autorespond(Matcher::command("find"), rawdoc! { "n": 2 });
    for (command, number) in [("find", 0), ("find", 2), ("find", 2), ("count", 1), ("ping", 1)] {
        assert_eq!(client.number(command).await, Some(number), "{command}");
    }
    newer.cancel();
    assert_eq!(client.number("find").await, Some(1), "the older one answers again");
    assert_eq!(server.finish().unwrap().len(), 1, "only the request of the script is returned");
}

#[tokio::test]
async fn a_cancelled_autoresponder_leaves_requests_to_the_script() {
    let (server, mut client) = start([]).await;
    let first = server.autorespond(Matcher::command("count"), rawdoc! { "n": 1 });
    let second = server.autorespond(Matcher::command("count"), rawdoc! { "n": 2 });
    first.cancel();
    assert_eq!(client.number("count").await, Some(2), "the other one goes on");
    let third = server.autorespond(Matcher::command("count"), rawdoc! { "n": 3 });
    second.cancel();
    assert_eq!(client.number("count").await, Some(3), "a new one is not taken for a cancelled one");
    third.cancel();
    assert_eq!(client.number("count").await, None, "the request is not expected");
    assert!(server.finish().is_err());
}
