//! Two transactions write the same document: the second one fails at once, and is repeated on a new snapshot.
#![allow(clippy::print_stdout, clippy::expect_used, reason = "an example talks, and is meant to stop aloud")]

use handfast::prelude::*;

#[tokio::main]
pub(crate) async fn main() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let database = Database::open(directory.path().join("data")).await?;
    let counters = Namespace::new("shop", "counters")?;
    database.insert_one(&counters, rawdoc! { "_id": "orders", "next": 1 }).await?;

    // Begins, writes and commits explicitly.
    let first = database.begin().await?;
    let second = database.begin().await?;
    first.update_one(&counters, rawdoc! { "_id": "orders" }, rawdoc! { "$inc": { "next": 1 } }).await?;
    let refused = second.update_one(&counters, rawdoc! { "_id": "orders" }, rawdoc! { "$inc": { "next": 1 } }).await;
    let refused = refused.expect_err("the first one has a claim on the document");
    assert_eq!(refused.code(), handfast::Code::WriteConflict);
    first.commit().await?;
    assert!(matches!(second.commit().await, Err(Error::Conflict(_))));

    // Runs twenty closures at once; each number is assigned once.
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let (database, counters) = (database.clone(), counters.clone());
        tasks.spawn(async move {
            let take = |tx: Transaction| {
                let counters = counters.clone();
                async move {
                    let counter = tx.find_one(&counters, rawdoc! { "_id": "orders" }).await?;
                    let next = counter.and_then(|counter| counter.get_i32("next").ok()).unwrap_or(0);
                    tx.update_one(&counters, rawdoc! { "_id": "orders" }, rawdoc! { "$set": { "next": next + 1 } })
                        .await?;
                    Ok::<_, Error>(next)
                }
            };
            database.transaction(take).await
        });
    }
    let mut numbers = tasks.join_all().await.into_iter().collect::<Result<Vec<_>, _>>()?;
    numbers.sort_unstable();
    assert_eq!(numbers, (2..22).collect::<Vec<_>>());
    println!("{} runs were repeated", database.counts().retries);
    Ok(())
}
