use std::time::Duration;

use bson::raw::RawDocumentBuf;
use bson::spec::BinarySubtype;
use bson::{Binary, RawBson, rawdoc};
use sha2::{Digest, Sha256};

use crate::testing::{ReplyFields, TestClient, TestServer, batch, lsid};

async fn list(client: &mut TestClient, options: RawBson) -> RawDocumentBuf {
    let stages = bson::rawbson!([{ "$listLocalSessions": options }, { "$sort": { "lastUse": 1 } }]);
    client.run("d", rawdoc! { "aggregate": 1, "pipeline": stages, "cursor": {} }).await
}

/// Returns the `_id` of a session of a user `name@database`, or of no user.
fn id(byte: u8, user: &str) -> RawDocumentBuf {
    let mut id = lsid(byte);
    let bytes = Sha256::digest(user.as_bytes()).to_vec();
    id.append(bson::raw::cstr!("uid"), Binary { subtype: BinarySubtype::Generic, bytes });
    id
}

fn ids(reply: &RawDocumentBuf) -> Vec<RawDocumentBuf> {
    batch(reply).iter().map(|session| session.get_document("_id").unwrap().to_owned()).collect()
}

#[tokio::test]
async fn sessions_are_listed_with_their_last_use() {
    let mut server = TestServer::transactional();
    let mut client = server.connect();
    client.run("d", rawdoc! { "ping": 1, "lsid": lsid(1) }).await;
    server.advance(Duration::from_secs(5));
    client.run("d", rawdoc! { "ping": 1, "lsid": lsid(2) }).await;
    for options in [bson::rawbson!({}), bson::rawbson!({ "allUsers": true }), bson::rawbson!({ "users": [] })] {
        let reply = list(&mut client, options).await;
        assert_eq!(ids(&reply), [id(1, ""), id(2, "")]);
        let listed = batch(&reply);
        let used = |place: usize| listed[place].get_datetime("lastUse").unwrap().timestamp_millis();
        assert_eq!(used(1) - used(0), 5_000);
    }
    let stage = rawdoc! { "aggregate": "system.sessions", "pipeline": [{ "$listSessions": {} }, { "$count": "n" }], "cursor": {} };
    assert_eq!(batch(&client.run("config", stage).await), [rawdoc! { "n": 2 }]);
    let of_nobody = bson::rawbson!({ "users": [{ "user": "ann", "db": "admin" }] });
    assert!(batch(&list(&mut client, of_nobody).await).is_empty());
}

#[tokio::test]
async fn sessions_of_others_need_the_right_to_see_them() {
    let mut server = TestServer::guarded();
    let mut clients = Vec::new();
    for (place, (name, role)) in [("ann", "read@shop"), ("eve", "clusterMonitor@admin")].into_iter().enumerate() {
        server.add_user("admin", name, &[role]).await;
        let mut client = server.connect();
        assert!(client.log_in("admin", name, name).await.flag("done"));
        let session = lsid(u8::try_from(place).unwrap());
        client.run("d", rawdoc! { "ping": 1, "lsid": session }).await;
        server.advance(Duration::from_secs(1));
        clients.push(client);
    }
    let users = |names: &[&str]| {
        let users: bson::RawArrayBuf = names.iter().map(|name| rawdoc! { "user": *name, "db": "admin" }).collect();
        bson::rawbson!({ "users": users })
    };
    let (ann, eve) = (id(0, "ann@admin"), id(1, "eve@admin"));
    for (place, options, expected) in [
        (0, bson::rawbson!({}), Some(vec![&ann])),
        (0, users(&["ann"]), Some(vec![&ann])),
        (0, users(&["ann", "eve"]), None),
        (0, bson::rawbson!({ "allUsers": true }), None),
        (1, bson::rawbson!({}), Some(vec![&eve])),
        (1, users(&["ann"]), Some(vec![&ann])),
        (1, bson::rawbson!({ "allUsers": true }), Some(vec![&ann, &eve])),
    ] {
        let reply = list(&mut clients[place], options.clone()).await;
        match expected {
            Some(expected) => assert_eq!(ids(&reply).iter().collect::<Vec<_>>(), expected, "{options:?}"),
            None => assert_eq!(reply.int("code"), 13, "{options:?}"),
        }
    }
    let listed = batch(&list(&mut clients[0], bson::rawbson!({})).await);
    assert_eq!(listed[0].text("user"), "ann@admin");
}

#[tokio::test]
async fn options_are_checked() {
    let mut server = TestServer::transactional();
    let mut client = server.connect();
    let user = || rawdoc! { "user": "a", "db": "admin" };
    for (options, code) in [
        (bson::rawbson!(1), 14),
        (bson::rawbson!({ "allUsers": 1 }), 14),
        (bson::rawbson!({ "users": 1 }), 14),
        (bson::rawbson!({ "users": [1] }), 14),
        (bson::rawbson!({ "users": [{ "user": "a" }] }), 40_414),
        (bson::rawbson!({ "users": [{ "db": "a" }] }), 40_414),
        (bson::rawbson!({ "users": [{ "user": "a", "db": "b", "x": 1 }] }), 40_415),
        (bson::rawbson!({ "users": [user()], "allUsers": true }), 12),
        (bson::rawbson!({ "x": 1 }), 40_415),
    ] {
        assert_eq!(list(&mut client, options.clone()).await.int("code"), code, "{options:?}");
    }
}
