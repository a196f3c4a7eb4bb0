//! Two-phase transactions: carried out, canceled, taken back, recovered; begun in a driver's transaction.

use std::time::Duration;

use bson::{RawArrayBuf, RawDocument, RawDocumentBuf, rawdoc};

use crate::testing::{
    ReplyFields, TestClient, TestServer, batch, check, check_refused, end, in_transaction, insert, labels,
};

/// Inserts two accounts with 1000 each.
async fn open_accounts(client: &mut TestClient) {
    insert(client, "accounts", &["A", "B"].map(|id| rawdoc! { "_id": id, "balance": 1000 })).await;
}

fn begin(id: i32, value: i64) -> RawDocumentBuf {
    let transfer = rawdoc! { "_id": id, "source": "A", "destination": "B", "value": value };
    rawdoc! { "handfastBeginTwoPhase": "transactions", "transaction": transfer }
}

fn advance(id: i32, application: &str) -> RawDocumentBuf {
    rawdoc! { "handfastAdvanceTwoPhase": "transactions", "transaction": { "_id": id }, "application": application }
}

fn cancel(id: i32) -> RawDocumentBuf {
    rawdoc! { "handfastCancelTwoPhase": "transactions", "transaction": { "_id": id }, "reason": "a test", "application": "App1" }
}

fn recover(waiting: bool) -> RawDocumentBuf {
    rawdoc! { "handfastRecoverTwoPhase": "transactions", "application": "App2", "waiting": waiting }
}

fn recovered(recovered: i32, run: i32) -> RawDocumentBuf {
    rawdoc! { "recovered": recovered, "run": run, "repaired": 0, "failed": 0 }
}

fn at(id: i32, state: &str) -> RawDocumentBuf {
    rawdoc! { "_id": id, "state": state }
}

fn info(reply: &RawDocument) -> RawDocumentBuf {
    reply.get_document("errInfo").unwrap_or_else(|_| panic!("{reply:?}")).to_owned()
}

/// Returns the balances of A and B.
async fn balances(client: &mut TestClient) -> Vec<i64> {
    let found = batch(&client.run("d", rawdoc! { "find": "accounts", "sort": { "_id": 1 } }).await);
    let balance = |account: &RawDocumentBuf| match account.get_i64("balance") {
        Ok(balance) => balance,
        Err(_) => account.int("balance").into(),
    };
    found.iter().map(balance).collect()
}

#[tokio::test]
async fn a_transfer_is_made_once() {
    for mut server in TestServer::over_each_engine() {
        let mut client = server.connect();
        open_accounts(&mut client).await;
        // Each reply may be lost, and the command is sent again.
        for _ in 0..2 {
            check(&mut client, begin(1, 100), at(1, "initial")).await;
        }
        for _ in 0..2 {
            check(&mut client, advance(1, "App1"), at(1, "done")).await;
        }
        check(&mut client, begin(1, 100), at(1, "done")).await;
        assert_eq!(balances(&mut client).await, [900, 1100]);
        check_refused(&mut client, begin(1, 101), 2, "another transaction has the id 1").await;
        check_refused(&mut client, advance(2, "App1"), 4, "there is no transaction 2").await;
        check_refused(&mut client, cancel(2), 4, "there is no transaction 2").await;
    }
}

#[tokio::test]
async fn a_transfer_that_takes_too_much_is_canceled_with_an_error() {
    for mut server in TestServer::over_each_engine() {
        let mut client = server.connect();
        open_accounts(&mut client).await;
        check(&mut client, begin(1, 1001), at(1, "initial")).await;
        for _ in 0..2 {
            let reply = client.run("d", advance(1, "App1")).await;
            assert_eq!(reply.int("code"), 121, "{reply:?}");
            let expected = rawdoc! { "state": "canceled", "reason": "d.accounts \"A\" does not allow it" };
            assert_eq!(info(&reply), expected);
        }
        assert_eq!(balances(&mut client).await, [1000, 1000]);
    }
}

