use bson::raw::RawDocumentBuf;
use bson::{Bson, RawDocument, rawdoc};

use crate::auth::scram::client::prove;
use crate::testing::{ReplyFields, TestClient, TestServer, binary, error_of};

const FIRST: &str = "n,,n=ann,r=nonce";

async fn server() -> TestServer {
    let server = TestServer::guarded();
    server.add_user("admin", "ann", &["root@admin"]).await;
    server
}

fn start(payload: &str) -> RawDocumentBuf {
    rawdoc! { "saslStart": 1, "mechanism": "SCRAM-SHA-256", "payload": binary(payload) }
}

fn go_on(payload: &str) -> RawDocumentBuf {
    rawdoc! { "saslContinue": 1, "conversationId": 1, "payload": binary(payload) }
}

fn payload(reply: &RawDocument) -> String {
    let payload = reply.get_binary("payload").unwrap_or_else(|_| panic!("no payload: {reply:?}"));
    String::from_utf8(payload.bytes.to_vec()).unwrap()
}

async fn users(client: &mut TestClient) -> Vec<Bson> {
    let status = client.run("admin", rawdoc! { "connectionStatus": 1 }).await;
    let users = status.get_document("authInfo").unwrap().get_array("authenticatedUsers").unwrap();
    users.into_iter().map(|user| user.unwrap().try_into().unwrap()).collect()
}

const REFUSED: (i32, &str, &str) = (18, "AuthenticationFailed", "Authentication failed.");

fn assert_refused(reply: &RawDocument) {
    let (code, name, text) = error_of(reply);
    assert_eq!((code, name.as_str(), text.as_str()), REFUSED);
}

#[tokio::test]
async fn a_user_is_logged_in_until_its_logout() {
    let mut server = server().await;
    let mut client = server.connect();
    assert_eq!(client.refused("d", rawdoc! { "find": "c" }).await.2, "Command find requires authentication");
    assert!(users(&mut client).await.is_empty());
    let reply = client.log_in("admin", "ann", "ann").await;
    assert!(reply.flag("done"), "{reply:?}");
    assert_eq!(reply.int("conversationId"), 1);
    assert!(payload(&reply).starts_with("v="));
    client.run("d", rawdoc! { "find": "c" }).await.get_document("cursor").unwrap();
    assert_eq!(users(&mut client).await, [Bson::Document(bson::doc! { "user": "ann", "db": "admin" })]);
    assert_eq!(client.run("admin", rawdoc! { "logout": 1 }).await, rawdoc! { "ok": 1.0 });
    assert_eq!(client.refused("d", rawdoc! { "find": "c" }).await.0, 13);
}

#[tokio::test]
async fn a_login_may_end_with_an_empty_message() {
    let mut server = server().await;
    let mut client = server.connect();
    let first = payload(&client.run("admin", start(FIRST)).await);
    let reply = client.run("admin", go_on(&prove("ann", FIRST, &first))).await;
    assert!(!reply.flag("done"));
    assert!(users(&mut client).await.is_empty());
    let reply = client.run("admin", go_on("")).await;
    assert_eq!((reply.flag("done"), payload(&reply).as_str()), (true, ""));
    assert_eq!(users(&mut client).await.len(), 1);
}

#[tokio::test]
async fn a_login_may_begin_with_the_handshake() {
    let mut server = server().await;
    let mut client = server.connect();
    let hello = |user: &str| {
        let mut start = start(&format!("n,,n={user},r=nonce"));
        start.append(bson::raw::cstr!("db"), "admin");
        rawdoc! { "hello": 1, "saslSupportedMechs": format!("admin.{user}"), "speculativeAuthenticate": start }
    };
    let reply = client.run("admin", hello("ann")).await;
    let mechanisms = reply.get_array("saslSupportedMechs").unwrap().to_owned();
    let step = reply.get_document("speculativeAuthenticate").unwrap();
    let reply = client.run("admin", go_on(&prove("ann", FIRST, &payload(step)))).await;
    assert!(payload(&reply).starts_with("v="));
    assert_eq!(client.run("admin", go_on("")).await.double("ok"), 1.0);

    let reply = server.connect().run("admin", hello("eve")).await;
    assert_eq!(reply.get_array("saslSupportedMechs").unwrap(), &*mechanisms);
    assert!(payload(reply.get_document("speculativeAuthenticate").unwrap()).ends_with(",i=15000"));
    let reply = client.run("admin", rawdoc! { "hello": 1, "speculativeAuthenticate": { "nonsense": 1 } }).await;
    assert_eq!((reply.double("ok"), reply.get("speculativeAuthenticate").unwrap()), (1.0, None));
}

#[tokio::test]
async fn an_unknown_user_gets_the_same_replies_as_a_known_one() {
    let mut server = server().await;
    let mut client = server.connect();
    assert_refused(&client.log_in("admin", "ann", "wrong").await);
    assert_refused(&client.log_in("admin", "eve", "wrong").await);
    let mut salts = Vec::new();
    for _ in 0..2 {
        let mut client = server.connect();
        let reply = payload(&client.run("admin", start("n,,n=eve,r=nonce")).await);
        let parts: Vec<&str> = reply.split(',').collect();
        assert_eq!((parts.len(), parts[1].len(), parts[2]), (3, 42, "i=15000"));
        salts.push(parts[1].to_owned());
    }
    assert_eq!(salts[0], salts[1]);
    // A user belongs to its database.
    assert_refused(&server.connect().log_in("other", "ann", "ann").await);
}

