//! Batches with reads, and the collections that batches create.

use std::sync::Arc;

use bson::{RawBson, RawDocumentBuf, rawdoc};
use handfast_mql::Code;

use super::subject::{Failure, Subject, c, id, ints, named, numbered, refused};
use super::{ensure, ensure_eq, list_cases};
use crate::{
    Applied, AtomicBatch, BatchWrite, CollectionOptions, CommitTimestamp, Creation, DocumentWrite, Error, Find, Hint,
    IndexSpec, Read, RenameCollection, Result, Snapshot,
};

list_cases! { Atomic:
    read_of_a_document_conflicts_with_its_update,
    read_of_a_document_conflicts_with_its_delete,
    read_of_no_document_conflicts_with_an_insert,
    read_of_a_document_does_not_conflict_with_others,
    read_of_a_range_conflicts_with_a_phantom,
    read_of_a_range_conflicts_with_a_document_that_enters,
    read_of_a_range_conflicts_with_a_document_that_leaves,
    read_of_a_range_conflicts_with_a_change_inside,
    read_of_a_range_conflicts_with_a_delete,
    read_of_a_range_conflicts_with_a_commit,
    read_of_a_range_conflicts_with_a_collection_that_comes,
    read_of_a_range_conflicts_with_a_drop,
    read_of_a_range_conflicts_with_a_rename,
    read_of_a_range_does_not_conflict_with_what_is_outside,
    read_of_a_range_does_not_conflict_with_other_collections,
    read_of_a_range_does_not_conflict_with_what_was_refused,
    read_of_a_range_takes_variables,
    read_of_a_range_refuses_an_unknown_operator,
    read_that_conflicts_applies_nothing,
    reads_prevent_write_skew,
    creation_makes_a_collection_with_its_indexes,
    creation_is_there_for_the_writes_of_its_batch,
    creation_conflicts_with_a_collection_that_is_there,
    creation_that_is_refused_leaves_nothing,
    creation_happens_once,
}

fn put(document: RawDocumentBuf) -> BatchWrite {
    let id = document.get("_id").ok().flatten().map_or(RawBson::Null, RawBson::from);
    BatchWrite::new(c(), id, DocumentWrite::Put(document))
}

/// Returns a batch that writes a document which no other case uses.
fn batch(read_at: CommitTimestamp, reads: Vec<Read>) -> AtomicBatch {
    AtomicBatch { reads, writes: vec![put(rawdoc! { "_id": "mine" })], ..AtomicBatch::new(read_at) }
}

fn document(id: impl Into<RawBson>) -> Vec<Read> {
    vec![Read::Document(c(), id.into())]
}

fn range(filter: RawDocumentBuf) -> Vec<Read> {
    vec![Read::Matching { namespace: c(), filter, variables: rawdoc! {} }]
}

/// Returns the read of the range `n` from 10 to 19.
fn tens() -> Vec<Read> {
    range(rawdoc! { "n": { "$gte": 10, "$lt": 20 } })
}

async fn filled(s: &Subject) -> Result<Box<dyn Snapshot>, Failure> {
    s.fill(numbered(30)).await?;
    known(s).await
}

/// Opens a snapshot after a batch with a range read: from then on the store has to remember changes.
async fn known(s: &Subject) -> Result<Box<dyn Snapshot>, Failure> {
    let store = s.atomic_store()?;
    let read_at = store.snapshot().await?.timestamp();
    let reads = range(rawdoc! { "n": -1 });
    store.commit(AtomicBatch { reads, ..AtomicBatch::new(read_at) }).await?;
    Ok(store.snapshot().await?)
}

async fn conflicts(s: &Subject, snapshot: &dyn Snapshot, reads: Vec<Read>) -> Result<(), Failure> {
    let error = refused(s.atomic_store()?.commit(batch(snapshot.timestamp(), reads)).await, Code::WriteConflict)?;
    ensure_eq!(error.applied(), Applied::No);
    ensure_eq!(s.matching(id("mine")).await?, []);
    Ok(())
}

