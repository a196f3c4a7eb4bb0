//! The accounts with their transfers and audits; each attempt is an entry of the history.

use std::sync::Arc;

use anyhow::{Context, Result};
use bson::{RawDocumentBuf, rawdoc};
use handfast_history::{EventKind, MicroOp, Name, ReadValue};
use handfast_mongodb::TransactionError;
use handfast_store::{Error as StoreError, Namespace};
use handfast_txn::{Database, Error, OnRetry, Outcome, Transaction, TransactionId, TransactionOptions};

use super::MoneyTransfer;
use super::attempts::Attempts;
use super::lost_answers::CommitOutcome;
use super::mechanism::Mechanism;
use super::open_transaction::OpenTransaction;
use super::record::{Recorder, read, write};
use super::server_side::{ServerSide, ServerTransaction};

/// Attempts to begin an audit, or to ask for an outcome: half of the answers may get lost.
const ATTEMPTS_MAX: u32 = 100;

/// The first balance of each account.
const BALANCE: i64 = 100;

/// The accounts of the bank.
#[derive(Clone)]
pub(super) struct Accounts {
    /// The collections, one in each store: account N is in the collection N modulo their number.
    namespaces: Vec<Namespace>,
    count: u32,
}

/// The end of a transfer.
pub(super) enum Transferred {
    /// The commit was acknowledged.
    Acknowledged,
    /// The answer to the commit was lost; the worker has asked for the outcome.
    Asked(CommitOutcome),
}

/// An account as it was read.
struct Account {
    number: u32,
    balance: i64,
    mark: i64,
}

impl Accounts {
    /// Returns `count` accounts, spread over `stores` stores.
    pub(super) fn new(count: u32, stores: u32) -> Result<Self> {
        let namespaces = (0..stores as usize).map(Accounts::namespace_in).collect::<Result<_, _>>()?;
        Ok(Accounts { namespaces, count })
    }

    /// Returns the collection of accounts in the store with this index.
    pub(super) fn namespace_in(store: usize) -> handfast_store::Result<Namespace> {
        let name = if store == 0 { "accounts".to_owned() } else { format!("accounts_{}", store + 1) };
        Namespace::new("handfast_bank", name)
    }

    pub(super) fn namespaces(&self) -> &[Namespace] {
        &self.namespaces
    }

    /// Returns the collection that holds an account.
    fn namespace_of(&self, number: u32) -> &Namespace {
        &self.namespaces[number as usize % self.namespaces.len()]
    }

    /// Returns the sum of all first balances.
    pub(super) fn total(accounts: u32) -> i64 {
        i64::from(accounts) * BALANCE
    }

    /// Opens all accounts with their first balance, in one transaction.
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

    async fn open<T: OpenTransaction>(&self, mut tx: T, accounts: &[Account]) -> Result<(), T::Error> {
        for account in accounts {
            tx.insert_account(self.namespace_of(account.number), account.document()).await?;
        }
        tx.commit().await
    }

