//! Bob pays Joe 7: two documents, all or nothing (the worked example of the Percolator paper). Then the transfer of 100 from
//! A to B, for which MongoDB's recipe of two-phase commit takes many steps (example 07 does), with the document it is
//! written down in: three documents, one step.
#![allow(clippy::print_stdout, clippy::expect_used, reason = "an example talks, and is meant to stop aloud")]

use handfast::prelude::*;
use serde::{Deserialize, Serialize};

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Account {
    #[serde(rename = "_id")]
    name: String,
    balance: i64,
}

#[derive(Debug, Serialize, Deserialize)]
struct Transfer {
    #[serde(rename = "_id")]
    id: i32,
    source: String,
    destination: String,
    value: i64,
    state: String,
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
    database
        .transaction(|tx| async move {
            let accounts = tx.collection::<Account>("bank", "accounts")?;
            change(&accounts, from, to, amount).await
        })
        .await
}

/// Carries out a transfer that is written down; `false` if that was done before.
async fn carry_out(database: &Database, id: i32) -> Result<bool, Refused> {
    database
        .transaction(|tx| async move {
            let transfers = tx.collection::<Transfer>("bank", "transactions")?;
            let open = rawdoc! { "_id": id, "state": "initial" };
            let done = rawdoc! { "$set": { "state": "done" }, "$currentDate": { "lastModified": true } };
            let Some(transfer) = transfers.find_one_and_update(open, done).await? else { return Ok(false) };
            let accounts = tx.collection::<Account>("bank", "accounts")?;
            change(&accounts, &transfer.source, &transfer.destination, transfer.value).await?;
            Ok(true)
        })
        .await
}

/// Changes both accounts of a transaction.
async fn change(accounts: &Collection<Account>, from: &str, to: &str, amount: i64) -> Result<(), Refused> {
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

    for name in ["A", "B"] {
        accounts.insert_one(&Account { name: name.into(), balance: 1000 }).await?;
    }
    let transfers = database.collection::<Transfer>("bank", "transactions")?;
    let (source, destination, state) = ("A".into(), "B".into(), "initial".into());
    transfers.insert_one(&Transfer { id: 1, source, destination, value: 100, state }).await?;
    assert_eq!(carry_out(&database, 1).await, Ok(true));
    // Whoever did not hear of it may ask for it again.
    assert_eq!(carry_out(&database, 1).await, Ok(false));

    let [a, b] = [accounts.find_one(rawdoc! { "_id": "A" }).await?, accounts.find_one(rawdoc! { "_id": "B" }).await?];
    assert_eq!((a.expect("opened").balance, b.expect("opened").balance), (900, 1100));
    let transfer = transfers.find_one(rawdoc! { "_id": 1 }).await?.expect("written down");
    assert_eq!(transfer.state, "done");
    println!("{transfer:?}");
    Ok(())
}
