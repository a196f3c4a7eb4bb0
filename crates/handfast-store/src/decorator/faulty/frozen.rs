//! Operations that wait until they are told to go on.

use std::collections::BTreeMap;
use std::sync::Mutex;

use tokio::sync::oneshot;

use super::{Fault, lock};
use crate::decorator::Operation;

type Waiting = BTreeMap<u64, (Operation, oneshot::Sender<Option<Fault>>)>;

/// The frozen operations of a store, by their numbers.
#[derive(Default)]
pub(super) struct Frozen(Mutex<Waiting>);

impl Frozen {
    pub(super) fn operations(&self) -> Vec<(u64, Operation)> {
        lock(&self.0).iter().map(|(number, (operation, _))| (*number, *operation)).collect()
    }

    /// Lets an operation go on, with this fault; `false` if it is not there.
    pub(super) fn release(&self, number: u64, fault: Option<Fault>) -> bool {
        let waiting = lock(&self.0).remove(&number);
        waiting.is_some_and(|(_, sender)| sender.send(fault).is_ok())
    }

    /// Waits; returns the fault to go on with.
    pub(super) async fn freeze(&self, number: u64, operation: Operation) -> Option<Fault> {
        let (sender, receiver) = oneshot::channel();
        lock(&self.0).insert(number, (operation, sender));
        let _leaves = Leaves { frozen: self, number };
        receiver.await.unwrap_or_default()
    }
}

/// Takes an operation out, also if its caller gives up.
struct Leaves<'a> {
    frozen: &'a Frozen,
    number: u64,
}

impl Drop for Leaves<'_> {
    fn drop(&mut self) {
        lock(&self.frozen.0).remove(&self.number);
    }
}
