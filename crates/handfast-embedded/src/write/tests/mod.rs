//! The costs of writes, with and without tickets, and the removal of tickets' records while others write.

mod steps;

use std::sync::Arc;
use std::time::Duration;

use bson::{RawDocumentBuf, rawdoc};
use handfast_mql::Code;
use handfast_store::{
    AtomicBatch, AtomicStore, BatchWrite, Before, Delete, DeleteStatement, DocumentStore, DocumentWrite, FindAndModify,
    Insert, Modification, Read, RequestedDocument, Sources, Ticket, Update, UpdateSpec, UpdateStatement,
};

use crate::store::EmbeddedStore;
use crate::testing::{all, find_all, namespace, open};
use crate::{Costs, Options};

fn ticket(number: i64) -> Option<Ticket> {
    Some(Ticket { session: [1; 16], number, statement: 0, requested: RequestedDocument::Nothing })
}

fn increment(filter: RawDocumentBuf) -> UpdateStatement {
    UpdateStatement::one(filter, UpdateSpec::Document(rawdoc! { "$inc": { "n": 1 } }))
}

fn one(filter: RawDocumentBuf) -> DeleteStatement {
    DeleteStatement { filter, multi: false, hint: None }
}

async fn cost<T>(store: &EmbeddedStore, write: impl Future<Output = handfast_store::Result<T>>) -> Costs {
    let before = store.costs();
    write.await.unwrap();
    let after = store.costs();
    Costs {
        operations: after.operations - before.operations,
        syncs: after.syncs - before.syncs,
        reads: after.reads - before.reads,
    }
}

#[tokio::test]
async fn a_write_is_one_operation_and_one_sync_with_a_ticket_or_without() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path()).await;
    let documents = (0..20).map(|n| rawdoc! { "_id": n, "n": 0, "name": format!("name {n}") }).collect();
    store.insert(Insert::new(namespace(), documents)).await.unwrap();
    let once = Costs { operations: 1, syncs: 1, reads: 0 };
    let unwritten = Costs { operations: 1, syncs: 0, reads: 0 };
    for (filter, ticket) in [
        (rawdoc! { "_id": 1 }, None),
        (rawdoc! { "name": "name 2" }, None),
        (rawdoc! { "_id": 3 }, ticket(1)),
        (rawdoc! { "name": "name 4" }, ticket(2)),
    ] {
        let update = |filter| Update { ticket, ..Update::new(namespace(), vec![increment(filter)]) };
        assert_eq!(cost(&store, store.update(update(filter.clone()))).await, once, "{filter:?}");
        if ticket.is_some() {
            assert_eq!(cost(&store, store.update(update(filter))).await, unwritten);
        }
        let nothing = Update::new(namespace(), vec![increment(rawdoc! { "name": "nobody" })]);
        assert_eq!(cost(&store, store.update(nothing)).await, unwritten);
    }
    let delete = Delete { ticket: ticket(3), ..Delete::new(namespace(), vec![one(rawdoc! { "name": "name 5" })]) };
    assert_eq!(cost(&store, store.delete(delete.clone())).await, once);
    assert_eq!(cost(&store, store.delete(delete)).await, unwritten);
    let claim = FindAndModify::new(namespace(), rawdoc! { "n": 0 }, Modification::Remove);
    let claim = FindAndModify { ticket: ticket(4), ..claim };
    assert_eq!(cost(&store, store.find_and_modify(claim.clone())).await, once);
    assert_eq!(cost(&store, store.find_and_modify(claim)).await, unwritten);
    let many = Update { ticket: ticket(5), ..Update::new(namespace(), vec![increment(rawdoc! { "n": 0 }); 3]) };
    assert_eq!(cost(&store, store.update(many)).await, Costs { operations: 4, syncs: 1, reads: 0 });
    let documents: Vec<_> = (100..2600).map(|n| rawdoc! { "_id": n }).collect();
    let insert = Insert { ticket: ticket(6), ..Insert::new(namespace(), documents) };
    assert_eq!(cost(&store, store.insert(insert)).await, Costs { operations: 3, syncs: 1, reads: 0 });
}

#[tokio::test(flavor = "multi_thread")]
async fn records_of_tickets_that_were_renewed_are_not_removed_by_age() {
    let directory = tempfile::tempdir().unwrap();
    let (sources, clock) = Sources::manual(1);
    // A step has few documents, so that renewals come between the steps.
    let options = Options { step_documents_max: 3, ..Options::small() };
    let store = EmbeddedStore::open(directory.path(), sources.clone(), options).await.unwrap();
    store.insert(Insert::new(namespace(), vec![rawdoc! { "_id": 1, "n": 0 }])).await.unwrap();
    let write = async |session: u8, number: i64| {
        let ticket =
            Some(Ticket { session: [session; 16], number, statement: 0, requested: RequestedDocument::Nothing });
        let update = Update { ticket, ..Update::new(namespace(), vec![increment(rawdoc! { "_id": 1 })]) };
        assert_eq!(store.update(update).await.unwrap().modified, 1);
    };
    for session in 0..60 {
        write(session, 1).await;
    }
    clock.advance(Duration::from_secs(60));
    let old = rawdoc! { "at": { "$lt": sources.steady_now() } };
    let records = Ticket::namespace().unwrap();
    let removal = Delete::new(records.clone(), vec![DeleteStatement { multi: true, ..one(old) }]);
    let renewals = async {
        // The renewals begin at the end, as the removal begins at the other.
        for session in (30..60).rev() {
            write(session, 2).await;
        }
    };
    let (removed, ()) = tokio::join!(store.delete(removal), renewals);
    assert!((30..=60).contains(&removed.unwrap().deleted));
    let left = all(store.find(handfast_store::Find::new(records, rawdoc! {})).await.unwrap()).await;
    assert_eq!(left.len(), 30, "every renewed record is there, and no other");
    assert!(left.iter().all(|record| record.get_i64("number").unwrap() == 2));
    // Renewed tickets are still known.
    for session in 30..60 {
        write(session, 2).await;
    }
    assert_eq!(find_all(&store).await, [rawdoc! { "_id": 1, "n": 90 }]);
    store.close().await.unwrap();
}

