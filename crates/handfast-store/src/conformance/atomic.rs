//! Snapshots and batches: the second contract.

use std::sync::Arc;

use bson::{RawBson, RawBsonRef, RawDocumentBuf, rawdoc};
use handfast_mql::Code;

use super::subject::{Failure, Subject, c, drain, id, ids, ints, named, numbered, refused};
use super::{ensure, ensure_eq, list_cases};
use crate::{
    Applied, AtomicBatch, BatchWrite, Before, CommitTimestamp, DocumentWrite, Find, Hint, IndexSpec, Insert,
    RenameCollection, Result, Snapshot,
};

list_cases! { Atomic:
    snapshot_reads_what_is_there,
    snapshot_does_not_see_later_writes,
    snapshot_does_not_see_later_commits,
    snapshot_outlives_its_collection,
    snapshot_find_filters_and_sorts,
    snapshot_timestamps_grow_with_writes,
    snapshot_knows_of_changes,
    commit_applies_all_writes,
    commit_of_nothing_is_accepted,
    commit_makes_collections,
    commit_returns_growing_timestamps,
    commit_is_seen_by_later_snapshots,
    commit_puts_over_and_deletes,
    commit_of_a_delete_of_nothing_is_accepted,
    commit_conflicts_with_a_later_update,
    commit_conflicts_with_a_later_delete,
    commit_conflicts_with_a_later_insert,
    commit_conflicts_with_an_insert_that_was_deleted,
    commit_conflicts_with_another_commit,
    commit_conflicts_with_a_drop,
    commit_conflicts_with_a_rename,
    commit_does_not_conflict_with_other_documents,
    commit_that_conflicts_applies_nothing,
    commit_refuses_a_taken_unique_key,
    commit_conflicts_if_a_unique_key_was_taken_after_the_snapshot,
    commit_that_violates_unique_applies_nothing,
    commit_may_swap_unique_keys,
    commit_may_hand_on_a_unique_key,
    commit_refuses_two_puts_of_the_same_unique_key,
    commit_keeps_indexes_in_step,
    commit_may_say_what_was_before,
    commit_keeps_fields_as_they_are,
    commit_refuses_a_document_with_another_id,
    commit_takes_nan_for_an_id,
    commit_first_committer_wins,
    commit_prevents_lost_updates,
    commit_is_seen_whole,
}

fn put(document: RawDocumentBuf) -> BatchWrite {
    let id = document.get("_id").ok().flatten().map_or(RawBson::Null, RawBson::from);
    BatchWrite::new(c(), id, DocumentWrite::Put(document))
}

fn remove(id: impl Into<RawBson>) -> BatchWrite {
    BatchWrite::new(c(), id, DocumentWrite::Delete)
}

fn batch(read_at: CommitTimestamp, writes: Vec<BatchWrite>) -> AtomicBatch {
    AtomicBatch { writes, ..AtomicBatch::new(read_at) }
}

async fn now(s: &Subject) -> Result<CommitTimestamp, Failure> {
    Ok(s.atomic_store()?.snapshot().await?.timestamp())
}

async fn commit(s: &Subject, writes: Vec<BatchWrite>) -> Result<CommitTimestamp, Failure> {
    let read_at = now(s).await?;
    Ok(s.atomic_store()?.commit(batch(read_at, writes)).await?)
}

/// Checks that a batch conflicts, whether or not it says which document its snapshot has.
async fn conflicts_at(s: &Subject, read_at: CommitTimestamp, was: Before) -> Result<(), Failure> {
    let all = s.all().await?;
    for (nothing, was) in [(Before::Unread, Before::Unread), (Before::Nothing, was)] {
        let writes =
            vec![put(rawdoc! { "_id": 77, "n": 0 }).after(nothing), put(rawdoc! { "_id": 1, "n": -1 }).after(was)];
        let error = refused(s.atomic_store()?.commit(batch(read_at, writes)).await, Code::WriteConflict)?;
        ensure_eq!(error.applied(), Applied::No);
        ensure_eq!(s.all().await?, all);
    }
    Ok(())
}

fn document(n: i32) -> Before {
    Before::Document(Arc::new(rawdoc! { "_id": n, "n": n }))
}

async fn get(snapshot: &dyn Snapshot, id: i32) -> Result<Option<RawDocumentBuf>, Failure> {
    Ok(snapshot.get(&c(), RawBsonRef::Int32(id)).await?)
}

