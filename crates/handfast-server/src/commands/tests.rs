//! Tests of the table of commands, and of properties that several commands share.

mod retryable_writes;
mod sessions;
mod time_limits;
mod transactions;
mod unknown_outcome;
mod write_concern;

use std::collections::HashSet;
use std::sync::Arc;

use bson::raw::{CString, RawDocumentBuf};
use bson::spec::BinarySubtype;
use bson::{Binary, RawBson, rawdoc};
use handfast_store::DocumentStore;

use super::{Access, COMMANDS, Command, Counter, InTransaction, SnapshotSupport, TEST_COMMANDS, TimeLimit};
use crate::lock::lock;
use crate::options::Options;
use crate::testing::{
    AdjustableStore, ReplyFields, TestServer, batch, check, check_refused, insert, lsid, named, numbered,
};

#[test]
fn every_command_has_one_name() {
    let names: Vec<_> = COMMANDS
        .iter()
        .flat_map(|command| std::iter::once(command.name).chain(command.aliases.iter().copied()))
        .collect();
    let distinct: HashSet<_> = names.iter().collect();
    assert_eq!(names.len(), distinct.len());
    let sorted = COMMANDS.windows(2).all(|pair| pair[0].name.to_lowercase() < pair[1].name.to_lowercase());
    assert!(sorted, "listCommands shows them in order");
}

/// The expected properties are from MongoDB's manual: the pages on transactions, on retryable writes, on the read concern "snapshot"
/// and on `explain`; the counters are those of `opcounters` in `serverStatus`.
#[test]
fn the_properties_of_all_commands_are_those_of_mongodb() {
    let all = || COMMANDS.iter().chain(TEST_COMMANDS);
    let check = |expected: &[&str], has: &dyn Fn(&Command) -> bool| {
        let names: Vec<_> = all().filter(|command| has(command)).map(|command| command.name).collect();
        assert_eq!(names, expected);
    };
    let check_in_transaction = |kind, expected: &[&str]| check(expected, &|c| c.properties.in_transaction == kind);
    check_in_transaction(InTransaction::Abort, &["abortTransaction"]);
    check_in_transaction(InTransaction::Commit, &["commitTransaction"]);
    check_in_transaction(InTransaction::NotFirst, &["getMore", "killCursors"]);
    let statements = ["bulkWrite", "delete", "findAndModify", "insert", "update"];
    let collections = ["create", "createIndexes"];
    let reads = ["aggregate", "distinct", "find"];
    let of_jobs = ["handfastCancelJob", "handfastCompleteJob", "handfastEnqueueJob"];
    let of_entries = ["handfastBalance", "handfastCancelEntry", "handfastOpenAccount", "handfastPostEntry"];
    let of_holds = ["handfastCaptureHold", "handfastPostHold", "handfastReleaseHold"];
    let of_documents = ["handfastApplyOnce", "handfastBeginTwoPhase", "handfastReadTree"];
    let of_copies = ["handfastDeleteSynced", "handfastInsertSynced", "handfastSetSynced"];
    let mut allowed = [&statements[..], &collections, &reads, &of_jobs, &of_entries, &of_holds].concat();
    allowed.extend(of_documents.iter().chain(&of_copies));
    allowed.sort_unstable();
    check_in_transaction(InTransaction::Allowed, &allowed);
    check(&statements, &|c| c.properties.retryable);
    check(&reads, &|c| c.properties.snapshots == SnapshotSupport::Allowed);
    check(&["getMore"], &|c| c.properties.snapshots == SnapshotSupport::OfCursor);
    check(&["getMore"], &|c| c.properties.time_limit == TimeLimit::OfCursor);
    check(&["find"], &|c| c.properties.counter == Counter::Query);
    check(&["getMore"], &|c| c.properties.counter == Counter::GetMore);
    check(&["bulkWrite", "delete", "insert", "update"], &|c| c.properties.counter == Counter::PerStatement);
    check(&["aggregate"], &|c| c.properties.access_of.is_some());
    check(&["bulkWrite"], &|c| c.properties.names_databases);
    check(&["logout", "saslStart"], &|c| c.properties.external_database);
    check(&["hello", "isMaster"], &|c| c.properties.legacy_query);
    check(&["configureFailPoint"], &|c| !c.properties.can_fail);
    let explained = ["aggregate", "count", "delete", "distinct", "find", "findAndModify", "update"];
    check(&explained, &|c| c.properties.explain.is_some());
    for command in all().filter(|command| command.properties.retryable) {
        assert_eq!(command.access, Access::Write, "{}", command.name);
    }
    for command in all().filter(|command| command.properties.snapshots != SnapshotSupport::Refused) {
        assert_eq!(command.access, Access::Read, "{}", command.name);
    }
}

