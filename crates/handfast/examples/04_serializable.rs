//! One doctor must be on call. Two doctors each see the other one on call and leave: snapshot isolation allows it, serializable
//! isolation refuses it.
#![allow(clippy::print_stdout, clippy::expect_used, reason = "an example talks, and is meant to stop aloud")]

use handfast::prelude::*;

async fn leave(database: &Database, isolation: Isolation) -> anyhow::Result<u64> {
    let doctors = Namespace::new("clinic", "doctors")?;
    database.drop_collection(&doctors).await?;
    for name in ["Ann", "Bea"] {
        database.insert_one(&doctors, rawdoc! { "_id": name, "on_call": true }).await?;
    }
    let options = TransactionOptions { isolation, ..TransactionOptions::default() };
    let mut transactions = Vec::new();
    for name in ["Ann", "Bea"] {
        let tx = database.begin_with(options.clone()).await?;
        if tx.count_matching(&doctors, rawdoc! { "on_call": true }).await? >= 2 {
            tx.update_one(&doctors, rawdoc! { "_id": name }, rawdoc! { "$set": { "on_call": false } }).await?;
        }
        transactions.push(tx);
    }
    for tx in transactions {
        match tx.commit().await {
            Ok(_) | Err(Error::Conflict(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(database.count_matching(&doctors, rawdoc! { "on_call": true }).await?)
}

#[tokio::main]
pub(crate) async fn main() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let database = Database::open(directory.path().join("data")).await?;
    assert_eq!(leave(&database, Isolation::Snapshot).await?, 0);
    assert_eq!(leave(&database, Isolation::Serializable).await?, 1);
    println!("somebody is on call");
    Ok(())
}
