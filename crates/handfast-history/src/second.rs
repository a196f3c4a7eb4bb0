//! The second judge: the crate `adya`, which shares no code with this one.
//!
//! It takes a history as Jepsen has them. Three things are said in its words here:
//! - A transaction of unknown outcome ends after everything else, under a process of its own: it may have happened at any
//!   time since it began.
//! - Of registers it does not look at unknown transactions at all. Those whose values were seen have committed; they are
//!   handed over as such, with their writes alone.
//! - A register's write follows the value that its transaction read (`wfr_keys`), as snapshot isolation has it.
//!
//! A search that `adya` gives up is only for the name of what is wrong: that a forbidden cycle exists at all it finds out
//! before, from components alone.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use adya::history::{Id, Interner, Mop, Op, OpType, ReadValue, Scalar};
use adya::{History, Opts, Valid, Workload};

use crate::event::{Event, EventKind, Expectation, Isolation, MicroOp, Model, Name, Order, Seen};

/// How long it looks for the name of an anomaly in one component. The verdict does not depend on it.
const SEARCH_TIME_MAX: Duration = Duration::from_secs(1);

/// What the second judge says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SecondOpinion {
    /// The names of what it found, none if the history is clean.
    pub anomalies: Vec<String>,
    /// Why, one explanation for each name.
    pub explanations: Vec<String>,
}

/// Collects events for the second judge.
#[derive(Debug, Default)]
pub struct SecondJudge {
    names: Interner,
    events: Vec<Op>,
    /// Where each process's beginning without an end is.
    pending: HashMap<i64, usize>,
    /// Ends of unknown outcome: they come last.
    unknown: Vec<Op>,
    model: Option<Model>,
}

impl SecondJudge {
    /// One that has seen nothing.
    pub fn new(model: Option<Model>) -> Self {
        SecondJudge { model, ..SecondJudge::default() }
    }

    /// Takes the next event. What is malformed the first judge has refused.
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
        let place = self.events.len();
        let begun = match kind {
            OpType::Invoke => self.pending.insert(event.process, place),
            _ => self.pending.remove(&event.process),
        };
        if let (OpType::Fail | OpType::Info, Some(begun)) = (kind, begun) {
            // What was planned may be seen, whether or not the client came so far.
            let planned = self.events[begun].value.iter().filter(|mop| !value.contains(mop)).cloned();
            value = planned.collect::<Vec<_>>().into_iter().chain(value).filter(is_write).collect();
        }
        let op = Op { index: place as u64, kind, process: Some(event.process), value, time: None };
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

    /// Judges.
    pub fn finish(mut self, expectation: Expectation) -> SecondOpinion {
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
        let report = adya::check(&history, workload, &options);
        if report.valid != Valid::False {
            return SecondOpinion::default();
        }
        let explanations = report.anomalies.values().filter_map(|anomalies| anomalies.first());
        SecondOpinion {
            explanations: explanations.map(|anomaly| anomaly.explanation.clone()).collect(),
            anomalies: report.anomaly_types,
        }
    }

    /// Lets a transaction end after all others, under a process that nobody else has.
    fn end_as_unknown(&mut self, begun: usize, value: Vec<Mop>) {
        // Numbers below zero, from the smallest up: nobody counts processes there.
        let process = Some(i64::MIN + i64::try_from(self.unknown.len()).unwrap_or(0));
        self.events[begun].process = process;
        self.unknown.push(Op { index: 0, kind: OpType::Info, process, value, time: None });
    }

    /// Turns unknown transactions of which a committed one saw a value into committed ones.
    fn promote_seen(&mut self) {
        let committed = self.events.iter().filter(|op| op.kind == OpType::Ok);
        let reads = committed.flat_map(|op| &op.value);
        let seen: HashSet<(Id, Id)> = reads
            .filter_map(|mop| match mop {
                Mop::Read { key, value: ReadValue::Scalar(value) } => Some((*key, *value)),
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
                    Seen::Nothing => ReadValue::Nil,
                    Seen::Value(value) => ReadValue::Scalar(self.id(value)),
                    Seen::List(list) => ReadValue::List(list.iter().map(|value| self.id(value)).collect()),
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

/// The name of what is promised, as Elle has it.
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
