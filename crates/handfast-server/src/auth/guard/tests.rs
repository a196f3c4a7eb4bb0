use bson::raw::RawDocumentBuf;
use bson::rawdoc;

use crate::testing::{ReplyFields, TestClient, TestServer, binary, cursor_id};

async fn client(server: &mut TestServer, name: &str, roles: &[&str]) -> TestClient {
    server.add_user("admin", name, roles).await;
    let mut client = server.connect();
    assert!(client.log_in("admin", name, name).await.flag("done"));
    client
}

/// Returns whether the guard allows the command, which may fail for another reason.
async fn allowed(client: &mut TestClient, database: &str, command: &RawDocumentBuf) -> bool {
    let reply = client.run(database, command.clone()).await;
    let refused = reply.get_i32("code").is_ok_and(|code| code == 13);
    if refused {
        let text = reply.text("errmsg");
        assert!(text.starts_with("not authorized on ") || text.starts_with("Command "), "{reply:?}");
    }
    !refused
}

#[tokio::test]
async fn each_command_needs_its_roles() {
    let mut server = TestServer::guarded();
    let mut nobody = server.connect();
    let mut reader = client(&mut server, "reader", &["read@shop"]).await;
    let mut writer = client(&mut server, "writer", &["readWrite@shop"]).await;
    let mut owner = client(&mut server, "owner", &["dbOwner@shop"]).await;
    let mut monitor = client(&mut server, "monitor", &["clusterMonitor@admin"]).await;
    let mut root = client(&mut server, "root", &["root@admin"]).await;
    let pipeline = |stage: RawDocumentBuf| rawdoc! { "aggregate": "c", "pipeline": [stage], "cursor": {} };
    // The columns are: no user, reader, writer, owner, monitor, root.
    for (database, command, expected) in [
        ("admin", rawdoc! { "hello": 1 }, "111111"),
        ("admin", rawdoc! { "ping": 1 }, "111111"),
        ("admin", rawdoc! { "connectionStatus": 1 }, "111111"),
        ("admin", rawdoc! { "buildInfo": 1 }, "011111"),
        ("admin", rawdoc! { "listCommands": 1 }, "011111"),
        ("admin", rawdoc! { "listDatabases": 1 }, "011111"),
        ("shop", rawdoc! { "find": "c" }, "011101"),
        ("shop", rawdoc! { "count": "c" }, "011101"),
        ("shop", rawdoc! { "distinct": "c", "key": "a" }, "011101"),
        ("shop", rawdoc! { "listCollections": 1 }, "011111"),
        ("shop", rawdoc! { "collStats": "c" }, "011111"),
        ("shop", rawdoc! { "dbStats": 1 }, "011111"),
        ("shop", rawdoc! { "validate": "c" }, "000101"),
        ("shop", rawdoc! { "explain": { "find": "c" } }, "011101"),
        ("other", rawdoc! { "find": "c" }, "000001"),
        ("admin", rawdoc! { "find": "c" }, "000001"),
        ("shop", rawdoc! { "insert": "c", "documents": [{}] }, "001101"),
        ("shop", rawdoc! { "update": "c", "updates": [] }, "001101"),
        ("shop", rawdoc! { "delete": "c", "deletes": [] }, "001101"),
        ("shop", rawdoc! { "findAndModify": "c", "remove": true }, "001101"),
        ("shop", rawdoc! { "insert": "c", "documents": [{}], "bypassDocumentValidation": true }, "000101"),
        ("shop", rawdoc! { "insert": "c", "documents": [{}], "bypassDocumentValidation": false }, "001101"),
        ("shop", rawdoc! { "insert": "c", "documents": [{}], "bypassDocumentValidation": 0_i64 }, "001101"),
        ("shop", rawdoc! { "insert": "c", "documents": [{}], "bypassDocumentValidation": null }, "001101"),
        ("shop", rawdoc! { "insert": "c", "documents": [{}], "bypassDocumentValidation": "no" }, "000101"),
        (
            "shop",
            rawdoc! { "aggregate": "c", "pipeline": [{ "$merge": "d" }], "cursor": {}, "bypassDocumentValidation": 1 },
            "000101",
        ),
        (
            "shop",
            rawdoc! { "aggregate": "c", "pipeline": [], "cursor": {}, "bypassDocumentValidation": true },
            "011101",
        ),
        ("shop", rawdoc! { "collMod": "c", "validationLevel": "off" }, "000101"),
        ("shop", rawdoc! { "collMod": "c" }, "001101"),
        ("shop", rawdoc! { "create": "new" }, "001101"),
        ("shop", rawdoc! { "createIndexes": "c", "indexes": [] }, "001101"),
        ("shop", rawdoc! { "drop": "new" }, "001101"),
        ("shop", rawdoc! { "dropDatabase": 1 }, "000101"),
        ("other", rawdoc! { "insert": "c", "documents": [{}] }, "000001"),
        ("admin", rawdoc! { "bulkWrite": 1, "ops": [], "nsInfo": [{ "ns": "shop.c" }] }, "001101"),
        ("admin", rawdoc! { "bulkWrite": 1, "ops": [], "nsInfo": [{ "ns": "shop.c" }, { "ns": "other.c" }] }, "000001"),
        ("admin", rawdoc! { "renameCollection": "shop.x", "to": "shop.y" }, "001101"),
        ("admin", rawdoc! { "renameCollection": "shop.x", "to": "other.y" }, "000001"),
        ("admin", rawdoc! { "renameCollection": "other.x", "to": "shop.y" }, "000001"),
        ("shop", pipeline(rawdoc! { "$match": {} }), "011101"),
        ("shop", pipeline(rawdoc! { "$out": "d" }), "001101"),
        ("shop", pipeline(rawdoc! { "$out": { "db": "other", "coll": "d" } }), "000001"),
        ("shop", pipeline(rawdoc! { "$merge": "d" }), "001101"),
        ("shop", pipeline(rawdoc! { "$merge": { "into": "d" } }), "001101"),
        ("shop", pipeline(rawdoc! { "$merge": { "into": { "db": "other", "coll": "d" } } }), "000001"),
        ("shop", pipeline(rawdoc! { "$lookup": { "from": "d", "as": "d", "pipeline": [] } }), "011101"),
        ("shop", pipeline(rawdoc! { "$unionWith": "d" }), "011101"),
        ("shop", rawdoc! { "explain": pipeline(rawdoc! { "$out": "d" }) }, "001101"),
        ("admin", rawdoc! { "aggregate": 1, "pipeline": [{ "$currentOp": {} }], "cursor": {} }, "011111"),
        (
            "admin",
            rawdoc! { "aggregate": 1, "pipeline": [{ "$currentOp": { "allUsers": true } }], "cursor": {} },
            "000011",
        ),
        ("shop", rawdoc! { "aggregate": 1, "pipeline": [{ "$listLocalSessions": {} }], "cursor": {} }, "011111"),
        (
            "shop",
            rawdoc! { "aggregate": 1, "pipeline": [{ "$listLocalSessions": { "allUsers": true } }], "cursor": {} },
            "000011",
        ),
        ("shop", pipeline(rawdoc! { "$collStats": { "count": {} } }), "011111"),
        ("shop", pipeline(rawdoc! { "$indexStats": {} }), "000011"),
        ("shop", pipeline(rawdoc! { "$planCacheStats": {} }), "011101"),
        ("other", pipeline(rawdoc! { "$collStats": { "count": {} } }), "000011"),
        ("admin", rawdoc! { "serverStatus": 1 }, "000011"),
        ("admin", rawdoc! { "replSetGetStatus": 1 }, "000011"),
        ("admin", rawdoc! { "replSetGetConfig": 1 }, "000011"),
        ("admin", rawdoc! { "getDefaultRWConcern": 1 }, "000011"),
        ("admin", rawdoc! { "setDefaultRWConcern": 1, "defaultReadConcern": { "level": "local" } }, "000001"),
        ("admin", rawdoc! { "getParameter": "*" }, "000011"),
        ("admin", rawdoc! { "setParameter": 1, "cursorTimeoutMillis": 600_000 }, "000001"),
        ("admin", rawdoc! { "getClusterParameter": "*" }, "000011"),
        ("admin", rawdoc! { "setClusterParameter": { "x": {} } }, "000001"),
        ("admin", rawdoc! { "connPoolStats": 1 }, "000011"),
        ("admin", rawdoc! { "lockInfo": 1 }, "000011"),
        ("admin", rawdoc! { "fsync": 1 }, "000001"),
        ("admin", rawdoc! { "fsyncUnlock": 1 }, "000001"),
        ("admin", rawdoc! { "logRotate": 1 }, "000001"),
        ("admin", rawdoc! { "dropConnections": 1, "hostAndPort": [] }, "000001"),
        ("admin", rawdoc! { "rotateCertificates": 1 }, "000001"),
        ("admin", rawdoc! { "autoCompact": true }, "000001"),
        ("admin", rawdoc! { "setQuerySettings": {}, "settings": {} }, "000001"),
        ("admin", rawdoc! { "removeQuerySettings": {} }, "000001"),
        ("admin", rawdoc! { "aggregate": 1, "pipeline": [{ "$querySettings": {} }], "cursor": {} }, "000001"),
        ("shop", rawdoc! { "compact": "c" }, "000101"),
        ("shop", rawdoc! { "planCacheClear": "c" }, "000101"),
        ("shop", rawdoc! { "planCacheClearFilters": "c" }, "000101"),
        ("shop", rawdoc! { "planCacheListFilters": "c" }, "000101"),
        ("shop", rawdoc! { "planCacheSetFilter": "c", "indexes": ["a"] }, "000101"),
        ("shop", rawdoc! { "dataSize": "shop.c" }, "011101"),
        ("shop", rawdoc! { "dataSize": "other.c" }, "000001"),
        ("shop", rawdoc! { "dbHash": 1 }, "011101"),
        ("shop", rawdoc! { "validateDBMetadata": 1, "apiParameters": { "version": "1" }, "db": "shop" }, "000101"),
        ("shop", rawdoc! { "validateDBMetadata": 1, "apiParameters": { "version": "1" } }, "000001"),
        ("admin", rawdoc! { "currentOp": 1 }, "000011"),
        ("admin", rawdoc! { "getLog": "global" }, "000011"),
        ("admin", rawdoc! { "getCmdLineOpts": 1 }, "000011"),
        ("admin", rawdoc! { "killOp": 1, "op": 1 }, "000001"),
        ("admin", rawdoc! { "killSessions": [] }, "011111"),
        ("admin", rawdoc! { "killAllSessions": [] }, "000001"),
        ("admin", rawdoc! { "handfastBackup": "x" }, "000001"),
        ("admin", rawdoc! { "killAllSessionsByPattern": [] }, "000001"),
        ("admin", rawdoc! { "_mergeAuthzCollections": 1, "tempUsersCollection": "admin.none" }, "000001"),
        ("shop", rawdoc! { "createUser": "x", "pwd": "x", "roles": ["read"] }, "000101"),
        ("shop", rawdoc! { "updateUser": "x", "roles": ["readWrite"] }, "000101"),
        ("shop", rawdoc! { "grantRolesToUser": "x", "roles": ["read"] }, "000101"),
        ("shop", rawdoc! { "revokeRolesFromUser": "x", "roles": ["read"] }, "000101"),
        ("shop", rawdoc! { "usersInfo": 1 }, "000101"),
        ("shop", rawdoc! { "usersInfo": { "forAllDBs": true } }, "000001"),
        ("shop", rawdoc! { "dropUser": "x" }, "000101"),
        ("shop", rawdoc! { "dropAllUsersFromDatabase": 1 }, "000101"),
        // A user who manages the users of one database cannot grant roles on another one.
        ("shop", rawdoc! { "createUser": "y", "pwd": "y", "roles": [{ "role": "read", "db": "other" }] }, "000001"),
        ("shop", rawdoc! { "createUser": "z", "pwd": "z", "roles": [{ "role": "root", "db": "admin" }] }, "000001"),
        ("shop", rawdoc! { "updateUser": "z", "roles": [] }, "000001"),
        ("admin", rawdoc! { "createUser": "x", "pwd": "x", "roles": [] }, "000001"),
    ] {
        let mut found = String::new();
        for client in [&mut nobody, &mut reader, &mut writer, &mut owner, &mut monitor, &mut root] {
            found.push(if allowed(client, database, &command).await { '1' } else { '0' });
        }
        assert_eq!(found, expected, "{command:?}");
    }
}

