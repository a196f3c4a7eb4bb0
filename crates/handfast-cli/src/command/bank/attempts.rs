//! The attempts of a transfer: the closure form may make several, and each is an entry of the history.
//!
//! ```text
//! begin    invoke (marks 1, 2)                 before the transaction is begun: it must see what was acknowledged by then
//! retry    fail, invoke (marks 3, 4)           before the closure form begins anew
//! end      ok / fail / info
//! ```

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::Result;
use handfast_history::{EventKind, MicroOp, ReadValue};
use handfast_store::Error as StoreError;

use super::record::{Recorder, read, write};

/// The attempts of one transfer.
pub(super) struct Attempts {
    recorder: Arc<Recorder>,
    process: i64,
    accounts: [u32; 2],
    current: Mutex<Current>,
}

struct Current {
    marks: [i64; 2],
    /// The operations of the attempt.
    operations: Vec<MicroOp>,
    /// The error on which the history ended.
    history_error: Option<anyhow::Error>,
}

impl Attempts {
    /// Records that the first attempt begins.
    pub(super) fn begin(recorder: Arc<Recorder>, process: i64, accounts: [u32; 2]) -> Result<Arc<Self>> {
        let marks = [recorder.mark(), recorder.mark()];
        let current = Mutex::new(Current { marks, operations: Vec::new(), history_error: None });
        let attempts = Attempts { recorder, process, accounts, current };
        attempts.recorder.record(EventKind::Invoke, process, attempts.planned(marks), None)?;
        Ok(Arc::new(attempts))
    }

    /// Records that the attempt was rolled back, and that the next one begins.
    pub(super) fn retry(&self, why: &StoreError) {
        let mut current = self.current();
        let marks = [self.recorder.mark(), self.recorder.mark()];
        let failed = self.planned(std::mem::replace(&mut current.marks, marks));
        let recorded = self
            .recorder
            .record(EventKind::Fail, self.process, failed, Some(why.to_string()))
            .and_then(|()| self.recorder.record(EventKind::Invoke, self.process, self.planned(marks), None));
        if let Err(error) = recorded {
            current.history_error.get_or_insert(error);
        }
    }

    /// Returns the marks of the current attempt.
    pub(super) fn marks(&self) -> [i64; 2] {
        self.current().marks
    }

    /// Notes the operations of the current attempt.
    pub(super) fn set_operations(&self, operations: Vec<MicroOp>) {
        self.current().operations = operations;
    }

    /// Records how the last attempt ended.
    pub(super) fn end(&self, kind: EventKind, note: Option<String>) -> Result<()> {
        let mut current = self.current();
        if let Some(error) = current.history_error.take() {
            return Err(error);
        }
        let operations = match kind {
            EventKind::Ok => std::mem::take(&mut current.operations),
            EventKind::Invoke | EventKind::Fail | EventKind::Info => self.planned(current.marks),
        };
        self.recorder.record(kind, self.process, operations, note)
    }

    fn planned(&self, marks: [i64; 2]) -> Vec<MicroOp> {
        let [from, to] = self.accounts;
        vec![
            read(from, ReadValue::Nothing, None),
            read(to, ReadValue::Nothing, None),
            write(from, marks[0], None),
            write(to, marks[1], None),
        ]
    }

    fn current(&self) -> MutexGuard<'_, Current> {
        // No holder of the lock can panic half way.
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
