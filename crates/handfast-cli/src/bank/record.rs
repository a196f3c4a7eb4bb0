//! Records what the workers saw, in the order in which they saw it.

use std::io::Write;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use handfast_history::{Event, EventKind, Header, HistoryWriter, MicroOp};
use handfast_store::Clock;

type Output = Box<dyn Write + Send>;

/// Writes events as they come, from any thread.
pub(super) struct Recorder {
    writer: Mutex<HistoryWriter<Output>>,
    clock: Arc<dyn Clock>,
    last_mark: AtomicI64,
}

impl Recorder {
    pub(super) fn new(output: impl Write + Send + 'static, header: &Header, clock: Arc<dyn Clock>) -> Result<Self> {
        let output: Output = Box::new(output);
        let writer = Mutex::new(HistoryWriter::new(output, header)?);
        Ok(Recorder { writer, clock, last_mark: AtomicI64::new(0) })
    }

    /// Marks from here on are above this: those of an earlier process are below it.
    pub(super) fn marks_above(self, mark: i64) -> Self {
        self.last_mark.store(mark, Ordering::Relaxed);
        self
    }

    /// A value that nobody else writes.
    pub(super) fn mark(&self) -> i64 {
        self.last_mark.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Records that something begins or ended.
    pub(super) fn record(
        &self,
        kind: EventKind,
        process: i64,
        operations: Vec<MicroOp>,
        error: Option<String>,
    ) -> Result<()> {
        let nanoseconds = super::nanoseconds(&*self.clock);
        self.write(&Event { kind, process, transaction: None, operations, nanoseconds, error })
    }

    /// Writes an event that somebody else recorded.
    pub(super) fn write(&self, event: &Event) -> Result<()> {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        writer.write(event).context("the history cannot be written")
    }

    pub(super) fn finish(self) -> Result<()> {
        let writer = self.writer.into_inner().unwrap_or_else(PoisonError::into_inner);
        writer.finish().context("the history cannot be written").map(|_| ())
    }
}