async fn commits(s: &Subject, snapshot: &dyn Snapshot, reads: Vec<Read>) -> Result<(), Failure> {
    s.atomic_store()?.commit(batch(snapshot.timestamp(), reads)).await?;
    ensure_eq!(s.matching(id("mine")).await?.len(), 1);
    Ok(())
}

async fn set(s: &Subject, of: i32, n: i32) -> Result<(), Failure> {
    s.update_one(id(of), rawdoc! { "$set": { "n": n } }).await.map(|_| ())
}

async fn read_of_a_document_conflicts_with_its_update(s: &Subject) -> Result<(), Failure> {
    let snapshot = filled(s).await?;
    set(s, 1, 100).await?;
    conflicts(s, &*snapshot, document(1)).await
}

async fn read_of_a_document_conflicts_with_its_delete(s: &Subject) -> Result<(), Failure> {
    let snapshot = filled(s).await?;
    s.delete(id(1), false).await?;
    conflicts(s, &*snapshot, document(1)).await
}

async fn read_of_no_document_conflicts_with_an_insert(s: &Subject) -> Result<(), Failure> {
    let snapshot = filled(s).await?;
    s.fill([id(100)]).await?;
    conflicts(s, &*snapshot, document(100)).await
}

async fn read_of_a_document_does_not_conflict_with_others(s: &Subject) -> Result<(), Failure> {
    let snapshot = filled(s).await?;
    set(s, 1, 100).await?;
    commits(s, &*snapshot, document(2)).await
}

async fn read_of_a_range_conflicts_with_a_phantom(s: &Subject) -> Result<(), Failure> {
    let snapshot = filled(s).await?;
    s.fill([rawdoc! { "_id": 100, "n": 15 }]).await?;
    conflicts(s, &*snapshot, tens()).await
}

async fn read_of_a_range_conflicts_with_a_document_that_enters(s: &Subject) -> Result<(), Failure> {
    let snapshot = filled(s).await?;
    set(s, 1, 15).await?;
    conflicts(s, &*snapshot, tens()).await
}

async fn read_of_a_range_conflicts_with_a_document_that_leaves(s: &Subject) -> Result<(), Failure> {
    let snapshot = filled(s).await?;
    set(s, 15, 100).await?;
    conflicts(s, &*snapshot, tens()).await
}

async fn read_of_a_range_conflicts_with_a_change_inside(s: &Subject) -> Result<(), Failure> {
    let snapshot = filled(s).await?;
    s.update_one(id(15), rawdoc! { "$set": { "other": 1 } }).await?;
    conflicts(s, &*snapshot, tens()).await
}

async fn read_of_a_range_conflicts_with_a_delete(s: &Subject) -> Result<(), Failure> {
    let snapshot = filled(s).await?;
    s.delete(id(15), false).await?;
    conflicts(s, &*snapshot, tens()).await
}

async fn read_of_a_range_conflicts_with_a_commit(s: &Subject) -> Result<(), Failure> {
    let snapshot = filled(s).await?;
    let writes = vec![put(rawdoc! { "_id": 1, "n": 1 }), BatchWrite::new(c(), 15, DocumentWrite::Delete)];
    s.atomic_store()?.commit(AtomicBatch { writes, ..AtomicBatch::new(snapshot.timestamp()) }).await?;
    conflicts(s, &*snapshot, tens()).await
}

async fn read_of_a_range_conflicts_with_a_collection_that_comes(s: &Subject) -> Result<(), Failure> {
    let snapshot = known(s).await?;
    s.fill([rawdoc! { "_id": 1, "n": 15 }]).await?;
    conflicts(s, &*snapshot, tens()).await
}

