use std::sync::Arc;

use bson::rawdoc;
use handfast_mql::Code;

use super::outcome::{self, FindAndModifyShape, Shape};
use super::{Checked, codes};
use crate::conformance::broken::{Broken, Defect};
use crate::decorator::Operation;
use crate::{
    Applied, AtomicBatch, AtomicStore, BatchLimit, BatchWrite, Count, Delete, DeleteStatement, Distinct, DocumentStore,
    DocumentWrite, Error, ErrorClass, Find, FindAndModifyOutcome, IndexSpec, Insert, InsertOutcome, ManualClock,
    MemoryStore, Namespace, Sources, StoreExt, Ticket, UpdateOutcome, WriteError, index,
};

fn c() -> Namespace {
    Namespace::valid("d", "c")
}

fn refusal(code: Code) -> Error {
    Error::command(code, "no")
}

#[test]
fn each_operation_may_return_only_its_codes() {
    let allowed = |operation, code| codes::error(operation, &refusal(code)).is_ok();
    assert!(allowed(Operation::Update, Code::ImmutableField));
    assert!(!allowed(Operation::Find, Code::ImmutableField));
    assert!(allowed(Operation::ListIndexes, Code::NamespaceNotFound));
    assert!(!allowed(Operation::DropCollection, Code::NamespaceNotFound));
    assert!(allowed(Operation::Commit, Code::WriteConflict));
    assert!(!allowed(Operation::Snapshot, Code::WriteConflict));
    assert!(allowed(Operation::Find, Code(40324)));
    assert!(!allowed(Operation::Flush, Code::BadValue));
    assert!(!allowed(Operation::Insert, Code::InternalError));
    assert!(allowed(Operation::Flush, Code::OutOfDiskSpace));
    let of_the_disk = refusal(Code::InternalError).with_source(std::io::Error::other("the disk is gone"));
    assert!(codes::error(Operation::Insert, &of_the_disk).is_ok());
    assert!(codes::error(Operation::Update, &of_the_disk.clone().in_doubt()).is_ok());
    assert!(codes::error(Operation::Find, &of_the_disk.in_doubt()).is_err(), "a read leaves no doubt");
    let network = Error::new(ErrorClass::TransientNetwork, Applied::Maybe, Code::SocketException, "reset");
    assert!(codes::error(Operation::Flush, &network).is_ok());
    let doubtful = Error::new(ErrorClass::Command, Applied::Maybe, Code::ImmutableField, "no");
    assert!(codes::error(Operation::Update, &doubtful).is_err());
}

#[test]
fn a_duplicate_key_error_has_its_text_and_details() {
    assert!(codes::error(Operation::Insert, &refusal(Code::DuplicateKey)).is_err());
    let whole = index::duplicate_key(&c(), &IndexSpec::id(), &[Some(bson::RawBsonRef::Int32(1))]);
    assert!(codes::error(Operation::Insert, &whole).is_ok());
    let bare = Error::command(Code::DuplicateKey, whole.message());
    assert!(codes::error(Operation::Insert, &bare).is_err());
}

fn failed(indexes: &[usize]) -> Vec<WriteError> {
    indexes.iter().map(|&index| WriteError { index, error: refusal(Code::BadValue) }).collect()
}

#[test]
fn numbers_of_an_insert_add_up() {
    let check = |ordered, inserted, indexes: &[usize]| {
        outcome::insert(5, ordered, &InsertOutcome { inserted, errors: failed(indexes) }).is_ok()
    };
    assert!(check(true, 5, &[]) && check(true, 2, &[2]) && check(false, 3, &[0, 4]));
    assert!(!check(true, 4, &[]) && !check(true, 3, &[2]) && !check(false, 4, &[0, 4]));
    assert!(!check(true, 3, &[0, 4]), "an ordered insert has at most one error");
    assert!(!check(false, 3, &[4, 0]), "errors come in order");
    assert!(!check(false, 4, &[5]), "there is no index 5");
}

#[test]
fn numbers_of_an_update_add_up() {
    let one = Shape { multi: false, upsert: false };
    let upsert = Shape { multi: false, upsert: true };
    let many = Shape { multi: true, upsert: false };
    let check = |shapes: &[Shape], matched, modified, upserted: &[usize], indexes: &[usize]| {
        let upserted = upserted.iter().map(|&index| (index, 1.into())).collect();
        let answer = UpdateOutcome { matched, modified, upserted, errors: failed(indexes) };
        outcome::update(shapes, true, &answer).is_ok()
    };
    assert!(
        check(&[one, one], 2, 1, &[], &[]) && check(&[many], 100, 100, &[], &[]) && check(&[upsert], 0, 0, &[0], &[])
    );
    assert!(!check(&[one], 1, 2, &[], &[]), "more modified than matched");
    assert!(!check(&[one], 2, 2, &[], &[]), "one statement for one document matched two");
    assert!(!check(&[one], 0, 0, &[0], &[]), "no upsert was asked for");
    assert!(!check(&[upsert], 1, 1, &[0], &[]), "matched and upserted");
    assert!(!check(&[upsert, upsert], 0, 0, &[1], &[0]), "nothing is tried after an error");
}

