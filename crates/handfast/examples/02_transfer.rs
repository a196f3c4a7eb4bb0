//! Bob pays Joe 7: two documents, all or nothing (the worked example of the Percolator paper). Then A pays B 100, with the
//! transfer itself kept beside the accounts (the transfer of MongoDB's two-phase commits): three documents.
#![allow(clippy::print_stdout, clippy::expect_used, reason = "an example talks, and is meant to stop aloud")]

use handfast::prelude::*;
use serde::{Deserialize, Serialize};

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Account {
    #[serde(rename = "_id")]
    name: String,
    balance: i64,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Transfer {
    #[serde(rename = "_id")]
    id: i64,
    source: String,
    destination: String,
    value: i64,
}

#[derive(Debug, PartialEq)]
enum Refused {
    TooPoor { balance: i64 },
    Store(String),
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Refused::Store(error.to_string())
    }
}

impl From<handfast::StoreError> for Refused {
    fn from(error: handfast::StoreError) -> Self {
        Refused::Store(error.to_string())
    }
}

/// Moves money. The closure may run several times: what it reads, it reads again.
async fn pay(database: &Database, from: &'static str, to: &'static str, amount: i64) -> Result<(), Refused> {
    database.transaction(|tx| async move { move_money(&tx, from, to, amount).await }).await
}

/// Moves money, and says once and for all that this was done.
async fn carry_out(database: &Database, transfer: &Transfer) -> Result<(), Refused> {
    database
        .transaction(|tx| async move {
            // A second attempt at the same transfer fails here, on the `_id`, and takes everything back.
            tx.collection::<Transfer>("bank", "transactions")?.insert_one(transfer).await?;
            move_money(&tx, &transfer.source, &transfer.destination, transfer.value).await
        })
        .await
}

async fn move_money(tx: &Transaction, from: &str, to: &str, amount: i64) -> Result<(), Refused> {
    let accounts = tx.collection::<Account>("bank", "accounts")?;
    let taken = rawdoc! { "$inc": { "balance": -amount } };
    let Some(payer) = accounts.find_one_and_update(rawdoc! { "_id": from }, taken).await? else {
        return Err(Refused::Store(format!("{from} has no account")));
    };
    if payer.balance < 0 {
        // Nobody ever sees the change: an error rolls everything back.
        return Err(Refused::TooPoor { balance: payer.balance + amount });
    }
    accounts.update_one(rawdoc! { "_id": to }, rawdoc! { "$inc": { "balance": amount } }).await?;
    Ok(())
}

#[tokio::main]
pub(crate) async fn main() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let database = Database::open(directory.path().join("data")).await?;
    let accounts = database.collection::<Account>("bank", "accounts")?;
    accounts.insert_one(&Account { name: "Bob".into(), balance: 10 }).await?;
    accounts.insert_one(&Account { name: "Joe".into(), balance: 2 }).await?;

    assert_eq!(pay(&database, "Bob", "Joe", 7).await, Ok(()));
    assert_eq!(pay(&database, "Bob", "Joe", 7).await, Err(Refused::TooPoor { balance: 3 }));

    let all = accounts.find(rawdoc! {}).await?.all().await?;
    assert_eq!(all, [Account { name: "Bob".into(), balance: 3 }, Account { name: "Joe".into(), balance: 9 }]);
    println!("{all:?}");

    accounts.insert_one(&Account { name: "A".into(), balance: 1000 }).await?;
    accounts.insert_one(&Account { name: "B".into(), balance: 1000 }).await?;
    let transfer = Transfer { id: 1, source: "A".into(), destination: "B".into(), value: 100 };
    assert_eq!(carry_out(&database, &transfer).await, Ok(()));
    assert!(matches!(carry_out(&database, &transfer).await, Err(Refused::Store(_))), "it is carried out once");

    let both = accounts.find(rawdoc! { "_id": { "$in": ["A", "B"] } }).await?.all().await?;
    assert_eq!(both, [Account { name: "A".into(), balance: 900 }, Account { name: "B".into(), balance: 1100 }]);
    println!("{both:?}");
    Ok(())
}
