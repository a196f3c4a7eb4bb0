//! Both accounts and the name of the row in one transaction, several rows in each: the name is there if and only if the money has
//! moved.
//!
//! ```text
//! transfers   {_id: "r-17", from: "ann", to: "bob", amount: 5, ts: ..}      who finds it leaves the row alone
//! accounts    {_id: "ann", balance: 95}   {_id: "bob", balance: 105}
//! ```

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use bson::{Bson, Document, RawDocumentBuf, doc};
use handfast_mql::Code;
use handfast_store::{Error as StoreError, ErrorClass, Namespace, StoreExt};
use handfast_txn::{Database, Error, Transaction};

use super::{NamedRow, RowOutcome};
use crate::command::transfer::name::Name;
use crate::command::transfer::row::Row;
use crate::command::transfer::row::is_same_account;
use crate::id::shown;

/// Attempts for a chunk whose outcome is unknown, or that lost against other transactions.
const ATTEMPTS_MAX: u32 = 8;

pub(in crate::command::transfer) struct ByTransaction {
    pub(super) database: Database,
    pub(super) accounts: Namespace,
    pub(super) transfers: Namespace,
    pub(super) balance: String,
    pub(super) overdraft: bool,
}

impl ByTransaction {
    /// Applies all rows in one transaction. If the store refuses one of them, applies each in a transaction of its own, so that this one alone
    /// is rejected.
    pub(super) async fn apply(&self, rows: &[NamedRow]) -> Result<Vec<RowOutcome>> {
        match self.apply_together(rows).await {
            Ok(outcomes) => Ok(outcomes),
            Err(error) if !is_refused(&error) => Err(error.into()),
            Err(_) => {
                let mut outcomes = Vec::with_capacity(rows.len());
                for row in rows {
                    match self.apply_together(std::slice::from_ref(row)).await {
                        Ok(outcome) => outcomes.extend(outcome),
                        Err(error) if is_refused(&error) => outcomes.push(RowOutcome::Rejected(error.to_string())),
                        Err(error) => return Err(error.into()),
                    }
                }
                Ok(outcomes)
            }
        }
    }

    async fn apply_together(&self, rows: &[NamedRow]) -> Result<Vec<RowOutcome>, Error> {
        let mut before: Vec<RowOutcome> = Vec::new();
        for _ in 1..ATTEMPTS_MAX {
            let (result, outcomes) = self.attempt(rows).await;
            match result {
                Ok(()) => return Ok(merged(before, outcomes)),
                // If it was applied, the names of the rows are there.
                Err(Error::CommitUnknown { .. }) => before = merged(before, outcomes),
                // Another process had the same row.
                Err(error) if error.code() == Code::DuplicateKey => {}
                Err(error) => return Err(error),
            }
        }
        let (result, outcomes) = self.attempt(rows).await;
        result.map(|()| merged(before, outcomes))
    }

    /// Returns the result of the commit, and the outcomes that the rows have if it was done.
    async fn attempt(&self, rows: &[NamedRow]) -> (Result<(), Error>, Vec<RowOutcome>) {
        let outcomes = Arc::new(Mutex::new(Vec::new()));
        let results = Arc::clone(&outcomes);
        let result = self
            .database
            .transaction(|tx| {
                let results = Arc::clone(&results);
                async move {
                    let mut outcomes = Vec::with_capacity(rows.len());
                    for row in rows {
                        outcomes.push(self.apply_one(&tx, row).await?);
                    }
                    *results.lock().unwrap_or_else(PoisonError::into_inner) = outcomes;
                    Ok::<_, Error>(())
                }
            })
            .await;
        let outcomes = std::mem::take(&mut *outcomes.lock().unwrap_or_else(PoisonError::into_inner));
        (result, outcomes)
    }

