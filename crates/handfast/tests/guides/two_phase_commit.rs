use handfast::patterns::{Transfer, TwoPhase, TwoPhaseOptions};
use handfast::prelude::*;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let database = Database::open(directory.path()).await?;
    let (accounts, transactions) = (Namespace::new("bank", "accounts")?, Namespace::new("bank", "transactions")?);
    for id in ["A", "B"] {
        database.insert_one(&accounts, rawdoc! { "_id": id, "balance": 1000 }).await?;
    }

    let options = TwoPhaseOptions::new("App1", accounts.clone());
    let transfers = TwoPhase::open(database.store(), transactions, options).await?;
    for (id, amount) in [(1, 100), (2, 901)] {
        transfers.begin(id, Transfer::new("A", "B", amount)).await?;
        println!("{id}: {:?}", transfers.run(id).await?);
    }
    Ok(())
}
