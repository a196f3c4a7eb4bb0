//! Faults at one request of a process, which is named by its operation and its collection.
//!
//! ```text
//! world.fault_at(first(Operation::Update, "accounts"), Fault::CrashAfter)     dies after its first update of `accounts`
//! ```

use std::sync::Arc;
use std::time::Duration;

use handfast_store::DocumentStore;
use handfast_store::decorator::{Address, Fault, Faulty, Operation, Plan};
use tokio::task::JoinHandle;

use crate::crash::World;

/// Addresses the first request of this operation on this collection.
pub(crate) fn first(operation: Operation, collection: &str) -> Address {
    Address::first(operation).of(collection)
}

/// Addresses the second request of this operation on this collection.
pub(crate) fn second(operation: Operation, collection: &str) -> Address {
    Address::second(operation).of(collection)
}

/// Addresses the third request of this operation on this collection.
pub(crate) fn third(operation: Operation, collection: &str) -> Address {
    Address::third(operation).of(collection)
}

impl World {
    /// Returns the store of this world with a fault at one request.
    pub(crate) fn fault_at(&self, address: Address, fault: Fault) -> Arc<Faulty<dyn DocumentStore>> {
        self.faults_at([(address, fault)])
    }

    /// Returns the store of this world with a fault at each of these requests.
    pub(crate) fn faults_at(
        &self,
        faults: impl IntoIterator<Item = (Address, Fault)>,
    ) -> Arc<Faulty<dyn DocumentStore>> {
        Arc::new(Faulty::new(Arc::clone(&self.store), Plan::at_requests(faults)))
    }
}

/// The maximal time until a process reaches a request, also on a busy machine.
const PATIENCE: Duration = Duration::from_secs(180);

/// Waits until the addressed request of a store, which a task sends, is frozen.
pub(crate) async fn wait_until_frozen<T>(store: &Faulty<dyn DocumentStore>, task: &JoinHandle<T>) {
    let frozen = async {
        while store.frozen() == 0 {
            assert!(!task.is_finished(), "the task has ended before its request");
            tokio::task::yield_now().await;
        }
    };
    assert!(tokio::time::timeout(PATIENCE, frozen).await.is_ok(), "no request is frozen within {PATIENCE:?}");
}
