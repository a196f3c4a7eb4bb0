//! Runs one transaction over documents in two stores: Bob's account is in one directory, Joe's in another.
//!
//! `cargo run -p handfast --example 14_two_stores`
#![allow(clippy::print_stdout, clippy::expect_used, reason = "an example talks, and is meant to stop aloud")]

use anyhow::ensure;
use handfast::prelude::*;
use handfast::{Part, open_store};

/// An account in a branch of the bank.
async fn balance(store: &impl DocumentStore, branch: &str, name: &str) -> anyhow::Result<i32> {
    let found = store.find_one(&Namespace::new(branch, "accounts")?, rawdoc! { "_id": name }).await?;
    Ok(found.expect("an account").get_i32("balance")?)
}

/// Bob, in the north, pays somebody in the south. An error rolls all of it back.
async fn pay(database: &Database, to: &str, amount: i32) -> anyhow::Result<()> {
    ensure!(amount > 0, "an amount must be greater than 0, and {amount} is not");
    let (north, south) = (&Namespace::new("north", "accounts")?, &Namespace::new("south", "accounts")?);
    database
        .transaction(|tx| async move {
            let payer = rawdoc! { "_id": "Bob", "balance": { "$gte": amount } };
            let taken = tx.update_one(north, payer, rawdoc! { "$inc": { "balance": -amount } }).await?;
            ensure!(taken.matched == 1, "Bob has no account, or less than {amount}");
            let given = tx.update_one(south, rawdoc! { "_id": to }, rawdoc! { "$inc": { "balance": amount } }).await?;
            ensure!(given.matched == 1, "{to} has no account in the south");
            Ok(())
        })
        .await
}

#[tokio::main]
pub(crate) async fn main() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    // A store on a server is a part as well: handfast::mongodb::connect(..).await?.store.
    let north = Part::new("north", open_store(directory.path().join("north")).await?);
    let south = Part::new("south", open_store(directory.path().join("south")).await?);
    let stores = [north.store.clone(), south.store.clone()];

    // The database `south` is in the second store, everything else in the first.
    let database = Database::routed(vec![north, south], &["*=north", "south=south"]).await?;
    for (branch, name, balance) in [("north", "Bob", 10), ("south", "Joe", 2)] {
        let accounts = Namespace::new(branch, "accounts")?;
        database.insert_one(&accounts, rawdoc! { "_id": name, "balance": balance }).await?;
    }

    pay(&database, "Joe", 7).await?;
    assert!(pay(&database, "Joe", 7).await.is_err(), "Bob has 3");
    assert!(pay(&database, "Jo", 1).await.is_err(), "Jo has no account");
    println!("Bob {}, Joe {}", balance(&*database, "north", "Bob").await?, balance(&*database, "south", "Joe").await?);
    assert_eq!(balance(&*database, "north", "Bob").await?, 3);
    assert_eq!(balance(&*database, "south", "Joe").await?, 9);

    // Each document is only in its store.
    database.flush().await?;
    let [north, south] = &stores;
    assert_eq!(balance(north, "north", "Bob").await?, 3);
    assert_eq!(balance(south, "south", "Joe").await?, 9);
    assert_eq!(north.count_matching(&Namespace::new("south", "accounts")?, rawdoc! {}).await?, 0);

    // Other routes would not find the documents, so they are refused.
    let [north, south] = stores;
    let parts = vec![Part::new("north", north), Part::new("south", south)];
    let refused = Database::routed(parts, &["*=north", "shop=south"]).await.expect_err("other routes");
    println!("{refused}");
    Ok(())
}