#[tokio::test]
async fn commands_on_documents_cannot_change_users() {
    let users = "system.users";
    for guarded in [true, false] {
        let mut server = TestServer::guarded();
        if !guarded {
            let options = crate::Options::default();
            server = TestServer::new(std::sync::Arc::new(server.shared.database.clone()), options);
        }
        let mut root = client(&mut server, "root", &["root@admin"]).await;
        let mut other =
            client(&mut server, "other", &["readWriteAnyDatabase@admin", "userAdminAnyDatabase@admin"]).await;
        root.run("shop", rawdoc! { "insert": "c", "documents": [{}] }).await;
        let aggregate = |stage: RawDocumentBuf| rawdoc! { "aggregate": "c", "pipeline": [stage], "cursor": {} };
        let one = |stage: RawDocumentBuf| {
            let mut pipeline = bson::RawArrayBuf::new();
            pipeline.push(stage);
            pipeline
        };
        let lookup = rawdoc! { "$lookup": { "from": users, "as": "u", "pipeline": [] } };
        for (database, command) in [
            ("admin", rawdoc! { "find": users }),
            ("admin", rawdoc! { "count": users }),
            ("admin", rawdoc! { "distinct": users, "key": "user" }),
            ("admin", rawdoc! { "find": "system.keys" }),
            ("admin", rawdoc! { "aggregate": users, "pipeline": [], "cursor": {} }),
            ("admin", rawdoc! { "explain": { "find": users } }),
            ("admin", aggregate(lookup.clone())),
            ("admin", aggregate(rawdoc! { "$lookup": { "from": "c", "from": users, "as": "u", "pipeline": [] } })),
            ("admin", aggregate(rawdoc! { "$unionWith": users })),
            ("admin", aggregate(rawdoc! { "$unionWith": { "coll": users } })),
            ("admin", aggregate(rawdoc! { "$facet": { "f": one(lookup.clone()) } })),
            ("admin", aggregate(rawdoc! { "$unionWith": { "coll": "c", "pipeline": one(lookup.clone()) } })),
            (
                "admin",
                aggregate(rawdoc! { "$graphLookup": {
                    "from": users, "startWith": "$a", "connectFromField": "a", "connectToField": "a", "as": "u",
                } }),
            ),
        ] {
            assert!(allowed(&mut root, database, &command).await, "{command:?}");
            assert_eq!(allowed(&mut other, database, &command).await, !guarded, "{command:?}");
        }
        let mut sequence = rawdoc! { "aggregate": "c", "cursor": {} };
        let reply = other.run_with("admin", sequence.clone(), &[("pipeline", std::slice::from_ref(&lookup))]).await;
        assert_eq!(reply.get_i32("code").ok(), guarded.then_some(13));
        sequence.append(bson::raw::cstr!("allowDiskUse"), true);
        let out = rawdoc! { "$out": users };
        let reply = root.run_with("admin", sequence, &[("pipeline", std::slice::from_ref(&out))]).await;
        assert_eq!(reply.int("code"), 13);
        for (database, command) in [
            ("admin", rawdoc! { "insert": users, "documents": [{ "_id": "admin.eve" }] }),
            ("admin", rawdoc! { "update": users, "updates": [{ "q": {}, "u": { "$set": { "roles": [] } } }] }),
            ("admin", rawdoc! { "delete": users, "deletes": [{ "q": {}, "limit": 0 }] }),
            ("admin", rawdoc! { "findAndModify": users, "remove": true }),
            ("admin", rawdoc! { "drop": users }),
            ("admin", rawdoc! { "drop": "system.keys" }),
            ("admin", rawdoc! { "create": users }),
            ("admin", rawdoc! { "createIndexes": users, "indexes": [{ "key": { "a": 1 }, "name": "a" }] }),
            ("admin", rawdoc! { "dropIndexes": users, "index": "*" }),
            ("admin", rawdoc! { "collMod": users, "index": { "name": "_id_", "expireAfterSeconds": 1 } }),
            ("admin", rawdoc! { "bulkWrite": 1, "ops": [], "nsInfo": [{ "ns": "admin.system.users" }] }),
            ("admin", rawdoc! { "renameCollection": "admin.system.users", "to": "shop.users" }),
            ("admin", rawdoc! { "renameCollection": "admin.system.users", "to": "admin.users" }),
            ("admin", rawdoc! { "renameCollection": "shop.c", "to": "admin.system.users", "dropTarget": true }),
            ("shop", aggregate(rawdoc! { "$out": { "db": "admin", "coll": users } })),
            ("admin", aggregate(rawdoc! { "$out": users })),
            ("admin", aggregate(rawdoc! { "$merge": users })),
            ("shop", aggregate(rawdoc! { "$merge": { "into": { "db": "admin", "coll": users } } })),
        ] {
            assert!(!allowed(&mut root, database, &command).await, "{command:?}");
        }
        let dropped = root.refused("admin", rawdoc! { "dropDatabase": 1 }).await;
        assert_eq!((dropped.0, dropped.2.as_str()), (20, "Dropping the 'admin' database is prohibited."));
        assert_eq!(root.run("admin", rawdoc! { "count": users }).await.int("n"), 2);
    }
}

