use handfast::patterns::ledger::Posting;
use handfast::patterns::{Ledger, LedgerOptions, NewAccount, NewEntry};
use handfast::prelude::*;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let database = Database::open(directory.path()).await?;
    let entries = Namespace::new("bank", "tx")?;
    let ledger = Ledger::open(database.store(), entries, LedgerOptions::default()).await?;
    ledger.open_account(NewAccount::new("ann", "EUR").with_minimum(0)).await?;

    let deposit = NewEntry::transfer("cash", "ann", 10_000, "EUR").with_id("deposit 1");
    let payment = NewEntry::transfer("ann", "bob", 3_000, "EUR").with_id("order 7");
    let too_much = NewEntry::transfer("ann", "bob", 7_001, "EUR").with_id("order 8");
    for entry in [deposit, payment.clone(), payment, too_much] {
        match ledger.post(entry).await? {
            Posting::Posted(entry) => println!("posted {}", entry.id),
            Posting::AlreadyPosted(entry) => println!("{} was posted before", entry.id),
            Posting::Refused(refusal) => println!("refused: {} has {}", refusal.account, refusal.available),
        }
    }
    let ann = ledger.balance("ann").await?.expect("opened above");
    println!("ann has {} cents", ann.balance);
    Ok(())
}
