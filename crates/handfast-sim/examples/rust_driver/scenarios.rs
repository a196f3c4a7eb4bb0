//! The scenarios: requests to the server and the expected answers.

use anyhow::{Context as _, Result, bail, ensure};
use futures_util::TryStreamExt as _;
use mongodb::bson::{Bson, Document, doc};
use mongodb::error::{Error, ErrorKind, WriteFailure};
use mongodb::options::{IndexOptions, ReturnDocument};
use mongodb::{Client, Collection, Database, IndexModel};
use serde::{Deserialize, Serialize};

fn numbers(database: &Database) -> Collection<Document> {
    database.collection("c")
}

async fn fill(collection: &Collection<Document>, count: i32) -> Result<()> {
    collection.insert_many((0..count).map(|i| doc! { "_id": i, "mod": i % 7 })).await?;
    Ok(())
}

fn write_error_code(error: &Error) -> Option<i32> {
    match *error.kind {
        ErrorKind::Write(WriteFailure::WriteError(ref failure)) => Some(failure.code),
        ErrorKind::Command(ref failure) => Some(failure.code),
        _ => None,
    }
}

pub(crate) async fn single_writes_report_what_they_did(_: &str, _: &Client, database: &Database) -> Result<()> {
    let c = numbers(database);
    ensure!(c.insert_one(doc! { "_id": 1, "n": 1 }).await?.inserted_id == Bson::Int32(1));
    ensure!(c.insert_many([doc! { "_id": 2 }, doc! { "_id": 3 }]).await?.inserted_ids.len() == 2);
    let updated = c.update_many(doc! {}, doc! { "$set": { "n": 1 } }).await?;
    ensure!((updated.matched_count, updated.modified_count) == (3, 2), "{updated:?}");
    let upserted = c.update_one(doc! { "_id": 9 }, doc! { "$inc": { "n": 1 } }).upsert(true).await?;
    ensure!(upserted.upserted_id == Some(Bson::Int32(9)), "{upserted:?}");
    let after = c
        .find_one_and_update(doc! { "_id": 9 }, doc! { "$inc": { "n": 1 } })
        .return_document(ReturnDocument::After)
        .await?;
    ensure!(after == Some(doc! { "_id": 9, "n": 2 }), "{after:?}");
    ensure!(c.replace_one(doc! { "_id": 9 }, doc! { "x": 1 }).await?.modified_count == 1);
    ensure!(c.find_one_and_delete(doc! { "_id": 9 }).await? == Some(doc! { "_id": 9, "x": 1 }));
    ensure!(c.delete_many(doc! {}).await?.deleted_count == 3);
    Ok(())
}

#[derive(Debug, Deserialize, PartialEq, Serialize)]
struct Account {
    #[serde(rename = "_id")]
    id: String,
    balance: i64,
    pending: Vec<String>,
}

pub(crate) async fn typed_documents_are_read_back(_: &str, _: &Client, database: &Database) -> Result<()> {
    let accounts: Collection<Account> = database.collection("accounts");
    let account = Account { id: "A".into(), balance: i64::MAX, pending: vec!["t1".into()] };
    accounts.insert_one(&account).await?;
    ensure!(accounts.find_one(doc! { "_id": "A" }).await? == Some(account));
    Ok(())
}

pub(crate) async fn bulk_inserts_tell_which_failed(_: &str, _: &Client, database: &Database) -> Result<()> {
    let c = numbers(database);
    c.insert_one(doc! { "_id": 2 }).await?;
    let documents = [doc! { "_id": 1 }, doc! { "_id": 2 }, doc! { "_id": 3 }];
    let Err(error) = c.insert_many(documents.clone()).ordered(false).await else { bail!("a duplicate went through") };
    let ErrorKind::InsertMany(ref failure) = *error.kind else { bail!("another error: {error}") };
    let errors = failure.write_errors.as_ref().context("write errors")?;
    ensure!(errors.iter().map(|error| (error.index, error.code)).eq([(1, 11000)]), "{errors:?}");
    ensure!(c.count_documents(doc! {}).await? == 3);
    let Err(error) = c.insert_many([doc! { "_id": 4 }, doc! { "_id": 4 }, doc! { "_id": 5 }]).await else {
        bail!("a duplicate went through")
    };
    ensure!(error.to_string().contains("E11000 duplicate key error collection"), "{error}");
    ensure!(c.count_documents(doc! { "_id": 5 }).await? == 0, "an ordered insert went on after an error");
    Ok(())
}

pub(crate) async fn cursors_fetch_batch_after_batch(_: &str, _: &Client, database: &Database) -> Result<()> {
    let c = numbers(database);
    fill(&c, 300).await?;
    for batch_size in [1, 7, 1000] {
        let found: Vec<Document> =
            c.find(doc! {}).sort(doc! { "_id": -1 }).batch_size(batch_size).await?.try_collect().await?;
        let ids: Vec<i32> = found.iter().filter_map(|document| document.get_i32("_id").ok()).collect();
        ensure!(ids == (0..300).rev().collect::<Vec<_>>(), "batch size {batch_size}");
    }
    let mut dropped_early = c.find(doc! {}).batch_size(2).await?;
    ensure!(dropped_early.try_next().await?.is_some());
    drop(dropped_early);
    ensure!(c.find(doc! {}).limit(10).skip(295).await?.try_collect::<Vec<_>>().await?.len() == 5);
    Ok(())
}

