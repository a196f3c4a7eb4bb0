//! The committer when the disk fails, and its sharing of syncs.

use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};

use bson::rawdoc;
use handfast_store::{Applied, DocumentStore as _, Insert, Namespace, Sources, StoreExt as _, Validation};
use handfast_txn::{Database, Transaction};

use super::change_log::LogWriter;
use super::{AnswerAfter, Committer};
use crate::Options;
use crate::engine::Engine as _;
use crate::testing::faulty_engine::FaultyEngine;
use crate::testing::{open_faulty, start_faulty};
use crate::write::insert::insert_one;

fn namespace() -> Namespace {
    Namespace::new("db", "c").unwrap()
}

fn start(path: &std::path::Path) -> (Arc<FaultyEngine>, Committer) {
    start_faulty(path, &Options::small())
}

async fn insert(committer: &Committer, n: i32, answer: AnswerAfter) -> handfast_store::Result<()> {
    committer
        .submit(answer, 100, move |writer| {
            insert_one(writer, &namespace(), [7; 16], &rawdoc! { "_id": n }, Validation::Apply)
        })
        .await
}

fn documents(committer: &Committer) -> u64 {
    let snapshot = committer.shared().publisher.current();
    let id = snapshot.catalog().get(&namespace()).map(|collection| collection.id);
    id.map_or(0, |id| snapshot.catalog().counts(id).documents)
}

#[tokio::test]
async fn a_sync_that_fails_stops_all_writes_and_no_reads() {
    let directory = tempfile::tempdir().unwrap();
    let (engine, committer) = start(directory.path());
    insert(&committer, 1, AnswerAfter::Synced).await.unwrap();
    engine.fail_syncs.store(true, Ordering::Relaxed);
    let error = insert(&committer, 2, AnswerAfter::Synced).await.unwrap_err();
    assert_eq!(error.applied(), Applied::Maybe, "nobody knows whether it is on the disk");
    assert_eq!(documents(&committer), 1, "what was not synced is not shown");
    // The disk reports success again: that proves nothing about the bytes that it lost.
    engine.fail_syncs.store(false, Ordering::Relaxed);
    let error = insert(&committer, 3, AnswerAfter::Synced).await.unwrap_err();
    assert_eq!(error.applied(), Applied::No);
    assert!(error.message().contains("must be reopened"), "{error}");
    assert_eq!(documents(&committer), 1);
    drop(committer);
    drop(engine);

    let (_, committer) = start(directory.path());
    assert!((1..=2).contains(&documents(&committer)), "the second insert may be there or not");
    insert(&committer, 3, AnswerAfter::Synced).await.unwrap();
}

#[tokio::test]
async fn a_batch_that_fails_stops_all_writes() {
    let directory = tempfile::tempdir().unwrap();
    let (engine, committer) = start(directory.path());
    engine.fail_batches.store(true, Ordering::Relaxed);
    let error = insert(&committer, 1, AnswerAfter::Published).await.unwrap_err();
    assert_eq!(error.applied(), Applied::Maybe);
    engine.fail_batches.store(false, Ordering::Relaxed);
    let error = insert(&committer, 2, AnswerAfter::Published).await.unwrap_err();
    assert_eq!(error.applied(), Applied::No);
    assert_eq!(documents(&committer), 0);
}

#[tokio::test]
async fn operations_that_wait_together_share_a_sync() {
    let directory = tempfile::tempdir().unwrap();
    let (_, committer) = start(directory.path());
    let committer = Arc::new(committer);
    let tasks: Vec<_> = (0..200)
        .map(|n| {
            let committer = committer.clone();
            tokio::spawn(async move { insert(&committer, n, AnswerAfter::Synced).await })
        })
        .collect();
    for task in tasks {
        task.await.unwrap().unwrap();
    }
    let syncs = committer.shared().syncs.load(Ordering::Relaxed);
    assert!(syncs < 100, "200 inserts took {syncs} syncs");
    assert_eq!(documents(&committer), 200);
}