/// Each row begins with the name of a command.
#[test]
fn the_page_of_the_commands_of_patterns_has_them_all() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/patterns/commands.md");
    let page = std::fs::read_to_string(page).unwrap();
    let rows = page.lines().filter(|line| line.starts_with("| `"));
    let rows: Vec<Vec<&str>> = rows.map(|row| row.split('|').map(str::trim).collect()).collect();
    let found: Vec<_> = rows.iter().map(|row| (row[1], row[5], row[7])).collect();
    let is_of_pattern = |command: &&Command| command.name.starts_with("handfast") && command.name != "handfastBackup";
    let commands: Vec<_> = COMMANDS.iter().filter(is_of_pattern).collect();
    let names: Vec<_> = commands.iter().map(|command| format!("`{}`", command.name)).collect();
    let expected = commands.iter().zip(&names).map(|(command, name)| {
        let in_transaction = command.properties.in_transaction == InTransaction::Allowed;
        let role = if command.access == Access::Read { "`read`" } else { "`readWrite`" };
        (name.as_str(), if in_transaction { "yes" } else { "no" }, role)
    });
    assert_eq!(found, expected.collect::<Vec<_>>());
}

#[tokio::test]
async fn every_command_refuses_an_unknown_option() {
    let mut server = TestServer::adjustable();
    let mut client = server.connect();
    // These commands accept any field, or refuse an unknown one by an error of their own.
    let lenient = ["hello", "isMaster", "currentOp", "getParameter", "serverStatus", "setParameter"];
    for command in COMMANDS.iter().filter(|command| !lenient.contains(&command.name)) {
        let value: RawBson = match command.name {
            "endSessions" | "refreshSessions" | "killSessions" | "killAllSessions" | "killAllSessionsByPattern" => {
                RawBson::Array(bson::RawArrayBuf::new())
            }
            "getMore" => RawBson::Int64(1),
            "explain" => RawBson::Document(rawdoc! { "count": "c" }),
            "renameCollection" => RawBson::String("d.c".to_owned()),
            _ => RawBson::String("c".to_owned()),
        };
        let mut body = RawDocumentBuf::new();
        body.append(CString::try_from(command.name).unwrap(), value);
        for element in &rawdoc! {
            "collection": "c", "cursors": [], "documents": [{ "_id": 1 }], "updates": [{ "q": {}, "u": {} }],
            "deletes": [{ "q": {}, "limit": 1 }], "pipeline": [], "cursor": {}, "key": "a", "indexes": [], "index": "*",
            "to": "d.e", "op": 1, "worker": "w", "types": ["x"], "error": "e", "reason": "r", "application": "a", "tree": "t", "ops": [], "nsInfo": [], "update": {}, "pwd": "p", "roles": [], "conversationId": 1,
            "mechanism": "SCRAM-SHA-256", "payload": Binary { subtype: BinarySubtype::Generic, bytes: Vec::new() },
        } {
            let (name, value) = element.unwrap();
            let needed: &[&str] = match command.name {
                "getMore" => &["collection"],
                "killCursors" => &["cursors"],
                "insert" => &["documents"],
                "update" => &["updates"],
                "delete" => &["deletes"],
                "aggregate" => &["pipeline", "cursor"],
                "distinct" => &["key"],
                "createIndexes" => &["indexes"],
                "dropIndexes" => &["index"],
                "renameCollection" => &["to"],
                "killOp" => &["op"],
                "bulkWrite" => &["ops", "nsInfo"],
                "findAndModify" => &["update"],
                "createUser" => &["pwd", "roles"],
                "updateUser" => &["pwd"],
                "grantRolesToUser" | "revokeRolesFromUser" => &["roles"],
                "saslStart" => &["mechanism", "payload"],
                "saslContinue" => &["conversationId", "payload"],
                "handfastClaimJobs" => &["worker", "types"],
                "handfastFailJob" => &["error"],
                "handfastCancelEntry" => &["reason"],
                "handfastAdvanceTwoPhase" | "handfastRecoverTwoPhase" => &["application"],
                "handfastCancelTwoPhase" => &["application", "reason"],
                "handfastInsertSynced" => &["collection"],
                "handfastReadTree" | "handfastSweepTree" | "handfastWriteTree" => &["tree"],
                _ => &[],
            };
            if needed.contains(&name.as_str()) {
                body.append(name, value);
            }
        }
        match command.name {
            "handfastRetryJob" => body.append(bson::raw::cstr!("job"), rawdoc! { "_id": 1 }),
            "handfastEnqueueJob" => body.append(bson::raw::cstr!("job"), rawdoc! { "type": "x" }),
            "handfastBalance" | "handfastStatement" => body.append(bson::raw::cstr!("account"), "a"),
            "handfastCancelEntry" => body.append(bson::raw::cstr!("entry"), rawdoc! { "_id": 1 }),
            "handfastCaptureHold" | "handfastReleaseHold" => {
                body.append(bson::raw::cstr!("hold"), rawdoc! { "_id": 1 });
            }
            "handfastOpenAccount" => {
                body.append(bson::raw::cstr!("account"), rawdoc! { "_id": 1, "asset": "EUR" });
            }
            "handfastPostEntry" => {
                body.append(bson::raw::cstr!("entry"), rawdoc! { "_id": 1, "changes": [] });
            }
            "handfastPostHold" => {
                let hold = rawdoc! { "_id": 1, "payer": "a", "payee": "b", "value": 1, "asset": "EUR" };
                body.append(bson::raw::cstr!("hold"), hold);
            }
            "handfastApplyOnce" | "handfastSetSynced" => {
                body.append(bson::raw::cstr!("document"), rawdoc! { "_id": 1 });
                body.append(bson::raw::cstr!("token"), bson::oid::ObjectId::from_bytes([1; 12]));
                body.append(bson::raw::cstr!("update"), rawdoc! { "$inc": { "n": 1 } });
            }
            "handfastFinishUpdates" => body.append(bson::raw::cstr!("update"), rawdoc! { "$inc": { "n": 1 } }),
            "handfastDeleteSynced" | "handfastInsertSynced" => {
                body.append(bson::raw::cstr!("document"), rawdoc! { "_id": 1 });
            }
            "handfastOpenSyncFlag" => body.append(bson::raw::cstr!("links"), bson::RawArrayBuf::new()),
            "handfastBeginTwoPhase" => {
                let transfer = rawdoc! { "_id": 1, "source": "a", "destination": "b", "value": 1 };
                body.append(bson::raw::cstr!("transaction"), transfer);
            }
            "handfastCompensateTwoPhase" => {
                body.append(bson::raw::cstr!("transaction"), rawdoc! { "_id": 1 });
                body.append(bson::raw::cstr!("by"), rawdoc! { "_id": 2 });
            }
            "handfastAdvanceTwoPhase" | "handfastCancelTwoPhase" => {
                body.append(bson::raw::cstr!("transaction"), rawdoc! { "_id": 1 });
            }
            "handfastWriteTree" => {
                body.append(bson::raw::cstr!("token"), bson::oid::ObjectId::from_bytes([1; 12]));
            }
            name if name.starts_with("handfast") && name.ends_with("Job") => {
                let claim = bson::oid::ObjectId::from_bytes([1; 12]);
                body.append(bson::raw::cstr!("job"), rawdoc! { "_id": 1, "claim": claim });
            }
            _ => {}
        }
        body.append(bson::raw::cstr!("fooBar"), 1);
        if command.properties.in_transaction.is_end() {
            body.append(bson::raw::cstr!("lsid"), lsid(1));
            body.append(bson::raw::cstr!("txnNumber"), 1_i64);
            body.append(bson::raw::cstr!("autocommit"), false);
        }
        let (code, _, text) = client.refused(if command.admin_only { "admin" } else { "d" }, body).await;
        assert_eq!((code, text), (40_415, format!("BSON field '{}.fooBar' is an unknown field.", command.name)));
    }
}

