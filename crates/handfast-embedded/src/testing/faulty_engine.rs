//! An engine whose syncs or batches fail on demand, whose log of changes becomes unreadable, or which fails or crashes at one step of many.
//! It calls a hook after each sync, so that a test can keep the directory as a loss of power would leave it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::engine::{Bytes, DamagedRange, Direction, Engine, Keyspace, Range, Readiness, Rows, View, Write};
use crate::error::{Error, Result};
use crate::fjall_engine::FjallEngine;

pub(crate) struct FaultyEngine {
    inner: FjallEngine,
    pub(crate) fail_syncs: AtomicBool,
    pub(crate) fail_batches: AtomicBool,
    /// Whether each range of the log of changes is damaged, in the views that exist, too.
    pub(crate) damage_changes: Arc<AtomicBool>,
    /// A step is a change of the disk: an applied batch, a write of the journal, a sync.
    steps: AtomicU64,
    fault: Mutex<Option<Fault>>,
    after_sync: Mutex<Option<Box<dyn Fn() + Send>>>,
}

/// A fault at one step. Every later step fails.
pub(crate) struct Fault {
    pub(crate) step: u64,
    pub(crate) kind: FaultKind,
}

pub(crate) enum FaultKind {
    /// The step is not done.
    Fail,
    /// The step is done; then this hook runs, which keeps the directory as a killed process would leave it.
    CrashAfter(Box<dyn Fn() + Send>),
}

impl FaultyEngine {
    pub(crate) fn new(inner: FjallEngine) -> Self {
        FaultyEngine {
            inner,
            fail_syncs: AtomicBool::new(false),
            fail_batches: AtomicBool::new(false),
            damage_changes: Arc::default(),
            steps: AtomicU64::new(0),
            fault: Mutex::new(None),
            after_sync: Mutex::new(None),
        }
    }

    /// Sets the hook that runs after each sync, before any operation is answered.
    pub(crate) fn after_each_sync(&self, call: impl Fn() + Send + 'static) {
        *self.after_sync.lock().unwrap() = Some(Box::new(call));
    }

    /// Restarts the count of steps at 0, and plans a fault at one of them.
    pub(crate) fn plan(&self, fault: Option<Fault>) {
        *self.fault.lock().unwrap() = fault;
        self.steps.store(0, Ordering::Relaxed);
    }

    pub(crate) fn steps(&self) -> u64 {
        self.steps.load(Ordering::Relaxed)
    }

    fn step<T>(&self, what: &str, step: impl FnOnce() -> Result<T>) -> Result<T> {
        let number = self.steps.fetch_add(1, Ordering::Relaxed);
        match &*self.fault.lock().unwrap() {
            Some(Fault { step: at, kind: FaultKind::CrashAfter(keep) }) if *at == number => {
                let done = step()?;
                keep();
                Ok(done)
            }
            Some(Fault { step: at, .. }) if *at <= number => Err(failed(what)),
            _ => step(),
        }
    }
}

fn failed(what: &str) -> Error {
    Error::io(what, std::io::Error::other("the disk is gone"))
}

impl Engine for FaultyEngine {
    fn apply(&self, writes: Vec<Write>) -> Result<u64> {
        if self.fail_batches.load(Ordering::Relaxed) {
            return Err(failed("applying"));
        }
        self.step("applying", || self.inner.apply(writes))
    }

    fn write_journal(&self) -> Result<()> {
        self.step("writing the journal", || self.inner.write_journal())
    }

    fn sync(&self) -> Result<()> {
        if self.fail_syncs.load(Ordering::Relaxed) {
            return Err(failed("syncing"));
        }
        self.step("syncing", || self.inner.sync())?;
        if let Some(call) = &*self.after_sync.lock().unwrap() {
            call();
        }
        Ok(())
    }

    fn view(&self) -> Arc<dyn View> {
        Arc::new(DamagedView { inner: self.inner.view(), damage_changes: self.damage_changes.clone() })
    }

    fn readiness(&self) -> Result<Readiness> {
        self.inner.readiness()
    }

    fn next_sequence(&self) -> u64 {
        self.inner.next_sequence()
    }

    fn written_bytes(&self) -> u64 {
        self.inner.written_bytes()
    }

    fn disk_bytes(&self, keyspace: Keyspace) -> u64 {
        self.inner.disk_bytes(keyspace)
    }
}

struct DamagedView {
    inner: Arc<dyn View>,
    damage_changes: Arc<AtomicBool>,
}

impl View for DamagedView {
    fn get(&self, keyspace: Keyspace, key: &[u8]) -> Result<Option<Bytes>> {
        self.inner.get(keyspace, key)
    }

    fn range(&self, keyspace: Keyspace, range: Range, direction: Direction) -> Rows {
        if keyspace == Keyspace::Changes && self.damage_changes.load(Ordering::Relaxed) {
            return Box::new(std::iter::once(Err(Error::Corrupt("a block".into()))));
        }
        self.inner.range(keyspace, range, direction)
    }

    fn damaged_ranges(&self, keyspace: Keyspace, range: Range) -> Vec<DamagedRange> {
        self.inner.damaged_ranges(keyspace, range)
    }
}
