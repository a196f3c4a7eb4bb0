//! The accounts, and what is done with them: transfers and audits, each attempt an entry of the history.

use std::sync::Arc;

use anyhow::{Context, Result};
use bson::{RawDocumentBuf, rawdoc};
use handfast_history::{EventKind, MicroOp, Name, Seen};
use handfast_store::{DocumentStore, Error as StoreError, Find, Namespace, StoreExt, Ticket, ticket};
use handfast_txn::{Database, Error, OnRetry, Outcome, Transaction, TransactionId, TransactionOptions};

use super::doubts::Told;
use super::record::Recorder;
use super::runs::Runs;

/// How often an audit is begun, or an outcome asked for, until there is an answer: half of them may get lost.
const ATTEMPTS_MAX: u32 = 100;

/// What each account holds at first.
const BALANCE: i64 = 100;

/// The accounts of the bank.
#[derive(Clone)]
pub(super) struct Accounts {
    namespace: Namespace,
    count: u32,
}

/// How a transfer ended.
pub(super) enum Transferred {
    /// It is done, says the library.
    Told,
    /// The library could not say, and what became of it was asked for by id.
    Asked(Told),
}

/// One account as it was read.
struct Account {
    number: u32,
    balance: i64,
    mark: i64,
}

impl Accounts {
    pub(super) fn new(count: u32) -> Result<Self> {
        Ok(Accounts { namespace: Namespace::new("handfast_bank", "accounts")?, count })
    }

    /// Where they are.
    pub(super) fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// The money that is there.
    pub(super) fn total(accounts: u32) -> i64 {
        i64::from(accounts) * BALANCE
    }

    /// Puts the money in, in one transaction.
    pub(super) async fn fill(&self, database: &Database, recorder: &Recorder) -> Result<()> {
        database.drop_collection(&self.namespace).await?;
        let accounts: Vec<Account> =
            (0..self.count).map(|number| Account { number, balance: BALANCE, mark: recorder.mark() }).collect();
        let writes: Vec<MicroOp> = accounts.iter().map(Account::write).collect();
        recorder.record(EventKind::Invoke, 0, writes.clone(), None)?;
        let tx = database.begin().await?;
        for account in &accounts {
            tx.insert_one(&self.namespace, account.document()).await?;
        }
        tx.commit().await?;
        recorder.record(EventKind::Ok, 0, writes, None)
    }

    /// Reads all accounts of one snapshot, and returns the sum; none if it was refused. What happens `meanwhile`, after the
    /// snapshot was taken, it must not see.
    pub(super) async fn audit(
        &self,
        database: &Database,
        recorder: &Recorder,
        process: i64,
        meanwhile: impl Future<Output = Result<()>>,
    ) -> Result<Option<i64>> {
        let planned: Vec<MicroOp> = (0..self.count).map(|number| read(number, Seen::Nothing, None)).collect();
        recorder.record(EventKind::Invoke, process, planned.clone(), None)?;
        let tx = begin(database, TransactionOptions::default()).await?;
        meanwhile.await?;
        let found = tx.find_all(Find::new(self.namespace.clone(), rawdoc! {})).await.map_err(Error::from);
        let documents = match found {
            Err(Error::Conflict(error)) => {
                recorder.record(EventKind::Fail, process, planned, Some(error.to_string()))?;
                return Ok(None);
            }
            found => found?,
        };
        tx.commit().await?;
        let accounts = documents.iter().map(Account::read).collect::<Result<Vec<_>>>()?;
        recorder.record(EventKind::Ok, process, accounts.iter().map(Account::seen).collect(), None)?;
        Ok(Some(accounts.iter().map(|account| account.balance).sum()))
    }

    /// Moves money from one account to another, in the closure form, which runs it again after a conflict.
    pub(super) async fn transfer(
        &self,
        database: &Database,
        options: TransactionOptions,
        recorder: &Arc<Recorder>,
        process: i64,
        (from, to, amount): (u32, u32, i64),
    ) -> Result<Transferred> {
        let runs = Runs::begin(Arc::clone(recorder), process, [from, to])?;
        let listening = Arc::clone(&runs);
        let options = TransactionOptions { on_retry: OnRetry::new(move |why| listening.again(why)), ..options };
        let run = |tx: Transaction| {
            let runs = &runs;
            async move {
                // Whoever may have to ask for the outcome has the name before the commit.
                let _ = tx.id();
                runs.did(self.moved(&tx, from, to, amount, runs.marks()).await?);
                Ok(())
            }
        };
        match database.transaction_with(options, run).await {
            Ok(()) => runs.end(EventKind::Ok, None).map(|()| Transferred::Told),
            Err(Error::CommitUnknown { id, .. }) => ask(database, id, &runs).await.map(Transferred::Asked),
            Err(error) => Err(error.into()),
        }
    }

