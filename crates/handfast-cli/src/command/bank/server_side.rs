//! Transactions of the server itself: `--mechanism server-side`.
//!
//! ```text
//! worker   begin ── look, set ── commit ── (the answer is lost) ── commit again     what drivers do
//! ```
//!
//! A lost answer is one that is thrown away here, after the driver has had it: the server sees what it sees of a client that
//! did not get it, the same commit once more. A session that is used for the first time is told of, so that whoever comes
//! after a kill can end it: otherwise what was open in it would be in the others' way until its time is over.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Result;
use bson::doc;
use handfast_mongodb::{Session, SessionClient, TransactionError};
use handfast_mql::Code;
use handfast_store::{Error as StoreError, Namespace, Random, SeededRandom};

use super::mechanism::Tally;
use super::record::{Aside, Recorder};
use crate::configuration::ConnectionString;

/// How often a commit is sent whose answer was lost: more than half of them are never lost.
const COMMITS_MAX: u32 = 100;
/// The longest pause before a transaction is run again that lost against another one. Short: those that it lost against last
/// some milliseconds.
const PAUSE_MAX: Duration = Duration::from_millis(50);

/// The server, for all workers of a process.
pub(super) struct ServerSide {
    client: SessionClient,
    told: Mutex<HashSet<[u8; 16]>>,
    random: SeededRandom,
    lost_replies_per_thousand: u16,
    numbers: Numbers,
}

/// What happened so far.
#[derive(Default)]
struct Numbers {
    open: AtomicU64,
    conflicts: AtomicU64,
    lost: AtomicU64,
    settled: AtomicU64,
}

/// An open transaction.
pub(super) struct OnServer {
    pub(super) session: Session,
    server: Arc<ServerSide>,
}

impl ServerSide {
    pub(super) async fn connect(uri: &ConnectionString, lost_replies_per_thousand: u16, seed: u64) -> Result<Self> {
        let client = SessionClient::new(uri.secret()).await?;
        let random = SeededRandom::new(seed ^ 0x6c6f_7373);
        Ok(ServerSide {
            client,
            told: Mutex::default(),
            random,
            lost_replies_per_thousand,
            numbers: Numbers::default(),
        })
    }

    /// Begins a transaction, of whose session the recorder has heard.
    pub(super) async fn begin(self: &Arc<Self>, recorder: &Recorder) -> Result<OnServer, TransactionError> {
        let mut session = self.client.session().await.map_err(TransactionError::Refused)?;
        let id = session.id().map_err(TransactionError::Refused)?;
        let is_new = self.told.lock().unwrap_or_else(PoisonError::into_inner).insert(id);
        if is_new {
            recorder.tell(&Aside::Session(id)).map_err(|error| TransactionError::Refused(unrecorded(&error)))?;
        }
        session.begin().await?;
        self.numbers.open.fetch_add(1, Ordering::Relaxed);
        Ok(OnServer { session, server: Arc::clone(self) })
    }

    /// Ends the sessions of a process that is no more.
    pub(super) async fn end_sessions(&self, ids: &[[u8; 16]]) -> Result<()> {
        if !ids.is_empty() {
            self.client.kill_sessions(ids).await?;
        }
        Ok(())
    }

    pub(super) async fn drop_collection(&self, namespace: &Namespace) -> Result<()> {
        Ok(self.client.drop_collection(namespace).await?)
    }

    /// Documents of a collection.
    pub(super) async fn count(&self, namespace: &Namespace) -> Result<u64> {
        Ok(self.client.count(namespace).await?)
    }

    /// Waits before a transaction is run again: longer with each attempt, by chance.
    pub(super) async fn pause(&self, attempt: u32) {
        let longest = Duration::from_millis(1).saturating_mul(1 << attempt.min(16)).min(PAUSE_MAX);
        let nanos = u64::try_from(longest.as_nanos()).unwrap_or(u64::MAX).max(1);
        tokio::time::sleep(Duration::from_nanos(self.random.next_u64() % nanos)).await;
    }

    /// A transaction was rolled back because of another one.
    pub(super) fn note_conflict(&self) {
        self.numbers.conflicts.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn tally(&self) -> Tally {
        let number = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let Numbers { open, conflicts, lost, settled } = &self.numbers;
        Tally { open: number(open), conflicts: number(conflicts), answers_lost: number(lost), settled: number(settled) }
    }

    fn loses_an_answer(&self) -> bool {
        let is_lost = self.random.next_u64() % 1000 < u64::from(self.lost_replies_per_thousand);
        self.numbers.lost.fetch_add(u64::from(is_lost), Ordering::Relaxed);
        is_lost
    }
}

impl OnServer {
    /// Commits, again where the answer is lost: the answer then says what became of the first one.
    pub(super) async fn commit(mut self) -> Result<(), TransactionError> {
        let mut attempts = 1;
        loop {
            let answer = self.session.commit().await;
            let is_lost = attempts < COMMITS_MAX && self.server.loses_an_answer();
            let is_unknown = matches!(answer, Err(TransactionError::Unknown(_)));
            if !is_lost && (!is_unknown || attempts == COMMITS_MAX) {
                if answer.is_ok() && attempts > 1 {
                    self.server.numbers.settled.fetch_add(1, Ordering::Relaxed);
                }
                return answer;
            }
            attempts += 1;
        }
    }

    /// Rolls back, and has the server know it before this returns.
    pub(super) async fn roll_back(mut self) {
        self.session.abort().await;
    }

    /// Writes to an account something that nobody reads.
    pub(super) async fn touch(&mut self, accounts: &Namespace, number: u32) -> Result<(), TransactionError> {
        let change = doc! { "$set": { "touched": true } };
        self.session.update_one(accounts, doc! { "_id": i64::from(number) }, change).await.map(drop)
    }
}

impl Drop for OnServer {
    fn drop(&mut self) {
        self.server.numbers.open.fetch_sub(1, Ordering::Relaxed);
    }
}

fn unrecorded(error: &anyhow::Error) -> StoreError {
    StoreError::command(Code::InternalError, format!("{error:#}"))
}
