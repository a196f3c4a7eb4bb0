//! Faults that are addressed by the operation and the collection that they hit.
//!
//! ```text
//! world.fault_at(first(Operation::Update, "accounts"), Fault::CrashAfter)     dies after its first update of `accounts`
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use handfast_store::decorator::{DelegatingStore, Fault, Faulty, Operation, Plan};
use handfast_store::{
    Cursor, Delete, DeleteOutcome, DocumentStore, Find, FindAndModify, FindAndModifyOutcome, Insert, InsertOutcome,
    Namespace, Result, Update, UpdateOutcome,
};

use crate::crash::World;

/// A request of a process: the first, second, .. of an operation on a collection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Address {
    operation: Operation,
    collection: &'static str,
    /// The number of earlier requests of the same operation on the same collection.
    earlier: u64,
}

/// Addresses the first request of this operation on this collection.
pub(crate) fn first(operation: Operation, collection: &'static str) -> Address {
    Address { operation, collection, earlier: 0 }
}

/// Addresses the second request of this operation on this collection.
pub(crate) fn second(operation: Operation, collection: &'static str) -> Address {
    Address { earlier: 1, ..first(operation, collection) }
}

/// Addresses the third request of this operation on this collection.
pub(crate) fn third(operation: Operation, collection: &'static str) -> Address {
    Address { earlier: 2, ..first(operation, collection) }
}

/// A store that is healthy until the addressed request, and [`Faulty`] from it on.
pub(crate) struct FaultAt {
    healthy: Arc<dyn DocumentStore>,
    faulty: Faulty<dyn DocumentStore>,
    address: Address,
    /// The number of requests of the operation on the collection so far.
    requests: AtomicU64,
}

impl World {
    /// Returns the store of this world with a fault at one request.
    pub(crate) fn fault_at(&self, address: Address, fault: Fault) -> Arc<FaultAt> {
        self.faults_from(address, [fault])
    }

    /// Returns the store of this world with several faults: at the addressed request, at the next operation after it,
    /// and so on.
    pub(crate) fn faults_from(&self, address: Address, faults: impl IntoIterator<Item = Fault>) -> Arc<FaultAt> {
        let faulty = Faulty::new(Arc::clone(&self.store), Plan::explicit((0..).zip(faults)));
        Arc::new(FaultAt { healthy: Arc::clone(&self.store), faulty, address, requests: AtomicU64::new(0) })
    }
}

impl FaultAt {
    /// Returns the decorator with the faults.
    pub(crate) fn faulty(&self) -> &Faulty<dyn DocumentStore> {
        &self.faulty
    }

    /// Waits until the addressed request is frozen.
    pub(crate) async fn frozen(&self) {
        while self.faulty.frozen() == 0 {
            tokio::task::yield_now().await;
        }
    }

    fn count(&self, operation: Operation, namespace: &Namespace) {
        if operation == self.address.operation && namespace.collection() == self.address.collection {
            self.requests.fetch_add(1, Ordering::SeqCst);
        }
    }
}

#[async_trait]
impl DelegatingStore for FaultAt {
    type Inner = dyn DocumentStore;

    fn inner(&self) -> &Self::Inner {
        match self.requests.load(Ordering::SeqCst) > self.address.earlier {
            true => &self.faulty,
            false => &*self.healthy,
        }
    }

    async fn insert(&self, request: Insert) -> Result<InsertOutcome> {
        self.count(Operation::Insert, &request.namespace);
        self.inner().insert(request).await
    }

    async fn find(&self, request: Find) -> Result<Box<dyn Cursor>> {
        self.count(Operation::Find, &request.namespace);
        self.inner().find(request).await
    }

    async fn update(&self, request: Update) -> Result<UpdateOutcome> {
        self.count(Operation::Update, &request.namespace);
        self.inner().update(request).await
    }

    async fn find_and_modify(&self, request: FindAndModify) -> Result<FindAndModifyOutcome> {
        self.count(Operation::FindAndModify, &request.namespace);
        self.inner().find_and_modify(request).await
    }

    async fn delete(&self, request: Delete) -> Result<DeleteOutcome> {
        self.count(Operation::Delete, &request.namespace);
        self.inner().delete(request).await
    }
}
