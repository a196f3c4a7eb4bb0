//! `handfast ledger`.

use anyhow::{Context as _, Result, ensure};
use bson::{RawDocumentBuf, doc, rawdoc};
use handfast_patterns::ledger::{
    Authorisation, Capture, Change, Ledger, LedgerFields, LedgerOptions, NewAccount, NewEntry,
};
use handfast_store::StoreExt;
use serde_json::{Value, json};

use super::{Ground, Store, json, namespace, output, report, text};
use crate::support::assert_one_line;

async fn ledger(store: &Store) -> Result<Ledger> {
    Ok(Ledger::open_with(store.shared(), namespace("tx")?, store.sources.clone(), Default::default()).await?)
}

/// Posts 100 cent from cash to ann, committed, and 30 from ann to bob, not committed.
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

/// Changes a document without the ledger.
async fn tamper(ground: &Ground, collection: &str, id: &str, set: bson::Document) -> Result<()> {
    let store = Store::open(ground).await?;
    let set = RawDocumentBuf::try_from(&doc! { "$set": set })?;
    let outcome = store.shared.update_one(&namespace(collection)?, rawdoc! { "_id": id }, set).await?;
    ensure!(outcome.modified == 1, "nothing was changed");
    store.close().await
}

#[tokio::test]
async fn entries_are_seen_and_committed() -> Result<()> {
    Ground::each_and_front("ledger", async |ground| {
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
async fn holds_are_listed_with_their_states() -> Result<()> {
    Ground::each("ledger-holds", async |ground| {
        let store = Store::open(&ground).await?;
        let ledger = ledger(&store).await?;
        for (hold, payer) in [("a", "ann"), ("b", "ann"), ("c", "bob"), ("d", "ann")] {
            let _ = ledger.authorise(Authorisation::new(payer, "shop", 5, "EUR").with_id(hold)).await?;
        }
        let _ = ledger.capture("b", Capture::Part(2)).await?;
        let _ = ledger.release("d").await?;
        drop(ledger);
        store.close().await?;
        let holds = |further: &[&str]| -> Result<Vec<String>> {
            let (lines, code) = json(&ground, &[&["ledger", "holds"], further].concat())?;
            ensure!(code == Some(0), "{lines:?}");
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            Ok(lines.iter().map(|line| format!("{} {}", text(&line["_id"]), text(&line["holdState"]))).collect())
        };
        assert_eq!(holds(&[])?, ["a open", "b captured", "c open", "d released"]);
        assert_eq!(holds(&["--state", "open"])?, ["a open", "c open"]);
        assert_eq!(holds(&["--state", "captured", "--state", "released"])?, ["b captured", "d released"]);
        assert_eq!(holds(&["--account", "bob"])?, ["c open"]);
        assert_eq!(holds(&["--limit", "2"])?, ["a open", "b captured"]);
        assert_eq!(holds(&["--limit", "2", "--after", "b"])?, ["c open", "d released"]);
        let page = output(&ground, &["ledger", "holds", "--limit", "2"])?;
        assert!(String::from_utf8(page.stderr)?.contains("further ones: --after 'b'"));
        let (lines, _) = json(&ground, &["ledger", "holds", "--account", "bob"])?;
        let parts = (&lines[0]["payer"], &lines[0]["payee"], &lines[0]["value"], &lines[0]["asset"]);
        assert_eq!(parts, (&json!("bob"), &json!("shop"), &json!(5), &json!("EUR")));
        Ok(())
    })
    .await
}

#[tokio::test]
async fn an_entry_is_posted_from_the_command_line_once() -> Result<()> {
    Ground::each_and_front("ledger-post", async |ground| {
        filled(&ground).await?;
        let post = |changes: &[&str], id: &str| {
            let flags = ["--asset", "EUR", "--id", id, "--metadata", r#"{"order": 7}"#];
            output(&ground, &[&["ledger", "post", "--json"], changes, &flags].concat())
        };
        for posted in [true, false] {
            let output = post(&["ann=-50", "bob=45", "fees=5"], "order-7")?;
            ensure!(output.status.success(), "{output:?}");
            let report: Value = serde_json::from_slice(&output.stdout)?;
            assert_eq!((&report["posted"], &report["entry"]["metadata"]), (&json!(posted), &json!({ "order": 7 })));
        }
        assert_one_line(&post(&["ann=-21", "bob=21"], "order-8")?, 1, "not posted: account \"ann\" has 20 available");
        assert_one_line(&post(&["ann=-1", "bob=2"], "order-8")?, 1, "EUR");
        let output = post(&["ann"], "order-8")?;
        ensure!(String::from_utf8_lossy(&output.stderr).contains("a change looks like ann=-30"), "{output:?}");
        let (totals, code) = json(&ground, &["ledger", "totals"])?;
        assert_eq!(totals, [json!({ "asset": "EUR", "debits": -180, "credits": 180, "held": 0 })]);
        assert_eq!(code, Some(0));

        let early = output_of_post(&ground, "2001-01-01T00:00:00Z")?;
        ensure!(early.status.success(), "{early:?}");
        let at = |at: &str| report(&ground, &["ledger", "balance", "bob", "--at", at]);
        assert_eq!(at("2000-12-31T23:59:59Z")?["balance"], 0);
        assert_eq!(at("2001-01-01T00:00:00Z")?["balance"], 1);
        assert_eq!(at("2100-01-01T00:00:00Z")?["balance"], 76);
        assert_eq!(report(&ground, &["ledger", "balance", "bob"])?["balance"], 76);
        assert_eq!(report(&ground, &["ledger", "verify"])?["findings"], json!([]));
        Ok(())
    })
    .await
}

/// Posts an entry of this time, and returns the output.
fn output_of_post(ground: &Ground, at: &str) -> Result<std::process::Output> {
    output(ground, &["ledger", "post", "cash=-1", "bob=1", "--asset", "EUR", "--id", "early", "--at", at])
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
    Ground::each_and_front("ledger-verify", async |ground| {
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

        // No rebuild restores the original text of an altered entry.
        tamper(&ground, "tx", "wages", doc! { "changes.1.value": 999_i64 }).await?;
        assert_eq!(ended(&ground, &["ledger", "rebuild"])?.0, Some(3));
        let (lines, code) = json(&ground, &["ledger", "verify"])?;
        assert_eq!((code, &lines[0]["clean"]), (Some(3), &json!(false)));
        assert!(lines[0]["findings"].to_string().contains("unbalanced"), "{lines:?}");
        Ok(())
    })
    .await
}

/// Deletes the document of an entry without the ledger.
async fn lose(ground: &Ground, filter: bson::RawDocumentBuf) -> Result<()> {
    let store = Store::open(ground).await?;
    ensure!(store.shared.delete_one(&namespace("tx")?, filter).await?, "nothing was deleted");
    store.close().await
}

/// Returns the exit code and the text of a command.
fn ended(ground: &Ground, arguments: &[&str]) -> Result<(Option<i32>, String)> {
    let output = output(ground, arguments)?;
    let text = [output.stdout, output.stderr].concat();
    Ok((output.status.code(), String::from_utf8(text)?))
}

/// Returns the balances of ann and bob, on which three commands must agree.
fn agreed(ground: &Ground) -> Result<[i64; 2]> {
    let (balances, code) = json(ground, &["ledger", "balance", "ann", "bob"])?;
    ensure!(code == Some(0) && balances.len() == 2, "{balances:?}");
    let (accounts, _) = json(ground, &["ledger", "accounts"])?;
    let mut agreed = [0; 2];
    for ((name, balance), agreed) in ["ann", "bob"].into_iter().zip(&balances).zip(&mut agreed) {
        let (lines, _) = json(ground, &["ledger", "statement", name])?;
        let account = accounts.iter().find(|account| account["account"] == name).context(name)?;
        let balance = &balance["balance"];
        assert_eq!(
            (lines.last().map(|line| &line["balance"]), &account["cache"]["balance"]),
            (Some(balance), balance),
            "{name}"
        );
        *agreed = balance.as_i64().context("a balance")?;
    }
    Ok(agreed)
}

/// Adds the entries of `filled`, all committed, and a payment after the one that is deleted later.
async fn paid(ground: &Ground) -> Result<()> {
    filled(ground).await?;
    let store = Store::open(ground).await?;
    let ledger = ledger(&store).await?;
    let _ = ledger.post(NewEntry::transfer("ann", "bob", 1, "EUR").with_id(8)).await?;
    ledger.commit(10).await?;
    drop(ledger);
    store.close().await?;
    assert_eq!(agreed(ground)?, [69, 31]);
    Ok(())
}

async fn pay(ground: &Ground, value: i64) -> Result<()> {
    let store = Store::open(ground).await?;
    let ledger = ledger(&store).await?;
    let posting = ledger.post(NewEntry::transfer("ann", "bob", value, "EUR")).await?;
    ensure!(posting.entry().is_some(), "{posting:?}");
    ledger.commit(10).await?;
    drop(ledger);
    store.close().await
}

#[tokio::test]
async fn a_lost_entry_is_named_first_and_nothing_is_made_worse() -> Result<()> {
    Ground::each("ledger-lost", async |ground| {
        paid(&ground).await?;
        assert_eq!(ended(&ground, &["ledger", "export", "--to", "entries.jsonl"])?.0, Some(0));
        lose(&ground, rawdoc! { "_id": 7 }).await?;
        let (code, said) = ended(&ground, &["ledger", "verify"])?;
        assert_eq!(code, Some(3), "{said}");
        let gap = "  account \"ann\": place 2 has no entry: an entry is lost that changed the balance by -30";
        assert_eq!(said.lines().nth(1), Some(gap), "{said}");
        assert!(
            said.contains("next: `ledger restore FILE`") && said.contains("`ledger abandon ann 2 2 --reason TEXT`"),
            "{said}"
        );
        assert!(!said.contains("next: `ledger rebuild`") && said.ends_with("2 findings\n"), "{said}");
        let (lines, _) = json(&ground, &["ledger", "verify"])?;
        let first = &lines[0]["findings"][0];
        assert_eq!(
            (&first["kind"], &first["first"], &first["balance_change"]),
            (&json!("gap"), &json!(2), &json!(-30))
        );

        let (code, said) = ended(&ground, &["ledger", "rebuild"])?;
        assert_eq!(code, Some(3), "{said}");
        assert!(said.contains("wrote 0 balances of entries and 0 of accounts") && said.contains(gap), "{said}");
        assert_eq!(agreed(&ground)?, [69, 31], "nothing behind the gap was changed");
        pay(&ground, 9).await?;
        assert_eq!(agreed(&ground)?, [60, 40], "debits go on");

        let restore = ["ledger", "restore", "entries.jsonl"];
        let (code, said) = ended(&ground, &restore)?;
        assert_eq!((code, said.lines().next()), (Some(0), Some("restored 1 entry; 2 existed already")), "{said}");
        let again = report(&ground, &restore)?;
        assert_eq!((&again["restored"], &again["there"]), (&json!(0), &json!(3)));
        assert_eq!(ended(&ground, &["ledger", "verify"])?.0, Some(0));
        assert_eq!(ended(&ground, &["ledger", "rebuild"])?.0, Some(0));
        assert_eq!(agreed(&ground)?, [60, 40]);
        Ok(())
    })
    .await
}

/// An altered entry is named as such, a rebuild keeps the balances that contradict it, and its copy restores it.
#[tokio::test]
async fn an_altered_entry_is_put_right_by_its_copy() -> Result<()> {
    Ground::each("ledger-altered", async |ground| {
        paid(&ground).await?;
        assert_eq!(ended(&ground, &["ledger", "export", "--to", "entries.jsonl"])?.0, Some(0));
        tamper(&ground, "tx", "wages", doc! { "changes.0.value": -200_i64, "changes.1.value": 200_i64 }).await?;
        let (code, said) = ended(&ground, &["ledger", "verify"])?;
        assert_eq!(code, Some(3), "{said}");
        assert!(said.contains("wages") && !said.contains("next: `ledger rebuild`"), "{said}");
        let (lines, _) = json(&ground, &["ledger", "verify"])?;
        let kinds: Vec<_> = lines[0]["findings"].as_array().into_iter().flatten().map(|found| &found["kind"]).collect();
        assert_eq!(kinds, ["altered", "altered"], "{lines:?}");
        assert_eq!(ended(&ground, &["ledger", "rebuild"])?.0, Some(3));
        assert_eq!(agreed(&ground)?, [69, 31]);
        lose(&ground, rawdoc! { "_id": "wages" }).await?;
        assert_eq!(ended(&ground, &["ledger", "restore", "entries.jsonl"])?.0, Some(0));
        assert_eq!(ended(&ground, &["ledger", "verify"])?.0, Some(0));
        assert_eq!(agreed(&ground)?, [69, 31]);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn an_account_whose_document_is_lost_is_opened_again_with_its_limits() -> Result<()> {
    Ground::each("ledger-open", async |ground| {
        paid(&ground).await?;
        let store = Store::open(&ground).await?;
        ensure!(
            store.shared.delete_one(&namespace("account")?, rawdoc! { "_id": "ann" }).await?,
            "nothing was deleted"
        );
        store.close().await?;
        let (code, said) = ended(&ground, &["ledger", "verify"])?;
        assert_eq!(code, Some(3), "{said}");
        assert!(said.contains("next: `ledger open ann --asset TEXT --minimum N`"), "{said}");
        assert_eq!(ended(&ground, &["ledger", "rebuild"])?.0, Some(3));
        let open = ["ledger", "open", "ann", "--minimum", "0", "--asset"];
        let (code, said) = ended(&ground, &[&open[..], &["USD"]].concat())?;
        assert!(code == Some(1) && said.contains("are in \"EUR\""), "{said}");
        assert_eq!(text(&ground, &[&open[..], &["EUR"]].concat())?, "account ann is open\n");
        assert_eq!(ended(&ground, &["ledger", "rebuild"])?.0, Some(0));
        assert_eq!(ended(&ground, &["ledger", "verify"])?.0, Some(0));
        assert_eq!(agreed(&ground)?, [69, 31]);
        Ok(())
    })
    .await
}

/// An unreadable document is named, and the others are shown.
#[tokio::test]
async fn an_odd_account_does_not_hide_the_others() -> Result<()> {
    Ground::each("ledger-odd", async |ground| {
        paid(&ground).await?;
        tamper(&ground, "account", "ann", doc! { "minimum": "0" }).await?;
        for arguments in [&["ledger", "accounts"][..], &["ledger", "balance", "ann", "bob"]] {
            let output = output(&ground, arguments)?;
            let (out, err) = (String::from_utf8(output.stdout)?, String::from_utf8(output.stderr)?);
            assert_eq!(output.status.code(), Some(1), "{out}{err}");
            assert!(out.contains("bob") && err.contains("\"ann\""), "{out}{err}");
        }
        let usage = ["ledger", "status", "--field", "seqId=value"];
        assert_one_line(&output(&ground, &usage)?, 2, "the fields value and seqId of a change cannot both be named");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_gap_is_closed_for_good() -> Result<()> {
    Ground::each("ledger-abandon", async |ground| {
        paid(&ground).await?;
        lose(&ground, rawdoc! { "_id": 7 }).await?;
        for (account, gap) in [("ann", "2"), ("bob", "1")] {
            let abandon = ["ledger", "abandon", account, gap, "--reason", "in no export"];
            assert_eq!(report(&ground, &abandon)?["abandoned"], 1);
            assert!(text(&ground, &abandon)?.contains("was abandoned before"), "again");
        }
        let found = output(&ground, &["ledger", "verify"])?;
        assert_eq!(found.status.code(), Some(3), "the balances behind it were counted with it");
        assert!(
            String::from_utf8(found.stdout)?
                .contains("next: `ledger rebuild` computes balances from the entries again")
        );
        assert_eq!(report(&ground, &["ledger", "rebuild"])?["whole"], true);
        assert_eq!(report(&ground, &["ledger", "verify"])?["clean"], true);
        assert_eq!(agreed(&ground)?, [99, 1]);
        pay(&ground, 90).await?;
        assert_eq!(agreed(&ground)?, [9, 91]);
        let not_lost = ["ledger", "abandon", "ann", "3", "--reason", "a test"];
        assert_one_line(&output(&ground, &not_lost)?, 1, "place 3 of account \"ann\" has entry 8: it is not lost");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn what_cannot_be_put_back_is_named() -> Result<()> {
    Ground::each("ledger-restore", async |ground| {
        paid(&ground).await?;
        let line = text(&ground, &["ledger", "export"])?.lines().nth(1).context("entry 7")?.to_owned();
        lose(&ground, rawdoc! { "_id": 7 }).await?;
        let wrong = line.replace("-30", "-31").replace("\"value\":30", "\"value\":31");
        std::fs::write(ground.scratch.path("wrong.jsonl"), format!("{wrong}\n"))?;
        let (lines, code) = json(&ground, &["ledger", "restore", "wrong.jsonl", "7", "9"])?;
        assert_eq!((code, &lines[0]["restored"], &lines[0]["absent"]), (Some(1), &json!(0), &json!([9])), "{lines:?}");
        let why = lines[0]["refused"][0]["why"].as_str().context("why")?;
        assert!(why.contains("say that -30 with 0 held is lost there, the entry is -31"), "{why}");
        std::fs::write(ground.scratch.path("entries.csv"), "entry,ts\n")?;
        let csv = output(&ground, &["ledger", "restore", "entries.csv"])?;
        assert_one_line(&csv, 1, "entries.csv, line 1: an entry of `ledger export` as JSON Lines is expected");
        assert_one_line(&output(&ground, &["ledger", "restore", "nosuch"])?, 1, "FILE: cannot read nosuch");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn accounts_that_are_there_are_shown_beside_one_that_is_not() -> Result<()> {
    Ground::each("ledger-nobody", async |ground| {
        filled(&ground).await?;
        for (command, expected) in
            [("balance", "ann"), ("verify", "counted 1 account "), ("rebuild", "counted 1 account ")]
        {
            let said = output(&ground, &["ledger", command, "ann", "nobody"])?;
            assert_one_line(&said, 1, "there is no account nobody");
            assert!(String::from_utf8(said.stdout)?.contains(expected), "{command}");
        }
        Ok(())
    })
    .await
}

/// The commands read from the record the names of the application's fields, and that entries need not balance.
#[tokio::test]
async fn commands_go_by_the_recorded_settings() -> Result<()> {
    Ground::each("ledger-recorded", async |ground| {
        let store = Store::open(&ground).await?;
        let fields = LedgerFields { value: "cents".to_owned(), proc: "stage".to_owned(), ..LedgerFields::default() };
        let options =
            LedgerOptions { accounts: "people".to_owned(), single_entry: true, fields, ..LedgerOptions::default() };
        let ledger = Ledger::open_with(store.shared(), namespace("tx")?, store.sources.clone(), options).await?;
        let _ = ledger.post(NewEntry::new([Change::new("ann", 5, "EUR")])).await?;
        drop(ledger);
        store.close().await?;
        assert_eq!(report(&ground, &["ledger", "reconcile"])?["done"], 1);
        assert_eq!(report(&ground, &["ledger", "balance", "ann"])?["balance"], 5);
        assert_eq!(report(&ground, &["ledger", "verify"])?["clean"], true);
        let other = output(&ground, &["ledger", "verify", "--accounts", "account"])?;
        assert_one_line(&other, 2, "accounts is recorded as \"people\", given as \"account\"");
        let other = output(&ground, &["ledger", "status", "--field", "value=pence"])?;
        assert_one_line(&other, 2, "fields.value is recorded as \"cents\", given as \"pence\"");
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
        // An export that fails, here because a document is no entry, leaves no file of that name.
        let store = Store::open(&ground).await?;
        let odd = bson::rawdoc! { "_id": "odd", "ts": bson::DateTime::MAX, "proc": "COMMITTED" };
        handfast_store::StoreExt::insert_one(&*store.shared, &namespace("tx")?, odd).await?;
        store.close().await?;
        let export = ["ledger", "export", "--to", "entries.jsonl"];
        let interrupted = output(&ground, &export)?;
        assert_eq!(interrupted.status.code(), Some(1), "{interrupted:?}");
        assert!(!ground.scratch.path("entries.jsonl").exists());
        let store = Store::open(&ground).await?;
        handfast_store::StoreExt::delete_one(&*store.shared, &namespace("tx")?, bson::rawdoc! { "_id": "odd" }).await?;
        store.close().await?;
        // An export overwrites the unfinished file of a killed one.
        std::fs::write(ground.scratch.path("entries.jsonl.unfinished"), "{\"_id\": 1}\n".repeat(1000))?;
        assert_eq!(output(&ground, &export)?.status.code(), Some(0));
        assert_eq!(std::fs::read_to_string(ground.scratch.path("entries.jsonl"))?.lines().count(), 2);
        assert!(!ground.scratch.path("entries.jsonl.unfinished").exists());
        Ok(())
    })
    .await
}