async fn read_of_a_range_conflicts_with_a_drop(s: &Subject) -> Result<(), Failure> {
    let snapshot = filled(s).await?;
    s.store.drop_collection(&c()).await?;
    conflicts(s, &*snapshot, tens()).await?;
    // A new collection of this name has equal documents, which are not the ones that were read.
    s.fill(numbered(30)).await?;
    conflicts(s, &*snapshot, tens()).await
}

/// A rename adds documents to one range and removes them from another without changing any document.
async fn read_of_a_range_conflicts_with_a_rename(s: &Subject) -> Result<(), Failure> {
    s.fill_in(&named("old"), [rawdoc! { "_id": 1, "n": 15 }]).await?;
    let snapshot = known(s).await?;
    let rename = RenameCollection { from: named("old"), to: c(), drop_target: false };
    s.store.rename_collection(rename).await?;
    conflicts(s, &*snapshot, tens()).await?;
    conflicts(s, &*snapshot, document(1)).await?;
    let old = Read::Matching { namespace: named("old"), filter: rawdoc! {}, variables: rawdoc! {} };
    conflicts(s, &*snapshot, vec![old]).await
}

async fn read_of_a_range_does_not_conflict_with_what_is_outside(s: &Subject) -> Result<(), Failure> {
    let snapshot = filled(s).await?;
    set(s, 1, 9).await?;
    set(s, 25, 20).await?;
    s.delete(id(2), false).await?;
    s.fill([rawdoc! { "_id": 100, "n": 100 }]).await?;
    commits(s, &*snapshot, tens()).await
}

async fn read_of_a_range_does_not_conflict_with_other_collections(s: &Subject) -> Result<(), Failure> {
    let snapshot = filled(s).await?;
    s.fill_in(&named("other"), [rawdoc! { "_id": 1, "n": 15 }]).await?;
    commits(s, &*snapshot, tens()).await
}

async fn read_of_a_range_does_not_conflict_with_what_was_refused(s: &Subject) -> Result<(), Failure> {
    s.index(IndexSpec { unique: true, ..IndexSpec::new(rawdoc! { "u": 1 }) }).await?;
    s.fill((0..30).map(|n| rawdoc! { "_id": n, "n": n, "u": n })).await?;
    let snapshot = known(s).await?;
    let writes = vec![put(rawdoc! { "_id": 15, "n": 100, "u": 15 }), put(rawdoc! { "_id": 100, "n": 16, "u": 3 })];
    let refusal = AtomicBatch { writes, ..AtomicBatch::new(snapshot.timestamp()) };
    refused(s.atomic_store()?.commit(refusal).await, Code::DuplicateKey)?;
    commits(s, &*snapshot, tens()).await?;
    // A later change is still noticed.
    let snapshot = s.atomic_store()?.snapshot().await?;
    set(s, 15, 100).await?;
    let writes = vec![put(rawdoc! { "_id": 100, "n": 16, "u": 3 })];
    let refusal = AtomicBatch { writes, ..AtomicBatch::new(snapshot.timestamp()) };
    refused(s.atomic_store()?.commit(refusal).await, Code::DuplicateKey)?;
    let again = AtomicBatch { reads: tens(), ..AtomicBatch::new(snapshot.timestamp()) };
    refused(s.atomic_store()?.commit(again).await, Code::WriteConflict)?;
    Ok(())
}

async fn read_of_a_range_takes_variables(s: &Subject) -> Result<(), Failure> {
    let reads = || {
        let filter = rawdoc! { "$expr": { "$eq": ["$n", "$$wanted"] } };
        vec![Read::Matching { namespace: c(), filter, variables: rawdoc! { "wanted": 15 } }]
    };
    let snapshot = filled(s).await?;
    set(s, 14, 100).await?;
    commits(s, &*snapshot, reads()).await?;
    s.delete(id("mine"), false).await?;
    let snapshot = s.atomic_store()?.snapshot().await?;
    set(s, 13, 15).await?;
    conflicts(s, &*snapshot, reads()).await
}