#[tokio::test]
async fn changes_of_roles_apply_to_open_connections() {
    let mut server = TestServer::guarded();
    let mut root = client(&mut server, "root", &["root@admin"]).await;
    let mut ann = client(&mut server, "ann", &["read@shop"]).await;
    let (find, drop) = (rawdoc! { "find": "c" }, rawdoc! { "dropUser": "ann" });
    assert!(allowed(&mut ann, "shop", &find).await);
    let revoke = rawdoc! { "revokeRolesFromUser": "ann", "roles": [{ "role": "read", "db": "shop" }] };
    assert_eq!(root.run("admin", revoke).await.double("ok"), 1.0);
    assert!(!allowed(&mut ann, "shop", &find).await);
    let grant = rawdoc! { "grantRolesToUser": "ann", "roles": [{ "role": "readWrite", "db": "shop" }] };
    root.run("admin", grant).await;
    assert!(allowed(&mut ann, "shop", &find).await);
    // A user that was removed and added again has another id.
    root.run("admin", drop).await;
    server.add_user("admin", "ann", &["root@admin"]).await;
    assert_eq!(ann.refused("shop", find).await.2, "Command find requires authentication");
}

#[tokio::test]
async fn a_cursor_belongs_to_the_user_who_opened_it() {
    let mut server = TestServer::guarded();
    let mut ann = client(&mut server, "ann", &["readWrite@shop"]).await;
    let mut bob = client(&mut server, "bob", &["readWrite@shop"]).await;
    ann.run("shop", rawdoc! { "insert": "c", "documents": [{}, {}, {}] }).await;
    let id = cursor_id(&ann.run("shop", rawdoc! { "find": "c", "batchSize": 1 }).await);
    let more = rawdoc! { "getMore": id, "collection": "c", "batchSize": 1 };
    let kill = rawdoc! { "killCursors": "c", "cursors": [id] };
    let refused = bob.refused("shop", more.clone()).await;
    assert_eq!((refused.0, refused.2), (13, format!("cursor id {id} was not created by the authenticated user")));
    let reply = bob.run("shop", kill.clone()).await;
    assert_eq!(reply.get_array("cursorsNotFound").unwrap().into_iter().count(), 1);
    assert_eq!(cursor_id(&ann.run("shop", more.clone()).await), id);
    let revoke = Vec::new();
    let name = crate::auth::UserName::new("admin", "ann").unwrap();
    let change = crate::auth::users::Change { roles: Some(revoke), ..Default::default() };
    server.shared.users.change(&name, change).await.unwrap();
    assert_eq!(ann.refused("shop", more).await.0, 13);
    assert_eq!(ann.run("shop", kill).await.get_array("cursorsKilled").unwrap().into_iter().count(), 1);
}