/// All operations that are queued during a sync share the next one.
#[tokio::test]
async fn transactions_that_wait_together_take_one_sync() {
    const CLIENTS: i32 = 64;
    let directory = tempfile::tempdir().unwrap();
    let (engine, store) = open_faulty(directory.path(), Options::small());
    let database = Database::local(store.clone(), Sources::seeded(2));
    let documents = (0..2 * CLIENTS + 2).map(|n| rawdoc! { "_id": n, "n": 0 }).collect();
    database.insert(Insert::new(namespace(), documents)).await.unwrap();
    let transfer = async |database: Database, from: i32| {
        let change = |by: i32| rawdoc! { "$inc": { "n": by } };
        let run = |tx: Transaction| async move {
            tx.update_one(&namespace(), rawdoc! { "_id": from }, change(-1)).await?;
            tx.update_one(&namespace(), rawdoc! { "_id": from + 1 }, change(1)).await?;
            Ok::<_, handfast_txn::Error>(())
        };
        database.transaction(run).await.unwrap();
    };
    // The collection of the records is created before.
    transfer(database.clone(), 2 * CLIENTS).await;
    // The sync of the first one takes until all others wait.
    let (begun, first) = mpsc::channel::<()>();
    let (go_on, gate) = mpsc::channel::<()>();
    engine.after_each_sync(move || {
        let _ = begun.send(());
        let _ = gate.recv();
    });
    let before = store.costs();
    let mut transfers = vec![tokio::spawn(transfer(database.clone(), 0))];
    while first.try_recv().is_err() {
        tokio::task::yield_now().await;
    }
    transfers.extend((1..CLIENTS).map(|client| tokio::spawn(transfer(database.clone(), 2 * client))));
    let committer = &store.context.committer;
    let permits = committer.permits_max as usize;
    while permits - committer.permits.available_permits() < CLIENTS as usize {
        tokio::task::yield_now().await;
    }
    // From here on no operation waits.
    drop(go_on);
    for transfer in transfers {
        transfer.await.unwrap();
    }
    let after = store.costs();
    assert_eq!((after.operations - before.operations, after.syncs - before.syncs), (CLIENTS as u64, 2));
}

#[tokio::test]
async fn an_operation_that_panics_is_rolled_back_and_the_others_go_on() {
    let directory = tempfile::tempdir().unwrap();
    let (_, committer) = start(directory.path());
    insert(&committer, 1, AnswerAfter::Synced).await.unwrap();
    let broken = committer.submit(AnswerAfter::Synced, 0, |writer| {
        insert_one(writer, &namespace(), [7; 16], &rawdoc! { "_id": 2 }, Validation::Apply)?;
        panic!("a mistake");
        #[expect(unreachable_code, reason = "gives the closure its type")]
        Ok(())
    });
    broken.await.unwrap_err();
    insert(&committer, 3, AnswerAfter::Synced).await.unwrap();
    assert_eq!(documents(&committer), 2);
}

#[tokio::test]
async fn applied_writes_are_not_visible_before_they_are_synced() {
    let directory = tempfile::tempdir().unwrap();
    let (_, committer) = start(directory.path());
    insert(&committer, 1, AnswerAfter::Applied).await.unwrap();
    assert_eq!(documents(&committer), 0);
    committer.barrier(AnswerAfter::Synced).await.unwrap();
    assert_eq!(documents(&committer), 1);
}

#[test]
fn forgotten_deletions_beyond_the_bound_cause_conflicts() {
    let at = handfast_store::CommitTimestamp;
    let mut deletions = super::Deletions::new(at(0), 2);
    for n in 1..=3 {
        deletions.record(&[n], at(u64::from(n) * 10));
    }
    assert!(deletions.since(&[3], at(25)) && !deletions.since(&[3], at(30)), "the youngest are known");
    assert!(!deletions.since(&[9], at(15)), "what was never there does not conflict");
    assert!(deletions.since(&[9], at(5)), "but who knows, before what is remembered");
}

#[tokio::test]
async fn an_end_that_cannot_sync_fails() {
    let directory = tempfile::tempdir().unwrap();
    let (engine, mut committer) = start(directory.path());
    insert(&committer, 1, AnswerAfter::Synced).await.unwrap();
    committer.end().unwrap();
    drop((engine, committer));

    let (engine, mut committer) = start(directory.path());
    insert(&committer, 2, AnswerAfter::Published).await.unwrap();
    engine.fail_syncs.store(true, Ordering::Relaxed);
    committer.end().unwrap_err();
    drop((engine, committer));

    let (engine, mut committer) = start(directory.path());
    engine.fail_batches.store(true, Ordering::Relaxed);
    insert(&committer, 3, AnswerAfter::Synced).await.unwrap_err();
    committer.end().unwrap_err();
}

#[tokio::test]
async fn a_log_of_changes_whose_end_is_damaged_is_not_written_on() {
    let directory = tempfile::tempdir().unwrap();
    let (engine, committer) = start(directory.path());
    let begin = |writer: &mut super::Writer<'_>| {
        writer.begin_log(1);
        Ok(())
    };
    committer.submit(AnswerAfter::Synced, 0, begin).await.unwrap();
    insert(&committer, 1, AnswerAfter::Synced).await.unwrap();
    let is_read = || LogWriter::load(&*engine.view(), &Sources::seeded(1)).unwrap().is_some();
    assert!(is_read());
    engine.damage_changes.store(true, Ordering::Relaxed);
    assert!(!is_read());
}
