//! Counts how often an update of a pattern is sent while its answers are lost, also over stores that repeat requests
//! themselves.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use async_trait::async_trait;
use bson::rawdoc;
use handfast_mql::Code;
use handfast_patterns::{Change, ExactlyOnce};
use handfast_store::decorator::{DelegatingStore, Resilient};
use handfast_store::{
    Applied, DocumentStore, Error, ErrorClass, MemoryStore, Namespace, Sources, StoreExt, Update, UpdateOutcome,
};

/// A store that loses every update of the days, or the answer to it.
struct Losing {
    store: MemoryStore,
    lost: Lost,
    /// The network works until this is set.
    begun: AtomicBool,
    sent: AtomicU64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Lost {
    Request,
    Reply,
    /// The request is lost, and the error says that it was not applied, so that any layer may repeat it.
    NotApplied,
}

impl Lost {
    const ALL: [Lost; 3] = [Lost::Request, Lost::Reply, Lost::NotApplied];

    fn applied(self) -> Applied {
        if self == Lost::NotApplied { Applied::No } else { Applied::Maybe }
    }
}

#[async_trait]
impl DelegatingStore for Losing {
    type Inner = MemoryStore;

    fn inner(&self) -> &MemoryStore {
        &self.store
    }

    async fn update(&self, request: Update) -> handfast_store::Result<UpdateOutcome> {
        if request.namespace != days() || !self.begun.load(Ordering::Relaxed) {
            return self.store.update(request).await;
        }
        self.sent.fetch_add(1, Ordering::Relaxed);
        if self.lost == Lost::Reply {
            self.store.update(request).await?;
        }
        Err(Error::new(ErrorClass::TransientNetwork, self.lost.applied(), Code::SocketException, "connection reset"))
    }
}

fn days() -> Namespace {
    Namespace::new("site", "days").unwrap()
}

/// Counts how often the updates of an increment are sent over such a store, which `over` wraps; returns the number,
/// and whether the increment is known to be made in the end.
async fn sent(lost: Lost, over: impl Fn(Arc<dyn DocumentStore>, &Sources) -> Arc<dyn DocumentStore>) -> (u64, bool) {
    let sources = Sources::system().unwrap();
    let (begun, sent) = Default::default();
    let losing = Arc::new(Losing { store: MemoryStore::new(sources.clone()), lost, begun, sent });
    let store = over(losing.clone(), &sources);
    store.insert_one(&days(), rawdoc! { "_id": 1, "counter": 0 }).await.unwrap();
    let once = ExactlyOnce::open_with(store, days(), sources, Default::default()).await.unwrap();
    losing.begun.store(true, Ordering::Relaxed);
    let applied = once.apply(once.token(), 1, &Change::increment("counter", 1)).await;
    if let Err(error) = &applied {
        assert_eq!((error.class(), error.applied()), (ErrorClass::TransientNetwork, lost.applied()));
    }
    (losing.sent.load(Ordering::Relaxed), applied.is_ok())
}

fn resilient(store: Arc<dyn DocumentStore>, sources: &Sources) -> Arc<dyn DocumentStore> {
    Arc::new(Resilient::new(store, Arc::clone(&sources.ids)))
}

/// A store that runs updates in tasks of their own, where the mark that the caller repeats requests itself is lost.
struct OtherTask(Arc<dyn DocumentStore>);

#[async_trait]
impl DelegatingStore for OtherTask {
    type Inner = dyn DocumentStore;

    fn inner(&self) -> &Self::Inner {
        &*self.0
    }

    async fn update(&self, request: Update) -> handfast_store::Result<UpdateOutcome> {
        let store = Arc::clone(&self.0);
        tokio::spawn(async move { store.update(request).await }).await.unwrap()
    }
}

#[tokio::test]
async fn an_update_is_sent_twice_whether_or_not_the_store_sends_again_by_itself() {
    for lost in Lost::ALL {
        assert_eq!(sent(lost, |store, _| store).await, (2, false), "{lost:?}");
        assert_eq!(sent(lost, resilient).await, (2, false), "{lost:?}");
    }
}

/// A second layer that repeats requests sends each of the pattern's two attempts twice, if it may.
#[tokio::test]
async fn a_retry_of_a_retry_is_caught() {
    let second_owner = |store: Arc<dyn DocumentStore>, sources: &Sources| -> Arc<dyn DocumentStore> {
        Arc::new(OtherTask(resilient(store, sources)))
    };
    assert_eq!(sent(Lost::NotApplied, second_owner).await, (4, false));
    // This shows that the second layer, and not the other task, makes the difference.
    assert_eq!(sent(Lost::NotApplied, |store, _| Arc::new(OtherTask(store))).await, (2, false));
}