async fn snapshot_reads_what_is_there(s: &Subject) -> Result<(), Failure> {
    s.fill(numbered(3)).await?;
    let snapshot = s.atomic_store()?.snapshot().await?;
    ensure_eq!(get(&*snapshot, 1).await?, Some(rawdoc! { "_id": 1, "n": 1 }));
    ensure_eq!(get(&*snapshot, 9).await?, None);
    ensure_eq!(snapshot.get(&named("missing"), RawBsonRef::Int32(1)).await?, None);
    // Equal numbers are the same _id.
    ensure_eq!(snapshot.get(&c(), RawBsonRef::Double(1.0)).await?, Some(rawdoc! { "_id": 1, "n": 1 }));
    Ok(())
}

async fn unchanged(snapshot: &dyn Snapshot) -> Result<(), Failure> {
    ensure_eq!(get(snapshot, 1).await?, Some(rawdoc! { "_id": 1, "n": 1 }));
    ensure_eq!(get(snapshot, 2).await?, Some(rawdoc! { "_id": 2, "n": 2 }));
    ensure_eq!(get(snapshot, 100).await?, None);
    let mut found = ids(&drain(snapshot.find(Find::new(c(), rawdoc! {})).await?).await?)?;
    found.sort_unstable();
    ensure_eq!(found, (0..20).collect::<Vec<_>>());
    ensure_eq!(drain(snapshot.find(Find::new(c(), rawdoc! { "n": 100 })).await?).await?.len(), 0);
    Ok(())
}

async fn snapshot_does_not_see_later_writes(s: &Subject) -> Result<(), Failure> {
    s.index(IndexSpec::new(rawdoc! { "n": 1 })).await?;
    s.fill(numbered(20)).await?;
    let snapshot = s.atomic_store()?.snapshot().await?;
    s.update_one(id(1), rawdoc! { "$set": { "n": 100 } }).await?;
    s.delete(id(2), false).await?;
    s.fill([rawdoc! { "_id": 100, "n": 100 }]).await?;
    unchanged(&*snapshot).await
}

async fn snapshot_does_not_see_later_commits(s: &Subject) -> Result<(), Failure> {
    s.fill(numbered(20)).await?;
    let snapshot = s.atomic_store()?.snapshot().await?;
    let writes = vec![put(rawdoc! { "_id": 1, "n": 100 }), remove(2), put(rawdoc! { "_id": 100, "n": 100 })];
    commit(s, writes).await?;
    unchanged(&*snapshot).await
}

async fn snapshot_outlives_its_collection(s: &Subject) -> Result<(), Failure> {
    s.fill(numbered(20)).await?;
    let snapshot = s.atomic_store()?.snapshot().await?;
    s.store.drop_collection(&c()).await?;
    s.fill([rawdoc! { "_id": 1, "n": 100 }]).await?;
    unchanged(&*snapshot).await
}

async fn snapshot_find_filters_and_sorts(s: &Subject) -> Result<(), Failure> {
    s.fill(numbered(20)).await?;
    let snapshot = s.atomic_store()?.snapshot().await?;
    let find = Find {
        sort: rawdoc! { "n": -1 },
        skip: 1,
        limit: Some(2),
        projection: rawdoc! { "_id": 1 },
        ..Find::new(c(), rawdoc! { "n": { "$lt": 10 } })
    };
    ensure_eq!(drain(snapshot.find(find).await?).await?, [id(8), id(7)]);
    Ok(())
}

/// After any kind of change of a document, an older snapshot must not report it as unchanged.
async fn snapshot_knows_of_changes(s: &Subject) -> Result<(), Failure> {
    s.fill(numbered(5)).await?;
    let snapshot = s.atomic_store()?.snapshot().await?;
    let is_unchanged = |number| snapshot.is_unchanged(&c(), RawBsonRef::Int32(number));
    s.update_one(id(0), rawdoc! { "$set": { "n": 100 } }).await?;
    s.delete(id(1), false).await?;
    s.fill([id(100)]).await?;
    commit(s, vec![put(rawdoc! { "_id": 2, "n": 100 }), remove(3)]).await?;
    for changed in [0, 1, 100, 2, 3] {
        ensure!(!is_unchanged(changed), "the document {changed} was changed");
    }
    s.store.drop_collection(&c()).await?;
    ensure!(!is_unchanged(4), "its collection was dropped");
    let snapshot = s.atomic_store()?.snapshot().await?;
    s.fill([id(4)]).await?;
    ensure!(!snapshot.is_unchanged(&c(), RawBsonRef::Int32(4)), "it was inserted into a new collection");
    Ok(())
}

