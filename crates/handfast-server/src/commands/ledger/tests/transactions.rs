//! The steps in transactions: an entry is there if and only if its transaction commits, and no transaction makes its effects again.

use bson::{RawDocumentBuf, rawdoc};

use super::{balance, cancel, check_too_little, open_ann, posted, reconcile, transfer};
use crate::testing::{ReplyFields, TestClient, TestServer, check, end, in_transaction, labels};

/// Begins a transaction that inserts an order, and runs a command in it; returns its reply.
async fn order_and(client: &mut TestClient, number: i64, command: RawDocumentBuf) -> RawDocumentBuf {
    client.run("d", in_transaction(rawdoc! { "insert": "orders", "documents": [{}] }, number, true)).await;
    client.run("d", in_transaction(command, number, false)).await
}

async fn orders(client: &mut TestClient) -> i32 {
    client.run("d", rawdoc! { "count": "orders" }).await.int("n")
}

#[tokio::test]
async fn an_entry_exists_if_and_only_if_its_transaction_commits() {
    for mut server in TestServer::over_each_engine() {
        let (mut client, mut other) = (server.connect(), server.connect());
        open_ann(&mut client).await;
        for (number, end_command, expected) in [(1, "abortTransaction", 0), (2, "commitTransaction", 1)] {
            let reply = order_and(&mut client, number, transfer("order 7", "ann", "bob", 30)).await;
            assert!(reply.flag("posted"), "{reply:?}");
            let within = rawdoc! { "handfastBalance": "tx", "account": "ann" };
            let reply = client.run("d", in_transaction(within, number, false)).await;
            assert_eq!(reply.long("balance"), 70, "{reply:?}");
            assert_eq!(balance(&mut other, "ann").await, (100, 100), "the transaction is open");
            assert_eq!(end(&mut client, end_command, number).await.double("ok"), 1.0);
            assert_eq!(orders(&mut other).await, expected);
            assert_eq!(balance(&mut other, "ann").await.0, 100 - 30 * i64::from(expected));
        }
    }
}

#[tokio::test]
async fn the_first_entry_of_a_ledger_can_be_posted_in_a_transaction() {
    for mut server in TestServer::over_each_engine() {
        let mut client = server.connect();
        let mut number = 0;
        // The ledger's indexes are created beside the transaction, which may then have to be begun again, as drivers do.
        loop {
            number += 1;
            assert!(number < 10, "never posted");
            let mut reply = order_and(&mut client, number, transfer("order 7", "ann", "bob", 30)).await;
            if reply.double("ok") == 1.0 {
                reply = end(&mut client, "commitTransaction", number).await;
            }
            if reply.double("ok") == 1.0 {
                break;
            }
            assert_eq!(labels(&reply), ["TransientTransactionError"], "{reply:?}");
        }
        assert_eq!((balance(&mut client, "bob").await, orders(&mut client).await), ((30, 30), 1));
    }
}

#[tokio::test]
async fn an_entry_that_takes_too_much_aborts_its_transaction() {
    for mut server in TestServer::over_each_engine() {
        let mut client = server.connect();
        open_ann(&mut client).await;
        let reply = order_and(&mut client, 1, transfer("order 7", "ann", "bob", 101)).await;
        check_too_little(&reply);
        assert_eq!(end(&mut client, "commitTransaction", 1).await.int("code"), 251);
        assert_eq!((balance(&mut client, "ann").await, orders(&mut client).await), ((100, 100), 0));
    }
}

