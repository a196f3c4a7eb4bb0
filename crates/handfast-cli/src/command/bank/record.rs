//! Records what the workers saw, in their order.

use std::io::Write;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use handfast_history::{Event, EventKind, Header, HistoryWriter, MicroOp, Name, ReadValue};
use handfast_store::Clock;
use serde::{Deserialize, Serialize};

use super::lost_answers::LostAnswers;

type Output = Box<dyn Write + Send>;

/// Writes events as they come, from any thread.
pub(super) struct Recorder {
    writer: Mutex<HistoryWriter<Output>>,
    clock: Arc<dyn Clock>,
    last_mark: AtomicI64,
    parent: Option<Parent>,
}

/// Counts for the process that started this one.
struct Parent {
    lost_answers: Box<dyn Fn() -> LostAnswers + Send + Sync>,
    /// The counts that were reported last.
    last: Mutex<LostAnswers>,
}

/// The process number of side messages; no worker has it.
const SIDE_MESSAGE_PROCESS: i64 = -1;

/// A message of a process to its parent, between the events of its history.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum SideMessage {
    /// The counts of lost answers up to here.
    LostAnswers(LostAnswers),
    /// A session of the server that is used for the first time.
    Session([u8; 16]),
}

/// Returns the message that an event carries beside the history, if it is one.
pub(super) fn side_message_of(event: &Event) -> Result<Option<SideMessage>> {
    let text = event.error.as_deref().filter(|_| event.process == SIDE_MESSAGE_PROCESS);
    text.map(|text| serde_json::from_str(text).context("the workers sent an unreadable message beside the history"))
        .transpose()
}

impl Recorder {
    pub(super) fn new(output: impl Write + Send + 'static, header: &Header, clock: Arc<dyn Clock>) -> Result<Self> {
        let output: Output = Box::new(output);
        let writer = Mutex::new(HistoryWriter::new(output, header)?);
        Ok(Recorder { writer, clock, last_mark: AtomicI64::new(0), parent: None })
    }

    /// Starts the marks above this one: the marks of earlier processes are below it.
    pub(super) fn marks_above(self, mark: i64) -> Self {
        self.last_mark.store(mark, Ordering::Relaxed);
        self
    }

    /// Sends side messages to the parent process, which reads them with [`side_message_of`]. The counts of lost answers are sent before
    /// the end of each transaction, so that they are complete for every transaction whose end the parent has read.
    pub(super) fn reporting_to_parent(self, lost_answers: impl Fn() -> LostAnswers + Send + Sync + 'static) -> Self {
        Recorder { parent: Some(Parent { lost_answers: Box::new(lost_answers), last: Mutex::default() }), ..self }
    }

    /// Returns a value that no other write has.
    pub(super) fn mark(&self) -> i64 {
        self.last_mark.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Records that a transaction begins or has ended.
    pub(super) fn record(
        &self,
        kind: EventKind,
        process: i64,
        operations: Vec<MicroOp>,
        error: Option<String>,
    ) -> Result<()> {
        if kind != EventKind::Invoke {
            self.report_lost_answers()?;
        }
        let nanoseconds = super::nanoseconds(&*self.clock);
        self.write(&Event { kind, process, transaction: None, operations, nanoseconds, error })
    }

    /// Sends a message to the parent process, if there is one.
    pub(super) fn send_to_parent(&self, message: &SideMessage) -> Result<()> {
        if self.parent.is_none() {
            return Ok(());
        }
        let error = Some(serde_json::to_string(message)?);
        let (transaction, operations, nanoseconds) = (None, Vec::new(), None);
        self.write(&Event {
            kind: EventKind::Info,
            process: SIDE_MESSAGE_PROCESS,
            transaction,
            operations,
            nanoseconds,
            error,
        })
    }

    fn report_lost_answers(&self) -> Result<()> {
        let Some(parent) = &self.parent else { return Ok(()) };
        let mut last = parent.last.lock().unwrap_or_else(PoisonError::into_inner);
        let lost_answers = (parent.lost_answers)();
        if *last == lost_answers {
            return Ok(());
        }
        *last = lost_answers;
        self.send_to_parent(&SideMessage::LostAnswers(lost_answers))
    }

    /// Writes an event that another process has recorded.
    pub(super) fn write(&self, event: &Event) -> Result<()> {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        writer.write(event).context("the history cannot be written")
    }

    pub(super) fn finish(self) -> Result<()> {
        let writer = self.writer.into_inner().unwrap_or_else(PoisonError::into_inner);
        writer.finish().context("the history cannot be written").map(|_| ())
    }
}

/// Returns the operation of a history that reads an account.
pub(super) fn read(number: u32, seen: ReadValue, amount: Option<i64>) -> MicroOp {
    MicroOp::Read { key: Name::Number(i64::from(number)), seen, amount }
}

/// Returns the operation of a history that writes an account.
pub(super) fn write(number: u32, mark: i64, amount: Option<i64>) -> MicroOp {
    MicroOp::Write { key: Name::Number(i64::from(number)), value: Name::Number(mark), amount }
}
