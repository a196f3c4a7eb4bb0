mod arguments;
mod holds;
mod transactions;

use std::time::Duration;

use bson::{DateTime, RawDocument, RawDocumentBuf, rawdoc};

use crate::testing::{ReplyFields, TestClient, TestServer, batch, check, check_refused, labels};

/// An entry that moves an amount from one account to another.
fn transfer(id: &str, payer: &str, payee: &str, value: i64) -> RawDocumentBuf {
    let changes = [(payer, -value), (payee, value)];
    let changes = changes.map(|(account, value)| rawdoc! { "account": account, "value": value, "asset": "EUR" });
    rawdoc! { "handfastPostEntry": "tx", "entry": { "_id": id, "changes": bson::RawArrayBuf::from_iter(changes) } }
}

fn cancel(id: &str) -> RawDocumentBuf {
    rawdoc! { "handfastCancelEntry": "tx", "entry": { "_id": id }, "reason": "paid twice" }
}

fn posted(id: &str, posted: bool) -> RawDocumentBuf {
    rawdoc! { "_id": id, "posted": posted, "state": "VALID" }
}

/// Opens the account `ann`, which has 100 and must keep 0.
async fn open_ann(client: &mut TestClient) {
    let open = rawdoc! { "handfastOpenAccount": "tx", "account": { "_id": "ann", "asset": "EUR", "minimum": 0 } };
    check(client, open, rawdoc! {}).await;
    check(client, transfer("deposit", "cash", "ann", 100), posted("deposit", true)).await;
}

/// Returns the balance of an account, and the amount that can be spent.
async fn balance(client: &mut TestClient, account: &str) -> (i64, i64) {
    let reply = client.run("d", rawdoc! { "handfastBalance": "tx", "account": account }).await;
    assert!(reply.flag("exists"), "{reply:?}");
    (reply.long("balance"), reply.long("available"))
}

async fn reconcile(client: &mut TestClient) -> (i32, i32) {
    let reply = client.run("d", rawdoc! { "handfastReconcileLedger": "tx" }).await;
    assert_eq!((reply.double("ok"), reply.int("failed")), (1.0, 0), "{reply:?}");
    (reply.int("committed"), reply.int("expired"))
}

/// Checks the error of an account that has too little, and returns what it says.
fn check_too_little(reply: &RawDocument) -> RawDocumentBuf {
    assert_eq!((reply.int("code"), labels(reply).len()), (121, 0), "{reply:?}");
    reply.get_document("errInfo").unwrap().to_owned()
}

#[tokio::test]
async fn an_entry_is_posted_once() {
    for mut server in TestServer::over_each_engine() {
        let mut client = server.connect();
        open_ann(&mut client).await;
        open_ann_again(&mut client).await;
        // The reply may be lost, and the command is sent again.
        for first in [true, false] {
            check(&mut client, transfer("order 7", "ann", "bob", 30), posted("order 7", first)).await;
        }
        assert_eq!(balance(&mut client, "ann").await, (70, 70));
        assert_eq!(balance(&mut client, "bob").await, (30, 30));
        check_refused(&mut client, transfer("order 7", "ann", "bob", 31), 2, "another entry has the id").await;
        assert_eq!(client.run("d", rawdoc! { "count": "tx" }).await.int("n"), 2);
    }
}

async fn open_ann_again(client: &mut TestClient) {
    let open = |minimum: i64| rawdoc! { "handfastOpenAccount": "tx", "account": { "_id": "ann", "asset": "EUR", "minimum": minimum } };
    check(client, open(0), rawdoc! {}).await;
    check_refused(client, open(1), 2, "open with other settings").await;
}

#[tokio::test]
async fn an_entry_has_its_time_its_types_and_its_metadata() {
    let mut server = TestServer::transactional();
    let mut client = server.connect();
    let changes = [("a", -5_i64, "fee"), ("b", 5, "gain")];
    let changes = changes
        .map(|(account, value, kind)| rawdoc! { "account": account, "value": value, "asset": "EUR", "type": kind });
    let ts = DateTime::from_millis(1_000_000);
    let entry =
        rawdoc! { "_id": 1, "changes": bson::RawArrayBuf::from_iter(changes), "ts": ts, "metadata": { "order": 7 } };
    check(
        &mut client,
        rawdoc! { "handfastPostEntry": "tx", "entry": entry },
        rawdoc! { "_id": 1, "posted": true, "state": "VALID" },
    )
    .await;
    let found = batch(&client.run("d", rawdoc! { "find": "tx" }).await).remove(0);
    assert_eq!(found.get_datetime("ts").unwrap(), ts);
    assert_eq!(found.get_document("metadata").unwrap().to_owned(), rawdoc! { "order": 7 });
    let kinds: Vec<_> = found.get_array("changes").unwrap().into_iter().collect::<Result<_, _>>().unwrap();
    let kinds: Vec<_> = kinds.iter().map(|change| change.as_document().unwrap().text("type")).collect();
    assert_eq!(kinds, ["fee", "gain"]);
}