/// A driver does not know that its transaction was committed, and runs it again.
#[tokio::test]
async fn a_step_that_an_earlier_transaction_has_made_aborts_the_transaction() {
    for mut server in TestServer::over_each_engine() {
        let mut client = server.connect();
        open_ann(&mut client).await;
        let hold = |id: &str| rawdoc! { "handfastPostHold": "tx", "hold": { "_id": id, "payer": "ann", "payee": "bob", "value": 10, "asset": "EUR" } };
        let of_hold = |name: &str, id: &str| {
            let mut command = RawDocumentBuf::new();
            command.append(bson::raw::CString::try_from(name).unwrap(), "tx");
            command.append(bson::raw::cstr!("hold"), rawdoc! { "_id": id });
            command
        };
        for id in ["order 1", "order 2"] {
            check(&mut client, transfer(id, "ann", "bob", 1), posted(id, true)).await;
        }
        let steps = [
            transfer("order 7", "ann", "bob", 30),
            hold("hold 1"),
            hold("hold 2"),
            of_hold("handfastCaptureHold", "hold 1"),
            of_hold("handfastReleaseHold", "hold 2"),
            cancel("order 1"),
        ];
        let mut number = 0;
        for step in &steps {
            for code in [0, 256] {
                number += 1;
                let reply = order_and(&mut client, number, step.clone()).await;
                assert_eq!(reply.get_i32("code").unwrap_or(0), code, "{step:?}: {reply:?}");
                let reply = end(&mut client, "commitTransaction", number).await;
                assert_eq!(reply.double("ok"), f64::from(u8::from(code == 0)), "{step:?}: {reply:?}");
            }
        }
        while reconcile(&mut client).await.0 > 0 {}
        for code in [0, 256] {
            number += 1;
            let reply = order_and(&mut client, number, cancel("order 2")).await;
            assert_eq!(reply.get_i32("code").unwrap_or(0), code, "a reversal: {reply:?}");
            end(&mut client, "commitTransaction", number).await;
        }
        assert_eq!(orders(&mut client).await, i32::try_from(steps.len()).unwrap() + 1);
        assert_eq!(balance(&mut client, "ann").await, (60, 60));
    }
}

#[tokio::test]
async fn a_transaction_can_send_its_own_step_twice() {
    for mut server in TestServer::over_each_engine() {
        let mut client = server.connect();
        open_ann(&mut client).await;
        for (first, number) in [(true, 1), (false, 1)] {
            let command = in_transaction(transfer("order 7", "ann", "bob", 30), number, first);
            let reply = client.run("d", command).await;
            assert_eq!((reply.double("ok"), reply.flag("posted")), (1.0, first), "{reply:?}");
        }
        assert_eq!(end(&mut client, "commitTransaction", 1).await.double("ok"), 1.0);
        assert_eq!(balance(&mut client, "ann").await, (70, 70));
    }
}

#[tokio::test]
async fn a_transaction_that_loses_a_place_begins_again() {
    for mut server in TestServer::over_each_engine() {
        let (mut client, mut other) = (server.connect(), server.connect());
        open_ann(&mut client).await;
        client.run("d", in_transaction(rawdoc! { "insert": "orders", "documents": [{}] }, 1, true)).await;
        check(&mut other, transfer("order 8", "ann", "bob", 80), posted("order 8", true)).await;
        let mut reply = client.run("d", in_transaction(transfer("order 7", "ann", "bob", 30), 1, false)).await;
        if reply.double("ok") == 1.0 {
            reply = end(&mut client, "commitTransaction", 1).await;
        }
        let transient = vec!["TransientTransactionError".to_owned()];
        assert_eq!((reply.int("code"), labels(&reply)), (112, transient), "{reply:?}");
        // With its newer snapshot it sees that too little is left.
        check_too_little(&order_and(&mut client, 2, transfer("order 7", "ann", "bob", 30)).await);
        assert_eq!(balance(&mut client, "ann").await, (20, 20));
    }
}

#[tokio::test]
async fn many_entries_are_made_final_outside_of_transactions() {
    let mut server = TestServer::transactional();
    let mut client = server.connect();
    let reply = order_and(&mut client, 1, rawdoc! { "handfastReconcileLedger": "tx" }).await;
    assert_eq!(reply.int("code"), 263, "{reply:?}");
}
