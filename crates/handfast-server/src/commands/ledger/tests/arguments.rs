//! Arguments that are wrong, and are refused by name.

use bson::{RawArrayBuf, RawBson, RawDocumentBuf, rawdoc};

use super::{balance, open_ann, transfer};
use crate::testing::{ReplyFields, TestServer, check, check_refused};

fn entry(entry: RawDocumentBuf) -> RawDocumentBuf {
    rawdoc! { "handfastPostEntry": "tx", "entry": entry }
}

fn with_changes(changes: impl IntoIterator<Item = RawDocumentBuf>) -> RawDocumentBuf {
    entry(rawdoc! { "_id": 1, "changes": RawArrayBuf::from_iter(changes) })
}

/// An entry with a change and its opposite.
fn with_change(change: RawDocumentBuf) -> RawDocumentBuf {
    with_changes([change, rawdoc! { "account": "b", "value": 1, "asset": "EUR" }])
}

/// An entry with metadata.
fn transfer_with(metadata: RawDocumentBuf) -> RawDocumentBuf {
    let changes = [("a", -1), ("b", 1)];
    let changes = changes.map(|(account, value)| rawdoc! { "account": account, "value": value, "asset": "EUR" });
    entry(rawdoc! { "_id": 1, "changes": RawArrayBuf::from_iter(changes), "metadata": metadata })
}

fn hold(hold: RawDocumentBuf) -> RawDocumentBuf {
    rawdoc! { "handfastPostHold": "tx", "hold": hold }
}

fn account(account: RawDocumentBuf) -> RawDocumentBuf {
    rawdoc! { "handfastOpenAccount": "tx", "account": account }
}

#[tokio::test]
async fn wrong_arguments_of_entries_are_refused_by_name() {
    let mut server = TestServer::transactional();
    let mut client = server.connect();
    for (command, code, text) in [
        (rawdoc! { "handfastPostEntry": "tx" }, 40414, "handfastPostEntry.entry"),
        (rawdoc! { "handfastPostEntry": 1, "entry": { "_id": 1, "changes": [] } }, 73, "collection name"),
        (rawdoc! { "handfastPostEntry": "system.views", "entry": { "_id": 1, "changes": [] } }, 73, "Invalid system"),
        (entry(rawdoc! { "changes": [] }), 40414, "handfastPostEntry.entry._id"),
        (entry(rawdoc! { "_id": 1 }), 40414, "handfastPostEntry.entry.changes"),
        (entry(rawdoc! { "_id": 1, "changes": {} }), 14, "handfastPostEntry.entry.changes"),
        (entry(rawdoc! { "_id": 1, "changes": [1] }), 14, "handfastPostEntry.entry.changes.0"),
        (entry(rawdoc! { "_id": 1, "changes": [] }), 2, "from 1 to 100 changes"),
        (entry(rawdoc! { "_id": null, "changes": [{ "account": "a", "value": 1, "asset": "EUR" }] }), 2, "the id null"),
        (entry(rawdoc! { "_id": { "reverses": 1 }, "changes": [] }), 2, "no document"),
        (transfer_with(rawdoc! { "text": "x".repeat(6 << 20) }), 2, "at most 6291456 are allowed"),
        (entry(rawdoc! { "_id": 1, "changes": [], "ts": 1 }), 14, "handfastPostEntry.entry.ts"),
        (entry(rawdoc! { "_id": 1, "changes": [], "meta": {} }), 40415, "handfastPostEntry.entry.meta"),
        (with_change(rawdoc! { "value": 1, "asset": "EUR" }), 40414, "entry.changes.account"),
        (with_change(rawdoc! { "account": "a", "asset": "EUR" }), 40414, "entry.changes.value"),
        (with_change(rawdoc! { "account": "a", "value": 1 }), 40414, "entry.changes.asset"),
        (with_change(rawdoc! { "account": "a", "value": "1", "asset": "EUR" }), 14, "entry.changes.value"),
        (with_change(rawdoc! { "account": "a", "value": -0.5, "asset": "EUR" }), 2, "value' must be an integer"),
        (with_change(rawdoc! { "account": "a", "value": f64::NAN, "asset": "EUR" }), 2, "must be an integer"),
        (with_change(rawdoc! { "account": "a", "value": 1e19, "asset": "EUR" }), 2, "must be an integer"),
        (with_change(rawdoc! { "account": "a", "value": 0, "asset": "EUR" }), 2, "is not 0"),
        (with_change(rawdoc! { "account": "a", "value": -2, "asset": "EUR" }), 2, "add up to -1"),
        (with_change(rawdoc! { "account": "a", "value": i64::MIN, "asset": "EUR" }), 2, "must be within"),
        (with_change(rawdoc! { "account": "a", "value": -1, "asset": "" }), 2, "an asset has a code"),
        (with_change(rawdoc! { "account": "a", "value": -1, "asset": "EUR", "type": "" }), 2, "has a type"),
        (with_change(rawdoc! { "account": "a", "value": -1, "asset": "EUR", "seqId": 1 }), 40415, "changes.seqId"),
        (with_change(rawdoc! { "account": null, "value": -1, "asset": "EUR" }), 2, "the id null"),
        (rawdoc! { "handfastCancelEntry": "tx", "reason": "r" }, 40414, "handfastCancelEntry.entry"),
        (rawdoc! { "handfastCancelEntry": "tx", "entry": { "_id": 1 } }, 40414, "handfastCancelEntry.reason"),
        (rawdoc! { "handfastCancelEntry": "tx", "entry": {}, "reason": "r" }, 40414, "entry._id"),
    ] {
        check_refused(&mut client, command, code, text).await;
    }
}