async fn snapshot_timestamps_grow_with_writes(s: &Subject) -> Result<(), Failure> {
    let mut last = now(s).await?;
    for n in 0..3 {
        s.fill([id(n)]).await?;
        let next = now(s).await?;
        ensure!(next > last, "{next:?} after {last:?}");
        last = next;
    }
    Ok(())
}

async fn commit_applies_all_writes(s: &Subject) -> Result<(), Failure> {
    let mut writes: Vec<_> = numbered(20).map(put).collect();
    writes.push(BatchWrite::new(named("other"), "x", DocumentWrite::Put(rawdoc! { "_id": "x" })));
    commit(s, writes).await?;
    ensure_eq!(s.ids(rawdoc! {}).await?, (0..20).collect::<Vec<_>>());
    ensure_eq!(s.find(Find::new(named("other"), rawdoc! {})).await?, [id("x")]);
    Ok(())
}

async fn commit_of_nothing_is_accepted(s: &Subject) -> Result<(), Failure> {
    let before = now(s).await?;
    ensure!(commit(s, vec![]).await? >= before, "time went back");
    Ok(())
}

async fn commit_makes_collections(s: &Subject) -> Result<(), Failure> {
    commit(s, vec![put(id(1))]).await?;
    ensure_eq!(s.store.list_collections("conformance").await?.len(), 1);
    ensure_eq!(s.store.list_indexes(&c()).await?.len(), 1);
    Ok(())
}

async fn commit_returns_growing_timestamps(s: &Subject) -> Result<(), Failure> {
    let mut last = now(s).await?;
    for n in 0..5 {
        let next = commit(s, vec![put(id(n))]).await?;
        ensure!(next > last, "{next:?} after {last:?}");
        last = next;
    }
    Ok(())
}

async fn commit_is_seen_by_later_snapshots(s: &Subject) -> Result<(), Failure> {
    let committed = commit(s, vec![put(id(1))]).await?;
    let snapshot = s.atomic_store()?.snapshot().await?;
    ensure!(snapshot.timestamp() >= committed, "{:?} after {committed:?}", snapshot.timestamp());
    ensure_eq!(get(&*snapshot, 1).await?, Some(id(1)));
    Ok(())
}

async fn commit_puts_over_and_deletes(s: &Subject) -> Result<(), Failure> {
    s.fill(numbered(4)).await?;
    commit(s, vec![put(rawdoc! { "_id": 1, "new": true }), remove(2)]).await?;
    let expected = [rawdoc! { "_id": 0, "n": 0 }, rawdoc! { "_id": 1, "new": true }, rawdoc! { "_id": 3, "n": 3 }];
    ensure_eq!(s.all().await?, expected);
    Ok(())
}

async fn commit_of_a_delete_of_nothing_is_accepted(s: &Subject) -> Result<(), Failure> {
    commit(s, vec![remove(1)]).await?;
    ensure_eq!(s.all().await?.len(), 0);
    Ok(())
}

async fn commit_conflicts_with_a_later_update(s: &Subject) -> Result<(), Failure> {
    s.fill(numbered(3)).await?;
    let read_at = now(s).await?;
    s.update_one(id(1), rawdoc! { "$set": { "n": 5 } }).await?;
    conflicts_at(s, read_at, document(1)).await
}

async fn commit_conflicts_with_a_later_delete(s: &Subject) -> Result<(), Failure> {
    s.fill(numbered(3)).await?;
    let read_at = now(s).await?;
    s.delete(id(1), false).await?;
    conflicts_at(s, read_at, document(1)).await
}

async fn commit_conflicts_with_a_later_insert(s: &Subject) -> Result<(), Failure> {
    s.fill([id(0)]).await?;
    let read_at = now(s).await?;
    s.fill([rawdoc! { "_id": 1, "n": 1 }]).await?;
    conflicts_at(s, read_at, Before::Nothing).await
}

