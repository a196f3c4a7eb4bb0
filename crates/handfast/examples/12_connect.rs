//! Transfers 7 from Bob to Joe on a server without transactions, in documents that other programs can read.
//!
//! `cargo run -p handfast --features mongodb --example 12_connect -- mongodb://localhost` (a standalone server will do).
#![allow(clippy::print_stdout, clippy::expect_used, reason = "an example talks, and is meant to stop aloud")]

use anyhow::{Context, ensure};
use handfast::connect_store;
use handfast::patterns::{Change, ExactlyOnce, UpdateOutcome};
use handfast::prelude::*;
use serde::{Deserialize, Serialize};

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Account {
    #[serde(rename = "_id")]
    name: String,
    balance: i64,
}

/// Moves money from one account to another. An error rolls all of it back.
async fn pay(database: &Database, from: &str, to: &str, amount: i64) -> anyhow::Result<()> {
    ensure!(amount > 0, "an amount must be greater than 0, and {amount} is not");
    database
        .transaction(|tx| async move {
            let accounts = tx.collection::<Account>("example", "accounts")?;
            let payer = rawdoc! { "_id": from, "balance": { "$gte": amount } };
            let taken = accounts.update_one(payer, rawdoc! { "$inc": { "balance": -amount } }).await?;
            ensure!(taken.matched == 1, "{from} has no account, or less than {amount}");
            let given = accounts.update_one(rawdoc! { "_id": to }, rawdoc! { "$inc": { "balance": amount } }).await?;
            ensure!(given.matched == 1, "{to} has no account");
            Ok(())
        })
        .await
}

/// Pays, and counts the payments in a collection without transactions.
pub(crate) async fn run(uri: &str) -> anyhow::Result<()> {
    let database = Database::connect(uri).await?;
    let accounts = database.collection::<Account>("example", "accounts")?;
    accounts.delete_many(rawdoc! {}).await?;
    accounts.insert_one(&Account { name: "Bob".into(), balance: 10 }).await?;
    accounts.insert_one(&Account { name: "Joe".into(), balance: 2 }).await?;

    pay(&database, "Bob", "Joe", 7).await?;
    assert!(pay(&database, "Bob", "Joe", 7).await.is_err(), "Bob has 3");
    assert!(pay(&database, "Bob", "Jo", 1).await.is_err(), "Jo has no account");
    let all = accounts.find(rawdoc! {}).await?.all().await?;
    assert_eq!(all, [Account { name: "Bob".into(), balance: 3 }, Account { name: "Joe".into(), balance: 9 }]);
    println!("{all:?}");

    // Updates one document without a transaction; it is counted exactly, although answers may be lost.
    let store = connect_store(uri).await?;
    let pages = Namespace::new("example", "pages")?;
    store.delete_many(&pages, rawdoc! {}).await?;
    let visits = ExactlyOnce::open(store.clone(), pages.clone(), Default::default()).await?;
    let visit = Change::increment("visits", 1).or_insert();
    assert_eq!(visits.apply(visits.token(), "/", &visit).await?, UpdateOutcome::Applied);
    let page = store.find_one(&pages, rawdoc! { "_id": "/" }).await?.context("the page was counted")?;
    assert_eq!(page.get_i64("visits")?, 1);
    println!("{page:?}");
    Ok(())
}

#[tokio::main]
pub(crate) async fn main() -> anyhow::Result<()> {
    let uri = std::env::args().nth(1).context("say where the server is: mongodb://localhost")?;
    run(&uri).await
}
