//! `handfast ledger`.

use bson::{RawDocumentBuf, doc, rawdoc};
use handfast_patterns::ledger::{Ledger, NewAccount, NewEntry};
use handfast_store::StoreExt;
use serde_json::json;

use super::*;

async fn ledger(store: &Store) -> Result<Ledger> {
    Ok(Ledger::open(store.shared(), place("tx")?, store.sources.clone(), Default::default()).await?)
}

/// Cash has paid ann 100 cent, which is committed, and ann has paid bob 30, which is not.
async fn filled(ground: &Ground) -> Result<()> {
    let store = Store::open(ground).await?;
    let ledger = ledger(&store).await?;
    ledger.open_account(NewAccount::new("ann", "EUR").with_minimum(0)).await?;
    let _ = ledger.post(NewEntry::transfer("cash", "ann", 100, "EUR").with_id("wages")).await?;
    ledger.commit(10).await?;
    let _ = ledger.post(NewEntry::transfer("ann", "bob", 30, "EUR").with_id(7)).await?;
    drop(ledger);
    store.close().await
}

/// Changes a document behind the ledger's back.
async fn tamper(ground: &Ground, collection: &str, id: &str, set: bson::Document) -> Result<()> {
    let store = Store::open(ground).await?;
    let set = RawDocumentBuf::try_from(&doc! { "$set": set })?;
    let outcome = store.shared.update_one(&place(collection)?, rawdoc! { "_id": id }, set).await?;
    ensure!(outcome.modified == 1, "nothing was changed");
    store.close().await
}

#[tokio::test]
async fn entries_are_seen_and_committed() -> Result<()> {
    Ground::each("ledger", async |ground| {
        filled(&ground).await?;
        let status = report(&ground, &["ledger", "status"])?;
        let counts = ["entries", "uncommitted", "accounts", "expiring"].map(|count| status[count].as_u64());
        assert_eq!(counts, [2, 1, 3, 0].map(Some), "{status}");
        assert!(status["oldest_uncommitted_seconds"].as_f64() > Some(0.0), "{status}");
        assert!(text(&ground, &["ledger", "status"])?.contains("next: "));
        let listed = text(&ground, &["ledger", "list"])?;
        assert!(listed.contains("ann -30 EUR (place 2), bob +30 EUR (place 1)"), "{listed}");
        let shown = text(&ground, &["ledger", "show", "7"])?;
        assert!(shown.contains("\"proc\": \"UNCOMMITTED\"") && shown.contains("not committed for"), "{shown}");

        let balance = report(&ground, &["ledger", "balance", "ann"])?;
        assert_eq!((&balance["balance"], &balance["pending"]), (&json!(70), &json!(-30)));
        let committed = report(&ground, &["ledger", "reconcile"])?;
        assert_eq!((&committed["done"], &committed["failed"]), (&json!(1), &json!(0)));
        let balance = report(&ground, &["ledger", "balance", "ann"])?;
        assert_eq!((&balance["balance"], &balance["pending"]), (&json!(70), &json!(0)));
        assert_eq!(text(&ground, &["ledger", "list"])?, "none\n");

        let (lines, _) = json(&ground, &["ledger", "statement", "ann", "--limit", "1"])?;
        assert_eq!((&lines[0]["entry"], &lines[0]["balance"]), (&json!(7), &json!(70)));
        let page = output(&ground, &["ledger", "statement", "ann", "--limit", "1"])?;
        assert!(String::from_utf8(page.stderr)?.contains("earlier ones: --before 2"));
        let (lines, _) = json(&ground, &["ledger", "statement", "ann", "--before", "2"])?;
        assert_eq!(lines[0]["entry"], "wages");
        let (lines, _) = json(&ground, &["ledger", "accounts"])?;
        assert_eq!(lines.len(), 3);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn entries_are_taken_back() -> Result<()> {
    Ground::each("ledger-cancel", async |ground| {
        filled(&ground).await?;
        let because = ["--reason", "a test"];
        let (lines, code) = json(&ground, &[&["ledger", "cancel", "7", "wages", "nosuch"], &because[..]].concat())?;
        let outcomes: Vec<_> = lines.iter().map(|line| line["outcome"].as_str().unwrap_or_default()).collect();
        assert_eq!(code, Some(1), "{outcomes:?}");
        assert_eq!(outcomes[0], "counts for nothing");
        assert_eq!(outcomes[1], "was committed: taken back by entry {\"reverses\":\"wages\"}");
        assert_eq!(outcomes[2], "is not there");
        assert_eq!(report(&ground, &["ledger", "balance", "ann"])?["balance"], 0);
        let shown = text(&ground, &["ledger", "show", "{\"reverses\": \"wages\"}"])?;
        assert!(shown.contains("\"reason\": \"a test\""), "{shown}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn books_that_were_tampered_with_are_exit_code_3_until_they_are_rebuilt() -> Result<()> {
    Ground::each("ledger-verify", async |ground| {
        filled(&ground).await?;
        let verified = report(&ground, &["ledger", "verify"])?;
        assert_eq!(
            (&verified["clean"], &verified["entries"], &verified["accounts"]),
            (&json!(true), &json!(2), &json!(3))
        );
        assert_eq!(
            verified["totals"],
            json!([{ "asset": "EUR", "debits": -130, "credits": 130, "held": 0, "balanced": true }])
        );
        assert!(text(&ground, &["ledger", "verify", "bob"])?.ends_with("everything is as it must be\n"));

        tamper(&ground, "account", "ann", doc! { "cache.balance": 1_000_000_i64 }).await?;
        let (lines, code) = json(&ground, &["ledger", "verify"])?;
        assert_eq!((code, &lines[0]["findings"][0]["kind"]), (Some(3), &json!("cache")), "{lines:?}");
        let found = output(&ground, &["ledger", "verify", "ann"])?;
        assert_eq!(found.status.code(), Some(3));
        assert!(String::from_utf8(found.stdout)?.contains("next: `ledger rebuild`"));
        assert_eq!(output(&ground, &["ledger", "verify", "bob"])?.status.code(), Some(0), "bob's are in order");
        let rebuilt = report(&ground, &["ledger", "rebuild"])?;
        assert_eq!((&rebuilt["caches"], &rebuilt["balances"]), (&json!(1), &json!(0)));
        assert_eq!(report(&ground, &["ledger", "verify"])?["clean"], true);

        // No rebuild brings back what an entry said.
        tamper(&ground, "tx", "wages", doc! { "changes.1.value": 999_i64 }).await?;
        report(&ground, &["ledger", "rebuild"])?;
        let (lines, code) = json(&ground, &["ledger", "verify"])?;
        assert_eq!((code, &lines[0]["clean"]), (Some(3), &json!(false)));
        assert!(lines[0]["findings"].to_string().contains("unbalanced"), "{lines:?}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn entries_are_exported() -> Result<()> {
    Ground::each("ledger-export", async |ground| {
        filled(&ground).await?;
        let lines = text(&ground, &["ledger", "export"])?;
        assert_eq!(lines.lines().count(), 2);
        assert!(
            lines.lines().all(|line| serde_json::from_str::<Value>(line).is_ok_and(|line| line["proc"].is_string()))
        );
        let csv = ["ledger", "export", "--format", "csv", "--to", "entries.csv"];
        assert!(text(&ground, &csv)?.starts_with("wrote "));
        assert_eq!(std::fs::read_to_string(ground.scratch.path("entries.csv"))?.lines().count(), 1 + 4);
        assert_one_line(&output(&ground, &csv)?, 1, "--to: cannot write entries.csv");
        Ok(())
    })
    .await
}
