//! A transfer's runs: the closure form may run it several times, and each run is an entry of the history.
//!
//! ```text
//! begin    invoke (marks 1, 2)                 before the transaction is begun: what was acknowledged by then it must see
//! again    fail, invoke (marks 3, 4)           in between: the closure form says so before it begins anew
//! end      ok / fail / info
//! ```

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::Result;
use handfast_history::{EventKind, MicroOp, Seen};
use handfast_store::Error as StoreError;

use super::accounts::{read, write};
use super::record::Recorder;

/// The runs of one transfer.
pub(super) struct Runs {
    recorder: Arc<Recorder>,
    process: i64,
    accounts: [u32; 2],
    current: Mutex<Current>,
}

struct Current {
    marks: [i64; 2],
    /// What it has done.
    moved: Vec<MicroOp>,
    /// Why the history could not be written on.
    broken: Option<anyhow::Error>,
}

impl Runs {
    /// Records that the first one begins.
    pub(super) fn begin(recorder: Arc<Recorder>, process: i64, accounts: [u32; 2]) -> Result<Arc<Self>> {
        let marks = [recorder.mark(), recorder.mark()];
        let current = Mutex::new(Current { marks, moved: Vec::new(), broken: None });
        let runs = Runs { recorder, process, accounts, current };
        runs.recorder.record(EventKind::Invoke, process, runs.planned(marks), None)?;
        Ok(Arc::new(runs))
    }

    /// Records that a run was rolled back, and that the next one begins.
    pub(super) fn again(&self, why: &StoreError) {
        let mut current = self.current();
        let marks = [self.recorder.mark(), self.recorder.mark()];
        let failed = self.planned(std::mem::replace(&mut current.marks, marks));
        let recorded = self
            .recorder
            .record(EventKind::Fail, self.process, failed, Some(why.to_string()))
            .and_then(|()| self.recorder.record(EventKind::Invoke, self.process, self.planned(marks), None));
        if let Err(error) = recorded {
            current.broken.get_or_insert(error);
        }
    }

    /// The marks of the run that is under way.
    pub(super) fn marks(&self) -> [i64; 2] {
        self.current().marks
    }

    /// What the run that is under way has done.
    pub(super) fn did(&self, moved: Vec<MicroOp>) {
        self.current().moved = moved;
    }

    /// Records how the last one ended.
    pub(super) fn end(&self, kind: EventKind, note: Option<String>) -> Result<()> {
        let mut current = self.current();
        if let Some(error) = current.broken.take() {
            return Err(error);
        }
        let operations = match kind {
            EventKind::Ok => std::mem::take(&mut current.moved),
            EventKind::Invoke | EventKind::Fail | EventKind::Info => self.planned(current.marks),
        };
        self.recorder.record(kind, self.process, operations, note)
    }

    fn planned(&self, marks: [i64; 2]) -> Vec<MicroOp> {
        let [from, to] = self.accounts;
        vec![
            read(from, Seen::Nothing, None),
            read(to, Seen::Nothing, None),
            write(from, marks[0], None),
            write(to, marks[1], None),
        ]
    }

    fn current(&self) -> MutexGuard<'_, Current> {
        // Nothing that holds it can panic half way.
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
