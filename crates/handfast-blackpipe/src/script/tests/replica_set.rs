//! Elections of a scripted replica set, as a client sees them.

use bson::{RawDocumentBuf, rawdoc};
use handfast_wire::{Flags, Limits, Message};
use tokio::net::TcpStream;

use super::super::{Answer, Matcher, Role, Script, ScriptedReplicaSet, ScriptedServer};
use super::Client;
use crate::Error;
use crate::frame::read;

async fn start(script: Script) -> ScriptedReplicaSet {
    ScriptedReplicaSet::start("rs", 3, script).await.unwrap()
}

async fn connect(set: &ScriptedReplicaSet, member: usize) -> Client {
    Client(TcpStream::connect(set.addresses()[member]).await.unwrap())
}

/// Returns a handshake that waits for a change, for up to ten minutes.
fn awaiting(known: &RawDocumentBuf) -> RawDocumentBuf {
    let version = known.get_document("topologyVersion").unwrap().to_owned();
    rawdoc! { "hello": 1, "topologyVersion": version, "maxAwaitTimeMS": 600_000 }
}

/// Reads a reply: its number, that of the request, whether more follows, and the document.
async fn reply(client: &mut Client) -> (i32, i32, bool, RawDocumentBuf) {
    // Far below the ten minutes after which a wait ends without a change.
    let limit = std::time::Duration::from_secs(120);
    let read = tokio::time::timeout(limit, read(&mut client.0, &Limits::default())).await;
    let frame = read.expect("a reply at the change").unwrap().unwrap();
    let (header, message) = Message::decode(&frame.bytes, &Limits::default()).unwrap();
    let Message::Msg(message) = message else { panic!("{message:?}") };
    (header.request_id, header.response_to, message.flags.more_to_come, message.body.to_owned())
}

fn is_primary(hello: &RawDocumentBuf) -> bool {
    hello.get_bool("isWritablePrimary").unwrap()
}

#[tokio::test]
async fn members_name_each_other_and_the_primary() {
    let set = start(Script::in_order()).await;
    let addresses: Vec<String> = set.addresses().iter().map(ToString::to_string).collect();
    assert_eq!(set.uri(), format!("mongodb://{}/?replicaSet=rs", addresses.join(",")));
    for (member, address) in addresses.iter().enumerate() {
        let (_, hello) = connect(&set, member).await.run(rawdoc! { "hello": 1 }).await;
        let hosts: Vec<_> = hello
            .get_array("hosts")
            .unwrap()
            .into_iter()
            .map(|host| host.unwrap().as_str().unwrap().to_owned())
            .collect();
        assert_eq!(hosts, addresses);
        assert_eq!(
            (hello.get_str("me").unwrap(), hello.get_str("primary").unwrap()),
            (address.as_str(), addresses[0].as_str())
        );
        assert_eq!((is_primary(&hello), hello.get_bool("secondary").unwrap()), (member == 0, member != 0));
    }
}

/// Both handshakes wait for ten minutes, so that only the changes can end them.
#[tokio::test]
async fn an_election_ends_the_wait_of_a_handshake() {
    let set = start(Script::in_order()).await;
    let (mut old, mut new) = (connect(&set, 0).await, connect(&set, 1).await);
    let (_, hello) = old.run(rawdoc! { "hello": 1 }).await;
    old.send(Flags::default(), &awaiting(&hello)).await;
    let (_, hello) = new.run(rawdoc! { "hello": 1 }).await;
    new.send(Flags { exhaust_allowed: true, ..Flags::default() }, &awaiting(&hello)).await;
    set.elect(1).unwrap();
    assert_eq!(set.primary(), Some(1));
    let (_, response_to, has_more, hello) = reply(&mut old).await;
    assert_eq!((response_to, has_more, is_primary(&hello)), (42, false, false));
    let (first, response_to, has_more, hello) = reply(&mut new).await;
    assert_eq!((response_to, has_more, is_primary(&hello)), (42, true, true));
    set.step_down();
    assert_eq!(set.primary(), None);
    let (_, response_to, has_more, hello) = reply(&mut new).await;
    assert_eq!((response_to, has_more, is_primary(&hello)), (first, true, false), "it goes on after the one before");
    assert!(hello.get_str("primary").is_err());
}

/// A client that knows another state gets the present one at once; a wait without a change ends with its time.
#[tokio::test]
async fn a_handshake_waits_for_what_the_client_does_not_know() {
    let set = start(Script::in_order()).await;
    let mut client = connect(&set, 2).await;
    let (_, first) = client.run(rawdoc! { "hello": 1 }).await;
    set.elect(2).unwrap();
    let (_, second) = client.run(awaiting(&first)).await;
    assert!(!is_primary(&first) && is_primary(&second));
    let version = second.get_document("topologyVersion").unwrap().to_owned();
    let short = rawdoc! { "hello": 1, "topologyVersion": version, "maxAwaitTimeMS": 1_i64 };
    assert_eq!(client.run(short).await.1, second);
}