    async fn moved(
        &self,
        tx: &Transaction,
        from: u32,
        to: u32,
        amount: i64,
        marks: [i64; 2],
    ) -> Result<Vec<MicroOp>, Error> {
        let mut operations = Vec::with_capacity(4);
        let mut written = Vec::with_capacity(2);
        for ((number, change), mark) in [(from, -amount), (to, amount)].into_iter().zip(marks) {
            let found = tx.find_one(&self.namespace, rawdoc! { "_id": i64::from(number) }).await?;
            let account = found.as_ref().map(Account::read).transpose().ok().flatten();
            let Some(account) = account else {
                let text = format!("account {number} of {} is missing or damaged", self.namespace);
                return Err(StoreError::command(handfast_mql::Code::NoSuchKey, text).into());
            };
            operations.push(account.seen());
            written.push(Account { number, balance: account.balance + change, mark });
        }
        for account in written {
            let change = rawdoc! { "$set": { "balance": account.balance, "mark": account.mark } };
            tx.update_one(&self.namespace, rawdoc! { "_id": i64::from(account.number) }, change).await?;
            operations.push(account.write());
        }
        Ok(operations)
    }

    /// Records of outcomes that are still there.
    pub(super) async fn records(&self, database: &Database) -> Result<u64> {
        let of_sessions = rawdoc! { "_id": { "$ne": ticket::forgotten_id() } };
        Ok(database.count_matching(&Ticket::namespace()?, of_sessions).await?)
    }
}

/// The answer to a commit got lost, and the library's own question too: what became of it?
async fn ask(database: &Database, id: TransactionId, runs: &Runs) -> Result<Told> {
    let note = |what: &str| Some(format!("its answer was lost; asked for by id, it {what}"));
    let mut attempts = 1;
    loop {
        match database.outcome(id).await {
            Ok(Outcome::Committed(_)) => {
                return runs.end(EventKind::Ok, note("had committed")).map(|()| Told::Committed);
            }
            Ok(Outcome::RolledBack) => {
                return runs.end(EventKind::Fail, note("was rolled back")).map(|()| Told::RolledBack);
            }
            // Outcomes are not forgotten while the bank is open.
            Ok(Outcome::Forgotten) => {
                return runs.end(EventKind::Info, note("was forgotten")).map(|()| Told::Unknown);
            }
            Err(_) if attempts < ATTEMPTS_MAX => attempts += 1,
            Err(error) => return runs.end(EventKind::Info, Some(error.to_string())).map(|()| Told::Unknown),
        }
    }
}

/// Begins an audit, which is no closure: what goes by beneath its snapshot is to happen once. Where timestamps come from far away, an answer may get lost on the way: then it is asked for again.
async fn begin(database: &Database, options: TransactionOptions) -> Result<Transaction, Error> {
    let mut attempts = 1;
    loop {
        match database.begin_with(options.clone()).await {
            Err(Error::Conflict(_)) if attempts < ATTEMPTS_MAX => attempts += 1,
            begun => return begun,
        }
    }
}

impl Account {
    fn read(document: &RawDocumentBuf) -> Result<Self> {
        let number = u32::try_from(document.get_i64("_id")?).context("an account's number")?;
        Ok(Account { number, balance: document.get_i64("balance")?, mark: document.get_i64("mark")? })
    }

    fn document(&self) -> RawDocumentBuf {
        rawdoc! { "_id": i64::from(self.number), "balance": self.balance, "mark": self.mark }
    }

    fn seen(&self) -> MicroOp {
        read(self.number, Seen::Value(Name::Number(self.mark)), Some(self.balance))
    }

    fn write(&self) -> MicroOp {
        write(self.number, self.mark, Some(self.balance))
    }
}

pub(super) fn read(number: u32, seen: Seen, amount: Option<i64>) -> MicroOp {
    MicroOp::Read { key: Name::Number(i64::from(number)), seen, amount }
}

pub(super) fn write(number: u32, mark: i64, amount: Option<i64>) -> MicroOp {
    MicroOp::Write { key: Name::Number(i64::from(number)), value: Name::Number(mark), amount }
}
