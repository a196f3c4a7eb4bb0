//! Operations that wait until a test releases them.

use std::collections::BTreeMap;
use std::sync::Mutex;

use tokio::sync::oneshot;

use super::{Fault, lock};
use crate::decorator::Operation;

type FrozenOperations = BTreeMap<u64, (Operation, oneshot::Sender<Option<Fault>>)>;

/// The frozen operations of a store, by their numbers.
#[derive(Default)]
pub(super) struct Frozen(Mutex<FrozenOperations>);

impl Frozen {
    pub(super) fn operations(&self) -> Vec<(u64, Operation)> {
        lock(&self.0).iter().map(|(number, (operation, _))| (*number, *operation)).collect()
    }

    /// Continues an operation with this fault; returns `false` if it is not frozen.
    pub(super) fn release(&self, number: u64, fault: Option<Fault>) -> bool {
        let waiting = lock(&self.0).remove(&number);
        waiting.is_some_and(|(_, sender)| sender.send(fault).is_ok())
    }

    /// Waits for [`Frozen::release`]; returns the fault to continue with.
    pub(super) async fn freeze(&self, number: u64, operation: Operation) -> Option<Fault> {
        let (sender, receiver) = oneshot::channel();
        lock(&self.0).insert(number, (operation, sender));
        let _leaves = RemoveOnDrop { frozen: self, number };
        receiver.await.unwrap_or_default()
    }
}

/// Removes an operation from the frozen ones, also when its caller cancels.
struct RemoveOnDrop<'a> {
    frozen: &'a Frozen,
    number: u64,
}

impl Drop for RemoveOnDrop<'_> {
    fn drop(&mut self) {
        lock(&self.frozen.0).remove(&self.number);
    }
}
