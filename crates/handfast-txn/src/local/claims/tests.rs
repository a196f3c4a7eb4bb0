//! Lines of transactions that want the same documents.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use handfast_store::{MemoryStore, Sources};

use super::*;

struct Setting {
    store: Arc<dyn AtomicStore>,
    table: Arc<Table>,
    namespace: Namespace,
}

/// A transaction that waits until it may begin.
type Waiting<'t> = Pin<Box<dyn Future<Output = Holder> + 't>>;

impl Setting {
    fn new() -> Self {
        let sources = Sources::seeded(1);
        let store: Arc<dyn AtomicStore> = Arc::new(MemoryStore::new(sources.clone()));
        Setting { store, table: Arc::new(Table::new(sources.clock)), namespace: Namespace::new("d", "c").unwrap() }
    }

    fn holder(&self) -> Holder {
        self.table.holder(Arc::clone(&self.store), Duration::from_secs(60))
    }

    /// Somebody who reserves these documents.
    fn waits(&self, ids: &[i32]) -> Waiting<'_> {
        let wanted: Vec<_> = ids.iter().map(|id| (self.namespace.clone(), RawBson::Int32(*id))).collect();
        Box::pin(async move {
            let holder = self.holder();
            holder.reserve(&wanted).await;
            holder
        })
    }

    async fn may_claim(&self, holder: &Holder, id: i32) -> bool {
        let snapshot = self.store.snapshot().await.unwrap();
        holder.claim(&self.namespace, RawBsonRef::Int32(id), None, &*snapshot).await.is_ok()
    }

    fn is_empty(&self) -> bool {
        lock(&self.table.claims).by_place.is_empty()
    }
}

/// The transaction, if it has begun.
fn begun(waiting: &mut Waiting<'_>) -> Option<Holder> {
    match waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(holder) => Some(holder),
        Poll::Pending => None,
    }
}

#[tokio::test]
async fn what_nobody_has_is_not_waited_for() {
    let setting = Setting::new();
    let holder = begun(&mut setting.waits(&[1, 2, 1])).unwrap();
    assert!(setting.may_claim(&holder, 1).await && !setting.may_claim(&setting.holder(), 2).await);
    drop(holder);
    assert!(setting.is_empty());
}

#[tokio::test]
async fn a_claim_goes_to_whoever_waited_longest_and_to_nobody_in_between() {
    let setting = Setting::new();
    let first = begun(&mut setting.waits(&[1])).unwrap();
    let (mut second, mut third) = (setting.waits(&[1]), setting.waits(&[1]));
    assert!(begun(&mut second).is_none() && begun(&mut third).is_none());
    drop(first);
    assert!(!setting.may_claim(&setting.holder(), 1).await, "it is the second one's, who has not looked yet");
    let second = begun(&mut second).unwrap();
    assert!(begun(&mut third).is_none());
    drop(second);
    drop(begun(&mut third).unwrap());
    assert!(setting.is_empty());
}

#[tokio::test]
async fn whoever_gives_up_is_passed_over_before_and_after_it_was_called() {
    let setting = Setting::new();
    let first = begun(&mut setting.waits(&[1])).unwrap();
    let (mut impatient, mut late, mut last) = (setting.waits(&[1]), setting.waits(&[1]), setting.waits(&[1]));
    assert!([&mut impatient, &mut late, &mut last].map(|waiting| begun(waiting).is_none()).iter().all(|waits| *waits));
    drop(impatient);
    drop(first);
    // It was called, and goes before it hears of it.
    drop(late);
    drop(begun(&mut last).unwrap());
    assert!(setting.is_empty());
}

#[tokio::test]
async fn those_who_want_the_same_in_another_order_do_not_wait_in_a_circle() {
    let setting = Setting::new();
    let first = begun(&mut setting.waits(&[1, 2])).unwrap();
    let (mut second, mut third) = (setting.waits(&[1, 2]), setting.waits(&[2, 1]));
    assert!(begun(&mut second).is_none() && begun(&mut third).is_none());
    drop(first);
    drop(begun(&mut second).unwrap());
    drop(begun(&mut third).unwrap());
    assert!(setting.is_empty());
}

#[tokio::test]
async fn a_long_wait_leaves_no_trace() {
    let setting = Setting::new();
    let holder = begun(&mut setting.waits(&[1])).unwrap();
    for _ in 0..100 {
        assert!(begun(&mut setting.waits(&[1])).is_none());
    }
    let waiting = lock(&setting.table.claims).by_place.values().map(|claim| claim.waiting.len()).sum::<usize>();
    assert!(waiting <= 1, "{waiting} that have given up");
    drop(holder);
    assert!(setting.is_empty());
}