#[tokio::test]
async fn an_entry_that_takes_too_much_is_an_error_with_the_account() {
    for mut server in TestServer::over_each_engine() {
        let mut client = server.connect();
        open_ann(&mut client).await;
        let reply = client.run("d", transfer("order 8", "ann", "bob", 101)).await;
        let expected = rawdoc! { "account": "ann", "available": 100_i64, "change": -101_i64, "minimum": 0_i64 };
        assert_eq!(check_too_little(&reply), expected);
        // Nothing was posted, and the id can be used.
        check(&mut client, transfer("order 8", "ann", "bob", 100), posted("order 8", true)).await;
    }
}

#[tokio::test]
async fn an_entry_is_canceled_by_a_mark_or_a_reversal() {
    for mut server in TestServer::over_each_engine() {
        let mut client = server.connect();
        open_ann(&mut client).await;
        check(&mut client, transfer("order 7", "ann", "bob", 30), posted("order 7", true)).await;
        for _ in 0..2 {
            check(&mut client, cancel("order 7"), rawdoc! { "canceled": true }).await;
        }
        let again = rawdoc! { "_id": "order 7", "posted": false, "state": "CANCELED" };
        check(&mut client, transfer("order 7", "ann", "bob", 30), again).await;
        check(&mut client, transfer("order 8", "ann", "bob", 40), posted("order 8", true)).await;
        while reconcile(&mut client).await.0 > 0 {}
        for _ in 0..2 {
            let reversed = rawdoc! { "canceled": true, "reversedBy": { "reverses": "order 8" } };
            check(&mut client, cancel("order 8"), reversed).await;
        }
        assert_eq!(balance(&mut client, "ann").await, (100, 100));
        check(&mut client, transfer("order 9", "ann", "bob", 100), posted("order 9", true)).await;
        check_too_little(&client.run("d", cancel("deposit")).await);
        check_refused(&mut client, cancel("order 10"), 4, "there is no entry").await;
    }
}

#[tokio::test]
async fn a_balance_is_that_of_now_or_as_of_a_time_an_entry_or_a_place() {
    for mut server in TestServer::over_each_engine() {
        let mut client = server.connect();
        open_ann(&mut client).await;
        let before = server.shared.sources.clock.now();
        server.clock.advance(Duration::from_secs(1));
        check(&mut client, transfer("order 7", "ann", "bob", 30), posted("order 7", true)).await;
        check(&mut client, transfer("order 8", "ann", "bob", 20), posted("order 8", true)).await;
        while reconcile(&mut client).await.0 > 0 {}
        check(&mut client, transfer("order 9", "ann", "bob", 10), posted("order 9", true)).await;
        let now = rawdoc! {
            "exists": true, "account": "ann", "asset": "EUR", "balance": 40_i64, "available": 40_i64, "held": 0_i64,
            "pending": -10_i64, "seqId": 4_i64, "missing": 0_i64,
        };
        check(&mut client, rawdoc! { "handfastBalance": "tx", "account": "ann" }, now).await;
        for (as_of, expected) in [
            (rawdoc! { "at": before }, 100),
            (rawdoc! { "entry": "order 7" }, 70),
            (rawdoc! { "seqId": 3.0 }, 50),
            (rawdoc! { "at": null }, 40),
        ] {
            let mut command = rawdoc! { "handfastBalance": "tx", "account": "ann" };
            for field in &as_of {
                let (name, value) = field.unwrap();
                command.append(name, value);
            }
            let reply = client.run("d", command).await;
            assert_eq!(reply.long("balance"), expected, "{as_of:?}: {reply:?}");
        }
        let nobody = rawdoc! { "handfastBalance": "tx", "account": "eve" };
        check(&mut client, nobody, rawdoc! { "exists": false }).await;
    }
}