#[tokio::test]
async fn the_connection_is_closed_after_three_failures() {
    let mut server = server().await;
    let mut client = server.connect();
    for _ in 0..super::FAILURES_MAX {
        assert_refused(&client.log_in("admin", "ann", "wrong").await);
    }
    assert!(client.receive().await.is_none());
    let mut other = server.connect();
    assert!(other.log_in("admin", "ann", "ann").await.flag("done"));
}

#[tokio::test]
async fn late_messages_and_those_out_of_order_are_refused() {
    let mut server = server().await;
    let mut client = server.connect();
    assert_eq!(client.refused("admin", go_on("x")).await.0, 17);
    let first = payload(&client.run("admin", start(FIRST)).await);
    let wrong = rawdoc! { "saslContinue": 1, "conversationId": 2, "payload": binary("") };
    assert_eq!(client.refused("admin", wrong).await.0, 17);
    assert_refused(&client.run("admin", go_on("")).await);
    // The failure has ended the login.
    assert_eq!(client.refused("admin", go_on(&prove("ann", FIRST, &first))).await.0, 17);

    // A nonce is valid once, so that recorded messages cannot be sent again.
    let first = payload(&client.run("admin", start(FIRST)).await);
    let overheard = prove("ann", FIRST, &first);
    assert_eq!(client.run("admin", go_on(&overheard)).await.double("ok"), 1.0);
    let mut other = server.connect();
    other.run("admin", start(FIRST)).await;
    assert_refused(&other.run("admin", go_on(&overheard)).await);

    let first = payload(&other.run("admin", start(FIRST)).await);
    server.advance(super::LOGIN_TIME + std::time::Duration::from_millis(1));
    assert_refused(&other.run("admin", go_on(&prove("ann", FIRST, &first))).await);
}

#[tokio::test]
async fn other_mechanisms_and_malformed_messages_are_refused() {
    let mut server = server().await;
    for mechanism in ["PLAIN", "SCRAM-SHA-1", "", "scram-sha-256"] {
        let command = rawdoc! { "saslStart": 1, "mechanism": mechanism, "payload": binary(FIRST) };
        let (code, name, _) = server.connect().refused("admin", command).await;
        assert_eq!((code, name.as_str()), (334, "MechanismUnavailable"));
    }
    let mechanism = "SCRAM-SHA-256";
    for mechanism in [mechanism, "MONGODB-X509"] {
        let command = rawdoc! { "saslStart": 1, "mechanism": mechanism, "payload": binary(FIRST) };
        assert_eq!(server.connect().refused("$external", command).await.0, 334);
    }
    assert_eq!(server.connect().refused("$external", rawdoc! { "find": "c" }).await.0, 73);
    for (command, code) in [
        (rawdoc! { "saslStart": 1 }, 40_414),
        (rawdoc! { "saslStart": 1, "mechanism": mechanism }, 40_414),
        (rawdoc! { "saslStart": 1, "mechanism": 1, "payload": binary(FIRST) }, 14),
        (rawdoc! { "saslStart": 1, "mechanism": mechanism, "payload": "text" }, 14),
        (rawdoc! { "saslStart": 1, "mechanism": mechanism, "payload": binary(FIRST), "options": { "x": 1 } }, 40_415),
        (rawdoc! { "saslContinue": 1 }, 40_414),
        (rawdoc! { "saslContinue": 1, "conversationId": "1", "payload": binary("") }, 14),
        (rawdoc! { "saslContinue": 1, "conversationId": 1, "payload": 1 }, 14),
    ] {
        assert_eq!(server.connect().refused("admin", command.clone()).await.0, code, "{command:?}");
    }
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig { cases: 64, failure_persistence: None, ..Default::default() })]

    /// Any bytes are refused, and the server continues.
    #[test]
    fn random_payloads_are_refused(first: Vec<u8>, last: Vec<u8>, printable in "n,,n=[ -~]{0,20},r=[ -~]{0,20}") {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut server = TestServer::guarded();
            let bytes = |bytes: &[u8]| bson::Binary { subtype: bson::spec::BinarySubtype::Generic, bytes: bytes.to_vec() };
            for payload in [first.as_slice(), printable.as_bytes(), FIRST.as_bytes()] {
                let mut client = server.connect();
                let start = rawdoc! { "saslStart": 1, "mechanism": "SCRAM-SHA-256", "payload": bytes(payload) };
                let started = client.run("admin", start).await.double("ok") == 1.0;
                let go_on = rawdoc! { "saslContinue": 1, "conversationId": 1, "payload": bytes(&last) };
                let (code, ..) = client.refused("admin", go_on).await;
                assert_eq!(code, if started { 18 } else { 17 });
                assert!(users(&mut client).await.is_empty());
            }
        });
    }
}