    /// Reads everything before it writes anything, so that a rejected row has written nothing.
    async fn apply_one(&self, tx: &Transaction, NamedRow { name, row }: &NamedRow) -> Result<RowOutcome, Error> {
        let mut is_taken = false;
        for id in name.recorded() {
            match find(tx, &self.transfers, &id).await? {
                Some(there) if is_of(&there, row) => return Ok(RowOutcome::AlreadyApplied),
                there => is_taken |= there.is_some(),
            }
        }
        if is_taken {
            return Ok(RowOutcome::Rejected(taken(name)));
        }
        let (payer, payee) = (find(tx, &self.accounts, &row.from).await?, find(tx, &self.accounts, &row.to).await?);
        let (payer, payee) = match (payer, payee) {
            (None, _) => return Ok(RowOutcome::Rejected(no_account(&row.from))),
            (_, None) => return Ok(RowOutcome::Rejected(no_account(&row.to))),
            (Some(payer), Some(payee)) => (payer, payee),
        };
        let (has, gets) = match (self.balance_of(&payer), self.balance_of(&payee)) {
            (Ok(has), Ok(gets)) => (has, gets),
            (Err(why), _) | (_, Err(why)) => return Ok(RowOutcome::Rejected(why)),
        };
        if has < row.amount && !self.overdraft {
            return Ok(RowOutcome::Rejected(too_little(&row.from, has, row.amount)));
        }
        if has.checked_sub(row.amount).is_none() || gets.checked_add(row.amount).is_none() {
            return Ok(RowOutcome::Rejected("a balance would not fit into 64 bits".to_owned()));
        }
        for (account, change) in [(&row.from, -row.amount), (&row.to, row.amount)] {
            let update = raw(&doc! { "$inc": { &self.balance: change } })?;
            tx.update_one(&self.accounts, raw(&doc! { "_id": account.clone() })?, update).await?;
        }
        let ts = self.database.sources().clock.now();
        let Row { from, to, amount, .. } = row;
        let marker =
            doc! { "_id": name.id().clone(), "from": from.clone(), "to": to.clone(), "amount": *amount, "ts": ts };
        tx.insert_one(&self.transfers, raw(&marker)?).await?;
        Ok(RowOutcome::Applied)
    }

    /// Returns the balance of an account, or why it has no usable one.
    fn balance_of(&self, account: &Document) -> Result<i64, String> {
        balance_of(account, &self.balance)
    }
}

/// Returns whether a recorded transfer is that of the row.
fn is_of(recorded: &Document, row: &Row) -> bool {
    let account = |name, of: &Bson| recorded.get(name).is_some_and(|recorded| is_same_account(recorded, of));
    account("from", &row.from) && account("to", &row.to) && recorded.get("amount") == Some(&Bson::Int64(row.amount))
}

/// Returns the balance of an account, or why it has no usable one.
pub(super) fn balance_of(account: &Document, field: &str) -> Result<i64, String> {
    let id = account.get("_id").map(shown).unwrap_or_default();
    match account.get(field) {
        Some(Bson::Int32(balance)) => Ok(i64::from(*balance)),
        Some(Bson::Int64(balance)) => Ok(*balance),
        // Shells write whole numbers so.
        Some(Bson::Double(balance)) if balance.fract() == 0.0 && balance.abs() < 9e15 => Ok(*balance as i64),
        Some(other) => Err(format!("the {field} of account {id} is {}, not a whole number", shown(other))),
        None => Err(format!("account {id} has no {field}")),
    }
}

pub(super) fn no_account(id: &Bson) -> String {
    format!("there is no account {}", shown(id))
}

pub(super) fn too_little(id: &Bson, has: i64, needs: i64) -> String {
    format!("account {} has {has}, and needs {needs}", shown(id))
}

pub(super) fn taken(name: &Name) -> String {
    format!("the id {} belongs to another transfer, with other accounts or another amount", shown(name.id()))
}

/// Returns the outcomes of two attempts: rows that the first one applied are found by the second.
fn merged(before: Vec<RowOutcome>, now: Vec<RowOutcome>) -> Vec<RowOutcome> {
    let mut before = before.into_iter();
    now.into_iter()
        .map(|now| match (before.next(), now) {
            (Some(RowOutcome::Applied), RowOutcome::AlreadyApplied) => RowOutcome::Applied,
            (_, now) => now,
        })
        .collect()
}

/// Returns whether the store refuses the request, and would again.
fn is_refused(error: &Error) -> bool {
    matches!(error, Error::Store(error) if error.class() == ErrorClass::Command)
}

async fn find(tx: &Transaction, namespace: &Namespace, id: &Bson) -> Result<Option<Document>, Error> {
    let found = tx.find_one(namespace, raw(&doc! { "_id": id.clone() })?).await?;
    let read = |found: RawDocumentBuf| Document::try_from(&*found);
    found.map(read).transpose().map_err(|error| unwritable(&error.to_string()).into())
}

fn raw(document: &Document) -> Result<RawDocumentBuf, StoreError> {
    RawDocumentBuf::try_from(document).map_err(|error| unwritable(&error.to_string()))
}

fn unwritable(why: &str) -> StoreError {
    StoreError::command(Code::BadValue, why)
}