#[tokio::test]
async fn a_user_sees_the_databases_on_which_it_has_a_role() {
    let mut server = TestServer::guarded();
    let mut root = client(&mut server, "root", &["root@admin"]).await;
    let mut ann = client(&mut server, "ann", &["read@shop"]).await;
    for database in ["shop", "other"] {
        root.run(database, rawdoc! { "insert": "c", "documents": [{}] }).await;
    }
    for (client, expected) in [(&mut root, &["admin", "other", "shop"][..]), (&mut ann, &["shop"])] {
        let reply = client.run("admin", rawdoc! { "listDatabases": 1, "nameOnly": true }).await;
        let databases = reply.get_array("databases").unwrap().into_iter();
        let names: Vec<_> =
            databases.map(|database| database.unwrap().as_document().unwrap().text("name").to_owned()).collect();
        assert_eq!(names, expected);
    }
}

#[tokio::test]
async fn users_are_added_changed_listed_and_removed() {
    let mut server = TestServer::guarded();
    let mut root = client(&mut server, "root", &["root@admin"]).await;
    let create = |name: &str, rest: RawDocumentBuf| {
        let mut command = rawdoc! { "createUser": name };
        for element in &rest {
            let (key, value) = element.unwrap();
            command.append(key, value);
        }
        command
    };
    for (rest, code) in [
        (rawdoc! { "roles": [] }, 40_414),
        (rawdoc! { "pwd": "p" }, 40_414),
        (rawdoc! { "pwd": 1, "roles": [] }, 14),
        (rawdoc! { "pwd": "", "roles": [] }, 2),
        (rawdoc! { "pwd": "\u{7}", "roles": [] }, 2),
        (rawdoc! { "pwd": "p", "roles": ["nonsense"] }, 31),
        (rawdoc! { "pwd": "p", "roles": ["root"] }, 31),
        (rawdoc! { "pwd": "p", "roles": [1] }, 14),
        (rawdoc! { "pwd": "p", "roles": [{ "role": "read" }] }, 40_414),
        (rawdoc! { "pwd": "p", "roles": [], "digestPassword": false }, 2),
        (rawdoc! { "pwd": "p", "roles": [], "mechanisms": ["SCRAM-SHA-1"] }, 2),
        (rawdoc! { "pwd": "p", "roles": [], "authenticationRestrictions": [{}] }, 238),
    ] {
        let (found, _, text) = root.refused("shop", create("ann", rest.clone())).await;
        assert_eq!(found, code, "{rest:?}: {text}");
    }
    let rest = rawdoc! {
        "pwd": "secret", "roles": ["read", { "role": "dbAdmin", "db": "other" }], "customData": { "floor": 2 },
        "mechanisms": ["SCRAM-SHA-256"], "digestPassword": true,
    };
    assert_eq!(root.run("shop", create("ann", rest.clone())).await, rawdoc! { "ok": 1.0 });
    assert_eq!(root.refused("shop", create("ann", rest)).await.0, 51_003);
    let mut ann = server.connect();
    assert!(ann.log_in("shop", "ann", "secret").await.flag("done"));
    for (client, subject) in [(&mut root, "ann"), (&mut ann, "ann")] {
        let reply = client.run("shop", rawdoc! { "usersInfo": subject }).await;
        let users = reply.get_array("users").unwrap();
        assert_eq!(users.into_iter().count(), 1);
        let user = users.get_document(0).unwrap();
        assert_eq!((user.text("_id"), user.text("user"), user.text("db")), ("shop.ann", "ann", "shop"));
        assert_eq!(user.get_document("customData").unwrap(), &*rawdoc! { "floor": 2 });
        let roles = rawdoc! { "r": [{ "role": "read", "db": "shop" }, { "role": "dbAdmin", "db": "other" }] };
        assert_eq!(user.get_array("roles").unwrap(), roles.get_array("r").unwrap());
        assert!(user.get("credentials").unwrap().is_none());
    }
    for (subject, expected) in [
        (rawdoc! { "s": 1 }, 1),
        (rawdoc! { "s": { "user": "root", "db": "admin" } }, 1),
        (rawdoc! { "s": ["ann", "bob", { "user": "root", "db": "admin" }] }, 2),
        (rawdoc! { "s": { "forAllDBs": true } }, 2),
    ] {
        let mut command = RawDocumentBuf::new();
        command.append(bson::raw::cstr!("usersInfo"), subject.get("s").unwrap().unwrap());
        let reply = root.run("shop", command).await;
        assert_eq!(reply.get_array("users").unwrap().into_iter().count(), expected, "{subject:?}");
    }
    let credentials = rawdoc! { "usersInfo": 1, "showCredentials": true };
    assert_eq!(root.refused("shop", credentials).await.0, 238);
    assert_eq!(root.refused("shop", rawdoc! { "updateUser": "ann" }).await.0, 2);
    assert_eq!(root.refused("shop", rawdoc! { "updateUser": "bob", "pwd": "p" }).await.0, 11);
    assert_eq!(root.run("shop", rawdoc! { "updateUser": "ann", "pwd": "new" }).await.double("ok"), 1.0);
    assert_eq!(server.connect().log_in("shop", "ann", "secret").await.int("code"), 18);
    assert!(server.connect().log_in("shop", "ann", "new").await.flag("done"));
    let reply = ann.run("shop", rawdoc! { "connectionStatus": 1, "showPrivileges": true }).await;
    let privileges = reply.get_document("authInfo").unwrap().get_array("authenticatedUserPrivileges").unwrap();
    let actions = privileges.get_document(0).unwrap().get_array("actions").unwrap();
    assert!(actions.into_iter().any(|action| action.unwrap().as_str() == Some("find")));
}

