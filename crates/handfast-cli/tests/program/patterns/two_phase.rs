//! `handfast twophase`.

use bson::{RawDocumentBuf, doc, rawdoc};
use handfast_patterns::two_phase::{Transfer, TwoPhase, TwoPhaseOptions};
use handfast_store::decorator::{Fault, Faulty, Plan};
use handfast_store::{Find, StoreExt};
use serde_json::json;

use super::*;

/// The operation that applies a transfer to the first account: before it the settings are read, the indexes created, and it is claimed.
const APPLY: u64 = 5;

async fn open(store: Arc<dyn DocumentStore>, sources: &Sources) -> Result<TwoPhase> {
    let options = TwoPhaseOptions::new("App1", place("accounts")?);
    Ok(TwoPhase::open(store, place("transactions")?, sources.clone(), options).await?)
}

/// A has paid B 100 of 1000, in transaction 1; in 2 the process died when A had paid; 3 is not begun.
async fn filled(ground: &Ground) -> Result<()> {
    let store = Store::open(ground).await?;
    for id in ["A", "B"] {
        store.shared.insert_one(&place("accounts")?, rawdoc! { "_id": id, "balance": 1000 }).await?;
    }
    let transfers = open(store.shared(), &store.sources).await?;
    for id in 1..=3 {
        transfers.begin(id, Transfer::new("A", "B", 100)).await?;
    }
    let _ = transfers.run(1).await?;
    let dying = Arc::new(Faulty::new(store.shared(), Plan::at(APPLY, Fault::CrashAfter)));
    assert!(open(dying, &store.sources).await?.run(2).await.is_err());
    drop(transfers);
    store.close().await
}

async fn balances(ground: &Ground) -> Result<Vec<i64>> {
    let store = Store::open(ground).await?;
    let find = Find { sort: rawdoc! { "_id": 1 }, ..Find::new(place("accounts")?, rawdoc! {}) };
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
    Ground::each("twophase", async |ground| {
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
        assert!(text(&ground, &["twophase", "show", "2"])?.contains("App1 works on it"));
        assert_eq!(report(&ground, &["twophase", "verify"])?["participants"], 1);

        assert_eq!(report(&ground, &["twophase", "recover"])?["done"], 0, "it is younger than half an hour");
        assert_eq!(report(&ground, &["twophase", "recover", "--abandoned-after", "0s"])?["done"], 1);
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
async fn a_transaction_is_rolled_back() -> Result<()> {
    Ground::each("twophase-cancel", async |ground| {
        filled(&ground).await?;
        let (lines, code) = json(&ground, &["twophase", "cancel", "2", "3", "7", "--reason", "a test"])?;
        let outcomes: Vec<_> = lines.iter().map(|line| line["outcome"].as_str().unwrap_or_default()).collect();
        assert_eq!((outcomes, code), (vec!["canceled", "canceled", "is not there"], Some(1)));
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
        // A copy of the request that applied transaction 1, after its participant has forgotten it.
        let late = RawDocumentBuf::try_from(&doc! {
            "$inc": { "balance": 100 }, "$push": { "pendingTransactions": 1 }, "$set": { "finishedTransactions": [] },
        })?;
        store.shared.update_one(&place("accounts")?, rawdoc! { "_id": "B" }, late).await?;
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
            "--accounts: there is no collection 'acounts' in db; there are accounts, transactions",
        );
        let refused = output(&ground, &["twophase", "status", "--collection", "accounts"])?;
        assert_one_line(&refused, 1, "db.accounts holds no two-phase transactions");
        Ok(())
    })
    .await
}
