//! The second judge: the crate `adya`, which shares no code with [`checker`](crate::checker).
//!
//! The crate takes histories in Jepsen's format. This module translates three things:
//! - A transaction of unknown outcome ends after all others, under a process of its own, because it may have taken effect
//!   at any time since it began.
//! - `adya` ignores unknown transactions on registers. Those whose values were read have committed, so they are passed on
//!   as committed transactions with their writes alone.
//! - A write to a register follows the value that its transaction read (`wfr_keys`), as under snapshot isolation.
//!
//! A search that `adya` abandons costs only the name of an anomaly: it detects a forbidden cycle before, from the
//! strongly connected components.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use ::adya::history::{self, Id, Interner, Mop, Op, OpType, Scalar};
use ::adya::{History, Opts, Valid, Workload};

use crate::event::{Event, EventKind, Expectation, Isolation, MicroOp, Model, Name, Order, ReadValue};

/// The time limit for naming an anomaly in one component. The verdict does not depend on it.
const SEARCH_TIME_MAX: Duration = Duration::from_secs(1);

/// The findings of the crate `adya`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AdyaReport {
    /// The names of the anomalies.
    pub anomalies: Vec<String>,
    /// An explanation for each name.
    pub explanations: Vec<String>,
}

/// Collects events and checks them with the crate `adya`.
#[derive(Debug, Default)]
pub struct AdyaChecker {
    names: Interner,
    events: Vec<Op>,
    /// The position of the open transaction's beginning, by process.
    pending: HashMap<i64, usize>,
    /// Ends of unknown outcome, which are added last.
    unknown: Vec<Op>,
    model: Option<Model>,
}

impl AdyaChecker {
    /// Creates a checker without events.
    pub fn new(model: Option<Model>) -> Self {
        AdyaChecker { model, ..AdyaChecker::default() }
    }

    /// Adds the next event. Malformed events are refused by [`Checker`](crate::checker::Checker).
    pub fn observe(&mut self, event: &Event) {
        if self.model.is_none() {
            self.model = event.operations.iter().find_map(MicroOp::model);
        }
        let mut value: Vec<Mop> = event.operations.iter().map(|operation| self.translate(operation)).collect();
        let kind = match event.kind {
            EventKind::Invoke => OpType::Invoke,
            EventKind::Ok => OpType::Ok,
            EventKind::Fail => OpType::Fail,
            EventKind::Info => OpType::Info,
        };
        let position = self.events.len();
        let begun = match kind {
            OpType::Invoke => self.pending.insert(event.process, position),
            _ => self.pending.remove(&event.process),
        };
        if let (OpType::Fail | OpType::Info, Some(begun)) = (kind, begun) {
            // Planned writes may be visible, even if the client never learnt that they were executed.
            let planned = self.events[begun].value.iter().filter(|mop| !value.contains(mop)).cloned();
            value = planned.collect::<Vec<_>>().into_iter().chain(value).filter(is_write).collect();
        }
        let op = Op { index: position as u64, kind, process: Some(event.process), value, time: None };
        match (kind, begun) {
            (OpType::Invoke, Some(lost)) => {
                let planned = self.events[lost].value.iter().filter(|mop| is_write(mop)).cloned().collect();
                self.end_as_unknown(lost, planned);
                self.events.push(op);
            }
            (OpType::Info, Some(begun)) => self.end_as_unknown(begun, op.value),
            _ => self.events.push(op),
        }
    }

    /// Checks the events against an expectation.
    pub fn finish(mut self, expectation: Expectation) -> AdyaReport {
        let mut left: Vec<usize> = self.pending.values().copied().collect();
        left.sort_unstable();
        for begun in left {
            let planned = self.events[begun].value.iter().filter(|mop| is_write(mop)).cloned().collect();
            self.end_as_unknown(begun, planned);
        }
        let is_registers = self.model == Some(Model::RwRegister);
        if is_registers {
            self.promote_seen();
        }
        let unknown = std::mem::take(&mut self.unknown);
        for mut op in unknown {
            op.index = self.events.len() as u64;
            self.events.push(op);
        }
        let history = History::from_ops(self.events, self.names);
        let workload = if is_registers { Workload::RwRegister } else { Workload::ListAppend };
        let options = Opts {
            models: vec![model_name(expectation).to_owned()],
            timeout: SEARCH_TIME_MAX,
            wfr_keys: true,
            ..Opts::default()
        };
        let report = ::adya::check(&history, workload, &options);
        if report.valid != Valid::False {
            return AdyaReport::default();
        }
        let explanations = report.anomalies.values().filter_map(|anomalies| anomalies.first());
        AdyaReport {
            explanations: explanations.map(|anomaly| anomaly.explanation.clone()).collect(),
            anomalies: report.anomaly_types,
        }
    }

    /// Ends a transaction after all others, under a process number of its own.
    fn end_as_unknown(&mut self, begun: usize, value: Vec<Mop>) {
        // Real process numbers are not negative.
        let process = Some(i64::MIN + i64::try_from(self.unknown.len()).unwrap_or(0));
        self.events[begun].process = process;
        self.unknown.push(Op { index: 0, kind: OpType::Info, process, value, time: None });
    }

    /// Marks unknown transactions as committed if a committed one read a value of them.
    fn promote_seen(&mut self) {
        let committed = self.events.iter().filter(|op| op.kind == OpType::Ok);
        let reads = committed.flat_map(|op| &op.value);
        let seen: HashSet<(Id, Id)> = reads
            .filter_map(|mop| match mop {
                Mop::Read { key, value: history::ReadValue::Scalar(value) } => Some((*key, *value)),
                _ => None,
            })
            .collect();
        for op in &mut self.unknown {
            let is_seen = |mop: &Mop| matches!(mop, Mop::Write { key, value } if seen.contains(&(*key, *value)));
            if op.value.iter().any(is_seen) {
                op.kind = OpType::Ok;
            }
        }
    }

    fn translate(&mut self, operation: &MicroOp) -> Mop {
        match operation {
            MicroOp::Append { key, value } => Mop::Append { key: self.id(key), value: self.id(value) },
            MicroOp::Write { key, value, .. } => Mop::Write { key: self.id(key), value: self.id(value) },
            MicroOp::Read { key, seen, .. } => {
                let key = self.id(key);
                let value = match seen {
                    ReadValue::Nothing => history::ReadValue::Nil,
                    ReadValue::Value(value) => history::ReadValue::Scalar(self.id(value)),
                    ReadValue::List(list) => {
                        history::ReadValue::List(list.iter().map(|value| self.id(value)).collect())
                    }
                };
                Mop::Read { key, value }
            }
        }
    }

    fn id(&mut self, name: &Name) -> Id {
        self.names.intern(match name {
            Name::Number(number) => Scalar::Int(*number),
            Name::Text(text) => Scalar::Str(text.to_string()),
        })
    }
}

fn is_write(mop: &Mop) -> bool {
    !matches!(mop, Mop::Read { .. })
}

/// Returns Elle's name of the promised consistency model.
fn model_name(expectation: Expectation) -> &'static str {
    match (expectation.isolation, expectation.order) {
        (Isolation::Snapshot, Order::None) => "snapshot-isolation",
        (Isolation::Snapshot, Order::Session) => "strong-session-snapshot-isolation",
        (Isolation::Snapshot, Order::RealTime) => "strong-snapshot-isolation",
        (Isolation::Serializable, Order::None) => "serializable",
        (Isolation::Serializable, Order::Session) => "strong-session-serializable",
        (Isolation::Serializable, Order::RealTime) => "strict-serializable",
    }
}
