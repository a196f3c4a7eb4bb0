use bson::raw::cstr;
use bson::{RawArrayBuf, RawDocumentBuf, rawdoc};

use crate::testing::{TestClient, TestServer, batch, insert};

/// The document of a user as MongoDB keeps it: its credentials have a second mechanism, which is not kept.
fn user(database: &str, name: &str, role: &str) -> RawDocumentBuf {
    let key = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
    let credentials = rawdoc! { "iterationCount": 15000, "salt": "c2FsdA==", "storedKey": key, "serverKey": key };
    rawdoc! {
        "_id": format!("{database}.{name}"),
        "userId": bson::Binary { subtype: bson::spec::BinarySubtype::Uuid, bytes: vec![7; 16] },
        "user": name, "db": database,
        "credentials": { "SCRAM-SHA-1": { "iterationCount": 10000 }, "SCRAM-SHA-256": credentials },
        "roles": [{ "role": role, "db": database }],
    }
}

#[tokio::test]
async fn users_of_a_dump_are_added() {
    let mut server = TestServer::checked();
    let mut client = server.connect();
    for (database, name) in [("shop", "ann"), ("shop", "old"), ("other", "old")] {
        client.run(database, rawdoc! { "createUser": name, "pwd": "x", "roles": ["dbOwner"] }).await;
    }
    let load = rawdoc! {
        "insert": "tempusers",
        "documents": [user("shop", "ann", "read"), user("shop", "bob", "read"), user("other", "cat", "read")],
    };
    client.run("admin", load).await;
    let merge = |database: &str, drop: bool| rawdoc! { "_mergeAuthzCollections": 1, "tempUsersCollection": "admin.tempusers", "drop": drop, "db": database };
    client.run("admin", merge("shop", false)).await;
    let find = || rawdoc! { "find": "system.users", "projection": { "role": { "$first": "$roles.role" } } };
    let shown = |id: &str, role: &str| rawdoc! { "_id": id, "role": role };
    let found = client.run("admin", find()).await;
    let expected = [
        shown("other.old", "dbOwner"),
        shown("shop.ann", "read"),
        shown("shop.bob", "read"),
        shown("shop.old", "dbOwner"),
    ];
    assert_eq!(batch(&found), expected);
    client.run("admin", merge("", true)).await;
    let found = client.run("admin", find()).await;
    assert_eq!(batch(&found), [shown("other.cat", "read"), shown("shop.ann", "read"), shown("shop.bob", "read")]);
}

#[tokio::test]
async fn users_that_cannot_be_added_are_refused_before_any_change() {
    let mut server = TestServer::checked();
    let mut client = server.connect();
    let load =
        rawdoc! { "insert": "tempusers", "documents": [user("shop", "ann", "read"), user("shop", "bob", "custom")] };
    client.run("admin", load).await;
    insert(&mut client, "roles", &[rawdoc! { "_id": "shop.custom", "role": "custom", "db": "shop" }]).await;
    let with = |users: &str, roles: &str| {
        rawdoc! { "_mergeAuthzCollections": 1, "tempUsersCollection": users, "tempRolesCollection": roles, "drop": true, "db": "" }
    };
    for (users, roles, code) in
        [("admin.tempusers", "", 12), ("admin.none", "d.roles", 238), ("", "", 2), ("admin.system.keys", "", 73)]
    {
        assert_eq!(client.refused("admin", with(users, roles)).await.0, code, "{users} {roles}");
    }
    assert_eq!(client.refused("d", with("admin.none", "")).await.0, 13, "on admin only");
    let found = client.run("admin", rawdoc! { "find": "system.users" }).await;
    assert_eq!(batch(&found), Vec::<RawDocumentBuf>::new());
}

/// Without its restrictions, a user could log in from anywhere.
#[tokio::test]
async fn a_user_with_restrictions_is_refused() {
    let mut server = TestServer::checked();
    let mut client = server.connect();
    let merge =
        || rawdoc! { "_mergeAuthzCollections": 1, "tempUsersCollection": "admin.tempusers", "drop": false, "db": "" };
    let mut restricted = user("shop", "ann", "read");
    restricted.append(
        cstr!("authenticationRestrictions"),
        RawArrayBuf::from_iter([rawdoc! { "clientSource": ["10.0.0.1"] }]),
    );
    insert_into_admin(&mut client, &restricted).await;
    let (code, _, message) = client.refused("admin", merge()).await;
    assert_eq!(code, 238, "{message}");
    assert!(message.contains("shop.ann") && message.contains("--nsExclude 'admin.system.*'"), "{message}");
    client.run("admin", rawdoc! { "drop": "tempusers" }).await;
    let mut free = user("shop", "ann", "read");
    free.append(cstr!("authenticationRestrictions"), RawArrayBuf::new());
    insert_into_admin(&mut client, &free).await;
    assert_eq!(client.run("admin", merge()).await.get_f64("ok").ok(), Some(1.0));
}

async fn insert_into_admin(client: &mut TestClient, user: &RawDocumentBuf) {
    client.run("admin", rawdoc! { "insert": "tempusers", "documents": [user.clone()] }).await;
}