#[test]
fn parts_of_a_find_and_modify_agree() {
    let after = FindAndModifyShape { remove: false, upsert: true, after: true };
    let document = || Some(rawdoc! { "_id": 1 });
    let answer = |value, matched, upserted| FindAndModifyOutcome { value, matched, upserted };
    assert!(outcome::find_and_modify(after, &answer(document(), false, Some(1.into()))).is_ok());
    assert!(outcome::find_and_modify(after, &answer(None, false, Some(1.into()))).is_err());
    assert!(outcome::find_and_modify(after, &answer(document(), true, Some(1.into()))).is_err());
    let remove = FindAndModifyShape { remove: true, upsert: false, after: false };
    assert!(outcome::find_and_modify(remove, &answer(None, false, None)).is_ok());
    assert!(outcome::find_and_modify(remove, &answer(None, true, None)).is_err());
    assert!(outcome::find_and_modify(remove, &answer(document(), false, None)).is_err());
}

/// Returns whether a defect of a store shows in its results.
async fn notices(defect: Defect) -> bool {
    let store = Checked::new(Arc::new(Broken::new(defect)), Sources::seeded(1));
    let documents = (0..100).map(|n| rawdoc! { "_id": n, "n": 100 - n }).collect();
    let _ = store.insert(Insert::new(c(), documents)).await;
    let _ = store.insert(Insert::new(c(), vec![rawdoc! { "_id": 1 }, rawdoc! { "_id": [1] }])).await;
    let find = Find { sort: rawdoc! { "n": 1 }, limit: Some(20), ..Find::new(c(), rawdoc! { "n": { "$gt": 10 } }) };
    if let Ok(mut cursor) = store.find(find).await {
        for _ in 0..5 {
            let _ = cursor.next_page(BatchLimit { documents: 7, bytes: usize::MAX }).await;
        }
    }
    let statement = DeleteStatement { filter: rawdoc! { "n": { "$gt": 50 } }, multi: false, hint: None };
    let _ = store.delete(Delete::new(c(), vec![statement])).await;
    let _ = store.count(Count { limit: Some(3), ..Count::new(c(), rawdoc! {}) }).await;
    let distinct = Distinct { namespace: c(), key: "n".to_owned(), filter: rawdoc! {}, hint: None, collation: None };
    let _ = store.distinct(distinct).await;
    !store.breaches().is_empty()
}

#[tokio::test]
async fn defects_that_a_result_shows_are_noticed() {
    for defect in [
        Defect::LimitIsOffByOne,
        Defect::PageIsOffByOne,
        Defect::CursorRestarts,
        Defect::OrderedGoesOn,
        Defect::SortIsForgotten,
        Defect::RefusalIsInDoubt,
        Defect::DeleteOneDeletesAll,
        Defect::CountIgnoresLimit,
        Defect::DistinctRepeats,
    ] {
        assert!(notices(defect).await, "{defect:?} went unnoticed");
    }
    // A defect that no single result shows is not found, so `notices` does not return true for every store.
    assert!(!notices(Defect::SnapshotIsNotStable).await);
}

#[tokio::test]
async fn a_breach_is_returned_in_place_of_the_result() {
    let store = Checked::new(Broken::new(Defect::CountIgnoresLimit), Sources::seeded(1));
    store.insert(Insert::new(c(), vec![rawdoc! {}, rawdoc! {}])).await.expect("fine");
    let error = store.count(Count { limit: Some(1), ..Count::new(c(), rawdoc! {}) }).await.expect_err("a breach");
    assert_eq!((error.code(), error.applied()), (Code::InternalError, Applied::Maybe));
    let text = "the store 'broken' broke its contract in count: 2 with a limit of Some(1)";
    assert_eq!(store.breaches(), [text]);
}

/// A filter that depends on time or randomness may have another result when the page is checked.
#[tokio::test]
async fn a_filter_over_time_or_randomness_is_not_evaluated_again() {
    let (sources, clock) = Sources::manual(1);
    let store = Checked::new(MemoryStore::new(sources), Sources::seeded(2));
    clock.advance(std::time::Duration::from_secs(60));
    let at = |millis: i64| bson::DateTime::from_millis(ManualClock::START.timestamp_millis() + millis);
    let documents = (0..100).map(|n| rawdoc! { "_id": n, "at": at(n * 1000) }).collect();
    store.insert(Insert::new(c(), documents)).await.expect("fine");
    for filter in
        [rawdoc! { "$expr": { "$lte": ["$at", "$$NOW"] } }, rawdoc! { "$expr": { "$lt": [{ "$rand": {} }, 0.5] } }]
    {
        let found = store.find_all(Find::new(c(), filter)).await.expect("no breach");
        assert!((20..80).contains(&found.len()), "{} of 100", found.len());
    }
    assert_eq!(store.breaches(), Vec::<String>::new());
}

#[tokio::test]
async fn a_repeated_commit_may_be_older_than_its_snapshot() {
    let store = Checked::new(MemoryStore::new(Sources::seeded(1)), Sources::seeded(2));
    let ticket =
        Some(Ticket { session: [1; 16], number: 1, statement: 0, requested: crate::RequestedDocument::Nothing });
    let mut answers = Vec::new();
    for _ in 0..2 {
        let read_at = store.snapshot().await.expect("a snapshot").timestamp();
        let put = BatchWrite::new(c(), 1, DocumentWrite::Put(rawdoc! { "_id": 1 }));
        let batch = AtomicBatch { writes: vec![put], ticket, ..AtomicBatch::new(read_at) };
        answers.push((read_at, store.commit(batch).await.expect("no breach")));
    }
    let [(_, first), (second_read_at, second)] = answers[..] else { panic!("two answers") };
    assert!(first == second && second <= second_read_at, "{answers:?}");
}
