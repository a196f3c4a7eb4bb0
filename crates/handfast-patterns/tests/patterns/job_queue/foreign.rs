//! Documents that other programs have inserted into the queue's collection.

use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, doc, rawdoc};
use handfast_mql::depth::DOCUMENT_BYTES_MAX;
use handfast_patterns::job_queue::{JobFilter, JobQueue, JobQueueOptions, JobState};
use handfast_store::StoreExt;

use super::{HOUR, claim, kinds, new_id, numbered, open, open_with, stored};
use crate::crash::World;

async fn open_ordered(world: &World, ordered: bool) -> JobQueue {
    open_with(world, JobQueueOptions { ordered, ..JobQueueOptions::default() }).await.unwrap()
}

async fn put(world: &World, document: Document) {
    let document = bson::RawDocumentBuf::try_from(&document).unwrap();
    world.store.insert_one(&world.namespace("jobs"), document).await.unwrap();
}

/// Returns a document that matches the filter of a claim, and cannot be read.
fn like_a_job(world: &World, id: impl Into<Bson>) -> Document {
    let now = world.sources.clock.now();
    doc! {
        "_id": id.into(), "ts": now, "state": "TODO", "type": "count", "details": {}, "undone": 1, "attempts": 0, "crashes": 0,
        "priority": 9, "runAt": now,
    }
}

#[tokio::test]
async fn foreign_documents_are_not_claimed_and_are_counted() {
    for ordered in [false, true] {
        let world = World::in_memory();
        let queue = open_ordered(&world, ordered).await;
        let now = world.sources.clock.now();
        put(&world, doc! { "_id": 1, "state": "TODO", "type": "count", "runAt": now, "priority": 9 }).await;
        let mut first_of_its_order = like_a_job(&world, "theirs");
        first_of_its_order.extend(doc! { "order": "ann", "ts": DateTime::from_millis(0), "details": 7 });
        put(&world, first_of_its_order).await;
        queue.enqueue(if ordered { numbered(7).in_order("ann") } else { numbered(7) }).await.unwrap();
        let before = queue.depth().await.unwrap();
        assert_eq!((before.foreign, before.due), (2, 1));
        assert_eq!(claim(&queue).await.details.get_i64("number").unwrap(), 7);
        assert!(queue.claim("w", &kinds()).await.unwrap().is_none());
        assert!(queue.claim_many("w", &kinds(), 5).await.unwrap().is_empty());
        let after = queue.depth().await.unwrap();
        assert_eq!((after.foreign, after.processing, after.failed), (2, 1, 0), "nothing was done to them");
    }
}

#[tokio::test]
async fn documents_that_reject_a_claim_block_no_other_job() {
    let odd: [(&str, Bson); 6] = [
        ("worker", Bson::Null),
        ("worker", bson::bson!([{}])),
        ("claims", "x".into()),
        ("claims", Bson::Null),
        ("claims", bson::bson!([1])),
        ("errors", "x".into()),
    ];
    for (ordered, many) in [(false, false), (true, false), (false, true), (true, true)] {
        let world = World::in_memory();
        let queue = open_ordered(&world, ordered).await;
        let above = new_id(queue.enqueue(numbered(7).with_priority(10)).await.unwrap());
        for (field, value) in &odd {
            let mut document = like_a_job(&world, world.sources.ids.object_id());
            document.insert(*field, value.clone());
            put(&world, document).await;
        }
        let below = new_id(queue.enqueue(numbered(8)).await.unwrap());
        let claimed = if many {
            queue.claim_many("w", &kinds(), 10).await.unwrap()
        } else {
            vec![claim(&queue).await, claim(&queue).await]
        };
        assert_eq!(
            claimed.iter().map(|job| job.id.clone()).collect::<Vec<_>>(),
            [above, below].map(Bson::from),
            "{ordered} {many}"
        );
        let depth = queue.depth().await.unwrap();
        assert_eq!((depth.foreign, depth.processing, depth.failed), (6, 2, 0), "nothing was done to them");
        let seen = queue.page(&JobFilter::in_state(JobState::Todo), None, 10).await.unwrap().jobs;
        assert_eq!(seen.iter().filter(|job| job.is_err()).count(), 5, "each is listed as an error");
    }
}

#[tokio::test]
async fn documents_without_time_or_type_are_foreign() {
    let world = World::in_memory();
    let queue = open(&world).await;
    for (field, value) in [("runAt", Bson::Null), ("runAt", "soon".into()), ("type", 7.into())] {
        let mut document = like_a_job(&world, world.sources.ids.object_id());
        document.insert(field, value);
        put(&world, document).await;
    }
    queue.enqueue(numbered(7)).await.unwrap();
    let depth = queue.depth().await.unwrap();
    assert_eq!((depth.foreign, depth.due, depth.scheduled), (3, 1, 0));
}