#[tokio::test]
async fn an_unknown_command_or_a_wrong_database_is_refused() {
    let mut server = TestServer::adjustable();
    let mut client = server.connect();
    let expected = (59, "CommandNotFound".to_owned(), "no such command: 'foo'".to_owned());
    assert_eq!(client.refused("d", rawdoc! { "foo": 1 }).await, expected);
    let (code, name, text) = client.refused("d", rawdoc! { "listDatabases": 1 }).await;
    assert_eq!((code, name.as_str()), (13, "Unauthorized"));
    assert_eq!(text, "listDatabases may only be run against the admin database.");
    let strict = rawdoc! { "serverStatus": 1, "apiVersion": "1", "apiStrict": true };
    assert_eq!(client.refused("admin", strict).await.0, 323);
}

#[tokio::test]
async fn the_reply_has_the_code_text_and_details_of_a_store_error() {
    let store = Arc::new(AdjustableStore::default());
    let mut server = TestServer::new(Arc::clone(&store) as Arc<dyn DocumentStore>, Options::default());
    let error = handfast_store::Error::command(handfast_mql::Code::OutOfDiskSpace, "the disk is full");
    *lock(&store.failure) = Some(error.with_details(rawdoc! { "free": 0 }));
    let reply = server.connect().run_with("d", rawdoc! { "insert": "c" }, &[("documents", &numbered(1))]).await;
    let expected =
        rawdoc! { "ok": 0.0, "errmsg": "the disk is full", "code": 14031, "codeName": "OutOfDiskSpace", "free": 0 };
    assert_eq!(reply, expected);
}

