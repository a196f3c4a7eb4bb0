//! A store whose network and server misbehave as planned.
//!
//! Operations are numbered from 0 in the order they are started, pages of cursors included. A harness that wants every
//! crash point runs a scenario once without faults, asks [`Faulty::operations`] how many there were, and runs it again
//! for each number and each [`Fault`]. [`Exploration`] does this for a scenario and an invariant; a harness of its own
//! looks like this:
//!
//! ```
//! # use std::sync::Arc;
//! # use handfast_store::{DocumentStore, decorator::{Fault, Faulty, Plan}};
//! # async fn scenario(_: &dyn DocumentStore) {}
//! # fn store() -> Arc<dyn DocumentStore> { unimplemented!() }
//! # async fn every_point() {
//! let counting = Faulty::new(store(), Plan::none());
//! scenario(&counting).await;
//! for number in 0..counting.operations() {
//!     for fault in [Fault::LoseRequest, Fault::LoseReply, Fault::CrashAfter] {
//!         let faulty = Faulty::new(store(), Plan::at(number, fault));
//!         scenario(&faulty).await;
//!         faulty.restart();
//!         // recover, and check the invariants
//!     }
//! }
//! # }
//! ```
//!
//! A test of one request names it by its operation and its collection:
//!
//! ```
//! # use handfast_store::decorator::{Address, Fault, Operation, Plan};
//! let plan = Plan::at_request(Address::first(Operation::Update).of("accounts"), Fault::CrashAfter);
//! ```
//!
//! The caller gets the same error for a lost request and for a lost reply, with the outcome `maybe applied`: on a network it
//! could not tell them apart either.

mod exploration;
mod frozen;
mod plan;
mod store;
#[cfg(test)]
mod tests;

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use handfast_mql::Code;

pub use self::exploration::{Exploration, ExplorationError, Explored, Pair, PairOutcome};
use self::frozen::Frozen;
pub use self::plan::{Address, Fault, Plan};
use super::Operation;
use crate::{Applied, Cursor, DocumentStore, Error, ErrorClass, Namespace, Result};

/// The number of faults that [`Faulty::injected`] returns at most, the first ones.
const INJECTED_KEPT_MAX: usize = 100_000;
/// The number of operations that [`Faulty::started`] returns at most, the first ones.
const STARTED_KEPT_MAX: usize = 100_000;

type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;
/// A request that the network still delays.
type LateRequest<S> = Box<dyn Fn(Arc<S>) -> BoxFuture<Result<()>> + Send + Sync>;

/// A fault that was injected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InjectedFault {
    /// The number of the operation.
    pub number: u64,
    /// The operation that met the fault.
    pub operation: Operation,
    /// The fault.
    pub fault: Fault,
}

/// A decorator that injects faults by a plan. See the module's documentation.
pub struct Faulty<S: ?Sized> {
    store: Arc<S>,
    injector: Arc<Injector>,
    late: Mutex<Vec<LateRequest<S>>>,
}

impl<S: DocumentStore + ?Sized> Faulty<S> {
    /// Wraps a store.
    pub fn new(store: Arc<S>, plan: Plan) -> Self {
        Faulty { store, injector: Arc::new(Injector::new(plan)), late: Mutex::default() }
    }

    /// Returns the inner store, which has no faults, to see its true state.
    pub fn inner(&self) -> &Arc<S> {
        &self.store
    }

    /// Returns how many operations were started.
    pub fn operations(&self) -> u64 {
        self.injector.next.load(Ordering::SeqCst)
    }

    /// Returns the operations that were started, in their order.
    pub fn started(&self) -> Vec<Operation> {
        lock(&self.injector.started).clone()
    }

    /// Returns the faults injected so far.
    pub fn injected(&self) -> Vec<InjectedFault> {
        lock(&self.injector.injected).clone()
    }

    /// Returns how many operations are frozen now.
    pub fn frozen(&self) -> usize {
        self.injector.frozen.operations().len()
    }

    /// Returns the operations that are frozen now, with their numbers.
    pub fn frozen_operations(&self) -> Vec<(u64, Operation)> {
        self.injector.frozen.operations()
    }

    /// Continues all frozen operations.
    pub fn release(&self) {
        for (number, _) in self.frozen_operations() {
            self.release_one(number, None);
        }
    }

    /// Continues one frozen operation, with a fault if one is given and the operation did not run yet; returns `false` if it is
    /// not frozen.
    pub fn release_one(&self, number: u64, fault: Option<Fault>) -> bool {
        self.injector.frozen.release(number, fault)
    }

    /// Restarts a crashed store.
    pub fn restart(&self) {
        self.injector.crashed.store(false, Ordering::SeqCst);
    }

    /// Delivers the requests that were delayed ([`Fault::DeliverLate`]) or duplicated ([`Fault::Duplicate`]); returns the
    /// result of each.
    pub async fn deliver_late(&self) -> Vec<Result<()>> {
        let late = std::mem::take(&mut *lock(&self.late));
        let mut results = Vec::with_capacity(late.len());
        for call in late {
            results.push(call(Arc::clone(&self.store)).await);
        }
        results
    }

