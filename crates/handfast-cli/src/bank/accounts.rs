//! The accounts, and what is done with them: transfers and audits, each attempt an entry of the history.

use anyhow::{Context, Result};
use bson::{RawDocumentBuf, rawdoc};
use handfast_history::{EventKind, MicroOp, Name, Seen};
use handfast_store::{DocumentStore, Error as StoreError, Find, Namespace, StoreExt, Ticket};
use handfast_txn::{Database, Error, Outcome, Transaction, TransactionOptions};

use super::record::Recorder;

/// How often a transaction is begun that cannot be: half of all answers may get lost.
const BEGIN_ATTEMPTS_MAX: u32 = 100;

/// What each account holds at first.
const BALANCE: i64 = 100;

/// The accounts of the bank.
#[derive(Clone)]
pub(super) struct Accounts {
    namespace: Namespace,
    count: u32,
}

/// How an attempt ended.
pub(super) enum Attempt {
    Committed,
    /// Another one was first.
    Conflict,
    /// The answer got lost, and the outcome was asked for by id.
    Settled(Outcome),
    /// Nobody knows.
    Unknown,
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

    /// Tries once to move money from one account to another.
    pub(super) async fn transfer(
        &self,
        database: &Database,
        options: TransactionOptions,
        recorder: &Recorder,
        process: i64,
        (from, to, amount): (u32, u32, i64),
    ) -> Result<Attempt> {
        let marks = [recorder.mark(), recorder.mark()];
        let planned = vec![
            read(from, Seen::Nothing, None),
            read(to, Seen::Nothing, None),
            write(from, marks[0], None),
            write(to, marks[1], None),
        ];
        recorder.record(EventKind::Invoke, process, planned.clone(), None)?;
        let tx = begin(database, options).await?;
        let id = tx.id();
        let moved = match self.moved(&tx, from, to, amount, marks).await {
            Ok(operations) => operations,
            Err(Error::Conflict(error)) => return self.failed(recorder, process, planned, &error),
            Err(error) => return Err(error.into()),
        };
        match tx.commit().await {
            Ok(_) => recorder.record(EventKind::Ok, process, moved, None).map(|()| Attempt::Committed),
            Err(Error::Conflict(error)) => self.failed(recorder, process, planned, &error),
            Err(Error::CommitUnknown { .. }) => self.ask(database, id, recorder, process, (planned, moved)).await,
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

    /// The answer got lost: what became of it?
    async fn ask(
        &self,
        database: &Database,
        id: handfast_txn::TransactionId,
        recorder: &Recorder,
        process: i64,
        (planned, moved): (Vec<MicroOp>, Vec<MicroOp>),
    ) -> Result<Attempt> {
        match database.outcome(id).await {
            Ok(Outcome::Committed(at)) => {
                recorder.record(EventKind::Ok, process, moved, Some("its answer was lost".to_owned()))?;
                Ok(Attempt::Settled(Outcome::Committed(at)))
            }
            Ok(Outcome::RolledBack) => {
                recorder.record(EventKind::Fail, process, planned, Some("its answer was lost".to_owned()))?;
                Ok(Attempt::Settled(Outcome::RolledBack))
            }
            Err(error) => {
                recorder.record(EventKind::Info, process, planned, Some(error.to_string()))?;
                Ok(Attempt::Unknown)
            }
        }
    }

    fn failed(&self, recorder: &Recorder, process: i64, planned: Vec<MicroOp>, why: &StoreError) -> Result<Attempt> {
        recorder.record(EventKind::Fail, process, planned, Some(why.to_string()))?;
        Ok(Attempt::Conflict)
    }

    /// Records of outcomes that are still there.
    pub(super) async fn records(&self, database: &Database) -> Result<u64> {
        Ok(database.count_matching(&Ticket::namespace()?, rawdoc! {}).await?)
    }
}

/// Begins. Where timestamps come from far away, an answer may get lost on the way: then it is asked for again.
async fn begin(database: &Database, options: TransactionOptions) -> Result<Transaction, Error> {
    let mut attempts = 1;
    loop {
        match database.begin_with(options.clone()).await {
            Err(Error::Conflict(_)) if attempts < BEGIN_ATTEMPTS_MAX => attempts += 1,
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

fn read(number: u32, seen: Seen, amount: Option<i64>) -> MicroOp {
    MicroOp::Read { key: Name::Number(i64::from(number)), seen, amount }
}

fn write(number: u32, mark: i64, amount: Option<i64>) -> MicroOp {
    MicroOp::Write { key: Name::Number(i64::from(number)), value: Name::Number(mark), amount }
}
