//! `handfast twophase`.

use std::sync::Arc;

use anyhow::{Result, ensure};
use bson::{RawDocumentBuf, doc, rawdoc};
use handfast_patterns::two_phase::{PendingFields, Transfer, TwoPhase, TwoPhaseOptions};
use handfast_store::decorator::{Address, Fault, Faulty, Operation, Plan};
use handfast_store::{DocumentStore, Find, Sources, StoreExt};
use serde_json::json;

use super::{Ground, Store, json, namespace, output, report, text};
use crate::support::assert_one_line;

/// Returns a plan in which the process dies when it has applied a transfer to the first account of a collection.
fn dies_after_the_first_of(collection: &str) -> Plan {
    Plan::at_request(Address::first(Operation::Update).of(collection), Fault::CrashAfter)
}

async fn open(store: Arc<dyn DocumentStore>, sources: &Sources) -> Result<TwoPhase> {
    open_with(store, sources, TwoPhaseOptions::new("App1", namespace("accounts")?)).await
}

async fn open_with(store: Arc<dyn DocumentStore>, sources: &Sources, options: TwoPhaseOptions) -> Result<TwoPhase> {
    Ok(TwoPhase::open_with(store, namespace("transactions")?, sources.clone(), options).await?)
}

/// Adds transaction 1, in which A has paid B 100 of 1000; transaction 2, in which the process died when A had paid; and transaction
/// 3, which is not begun.
async fn filled(ground: &Ground) -> Result<()> {
    let store = Store::open(ground).await?;
    for id in ["A", "B"] {
        store.shared.insert_one(&namespace("accounts")?, rawdoc! { "_id": id, "balance": 1000 }).await?;
    }
    let transfers = open(store.shared(), &store.sources).await?;
    for id in 1..=3 {
        transfers.begin(id, Transfer::new("A", "B", 100)).await?;
    }
    let _ = transfers.run(1).await?;
    let dying = Arc::new(Faulty::new(store.shared(), dies_after_the_first_of("accounts")));
    assert!(open(dying, &store.sources).await?.run(2).await.is_err());
    drop(transfers);
    store.close().await
}

async fn balances(ground: &Ground) -> Result<Vec<i64>> {
    let store = Store::open(ground).await?;
    let find = Find { sort: rawdoc! { "_id": 1 }, ..Find::new(namespace("accounts")?, rawdoc! {}) };
    let found = store.shared.find_all(find).await?;
    store.close().await?;
    let balance = |account: &RawDocumentBuf| -> Result<i64> {
        let account = bson::Document::try_from(&**account)?;
        ensure!(account.get_array("pendingTransactions").is_ok_and(Vec::is_empty), "{account}");
        Ok(account.get_i64("balance").or_else(|_| account.get_i32("balance").map(i64::from))?)
    };
    found.iter().map(balance).collect()
}

