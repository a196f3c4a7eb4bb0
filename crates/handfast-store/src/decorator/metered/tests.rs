use std::sync::Arc;
use std::time::Duration;

use bson::rawdoc;

use super::{Latency, Metered};
use crate::decorator::{Address, Fault, Faulty, Operation, Plan};
use crate::{DocumentStore, Insert, MemoryStore, Namespace, Sources};

fn c() -> Namespace {
    Namespace::valid("d", "c")
}

#[test]
fn discriminants_of_operations_are_their_indexes() {
    for (index, operation) in Operation::ALL.into_iter().enumerate() {
        assert_eq!(operation as usize, index, "{operation}");
    }
}

#[tokio::test]
async fn calls_are_counted_by_their_outcome() {
    let plan = Plan::at_requests([
        (Address::second(Operation::Insert), Fault::LoseReply),
        (Address::third(Operation::Insert), Fault::Refuse),
    ]);
    let faulty = Faulty::new(Arc::new(MemoryStore::new(Sources::seeded(1))), plan);
    let store = Metered::new(faulty, Sources::seeded(1).clock);
    for id in 0..4 {
        let _ = store.insert(Insert::new(c(), vec![rawdoc! { "_id": id }])).await;
    }
    store.list_indexes(&Namespace::valid("d", "missing")).await.expect_err("no such collection");
    let report = store.report();
    assert_eq!(
        report.iter().map(|report| report.operation).collect::<Vec<_>>(),
        [Operation::Insert, Operation::ListIndexes]
    );
    let insert = &report[0];
    assert_eq!((insert.started, insert.succeeded), (4, 2));
    assert_eq!((insert.failed_transient, insert.failed_outage, insert.failed_command), (1, 1, 0));
    assert_eq!((report[1].failed_command, report[1].cancelled), (1, 0));
}

#[tokio::test]
async fn latencies_are_measured_with_the_clock() {
    let (sources, clock) = Sources::manual(1);
    let faulty = Faulty::new(
        Arc::new(MemoryStore::new(Sources::seeded(1))),
        Plan::at_request(Address::first(Operation::Flush).after(99), Fault::FreezeBefore),
    );
    let store = Arc::new(Metered::new(faulty, sources.clock));
    for _ in 0..99 {
        store.flush().await.expect("ok");
    }
    let slow = tokio::spawn({
        let store = Arc::clone(&store);
        async move { store.flush().await }
    });
    while store.inner().frozen() == 0 {
        tokio::task::yield_now().await;
    }
    clock.advance(Duration::from_millis(500));
    store.inner().release();
    slow.await.expect("no panic").expect("ok");
    let Latency { p50, p99, p999, max } = store.report()[0].latency;
    assert_eq!((p50, p99), (Duration::ZERO, Duration::ZERO));
    for long in [p999, max] {
        assert!((495..=505).contains(&long.as_millis()), "{long:?}");
    }
}

#[tokio::test]
async fn a_cancelled_call_is_counted() {
    let faulty = Faulty::new(
        Arc::new(MemoryStore::new(Sources::seeded(1))),
        Plan::at_request(Address::first(Operation::Flush), Fault::FreezeBefore),
    );
    let store = Metered::new(faulty, Sources::seeded(1).clock);
    tokio::time::timeout(Duration::from_millis(5), store.flush()).await.expect_err("it did not freeze");
    let report = store.report();
    assert_eq!((report[0].started, report[0].succeeded, report[0].cancelled), (1, 0, 1));
    assert_eq!(report[0].latency, Latency::default());
}