async fn read_of_a_range_refuses_an_unknown_operator(s: &Subject) -> Result<(), Failure> {
    let snapshot = filled(s).await?;
    let unknown = batch(snapshot.timestamp(), range(rawdoc! { "n": { "$frobnicate": 1 } }));
    refused(s.atomic_store()?.commit(unknown).await, Code::BadValue)?;
    Ok(())
}

async fn read_that_conflicts_applies_nothing(s: &Subject) -> Result<(), Failure> {
    let snapshot = filled(s).await?;
    set(s, 15, 100).await?;
    let before = s.all().await?;
    let creations = vec![Creation { namespace: named("made"), ..creation(vec![]).remove(0) }];
    let writes = vec![put(rawdoc! { "_id": 1, "n": -1 }), BatchWrite::new(c(), 2, DocumentWrite::Delete)];
    let batch = AtomicBatch { reads: tens(), creations, writes, ..AtomicBatch::new(snapshot.timestamp()) };
    refused(s.atomic_store()?.commit(batch).await, Code::WriteConflict)?;
    // A batch that only reads is refused as well.
    let batch = AtomicBatch { reads: tens(), ..AtomicBatch::new(snapshot.timestamp()) };
    refused(s.atomic_store()?.commit(batch).await, Code::WriteConflict)?;
    ensure_eq!(s.all().await?, before);
    ensure_eq!(s.store.list_collections("conformance").await?.len(), 1);
    Ok(())
}

/// Two doctors are on call, and each leaves if the other is on call.
async fn reads_prevent_write_skew(s: &Subject) -> Result<(), Failure> {
    let on_call = || rawdoc! { "on_call": true };
    for round in 0..10 {
        s.fill((0..2).map(|n| rawdoc! { "_id": round * 10 + n, "round": round, "on_call": true })).await?;
        let mut doctors = tokio::task::JoinSet::new();
        for n in 0..2 {
            let store = Arc::clone(s.atomic_store()?);
            doctors.spawn(async move {
                let read_at = store.snapshot().await?.timestamp();
                let filter = rawdoc! { "round": round, "on_call": true };
                let reads = vec![Read::Matching { namespace: c(), filter, variables: rawdoc! {} }];
                let writes = vec![put(rawdoc! { "_id": round * 10 + n, "round": round, "on_call": false })];
                tokio::task::yield_now().await;
                store.commit(AtomicBatch { reads, writes, ..AtomicBatch::new(read_at) }).await
            });
        }
        let mut gone = 0;
        while let Some(result) = doctors.join_next().await {
            match result? {
                Ok(_) => gone += 1,
                Err(error) => ensure_eq!(error.code(), Code::WriteConflict),
            }
        }
        // The second one may have read after the first one committed: then it saw one doctor, and took itself off.
        let left = s.matching(rawdoc! { "round": round, "on_call": true }).await?.len();
        ensure_eq!(left, 2 - gone);
        ensure!(gone >= 1, "both were refused");
    }
    // Of two batches from one snapshot, at most one commits.
    s.delete(rawdoc! {}, true).await?;
    s.fill((0..2).map(|n| rawdoc! { "_id": n, "on_call": true })).await?;
    let snapshot = s.atomic_store()?.snapshot().await?;
    let leave = |n: i32| {
        let writes = vec![put(rawdoc! { "_id": n, "on_call": false })];
        AtomicBatch { reads: range(on_call()), writes, ..AtomicBatch::new(snapshot.timestamp()) }
    };
    s.atomic_store()?.commit(leave(0)).await?;
    refused(s.atomic_store()?.commit(leave(1)).await, Code::WriteConflict)?;
    ensure_eq!(s.ids(on_call()).await?, [1]);
    Ok(())
}

fn creation(indexes: Vec<IndexSpec>) -> Vec<Creation> {
    vec![Creation { namespace: c(), options: CollectionOptions::default(), indexes, uuid: [3; 16] }]
}

fn unique() -> Vec<IndexSpec> {
    vec![IndexSpec { unique: true, ..IndexSpec::new(rawdoc! { "n": 1 }) }]
}

