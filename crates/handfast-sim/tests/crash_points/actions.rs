//! The actions of a run: transactions and retryable writes, each with an id.

use bson::{RawDocumentBuf, rawdoc};
use handfast_store::{
    CollectionOptions, CreateIndexes, DocumentStore, Error, Find, IndexSpec, Namespace, Result, StoreExt, Ticket,
    Update, UpdateSpec, UpdateStatement,
};
use handfast_txn::{Database, Isolation, Outcome, Transaction, TransactionId, TransactionOptions};

use crate::defect::Defect;

/// The sum of all balances before and after each action.
pub(crate) const MONEY: i64 = 30;

/// An action that is applied wholly or not at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// A transaction that updates two documents.
    Transfer,
    /// A transaction that creates a collection with a unique index and two documents, and writes to another collection.
    OpenBranch,
    /// An update that a driver may repeat.
    RetryableUpdate,
    /// A serializable transaction that finds by the index, deletes and upserts.
    CloseAccount,
    /// An upsert that a driver may repeat.
    RetryableUpsert,
}

impl Action {
    pub(crate) const ALL: [Action; 5] =
        [Action::Transfer, Action::OpenBranch, Action::RetryableUpdate, Action::CloseAccount, Action::RetryableUpsert];

    /// Returns the id of the transaction or of the ticket.
    pub(crate) fn id(self) -> TransactionId {
        TransactionId { session: [self as u8 + 1; 16], number: 1 }
    }

    pub(crate) fn is_transaction(self) -> bool {
        !matches!(self, Action::RetryableUpdate | Action::RetryableUpsert)
    }

    /// Runs the action and returns its result as text.
    pub(crate) async fn execute(self, database: &Database, defect: Option<Defect>) -> Result<String> {
        if self.is_transaction() {
            let transaction = begin(database, self.id()).await?;
            self.write(&transaction).await?;
            return Ok(format!("{:?}", transaction.commit().await?));
        }
        let ticket = (defect != Some(Defect::UnticketedUpdate)).then(|| self.id().ticket());
        let outcome = database.update(Update { ticket, ..self.update() }).await?;
        Ok(format!("{outcome:?}"))
    }

    /// Repeats the action, as a client without an answer does. A repeated commit must return the first result, whatever its writes.
    pub(crate) async fn repeat(self, database: &Database, defect: Option<Defect>) -> Result<String> {
        if !self.is_transaction() {
            return self.execute(database, defect).await;
        }
        let Outcome::Committed(at) = database.outcome(self.id()).await? else {
            return self.execute(database, defect).await;
        };
        let transaction = begin(database, self.id()).await?;
        transaction.insert_one(&accounts(), rawdoc! { "_id": "doubled", "balance": 1_000_i64 }).await?;
        let again = transaction.commit().await?;
        if again == at { Ok(format!("{at:?}")) } else { Err(unexpected("the commit and its outcome differ")) }
    }

    async fn write(self, transaction: &Transaction) -> Result<()> {
        match self {
            Action::Transfer => {
                pay(transaction, "Bob", -7).await?;
                pay(transaction, "Joe", 7).await
            }
            Action::OpenBranch => {
                transaction.create_collection(&branch(), CollectionOptions::default()).await?;
                let index = rawdoc! { "key": { "desk": 1 }, "name": "desk_1", "unique": true };
                let indexes = vec![IndexSpec::from_document(&index)?];
                transaction.create_indexes(CreateIndexes { namespace: branch(), indexes }).await?;
                for (id, desk) in [("Ann", 1), ("Tom", 2)] {
                    transaction.insert_one(&branch(), rawdoc! { "_id": id, "desk": desk }).await?;
                }
                pay(transaction, "Joe", -4).await?;
                transaction.insert_one(&accounts(), rawdoc! { "_id": "branch", "balance": 4_i64 }).await
            }
            Action::CloseAccount => {
                let found = transaction.find_one(&branch(), rawdoc! { "desk": 2 }).await?;
                let clerk = found.ok_or_else(|| unexpected("no clerk has desk 2"))?;
                let Some(account) = transaction.find_one(&accounts(), rawdoc! { "_id": "branch" }).await? else {
                    return Err(unexpected("the branch has no account"));
                };
                let rest = account.get_i64("balance").map_err(unexpected)?;
                transaction.delete_one(&accounts(), rawdoc! { "_id": "branch" }).await?;
                pay(transaction, "Bob", rest).await?;
                let name = clerk.get_str("_id").map_err(unexpected)?;
                transaction.delete_one(&branch(), rawdoc! { "_id": name }).await?;
                let change = rawdoc! { "$set": { "desk": 2 } };
                transaction.upsert_one(&branch(), rawdoc! { "_id": "Eve" }, change).await.map(drop)
            }
            Action::RetryableUpdate | Action::RetryableUpsert => Err(unexpected("the action is not a transaction")),
        }
    }

    fn update(self) -> Update {
        let change = |document| UpdateSpec::Document(document);
        let statement = if self == Action::RetryableUpdate {
            // A second application would show in the counter.
            UpdateStatement::one(rawdoc! { "_id": "Bob" }, change(rawdoc! { "$inc": { "visits": 1 } }))
        } else {
            let statement =
                UpdateStatement::one(rawdoc! { "name": "Zoe" }, change(rawdoc! { "$inc": { "visits": 1 } }));
            UpdateStatement { upsert: true, ..statement }
        };
        Update::new(accounts(), vec![statement])
    }
}

/// Inserts the accounts of Bob and Joe.
pub(crate) async fn fill(store: &dyn DocumentStore) {
    for (name, balance) in [("Bob", 20_i64), ("Joe", 10)] {
        store.insert_one(&accounts(), rawdoc! { "_id": name, "balance": balance }).await.unwrap();
    }
}

/// Returns all stored documents, with indexes and records of outcomes.
pub(crate) async fn dump(store: &dyn DocumentStore) -> Vec<RawDocumentBuf> {
    let mut everything = Vec::new();
    for namespace in [accounts(), branch(), Ticket::namespace().unwrap()] {
        everything.extend(store.find_all(Find::new(namespace, rawdoc! {})).await.unwrap());
    }
    if let Ok(indexes) = store.list_indexes(&branch()).await {
        everything.extend(indexes.iter().map(|index| index.spec.to_document()));
    }
    everything
}

/// Returns the sum of all balances.
pub(crate) async fn money(store: &dyn DocumentStore) -> i64 {
    let accounts = store.find_all(Find::new(accounts(), rawdoc! {})).await.unwrap();
    accounts.iter().filter_map(|account| account.get_i64("balance").ok()).sum()
}

async fn begin(database: &Database, id: TransactionId) -> Result<Transaction> {
    let options =
        TransactionOptions { isolation: Isolation::Serializable, id: Some(id), ..TransactionOptions::default() };
    Ok(database.begin_with(options).await?)
}

async fn pay(store: &dyn DocumentStore, name: &str, amount: i64) -> Result<()> {
    store.update_one(&accounts(), rawdoc! { "_id": name }, rawdoc! { "$inc": { "balance": amount } }).await.map(drop)
}

fn accounts() -> Namespace {
    Namespace::new("bank", "accounts").unwrap()
}

fn branch() -> Namespace {
    Namespace::new("bank", "branch").unwrap()
}

fn unexpected(why: impl std::fmt::Display) -> Error {
    Error::command(handfast_mql::Code::InternalError, why.to_string())
}