/// A batch that contains the state of a document at the snapshot does not read that document again, unless it may have changed
/// since.
#[tokio::test]
async fn a_batch_reads_documents_again_whose_state_it_does_not_say_or_that_may_have_changed() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path()).await;
    let document = |id: i32, n: i32| rawdoc! { "_id": id, "n": n };
    store.insert(Insert::new(namespace(), (0..3).map(|id| document(id, 0)).collect())).await.unwrap();
    let put = |id: i32, n: i32| BatchWrite::new(namespace(), id, DocumentWrite::Put(document(id, n)));
    let was = |id: i32, n: i32| Before::Document(Arc::new(document(id, n)));
    for (before, reads) in [
        ([Before::Unread, Before::Unread, Before::Unread], 3),
        ([was(0, 1), Before::Unread, Before::Unread], 2),
        ([was(0, 2), Before::Unread, was(2, 2)], 1),
        ([was(0, 3), was(1, 3), was(2, 3)], 0),
    ] {
        let snapshot = store.snapshot().await.unwrap();
        let n = i32::try_from(3 - reads).unwrap() + 1;
        let writes = (0..3).zip(before).map(|(id, before)| put(id, n).after(before)).collect();
        let batch = AtomicBatch { writes, ..AtomicBatch::new(snapshot.timestamp()) };
        assert_eq!(cost(&store, store.commit(batch)).await, Costs { operations: 1, syncs: 1, reads });
    }
    // Another write comes between.
    let snapshot = store.snapshot().await.unwrap();
    store.update(Update::new(namespace(), vec![increment(rawdoc! { "_id": 0 })])).await.unwrap();
    let before = store.costs();
    let batch = AtomicBatch { writes: vec![put(0, 9).after(was(0, 4))], ..AtomicBatch::new(snapshot.timestamp()) };
    assert_eq!(store.commit(batch).await.unwrap_err().code(), Code::WriteConflict);
    assert_eq!(store.costs().reads - before.reads, 1);
}

/// Returns whether a batch that searched for `n` from 10 to 19 conflicts with a change of a document outside or inside of that.
async fn conflicts(store: &EmbeddedStore, outside: bool) -> bool {
    let snapshot = store.snapshot().await.unwrap();
    let id = if outside { 1 } else { 15 };
    let change = UpdateStatement::one(rawdoc! { "_id": id }, UpdateSpec::Document(rawdoc! { "$inc": { "other": 1 } }));
    store.update(Update::new(namespace(), vec![change])).await.unwrap();
    let filter = rawdoc! { "n": { "$gte": 10, "$lt": 20 } };
    let reads = vec![Read::Matching { namespace: namespace(), filter, variables: rawdoc! {} }];
    let committed = store.commit(AtomicBatch { reads, ..AtomicBatch::new(snapshot.timestamp()) }).await;
    committed.is_err_and(|error| error.code() == Code::WriteConflict)
}

#[tokio::test]
async fn searches_conflict_with_changed_matches_within_the_bound_of_the_log_and_with_any_change_beyond_it() {
    for (bytes, known) in [(1 << 20, true), (100, false)] {
        let directory = tempfile::tempdir().unwrap();
        let options = Options { read_log_bytes_max: bytes, ..Options::small() };
        let store = EmbeddedStore::open(directory.path(), Sources::seeded(1), options.clone()).await.unwrap();
        let documents = (0..30).map(|n| rawdoc! { "_id": n, "n": n }).collect();
        store.insert(Insert::new(namespace(), documents)).await.unwrap();
        assert!(conflicts(&store, true).await, "before the first search nothing is kept");
        assert_eq!(conflicts(&store, true).await, !known, "{bytes}");
        assert!(conflicts(&store, false).await, "{bytes}");
        // The log has nothing from before the opening.
        let read_at = store.snapshot().await.unwrap().timestamp();
        store.close().await.unwrap();
        let store = EmbeddedStore::open(directory.path(), Sources::seeded(1), options).await.unwrap();
        assert!(conflicts(&store, true).await);
        let filter = rawdoc! { "n": 10 };
        let reads = vec![Read::Matching { namespace: namespace(), filter, variables: rawdoc! {} }];
        store.commit(AtomicBatch { reads, ..AtomicBatch::new(read_at) }).await.unwrap_err();
        store.close().await.unwrap();
    }
}