/// Commands with passwords are shown without their fields.
#[tokio::test]
async fn passwords_are_not_shown() {
    let confidential = ["saslStart", "saslContinue", "createUser", "updateUser", "hello", "isMaster"];
    for command in crate::commands::COMMANDS {
        assert_eq!(command.confidential, confidential.contains(&command.name), "{}", command.name);
    }
    let mut server = TestServer::guarded();
    let mut root = client(&mut server, "root", &["root@admin"]).await;
    let refused = client(&mut server, "ann", &[])
        .await
        .refused("shop", rawdoc! { "createUser": "x", "pwd": "hunter2", "roles": [] })
        .await;
    assert_eq!(refused.2, "not authorized on shop to execute command createUser");
    let wrong = rawdoc! { "createUser": "x", "pwd": binary("hunter2"), "roles": [] };
    assert!(!root.refused("shop", wrong).await.2.contains("hunter2"));
}

/// The same session id of another user names another session, so that no user reaches the transactions and retryable writes of another.
#[tokio::test]
async fn a_session_belongs_to_its_user() {
    let mut server = TestServer::guarded();
    let mut ann = client(&mut server, "ann", &["readWrite@shop"]).await;
    let mut bob = client(&mut server, "bob", &["readWrite@shop"]).await;
    let id = bson::Binary { subtype: bson::spec::BinarySubtype::Uuid, bytes: vec![7; 16] };
    let numbered = |mut command: bson::RawDocumentBuf, number: i64, transaction: bool| {
        command.append(bson::raw::cstr!("lsid"), rawdoc! { "id": id.clone() });
        command.append(bson::raw::cstr!("txnNumber"), number);
        if transaction {
            command.append(bson::raw::cstr!("autocommit"), false);
        }
        command
    };
    let insert = |id: i32| rawdoc! { "insert": "c", "documents": [{ "_id": id }] };
    let first = |id: i32| rawdoc! { "insert": "c", "documents": [{ "_id": id }], "startTransaction": true };
    ann.run("shop", numbered(first(1), 1, true)).await;
    assert_eq!(bob.refused("shop", numbered(rawdoc! { "find": "c" }, 1, true)).await.0, 251);
    assert_eq!(bob.refused("admin", numbered(rawdoc! { "commitTransaction": 1 }, 1, true)).await.0, 251);
    bob.run("admin", rawdoc! { "endSessions": [{ "id": id.clone() }] }).await;
    assert_eq!(bob.run("shop", numbered(first(2), 1, true)).await.double("ok"), 1.0);
    for client in [&mut ann, &mut bob] {
        let commit = numbered(rawdoc! { "commitTransaction": 1 }, 1, true);
        assert_eq!(client.run("admin", commit).await, rawdoc! { "ok": 1.0 });
    }
    // Their retryable writes of the same number are both applied.
    assert_eq!(ann.run("shop", numbered(insert(3), 2, false)).await, rawdoc! { "n": 1, "ok": 1.0 });
    assert_eq!(bob.run("shop", numbered(insert(4), 2, false)).await, rawdoc! { "n": 1, "ok": 1.0 });
    assert_eq!(bob.run("shop", rawdoc! { "count": "c" }).await.int("n"), 4);
}

