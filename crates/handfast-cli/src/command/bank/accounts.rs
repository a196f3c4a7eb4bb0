//! The accounts, and what is done with them: transfers and audits, each attempt an entry of the history.

use std::sync::Arc;

use anyhow::{Context, Result};
use bson::{RawDocumentBuf, rawdoc};
use handfast_history::{EventKind, MicroOp, Name, Seen};
use handfast_mongodb::TransactionError;
use handfast_store::{Error as StoreError, Namespace};
use handfast_txn::{Database, Error, OnRetry, Outcome, Transaction, TransactionId, TransactionOptions};

use super::doubts::Told;
use super::mechanism::Mechanism;
use super::record::Recorder;
use super::runs::Runs;
use super::server_side::{OnServer, ServerSide};
use super::work::Work;

/// How often an audit is begun, or an outcome asked for, until there is an answer: half of them may get lost.
const ATTEMPTS_MAX: u32 = 100;

/// What each account holds at first.
const BALANCE: i64 = 100;

/// The accounts of the bank.
#[derive(Clone)]
pub(super) struct Accounts {
    /// One in each store: account N is in the collection N modulo their number.
    namespaces: Vec<Namespace>,
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
    /// So many, shared out among so many stores.
    pub(super) fn new(count: u32, stores: u32) -> Result<Self> {
        let namespaces = (0..stores as usize).map(Accounts::namespace_in).collect::<Result<_, _>>()?;
        Ok(Accounts { namespaces, count })
    }

    /// Where those of a store are, by its place.
    pub(super) fn namespace_in(store: usize) -> handfast_store::Result<Namespace> {
        let name = if store == 0 { "accounts".to_owned() } else { format!("accounts_{}", store + 1) };
        Namespace::new("handfast_bank", name)
    }

    /// Where they are.
    pub(super) fn namespaces(&self) -> &[Namespace] {
        &self.namespaces
    }

    /// Where an account is.
    fn namespace_of(&self, number: u32) -> &Namespace {
        &self.namespaces[number as usize % self.namespaces.len()]
    }

    /// The money that is there.
    pub(super) fn total(accounts: u32) -> i64 {
        i64::from(accounts) * BALANCE
    }

    /// Puts the money in, in one transaction.
    pub(super) async fn fill(&self, mechanism: &Mechanism, recorder: &Recorder) -> Result<()> {
        for namespace in &self.namespaces {
            mechanism.drop_collection(namespace).await?;
        }
        let accounts: Vec<Account> =
            (0..self.count).map(|number| Account { number, balance: BALANCE, mark: recorder.mark() }).collect();
        let writes: Vec<MicroOp> = accounts.iter().map(Account::write).collect();
        recorder.record(EventKind::Invoke, 0, writes.clone(), None)?;
        match mechanism {
            Mechanism::Library(database, _) => self.open(database.begin().await?, &accounts).await?,
            Mechanism::Server(server) => self.open(server.begin(recorder).await?, &accounts).await?,
        }
        recorder.record(EventKind::Ok, 0, writes, None)
    }

    async fn open<W: Work>(&self, mut work: W, accounts: &[Account]) -> Result<(), W::Error> {
        for account in accounts {
            work.open(self.namespace_of(account.number), account.document()).await?;
        }
        work.commit().await
    }

    /// Reads all accounts of one snapshot, and returns the sum; none if it was refused. What happens `meanwhile`, after the
    /// snapshot was taken, it must not see.
    pub(super) async fn audit(
        &self,
        mechanism: &Mechanism,
        recorder: &Recorder,
        process: i64,
        meanwhile: impl Future<Output = Result<()>> + Send,
    ) -> Result<Option<i64>> {
        let planned: Vec<MicroOp> = (0..self.count).map(|number| read(number, Seen::Nothing, None)).collect();
        recorder.record(EventKind::Invoke, process, planned.clone(), None)?;
        let found = match mechanism {
            Mechanism::Library(database, _) => self.look(begin(database).await?, meanwhile).await?,
            Mechanism::Server(server) => self.look(server.begin(recorder).await?, meanwhile).await?,
        };
        let documents = match found {
            Err(conflict) => {
                recorder.record(EventKind::Fail, process, planned, Some(conflict.to_string()))?;
                return Ok(None);
            }
            Ok(documents) => documents,
        };
        let accounts = documents.iter().map(Account::read).collect::<Result<Vec<_>>>()?;
        recorder.record(EventKind::Ok, process, accounts.iter().map(Account::seen).collect(), None)?;
        Ok(Some(accounts.iter().map(|account| account.balance).sum()))
    }

    /// All accounts of one snapshot, or what was in the way.
    async fn look<W: Work>(
        &self,
        mut work: W,
        meanwhile: impl Future<Output = Result<()>> + Send,
    ) -> Result<Result<Vec<RawDocumentBuf>, StoreError>> {
        // The snapshot of a server's transaction is that of its first look.
        let first = work.look(self.namespace_of(0), 0).await;
        meanwhile.await?;
        let found = match first {
            Ok(_) => self.look_at_all(&mut work).await,
            Err(error) => Err(error),
        };
        let ended = match found {
            Ok(documents) => work.commit().await.map(|()| documents),
            Err(error) => Err(error),
        };
        ended.map_or_else(|error| Ok(Err(W::conflict(error).map_err(Into::into)?)), |documents| Ok(Ok(documents)))
    }