#[tokio::test]
async fn a_transfer_is_canceled_or_taken_back() {
    for mut server in TestServer::over_each_engine() {
        let mut client = server.connect();
        open_accounts(&mut client).await;
        check(&mut client, begin(1, 100), at(1, "initial")).await;
        for _ in 0..2 {
            check(&mut client, cancel(1), at(1, "canceled")).await;
        }
        assert_eq!(client.run("d", advance(1, "App1")).await.int("code"), 121);
        let back = |by: i32| rawdoc! { "handfastCompensateTwoPhase": "transactions", "transaction": { "_id": 2 }, "by": { "_id": by } };
        check(&mut client, begin(2, 100), at(2, "initial")).await;
        check_refused(&mut client, back(3), 2, "is not applied").await;
        check(&mut client, advance(2, "App1"), at(2, "done")).await;
        let reply = client.run("d", cancel(2)).await;
        assert_eq!((reply.int("code"), info(&reply)), (20, rawdoc! { "state": "applied" }), "{reply:?}");
        for _ in 0..2 {
            check(&mut client, back(3), at(3, "initial")).await;
        }
        check_refused(&mut client, back(4), 2, "is taken back by transaction 3 already").await;
        check(&mut client, advance(3, "App1"), at(3, "done")).await;
        assert_eq!(balances(&mut client).await, [1000, 1000]);
    }
}

/// The documents that an application leaves when it dies after the first update.
async fn leave_half_done(server: &TestServer, client: &mut TestClient) {
    check(client, begin(1, 100), at(1, "initial")).await;
    let claimed = rawdoc! { "$set": { "state": "pending", "application": "App1", "lastModified": server.shared.sources.clock.now() } };
    let paid = rawdoc! { "$inc": { "balance": -100_i64 }, "$push": { "pendingTransactions": 1 } };
    for (collection, id, change) in [("transactions", bson::RawBson::from(1), claimed), ("accounts", "A".into(), paid)]
    {
        let update = rawdoc! { "update": collection, "updates": [{ "q": { "_id": id }, "u": change }] };
        assert_eq!(client.run("d", update).await.int("n"), 1);
    }
}

#[tokio::test]
async fn a_transaction_of_a_dead_application_is_recovered() {
    for mut server in TestServer::over_each_engine() {
        let mut client = server.connect();
        open_accounts(&mut client).await;
        leave_half_done(&server, &mut client).await;
        let reply = client.run("d", advance(1, "App2")).await;
        assert_eq!((reply.int("code"), info(&reply)), (117, rawdoc! { "application": "App1" }), "{reply:?}");
        check(&mut client, recover(true), recovered(0, 0)).await;
        server.clock.advance(Duration::from_secs(30 * 60));
        check(&mut client, recover(false), recovered(1, 0)).await;
        assert_eq!(balances(&mut client).await, [900, 1100]);
        check(&mut client, advance(1, "App2"), at(1, "done")).await;
    }
}

#[tokio::test]
async fn an_application_goes_on_with_its_own_transaction() {
    for mut server in TestServer::over_each_engine() {
        let mut client = server.connect();
        open_accounts(&mut client).await;
        leave_half_done(&server, &mut client).await;
        check(&mut client, advance(1, "App1"), at(1, "done")).await;
        assert_eq!(balances(&mut client).await, [900, 1100]);
    }
}

#[tokio::test]
async fn a_round_carries_out_waiting_transactions_if_it_is_to() {
    for mut server in TestServer::over_each_engine() {
        let mut client = server.connect();
        open_accounts(&mut client).await;
        for id in [1, 2] {
            check(&mut client, begin(id, 1), at(id, "initial")).await;
        }
        check(&mut client, recover(false), recovered(0, 0)).await;
        check(&mut client, recover(true), recovered(0, 2)).await;
        assert_eq!(balances(&mut client).await, [998, 1002]);
    }
}

/// A transaction of two collections: it takes from the stock, and makes an order of it.
fn order(id: i32, guard: RawDocumentBuf) -> RawDocumentBuf {
    let inc = |field: &str, by: i32| rawdoc! { "$inc": RawDocumentBuf::from_iter([(bson::raw::CString::try_from(field).unwrap(), by)]) };
    let stock = rawdoc! { "collection": "stock", "_id": "lamp", "apply": inc("left.here", -1), "inverse": inc("left.here", 1), "guard": guard };
    let set = |value: &str| rawdoc! { "$set": { "state": value } };
    let order = rawdoc! { "collection": "orders", "_id": 7, "apply": set("reserved"), "inverse": set("refused"), "finish": set("ordered") };
    let participants = RawArrayBuf::from_iter([stock, order]);
    rawdoc! { "handfastBeginTwoPhase": "transactions", "transaction": { "_id": id, "participants": participants } }
}

