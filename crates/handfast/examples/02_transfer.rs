//! Bob pays Joe 7: two documents, all or nothing (the worked example of the Percolator paper).
#![allow(clippy::print_stdout, clippy::expect_used, reason = "an example talks, and is meant to stop aloud")]

use handfast::prelude::*;
use serde::{Deserialize, Serialize};

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Account {
    #[serde(rename = "_id")]
    name: String,
    balance: i64,
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
        })
        .await
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
    Ok(())
}