#[tokio::test]
async fn wrong_arguments_of_holds_and_accounts_are_refused_by_name() {
    let mut server = TestServer::transactional();
    let mut client = server.connect();
    let both = rawdoc! { "_id": "a", "asset": "EUR", "minimum": 0, "sequence": true };
    for (command, code, text) in [
        (rawdoc! { "handfastPostHold": "tx" }, 40414, "handfastPostHold.hold"),
        (hold(rawdoc! { "payer": "a" }), 40414, "handfastPostHold.hold._id"),
        (hold(rawdoc! { "_id": 1, "payer": "a", "value": 1, "asset": "EUR" }), 40414, "hold.payee"),
        (hold(rawdoc! { "_id": 1, "payer": "a", "payee": "b", "value": 1.5, "asset": "EUR" }), 2, "must be an integer"),
        (hold(rawdoc! { "_id": 1, "payer": "a", "payee": "b", "value": 0, "asset": "EUR" }), 2, "must be from 1"),
        (
            hold(rawdoc! { "_id": 1, "payer": "a", "payee": "b", "value": 1, "asset": "EUR", "expiresAt": 1 }),
            14,
            "hold.expiresAt",
        ),
        (
            hold(rawdoc! { "_id": 1, "payer": "a", "payee": "b", "value": 1, "asset": "EUR", "until": 1 }),
            40415,
            "hold.until",
        ),
        (rawdoc! { "handfastCaptureHold": "tx", "value": 1 }, 40414, "handfastCaptureHold.hold"),
        // The amount would be captured in full.
        (rawdoc! { "handfastCaptureHold": "tx", "hold": { "_id": 1, "value": 1 } }, 40415, "hold.value"),
        (rawdoc! { "handfastCaptureHold": "tx", "hold": { "_id": 1 }, "value": 0.5 }, 2, "must be an integer"),
        (rawdoc! { "handfastReleaseHold": "tx", "hold": 1 }, 14, "handfastReleaseHold.hold"),
        (rawdoc! { "handfastOpenAccount": "tx", "account": "ann" }, 14, "handfastOpenAccount.account"),
        (account(rawdoc! { "asset": "EUR" }), 40414, "account._id"),
        (account(rawdoc! { "_id": "a" }), 40414, "account.asset"),
        (account(rawdoc! { "_id": "a", "asset": "EUR", "minimum": 0.5 }), 2, "must be an integer"),
        (account(rawdoc! { "_id": "a", "asset": "EUR", "balance": 1 }), 40415, "account.balance"),
        (account(both), 2, "an account with a sequence has no minimum"),
        (rawdoc! { "handfastBalance": "tx" }, 40414, "handfastBalance.account"),
        (rawdoc! { "handfastBalance": "tx", "account": "a", "at": 1 }, 14, "handfastBalance.at"),
        (rawdoc! { "handfastBalance": "tx", "account": "a", "entry": 1, "seqId": 1 }, 2, "exclude each other"),
        (rawdoc! { "handfastStatement": "tx" }, 40414, "handfastStatement.account"),
        (rawdoc! { "handfastStatement": "tx", "account": "a", "count": 501 }, 2, "count must be from 1 to 500"),
        (rawdoc! { "handfastStatement": "tx", "account": "a", "after": -1 }, 2, "after must be at least 0"),
        (rawdoc! { "handfastStatement": "tx", "account": "a", "before": 0 }, 2, "before must be at least 1"),
        (rawdoc! { "handfastStatement": "tx", "account": "a", "after": 1, "before": 9 }, 2, "exclude each other"),
        (rawdoc! { "handfastReconcileLedger": "tx", "count": 0 }, 2, "count must be from 1 to 1000"),
        (rawdoc! { "handfastReconcileLedger": "tx", "count": -1 }, 51024, "count"),
    ] {
        check_refused(&mut client, command, code, text).await;
    }
}

