//! One transaction over documents in two stores: Bob's account is in one directory, Joe's in another.
//!
//! `cargo run -p handfast --example 14_two_stores`
#![allow(clippy::print_stdout, clippy::expect_used, reason = "an example talks, and is meant to stop aloud")]

use handfast::prelude::*;
use handfast::{Part, open_store};

/// What somebody has in a branch of the bank.
async fn balance(store: &impl DocumentStore, branch: &str, name: &str) -> anyhow::Result<i32> {
    let found = store.find_one(&Namespace::new(branch, "accounts")?, rawdoc! { "_id": name }).await?;
    Ok(found.expect("an account").get_i32("balance")?)
}

async fn pay(database: &Database, amount: i32) -> Result<(), Error> {
    database
        .transaction(|tx| async move {
            for (branch, name, change) in [("north", "Bob", -amount), ("south", "Joe", amount)] {
                let accounts = Namespace::new(branch, "accounts")?;
                tx.update_one(&accounts, rawdoc! { "_id": name }, rawdoc! { "$inc": { "balance": change } }).await?;
            }
            Ok::<_, Error>(())
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

    pay(&database, 7).await?;
    println!("Bob {}, Joe {}", balance(&*database, "north", "Bob").await?, balance(&*database, "south", "Joe").await?);
    assert_eq!(balance(&*database, "north", "Bob").await?, 3);
    assert_eq!(balance(&*database, "south", "Joe").await?, 9);

    // Each is in its store, and nowhere else: an ordinary document.
    database.flush().await?;
    let [north, south] = &stores;
    assert_eq!(balance(north, "north", "Bob").await?, 3);
    assert_eq!(balance(south, "south", "Joe").await?, 9);
    assert_eq!(north.count_matching(&Namespace::new("south", "accounts")?, rawdoc! {}).await?, 0);

    // Other routes would look for documents where they are not, so they are refused.
    let [north, south] = stores;
    let parts = vec![Part::new("north", north), Part::new("south", south)];
    let refused = Database::routed(parts, &["*=north", "shop=south"]).await.expect_err("other routes");
    println!("{refused}");
    Ok(())
}