async fn commit_conflicts_with_an_insert_that_was_deleted(s: &Subject) -> Result<(), Failure> {
    s.fill([id(0)]).await?;
    let read_at = now(s).await?;
    s.fill([rawdoc! { "_id": 1, "n": 1 }]).await?;
    s.delete(id(1), false).await?;
    conflicts_at(s, read_at, Before::Nothing).await
}

async fn commit_conflicts_with_another_commit(s: &Subject) -> Result<(), Failure> {
    s.fill(numbered(3)).await?;
    let read_at = now(s).await?;
    commit(s, vec![put(rawdoc! { "_id": 1, "n": 5 })]).await?;
    conflicts_at(s, read_at, document(1)).await
}

async fn commit_conflicts_with_a_drop(s: &Subject) -> Result<(), Failure> {
    s.fill(numbered(3)).await?;
    let read_at = now(s).await?;
    s.store.drop_collection(&c()).await?;
    conflicts_at(s, read_at, document(1)).await?;
    ensure_eq!(s.all().await?.len(), 0);
    // A new collection has the same name and the same documents.
    s.fill(numbered(3)).await?;
    conflicts_at(s, read_at, document(1)).await
}

async fn commit_conflicts_with_a_rename(s: &Subject) -> Result<(), Failure> {
    s.fill(numbered(3)).await?;
    let other = named("other");
    s.store.insert(Insert::new(other.clone(), numbered(3).collect())).await?;
    let read_at = now(s).await?;
    s.store.rename_collection(RenameCollection { from: other, to: c(), drop_target: true }).await?;
    conflicts_at(s, read_at, document(1)).await
}

async fn commit_does_not_conflict_with_other_documents(s: &Subject) -> Result<(), Failure> {
    s.fill(numbered(3)).await?;
    let read_at = now(s).await?;
    s.update_one(id(2), rawdoc! { "$set": { "n": 5 } }).await?;
    s.atomic_store()?.commit(batch(read_at, vec![put(rawdoc! { "_id": 1, "n": 6 })])).await?;
    ensure_eq!(ints(&s.all().await?, "n")?, [0, 6, 5]);
    Ok(())
}

async fn commit_that_conflicts_applies_nothing(s: &Subject) -> Result<(), Failure> {
    s.fill(numbered(10)).await?;
    let read_at = now(s).await?;
    s.update_one(id(5), rawdoc! { "$set": { "n": 55 } }).await?;
    let before = s.all().await?;
    let mut writes: Vec<_> = (0..10).map(|n| put(rawdoc! { "_id": n, "n": -1 })).collect();
    writes.push(put(rawdoc! { "_id": 50, "n": -1 }));
    refused(s.atomic_store()?.commit(batch(read_at, writes)).await, Code::WriteConflict)?;
    ensure_eq!(s.all().await?, before);
    Ok(())
}

async fn with_unique_index(s: &Subject) -> Result<(), Failure> {
    s.index(IndexSpec { unique: true, ..IndexSpec::new(rawdoc! { "n": 1 }) }).await?;
    s.fill(numbered(5)).await
}

async fn commit_refuses_a_taken_unique_key(s: &Subject) -> Result<(), Failure> {
    with_unique_index(s).await?;
    let read_at = now(s).await?;
    let writes = vec![put(rawdoc! { "_id": 9, "n": 3 })];
    let error = refused(s.atomic_store()?.commit(batch(read_at, writes)).await, Code::DuplicateKey)?;
    let text = "E11000 duplicate key error collection: conformance.c index: n_1 dup key: { n: 3 }";
    ensure_eq!(error.message(), text);
    Ok(())
}

async fn commit_conflicts_if_a_unique_key_was_taken_after_the_snapshot(s: &Subject) -> Result<(), Failure> {
    with_unique_index(s).await?;
    let read_at = now(s).await?;
    // The batch could not see this key: a new attempt reads it, and may choose another one.
    s.fill([rawdoc! { "_id": 8, "n": 80 }]).await?;
    let writes = |n: i32| vec![put(rawdoc! { "_id": 9, "n": n }), remove(0)];
    refused(s.atomic_store()?.commit(batch(read_at, writes(80))).await, Code::WriteConflict)?;
    // A new attempt does not help if two documents of the batch have the same key.
    let both = vec![put(rawdoc! { "_id": 9, "n": 90 }), put(rawdoc! { "_id": 10, "n": 90 })];
    refused(s.atomic_store()?.commit(batch(read_at, both)).await, Code::DuplicateKey)?;
    refused(s.atomic_store()?.commit(batch(now(s).await?, writes(80))).await, Code::DuplicateKey)?;
    ensure_eq!(s.ids(rawdoc! {}).await?, [0, 1, 2, 3, 4, 8]);
    Ok(())
}

