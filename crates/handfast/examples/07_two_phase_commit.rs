//! A bank on a store without transactions: a transfer, one that is refused, one whose process dies, and its recovery.
#![allow(clippy::print_stdout, clippy::expect_used, reason = "an example talks, and is meant to stop aloud")]

use std::time::Duration;

use handfast::patterns::two_phase::{
    Cancel, ParticipantDocument, State, Transfer, TwoPhase, TwoPhaseOptions, TwoPhaseOutcome,
};
use handfast::prelude::*;

#[tokio::main]
pub(crate) async fn main() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let database = Database::open(directory.path().join("data")).await?;
    let (accounts, transactions) = (Namespace::new("bank", "accounts")?, Namespace::new("bank", "transactions")?);
    for id in ["A", "B"] {
        database.insert_one(&accounts, rawdoc! { "_id": id, "balance": 1000, "pendingTransactions": [] }).await?;
    }
    let store = database.store();
    let open = async |application: &str| {
        let options = TwoPhaseOptions {
            abandoned_after: Duration::from_millis(50),
            ..TwoPhaseOptions::new(application, accounts.clone())
        };
        anyhow::Ok(TwoPhase::open(store.clone(), transactions.clone(), options).await?)
    };

    // Records the transfer first, then executes it.
    let app1 = open("App1").await?;
    app1.begin(1, Transfer::new("A", "B", 100)).await?;
    assert_eq!(app1.run(1).await?, TwoPhaseOutcome::Done);
    assert_eq!(balances(&database, &accounts).await?, [900, 1100]);

    // A has 900. The guard of a transfer looks at the balance in the step that changes it.
    app1.begin(2, Transfer::new("A", "B", 901)).await?;
    assert!(matches!(app1.run(2).await?, TwoPhaseOutcome::Canceled { .. }));

    // App1 claims a transfer, pays from A, and dies. Other programs see the pending transfer.
    app1.begin(3, Transfer::new("A", "B", 50)).await?;
    let claim = rawdoc! { "$set": { "state": "pending", "application": "App1" } };
    database.update_one(&transactions, rawdoc! { "_id": 3 }, claim).await?;
    let pay = rawdoc! { "$inc": { "balance": -50 }, "$push": { "pendingTransactions": 3 } };
    database.update_one(&accounts, rawdoc! { "_id": "A" }, pay).await?;
    let app2 = open("App2").await?;
    assert!(matches!(app2.read(&accounts, "A").await?, Some(ParticipantDocument::UnderWay { .. })));

    // App2 finds it later, takes it over, and continues where App1 stopped.
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(app2.recover(10).await?.done, 1);
    assert_eq!(app2.show(3).await?.expect("begun").state, State::Done);
    assert_eq!(balances(&database, &accounts).await?, [850, 1150]);

    // It is too late to cancel; a transaction of its own compensates the transfer.
    assert_eq!(app2.cancel(3, "a mistake").await?, Cancel::TooLate);
    app2.compensate(3, "3, back").await?;
    assert_eq!(app2.run("3, back").await?, TwoPhaseOutcome::Done);
    assert_eq!(balances(&database, &accounts).await?, [900, 1100]);
    println!("A has 900 and B has 1100, whoever died in between");
    Ok(())
}

async fn balances(database: &Database, accounts: &Namespace) -> anyhow::Result<[i64; 2]> {
    let mut balances = [0; 2];
    for (balance, id) in balances.iter_mut().zip(["A", "B"]) {
        let account = database.find_one(accounts, rawdoc! { "_id": id }).await?.expect("opened above");
        *balance = account.get_i64("balance").or_else(|_| account.get_i32("balance").map(i64::from))?;
    }
    Ok(balances)
}
