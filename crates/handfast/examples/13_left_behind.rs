//! Creates the documents that dead processes leave, for each building block, to try the commands on them.
//!
//! ```text
//! cargo run -p handfast --example 13_left_behind -- --data data
//! handfast jobs status --data data --database db
//! ```
#![allow(clippy::print_stdout, clippy::expect_used, reason = "an example talks, and is meant to stop aloud")]

use std::path::PathBuf;
use std::sync::Arc;

use handfast::Sources;
use handfast::patterns::job_queue::ClaimState;
use handfast::patterns::{
    Change, Error, JobQueue, Ledger, Link, NewAccount, NewEntry, NewJob, SyncFlag, SyncFlagOptions, Transfer, TwoPhase,
    TwoPhaseOptions, VersionedTree, VersionedTreeOptions,
};
use handfast::prelude::{Database, DocumentStore, Namespace, StoreExt, doc, rawdoc};

/// The open store of the data, with the sources of ids and dates.
struct World {
    store: Arc<dyn DocumentStore>,
    sources: Sources,
}

fn namespace(collection: &str) -> anyhow::Result<Namespace> {
    Ok(Namespace::new("db", collection)?)
}

#[tokio::main]
pub(crate) async fn main() -> anyhow::Result<()> {
    let mut words = std::env::args().skip_while(|word| word != "--data").skip(1);
    let scratch = tempfile::tempdir()?;
    let directory = words.next().map_or_else(|| scratch.path().join("data"), PathBuf::from);
    let database = Database::open(&directory).await?;
    let world = World { store: database.store(), sources: Sources::system()? };
    jobs(&world).await?;
    transactions(&world).await?;
    entries(&world).await?;
    copies(&world).await?;
    versions(&world).await?;
    println!("the database db of {} has db.jobs, db.transactions, db.tx, db.users, db.items", directory.display());
    Ok(())
}

/// Two dead letters, a job that is done, one whose worker is gone, and one that waits.
async fn jobs(world: &World) -> anyhow::Result<()> {
    let (store, sources) = (Arc::clone(&world.store), world.sources.clone());
    let queue = JobQueue::open_with(store, namespace("jobs")?, sources, Default::default()).await?;
    for kind in ["mail", "print", "mail", "mail", "mail"] {
        queue.enqueue(NewJob::new(kind, &doc! { "to": "ann" })?).await?;
    }
    let kinds = ["mail".to_owned(), "print".to_owned()];
    let claim = async || anyhow::Ok(queue.claim("worker1", &kinds).await?.expect("there are five"));
    for error in ["no such mailbox", "out of paper"] {
        assert_eq!(queue.give_up(&claim().await?, error).await?, ClaimState::Held);
    }
    assert_eq!(queue.complete(&claim().await?, None).await?, ClaimState::Held);
    claim().await?;
    Ok(())
}

/// Creates a finished transaction, one whose process died after A had paid, and one that no process has begun.
async fn transactions(world: &World) -> anyhow::Result<()> {
    let accounts = namespace("accounts")?;
    for id in ["A", "B"] {
        world.store.insert_one(&accounts, rawdoc! { "_id": id, "balance": 1000 }).await?;
    }
    let (store, sources) = (Arc::clone(&world.store), world.sources.clone());
    let options = TwoPhaseOptions::new("App1", accounts.clone());
    let transfers = TwoPhase::open_with(store, namespace("transactions")?, sources, options).await?;
    for id in 1..=3 {
        transfers.begin(id, Transfer::new("A", "B", 100)).await?;
    }
    println!("transfer 1: {:?}", transfers.run(1).await?);
    // Runs only its first two steps.
    let claimed = rawdoc! {
        "$set": { "state": "pending", "application": "App1" }, "$currentDate": { "lastModified": true },
    };
    world.store.update_one(&namespace("transactions")?, rawdoc! { "_id": 2 }, claimed).await?;
    let paid = rawdoc! { "$inc": { "balance": -100 }, "$push": { "pendingTransactions": 2 } };
    world.store.update_one(&accounts, rawdoc! { "_id": "A" }, paid).await?;
    Ok(())
}

/// Wages that are committed, and a payment that is not.
async fn entries(world: &World) -> anyhow::Result<()> {
    let (store, sources) = (Arc::clone(&world.store), world.sources.clone());
    let ledger = Ledger::open_with(store, namespace("tx")?, sources, Default::default()).await?;
    ledger.open_account(NewAccount::new("ann", "EUR").with_minimum(0)).await?;
    let wages = ledger.post(NewEntry::transfer("cash", "ann", 100, "EUR").with_id("wages")).await?;
    ledger.commit(10).await?;
    let payment = ledger.post(NewEntry::transfer("ann", "bob", 30, "EUR").with_id(7)).await?;
    println!("entries: {}", wages.entry().into_iter().chain(payment.entry()).count());
    Ok(())
}

/// John has two comments and has become Mary; the process has died before the comments knew.
async fn copies(world: &World) -> anyhow::Result<()> {
    let comments = namespace("comments")?;
    world.store.insert_one(&namespace("users")?, rawdoc! { "_id": 1, "name": "John" }).await?;
    let options = SyncFlagOptions::new([Link::new(comments.clone(), "user").field("name", "userName")]);
    let (store, sources) = (Arc::clone(&world.store), world.sources.clone());
    let names = SyncFlag::open_with(store, namespace("users")?, sources, options).await?;
    for id in [8, 9] {
        println!("comment: {:?}", names.insert_copy(&comments, doc! { "_id": id, "user": 1 }).await?);
    }
    // Makes only the change and sets the flag.
    let renamed = Change::new(doc! { "$set": { "name": "Mary" } });
    let begun = names.within(Arc::clone(&world.store)).begin(names.token(), 1, &renamed).await?;
    println!("user: {begun:?}");
    Ok(())
}

/// Three versions with a lamp of another price each, the second with a name, and a writer of a fourth one who has died.
async fn versions(world: &World) -> anyhow::Result<()> {
    let options = VersionedTreeOptions::new("catalogue");
    let (store, sources) = (Arc::clone(&world.store), world.sources.clone());
    let tree = VersionedTree::open_with(store, namespace("items")?, sources, options).await?;
    for price in [30, 25, 20] {
        tree.change(|mut write| async move {
            write.put("lamp", doc! { "price": price }).await?;
            Ok::<_, Error>(write.with_root(doc! { "children": ["lamp"] }))
        })
        .await?;
    }
    tree.name(2, "spring").await?;
    tree.begin().await?.put("lamp", doc! { "price": 1 }).await?;
    Ok(())
}
