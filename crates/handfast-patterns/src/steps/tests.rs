//! Counts how often each kind of step is sent while the network keeps failing: twice, over every kind of store.

use std::future::Future;
use std::pin::Pin;

use bson::doc;
use handfast_store::decorator::{Fault, Faulty, Plan, Resilient, WithDurability};
use handfast_store::{Durability, MemoryStore, Sources};

use super::*;

type StepFuture<'a> = Pin<Box<dyn Future<Output = Result<()>> + Send + 'a>>;
type Kind = (&'static str, fn(&Steps) -> StepFuture<'_>);

macro_rules! kinds {
    ($($name:literal: $steps:ident => $step:expr),+ $(,)?) => {
        [$(($name, |$steps: &Steps| Box::pin(async move { $step.await.map(|_| ()) }) as StepFuture<'_>)),+]
    };
}

/// Returns one step of each kind, with a filter or a change that a decorator cannot know to be safe where there is
/// one.
fn kinds() -> [Kind; 15] {
    kinds! {
        "create_indexes": steps => steps.create_indexes([IndexSpec::new(bson::rawdoc! { "n": 1 })]),
        "insert": steps => steps.insert(&doc! { "_id": 1 }),
        "insert_all": steps => steps.insert_all(&[doc! { "_id": 1 }, doc! { "_id": 2 }]),
        "find_one": steps => steps.find_one(&doc! { "_id": 1 }),
        "find": steps => steps.find(&doc! {}, &doc! { "n": 1 }, 10),
        "pages": steps => steps.pages(&doc! {}, 10),
        "aggregate": steps => steps.aggregate(&[doc! { "$match": { "n": 1 } }]),
        "aggregate_pages": steps => steps.aggregate_pages(&[doc! { "$match": { "n": 1 } }], 10),
        "update_one, as good twice": steps => steps.update_one(&doc! { "_id": 1 }, &doc! { "$set": { "n": 1 } }),
        "update_one, guarded": steps => steps.update_one(&doc! { "_id": 1, "t": { "$ne": 7 } }, &doc! { "$inc": { "n": 1 }, "$push": { "t": 7 } }),
        "update_many": steps => steps.update_many(&doc! { "n": 1 }, &doc! { "$set": { "n": 2 } }),
        "upsert_one": steps => steps.upsert_one(&doc! { "_id": 1 }, &doc! { "$addToSet": { "t": 7 } }),
        "find_and_update": steps => steps.find_and_update(&doc! { "_id": 1, "n": 1 }, &doc! { "$set": { "n": 2 } }),
        "count": steps => steps.count(&doc! { "n": 1 }),
        "delete_one": steps => steps.delete_one(&doc! { "_id": 1 }),
    }
}

/// Returns the steps of a pattern on this store, over a network that fails as planned.
fn over(store: &str, plan: Plan) -> (Arc<Faulty<MemoryStore>>, Steps) {
    let sources = Sources::seeded(1);
    let network = Arc::new(Faulty::new(Arc::new(MemoryStore::new(sources.clone())), plan));
    let resilient = |store: Arc<dyn DocumentStore>| Arc::new(Resilient::new(store, Arc::clone(&sources.ids)));
    let store: Arc<dyn DocumentStore> = match store {
        "bare" => network.clone(),
        "resilient" => resilient(network.clone()),
        "resilient twice" => resilient(resilient(network.clone())),
        _ => Arc::new(WithDurability::new(resilient(network.clone()), Durability::Memory)),
    };
    (network, Steps::new(store, Namespace::new("d", "c").expect("a valid name")))
}

#[tokio::test]
async fn a_step_is_sent_twice_over_any_store_while_the_network_fails() {
    let lasting = [Fault::LoseRequest, Fault::LoseReply, Fault::StepDown].map(|fault| vec![fault; 8]);
    // The first fault is one that a decorator must not repeat, the others are ones that it may.
    let mixed = vec![Fault::LoseReply, Fault::StepDown, Fault::StepDown, Fault::StepDown];
    let mut wrong = Vec::new();
    for faults in lasting.into_iter().chain([mixed]) {
        for store in ["bare", "resilient", "resilient twice", "resilient, in memory"] {
            for (name, step) in kinds() {
                let (network, steps) = over(store, Plan::explicit((0..).zip(faults.iter().copied())));
                let failed = step(&steps).await.is_err();
                if !failed || network.operations() != 2 {
                    wrong.push(format!(
                        "{name} on a {store} store, {:?}: {} requests",
                        faults[0],
                        network.operations()
                    ));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test]
async fn the_first_of_several_documents_is_looked_for_before_it_is_changed_again() {
    for store in ["bare", "resilient"] {
        let (network, steps) = over(store, Plan::always(Fault::LoseReply));
        let (any, set, ours) = (doc! { "n": 1 }, doc! { "$set": { "n": 2, "by": 7 } }, doc! { "by": 7 });
        assert!(steps.find_first_and_update(&any, &doc! {}, &set, &ours).await.is_err());
        let sent: Vec<_> = network.injected().iter().map(|fault| fault.operation.to_string()).collect();
        assert_eq!(sent, ["find_and_modify", "find"], "{store}");
    }
}

/// An outage and a refusal are not transient errors.
#[tokio::test]
async fn nothing_else_is_sent_twice() {
    for store in ["bare", "resilient"] {
        for (name, step) in kinds() {
            let (network, steps) = over(store, Plan::always(Fault::Refuse));
            assert!(step(&steps).await.is_err());
            assert_eq!(network.operations(), 1, "{name} on a {store} store");
        }
    }
}

/// The outcome, not an error, says how many of several documents a store has inserted before the network failed.
#[tokio::test]
async fn documents_that_were_not_inserted_are_inserted_by_the_second_attempt() {
    struct Breaking(MemoryStore, AtomicBool);

    #[async_trait::async_trait]
    impl handfast_store::decorator::DelegatingStore for Breaking {
        type Inner = MemoryStore;

        fn inner(&self) -> &MemoryStore {
            &self.0
        }

        async fn insert(&self, request: Insert) -> StoreResult<handfast_store::InsertOutcome> {
            if self.1.swap(true, Ordering::Relaxed) {
                return self.0.insert(request).await;
            }
            let first = Insert { documents: request.documents[..1].to_vec(), ..request };
            let lost = StoreError::new(
                ErrorClass::TransientNetwork,
                handfast_store::Applied::Maybe,
                Code::SocketException,
                "connection reset",
            );
            let mut outcome = self.0.insert(first).await?;
            outcome.errors.push(handfast_store::WriteError { index: 1, error: lost });
            Ok(outcome)
        }
    }

    for wrapped in [false, true] {
        let sources = Sources::seeded(1);
        let breaking = Arc::new(Breaking(MemoryStore::new(sources.clone()), AtomicBool::new(false)));
        let store: Arc<dyn DocumentStore> = match wrapped {
            true => Arc::new(Resilient::new(breaking, sources.ids)),
            false => breaking,
        };
        let steps = Steps::new(store, Namespace::new("d", "c").expect("a valid name"));
        let taken = steps.insert_all(&[doc! { "_id": 1 }, doc! { "_id": 2 }]).await.expect("a hiccup");
        assert_eq!(taken, [0], "the first attempt's");
        assert_eq!(steps.count(&doc! {}).await.expect("no fault"), 2);
    }
}