pub(crate) async fn indexes_and_their_errors(_: &str, _: &Client, database: &Database) -> Result<()> {
    let c = numbers(database);
    let unique = IndexOptions::builder().unique(true).build();
    let index = IndexModel::builder().keys(doc! { "changes.account": 1, "changes.seqId": 1 }).options(unique).build();
    ensure!(c.create_index(index).await?.index_name == "changes.account_1_changes.seqId_1");
    c.insert_one(doc! { "_id": 1, "changes": [{ "account": 1234, "seqId": 801 }, { "account": 2345, "seqId": 203 }] })
        .await?;
    let Err(error) = c.insert_one(doc! { "_id": 2, "changes": [{ "account": 2345, "seqId": 203 }] }).await else {
        bail!("a duplicate went through")
    };
    ensure!(write_error_code(&error) == Some(11000), "{error}");
    ensure!(c.list_index_names().await? == ["_id_", "changes.account_1_changes.seqId_1"]);
    c.drop_indexes().await?;
    ensure!(c.list_index_names().await? == ["_id_"]);
    Ok(())
}

pub(crate) async fn aggregation_and_distinct(_: &str, _: &Client, database: &Database) -> Result<()> {
    let c = numbers(database);
    fill(&c, 70).await?;
    let pipeline = [
        doc! { "$group": { "_id": "$mod", "n": { "$sum": 1 } } },
        doc! { "$sort": { "_id": 1 } },
        doc! { "$limit": 2 },
    ];
    let groups: Vec<Document> = c.aggregate(pipeline).await?.try_collect().await?;
    ensure!(groups == [doc! { "_id": 0, "n": 10 }, doc! { "_id": 1, "n": 10 }], "{groups:?}");
    ensure!(c.distinct("mod", doc! { "_id": { "$lt": 3 } }).await?.len() == 3);
    ensure!(c.estimated_document_count().await? == 70);
    Ok(())
}

pub(crate) async fn sessions_are_accepted(_: &str, client: &Client, database: &Database) -> Result<()> {
    let c = numbers(database);
    let mut session = client.start_session().await?;
    c.insert_one(doc! { "_id": 1 }).session(&mut session).await?;
    let mut cursor = c.find(doc! {}).session(&mut session).await?;
    ensure!(cursor.next(&mut session).await.transpose()? == Some(doc! { "_id": 1 }));
    Ok(())
}

pub(crate) async fn messages_are_compressed(uri: &str, _: &Client, database: &Database) -> Result<()> {
    for compressor in ["zstd", "snappy", "zlib"] {
        let joint = if uri.contains('?') { "&" } else { "?" };
        let client = Client::with_uri_str(format!("{uri}{joint}compressors={compressor}")).await?;
        let c: Collection<Document> = client.database(database.name()).collection(compressor);
        c.insert_many((0..50).map(|i| doc! { "_id": i, "text": "compress me ".repeat(1000) })).await?;
        let found: Vec<Document> = c.find(doc! {}).batch_size(9).await?.try_collect().await?;
        let length: usize = found.iter().filter_map(|document| document.get_str("text").ok()).map(str::len).sum();
        ensure!(length == 50 * 12_000, "{compressor}: {length}");
    }
    Ok(())
}

pub(crate) async fn large_documents(_: &str, _: &Client, database: &Database) -> Result<()> {
    let c = numbers(database);
    let text = "x".repeat(15 * 1024 * 1024);
    c.insert_one(doc! { "_id": 1, "text": &text }).await?;
    let found = c.find_one(doc! { "_id": 1 }).await?.context("the document")?;
    ensure!(found.get_str("text")? == text);
    ensure!(c.insert_one(doc! { "_id": 2, "text": "x".repeat(16 * 1024 * 1024 + 1) }).await.is_err());
    ensure!(c.count_documents(doc! {}).await? == 1);
    Ok(())
}

pub(crate) async fn errors_carry_code_and_name(_: &str, _: &Client, database: &Database) -> Result<()> {
    let Err(error) = database.run_command(doc! { "nothingLikeIt": 1 }).await else {
        bail!("an unknown command went through")
    };
    let ErrorKind::Command(ref failure) = *error.kind else { bail!("another error: {error}") };
    ensure!((failure.code, failure.code_name.as_str()) == (59, "CommandNotFound"), "{failure:?}");
    let Err(error) = numbers(database).find(doc! { "a": { "$what": 1 } }).await else {
        bail!("an unknown operator went through")
    };
    ensure!(write_error_code(&error) == Some(2), "{error}");
    Ok(())
}

pub(crate) async fn concurrent_increments_are_all_counted(_: &str, _: &Client, database: &Database) -> Result<()> {
    let c = numbers(database);
    c.insert_one(doc! { "_id": 1, "n": 0 }).await?;
    let workers: Vec<_> = (0..16)
        .map(|_| {
            let c = c.clone();
            tokio::spawn(async move {
                for _ in 0..50 {
                    c.update_one(doc! { "_id": 1 }, doc! { "$inc": { "n": 1 } }).await?;
                }
                Ok::<_, Error>(())
            })
        })
        .collect();
    for worker in workers {
        worker.await??;
    }
    ensure!(c.find_one(doc! {}).await? == Some(doc! { "_id": 1, "n": 800 }));
    Ok(())
}
