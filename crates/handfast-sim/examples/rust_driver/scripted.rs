//! Sends operations to scripted servers, and prints their outcomes, a line each.
//!
//! Each argument is a list of operations and their collections: insert:a,find:b. The operations of an argument have a client of
//! their own, and run one after the other; the arguments run at the same time.

use anyhow::Context as _;
use futures_util::TryStreamExt as _;
use futures_util::future::try_join_all;
use mongodb::bson::{Document, doc};
use mongodb::error::{ErrorKind, Result, WriteFailure};
use mongodb::options::{ReadPreference, SelectionCriteria};
use mongodb::{Client, Collection};

pub(crate) async fn run(uri: &str, arguments: &[String]) -> anyhow::Result<()> {
    for line in try_join_all(arguments.iter().map(|argument| outcomes(uri, argument))).await?.concat() {
        println!("{line}");
    }
    Ok(())
}

async fn outcomes(uri: &str, argument: &str) -> anyhow::Result<Vec<String>> {
    let client = Client::with_uri_str(uri).await?;
    let mut lines = Vec::new();
    for call in argument.split(',') {
        let (operation, name) = call.split_once(':').context("an operation and its collection")?;
        let found = operate(operation, &client.database("shop").collection(name)).await;
        lines.push(format!("{call} {}", found.unwrap_or_else(|error| shown(&error.kind))));
    }
    Ok(lines)
}

async fn operate(operation: &str, items: &Collection<Document>) -> Result<String> {
    let set = || doc! { "$set": { "a": 1 } };
    Ok(match operation {
        "find" => found(items, ReadPreference::Primary).await?,
        "find_secondary" => found(items, ReadPreference::Secondary { options: None }).await?,
        "insert" => format!("{} inserted", items.insert_one(doc! { "_id": 1 }).await?.inserted_id),
        "update" => format!("{} updated", items.update_one(doc! {}, set()).await?.modified_count),
        "update_many" => format!("{} updated", items.update_many(doc! {}, set()).await?.modified_count),
        "delete" => format!("{} deleted", items.delete_one(doc! {}).await?.deleted_count),
        other => format!("{other} is not an operation"),
    })
}

async fn found(items: &Collection<Document>, preference: ReadPreference) -> Result<String> {
    let cursor = items.find(doc! {}).batch_size(2).selection_criteria(SelectionCriteria::ReadPreference(preference));
    let found: Vec<Document> = cursor.await?.try_collect().await?;
    Ok(format!("{} found", found.len()))
}

fn shown(kind: &ErrorKind) -> String {
    match kind {
        ErrorKind::Command(error) => format!("error {}", error.code),
        ErrorKind::Write(WriteFailure::WriteError(error)) => format!("error {}", error.code),
        ErrorKind::Io(_) | ErrorKind::ConnectionPoolCleared { .. } => "network error".to_owned(),
        other => {
            format!("{other:?}").split(|other: char| !other.is_alphanumeric()).next().unwrap_or_default().to_owned()
        }
    }
}