#[tokio::test]
async fn a_sort_by_natural_order_goes_forwards_or_backwards() {
    let mut server = TestServer::checked();
    let mut client = server.connect();
    insert(&mut client, "c", &numbered(5)).await;
    let some = || rawdoc! { "_id": { "$gte": 2 } };
    for (direction, ids) in [(RawBson::Int32(1), [2, 3, 4]), (RawBson::Double(-1.0), [4, 3, 2])] {
        let find = rawdoc! { "find": "c", "filter": some(), "sort": { "$natural": direction.clone() } };
        let found = client.run("d", find).await;
        assert_eq!(batch(&found), ids.map(|id| rawdoc! { "_id": id }));
        let modify = rawdoc! { "findAndModify": "c", "query": some(), "sort": { "$natural": direction.clone() }, "update": { "$set": { "_id": ids[0] } } };
        let reply = client.run("d", modify).await;
        assert_eq!(reply.get_document("value").unwrap(), &*rawdoc! { "_id": ids[0] });
        let set = rawdoc! { "$set": { "first": true } };
        let update =
            rawdoc! { "update": "c", "updates": [{ "q": some(), "u": set, "sort": { "$natural": direction } }] };
        check(&mut client, update, rawdoc! { "n": 1, "nModified": 1 }).await;
        let unset = rawdoc! { "$unset": { "first": 1 } };
        let unset = rawdoc! { "update": "c", "updates": [{ "q": { "_id": ids[0], "first": true }, "u": unset }] };
        check(&mut client, unset, rawdoc! { "n": 1, "nModified": 1 }).await;
    }
    let find = |sort: RawDocumentBuf, hint: RawDocumentBuf| rawdoc! { "find": "c", "sort": sort, "hint": hint };
    let same = client.run("d", find(rawdoc! { "$natural": -1 }, rawdoc! { "$natural": -1 })).await;
    assert_eq!(batch(&same)[0], rawdoc! { "_id": 4 });
    for (sort, hint, expected) in [
        (
            rawdoc! { "$natural": 1, "a": 1 },
            rawdoc! {},
            "Cannot include '$natural' in compound sort: { $natural: 1, a: 1 }",
        ),
        (rawdoc! { "a": 1, "$natural": 1 }, rawdoc! {}, "Cannot include '$natural' in compound sort"),
        (rawdoc! { "$natural": 2 }, rawdoc! {}, "value other than -1 or 1"),
        (rawdoc! { "$natural": "x" }, rawdoc! {}, "value other than -1 or 1"),
        (rawdoc! { "$natural": 1 }, rawdoc! { "$natural": -1 }, "needs the same hint or none"),
        (rawdoc! { "$natural": 1 }, rawdoc! { "_id": 1 }, "needs the same hint or none"),
    ] {
        check_refused(&mut client, find(sort, hint), 2, expected).await;
    }
}

