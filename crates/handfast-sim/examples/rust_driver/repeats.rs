//! Sends one operation after the other, and fails with the names of those that failed: the ones that the driver does not repeat by itself.

use anyhow::ensure;
use futures_util::TryStreamExt as _;
use mongodb::bson::{Document, doc};
use mongodb::error::Result;
use mongodb::{Client, Collection, IndexModel};

pub(crate) async fn run(uri: &str) -> anyhow::Result<()> {
    let client = Client::with_uri_str(uri).await?;
    let shop = client.database("shop");
    let items = shop.collection::<Document>("items");
    let increment = || doc! { "$inc": { "price": 1 } };
    let number = |number: i32| doc! { "number": number };
    let mut results = vec![
        ("create_index", items.create_index(IndexModel::builder().keys(number(1)).build()).await.map(drop)),
        ("insert_one", items.insert_one(number(1)).await.map(drop)),
        ("insert_many", items.insert_many([number(2), number(3)]).await.map(drop)),
        ("update_one", items.update_one(number(1), increment()).await.map(drop)),
        ("replace_one", items.replace_one(number(2), number(2)).await.map(drop)),
        ("update_many", items.update_many(doc! {}, increment()).await.map(drop)),
        ("find_one_and_update", items.find_one_and_update(number(1), increment()).await.map(drop)),
        ("delete_one", items.delete_one(number(1)).await.map(drop)),
        ("delete_many", items.delete_many(number(1)).await.map(drop)),
        ("find_one", items.find_one(doc! {}).await.map(drop)),
        ("find, next batch", find_all(&items).await),
        ("count_documents", items.count_documents(doc! {}).await.map(drop)),
        ("distinct", items.distinct("number", doc! {}).await.map(drop)),
        ("aggregate with $out", items.aggregate([doc! { "$out": "copy" }]).await.map(drop)),
        ("list_collection_names", shop.list_collection_names().await.map(drop)),
        ("run_command", shop.run_command(doc! { "count": "items" }).await.map(drop)),
    ];
    let mut session = client.start_session().await?;
    session.start_transaction().await?;
    let inserted = items.insert_one(doc! {}).session(&mut session).await.map(drop);
    if inserted.is_ok() {
        results.push(("commit_transaction", session.commit_transaction().await));
    }
    results.push(("insert_one in a transaction", inserted));
    let failed: Vec<_> = results.iter().filter(|(_, result)| result.is_err()).map(|(name, _)| *name).collect();
    ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
    Ok(())
}

async fn find_all(items: &Collection<Document>) -> Result<()> {
    let _: Vec<Document> = items.find(doc! {}).batch_size(1).await?.try_collect().await?;
    Ok(())
}