#[tokio::test]
async fn the_sessions_of_a_user_are_ended_and_no_others() {
    let mut server = TestServer::guarded();
    let mut root = client(&mut server, "root", &["root@admin"]).await;
    let mut ann = client(&mut server, "ann", &["readWrite@shop"]).await;
    let mut bob = client(&mut server, "bob", &["readWrite@shop"]).await;
    let id = bson::Binary { subtype: bson::spec::BinarySubtype::Uuid, bytes: vec![7; 16] };
    let lsid = || rawdoc! { "id": id.clone() };
    let named = |name: &str| rawdoc! { "user": name, "db": "admin" };
    for (number, (command, left)) in (1_i64..).zip([
        (rawdoc! { "killAllSessions": [named("ann")] }, 1),
        (rawdoc! { "killAllSessions": [named("ann"), named("bob")] }, 0),
        (rawdoc! { "killAllSessions": [named("nobody")] }, 2),
        (rawdoc! { "killAllSessionsByPattern": [{ "users": [named("bob")] }] }, 1),
        (rawdoc! { "killAllSessionsByPattern": [{ "lsid": lsid(), "users": [named("bob")] }] }, 1),
        (rawdoc! { "killAllSessionsByPattern": [{ "lsid": lsid() }, { "users": [named("bob")] }] }, 0),
        (rawdoc! { "killAllSessionsByPattern": [{ "users": [named("nobody")] }] }, 2),
    ]) {
        for client in [&mut ann, &mut bob] {
            let begin = rawdoc! {
                "find": "c", "lsid": lsid(), "txnNumber": number, "autocommit": false, "startTransaction": true,
            };
            assert_eq!(client.run("shop", begin).await.double("ok"), 1.0);
        }
        assert_eq!(root.run("admin", command.clone()).await.double("ok"), 1.0, "{command:?}");
        assert_eq!(server.shared.database.counts().open(), left, "{command:?}");
        root.run("admin", rawdoc! { "killAllSessions": [] }).await;
    }
    let by_role = rawdoc! { "killAllSessionsByPattern": [{ "roles": [] }] };
    assert_eq!(root.refused("admin", by_role).await.0, 238);
}