    async fn look_at_all<W: Work>(&self, work: &mut W) -> Result<Vec<RawDocumentBuf>, W::Error> {
        let mut all = Vec::new();
        for namespace in &self.namespaces {
            all.extend(work.look_at_all(namespace).await?);
        }
        Ok(all)
    }

    /// Moves money from one account to another, again after a conflict.
    pub(super) async fn transfer(
        &self,
        mechanism: &Mechanism,
        options: TransactionOptions,
        recorder: &Arc<Recorder>,
        process: i64,
        (from, to, amount): (u32, u32, i64),
    ) -> Result<Transferred> {
        match mechanism {
            Mechanism::Library(database, _) => {
                self.transfer_by_library(database, options, recorder, process, (from, to, amount)).await
            }
            Mechanism::Server(server) => self.transfer_by_server(server, recorder, process, (from, to, amount)).await,
        }
    }

    /// In the closure form, which runs it again by itself.
    async fn transfer_by_library(
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
        let run = |mut tx: Transaction| {
            let runs = &runs;
            async move {
                // Whoever may have to ask for the outcome has the name before the commit.
                let _ = tx.id();
                runs.did(self.moved(&mut tx, from, to, amount, runs.marks()).await?);
                Ok(())
            }
        };
        match database.transaction_with(options, run).await {
            Ok(()) => runs.end(EventKind::Ok, None).map(|()| Transferred::Told),
            Err(Error::CommitUnknown { id, .. }) => ask(database, id, &runs).await.map(Transferred::Asked),
            Err(error) => Err(error.into()),
        }
    }

    /// As drivers do it: the whole transaction again after a conflict, the commit alone after a lost answer.
    async fn transfer_by_server(
        &self,
        server: &Arc<ServerSide>,
        recorder: &Arc<Recorder>,
        process: i64,
        (from, to, amount): (u32, u32, i64),
    ) -> Result<Transferred> {
        let runs = Runs::begin(Arc::clone(recorder), process, [from, to])?;
        let mut attempt = 0;
        loop {
            match self.attempt(server, recorder, (from, to, amount), &runs).await {
                Ok(()) => return runs.end(EventKind::Ok, None).map(|()| Transferred::Told),
                Err(TransactionError::Transient(why)) => {
                    server.note_conflict();
                    runs.again(&why);
                }
                Err(TransactionError::Unknown(error)) => {
                    runs.end(EventKind::Info, Some(error.to_string()))?;
                    return Ok(Transferred::Asked(Told::Unknown));
                }
                Err(error) => return Err(error.into()),
            }
            server.pause(attempt).await;
            attempt += 1;
        }
    }

    async fn attempt(
        &self,
        server: &Arc<ServerSide>,
        recorder: &Recorder,
        (from, to, amount): (u32, u32, i64),
        runs: &Runs,
    ) -> Result<(), TransactionError> {
        let mut tx = server.begin(recorder).await?;
        match self.moved(&mut tx, from, to, amount, runs.marks()).await {
            Ok(moved) => {
                runs.did(moved);
                tx.commit().await
            }
            Err(error) => {
                tx.roll_back().await;
                Err(error)
            }
        }
    }

    /// How many accounts cannot be written to on the server, because an open transaction has written to them.
    pub(super) async fn locked(&self, server: &Arc<ServerSide>, recorder: &Recorder) -> Result<u64> {
        let mut locked = 0;
        for number in 0..self.count {
            let mut tx: OnServer = server.begin(recorder).await?;
            let touched = tx.touch(self.namespace_of(number), number).await;
            tx.roll_back().await;
            match touched {
                Err(TransactionError::Transient(_)) => locked += 1,
                touched => touched?,
            }
        }
        Ok(locked)
    }

    async fn moved<W: Work>(
        &self,
        work: &mut W,
        from: u32,
        to: u32,
        amount: i64,
        marks: [i64; 2],
    ) -> Result<Vec<MicroOp>, W::Error> {
        let mut operations = Vec::with_capacity(4);
        let mut written = Vec::with_capacity(2);
        for ((number, change), mark) in [(from, -amount), (to, amount)].into_iter().zip(marks) {
            let found = work.look(self.namespace_of(number), number).await?;
            let account = found.as_ref().map(Account::read).transpose().ok().flatten();
            let Some(account) = account else {
                let text = format!("account {number} of {} is missing or damaged", self.namespace_of(number));
                return Err(StoreError::command(handfast_mql::Code::NoSuchKey, text).into());
            };
            operations.push(account.seen());
            written.push(Account { number, balance: account.balance + change, mark });
        }
        for account in written {
            work.set(self.namespace_of(account.number), account.number, account.balance, account.mark).await?;
            operations.push(account.write());
        }
        Ok(operations)
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
async fn begin(database: &Database) -> Result<Transaction, Error> {
    let mut attempts = 1;
    loop {
        match database.begin().await {
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
