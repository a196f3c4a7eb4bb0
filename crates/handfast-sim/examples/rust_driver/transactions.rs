//! Transactions: the transfers of the seed documents, a conflict, one moment of a snapshot session.

use anyhow::{Context as _, Result, ensure};
use futures_util::{FutureExt as _, TryStreamExt as _};
use mongodb::bson::{Document, doc};
use mongodb::error::{Error, TRANSIENT_TRANSACTION_ERROR};
use mongodb::{Client, Collection, Database};

async fn balances(accounts: &Collection<Document>) -> Result<Vec<(String, i32)>> {
    let found: Vec<Document> = accounts.find(doc! {}).sort(doc! { "_id": 1 }).await?.try_collect().await?;
    let balance = |account: &Document| Ok((account.get_str("_id")?.to_owned(), account.get_i32("balance")?));
    found.iter().map(balance).collect()
}

fn named(balances: &[(&str, i32)]) -> Vec<(String, i32)> {
    balances.iter().map(|(name, balance)| ((*name).to_owned(), *balance)).collect()
}

pub(crate) async fn bob_pays_joe_7(_: &str, client: &Client, database: &Database) -> Result<()> {
    let accounts = database.collection::<Document>("accounts");
    accounts.insert_many([doc! { "_id": "Bob", "balance": 10 }, doc! { "_id": "Joe", "balance": 2 }]).await?;
    let mut session = client.start_session().await?;
    session.start_transaction().await?;
    accounts.update_one(doc! { "_id": "Bob" }, doc! { "$inc": { "balance": -7 } }).session(&mut session).await?;
    accounts.update_one(doc! { "_id": "Joe" }, doc! { "$inc": { "balance": 7 } }).session(&mut session).await?;
    ensure!(balances(&accounts).await? == named(&[("Bob", 10), ("Joe", 2)]));
    session.commit_transaction().await?;
    ensure!(balances(&accounts).await? == named(&[("Bob", 3), ("Joe", 9)]));
    Ok(())
}

/// Transfers from A to B, with the document of the transfer in the same transaction; a transfer of more than A has is rolled back.
pub(crate) async fn a_transfer_is_all_or_nothing(_: &str, client: &Client, database: &Database) -> Result<()> {
    let accounts = database.collection::<Document>("accounts");
    let transfers = database.collection::<Document>("transfers");
    accounts.insert_many([doc! { "_id": "A", "balance": 1000 }, doc! { "_id": "B", "balance": 1000 }]).await?;
    for (value, is_possible) in [(100, true), (1000, false)] {
        let mut session = client.start_session().await?;
        let collections = (accounts.clone(), transfers.clone());
        let done = session
            .start_transaction()
            .and_run(collections, move |session, (accounts, transfers)| {
                async move {
                    let transfer = doc! { "from": "A", "to": "B", "value": value, "state": "done" };
                    transfers.insert_one(transfer).session(&mut *session).await?;
                    let given = doc! { "$inc": { "balance": value } };
                    accounts.update_one(doc! { "_id": "B" }, given).session(&mut *session).await?;
                    let has = doc! { "_id": "A", "balance": { "$gte": value } };
                    let taken =
                        accounts.update_one(has, doc! { "$inc": { "balance": -value } }).session(&mut *session).await?;
                    if taken.matched_count == 0 { Err(Error::custom("A has too little")) } else { Ok(()) }
                }
                .boxed()
            })
            .await;
        ensure!(done.is_ok() == is_possible, "{value}: {done:?}");
    }
    ensure!(balances(&accounts).await? == named(&[("A", 900), ("B", 1100)]));
    ensure!(transfers.count_documents(doc! {}).await? == 1);
    Ok(())
}

pub(crate) async fn the_second_writer_is_told_at_once(_: &str, client: &Client, database: &Database) -> Result<()> {
    let accounts = database.collection::<Document>("accounts");
    accounts.insert_one(doc! { "_id": "A", "balance": 0 }).await?;
    let (mut first, mut second) = (client.start_session().await?, client.start_session().await?);
    first.start_transaction().await?;
    second.start_transaction().await?;
    let more = || (doc! { "_id": "A" }, doc! { "$inc": { "balance": 1 } });
    let (filter, update) = more();
    accounts.update_one(filter, update).session(&mut first).await?;
    let (filter, update) = more();
    let refused = accounts.update_one(filter, update).session(&mut second).await.err().context("a conflict")?;
    ensure!(refused.contains_label(TRANSIENT_TRANSACTION_ERROR), "{refused:?}");
    second.abort_transaction().await?;
    first.commit_transaction().await?;
    first.commit_transaction().await?;
    ensure!(balances(&accounts).await? == named(&[("A", 1)]));
    Ok(())
}

pub(crate) async fn a_snapshot_session_reads_one_moment(_: &str, client: &Client, database: &Database) -> Result<()> {
    let accounts = database.collection::<Document>("accounts");
    accounts.insert_one(doc! { "_id": "A", "balance": 1 }).await?;
    let mut session = client.start_session().snapshot(true).await?;
    let find = || doc! { "_id": "A" };
    let before = accounts.find_one(find()).session(&mut session).await?;
    accounts.update_one(find(), doc! { "$set": { "balance": 2 } }).await?;
    ensure!(accounts.find_one(find()).session(&mut session).await? == before);
    ensure!(accounts.find_one(find()).await? == Some(doc! { "_id": "A", "balance": 2 }));
    Ok(())
}
