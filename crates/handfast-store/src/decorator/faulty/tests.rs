use std::sync::Arc;
use std::time::Duration;

use bson::{RawDocumentBuf, rawdoc};

use super::{Address, Fault, Faulty, InjectedFault, Plan};
use crate::decorator::Operation;
use crate::{
    Applied, AtomicBatch, AtomicStore, BatchLimit, BatchWrite, DocumentStore, DocumentWrite, Durability, ErrorClass,
    Find, Insert, MemoryStore, Namespace, Sources, Update, UpdateSpec, UpdateStatement,
};

type Store = Faulty<MemoryStore>;

fn store(plan: Plan) -> Arc<Store> {
    Arc::new(Faulty::new(Arc::new(MemoryStore::new(Sources::seeded(1))), plan))
}

fn c() -> Namespace {
    Namespace::valid("d", "c")
}

fn insert(id: i32) -> Insert {
    Insert::new(c(), vec![rawdoc! { "_id": id }])
}

fn increment() -> Update {
    let change = UpdateSpec::Document(rawdoc! { "$inc": { "n": 1 } });
    Update::new(c(), vec![UpdateStatement { upsert: true, ..UpdateStatement::one(rawdoc! { "_id": 1 }, change) }])
}

/// Reads the true content of the store, without faults.
async fn truth(store: &Store) -> Vec<RawDocumentBuf> {
    let mut cursor = store.inner().find(Find::new(c(), rawdoc! {})).await.expect("no fault");
    cursor.next_page(BatchLimit::REPLY).await.expect("no fault").documents
}

/// Returns the error of an insert that meets a fault, and whether the document is stored.
async fn meets(fault: Fault) -> (Option<(ErrorClass, Applied)>, bool) {
    let store = store(Plan::at(0, fault));
    let error = store.insert(insert(1)).await.err();
    (error.map(|error| (error.class(), error.applied())), !truth(&store).await.is_empty())
}

#[tokio::test]
async fn each_fault_has_its_error_and_effect() {
    let in_doubt = Some((ErrorClass::TransientNetwork, Applied::Maybe));
    assert_eq!(meets(Fault::Refuse).await, (Some((ErrorClass::Outage, Applied::No)), false));
    let step_down = Some((ErrorClass::TransientNetwork, Applied::No));
    assert_eq!(meets(Fault::StepDown).await, (step_down, false));
    assert_eq!(meets(Fault::LoseRequest).await, (in_doubt, false));
    assert_eq!(meets(Fault::LoseReply).await, (in_doubt, true));
    assert_eq!(meets(Fault::CrashBefore).await, (in_doubt, false));
    assert_eq!(meets(Fault::CrashAfter).await, (in_doubt, true));
    assert_eq!(meets(Fault::DeliverLate).await, (in_doubt, false));
    assert_eq!(meets(Fault::Duplicate).await, (None, true));
    assert_eq!(meets(Fault::Delay(Duration::from_millis(1))).await, (None, true));
}

#[tokio::test]
async fn a_lost_request_and_a_lost_reply_look_the_same() {
    let (lost_request, lost_reply) = (store(Plan::at(0, Fault::LoseRequest)), store(Plan::at(0, Fault::LoseReply)));
    let request = lost_request.insert(insert(1)).await.expect_err("lost");
    let reply = lost_reply.insert(insert(1)).await.expect_err("lost");
    assert_eq!(format!("{request:?}"), format!("{reply:?}"));
}

#[tokio::test]
async fn pages_of_cursors_are_numbered_operations() {
    let store = store(Plan::explicit([(1, Fault::LoseRequest), (3, Fault::LoseReply)]));
    store.insert(insert(1)).await.expect("0");
    store.insert(insert(2)).await.expect_err("1");
    let mut cursor = store.find(Find::new(c(), rawdoc! {})).await.expect("2");
    let error = cursor.next_page(BatchLimit::REPLY).await.expect_err("3");
    assert_eq!(error.applied(), Applied::No, "a read changes nothing");
    assert_eq!(store.operations(), 4);
    let injected = |number, operation, fault| InjectedFault { number, operation, fault };
    let expected =
        [injected(1, Operation::Insert, Fault::LoseRequest), injected(3, Operation::NextPage, Fault::LoseReply)];
    assert_eq!(store.injected(), expected);
}

#[tokio::test]
async fn an_address_counts_the_requests_of_its_operation_on_its_collection() {
    let page = Address::second(Operation::NextPage).of("c");
    let plan = [
        (Address::second(Operation::Insert).of("c"), Fault::LoseReply),
        (Address::first(Operation::Insert).of("c").after(2), Fault::LoseRequest),
        (page, Fault::Refuse),
        (Address::first(Operation::Update).of("other"), Fault::Refuse),
        (Address::first(Operation::Flush), Fault::Refuse),
    ];
    let store = store(Plan::at_requests(plan));
    let other = Namespace::valid("d", "other");
    store.insert(insert(1)).await.expect("the first insert");
    store.update(increment()).await.expect("an update of another collection than the address names");
    store.insert(Insert::new(other, vec![rawdoc! { "_id": 1 }])).await.expect("an insert into another collection");
    store.insert(insert(2)).await.expect_err("the second insert");
    store.insert(insert(3)).await.expect_err("the third insert");
    store.insert(insert(4)).await.expect("the fourth insert");
    let mut cursor = store.find(Find::new(c(), rawdoc! {})).await.expect("a find");
    cursor.next_page(BatchLimit { documents: 1, ..BatchLimit::REPLY }).await.expect("the first page");
    cursor.next_page(BatchLimit::REPLY).await.expect_err("the second page");
    store.flush().await.expect_err("the first flush");
    let met: Vec<_> = store.injected().into_iter().map(|met| (met.number, met.operation)).collect();
    let expected = [(3, Operation::Insert), (4, Operation::Insert), (8, Operation::NextPage), (9, Operation::Flush)];
    assert_eq!(met, expected);
}

