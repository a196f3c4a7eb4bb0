//! Runs a workload of `handfast-sim` through the driver, with concurrent transactions, and writes their history to a file for
//! `handfast check history`.
//!
//!     rust_driver workload KIND SEED COMMITTED FILE [LIE]
//!
//! The seed determines all random choices. A LIE is an operation that this client reports and does not do: the judges must find an
//! anomaly.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context as _, bail};
use async_trait::async_trait;
use handfast_history::Expectation;
use handfast_sim::{
    Cell, Client, ClientTransaction, Failure, Isolation, MinimumCounts, Order, RunOptions, Workload, WorkloadKind,
    documents, run,
};
use handfast_store::Sources;
use mongodb::bson::RawDocumentBuf;
use mongodb::error::{Error, TRANSIENT_TRANSACTION_ERROR, UNKNOWN_TRANSACTION_COMMIT_RESULT};
use mongodb::options::ReadConcern;
use mongodb::{ClientSession, Collection};

/// The number of concurrent clients.
const PROCESSES: u32 = 8;
/// The number of attempts at a commit whose outcome is unknown.
const COMMITS_MAX: u32 = 10;
/// The number of appends of which a lying client leaves out one.
const LEFT_OUT_ONE_IN: u64 = 40;

/// An operation that the client reports and does not do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lie {
    /// Some appends, which are reported as done, are not sent.
    LostAppend,
    /// Operations are not in a transaction: each is one of its own.
    NoTransaction,
}

/// The server through the driver.
struct Driver {
    client: mongodb::Client,
    keys: Collection<RawDocumentBuf>,
    lie: Option<Lie>,
    appends: Arc<AtomicU64>,
}

struct Open {
    session: ClientSession,
    keys: Collection<RawDocumentBuf>,
    lie: Option<Lie>,
    appends: Arc<AtomicU64>,
}

/// Runs the workload of the arguments.
pub(crate) async fn main(uri: &str, arguments: &[String]) -> anyhow::Result<()> {
    let [kind, seed, committed, file, lie @ ..] = arguments else { bail!("workload KIND SEED COMMITTED FILE [LIE]") };
    let kind = match kind.as_str() {
        "list-append" => WorkloadKind::ListAppend,
        "register" => WorkloadKind::Register,
        "bank" => WorkloadKind::Bank,
        "write-skew" => WorkloadKind::WriteSkew,
        "long-scan" => WorkloadKind::LongScan,
        other => bail!("no workload '{other}'"),
    };
    let lie = match lie.first().map(String::as_str) {
        None => None,
        Some("lost-append") => Some(Lie::LostAppend),
        Some("no-transaction") => Some(Lie::NoTransaction),
        Some(other) => bail!("no lie '{other}'"),
    };
    let client = mongodb::Client::with_uri_str(uri).await?;
    let database = client.database("workload");
    database.drop().await?;
    database.create_collection("keys").await?;
    let keys = database.collection("keys");
    let driver = Driver { client, keys, lie, appends: Arc::default() };
    let options = RunOptions {
        seed: seed.parse().context("SEED")?,
        processes: PROCESSES,
        committed: committed.parse().context("COMMITTED")?,
        expectation: Expectation { isolation: Isolation::Snapshot, order: Order::RealTime },
        minimum: MinimumCounts::default(),
    };
    let outcome = run(Workload::new(kind), Arc::new(driver), Sources::system()?, options).await?;
    outcome.save(Path::new(file))?;
    database.drop().await?;
    println!("{outcome}");
    Ok(())
}

#[async_trait]
impl Client for Driver {
    async fn begin(&self) -> Result<Box<dyn ClientTransaction>, Failure> {
        let mut session = self.client.start_session().await.map_err(failure)?;
        if self.lie != Some(Lie::NoTransaction) {
            session.start_transaction().read_concern(ReadConcern::snapshot()).await.map_err(failure)?;
        }
        Ok(Box::new(Open { session, keys: self.keys.clone(), lie: self.lie, appends: Arc::clone(&self.appends) }))
    }
}

#[async_trait]
impl ClientTransaction for Open {
    async fn read(&mut self, key: i64) -> Result<Cell, Failure> {
        let filter = document(documents::by_key(key))?;
        let found = self.keys.find_one(filter).session(&mut self.session).await.map_err(failure)?;
        found.map_or(Ok(Cell::Nothing), |found| documents::cell(&found))
    }

    async fn scan(&mut self, keys: Range<i64>) -> Result<Vec<(i64, Cell)>, Failure> {
        let filter = document(documents::by_range(&keys))?;
        // Several batches keep the cursor open within the transaction.
        let find = self.keys.find(filter).batch_size(5);
        let mut cursor = find.session(&mut self.session).await.map_err(failure)?;
        let mut found = Vec::new();
        while let Some(next) = cursor.next(&mut self.session).await {
            found.push(documents::key_and_cell(&next.map_err(failure)?)?);
        }
        Ok(found)
    }

    async fn append(&mut self, key: i64, value: i64) -> Result<(), Failure> {
        let number = self.appends.fetch_add(1, Ordering::Relaxed);
        if self.lie == Some(Lie::LostAppend) && number.is_multiple_of(LEFT_OUT_ONE_IN) {
            return Ok(());
        }
        self.upsert(key, documents::append(value)).await
    }

    async fn write(&mut self, key: i64, value: i64, amount: Option<i64>) -> Result<(), Failure> {
        self.upsert(key, documents::write(value, amount)).await
    }

    async fn commit(mut self: Box<Self>) -> Result<(), Failure> {
        if self.lie == Some(Lie::NoTransaction) {
            return Ok(());
        }
        for _ in 1..COMMITS_MAX {
            match self.session.commit_transaction().await {
                Err(error) if error.contains_label(UNKNOWN_TRANSACTION_COMMIT_RESULT) => {}
                answer => return answer.map_err(failure),
            }
        }
        self.session.commit_transaction().await.map_err(|error| Failure::Unknown(error.to_string()))
    }

    async fn abort(mut self: Box<Self>) -> Result<(), Failure> {
        if self.lie == Some(Lie::NoTransaction) {
            return Ok(());
        }
        self.session.abort_transaction().await.map_err(failure)
    }
}

impl Open {
    async fn upsert(&mut self, key: i64, change: RawDocumentBuf) -> Result<(), Failure> {
        let (filter, change) = (document(documents::by_key(key))?, document(change)?);
        let update = self.keys.update_one(filter, change).upsert(true);
        update.session(&mut self.session).await.map(drop).map_err(failure)
    }
}

fn document(raw: RawDocumentBuf) -> Result<mongodb::bson::Document, Failure> {
    raw.try_into().map_err(|error: mongodb::bson::error::Error| Failure::Unexpected(error.to_string()))
}

fn failure(error: Error) -> Failure {
    if error.contains_label(TRANSIENT_TRANSACTION_ERROR) {
        Failure::Conflict(error.to_string())
    } else {
        Failure::Unexpected(error.to_string())
    }
}
