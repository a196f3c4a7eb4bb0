//! The answer to a commit is lost. The transaction's id gives its outcome, also after a restart.
#![allow(clippy::print_stdout, clippy::expect_used, reason = "an example talks, and is meant to stop aloud")]

use handfast::prelude::*;

#[tokio::main]
pub(crate) async fn main() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("data");
    let orders = Namespace::new("shop", "orders")?;

    let (committed, rolled_back) = {
        let database = Database::open(&path).await?;
        let tx = database.begin().await?;
        // The program stores the id durably before the commit.
        let committed = tx.id();
        tx.insert_one(&orders, rawdoc! { "_id": 1, "item": "lamp" }).await?;
        tx.commit().await?;
        let tx = database.begin().await?;
        let rolled_back = tx.id();
        tx.insert_one(&orders, rawdoc! { "_id": 2, "item": "desk" }).await?;
        // The program loses the answer here.
        (committed.to_string(), rolled_back.to_string())
    };

    let database = Database::open(&path).await?;
    assert!(matches!(database.outcome(committed.parse()?).await?, Outcome::Committed(_)));
    assert_eq!(database.outcome(rolled_back.parse()?).await?, Outcome::RolledBack);
    println!("the lamp is ordered, the desk is not");
    Ok(())
}
