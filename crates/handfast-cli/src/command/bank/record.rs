//! Records what the workers saw, in the order in which they saw it.

use std::io::Write;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use handfast_history::{Event, EventKind, Header, HistoryWriter, MicroOp};
use handfast_store::Clock;
use serde::{Deserialize, Serialize};

use super::doubts::{Doubts, Witness};

type Output = Box<dyn Write + Send>;

/// Writes events as they come, from any thread.
pub(super) struct Recorder {
    writer: Mutex<HistoryWriter<Output>>,
    clock: Arc<dyn Clock>,
    last_mark: AtomicI64,
    told: Option<Told>,
}

/// Whoever started this process hears more than the history.
struct Told {
    witness: Arc<Witness>,
    /// The doubts that were told last.
    last: Mutex<Doubts>,
}

/// The process that says it; no worker has this number.
const TELLER: i64 = -1;

/// What a process says to the one that started it, between the events of its history.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Aside {
    /// Of lost answers up to here.
    Doubts(Doubts),
    /// A session of the server is used for the first time.
    Session([u8; 16]),
}

/// What an event says beside the history, if that is what it is for.
pub(super) fn aside_of(event: &Event) -> Result<Option<Aside>> {
    let text = event.error.as_deref().filter(|_| event.process == TELLER);
    text.map(|text| serde_json::from_str(text).context("the workers told nonsense beside the history")).transpose()
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

    /// Says beside the events what [`aside_of`] reads; what became of lost answers before the end of a transaction, so that what
    /// is known to have ended is told of whole.
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
            self.tell_doubts()?;
        }
        let nanoseconds = super::nanoseconds(&*self.clock);
        self.write(&Event { kind, process, transaction: None, operations, nanoseconds, error })
    }

    /// Says something to whoever started this process, if anybody did.
    pub(super) fn tell(&self, aside: &Aside) -> Result<()> {
        if self.told.is_none() {
            return Ok(());
        }
        let error = Some(serde_json::to_string(aside)?);
        let (transaction, operations, nanoseconds) = (None, Vec::new(), None);
        self.write(&Event { kind: EventKind::Info, process: TELLER, transaction, operations, nanoseconds, error })
    }

    fn tell_doubts(&self) -> Result<()> {
        let Some(told) = &self.told else { return Ok(()) };
        let mut last = told.last.lock().unwrap_or_else(PoisonError::into_inner);
        let doubts = told.witness.doubts();
        if *last == doubts {
            return Ok(());
        }
        *last = doubts;
        self.tell(&Aside::Doubts(doubts))
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
