//! Transfers in SQLite: a write-ahead log, a sync at every commit, a connection for each client.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use handfast_store::Clock;
use rusqlite::{Connection, TransactionBehavior, params};

use super::pair;
use crate::command::bench::measure::{Round, round};
use crate::command::bench::store::Plan;

/// The time that a writer waits for the others: longer than any wait.
const BUSY_TIMEOUT: Duration = Duration::from_secs(60);

/// A table of accounts, of the same size as the documents.
pub(super) struct Accounts {
    connections: Arc<Vec<Mutex<Connection>>>,
    accounts: u64,
}

impl Accounts {
    /// Creates the file, a connection for each client, and the accounts.
    pub(super) fn open(path: &Path, plan: &Plan) -> Result<Self> {
        let mut connections = Vec::with_capacity(plan.tasks);
        for _ in 0..plan.tasks {
            let connection = Connection::open(path)?;
            connection.busy_timeout(BUSY_TIMEOUT)?;
            connection.pragma_update(None, "journal_mode", "WAL")?;
            connection.pragma_update(None, "synchronous", "FULL")?;
            connections.push(connection);
        }
        let first = connections.first_mut().context("no client")?;
        first.execute_batch(
            "CREATE TABLE accounts (id INTEGER PRIMARY KEY, count INTEGER NOT NULL, text TEXT NOT NULL)",
        )?;
        let filling = first.transaction()?;
        let text = "x".repeat(plan.document_bytes);
        for id in 0..i64::try_from(plan.documents)? {
            filling.prepare_cached("INSERT INTO accounts VALUES (?1, 0, ?2)")?.execute(params![id, text])?;
        }
        filling.commit()?;
        let connections = Arc::new(connections.into_iter().map(Mutex::new).collect());
        Ok(Accounts { connections, accounts: plan.documents })
    }

    /// Measures the transfers of `clients` clients that run concurrently.
    pub(super) async fn transfers(&self, clock: &Arc<dyn Clock>, clients: usize, duration: Duration) -> Result<Round> {
        let (connections, accounts) = (Arc::clone(&self.connections), self.accounts);
        round(Arc::clone(clock), clients, duration, move |task, step| {
            let connections = Arc::clone(&connections);
            async move {
                let (from, to) = pair(task, step, accounts)?;
                // SQLite waits in its caller's thread.
                tokio::task::spawn_blocking(move || {
                    let connection = connections.get(task).context("a task without a connection")?;
                    let mut connection = connection.lock().unwrap_or_else(PoisonError::into_inner);
                    transfer(&mut connection, from, to)
                })
                .await?
            }
        })
        .await
    }
}

fn transfer(connection: &mut Connection, from: i64, to: i64) -> Result<()> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    for (id, amount) in [(from, -1), (to, 1)] {
        let mut change = transaction.prepare_cached("UPDATE accounts SET count = count + ?2 WHERE id = ?1")?;
        ensure!(change.execute(params![id, amount])? == 1, "account {id} is missing");
    }
    Ok(transaction.commit()?)
}