async fn commit_that_violates_unique_applies_nothing(s: &Subject) -> Result<(), Failure> {
    with_unique_index(s).await?;
    let read_at = now(s).await?;
    let writes = vec![put(rawdoc! { "_id": 8, "n": 80 }), remove(0), put(rawdoc! { "_id": 9, "n": 3 })];
    refused(s.atomic_store()?.commit(batch(read_at, writes)).await, Code::DuplicateKey)?;
    ensure_eq!(s.all().await?, numbered(5).collect::<Vec<_>>());
    // The refused batch has neither taken nor released a key.
    s.fill([rawdoc! { "_id": 10, "n": 80 }]).await?;
    let taken = s.insert_one(rawdoc! { "_id": 11, "n": 0 }).await?;
    ensure!(taken.is_some(), "the key of the document that stayed is free");
    Ok(())
}

async fn commit_may_swap_unique_keys(s: &Subject) -> Result<(), Failure> {
    with_unique_index(s).await?;
    commit(s, vec![put(rawdoc! { "_id": 1, "n": 2 }), put(rawdoc! { "_id": 2, "n": 1 })]).await?;
    ensure_eq!(s.ids(rawdoc! { "n": 1 }).await?, [2]);
    ensure_eq!(s.ids(rawdoc! { "n": 2 }).await?, [1]);
    Ok(())
}

async fn commit_may_hand_on_a_unique_key(s: &Subject) -> Result<(), Failure> {
    with_unique_index(s).await?;
    commit(s, vec![put(rawdoc! { "_id": 9, "n": 1 }), remove(1)]).await?;
    ensure_eq!(s.ids(rawdoc! { "n": 1 }).await?, [9]);
    Ok(())
}

async fn commit_refuses_two_puts_of_the_same_unique_key(s: &Subject) -> Result<(), Failure> {
    with_unique_index(s).await?;
    let read_at = now(s).await?;
    let writes = vec![put(rawdoc! { "_id": 8, "n": 80 }), put(rawdoc! { "_id": 9, "n": 80 })];
    refused(s.atomic_store()?.commit(batch(read_at, writes)).await, Code::DuplicateKey)?;
    ensure_eq!(s.all().await?.len(), 5);
    Ok(())
}

async fn commit_keeps_indexes_in_step(s: &Subject) -> Result<(), Failure> {
    s.index(IndexSpec::new(rawdoc! { "n": 1 })).await?;
    s.fill(numbered(5)).await?;
    commit(s, vec![put(rawdoc! { "_id": 1, "n": 30 }), remove(2), put(rawdoc! { "_id": 9, "n": 31 })]).await?;
    let hint = Some(Hint::Name("n_1".to_owned()));
    let find = Find { hint, sort: rawdoc! { "n": 1 }, ..Find::new(c(), rawdoc! { "n": { "$gte": 0 } }) };
    ensure_eq!(ints(&s.find(find).await?, "n")?, [0, 3, 4, 30, 31]);
    ensure_eq!(s.store.collection_stats(&c()).await?.count, 5);
    Ok(())
}

async fn commit_may_say_what_was_before(s: &Subject) -> Result<(), Failure> {
    with_unique_index(s).await?;
    let read_at = now(s).await?;
    let writes = vec![
        put(rawdoc! { "_id": 1, "n": 30 }).after(document(1)),
        remove(2).after(document(2)),
        put(rawdoc! { "_id": 9, "n": 31 }).after(Before::Nothing),
        // This write does not give the version in the snapshot.
        put(rawdoc! { "_id": 3, "n": 2 }),
    ];
    s.atomic_store()?.commit(batch(read_at, writes)).await?;
    for (n, holder) in
        [(0, vec![0]), (1, vec![]), (2, vec![3]), (3, vec![]), (4, vec![4]), (30, vec![1]), (31, vec![9])]
    {
        ensure_eq!(s.ids(rawdoc! { "n": n }).await?, holder);
    }
    ensure_eq!(s.store.collection_stats(&c()).await?.count, 5);
    ensure_eq!(s.store.check_collection(&c()).await?.errors, []);
    s.fill([rawdoc! { "_id": 10, "n": 1 }]).await
}

