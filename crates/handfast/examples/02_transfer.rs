//! Transfers 7 from Bob to Joe in one transaction over two documents (the worked example of the Percolator paper). Then
//! transfers 100 from A to B and records the transfer: three documents in one step, where MongoDB's recipe of two-phase commit
//! takes many (example 07).
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
    Amount(i64),
    NoAccount(String),
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
async fn pay(database: &Database, from: &str, to: &str, amount: i64) -> Result<(), Refused> {
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

/// Changes both accounts of a transaction. Nobody ever sees the change if it ends with an error, which rolls everything back.
async fn change(accounts: &Collection<Account>, from: &str, to: &str, amount: i64) -> Result<(), Refused> {
    if amount <= 0 {
        // A negative amount would take money from the account that should get it, whatever its balance.
        return Err(Refused::Amount(amount));
    }
    let taken = rawdoc! { "$inc": { "balance": -amount } };
    let payer = accounts.find_one_and_update(rawdoc! { "_id": from }, taken).return_document(ReturnDocument::After);
    let Some(payer) = payer.await? else {
        return Err(Refused::NoAccount(from.to_owned()));
    };
    if payer.balance < 0 {
        return Err(Refused::TooPoor { balance: payer.balance + amount });
    }
    let given = accounts.update_one(rawdoc! { "_id": to }, rawdoc! { "$inc": { "balance": amount } }).await?;
    if given.matched == 0 {
        // An update that matches nothing is no error: without this check the money would be lost.
        return Err(Refused::NoAccount(to.to_owned()));
    }
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
    assert_eq!(pay(&database, "Bob", "Jo", 1).await, Err(Refused::NoAccount("Jo".into())));
    assert_eq!(pay(&database, "Jo", "Bob", 1).await, Err(Refused::NoAccount("Jo".into())));
    assert_eq!(pay(&database, "Bob", "Joe", -9).await, Err(Refused::Amount(-9)));

    let all = accounts.find(rawdoc! {}).await?.all().await?;
    assert_eq!(all, [Account { name: "Bob".into(), balance: 3 }, Account { name: "Joe".into(), balance: 9 }]);
    println!("{all:?}");

    for name in ["A", "B"] {
        accounts.insert_one(&Account { name: name.into(), balance: 1000 }).await?;
    }
    let transfers = database.collection::<Transfer>("bank", "transactions")?;
    for (id, destination, value) in [(1, "B", 100), (2, "B", 1000), (3, "C", 100)] {
        let (source, destination, state) = ("A".into(), destination.into(), "initial".into());
        transfers.insert_one(&Transfer { id, source, destination, value, state }).await?;
    }
    assert_eq!(carry_out(&database, 1).await, Ok(true));
    // A program that lost the answer can read the outcome later.
    assert_eq!(carry_out(&database, 1).await, Ok(false));
    assert_eq!(carry_out(&database, 2).await, Err(Refused::TooPoor { balance: 900 }));
    assert_eq!(carry_out(&database, 3).await, Err(Refused::NoAccount("C".into())));

    let [a, b] = [accounts.find_one(rawdoc! { "_id": "A" }).await?, accounts.find_one(rawdoc! { "_id": "B" }).await?];
    assert_eq!((a.expect("opened").balance, b.expect("opened").balance), (900, 1100));
    let all = transfers.find(rawdoc! {}).await?.all().await?;
    // A refused transfer leaves nothing, not even its state.
    assert_eq!(all.iter().map(|transfer| &*transfer.state).collect::<Vec<_>>(), ["done", "initial", "initial"]);
    println!("{all:?}");
    Ok(())
}
