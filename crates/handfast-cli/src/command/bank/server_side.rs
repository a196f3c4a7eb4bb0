//! Transactions of the server itself: `--mechanism server-side`.
//!
//! ```text
//! worker   begin ── look, set ── commit ── (the answer is lost) ── commit again     what drivers do
//! ```
//!
//! An answer is lost by throwing it away here, after the driver has received it: the server then sees the same commit once more, as from
//! a client that did not get the answer. A session is announced before its first use, so that the parent can end it after a kill:
//! otherwise its open transaction would block others until its time is over.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Result;
use bson::doc;
use handfast_mongodb::{Session, SessionClient, TransactionError};
use handfast_mql::Code;
use handfast_store::{Error as StoreError, Namespace, Random, SeededRandom};

use super::lost_answers::Tally;
use super::record::{Recorder, SideMessage};
use crate::configuration::ConnectionString;

/// Attempts to send a commit whose answer was lost: at most half of the answers get lost.
const COMMITS_MAX: u32 = 100;
/// The longest pause before a transaction is repeated after a conflict: transactions last some milliseconds.
const PAUSE_MAX: Duration = Duration::from_millis(50);

/// The server, for all workers of a process.
pub(super) struct ServerSide {
    client: SessionClient,
    announced: Mutex<HashSet<[u8; 16]>>,
    random: SeededRandom,
    lost_replies_per_thousand: u16,
    counters: Counters,
}

#[derive(Default)]
struct Counters {
    open: AtomicU64,
    conflicts: AtomicU64,
    lost: AtomicU64,
    found_committed: AtomicU64,
}

/// An open transaction.
pub(super) struct ServerTransaction {
    pub(super) session: Session,
    server: Arc<ServerSide>,
}

impl ServerSide {
    pub(super) async fn connect(uri: &ConnectionString, lost_replies_per_thousand: u16, seed: u64) -> Result<Self> {
        let client = SessionClient::new(uri.secret()).await?;
        let random = SeededRandom::new(seed ^ 0x6c6f_7373);
        Ok(ServerSide {
            client,
            announced: Mutex::default(),
            random,
            lost_replies_per_thousand,
            counters: Counters::default(),
        })
    }

    /// Begins a transaction; its session is announced through the recorder.
    pub(super) async fn begin(self: &Arc<Self>, recorder: &Recorder) -> Result<ServerTransaction, TransactionError> {
        let mut session = self.client.session().await.map_err(TransactionError::Refused)?;
        let id = session.id().map_err(TransactionError::Refused)?;
        let is_new = self.announced.lock().unwrap_or_else(PoisonError::into_inner).insert(id);
        if is_new {
            recorder
                .send_to_parent(&SideMessage::Session(id))
                .map_err(|error| TransactionError::Refused(unrecorded(&error)))?;
        }
        session.begin().await?;
        self.counters.open.fetch_add(1, Ordering::Relaxed);
        Ok(ServerTransaction { session, server: Arc::clone(self) })
    }

    /// Ends the sessions of a process that was killed.
    pub(super) async fn end_sessions(&self, ids: &[[u8; 16]]) -> Result<()> {
        if !ids.is_empty() {
            self.client.kill_sessions(ids).await?;
        }
        Ok(())
    }

    pub(super) async fn drop_collection(&self, namespace: &Namespace) -> Result<()> {
        Ok(self.client.drop_collection(namespace).await?)
    }

    /// Counts the documents of a collection.
    pub(super) async fn count(&self, namespace: &Namespace) -> Result<u64> {
        Ok(self.client.count(namespace).await?)
    }

    /// Waits before a transaction is repeated, for a random time that grows with the attempts.
    pub(super) async fn pause(&self, attempt: u32) {
        let longest = Duration::from_millis(1).saturating_mul(1 << attempt.min(16)).min(PAUSE_MAX);
        let nanos = u64::try_from(longest.as_nanos()).unwrap_or(u64::MAX).max(1);
        tokio::time::sleep(Duration::from_nanos(self.random.next_u64() % nanos)).await;
    }

    /// Counts a transaction that was rolled back because of another one.
    pub(super) fn count_conflict(&self) {
        self.counters.conflicts.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn tally(&self) -> Tally {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let Counters { open, conflicts, lost, found_committed } = &self.counters;
        Tally {
            open: load(open),
            conflicts: load(conflicts),
            answers_lost: load(lost),
            found_committed: load(found_committed),
        }
    }

    fn loses_answer(&self) -> bool {
        let is_lost = self.random.next_u64() % 1000 < u64::from(self.lost_replies_per_thousand);
        self.counters.lost.fetch_add(u64::from(is_lost), Ordering::Relaxed);
        is_lost
    }
}

impl ServerTransaction {
    /// Commits, and repeats the commit if its answer is lost: the second answer tells the outcome of the first commit.
    pub(super) async fn commit(mut self) -> Result<(), TransactionError> {
        let mut attempts = 1;
        loop {
            let answer = self.session.commit().await;
            let is_lost = attempts < COMMITS_MAX && self.server.loses_answer();
            let is_unknown = matches!(answer, Err(TransactionError::Unknown(_)));
            if !is_lost && (!is_unknown || attempts == COMMITS_MAX) {
                if answer.is_ok() && attempts > 1 {
                    self.server.counters.found_committed.fetch_add(1, Ordering::Relaxed);
                }
                return answer;
            }
            attempts += 1;
        }
    }

    /// Rolls back, and returns when the server has done so.
    pub(super) async fn roll_back(mut self) {
        self.session.abort().await;
    }

    /// Writes a field of an account that no program reads.
    pub(super) async fn touch(&mut self, accounts: &Namespace, number: u32) -> Result<(), TransactionError> {
        let change = doc! { "$set": { "touched": true } };
        self.session.update_one(accounts, doc! { "_id": i64::from(number) }, change).await.map(drop)
    }
}

impl Drop for ServerTransaction {
    fn drop(&mut self) {
        self.server.counters.open.fetch_sub(1, Ordering::Relaxed);
    }
}

fn unrecorded(error: &anyhow::Error) -> StoreError {
    StoreError::command(Code::InternalError, format!("{error:#}"))
}