#[tokio::test]
async fn a_member_that_is_not_the_primary_refuses_what_needs_it() {
    let script = Script::in_order()
        .expect(Matcher::command("insert"), Answer::written(1).after_election(1))
        .expect(Matcher::command("insert").at(1), Answer::written(1))
        .expect(Matcher::command("insert").at(0), rawdoc! { "ok": 1.0, "n": 7 })
        .expect(Matcher::command("find").with("$readPreference.mode", "secondary"), rawdoc! { "ok": 1.0, "n": 8 });
    let set = start(script).await;
    let (mut zero, mut one) = (connect(&set, 0).await, connect(&set, 1).await);
    let insert = || rawdoc! { "insert": "a", "txnNumber": 1_i64 };
    let (_, refused) = one.run(insert()).await;
    assert_eq!(refused.get_i32("code").unwrap(), 10107);
    assert_eq!(refused.get_document("topologyVersion").unwrap().get_i64("counter").unwrap(), 1);
    assert_eq!(zero.run(insert()).await.1.get_i32("n").unwrap(), 1);
    let (_, refused) = zero.run(rawdoc! { "find": "a" }).await;
    assert_eq!(refused.get_i32("code").unwrap(), 13435);
    assert_eq!(refused.get_document("topologyVersion").unwrap().get_i64("counter").unwrap(), 2, "after the election");
    assert_eq!(one.run(insert()).await.1.get_i32("n").unwrap(), 1);
    assert_eq!(zero.run(insert()).await.1.get_i32("n").unwrap(), 7, "the script expects it at this member");
    let secondary = rawdoc! { "find": "a", "$readPreference": { "mode": "secondary" } };
    assert_eq!(zero.run(secondary).await.1.get_i32("n").unwrap(), 8);
    let members: Vec<_> = set.finish().unwrap().iter().map(super::ReceivedRequest::member).collect();
    assert_eq!(members, [Some(0), Some(1), Some(0), Some(0)], "refused requests are no part of the script");
}

/// The state changes before the rest of the answer: it can be the error of a primary that has stepped down.
#[tokio::test]
async fn a_step_down_in_the_middle_of_an_operation() {
    let interrupted = Answer::error(11602, "interrupted", &["RetryableWriteError"]).after_step_down();
    let script = Script::in_order()
        .expect(Matcher::command("insert"), interrupted)
        .expect(Matcher::any().at(1), Answer::HangUp.after(std::time::Duration::from_millis(1)).after_election(0))
        .expect(Matcher::command("count").at(2), Answer::ok());
    let set = start(script).await;
    let (_, error) = connect(&set, 0).await.run(rawdoc! { "insert": "a" }).await;
    assert_eq!((error.get_i32("code").unwrap(), set.primary()), (11602, None));
    assert_eq!(error.get_document("topologyVersion").unwrap().get_i64("counter").unwrap(), 2);
    assert!(connect(&set, 1).await.bytes_after_find().await.0.is_empty());
    assert_eq!(set.primary(), Some(0));
    connect(&set, 1).await.run(rawdoc! { "count": "a" }).await;
    let report = set.finish().unwrap_err().to_string();
    for part in [
        "3. count at member 2: DID NOT ARRIVE",
        "3. { \"count\": \"a\" } at member 1: refused, because the member is not the primary",
    ] {
        assert!(report.contains(part), "{report}");
    }
}

#[tokio::test]
async fn members_that_are_not_there_are_refused() {
    let at = |member| Script::in_order().expect(Matcher::any().at(member), Answer::ok());
    let elects = |member| Script::in_order().expect(Matcher::any(), Answer::ok().after_election(member));
    let steps_down = Script::in_order().expect(Matcher::any(), Answer::ok().after_step_down());
    for script in [at(3), elects(3)] {
        let error = ScriptedReplicaSet::start("rs", 3, script).await.err().unwrap();
        assert_eq!(error.to_string(), "the replica set has no member 3: it has 3 members, and the first one is 0");
    }
    for script in [at(0), elects(0), steps_down] {
        let error = ScriptedServer::start(Role::Standalone, script).await.err().unwrap();
        assert!(matches!(error, Error::NoReplicaSet));
    }
    let set = start(Script::in_order()).await;
    assert!(matches!(set.elect(3), Err(Error::Member { member: 3, count: 3 })));
    assert!(set.autorespond(Matcher::any().at(3), Answer::ok()).is_err());
    assert!(set.autorespond(Matcher::any().at(2), Answer::ok().after_election(2)).is_ok());
}