#[tokio::test]
async fn a_plan_changes_documents_of_several_collections() {
    for mut server in TestServer::over_each_engine() {
        let mut client = server.connect();
        let open = |participants: &[&str]| rawdoc! { "handfastOpenTwoPhase": "transactions", "participants": RawArrayBuf::from_iter(participants.iter().copied()) };
        for _ in 0..2 {
            check(&mut client, open(&["stock", "orders"]), rawdoc! {}).await;
        }
        check_refused(&mut client, open(&["stock"]), 2, "records other settings").await;
        insert(&mut client, "stock", &[rawdoc! { "_id": "lamp", "left": { "here": 1 } }]).await;
        insert(&mut client, "orders", &[rawdoc! { "_id": 7 }]).await;
        let is_left = || rawdoc! { "left.here": { "$gte": 1 } };
        check(&mut client, order(1, is_left()), at(1, "initial")).await;
        check(&mut client, advance(1, "App1"), at(1, "done")).await;
        let orders = async |client: &mut TestClient| {
            batch(&client.run("d", rawdoc! { "find": "orders" }).await)[0].text("state").to_owned()
        };
        assert_eq!(orders(&mut client).await, "ordered");
        check(&mut client, order(2, is_left()), at(2, "initial")).await;
        assert_eq!(client.run("d", advance(2, "App1")).await.int("code"), 121);
        assert_eq!(orders(&mut client).await, "ordered", "it was not changed, so it is not changed back");
        let stock = batch(&client.run("d", rawdoc! { "find": "stock" }).await).remove(0);
        assert_eq!(stock.get_document("left").unwrap().int("here"), 0);
    }
}

#[tokio::test]
async fn the_accounts_are_as_they_are_declared() {
    let mut server = TestServer::transactional();
    let mut client = server.connect();
    let accounts = rawdoc! { "collection": "purses", "balance": "coins", "overdraft": true, "pending": { "credits": "in", "debits": "out" } };
    let open = rawdoc! { "handfastOpenTwoPhase": "transactions", "accounts": accounts, "finishedMax": 5 };
    check(&mut client, open, rawdoc! {}).await;
    insert(&mut client, "purses", &["A", "B"].map(|id| rawdoc! { "_id": id, "coins": 0 })).await;
    check(&mut client, begin(1, 100), at(1, "initial")).await;
    check(&mut client, advance(1, "App1"), at(1, "done")).await;
    let found = batch(&client.run("d", rawdoc! { "find": "purses", "sort": { "_id": 1 } }).await);
    assert_eq!(found.iter().map(|purse| purse.long("coins")).collect::<Vec<_>>(), [-100, 100]);
    assert!(found.iter().all(|purse| purse.get_i64("in").unwrap_or(0) == 0 && purse.get_i64("out").unwrap_or(0) == 0));
}

#[tokio::test]
async fn a_transaction_of_the_driver_begins_a_two_phase_transaction_if_and_only_if_it_commits() {
    for mut server in TestServer::over_each_engine() {
        let (mut client, mut other) = (server.connect(), server.connect());
        open_accounts(&mut client).await;
        check(&mut client, begin(1, 1), at(1, "initial")).await;
        for (number, end_command, code) in [(1, "abortTransaction", 4), (2, "commitTransaction", 0)] {
            client.run("d", in_transaction(rawdoc! { "insert": "orders", "documents": [{}] }, number, true)).await;
            for _ in 0..2 {
                let reply = client.run("d", in_transaction(begin(2, 10), number, false)).await;
                assert_eq!(reply.text("state"), "initial", "{reply:?}");
            }
            assert_eq!(other.run("d", rawdoc! { "count": "transactions" }).await.int("n"), 1, "it is open");
            assert_eq!(end(&mut client, end_command, number).await.double("ok"), 1.0);
            let reply = other.run("d", advance(2, "App1")).await;
            assert_eq!(reply.get_i32("code").unwrap_or(0), code, "{reply:?}");
        }
        // A driver does not know that its transaction was committed, and runs it again.
        client.run("d", in_transaction(rawdoc! { "insert": "orders", "documents": [{}] }, 3, true)).await;
        let reply = client.run("d", in_transaction(begin(2, 10), 3, false)).await;
        assert_eq!((reply.int("code"), labels(&reply).len()), (256, 0), "{reply:?}");
        assert_eq!(end(&mut client, "commitTransaction", 3).await.int("code"), 251);
        assert_eq!(client.run("d", rawdoc! { "count": "orders" }).await.int("n"), 1);
        assert_eq!(balances(&mut client).await, [990, 1010]);
        // The other steps are made outside.
        for (number, command) in (4..).zip([advance(1, "App1"), cancel(1), recover(true)]) {
            let reply = client.run("d", in_transaction(command, number, true)).await;
            assert_eq!(reply.int("code"), 263, "{reply:?}");
        }
    }
}

