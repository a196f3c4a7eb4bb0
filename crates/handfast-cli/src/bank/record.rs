//! Records what the workers saw, in the order in which they saw it.

use std::io::Write;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use handfast_history::{Event, EventKind, Header, HistoryWriter, MicroOp};
use handfast_store::Clock;

use super::doubts::{Doubts, Witness};

type Output = Box<dyn Write + Send>;

/// Writes events as they come, from any thread.
pub(super) struct Recorder {
    writer: Mutex<HistoryWriter<Output>>,
    clock: Arc<dyn Clock>,
    last_mark: AtomicI64,
    told: Option<Told>,
}

/// What is said of lost answers between the events.
struct Told {
    witness: Arc<Witness>,
    last: Mutex<Doubts>,
}

/// The process that says it; no worker has this number.
const TELLER: i64 = -1;

/// What an event says of lost answers up to it, if it is about that.
pub(super) fn doubts_of(event: &Event) -> Result<Option<Doubts>> {
    let text = event.error.as_deref().filter(|_| event.process == TELLER);
    text.map(|text| serde_json::from_str(text).context("the workers told nonsense of lost answers")).transpose()
}

impl Recorder {
    pub(super) fn new(output: impl Write + Send + 'static, header: &Header, clock: Arc<dyn Clock>) -> Result<Self> {
        let output: Output = Box::new(output);
        let writer = Mutex::new(HistoryWriter::new(output, header)?);
        Ok(Recorder { writer, clock, last_mark: AtomicI64::new(0), told: None })
    }

    /// Marks from here on are above this: those of an earlier process are below it.
    pub(super) fn marks_above(self, mark: i64) -> Self {
        self.last_mark.store(mark, Ordering::Relaxed);
        self
    }

    /// Says beside the events what became of lost answers, for [`doubts_of`]: before the end of a transaction, so that what is
    /// known to have ended is told of whole.
    pub(super) fn telling(self, witness: Arc<Witness>) -> Self {
        Recorder { told: Some(Told { witness, last: Mutex::default() }), ..self }
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
        if kind != EventKind::Invoke {
            self.tell()?;
        }
        let nanoseconds = super::nanoseconds(&*self.clock);
        self.write(&Event { kind, process, transaction: None, operations, nanoseconds, error })
    }

    fn tell(&self) -> Result<()> {
        let Some(told) = &self.told else { return Ok(()) };
        let mut last = told.last.lock().unwrap_or_else(PoisonError::into_inner);
        let doubts = told.witness.doubts();
        if *last == doubts {
            return Ok(());
        }
        *last = doubts;
        let error = Some(serde_json::to_string(&doubts)?);
        let (transaction, operations, nanoseconds) = (None, Vec::new(), None);
        self.write(&Event { kind: EventKind::Info, process: TELLER, transaction, operations, nanoseconds, error })
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
