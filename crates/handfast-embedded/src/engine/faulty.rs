//! An engine whose syncs, or batches, fail when told to.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{Engine, FjallEngine, Keyspace, Readiness, View, Write};
use crate::error::{Error, Result};

pub(crate) struct FaultyEngine {
    pub(crate) inner: FjallEngine,
    pub(crate) fail_syncs: AtomicBool,
    pub(crate) fail_batches: AtomicBool,
}

fn failed(what: &str) -> Error {
    Error::io(what, std::io::Error::other("the disk is gone"))
}

impl Engine for FaultyEngine {
    fn apply(&self, writes: Vec<Write>) -> Result<()> {
        if self.fail_batches.load(Ordering::Relaxed) {
            return Err(failed("applying"));
        }
        self.inner.apply(writes)
    }

    fn hand_over(&self) -> Result<()> {
        self.inner.hand_over()
    }

    fn sync(&self) -> Result<()> {
        if self.fail_syncs.load(Ordering::Relaxed) {
            return Err(failed("syncing"));
        }
        self.inner.sync()
    }

    fn view(&self) -> Arc<dyn View> {
        self.inner.view()
    }

    fn readiness(&self) -> Result<Readiness> {
        self.inner.readiness()
    }

    fn next_sequence(&self) -> u64 {
        self.inner.next_sequence()
    }

    fn pinned_bytes(&self) -> u64 {
        self.inner.pinned_bytes()
    }

    fn disk_bytes(&self, keyspace: Keyspace) -> u64 {
        self.inner.disk_bytes(keyspace)
    }
}