#[tokio::test]
async fn wrong_arguments_are_refused_by_name() {
    let mut server = TestServer::transactional();
    let mut client = server.connect();
    let begin =
        |transaction: RawDocumentBuf| rawdoc! { "handfastBeginTwoPhase": "transactions", "transaction": transaction };
    let plan = |participant: RawDocumentBuf| begin(rawdoc! { "_id": 1, "participants": [participant] });
    let open = |accounts: RawDocumentBuf| rawdoc! { "handfastOpenTwoPhase": "transactions", "accounts": accounts };
    let set = || rawdoc! { "$set": { "a": 1 } };
    let both = rawdoc! { "_id": 1, "participants": [], "value": 1 };
    for (command, code, text) in [
        (rawdoc! { "handfastBeginTwoPhase": "transactions" }, 40414, "handfastBeginTwoPhase.transaction"),
        (begin(rawdoc! { "source": "A" }), 40414, "transaction._id"),
        (begin(rawdoc! { "_id": 1, "source": "A", "value": 1 }), 40414, "transaction.destination"),
        (begin(rawdoc! { "_id": 1, "source": "A", "destination": "B", "value": 0.5 }), 2, "must be an integer"),
        (begin(rawdoc! { "_id": 1, "source": "A", "destination": "B", "value": 0 }), 2, "must be more than 0"),
        (
            begin(rawdoc! { "_id": 1, "source": "A", "destination": "A", "value": 1 }),
            2,
            "takes part in a transaction once",
        ),
        (
            begin(rawdoc! { "_id": 1, "source": "A", "destination": "B", "value": 1, "state": "done" }),
            40415,
            "transaction.state",
        ),
        (begin(both), 2, "participants exclude"),
        (begin(rawdoc! { "_id": 1, "participants": [] }), 2, "from 1 to 1000 participants"),
        (plan(rawdoc! { "_id": 1, "apply": set(), "inverse": set() }), 40414, "participants.collection"),
        (plan(rawdoc! { "collection": "accounts", "apply": set(), "inverse": set() }), 40414, "participants._id"),
        (plan(rawdoc! { "collection": "accounts", "_id": 1, "inverse": set() }), 40414, "participants.apply"),
        (plan(rawdoc! { "collection": "accounts", "_id": 1, "apply": set() }), 40414, "participants.inverse"),
        (
            plan(rawdoc! { "collection": "accounts", "_id": 1, "apply": { "a": 1 }, "inverse": set() }),
            2,
            "update operators",
        ),
        (
            plan(rawdoc! { "collection": "stock", "_id": 1, "apply": set(), "inverse": set() }),
            2,
            "not among the collections",
        ),
        (rawdoc! { "handfastAdvanceTwoPhase": "transactions", "transaction": { "_id": 1 } }, 40414, "application"),
        (advance(1, ""), 2, "needs a name for the application"),
        (
            rawdoc! { "handfastAdvanceTwoPhase": "transactions", "application": "App1" },
            40414,
            "handfastAdvanceTwoPhase.transaction",
        ),
        (rawdoc! { "handfastRecoverTwoPhase": "transactions", "application": "App1", "count": 0 }, 2, "count must be"),
        (open(rawdoc! { "balance": "" }), 2, "cannot be named"),
        (open(rawdoc! { "pending": { "credits": "c" } }), 40414, "accounts.pending.debits"),
        (open(rawdoc! { "database": "e" }), 40415, "accounts.database"),
        (open(rawdoc! { "collection": "c", "balance": "n" }), 2, "records other settings"),
        (rawdoc! { "handfastOpenTwoPhase": "transactions", "participants": [1] }, 14, "participants must be"),
        (rawdoc! { "handfastOpenTwoPhase": "transactions", "finishedMax": 0 }, 2, "finished_max"),
        (rawdoc! { "handfastOpenTwoPhase": "other", "participants": ["system.views"] }, 73, "Invalid system namespace"),
        (rawdoc! { "handfastOpenTwoPhase": "system.views" }, 73, "Invalid system namespace"),
    ] {
        check_refused(&mut client, command, code, text).await;
    }
}