    /// Reads all accounts in one snapshot, and returns their sum, or none if the transaction met a conflict. `meanwhile` runs
    /// after the snapshot is taken, so the snapshot must not contain its writes.
    pub(super) async fn audit(
        &self,
        mechanism: &Mechanism,
        recorder: &Recorder,
        process: i64,
        meanwhile: impl Future<Output = Result<()>> + Send,
    ) -> Result<Option<i64>> {
        let planned: Vec<MicroOp> = (0..self.count).map(|number| read(number, ReadValue::Nothing, None)).collect();
        recorder.record(EventKind::Invoke, process, planned.clone(), None)?;
        let found = match mechanism {
            Mechanism::Library(database, _) => self.read_all(begin(database).await?, meanwhile).await?,
            Mechanism::Server(server) => self.read_all(server.begin(recorder).await?, meanwhile).await?,
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

    /// Returns all accounts of one snapshot, or the conflict.
    async fn read_all<T: OpenTransaction>(
        &self,
        mut tx: T,
        meanwhile: impl Future<Output = Result<()>> + Send,
    ) -> Result<Result<Vec<RawDocumentBuf>, StoreError>> {
        // A server takes the snapshot of a transaction at its first read.
        let first = tx.find_account(self.namespace_of(0), 0).await;
        meanwhile.await?;
        let found = match first {
            Ok(_) => self.find_all_accounts(&mut tx).await,
            Err(error) => Err(error),
        };
        let ended = match found {
            Ok(documents) => tx.commit().await.map(|()| documents),
            Err(error) => Err(error),
        };
        ended.map_or_else(|error| Ok(Err(T::conflict(error).map_err(Into::into)?)), |documents| Ok(Ok(documents)))
    }

    async fn find_all_accounts<T: OpenTransaction>(&self, tx: &mut T) -> Result<Vec<RawDocumentBuf>, T::Error> {
        let mut all = Vec::new();
        for namespace in &self.namespaces {
            all.extend(tx.find_all_accounts(namespace).await?);
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
        transfer: MoneyTransfer,
    ) -> Result<Transferred> {
        match mechanism {
            Mechanism::Library(database, _) => {
                self.transfer_by_library(database, options, recorder, process, transfer).await
            }
            Mechanism::Server(server) => self.transfer_by_server(server, recorder, process, transfer).await,
        }
    }

    /// Makes a transfer in the closure form, which repeats it by itself.
    async fn transfer_by_library(
        &self,
        database: &Database,
        options: TransactionOptions,
        recorder: &Arc<Recorder>,
        process: i64,
        transfer: MoneyTransfer,
    ) -> Result<Transferred> {
        let attempts = Attempts::begin(Arc::clone(recorder), process, [transfer.from, transfer.to])?;
        let on_retry = Arc::clone(&attempts);
        let options = TransactionOptions { on_retry: OnRetry::new(move |why| on_retry.retry(why)), ..options };
        let run = |mut tx: Transaction| {
            let attempts = &attempts;
            async move {
                // The outcome can be asked for by an id that is known before the commit.
                let _ = tx.id();
                attempts.set_operations(self.move_money(&mut tx, transfer, attempts.marks()).await?);
                Ok(())
            }
        };
        match database.transaction_with(options, run).await {
            Ok(()) => attempts.end(EventKind::Ok, None).map(|()| Transferred::Acknowledged),
            Err(Error::CommitUnknown { id, .. }) => ask_outcome(database, id, &attempts).await.map(Transferred::Asked),
            Err(error) => Err(error.into()),
        }
    }

    /// Makes a transfer as drivers do: repeats the transaction after a conflict, and the commit alone after a lost answer.
    async fn transfer_by_server(
        &self,
        server: &Arc<ServerSide>,
        recorder: &Arc<Recorder>,
        process: i64,
        transfer: MoneyTransfer,
    ) -> Result<Transferred> {
        let attempts = Attempts::begin(Arc::clone(recorder), process, [transfer.from, transfer.to])?;
        let mut attempt = 0;
        loop {
            match self.attempt(server, recorder, transfer, &attempts).await {
                Ok(()) => return attempts.end(EventKind::Ok, None).map(|()| Transferred::Acknowledged),
                Err(TransactionError::Transient(why)) => {
                    server.count_conflict();
                    attempts.retry(&why);
                }
                Err(TransactionError::Unknown(error)) => {
                    attempts.end(EventKind::Info, Some(error.to_string()))?;
                    return Ok(Transferred::Asked(CommitOutcome::Unknown));
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
        transfer: MoneyTransfer,
        attempts: &Attempts,
    ) -> Result<(), TransactionError> {
        let mut tx = server.begin(recorder).await?;
        match self.move_money(&mut tx, transfer, attempts.marks()).await {
            Ok(moved) => {
                attempts.set_operations(moved);
                tx.commit().await
            }
            Err(error) => {
                tx.roll_back().await;
                Err(error)
            }
        }
    }

    /// Returns how many accounts cannot be written to on the server, because an open transaction has written to them.
    pub(super) async fn locked(&self, server: &Arc<ServerSide>, recorder: &Recorder) -> Result<u64> {
        let mut locked = 0;
        for number in 0..self.count {
            let mut tx: ServerTransaction = server.begin(recorder).await?;
            let touched = tx.touch(self.namespace_of(number), number).await;
            tx.roll_back().await;
            match touched {
                Err(TransactionError::Transient(_)) => locked += 1,
                touched => touched?,
            }
        }
        Ok(locked)
    }

    /// Reads and writes both accounts; returns the operations for the history.
    async fn move_money<T: OpenTransaction>(
        &self,
        tx: &mut T,
        MoneyTransfer { from, to, amount }: MoneyTransfer,
        marks: [i64; 2],
    ) -> Result<Vec<MicroOp>, T::Error> {
        let mut operations = Vec::with_capacity(4);
        let mut written = Vec::with_capacity(2);
        for ((number, change), mark) in [(from, -amount), (to, amount)].into_iter().zip(marks) {
            let found = tx.find_account(self.namespace_of(number), number).await?;
            let account = found.as_ref().map(Account::read).transpose().ok().flatten();
            let Some(account) = account else {
                let text = format!("account {number} of {} is missing or damaged", self.namespace_of(number));
                return Err(StoreError::command(handfast_mql::Code::NoSuchKey, text).into());
            };
            operations.push(account.seen());
            written.push(Account { number, balance: account.balance + change, mark });
        }
        for account in written {
            tx.set_balance(self.namespace_of(account.number), account.number, account.balance, account.mark).await?;
            operations.push(account.write());
        }
        Ok(operations)
    }
}

/// Asks for the outcome of a commit whose answer was lost, when the answer to the library's own query was lost, too.
async fn ask_outcome(database: &Database, id: TransactionId, attempts: &Attempts) -> Result<CommitOutcome> {
    let note = |what: &str| Some(format!("its answer was lost; asked for by id, it {what}"));
    let mut asked = 1;
    loop {
        match database.outcome(id).await {
            Ok(Outcome::Committed(_)) => {
                return attempts.end(EventKind::Ok, note("had committed")).map(|()| CommitOutcome::Committed);
            }
            Ok(Outcome::RolledBack) => {
                return attempts.end(EventKind::Fail, note("was rolled back")).map(|()| CommitOutcome::RolledBack);
            }
            // Outcomes are not forgotten while the bank is open.
            Ok(Outcome::Forgotten) => {
                return attempts.end(EventKind::Info, note("was forgotten")).map(|()| CommitOutcome::Unknown);
            }
            Err(_) if asked < ATTEMPTS_MAX => asked += 1,
            Err(error) => {
                return attempts.end(EventKind::Info, Some(error.to_string())).map(|()| CommitOutcome::Unknown);
            }
        }
    }
}

/// Begins an audit, again after a lost answer. The closure form would repeat the transfer that runs during the audit.
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
        let number = u32::try_from(document.get_i64("_id")?).context("the number of an account is out of range")?;
        Ok(Account { number, balance: document.get_i64("balance")?, mark: document.get_i64("mark")? })
    }

    fn document(&self) -> RawDocumentBuf {
        rawdoc! { "_id": i64::from(self.number), "balance": self.balance, "mark": self.mark }
    }

    fn seen(&self) -> MicroOp {
        read(self.number, ReadValue::Value(Name::Number(self.mark)), Some(self.balance))
    }

    fn write(&self) -> MicroOp {
        write(self.number, self.mark, Some(self.balance))
    }
}