/// Two users have sessions of the same id. With `killSessions` each ends its own one only.
#[tokio::test]
async fn users_end_their_own_sessions() {
    let mut server = TestServer::guarded();
    let mut root = client(&mut server, "root", &["root@admin"]).await;
    let mut ann = client(&mut server, "ann", &["readWrite@shop"]).await;
    let mut bob = client(&mut server, "bob", &["readWrite@shop"]).await;
    let id = bson::Binary { subtype: bson::spec::BinarySubtype::Uuid, bytes: vec![7; 16] };
    let lsid = || rawdoc! { "id": id.clone() };
    for (number, (command, by_root, left)) in (1_i64..).zip([
        (rawdoc! { "killSessions": [lsid()] }, false, [false, true]),
        (rawdoc! { "killSessions": [] }, false, [false, true]),
        (rawdoc! { "killSessions": [lsid()] }, true, [true, true]),
        (rawdoc! { "killSessions": [] }, true, [true, true]),
    ]) {
        let begin = rawdoc! {
            "find": "c", "lsid": lsid(), "txnNumber": number, "autocommit": false, "startTransaction": true,
        };
        for client in [&mut ann, &mut bob] {
            assert_eq!(client.run("shop", begin.clone()).await.double("ok"), 1.0);
        }
        let by = if by_root { &mut root } else { &mut ann };
        assert_eq!(by.run("admin", command.clone()).await, rawdoc! { "ok": 1.0 }, "{command:?}");
        for (client, left) in [&mut ann, &mut bob].into_iter().zip(left) {
            let commit = rawdoc! { "commitTransaction": 1, "lsid": lsid(), "txnNumber": number, "autocommit": false };
            let reply = client.run("admin", commit).await;
            assert_eq!(reply.double("ok") == 1.0, left, "{command:?}: {reply:?}");
        }
    }
    for command in [
        rawdoc! { "killAllSessions": [] },
        rawdoc! { "killAllSessions": [{ "user": "ann", "db": "admin" }] },
        rawdoc! { "killAllSessionsByPattern": [{ "lsid": lsid() }] },
    ] {
        assert_eq!(ann.refused("admin", command).await.0, 13);
    }
}

