use bson::{RawDocumentBuf, rawdoc};
use handfast_mql::Code;
use handfast_mql::depth::ANSWER_BYTES_MAX;
use handfast_wire::limits::DOCUMENT_BYTES_MAX;

use super::{Batches, ListCursor};
use crate::memory_budget::MemoryBudget;
use crate::writer::Writer;

fn documents(count: usize, bytes: usize) -> Vec<RawDocumentBuf> {
    (0..count).map(|place| rawdoc! { "_id": i32::try_from(place).unwrap(), "fill": "x".repeat(bytes) }).collect()
}

/// Returns all batches of a cursor, as (documents, bytes of the reply).
async fn batches(documents: Vec<RawDocumentBuf>, size: usize) -> Vec<(usize, usize)> {
    let budget = MemoryBudget::new(64 << 20);
    let expected = documents.clone();
    let mut batches = Batches::new(Box::new(ListCursor::new(documents)));
    let mut seen = Vec::new();
    let mut shapes = Vec::new();
    while !batches.is_exhausted() {
        let mut writer = Writer::new();
        writer.begin_document("cursor").begin_array("nextBatch");
        batches.fill(&mut writer, size, &budget).await.unwrap();
        let reply = writer.finish();
        let array = reply.get_document("cursor").unwrap().get_array("nextBatch").unwrap();
        let before = seen.len();
        seen.extend(array.into_iter().map(|value| value.unwrap().as_document().unwrap().to_owned()));
        shapes.push((seen.len() - before, reply.as_bytes().len()));
        assert!(shapes.len() < 1_000, "no end");
    }
    assert_eq!(seen, expected);
    shapes
}

#[tokio::test]
async fn a_batch_has_the_requested_number_of_documents() {
    let shapes = batches(documents(10, 10), 4).await;
    assert_eq!(shapes.iter().map(|shape| shape.0).collect::<Vec<_>>(), [4, 4, 2]);
    let shapes = batches(documents(25_000, 1), usize::MAX).await;
    assert_eq!(shapes.iter().map(|shape| shape.0).sum::<usize>(), 25_000);
    assert_eq!(shapes.len(), 1);
    assert_eq!(batches(Vec::new(), 4).await.len(), 1);
}

#[tokio::test]
async fn no_reply_exceeds_the_largest_document() {
    let shapes = batches(documents(50, 1024 * 1024), usize::MAX).await;
    assert!(shapes.iter().all(|shape| shape.1 <= DOCUMENT_BYTES_MAX), "{shapes:?}");
    assert_eq!(shapes.iter().map(|shape| shape.0).collect::<Vec<_>>(), [15, 15, 15, 5]);
    // A large document after small ones starts a batch of its own.
    let mixed = [documents(3, 10), documents(1, DOCUMENT_BYTES_MAX - 100), documents(2, 10)].concat();
    let shapes = batches(mixed, usize::MAX).await;
    assert_eq!(shapes.iter().map(|shape| shape.0).collect::<Vec<_>>(), [3, 1, 2]);
}

#[tokio::test]
async fn an_empty_batch_fetches_nothing() {
    let mut batches = Batches::new(Box::new(ListCursor::new(documents(1, 1))));
    let mut writer = Writer::new();
    writer.begin_array("a");
    assert!(batches.fill(&mut writer, 0, &MemoryBudget::new(1 << 20)).await.unwrap().is_none());
    assert!(!batches.is_exhausted());
}

#[tokio::test(start_paused = true)]
async fn large_batches_wait_for_a_reservation() {
    let budget = MemoryBudget::new(16 << 20);
    let all = budget.reserve(16 << 20).await;
    let mut batches = Batches::new(Box::new(ListCursor::new(documents(200, 10_000))));
    let mut writer = Writer::new();
    writer.begin_array("a");
    let wait = std::time::Duration::from_secs(1);
    assert!(tokio::time::timeout(wait, batches.fill(&mut writer, 1_000, &budget)).await.is_err());
    drop(all);
    let mut small = Batches::new(Box::new(ListCursor::new(documents(3, 10))));
    let mut writer = Writer::new();
    writer.begin_array("a");
    assert!(small.fill(&mut writer, 1_000, &budget).await.unwrap().is_none(), "a small batch is free");
}

#[tokio::test]
async fn a_document_that_is_too_large_for_a_reply_is_an_error() {
    let mut batches = Batches::new(Box::new(ListCursor::new(documents(1, ANSWER_BYTES_MAX))));
    let mut writer = Writer::new();
    writer.begin_array("a");
    let refused = batches.fill(&mut writer, 10, &MemoryBudget::new(64 << 20)).await.err();
    assert_eq!(refused.map(|error| error.code), Some(Code::BSONObjectTooLarge));
}
