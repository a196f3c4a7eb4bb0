//! A process: executes transactions one after the other and records them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use handfast_history::{EventKind, MicroOp, Model, Name, ReadValue};
use handfast_store::SeededRandom;

use super::Shared;
use crate::workload::{below, one_in};
use crate::{Cell, ClientTransaction, Failure, Plan, Step};

/// A client that executes planned transactions.
pub(crate) struct Process {
    shared: Arc<Shared>,
    number: i64,
    random: SeededRandom,
    /// The reason why the last transaction did not commit.
    failed: Option<String>,
}

/// A transaction that is being executed.
struct Execution<'p> {
    process: &'p Process,
    /// The unique values for the writes of the plan, in order.
    values: std::vec::IntoIter<i64>,
    done: Vec<MicroOp>,
}

impl Process {
    pub(crate) fn new(shared: Arc<Shared>, number: i64, random: SeededRandom) -> Self {
        Process { shared, number, random, failed: None }
    }

    /// Returns the reason why the last transaction did not commit.
    pub(crate) fn failed(&self) -> &str {
        self.failed.as_deref().unwrap_or("it was rolled back on purpose")
    }

    /// Plans a transaction and executes it.
    pub(crate) async fn next(&mut self) -> Result<(), Failure> {
        let written = self.shared.values.load(Ordering::Relaxed);
        let plan = self.shared.workload.plan(&self.random, written);
        if self.execute(&plan).await? {
            self.shared.committed.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Executes a plan. Returns whether it has certainly committed.
    pub(crate) async fn execute(&mut self, plan: &Plan) -> Result<bool, Failure> {
        let count: i64 = plan.steps.iter().map(Step::writes).sum();
        let first = self.shared.values.fetch_add(count, Ordering::Relaxed) + 1;
        let values: Vec<i64> = (first..first + count).collect();
        let transaction = self.shared.recorder.begin(self.number, plan.planned(&values));
        let mut execution = Execution { process: self, values: values.into_iter(), done: Vec::new() };
        let result = execution.run(plan).await;
        let done = execution.done;
        let (kind, error) = match &result {
            Ok(()) if plan.is_aborted => (EventKind::Fail, None),
            Ok(()) => (EventKind::Ok, None),
            Err(failure @ Failure::Conflict(_)) => (EventKind::Fail, Some(failure.to_string())),
            Err(failure) => (EventKind::Info, Some(failure.to_string())),
        };
        self.failed.clone_from(&error);
        self.shared.recorder.end(kind, self.number, transaction, done, error);
        match result {
            Err(failure @ Failure::Unexpected(_)) => Err(failure),
            _ => Ok(kind == EventKind::Ok),
        }
    }

    /// Yields to other processes a random number of times.
    async fn yield_randomly(&self) {
        for _ in 0..below(&self.random, 3) {
            tokio::task::yield_now().await;
        }
    }
}

impl Execution<'_> {
    async fn run(&mut self, plan: &Plan) -> Result<(), Failure> {
        self.process.yield_randomly().await;
        let mut transaction = self.process.shared.client.begin().await?;
        for step in &plan.steps {
            self.process.yield_randomly().await;
            self.step(&mut *transaction, step).await?;
        }
        self.process.yield_randomly().await;
        if plan.is_aborted { transaction.abort().await } else { transaction.commit().await }
    }

    async fn step(&mut self, transaction: &mut dyn ClientTransaction, step: &Step) -> Result<(), Failure> {
        match step {
            Step::Read(key) => {
                let cell = transaction.read(*key).await?;
                self.record_read(*key, cell);
            }
            Step::Scan(keys) => {
                let mut found: BTreeMap<i64, Cell> = transaction.scan(keys.clone()).await?.into_iter().collect();
                for key in keys.clone() {
                    self.record_read(key, found.remove(&key).unwrap_or(Cell::Nothing));
                }
                if let Some((key, _)) = found.pop_first() {
                    return Err(Failure::Unexpected(format!("a scan of {keys:?} returned key {key}")));
                }
            }
            Step::Append(key) => {
                let value = self.value();
                // It is recorded first, so that the judges know the value of an append that fails half-way.
                self.done.push(MicroOp::Append { key: (*key).into(), value: value.into() });
                transaction.append(*key, value).await?;
            }
            Step::Write(key) => self.write(transaction, *key, None).await?,
            Step::Open(key, amount) => self.write(transaction, *key, Some(*amount)).await?,
            Step::Transfer { from, to, amount_max } => {
                let mut money = [0; 2];
                for (key, money) in [from, to].into_iter().zip(&mut money) {
                    let cell = transaction.read(*key).await?;
                    *money = match &cell {
                        Cell::Value { amount: Some(amount), .. } => *amount,
                        _ => return Err(Failure::Unexpected(format!("account {key} holds {cell:?}"))),
                    };
                    self.record_read(*key, cell);
                    self.process.yield_randomly().await;
                }
                let moved = (1 + below(&self.process.random, *amount_max)).min(money[0].max(0));
                self.write(transaction, *from, Some(money[0] - moved)).await?;
                self.process.yield_randomly().await;
                self.write(transaction, *to, Some(money[1] + moved)).await?;
                // Sometimes reads its own write.
                if one_in(&self.process.random, 4) {
                    let cell = transaction.read(*to).await?;
                    self.record_read(*to, cell);
                }
            }
        }
        Ok(())
    }

    async fn write(
        &mut self,
        transaction: &mut dyn ClientTransaction,
        key: i64,
        amount: Option<i64>,
    ) -> Result<(), Failure> {
        let value = self.value();
        self.done.push(MicroOp::Write { key: key.into(), value: value.into(), amount });
        transaction.write(key, value, amount).await
    }

    fn record_read(&mut self, key: i64, cell: Cell) {
        let is_lists = self.process.shared.workload.model() == Model::ListAppend;
        let (seen, amount) = match cell {
            Cell::Nothing if is_lists => (ReadValue::List(Vec::new()), None),
            Cell::Nothing => (ReadValue::Nothing, None),
            Cell::List(list) => (ReadValue::List(list.into_iter().map(Name::from).collect()), None),
            Cell::Value { value, amount } => (ReadValue::Value(value.into()), amount),
        };
        self.done.push(MicroOp::Read { key: key.into(), seen, amount });
    }

    /// Returns the next unique value. There is one for each write of the plan.
    fn value(&mut self) -> i64 {
        self.values.next().unwrap_or(-1)
    }
}

impl Step {
    /// Returns the number of values that the step writes.
    fn writes(&self) -> i64 {
        match self {
            Step::Read(_) | Step::Scan(_) => 0,
            Step::Append(_) | Step::Write(_) | Step::Open(..) => 1,
            Step::Transfer { .. } => 2,
        }
    }
}

impl Plan {
    /// Returns the planned writes. If the client stops half-way, others may read their values.
    fn planned(&self, values: &[i64]) -> Vec<MicroOp> {
        let keys = self.steps.iter().flat_map(|step| match step {
            Step::Read(_) | Step::Scan(_) => vec![],
            Step::Append(key) => vec![(*key, true)],
            Step::Write(key) | Step::Open(key, _) => vec![(*key, false)],
            Step::Transfer { from, to, .. } => vec![(*from, false), (*to, false)],
        });
        keys.zip(values)
            .map(|((key, is_append), value)| match is_append {
                true => MicroOp::Append { key: key.into(), value: (*value).into() },
                false => MicroOp::Write { key: key.into(), value: (*value).into(), amount: None },
            })
            .collect()
    }
}