#[tokio::test]
async fn what_was_left_is_seen_and_brought_to_its_end() -> Result<()> {
    Ground::each_and_front("twophase", async |ground| {
        filled(&ground).await?;
        let status = report(&ground, &["twophase", "status", "--abandoned-after", "0s"])?;
        let count = |state: usize| status["states"][state]["count"].as_u64();
        assert_eq!([count(0), count(1), count(3)], [1, 1, 1].map(Some), "{status}");
        assert_eq!(status["abandoned"], 1);
        let shown = text(&ground, &["twophase", "status", "--abandoned-after", "0s"])?;
        assert!(shown.contains("`twophase recover`") && shown.contains("`twophase run --all`"), "{shown}");
        let (lines, _) = json(&ground, &["twophase", "list"])?;
        let states: Vec<_> = lines.iter().map(|line| (line["_id"].as_i64(), line["state"].as_str())).collect();
        assert_eq!(states, [(Some(2), Some("pending")), (Some(3), Some("initial"))]);
        assert!(text(&ground, &["twophase", "list"])?.contains("100 from A to B"));
        assert!(text(&ground, &["twophase", "show", "2"])?.contains("App1 has been working on it"));
        assert_eq!(report(&ground, &["twophase", "verify"])?["participants"], 1);

        assert_eq!(report(&ground, &["twophase", "recover"])?["done"], 0, "it is younger than half an hour");
        let recovered = text(&ground, &["twophase", "recover", "--abandoned-after", "0s"])?;
        assert_eq!(recovered, "finished: 1 done, 0 canceled\n");
        assert_eq!(report(&ground, &["twophase", "run", "--all"])?["done"], 1);
        assert_eq!(balances(&ground).await?, [700, 1300]);

        let (lines, code) = json(&ground, &["twophase", "cancel", "3", "--reason", "a test"])?;
        assert_eq!((&lines[0]["outcome"], code), (&json!("is applied: `twophase compensate` takes it back"), Some(1)));
        for _ in 0..2 {
            let (lines, code) = json(&ground, &["twophase", "compensate", "3", "--by", "3-back"])?;
            assert_eq!((&lines[0]["outcome"], code), (&json!("done"), Some(0)), "also the second time");
            assert_eq!(balances(&ground).await?, [800, 1200]);
        }
        let purged = report(&ground, &["twophase", "purge", "--older", "0s"])?;
        assert_eq!(purged["done"], 4);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_date_far_ahead_keeps_no_transaction_from_being_recovered() -> Result<()> {
    Ground::each("twophase-ahead", async |ground| {
        filled(&ground).await?;
        let store = Store::open(&ground).await?;
        let ahead = rawdoc! { "$set": { "lastModified": bson::DateTime::from_millis(4_000_000_000_000) } };
        store.shared.update_one(&namespace("transactions")?, rawdoc! { "_id": 2 }, ahead).await?;
        store.close().await?;
        let shown = text(&ground, &["twophase", "status"])?;
        assert!(
            shown.contains("with a date that is further ahead: 1") && shown.contains("`twophase recover`"),
            "{shown}"
        );
        assert!(text(&ground, &["twophase", "list"])?.contains(" ahead "));
        assert_eq!(report(&ground, &["twophase", "recover", "--abandoned-after", "0s"])?["done"], 1);
        assert_eq!(balances(&ground).await?, [800, 1200]);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn an_odd_transaction_does_not_hide_the_others() -> Result<()> {
    Ground::each("twophase-odd", async |ground| {
        filled(&ground).await?;
        let store = Store::open(&ground).await?;
        let odd = rawdoc! { "_id": "odd", "state": "pending", "lastModified": "soon" };
        store.shared.insert_one(&namespace("transactions")?, odd).await?;
        store.close().await?;
        let (lines, code) = json(&ground, &["twophase", "list"])?;
        assert_eq!(
            (lines.iter().map(|line| line["_id"].as_i64()).collect::<Vec<_>>(), code),
            (vec![Some(2), Some(3)], Some(1))
        );
        let odd = "document \"odd\" of db.transactions is not what this pattern writes: it has no date lastModified";
        assert_one_line(&output(&ground, &["twophase", "list"])?, 1, odd);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_transaction_is_rolled_back() -> Result<()> {
    Ground::each("twophase-cancel", async |ground| {
        filled(&ground).await?;
        let (lines, code) = json(&ground, &["twophase", "cancel", "2", "3", "7", "--reason", "a test"])?;
        let outcomes: Vec<_> = lines.iter().map(|line| line["outcome"].as_str().unwrap_or_default()).collect();
        assert_eq!((outcomes, code), (vec!["canceled", "canceled", "is not there"], Some(1)));
        // No worker reads a transaction whose state is unknown.
        let store = Store::open(&ground).await?;
        store.shared.insert_one(&namespace("transactions")?, rawdoc! { "_id": 9, "state": "weird" }).await?;
        store.close().await?;
        let (lines, code) = json(&ground, &["twophase", "verify"])?;
        let finding = &lines[0]["findings"][0];
        assert_eq!((code, &finding["kind"], &finding["transaction"]), (Some(3), &json!("state"), &json!(9)));
        assert_eq!(balances(&ground).await?, [900, 1100]);
        let listed = text(&ground, &["twophase", "list", "--state", "canceled"])?;
        assert!(listed.contains("a test"), "{listed}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn an_update_of_a_transaction_that_is_over_is_exit_code_3_until_it_is_taken_back() -> Result<()> {
    Ground::each("twophase-verify", async |ground| {
        filled(&ground).await?;
        let store = Store::open(&ground).await?;
        // A copy of the request that applied transaction 1 arrives after its participant has forgotten the transaction.
        let others: Vec<_> = (1000..1100).collect();
        let late = RawDocumentBuf::try_from(&doc! {
            "$inc": { "balance": 100 }, "$push": { "pendingTransactions": 1 }, "$set": { "finishedTransactions": others },
        })?;
        store.shared.update_one(&namespace("accounts")?, rawdoc! { "_id": "B" }, late).await?;
        store.close().await?;
        let (lines, code) = json(&ground, &["twophase", "verify"])?;
        assert_eq!((code, &lines[0]["findings"][0]["kind"]), (Some(3), &json!("over")), "{lines:?}");
        report(&ground, &["twophase", "recover", "--abandoned-after", "0s"])?;
        assert_eq!(report(&ground, &["twophase", "verify"])?["clean"], true);
        assert_eq!(balances(&ground).await?, [800, 1200]);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn accounts_that_are_not_there_are_told() -> Result<()> {
    Ground::each("twophase-refused", async |ground| {
        filled(&ground).await?;
        let refused = output(&ground, &["twophase", "status", "--accounts", "acounts"])?;
        assert_one_line(
            &refused,
            1,
            "--accounts: there is no collection 'acounts' in db; there are accounts, accounts.settings, transactions",
        );
        let refused = output(&ground, &["twophase", "status", "--collection", "accounts"])?;
        assert_one_line(&refused, 1, "db.accounts holds no two-phase transactions");
        Ok(())
    })
    .await
}

/// Adds transfer 1, which is done, and transfer 2, in which the process died when A had paid. The accounts have another field for the
/// balance, and fields for pending amounts.
async fn filled_with_pending(ground: &Ground) -> Result<()> {
    let store = Store::open(ground).await?;
    for id in ["A", "B"] {
        store.shared.insert_one(&namespace("wallets")?, rawdoc! { "_id": id, "cents": 1000 }).await?;
    }
    let mut options = TwoPhaseOptions::new("App1", namespace("wallets")?);
    options.accounts.balance = "cents".to_owned();
    options.accounts.pending = Some(PendingFields::default());
    let transfers = open_with(store.shared(), &store.sources, options.clone()).await?;
    for id in 1..=2 {
        transfers.begin(id, Transfer::new("A", "B", 100)).await?;
    }
    let _ = transfers.run(1).await?;
    let dying = Arc::new(Faulty::new(store.shared(), dies_after_the_first_of("wallets")));
    assert!(open_with(dying, &store.sources, options).await?.run(2).await.is_err());
    drop(transfers);
    store.close().await
}

/// Returns the balance, the pending credits and the pending debits of A and B.
async fn wallets(ground: &Ground) -> Result<Vec<[i64; 3]>> {
    let store = Store::open(ground).await?;
    let find = Find { sort: rawdoc! { "_id": 1 }, ..Find::new(namespace("wallets")?, rawdoc! {}) };
    let found = store.shared.find_all(find).await?;
    store.close().await?;
    let line = |account: &RawDocumentBuf| -> Result<[i64; 3]> {
        let account = bson::Document::try_from(&**account)?;
        let field = |name: &str| account.get_i64(name).unwrap_or_default();
        Ok(["cents", "pendingCredits", "pendingDebits"].map(field))
    };
    found.iter().map(line).collect()
}

#[tokio::test]
async fn a_recovery_goes_by_the_settings_of_the_application_and_by_no_others() -> Result<()> {
    Ground::each("twophase-settings", async |ground| {
        filled_with_pending(&ground).await?;
        let shown = report(&ground, &["twophase", "settings"])?;
        assert_eq!(shown["settings"]["accounts"]["balance"], "cents", "{shown}");
        for (flags, said) in [
            (&["--balance-field", "balance"][..], "accounts.balance is recorded as \"cents\", given as \"balance\""),
            (&["--finished-max", "5"], "finishedMax is recorded as 100, given as 5"),
            (&["--pending-credits", "in", "--pending-debits", "out"], "accounts.pending.credits is recorded as"),
        ] {
            for command in ["recover", "verify"] {
                let refused = output(&ground, &[&["twophase", command][..], flags].concat())?;
                assert_one_line(&refused, 2, "db.transactions.settings records other settings: ");
                assert!(String::from_utf8_lossy(&refused.stderr).contains(said), "{refused:?}");
            }
        }
        assert_eq!(wallets(&ground).await?, [[800, 0, 100], [1100, 0, 0]], "nothing was done");
        let repeated = ["twophase", "verify", "--accounts", "wallets", "--balance-field", "cents"];
        assert_eq!(report(&ground, &repeated)?["clean"], true, "what is recorded may be said again");

        assert_eq!(report(&ground, &["twophase", "recover", "--abandoned-after", "0s"])?["done"], 1);
        assert_eq!(wallets(&ground).await?, [[800, 0, 0], [1200, 0, 0]]);
        assert_eq!(report(&ground, &["twophase", "verify"])?["clean"], true);
        Ok(())
    })
    .await
}

/// The transactions belong to another program, or to a version without records of settings.
#[tokio::test]
async fn without_recorded_settings_nothing_is_guessed() -> Result<()> {
    Ground::each("twophase-unrecorded", async |ground| {
        filled_with_pending(&ground).await?;
        let store = Store::open(&ground).await?;
        store.shared.delete_one(&namespace("transactions.settings")?, rawdoc! { "_id": "two-phase" }).await?;
        store.close().await?;
        // A command that touches no account works, and does not record settings that were not given.
        text(&ground, &["twophase", "status"])?;
        text(&ground, &["twophase", "purge", "--older", "1h"])?;
        let refused = "the settings of db.transactions are not recorded";
        for command in
            [&["recover"][..], &["verify"], &["run", "--all"], &["run", "2"], &["cancel", "2", "--reason", "no"]]
        {
            assert_one_line(&output(&ground, &[&["twophase"], command].concat())?, 3, refused);
        }
        assert_eq!(wallets(&ground).await?, [[800, 0, 100], [1100, 0, 0]], "nothing was done");

        let said = ["--accounts", "wallets", "--balance-field", "cents"];
        let pending = ["--pending-credits", "pendingCredits", "--pending-debits", "pendingDebits"];
        text(&ground, &[&["twophase", "settings", "--set"][..], &said, &pending].concat())?;
        let other = output(&ground, &["twophase", "settings", "--set", "--balance-field", "balance"])?;
        assert_one_line(&other, 1, "another field of the balance");
        let other = output(&ground, &["twophase", "settings", "--set", "--finished-max", "50"])?;
        assert_one_line(&other, 1, "1 transactions of db.transactions are under way by the recorded settings");
        assert_eq!(report(&ground, &["twophase", "recover", "--abandoned-after", "0s"])?["done"], 1);
        assert_eq!(wallets(&ground).await?, [[800, 0, 0], [1200, 0, 0]]);
        report(&ground, &["twophase", "settings", "--set", "--finished-max", "50"])?;
        assert_eq!(report(&ground, &["twophase", "settings"])?["earlier"][0]["settings"]["finishedMax"], 100);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn credits_that_no_transaction_explains_are_exit_code_3_and_no_command_is_recommended() -> Result<()> {
    Ground::each("twophase-pending", async |ground| {
        filled_with_pending(&ground).await?;
        report(&ground, &["twophase", "recover", "--abandoned-after", "0s"])?;
        let store = Store::open(&ground).await?;
        let left = rawdoc! { "$set": { "pendingCredits": 100_i64 } };
        store.shared.update_one(&namespace("wallets")?, rawdoc! { "_id": "B" }, left).await?;
        store.close().await?;
        let (lines, code) = json(&ground, &["twophase", "verify"])?;
        let finding = &lines[0]["findings"][0];
        assert_eq!(
            (code, &finding["kind"], &finding["recover"]),
            (Some(3), &json!("pending"), &json!(false)),
            "{lines:?}"
        );
        let shown = String::from_utf8(output(&ground, &["twophase", "verify"])?.stdout)?;
        assert!(shown.contains("no command can repair the others") && !shown.contains("next:"), "{shown}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn transfers_that_are_impossible_are_not_said_to_be_done() -> Result<()> {
    Ground::each("twophase-impossible", async |ground| {
        filled(&ground).await?;
        let store = Store::open(&ground).await?;
        let transfers = open(store.shared(), &store.sources).await?;
        transfers.begin(4, Transfer::new("A", "B", 100_000)).await?;
        transfers.begin(5, Transfer::new("A", "nobody", 1)).await?;
        drop(transfers);
        store.close().await?;
        let (lines, code) = json(&ground, &["twophase", "run", "--all"])?;
        let report = &lines[0];
        assert_eq!((code, &report["done"], &report["canceled"]), (Some(1), &json!(1), &json!(2)), "{report}");
        let mut why: Vec<_> = report["not_done"].as_array().into_iter().flatten().map(ToString::to_string).collect();
        why.sort();
        assert!(why[0].contains("\"id\":4") && why[0].contains("does not allow it"), "{why:?}");
        assert!(why[1].contains("\"id\":5") && why[1].contains("does not exist"), "{why:?}");
        assert_eq!(text(&ground, &["twophase", "run", "--all"])?, "done: 0 transactions\n");
        Ok(())
    })
    .await
}

/// B has lost the update of a transaction that is applied: the evidence of it stays, and every command that reads it reports it.
#[tokio::test]
async fn an_applied_transaction_that_a_participant_lacks_is_left_and_named() -> Result<()> {
    Ground::each("twophase-lacking", async |ground| {
        filled(&ground).await?;
        let store = Store::open(&ground).await?;
        let applied = rawdoc! { "$set": { "state": "applied" } };
        store.shared.update_one(&namespace("transactions")?, rawdoc! { "_id": 2 }, applied).await?;
        store.close().await?;
        for _ in 0..2 {
            let recovered = output(&ground, &["twophase", "recover", "--abandoned-after", "0s"])?;
            let said = String::from_utf8_lossy(&recovered.stderr).into_owned();
            assert_eq!(recovered.status.code(), Some(3), "{said}");
            assert!(
                said.contains("\"B\" is not there, or lacks the update of transaction 2, which is applied"),
                "{said}"
            );
            let (lines, code) = json(&ground, &["twophase", "verify"])?;
            let finding = &lines[0]["findings"][0];
            assert_eq!((code, &finding["kind"], &finding["participant"]), (Some(3), &json!("lacking"), &json!("B")));
        }
        // Other damage does not hide this one.
        let store = Store::open(&ground).await?;
        let now = store.sources.clock.now();
        let odd = rawdoc! { "_id": 9, "state": "pending", "source": "A", "lastModified": now };
        store.shared.insert_one(&namespace("transactions")?, odd).await?;
        store.shared.insert_one(&namespace("accounts")?, rawdoc! { "_id": "C", "balance": "lots" }).await?;
        store.close().await?;
        let (lines, code) = json(&ground, &["twophase", "verify"])?;
        let kinds: Vec<_> =
            lines[0]["findings"].as_array().into_iter().flatten().map(|one| one["kind"].clone()).collect();
        assert_eq!((code, kinds), (Some(3), vec![json!("lacking"), json!("unreadable"), json!("type")]), "{lines:?}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_transaction_is_taken_back_once() -> Result<()> {
    Ground::each("twophase-once", async |ground| {
        filled(&ground).await?;
        report(&ground, &["twophase", "recover", "--abandoned-after", "0s"])?;
        text(&ground, &["twophase", "compensate", "1", "--by", "1-back"])?;
        let again = output(&ground, &["twophase", "compensate", "1", "--by", "1-again"])?;
        assert_one_line(&again, 1, "transaction 1 is taken back by transaction \"1-back\" already");
        assert!(text(&ground, &["twophase", "show", "1"])?.contains("transaction 1-back was begun to reverse it"));
        assert_eq!(balances(&ground).await?, [900, 1100]);
        Ok(())
    })
    .await
}
