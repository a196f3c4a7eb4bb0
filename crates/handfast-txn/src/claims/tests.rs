//! The queues of transactions that want the same documents.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bson::RawBsonRef;
use handfast_store::{AtomicStore, MemoryStore, Namespace, Sources};

use super::{ClaimTable, TransactionClaims, lock};
use crate::local::StoreChangeDetector;
use crate::{Claims as _, DocumentKey};

struct Setting {
    store: Arc<dyn AtomicStore>,
    table: Arc<ClaimTable>,
    namespace: Namespace,
}

/// A transaction that waits until it may begin.
type Waiting<'t> = Pin<Box<dyn Future<Output = TransactionClaims> + 't>>;

impl Setting {
    fn new() -> Self {
        let sources = Sources::seeded(1);
        let store: Arc<dyn AtomicStore> = Arc::new(MemoryStore::new(sources.clone()));
        Setting { store, table: Arc::new(ClaimTable::new(sources.clock)), namespace: Namespace::new("d", "c").unwrap() }
    }

    fn holder(&self) -> TransactionClaims {
        self.table.register(Arc::new(StoreChangeDetector(Arc::clone(&self.store))), Duration::from_secs(60))
    }

    /// Returns a transaction that waits until it has claims on these documents.
    fn waits(&self, ids: &[i32]) -> Waiting<'_> {
        let wanted = ids.iter().map(|id| DocumentKey::new(&self.namespace, RawBsonRef::Int32(*id))).collect();
        Box::pin(async move {
            let holder = self.holder();
            holder.wait_and_claim(wanted).await;
            holder
        })
    }

    async fn may_claim(&self, holder: &TransactionClaims, id: i32) -> bool {
        let snapshot = self.store.snapshot().await.unwrap();
        holder.claim(&self.namespace, RawBsonRef::Int32(id), None, &*snapshot).await.is_ok()
    }

    fn is_empty(&self) -> bool {
        lock(&self.table.queues).is_empty()
    }
}

/// Returns the claims of the transaction, if it has begun.
fn begun(waiting: &mut Waiting<'_>) -> Option<TransactionClaims> {
    match waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(holder) => Some(holder),
        Poll::Pending => None,
    }
}

#[tokio::test]
async fn an_unclaimed_document_is_not_waited_for() {
    let setting = Setting::new();
    let holder = begun(&mut setting.waits(&[1, 2, 1])).unwrap();
    assert!(setting.may_claim(&holder, 1).await && !setting.may_claim(&setting.holder(), 2).await);
    drop(holder);
    assert!(setting.is_empty());
}

#[tokio::test]
async fn a_refused_transaction_wants_what_it_had_and_what_it_was_refused() {
    let setting = Setting::new();
    let (first, second) = (setting.holder(), setting.holder());
    assert!(setting.may_claim(&first, 1).await && setting.may_claim(&second, 2).await);
    assert!(second.wanted().is_empty(), "it was refused nothing");
    assert!(!setting.may_claim(&second, 1).await);
    let wanted = [2, 1].map(|id| DocumentKey::new(&setting.namespace, RawBsonRef::Int32(id)));
    assert_eq!(second.wanted(), wanted);
    drop((first, second));
    assert!(setting.is_empty());
}

#[tokio::test]
async fn a_claim_goes_to_the_longest_waiting_and_to_no_other_in_between() {
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
async fn a_cancelled_wait_is_passed_over_before_and_after_its_notification() {
    let setting = Setting::new();
    let first = begun(&mut setting.waits(&[1])).unwrap();
    let (mut impatient, mut late, mut last) = (setting.waits(&[1]), setting.waits(&[1]), setting.waits(&[1]));
    assert!([&mut impatient, &mut late, &mut last].map(|waiting| begun(waiting).is_none()).iter().all(|waits| *waits));
    drop(impatient);
    drop(first);
    // The transaction was notified, and is cancelled before it runs again.
    drop(late);
    drop(begun(&mut last).unwrap());
    assert!(setting.is_empty());
}

#[tokio::test]
async fn a_waiting_transaction_holds_no_claims() {
    let setting = Setting::new();
    let first = begun(&mut setting.waits(&[1])).unwrap();
    let mut both = setting.waits(&[1, 2]);
    assert!(begun(&mut both).is_none());
    let other = setting.holder();
    assert!(setting.may_claim(&other, 2).await, "nobody has it yet");
    drop(first);
    assert!(begun(&mut both).is_none(), "the other one has 2");
    drop(other);
    drop(begun(&mut both).unwrap());
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
async fn documents_are_reserved_for_a_transaction_that_was_overtaken_often() {
    let setting = Setting::new();
    let mut passing = begun(&mut setting.waits(&[1])).unwrap();
    let busy = begun(&mut setting.waits(&[2])).unwrap();
    let mut both = setting.waits(&[1, 2]);
    assert!(begun(&mut both).is_none());
    for passed in 0..1000 {
        let mut next = setting.waits(&[1]);
        assert!(begun(&mut next).is_none());
        drop(passing);
        let Some(holder) = begun(&mut next) else {
            assert!(passed >= 10, "not kept free at once: {passed}");
            assert!(!setting.may_claim(&setting.holder(), 1).await, "kept from newcomers too");
            drop(busy);
            drop(begun(&mut both).unwrap());
            drop(begun(&mut next).unwrap());
            assert!(setting.is_empty());
            return;
        };
        passing = holder;
    }
    panic!("it waits for ever");
}

#[tokio::test]
async fn a_reservation_of_a_cancelled_wait_goes_to_the_next() {
    let setting = Setting::new();
    let busy = begun(&mut setting.waits(&[2])).unwrap();
    let mut both = setting.waits(&[1, 2]);
    assert!(begun(&mut both).is_none());
    let mut next = setting.waits(&[1]);
    while let Some(holder) = begun(&mut next) {
        drop(holder);
        next = setting.waits(&[1]);
    }
    drop(both);
    drop((begun(&mut next).unwrap(), busy));
    assert!(setting.is_empty());
}

#[tokio::test]
async fn a_long_wait_leaves_no_trace() {
    let setting = Setting::new();
    let holder = begun(&mut setting.waits(&[1])).unwrap();
    for _ in 0..100 {
        assert!(begun(&mut setting.waits(&[1])).is_none());
    }
    assert_eq!(lock(&setting.table.queues).waiting(), 0, "those that have given up");
    drop(holder);
    assert!(setting.is_empty());
}
