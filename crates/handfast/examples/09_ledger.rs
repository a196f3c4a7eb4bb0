//! Keeps a wallet: deposits, payments that are made once, a hotel's authorisation, a reversal, and a check of the books from the
//! first entry.
#![allow(clippy::print_stdout, clippy::expect_used, reason = "an example talks, and is meant to stop aloud")]

use std::time::Duration;

use handfast::bson::DateTime;
use handfast::patterns::ledger::{
    AsOf, Authorisation, Cancel, Capture, Change, ExportFormat, Ledger, LedgerOptions, NewAccount, NewEntry, Page,
    Posting, Totals,
};
use handfast::patterns::{CancellationToken, RunnerOptions};
use handfast::prelude::*;

#[tokio::main]
pub(crate) async fn main() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let database = Database::open(directory.path().join("data")).await?;
    let store = database.store();
    let entries = Namespace::new("wallet", "tx")?;
    let ledger = Ledger::open(store, entries, LedgerOptions::default()).await?;

    // Ann's wallet must not become negative. All payments go to the fees, too: that account has a sequence.
    ledger.open_account(NewAccount::new("ann", "EUR").with_minimum(0)).await?;
    ledger.open_account(NewAccount::new("fees", "EUR").with_sequence()).await?;
    let deposit = NewEntry::transfer("bank", "ann", 10_000, "EUR").with_id("deposit 1");
    assert!(matches!(ledger.post(deposit).await?, Posting::Posted(_)));

    // Ann pays 25.00 to the shop, with a fee of 0.50. The request is sent twice and applied once.
    let payment = NewEntry::new([
        Change::new("ann", -2_500, "EUR"),
        Change::new("shop", 2_450, "EUR"),
        Change::new("fees", 50, "EUR").called("fee"),
    ]);
    let payment = payment.with_id("order 7").with_metadata(doc! { "item": "lamp" });
    assert!(matches!(ledger.post(payment.clone()).await?, Posting::Posted(_)));
    assert!(matches!(ledger.post(payment).await?, Posting::AlreadyPosted(_)));
    let too_much = ledger.post(NewEntry::transfer("ann", "shop", 7_501, "EUR")).await?;
    assert!(matches!(too_much, Posting::Refused(_)));

    // The hotel holds 60.00 for a week, and takes 55.00.
    let in_a_week = DateTime::from_millis(database.sources().clock.now().timestamp_millis() + 7 * 24 * 3_600_000);
    let hold = Authorisation::new("ann", "hotel", 6_000, "EUR").with_id("room 12").until(in_a_week);
    assert!(matches!(ledger.authorise(hold).await?, Posting::Posted(_)));
    let ann = ledger.balance("ann").await?.expect("she has a wallet");
    assert_eq!((ann.balance, ann.held, ann.available), (7_500, 6_000, 1_500));
    let _ = ledger.capture("room 12", Capture::Part(5_500)).await?;

    // Committers run in any number of processes; entries become final in the order of their accounts.
    let cancel = CancellationToken::new();
    let often = RunnerOptions { interval: Duration::from_millis(10), ..RunnerOptions::default() };
    let committer = ledger.spawn_committer(often.clone(), &cancel)?;
    let expiry = ledger.spawn_expiry(often, &cancel)?;
    for _ in 0..500 {
        if ledger.status().await?.uncommitted == 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    committer.stop().await;
    expiry.stop().await;

    // The lamp is returned. The payment is final, so an entry of its own reverses it.
    let Cancel::Reversed(reversal) = ledger.cancel("order 7", "broken").await? else {
        anyhow::bail!("it is committed")
    };
    assert_eq!(reversal.changes[0].value, 2_500);
    let then = ledger.balance_at("ann", AsOf::Entry("order 7".into())).await?.expect("she was there");
    let now = ledger.balance("ann").await?.expect("she is there");
    assert_eq!((then.balance, now.balance, now.pending), (7_500, 4_500, 2_500));

    for line in ledger.statement("ann", Page::Last, 10).await?.lines {
        println!(
            "{:>3}  {:<10} {:>7} {:>7}  {}",
            line.change.seq_id, line.change.kind, line.change.value, line.balance, line.entry
        );
    }

    // All cached balances are computed again; debits equal credits.
    assert!(ledger.verify_all().await?.is_clean());
    assert!(ledger.totals().await?.iter().all(Totals::is_balanced));
    let mut export = ledger.export(ExportFormat::Csv).await?;
    let mut lines = 0;
    while let Some(text) = export.next().await? {
        lines += text.lines().count();
    }
    println!("ann has {} cents; {lines} lines of CSV", now.balance);
    Ok(())
}