#[tokio::test]
async fn a_statement_has_the_changes_of_an_account_a_page_at_a_time() {
    let mut server = TestServer::transactional();
    let mut client = server.connect();
    open_ann(&mut client).await;
    for number in 1..=3_i64 {
        let id = format!("order {number}");
        check(&mut client, transfer(&id, "ann", "bob", number), posted(&id, true)).await;
    }
    let statement = |further: bson::RawDocumentBuf| {
        let mut command = rawdoc! { "handfastStatement": "tx", "account": "ann", "count": 2 };
        for field in &further {
            let (name, value) = field.unwrap();
            command.append(name, value);
        }
        command
    };
    let places = |reply: &bson::RawDocument| -> Vec<(i64, i64)> {
        let lines = reply.get_array("lines").unwrap().into_iter();
        let line = |line: bson::RawBsonRef<'_>| {
            let line = line.as_document().unwrap();
            (line.get_i64("seqId").unwrap(), line.get_i64("balance").unwrap())
        };
        lines.map(|found| line(found.unwrap())).collect()
    };
    for (page, expected, before, after) in [
        (rawdoc! {}, [(3, 97), (4, 94)], Some(3), None),
        (rawdoc! { "before": 3_i64 }, [(1, 100), (2, 99)], None, Some(2)),
        (rawdoc! { "after": 1_i64 }, [(2, 99), (3, 97)], Some(2), Some(3)),
    ] {
        let reply = client.run("d", statement(page.clone())).await;
        assert_eq!(reply.double("ok"), 1.0, "{reply:?}");
        assert_eq!(places(&reply), expected, "{page:?}: {reply:?}");
        assert_eq!((reply.get_i64("before").ok(), reply.get_i64("after").ok()), (before, after), "{page:?}");
    }
    let nobody = rawdoc! { "handfastStatement": "tx", "account": "eve" };
    check(&mut client, nobody, rawdoc! { "exists": false, "lines": bson::RawArrayBuf::new() }).await;
}

#[tokio::test]
async fn a_balance_creates_no_ledger() {
    let mut server = TestServer::transactional();
    let mut client = server.connect();
    let nobody = rawdoc! { "handfastBalance": "tx", "account": "ann" };
    check(&mut client, nobody, rawdoc! { "exists": false }).await;
    assert!(batch(&client.run("d", rawdoc! { "listCollections": 1 }).await).is_empty());
}

#[tokio::test]
async fn places_are_unique_also_after_the_entries_were_dropped() {
    for mut server in TestServer::over_each_engine() {
        let mut client = server.connect();
        for _ in 0..2 {
            check(&mut client, transfer("order 7", "ann", "bob", 30), posted("order 7", true)).await;
            let indexes = batch(&client.run("d", rawdoc! { "listIndexes": "tx" }).await);
            assert_eq!(
                indexes.iter().filter(|index| index.get_bool("unique").unwrap_or(false)).count(),
                1,
                "{indexes:?}"
            );
            for collection in ["tx", "account"] {
                assert_eq!(client.run("d", rawdoc! { "drop": collection }).await.double("ok"), 1.0);
            }
        }
    }
}

#[tokio::test]
async fn a_ledger_is_used_with_the_roles_of_its_database() {
    let mut server = TestServer::guarded();
    server.add_user("admin", "root", &["root@admin"]).await;
    server.add_user("d", "reader", &["read@d"]).await;
    server.add_user("d", "writer", &["readWrite@d"]).await;
    for (user, expected) in [("reader", 13), ("writer", 0)] {
        let mut client = server.connect();
        client.log_in("d", user, user).await;
        let reply = client.run("d", transfer("order 7", "ann", "bob", 30)).await;
        assert_eq!(reply.get_i32("code").unwrap_or(0), expected, "{user}: {reply:?}");
        let reply = client.run("d", rawdoc! { "handfastBalance": "tx", "account": "ann" }).await;
        assert_eq!(reply.double("ok"), 1.0, "{user}: {reply:?}");
    }
}

/// A user who may write to the database may also write the settings of a ledger.
#[tokio::test]
async fn a_ledger_has_no_accounts_where_the_server_keeps_its_users() {
    let mut server = TestServer::transactional();
    let mut client = server.connect();
    let reply = client.run("admin", transfer("order 7", "ann", "bob", 30)).await;
    assert_eq!(reply.double("ok"), 1.0, "{reply:?}");
    for (collection, code) in [("system.users", 13), ("system.views", 73)] {
        for field in ["accounts", "holds"] {
            let other = if field == "accounts" { "holds" } else { "accounts" };
            let mut set = RawDocumentBuf::new();
            set.append(bson::raw::CString::try_from(format!("settings.{field}")).unwrap(), collection);
            set.append(bson::raw::CString::try_from(format!("settings.{other}")).unwrap(), "other");
            let statement = rawdoc! { "q": { "_id": "ledger" }, "u": { "$set": set } };
            let reply = client.run("admin", rawdoc! { "update": "tx.settings", "updates": [statement] }).await;
            assert_eq!(reply.int("n"), 1, "{reply:?}");
            server.clock.advance(Duration::from_secs(11));
            for command in [transfer("order 8", "ann", "bob", 1), rawdoc! { "handfastBalance": "tx", "account": "ann" }]
            {
                let reply = client.run("admin", command).await;
                assert_eq!(reply.int("code"), code, "{collection} {field}: {reply:?}");
            }
        }
    }
}