#[tokio::test]
async fn foreign_documents_in_progress_block_no_job() {
    let world = World::in_memory();
    let queue = open(&world).await;
    let mut theirs = like_a_job(&world, "theirs");
    theirs.extend(
        doc! { "state": "PROCESSING", "details": 7, "worker": { "name": "they", "ts": DateTime::from_millis(0) } },
    );
    put(&world, theirs.clone()).await;
    let ours = new_id(queue.enqueue(numbered(7)).await.unwrap());
    claim(&queue).await;
    world.clock.advance(HOUR);
    assert_eq!(queue.depth().await.unwrap().silent, 1);
    assert_eq!(queue.reclaim(1).await.unwrap().done, 1, "the oldest that is a job");
    assert_eq!(queue.reclaim(1).await.unwrap(), handfast_patterns::Round::default());
    assert_eq!(stored(&world, ours).await.get_str("state").unwrap(), "TODO");
    let found = world.store.find_one(&world.namespace("jobs"), rawdoc! { "_id": "theirs" }).await.unwrap();
    assert_eq!(Document::try_from(&*found.unwrap()).unwrap(), theirs);
}

#[tokio::test]
async fn a_job_that_cannot_be_read_is_given_up_and_holds_up_nobody() {
    for (ordered, many) in [(false, false), (true, false), (false, true), (true, true)] {
        let world = World::in_memory();
        let queue = open_ordered(&world, ordered).await;
        let id = world.sources.ids.object_id();
        let mut odd = like_a_job(&world, id);
        odd.insert("attempts", "many");
        put(&world, odd).await;
        queue.enqueue(numbered(7)).await.unwrap();
        let claimed = if many { queue.claim_many("w", &kinds(), 5).await.unwrap() } else { vec![claim(&queue).await] };
        assert_eq!(claimed.iter().map(|job| job.details.get_i64("number").unwrap()).collect::<Vec<_>>(), [7]);
        let odd = stored(&world, id).await;
        assert_eq!(odd.get_str("state").unwrap(), "FAILED", "{odd}");
        assert!(odd.get_str("error").unwrap().contains("attempts is \"many\"") && !odd.contains_key("undone"), "{odd}");
    }
}

/// Returns a document of this many bytes that is like a job.
fn large(world: &World, id: ObjectId, bytes: usize) -> Document {
    let mut job = like_a_job(world, id);
    job.insert("details", doc! { "text": "" });
    job.remove("undone");
    let text = "x".repeat(bytes - bson::serialize_to_vec(&job).unwrap().len());
    job.insert("details", doc! { "text": text });
    job
}

#[tokio::test]
async fn a_job_that_is_too_large_for_a_claim_holds_up_nobody() {
    for (ordered, many) in [(false, false), (true, false), (false, true), (true, true)] {
        let world = World::in_memory();
        let queue = open_ordered(&world, ordered).await;
        // A longer state does not fit into the second one.
        let ids = ["given up", "skipped"].map(|_| world.sources.ids.object_id());
        for (id, free) in ids.into_iter().zip([20, 0]) {
            put(&world, large(&world, id, DOCUMENT_BYTES_MAX - free)).await;
        }
        queue.enqueue(numbered(7)).await.unwrap();
        let claimed = if many { queue.claim_many("w", &kinds(), 5).await.unwrap() } else { vec![claim(&queue).await] };
        assert_eq!(claimed.iter().map(|job| job.details.get_i64("number").unwrap()).collect::<Vec<_>>(), [7]);
        assert!(queue.claim("w", &kinds()).await.unwrap().is_none());
        let mut states = Vec::new();
        for id in ids {
            states.push(stored(&world, id).await.get_str("state").unwrap().to_owned());
        }
        assert_eq!(states, ["FAILED", "TODO"], "{ordered} {many}");
    }
}

#[tokio::test]
async fn a_job_that_cannot_be_read_any_more_is_not_reclaimed_for_ever() {
    let world = World::in_memory();
    let queue = open(&world).await;
    let id = new_id(queue.enqueue(numbered(7)).await.unwrap());
    claim(&queue).await;
    let broken = rawdoc! { "$set": { "priority": "high" } };
    world.store.update_one(&world.namespace("jobs"), rawdoc! { "_id": id }, broken).await.unwrap();
    world.clock.advance(HOUR);
    assert_eq!(queue.reclaim(10).await.unwrap().done, 1);
    assert_eq!(queue.reclaim(10).await.unwrap(), handfast_patterns::Round::default());
    assert_eq!(queue.depth().await.unwrap().failed, 1);
}
