//! The requests that are held back until another one was answered, by their rules.
//!
//! ```text
//! connection 1   update:1  held back                            | sent
//! connection 2             update:2  sent, answered, forwarded  |
//! ```

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::Notify;

use super::Shared;
use super::late::LateRequest;

/// The requests that are held back: one for each rule at most.
#[derive(Default)]
pub(super) struct Holds(BTreeMap<usize, Arc<Notify>>);

impl Holds {
    /// Notes that a rule holds a request back.
    pub(super) fn begin(&mut self, rule: usize, shared: &Arc<Shared>) -> HeldRequest {
        let is_overtaken = Arc::new(Notify::new());
        self.0.insert(rule, Arc::clone(&is_overtaken));
        HeldRequest { rule, is_overtaken, shared: Arc::downgrade(shared) }
    }

    /// Returns what ends the holds of these rules when it is dropped.
    pub(super) fn overtake(&self, rules: &[usize]) -> Overtaking {
        Overtaking(rules.iter().filter_map(|rule| self.0.get(rule).map(Arc::clone)).collect())
    }

    fn end(&mut self, rule: usize) {
        self.0.remove(&rule);
    }
}

/// A request that is held back until this is dropped.
pub(super) struct HeldRequest {
    rule: usize,
    is_overtaken: Arc<Notify>,
    shared: Weak<Shared>,
}

impl HeldRequest {
    /// Waits until another request was answered, for this time, or until all late requests are to be sent.
    pub(super) async fn wait(self, late: &LateRequest, within: Duration) {
        tokio::select! {
            () = self.is_overtaken.notified() => {}
            () = late.wait(Some(within)) => {}
        }
    }
}

impl Drop for HeldRequest {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.upgrade() {
            let mut rules = shared.rules();
            rules.holds.end(self.rule);
            rules.rules.end_hold(self.rule);
        }
    }
}

/// A request that overtakes others. They are held back until this is dropped: it was answered, or its connection has ended.
pub(super) struct Overtaking(Vec<Arc<Notify>>);

impl Drop for Overtaking {
    fn drop(&mut self) {
        self.0.iter().for_each(|is_overtaken| is_overtaken.notify_one());
    }
}