#[tokio::test]
async fn a_crash_lasts_until_the_restart() {
    let store = store(Plan::at(1, Fault::CrashAfter));
    store.insert(insert(1)).await.expect("before");
    store.insert(insert(2)).await.expect_err("the crash");
    for _ in 0..3 {
        assert_eq!(store.insert(insert(3)).await.expect_err("down").class(), ErrorClass::Outage);
    }
    store.restart();
    store.insert(insert(4)).await.expect("up again");
    assert_eq!(truth(&store).await.len(), 3);
}

#[tokio::test]
async fn late_requests_arrive_once_when_they_are_delivered() {
    let store = store(Plan::explicit([(0, Fault::DeliverLate), (1, Fault::Duplicate)]));
    store.update(increment()).await.expect_err("late");
    store.update(increment()).await.expect("at once");
    assert_eq!(truth(&store).await, [rawdoc! { "_id": 1, "n": 1 }]);
    assert_eq!(store.deliver_late().await.len(), 2);
    assert_eq!(truth(&store).await, [rawdoc! { "_id": 1, "n": 3 }]);
    assert_eq!(store.deliver_late().await.len(), 0);
}

#[tokio::test]
async fn frozen_operations_wait_for_their_release() {
    for (fault, applied) in [(Fault::FreezeBefore, false), (Fault::FreezeAfter, true)] {
        let store = store(Plan::at(0, fault));
        let task = tokio::spawn({
            let store = Arc::clone(&store);
            async move { store.insert(insert(1)).await }
        });
        while store.frozen() == 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(!truth(&store).await.is_empty(), applied, "{fault:?}");
        store.release();
        task.await.expect("no panic").expect("inserted");
        assert_eq!((truth(&store).await.len(), store.frozen()), (1, 0));
    }
}

/// Two operations are frozen; the later one is released first, then the earlier one with a fault.
#[tokio::test]
async fn frozen_operations_are_released_one_by_one_each_with_a_fault() {
    let faults = [(None, 2), (Some(Fault::LoseReply), 2), (Some(Fault::DeliverLate), 1), (Some(Fault::CrashAfter), 2)];
    for (fault, stored) in faults {
        let store = store(Plan::always(Fault::FreezeBefore));
        let insert_in = |id| {
            let store = Arc::clone(&store);
            tokio::spawn(async move { store.insert(insert(id)).await })
        };
        let (one, other) = (insert_in(1), insert_in(2));
        while store.frozen() < 2 {
            tokio::task::yield_now().await;
        }
        assert_eq!(store.frozen_operations(), [(0, Operation::Insert), (1, Operation::Insert)]);
        assert!(store.release_one(1, None));
        other.await.expect("no panic").expect("inserted");
        assert!(!store.release_one(1, None), "it is not there any more");
        assert_eq!((truth(&store).await.len(), store.frozen()), (1, 1));
        assert!(store.release_one(0, fault));
        assert_eq!(one.await.expect("no panic").is_err(), fault.is_some(), "{fault:?}");
        assert_eq!(truth(&store).await.len(), stored, "{fault:?}");
        store.deliver_late().await;
        assert_eq!(truth(&store).await.len(), 2, "{fault:?}");
    }
}

#[tokio::test]
async fn a_frozen_operation_whose_caller_gives_up_is_not_frozen_any_more() {
    let store = store(Plan::at(0, Fault::FreezeBefore));
    let waited = tokio::time::timeout(Duration::from_millis(5), store.insert(insert(1))).await;
    assert!(waited.is_err(), "it did not freeze");
    assert_eq!((store.frozen(), truth(&store).await.len()), (0, 0));
}

#[tokio::test]
async fn a_seed_determines_the_faults() {
    let run = async |seed| {
        let plan = Plan::seeded(seed, 300, [Fault::LoseRequest, Fault::LoseReply]);
        let store = store(plan);
        for id in 0..100 {
            let _ = store.insert(insert(id)).await;
        }
        store.injected()
    };
    let first = run(7).await;
    assert!((15..45).contains(&first.len()), "{} of 100 with 300 in a thousand", first.len());
    assert_eq!(first, run(7).await);
    assert_ne!(first, run(8).await);
}

#[tokio::test]
async fn a_plan_for_writes_spares_reads() {
    let store = store(Plan::seeded(1, 1000, [Fault::LoseRequest]).writes_only());
    store.find(Find::new(c(), rawdoc! {})).await.expect("spared");
    store.insert(insert(1)).await.expect_err("hit");
}

#[tokio::test]
async fn batches_and_snapshots_meet_faults_too() {
    let store = store(Plan::explicit([(1, Fault::LoseReply), (3, Fault::LoseRequest)]));
    let read_at = store.snapshot().await.expect("0").timestamp();
    let writes = vec![BatchWrite::new(c(), 1, DocumentWrite::Put(rawdoc! { "_id": 1 }))];
    let batch = AtomicBatch { writes, durability: Durability::Journaled, ..AtomicBatch::new(read_at) };
    assert_eq!(store.commit(batch).await.expect_err("1").applied(), Applied::Maybe);
    let snapshot = store.snapshot().await.expect("2");
    let lost = snapshot.get(&c(), bson::RawBsonRef::Int32(1)).await;
    assert_eq!(lost.expect_err("3").class(), ErrorClass::TransientNetwork);
    let found = snapshot.get(&c(), bson::RawBsonRef::Int32(1)).await.expect("4");
    assert_eq!(found, Some(rawdoc! { "_id": 1 }));
}