/// Shells and drivers write integers as numbers of any type.
#[tokio::test]
async fn an_amount_is_an_integer_of_any_type() {
    let mut server = TestServer::transactional();
    let mut client = server.connect();
    let change = |account: &str, value: bson::RawBson| rawdoc! { "account": account, "value": value, "asset": "EUR" };
    let changes = [
        change("a", (-3.0).into()),
        change("b", "1".parse::<bson::Decimal128>().unwrap().into()),
        change("c", 2.into()),
    ];
    let reply = client.run("d", with_changes(changes)).await;
    assert!(reply.flag("posted"), "{reply:?}");
    let reply = client.run("d", transfer("order 7", "a", "b", 1)).await;
    assert!(reply.flag("posted"), "{reply:?}");
}

/// Ids that a filter would take for operators or patterns are compared with like others.
#[tokio::test]
async fn ids_are_no_conditions() {
    let regex = bson::Regex { pattern: bson::raw::cstr!("").into(), options: bson::raw::cstr!("").into() };
    for mut server in TestServer::over_each_engine() {
        let mut client = server.connect();
        open_ann(&mut client).await;
        let placed = rawdoc! { "_id": "h", "payer": "ann", "payee": "b", "value": 10, "asset": "EUR" };
        check(&mut client, hold(placed), rawdoc! { "_id": "h", "posted": true, "holdState": "open" }).await;
        for id in [
            RawBson::Document(rawdoc! { "$gt": "" }),
            RawBson::Document(rawdoc! { "$ne": null }),
            RawBson::RegularExpression(regex.clone()),
        ] {
            let id = || id.clone();
            for (command, code) in [
                (rawdoc! { "handfastCancelEntry": "tx", "entry": { "_id": id() }, "reason": "r" }, 4),
                (rawdoc! { "handfastCaptureHold": "tx", "hold": { "_id": id() } }, 4),
                (rawdoc! { "handfastReleaseHold": "tx", "hold": { "_id": id() } }, 4),
                (with_change(rawdoc! { "account": id(), "value": -1, "asset": "EUR" }), 2),
                (hold(rawdoc! { "_id": 1, "payer": id(), "payee": "b", "value": 1, "asset": "EUR" }), 2),
                (hold(rawdoc! { "_id": 1, "payer": "ann", "payee": id(), "value": 1, "asset": "EUR" }), 2),
                (account(rawdoc! { "_id": id(), "asset": "EUR" }), 2),
            ] {
                check_refused(&mut client, command, code, "").await;
            }
            for balance in [
                rawdoc! { "handfastBalance": "tx", "account": id() },
                rawdoc! { "handfastBalance": "tx", "account": "ann", "entry": id() },
            ] {
                check(&mut client, balance, rawdoc! { "exists": false }).await;
            }
        }
        assert_eq!(balance(&mut client, "ann").await, (100, 90));
    }
}