/// The application that carries it out makes no further update, as each participant is kept from it.
#[tokio::test]
async fn a_transaction_is_canceled_beside_the_application_that_carries_it_out() {
    for mut server in TestServer::over_each_engine() {
        let mut client = server.connect();
        open_accounts(&mut client).await;
        leave_half_done(&server, &mut client).await;
        let by_another = rawdoc! {
            "handfastCancelTwoPhase": "transactions", "transaction": { "_id": 1 }, "reason": "a test", "application": "App2",
        };
        check(&mut client, by_another, at(1, "canceled")).await;
        assert_eq!(balances(&mut client).await, [1000, 1000]);
        let open_to_it = rawdoc! { "find": "accounts", "filter": { "finishedTransactions": { "$ne": 1 } } };
        assert!(batch(&client.run("d", open_to_it).await).is_empty());
    }
}

/// The updates were made, and a release fails: the error says so.
#[tokio::test]
async fn an_error_after_the_updates_names_the_state() {
    for mut server in TestServer::over_each_engine() {
        let mut client = server.connect();
        open_accounts(&mut client).await;
        let declared = rawdoc! { "handfastOpenTwoPhase": "transactions", "participants": ["orders"] };
        check(&mut client, declared, rawdoc! {}).await;
        let made = rawdoc! { "insert": "orders", "documents": [{ "_id": 1, "count": "none" }] };
        assert_eq!(client.run("d", made).await.int("n"), 1);
        let order = rawdoc! { "collection": "orders", "_id": 1, "apply": { "$set": { "paid": true } }, "inverse": { "$unset": { "paid": "" } },
        "finish": { "$inc": { "count": 1 } } };
        let begin =
            rawdoc! { "handfastBeginTwoPhase": "transactions", "transaction": { "_id": 7, "participants": [order] } };
        check(&mut client, begin, at(7, "initial")).await;
        for _ in 0..2 {
            let reply = client.run("d", advance(7, "App1")).await;
            assert_eq!((reply.int("code"), info(&reply)), (14, rawdoc! { "state": "applied" }), "{reply:?}");
            assert_eq!(labels(&reply), ["OutcomeUnknown"], "{reply:?}");
        }
    }
}

/// A user who may write to one database may also write the settings there.
#[tokio::test]
async fn settings_lead_to_no_collection_that_the_client_may_not_use() {
    let mut server = TestServer::transactional();
    let mut client = server.connect();
    let reply = client.run("admin", begin(1, 1)).await;
    assert_eq!(reply.double("ok"), 1.0, "{reply:?}");
    for (field, named) in [
        ("settings.accounts", rawdoc! { "collection": "system.users", "balance": "n", "overdraft": true }),
        ("settings.accounts", rawdoc! { "collection": "c", "database": "other", "balance": "n", "overdraft": true }),
    ] {
        let mut set = RawDocumentBuf::new();
        set.append(bson::raw::CString::try_from(field).unwrap(), &named);
        let statement = rawdoc! { "q": { "_id": "two-phase" }, "u": { "$set": set } };
        let reply = client.run("admin", rawdoc! { "update": "transactions.settings", "updates": [statement] }).await;
        assert_eq!(reply.int("n"), 1, "{reply:?}");
        server.clock.advance(Duration::from_secs(11));
        for command in [begin(2, 1), advance(1, "App1"), cancel(1), recover(true)] {
            let reply = client.run("admin", command).await;
            assert_eq!(reply.int("code"), 13, "{named:?}: {reply:?}");
        }
    }
    assert!(batch(&client.run("other", rawdoc! { "listCollections": 1 }).await).is_empty());
}
