//! Faults at one request of a process, which is named by its operation and its collection.
//!
//! ```text
//! world.fault_at(first(Operation::Update, "accounts"), Fault::CrashAfter)     dies after its first update of `accounts`
//! ```

use std::sync::Arc;

use handfast_store::DocumentStore;
use handfast_store::decorator::{Address, DelegatingStore, Fault, Faulty, Operation, Plan};

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

/// A store of a process that meets faults.
pub(crate) struct FaultAt(Faulty<dyn DocumentStore>);

impl World {
    /// Returns the store of this world with a fault at one request.
    pub(crate) fn fault_at(&self, address: Address, fault: Fault) -> Arc<FaultAt> {
        self.faults_at([(address, fault)])
    }

    /// Returns the store of this world with a fault at each of these requests.
    pub(crate) fn faults_at(&self, faults: impl IntoIterator<Item = (Address, Fault)>) -> Arc<FaultAt> {
        Arc::new(FaultAt(Faulty::new(Arc::clone(&self.store), Plan::at_requests(faults))))
    }
}

impl FaultAt {
    /// Returns the decorator with the faults.
    pub(crate) fn faulty(&self) -> &Faulty<dyn DocumentStore> {
        &self.0
    }

    /// Waits until the addressed request is frozen.
    pub(crate) async fn frozen(&self) {
        while self.0.frozen() == 0 {
            tokio::task::yield_now().await;
        }
    }
}

impl DelegatingStore for FaultAt {
    type Inner = dyn DocumentStore;

    fn inner(&self) -> &Self::Inner {
        &self.0
    }
}