/// Clients cannot change the records by which the server applies writes once.
#[tokio::test]
async fn outcomes_cannot_be_written_or_dropped() {
    let mut guarded = TestServer::guarded();
    let root = client(&mut guarded, "root", &["root@admin"]).await;
    let mut open = TestServer::transactional();
    let anybody = open.connect();
    for mut client in [root, anybody] {
        for (command, code) in [
            (rawdoc! { "insert": "transactions", "documents": [{}] }, 13),
            (rawdoc! { "update": "transactions", "updates": [] }, 13),
            (rawdoc! { "delete": "transactions", "deletes": [] }, 13),
            (rawdoc! { "findAndModify": "transactions", "remove": true }, 13),
            (rawdoc! { "drop": "transactions" }, 13),
            (rawdoc! { "createIndexes": "transactions", "indexes": [] }, 13),
            (rawdoc! { "aggregate": "c", "pipeline": [{ "$out": "transactions" }], "cursor": {} }, 13),
            (rawdoc! { "dropDatabase": 1 }, 20),
        ] {
            assert_eq!(client.refused("config", command.clone()).await.0, code, "{command:?}");
        }
        for to in [("config.transactions", "shop.c"), ("shop.c", "config.transactions")] {
            let rename = rawdoc! { "renameCollection": to.0, "to": to.1 };
            assert_eq!(client.refused("admin", rename).await.0, 13);
        }
        assert_eq!(client.run("config", rawdoc! { "find": "transactions" }).await.double("ok"), 1.0);
    }
}

/// The users of a dump can replace and remove others, as `updateUser` and `dropUser` do.
#[tokio::test]
async fn the_users_of_a_dump_replace_and_remove_those_alone_that_the_client_may_manage() {
    let mut server = TestServer::guarded();
    let mut admin = client(&mut server, "manager", &["userAdmin@admin", "readWrite@admin"]).await;
    server.add_user("shop", "ann", &["read@shop"]).await;
    server.add_user("admin", "bob", &["read@shop"]).await;
    admin.run("admin", rawdoc! { "create": "tempusers" }).await;
    let merge = |drop: bool, database: &str| {
        rawdoc! { "_mergeAuthzCollections": 1, "tempUsersCollection": "admin.tempusers", "drop": drop, "db": database }
    };
    assert!(allowed(&mut admin, "admin", &merge(false, "")).await, "no user is changed");
    assert!(!allowed(&mut admin, "admin", &merge(true, "")).await, "it may not manage the users of shop");
    assert!(!allowed(&mut admin, "admin", &merge(true, "admin")).await, "bob has a role on shop");
    let key = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
    let credentials = rawdoc! { "iterationCount": 15_000, "salt": "c2FsdA==", "storedKey": key, "serverKey": key };
    let id = bson::Binary { subtype: bson::spec::BinarySubtype::Uuid, bytes: vec![7; 16] };
    let bob = rawdoc! {
        "_id": "admin.bob", "userId": id, "user": "bob", "db": "admin",
        "credentials": { "SCRAM-SHA-256": credentials }, "roles": [],
    };
    admin.run("admin", rawdoc! { "insert": "tempusers", "documents": [bob] }).await;
    assert!(!allowed(&mut admin, "admin", &merge(false, "")).await, "it may not replace bob");
    let mut root = client(&mut server, "root", &["root@admin"]).await;
    assert_eq!(root.run("admin", merge(false, "")).await.double("ok"), 1.0);
}