async fn commit_keeps_fields_as_they_are(s: &Subject) -> Result<(), Failure> {
    let document = rawdoc! { "_id": 1, "z": [1, { "y": null }], "a": 2.5 };
    commit(s, vec![put(document.clone())]).await?;
    ensure_eq!(s.all().await?, [document]);
    Ok(())
}

async fn commit_refuses_a_document_with_another_id(s: &Subject) -> Result<(), Failure> {
    let read_at = now(s).await?;
    let wrong = vec![BatchWrite::new(c(), 1, DocumentWrite::Put(id(2)))];
    let result = s.atomic_store()?.commit(batch(read_at, wrong)).await;
    ensure!(result.is_err(), "a document was committed under another _id");
    ensure_eq!(s.all().await?.len(), 0);
    Ok(())
}

async fn commit_takes_nan_for_an_id(s: &Subject) -> Result<(), Failure> {
    for n in 0..2 {
        commit(s, vec![put(rawdoc! { "_id": f64::NAN, "n": n })]).await?;
        ensure_eq!(ints(&s.all().await?, "n")?, [n]);
    }
    Ok(())
}

async fn commit_first_committer_wins(s: &Subject) -> Result<(), Failure> {
    s.fill(numbered(3)).await?;
    for round in 0..10 {
        let read_at = now(s).await?;
        let store = s.atomic_store()?;
        let mut tasks = tokio::task::JoinSet::new();
        for task in 0..6 {
            let store = Arc::clone(store);
            let writes = vec![put(rawdoc! { "_id": 1, "n": round * 10 + task }), put(rawdoc! { "_id": 100 + task })];
            tasks.spawn(async move { store.commit(batch(read_at, writes)).await });
        }
        let mut won = 0;
        while let Some(result) = tasks.join_next().await {
            match result? {
                Ok(_) => won += 1,
                Err(error) => ensure_eq!(error.code(), Code::WriteConflict),
            }
        }
        ensure_eq!(won, 1);
    }
    Ok(())
}

/// Tasks read a number, add one and commit, and begin again after a conflict. The sum counts every commit.
async fn commit_prevents_lost_updates(s: &Subject) -> Result<(), Failure> {
    s.fill([rawdoc! { "_id": 1, "n": 0 }]).await?;
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..6 {
        let store = Arc::clone(s.atomic_store()?);
        tasks.spawn(async move {
            let mut done = 0;
            while done < 15 {
                let snapshot = store.snapshot().await?;
                let Some(document) = get(&*snapshot, 1).await? else {
                    return Err(Failure::new(line!(), "the document is gone".to_owned()));
                };
                let next = put(rawdoc! { "_id": 1, "n": document.get_i32("n")? + 1 });
                match store.commit(batch(snapshot.timestamp(), vec![next])).await {
                    Ok(_) => done += 1,
                    Err(error) => ensure_eq!(error.code(), Code::WriteConflict),
                }
            }
            Ok(())
        });
    }
    while let Some(result) = tasks.join_next().await {
        result??;
    }
    ensure_eq!(s.all().await?, [rawdoc! { "_id": 1, "n": 90 }]);
    Ok(())
}

/// A writer keeps the same number in ten documents; no snapshot and no cursor shows two numbers.
async fn commit_is_seen_whole(s: &Subject) -> Result<(), Failure> {
    s.fill((0..10).map(|n| rawdoc! { "_id": n, "n": 0 })).await?;
    let store = Arc::clone(s.atomic_store()?);
    let writer = tokio::spawn(async move {
        for round in 1..60 {
            let read_at = store.snapshot().await?.timestamp();
            let writes = (0..10).map(|n| put(rawdoc! { "_id": n, "n": round })).collect();
            store.commit(batch(read_at, writes)).await?;
        }
        Ok::<_, Failure>(())
    });
    while !writer.is_finished() {
        let snapshot = s.atomic_store()?.snapshot().await?;
        for cursor in
            [snapshot.find(Find::new(c(), rawdoc! {})).await?, s.store.find(Find::new(c(), rawdoc! {})).await?]
        {
            let mut values = ints(&drain(cursor).await?, "n")?;
            ensure_eq!(values.len(), 10);
            values.dedup();
            ensure_eq!(values.len(), 1);
        }
        tokio::task::yield_now().await;
    }
    writer.await?
}