#[tokio::test]
async fn commands_about_the_server_succeed() {
    let mut server = TestServer::adjustable();
    let mut client = server.connect();
    for command in ["buildInfo", "hostInfo", "connectionStatus", "whatsmyuri", "listCommands", "getCmdLineOpts"] {
        assert_eq!(client.run("admin", named(command, 1)).await.double("ok"), 1.0, "{command}");
    }
}

#[tokio::test]
async fn writes_to_system_collections_are_refused() {
    let mut server = TestServer::transactional();
    let mut client = server.connect();
    let full = "d.system.x";
    for (database, command) in [
        ("d", rawdoc! { "create": "system.x" }),
        ("d", rawdoc! { "create": "system.profile" }),
        ("d", rawdoc! { "insert": "system.x", "documents": [{ "_id": 1 }] }),
        ("d", rawdoc! { "update": "system.x", "updates": [{ "q": {}, "u": { "a": 1 }, "upsert": true }] }),
        ("d", rawdoc! { "delete": "system.x", "deletes": [{ "q": {}, "limit": 1 }] }),
        ("d", rawdoc! { "findAndModify": "system.x", "update": { "a": 1 }, "upsert": true }),
        ("d", rawdoc! { "createIndexes": "system.x", "indexes": [{ "key": { "a": 1 }, "name": "a" }] }),
        (
            "admin",
            rawdoc! { "bulkWrite": 1, "ops": [{ "insert": 0, "document": { "_id": 1 } }], "nsInfo": [{ "ns": full }] },
        ),
    ] {
        let (code, name, text) = client.refused(database, command.clone()).await;
        assert_eq!((code, name.as_str()), (73, "InvalidNamespace"), "{command:?}");
        assert!(text.starts_with("Invalid system namespace: d.system."), "{text}");
    }
    // They can be read, and collections with similar names can be written.
    client.run("d", rawdoc! { "find": "system.x" }).await;
    for name in ["system.js", "systems", "system"] {
        client.run("d", rawdoc! { "insert": name, "documents": [{ "_id": 1 }] }).await;
    }
    let rename = rawdoc! { "renameCollection": "d.systems", "to": full };
    assert_eq!(client.refused("admin", rename).await.2, "Invalid system namespace: d.system.x");
}