    async fn run<T: Send + 'static>(
        &self,
        operation: Operation,
        collection: Option<&Namespace>,
        call: impl Fn(Arc<S>) -> BoxFuture<Result<T>> + Send + Sync + 'static,
    ) -> Result<T> {
        let (number, fault) = self.injector.start(operation, collection)?;
        match self.injector.thawed(number, operation, fault).await {
            Some(Fault::DeliverLate) => {
                self.later(call);
                Err(lost(number, operation))
            }
            Some(Fault::Duplicate) => {
                let result = call(Arc::clone(&self.store)).await;
                self.later(call);
                result
            }
            fault => self.injector.perform(number, operation, fault, call(Arc::clone(&self.store))).await,
        }
    }

    fn later<T: Send + 'static>(&self, call: impl Fn(Arc<S>) -> BoxFuture<Result<T>> + Send + Sync + 'static) {
        let call: LateRequest<S> = Box::new(move |store| {
            let call = call(store);
            Box::pin(async move { call.await.map(|_| ()) })
        });
        lock(&self.late).push(call);
    }

    fn wrap(&self, cursor: Box<dyn Cursor>, namespace: Option<Namespace>) -> Box<dyn Cursor> {
        Box::new(store::FaultyCursor { cursor, namespace, injector: Arc::clone(&self.injector) })
    }
}

/// Numbers the operations and decides which fault each one meets.
struct Injector {
    plan: Plan,
    /// The requests so far that each address of the plan counts.
    counted: Vec<AtomicU64>,
    next: AtomicU64,
    crashed: AtomicBool,
    started: Mutex<Vec<Operation>>,
    injected: Mutex<Vec<InjectedFault>>,
    frozen: Frozen,
}

impl Injector {
    fn new(plan: Plan) -> Self {
        Injector {
            counted: plan.addresses().map(|_| AtomicU64::new(0)).collect(),
            plan,
            next: AtomicU64::new(0),
            crashed: AtomicBool::new(false),
            started: Mutex::default(),
            injected: Mutex::default(),
            frozen: Frozen::default(),
        }
    }

    /// Returns the number and the fault of an operation that starts now.
    fn start(&self, operation: Operation, collection: Option<&Namespace>) -> Result<(u64, Option<Fault>)> {
        let number = self.next.fetch_add(1, Ordering::SeqCst);
        let mut started = lock(&self.started);
        if started.len() < STARTED_KEPT_MAX {
            started.push(operation);
        }
        drop(started);
        if self.crashed.load(Ordering::SeqCst) {
            return Err(unreachable_store(number, operation));
        }
        let fault = self.addressed(operation, collection).or_else(|| self.plan.fault(number, operation));
        if let Some(fault) = fault {
            tracing::debug!(number, %operation, ?fault, "fault injected");
            let mut injected = lock(&self.injected);
            if injected.len() < INJECTED_KEPT_MAX {
                injected.push(InjectedFault { number, operation, fault });
            }
        }
        Ok((number, fault))
    }

    /// Returns the fault of an operation that has an address in the plan.
    fn addressed(&self, operation: Operation, collection: Option<&Namespace>) -> Option<Fault> {
        let mut met = None;
        for ((address, fault), counted) in self.plan.addresses().zip(&self.counted) {
            if address.counts(operation, collection) && counted.fetch_add(1, Ordering::SeqCst) == address.earlier {
                met = Some(*fault);
            }
        }
        met
    }

    /// Runs an operation that changes nothing, so that a late delivery would have no effect.
    async fn read<T>(
        &self,
        operation: Operation,
        collection: Option<&Namespace>,
        call: impl Future<Output = Result<T>> + Send,
    ) -> Result<T> {
        let (number, fault) = self.start(operation, collection)?;
        let fault = self.thawed(number, operation, fault).await;
        self.perform(number, operation, fault, call).await
    }

    /// Waits while the operation is frozen before it runs; returns the fault to continue with.
    async fn thawed(&self, number: u64, operation: Operation, mut fault: Option<Fault>) -> Option<Fault> {
        while fault == Some(Fault::FreezeBefore) {
            fault = self.frozen.freeze(number, operation).await;
        }
        fault
    }

    async fn perform<T>(
        &self,
        number: u64,
        operation: Operation,
        fault: Option<Fault>,
        call: impl Future<Output = Result<T>> + Send,
    ) -> Result<T> {
        match fault {
            None | Some(Fault::Duplicate | Fault::FreezeBefore) => call.await,
            Some(Fault::Refuse) => Err(unreachable_store(number, operation)),
            Some(Fault::StepDown) => Err(not_primary(number, operation)),
            Some(Fault::LoseRequest | Fault::DeliverLate) => Err(lost(number, operation)),
            Some(Fault::LoseReply) => {
                let _ = call.await;
                Err(lost(number, operation))
            }
            Some(Fault::Delay(time)) => {
                tokio::time::sleep(time).await;
                call.await
            }
            Some(Fault::FreezeAfter) => {
                let result = call.await;
                self.frozen.freeze(number, operation).await;
                result
            }
            Some(Fault::CrashBefore) => {
                self.crashed.store(true, Ordering::SeqCst);
                Err(lost(number, operation))
            }
            Some(Fault::CrashAfter) => {
                let _ = call.await;
                self.crashed.store(true, Ordering::SeqCst);
                Err(lost(number, operation))
            }
        }
    }
}

fn lost(number: u64, operation: Operation) -> Error {
    let text = format!("connection reset during operation {number} ({operation})");
    let applied = if operation.is_write() { Applied::Maybe } else { Applied::No };
    Error::new(ErrorClass::TransientNetwork, applied, Code::SocketException, text)
}

fn not_primary(number: u64, operation: Operation) -> Error {
    let text = format!("not primary at operation {number} ({operation})");
    Error::new(ErrorClass::TransientNetwork, Applied::No, Code::NotWritablePrimary, text)
}

fn unreachable_store(number: u64, operation: Operation) -> Error {
    let text = format!("no server could be selected for operation {number} ({operation})");
    Error::new(ErrorClass::Outage, Applied::No, Code::HostUnreachable, text)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