/// A name that is misspelt creates no collections.
#[tokio::test]
async fn what_resolves_entries_creates_no_ledger() {
    let mut server = TestServer::transactional();
    let mut client = server.connect();
    for command in [
        cancel("order 7"),
        rawdoc! { "handfastCaptureHold": "tx", "hold": { "_id": "order 7" } },
        rawdoc! { "handfastReleaseHold": "tx", "hold": { "_id": "order 7" } },
    ] {
        check_refused(&mut client, command, 4, "there is no").await;
    }
    assert!(batch(&client.run("d", rawdoc! { "listCollections": 1 }).await).is_empty());
}

#[tokio::test]
async fn two_ledgers_do_not_share_accounts() {
    let mut server = TestServer::transactional();
    let mut client = server.connect();
    open_ann(&mut client).await;
    let other = rawdoc! { "handfastOpenAccount": "ty", "account": { "_id": "ann", "asset": "EUR" } };
    check_refused(&mut client, other, 2, "d.account has the accounts of the ledger d.tx").await;
    let balance = rawdoc! { "handfastBalance": "ty", "account": "ann" };
    check_refused(&mut client, balance, 2, "d.account has the accounts of the ledger d.tx").await;
    let job = rawdoc! { "handfastEnqueueJob": "account", "job": { "type": "mail" } };
    check_refused(&mut client, job, 2, "d.account belongs to a ledger").await;
}

/// Without its index, a place could be taken by two entries.
#[tokio::test]
async fn no_index_is_dropped_while_an_entry_is_posted_and_the_reverse() {
    let mut server = TestServer::transactional();
    let mut client = server.connect();
    open_ann(&mut client).await;
    let shared = std::sync::Arc::clone(&server.shared);
    let short = Duration::from_millis(100);
    let posting = shared.patterns.keep_indexes().await;
    for (database, command) in [
        ("d", rawdoc! { "dropIndexes": "tx", "index": "*" }),
        ("d", rawdoc! { "drop": "tx" }),
        ("d", rawdoc! { "dropDatabase": 1 }),
        ("admin", rawdoc! { "renameCollection": "d.tx", "to": "d.ty" }),
    ] {
        let mut other = server.connect();
        let waits = tokio::time::timeout(short, other.run(database, command.clone())).await;
        assert!(waits.is_err(), "{command:?}: {waits:?}");
    }
    // Other commands go on.
    assert_eq!(balance(&mut client, "ann").await, (100, 100));
    drop(posting);
    for command in [
        rawdoc! { "handfastOpenAccount": "tz", "account": { "_id": "ann", "asset": "EUR" } },
        transfer("order 7", "ann", "bob", 30),
        rawdoc! { "handfastPostHold": "tx", "hold": { "_id": "h", "payer": "ann", "payee": "bob", "value": 1, "asset": "EUR" } },
        cancel("deposit"),
        rawdoc! { "handfastCaptureHold": "tx", "hold": { "_id": "h" } },
        rawdoc! { "handfastReleaseHold": "tx", "hold": { "_id": "h" } },
        rawdoc! { "handfastReconcileLedger": "tx" },
        rawdoc! { "handfastEnqueueJob": "jobs", "job": { "type": "mail", "unique": "u" } },
    ] {
        let mut other = server.connect();
        let dropping = shared.patterns.may_drop_indexes().await;
        let waits = tokio::time::timeout(short, other.run("d", command.clone())).await;
        assert!(waits.is_err(), "{command:?}: {waits:?}");
        drop(dropping);
    }
}

#[tokio::test]
async fn entries_are_final_although_an_account_refuses_its_balance() {
    let mut server = TestServer::transactional();
    let mut client = server.connect();
    open_ann(&mut client).await;
    // Some program changes the accounts, and asks for fields that no account has.
    let strict = rawdoc! { "collMod": "account", "validator": { "name": { "$type": "string" } } };
    check(&mut client, strict, rawdoc! {}).await;
    let reply = client.run("d", rawdoc! { "handfastReconcileLedger": "tx" }).await;
    // The entry has two accounts.
    assert_eq!((reply.double("ok"), reply.int("committed"), reply.int("failed")), (1.0, 1, 2), "{reply:?}");
    assert_eq!(balance(&mut client, "ann").await, (100, 100));
}