async fn create(s: &Subject, indexes: Vec<IndexSpec>, documents: &[RawDocumentBuf]) -> crate::Result<CommitTimestamp> {
    let lacks = |failure: Failure| Error::command(Code::InternalError, failure.to_string());
    let store = s.atomic_store().map_err(lacks)?;
    let read_at = store.snapshot().await?.timestamp();
    let writes = documents.iter().cloned().map(put).collect();
    store.commit(AtomicBatch { creations: creation(indexes), writes, ..AtomicBatch::new(read_at) }).await
}

async fn creation_makes_a_collection_with_its_indexes(s: &Subject) -> Result<(), Failure> {
    create(s, unique(), &[]).await?;
    let collections = s.store.list_collections("conformance").await?;
    ensure_eq!(collections.iter().map(|collection| collection.uuid).collect::<Vec<_>>(), [[3; 16]]);
    let indexes = s.store.list_indexes(&c()).await?;
    ensure_eq!(indexes.iter().map(|index| index.spec.name.as_str()).collect::<Vec<_>>(), ["_id_", "n_1"]);
    ensure!(indexes[1].spec.unique, "the index is not unique");
    Ok(())
}

async fn creation_is_there_for_the_writes_of_its_batch(s: &Subject) -> Result<(), Failure> {
    create(s, unique(), &numbered(5).collect::<Vec<_>>()).await?;
    let hint = Some(Hint::Name("n_1".to_owned()));
    let find = Find { hint, sort: rawdoc! { "n": 1 }, ..Find::new(c(), rawdoc! { "n": { "$gte": 2 } }) };
    ensure_eq!(ints(&s.find(find).await?, "n")?, [2, 3, 4]);
    ensure!(s.insert_one(rawdoc! { "_id": 100, "n": 3 }).await?.is_some(), "the unique key is free");
    Ok(())
}

async fn creation_conflicts_with_a_collection_that_is_there(s: &Subject) -> Result<(), Failure> {
    let read_at = s.atomic_store()?.snapshot().await?.timestamp();
    s.store.create_collection(&c(), CollectionOptions::default()).await?;
    let batch = AtomicBatch { creations: creation(unique()), ..batch(read_at, vec![]) };
    refused(s.atomic_store()?.commit(batch).await, Code::WriteConflict)?;
    ensure_eq!(s.all().await?, []);
    ensure_eq!(s.store.list_indexes(&c()).await?.len(), 1);
    Ok(())
}

async fn creation_that_is_refused_leaves_nothing(s: &Subject) -> Result<(), Failure> {
    let twice = [rawdoc! { "_id": 1, "n": 1 }, rawdoc! { "_id": 2, "n": 1 }];
    refused(create(s, unique(), &twice).await, Code::DuplicateKey)?;
    ensure_eq!(s.store.list_collections("conformance").await?.len(), 0);
    refused(s.store.list_indexes(&c()).await, Code::NamespaceNotFound)?;
    create(s, unique(), &twice[..1]).await?;
    ensure_eq!(s.all().await?.len(), 1);
    Ok(())
}

async fn creation_happens_once(s: &Subject) -> Result<(), Failure> {
    let store = s.atomic_store()?;
    let read_at = store.snapshot().await?.timestamp();
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..6 {
        let store = Arc::clone(store);
        let writes = vec![put(rawdoc! { "_id": n, "n": n })];
        let batch = AtomicBatch { creations: creation(unique()), writes, ..AtomicBatch::new(read_at) };
        tasks.spawn(async move { store.commit(batch).await });
    }
    let mut won = 0;
    while let Some(result) = tasks.join_next().await {
        match result? {
            Ok(_) => won += 1,
            Err(error) => ensure_eq!(error.code(), Code::WriteConflict),
        }
    }
    ensure_eq!(won, 1);
    ensure_eq!(s.all().await?.len(), 1);
    Ok(())
}
