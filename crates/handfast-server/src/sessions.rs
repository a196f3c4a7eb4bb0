//! The sessions of clients.
//!
//! A session is an id that a client chooses and sends with its commands. The server records the time of its last command, and ends the
//! session after half an hour without one. The end of a session closes its cursors and rolls its open transaction back.
//!
//! The client numbers its retryable writes and transactions in a session in one series. The server remembers the newest number
//! ([`LatestNumber`]). A request with a higher number ends the transaction before it; one with a lower number is refused.
//!
//! ```text
//! number     none ── Recorded (from before a restart) ── Writes ── Open ── Committing ── Committed
//!                                                                   │           ├─ InDoubt ── Committing again
//!                                                                   └───────────┴─ Aborted
//! ```

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use handfast_mql::Code;
use handfast_txn::Transaction;

use crate::error::{CommandError, CommandResult};
use crate::lock::lock;
use crate::request::SessionId;
use crate::transactions::snapshot::SnapshotRead;

/// The value of `logicalSessionTimeoutMinutes`.
pub(crate) const SESSION_TIMEOUT_MINUTES: i32 = 30;
const SESSION_TIMEOUT: Duration = Duration::from_secs(30 * 60);
/// The number of sessions at once, as in MongoDB's `maxSessions`. Each takes about 90 bytes, and about 100 more once it has a number.
pub(crate) const SESSIONS_MAX: usize = 1_000_000;

pub(crate) struct Sessions {
    table: Mutex<HashMap<SessionId, Session>>,
    max: usize,
}

struct Session {
    /// The time of its last command, since the clock's start.
    last_use: Duration,
    latest: Option<Box<LatestNumber>>,
    /// The snapshot that it reads outside of transactions.
    snapshot: Option<Arc<SnapshotRead>>,
    turn: Option<Arc<tokio::sync::Mutex<()>>>,
    /// Whether a client has asked to end it during a commit. It stays until the commit has finished; otherwise a client that asks for the
    /// outcome would get the error for an unknown transaction, and run the transaction again.
    is_ending: bool,
}

impl Session {
    /// Returns whether it can end now; if not, it ends with its commit. A session whose commit is in doubt can end, because its client
    /// may never repeat the commit; if it does, it gets the outcome from the store.
    fn can_end_now(&mut self) -> bool {
        self.is_ending = matches!(self.latest.as_deref(), Some(LatestNumber { state: NumberState::Committing(_), .. }));
        !self.is_ending
    }

    /// Rolls back its open transaction.
    fn close(self) {
        abort(self.latest);
        release(self.snapshot);
    }
}

/// The newest number of a session.
#[derive(Clone)]
pub(crate) struct LatestNumber {
    pub(crate) number: i64,
    pub(crate) state: NumberState,
}

/// The use of a session's number.
#[derive(Clone)]
pub(crate) enum NumberState {
    /// The store has a record of the number from before this server was started.
    Recorded,
    /// Retryable writes.
    Writes,
    /// A transaction that takes requests.
    Open(Arc<OpenTransaction>),
    /// A transaction that is being committed.
    Committing(Arc<OpenTransaction>),
    /// A transaction whose commit has failed with an unknown outcome. The client's next commit may find the outcome in the store.
    InDoubt(Arc<OpenTransaction>),
    /// A transaction that was committed.
    Committed,
    /// A transaction that was rolled back, by its client or otherwise.
    Aborted { by_client: bool },
}

/// A transaction that belongs to a session.
pub(crate) struct OpenTransaction {
    pub(crate) session: SessionId,
    pub(crate) number: i64,
    pub(crate) transaction: Transaction,
    /// The lock that a request of the transaction holds while it runs.
    pub(crate) turn: Arc<tokio::sync::Mutex<()>>,
    /// The time at which it began, since the clock's start.
    pub(crate) since: Duration,
    /// The time that it may be open.
    pub(crate) lifetime: Duration,
    /// The level of its read concern.
    pub(crate) read_concern: Option<String>,
}

impl Sessions {
    pub(crate) fn new(max: usize) -> Self {
        Sessions { table: Mutex::new(HashMap::new()), max }
    }

    /// Records a command of a session, which begins with its first command.
    pub(crate) fn touch(&self, id: SessionId, now: Duration) -> CommandResult<()> {
        let mut table = lock(&self.table);
        if let Some(session) = table.get_mut(&id) {
            session.last_use = now;
            return Ok(());
        }
        if table.len() >= self.max {
            return Err(CommandError::new(
                Code::TooManyLogicalSessions,
                format!(
                    "Unable to add session ID {id} into the cache because the number of active sessions is too high"
                ),
            ));
        }
        table.insert(id, Session { last_use: now, latest: None, snapshot: None, turn: None, is_ending: false });
        Ok(())
    }

    /// Returns the newest number of a session, and its use.
    pub(crate) fn latest(&self, id: SessionId) -> Option<LatestNumber> {
        lock(&self.table).get(&id)?.latest.as_deref().cloned()
    }

    /// Returns the lock of a session's retryable writes. Each holds it while it runs, so that no statement of an earlier one is applied
    /// after a later one.
    pub(crate) fn turn(&self, id: SessionId) -> CommandResult<Arc<tokio::sync::Mutex<()>>> {
        let mut table = lock(&self.table);
        let session = table.get_mut(&id).ok_or_else(|| ended_session(id))?;
        Ok(Arc::clone(session.turn.get_or_insert_default()))
    }

    /// Replaces the newest number by the result of `next`, unless that is `None`. The transaction that was open is rolled back and
    /// returned.
    pub(crate) fn advance(
        &self,
        id: SessionId,
        next: impl FnOnce(Option<&LatestNumber>) -> CommandResult<Option<LatestNumber>>,
    ) -> CommandResult<Option<Arc<OpenTransaction>>> {
        let mut table = lock(&self.table);
        let session = table.get_mut(&id).ok_or_else(|| ended_session(id))?;
        let Some(next) = next(session.latest.as_deref())? else { return Ok(None) };
        let before = session.latest.replace(Box::new(next));
        session.is_ending = false;
        drop(table);
        // This is outside of the lock because it may free a snapshot.
        Ok(abort(before))
    }

    pub(crate) fn snapshot(&self, id: SessionId) -> Option<Arc<SnapshotRead>> {
        lock(&self.table).get(&id)?.snapshot.clone()
    }

    /// Replaces the snapshot that a session reads. Open cursors on the previous one continue to read it.
    pub(crate) fn keep_snapshot(&self, id: SessionId, read: Arc<SnapshotRead>) -> CommandResult<()> {
        let mut table = lock(&self.table);
        let Some(session) = table.get_mut(&id) else {
            drop(table);
            release(Some(read));
            return Err(ended_session(id));
        };
        let before = session.snapshot.replace(read);
        drop(table);
        // The previous snapshot ends with its last cursor.
        drop(before);
        Ok(())
    }

    /// Marks a transaction as being committed. If it is neither open nor in doubt, the commit must not begin, and the error is the
    /// session's newest number, or `None` if the session has ended.
    pub(crate) fn begin_commit(&self, transaction: &Arc<OpenTransaction>) -> Result<(), Option<LatestNumber>> {
        let mut table = lock(&self.table);
        let latest = table.get_mut(&transaction.session).and_then(|session| session.latest.as_deref_mut());
        match latest {
            Some(latest) if latest.is(transaction) => {
                latest.state = NumberState::Committing(Arc::clone(transaction));
                Ok(())
            }
            latest => Err(latest.cloned()),
        }
    }

    /// Changes the state of a transaction, unless the session has a newer one. Ends the session if it waited for this.
    pub(crate) fn set_state(&self, transaction: &Arc<OpenTransaction>, state: NumberState) {
        let mut table = lock(&self.table);
        let Some(session) = table.get_mut(&transaction.session) else { return };
        let Some(latest) = session.latest.as_deref_mut().filter(|latest| latest.is(transaction)) else { return };
        latest.state = state;
        if session.is_ending {
            let ended = table.remove(&transaction.session);
            drop(table);
            ended.into_iter().for_each(Session::close);
        }
    }

    /// Ends a session and rolls back its open transaction. Returns `false` if there was no such session.
    pub(crate) fn end(&self, id: SessionId) -> bool {
        let mut table = lock(&self.table);
        let Some(session) = table.get_mut(&id) else { return false };
        let ended = if session.can_end_now() { table.remove(&id) } else { None };
        drop(table);
        ended.into_iter().for_each(Session::close);
        true
    }

    /// Ends the sessions that match, and returns them.
    pub(crate) fn end_where(&self, meant: impl Fn(&SessionId) -> bool) -> Vec<SessionId> {
        self.end_those(|id, _| meant(id))
    }

    /// Ends all sessions, and returns them.
    pub(crate) fn end_all(&self) -> Vec<SessionId> {
        self.end_those(|_, _| true)
    }

    /// Ends the sessions without a command for the time-out, and returns them.
    pub(crate) fn expire(&self, now: Duration) -> Vec<SessionId> {
        self.end_those(|_, session| now.saturating_sub(session.last_use) >= SESSION_TIMEOUT)
    }

    fn end_those(&self, meant: impl Fn(&SessionId, &Session) -> bool) -> Vec<SessionId> {
        let mut ids = Vec::new();
        let removed: Vec<_> = lock(&self.table)
            .extract_if(|id, session| {
                let meant = meant(id, session);
                ids.extend(meant.then_some(*id));
                meant && session.can_end_now()
            })
            .collect();
        removed.into_iter().for_each(|(_, session)| session.close());
        ids
    }

    /// Rolls back the transactions that have exceeded their lifetime, and returns them.
    pub(crate) fn expire_transactions(&self) -> Vec<Arc<OpenTransaction>> {
        let mut expired = Vec::new();
        let mut snapshots = Vec::new();
        for session in lock(&self.table).values_mut() {
            snapshots.extend(session.snapshot.take_if(|read| read.transaction.is_expired()));
            let Some(latest) = session.latest.as_deref_mut() else { continue };
            if let NumberState::Open(open) = &latest.state
                && open.transaction.is_expired()
            {
                expired.push(Arc::clone(open));
                latest.state = NumberState::Aborted { by_client: false };
            }
        }
        for open in &expired {
            open.transaction.clone().abort();
        }
        snapshots.into_iter().for_each(|read| release(Some(read)));
        expired
    }

    /// Returns the transactions that are open, being committed or in doubt.
    pub(crate) fn transactions(&self) -> Vec<Arc<OpenTransaction>> {
        let table = lock(&self.table);
        let open = table.values().filter_map(|session| match &session.latest.as_deref()?.state {
            NumberState::Open(open) | NumberState::Committing(open) | NumberState::InDoubt(open) => {
                Some(Arc::clone(open))
            }
            _ => None,
        });
        open.collect()
    }

    /// Lists each session with the time of its last command, since the clock's start.
    pub(crate) fn list(&self) -> Vec<(SessionId, Duration)> {
        lock(&self.table).iter().map(|(id, session)| (*id, session.last_use)).collect()
    }

    pub(crate) fn len(&self) -> usize {
        lock(&self.table).len()
    }
}

fn ended_session(id: SessionId) -> CommandError {
    CommandError::new(Code::NoSuchSession, format!("session {id} was ended"))
}

fn release(read: Option<Arc<SnapshotRead>>) {
    if let Some(read) = read {
        read.transaction.clone().abort();
    }
}

/// Rolls back the transaction of a number, if it is open, and returns it.
fn abort(latest: Option<Box<LatestNumber>>) -> Option<Arc<OpenTransaction>> {
    let Some(NumberState::Open(open)) = latest.map(|latest| latest.state) else { return None };
    open.transaction.clone().abort();
    Some(open)
}

impl LatestNumber {
    fn is(&self, transaction: &Arc<OpenTransaction>) -> bool {
        match &self.state {
            NumberState::Open(open) | NumberState::Committing(open) | NumberState::InDoubt(open) => {
                Arc::ptr_eq(open, transaction)
            }
            NumberState::Recorded | NumberState::Writes | NumberState::Committed | NumberState::Aborted { .. } => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use handfast_mql::Code;

    use super::Sessions;
    use crate::request::SessionId;

    #[test]
    fn a_session_lives_from_word_to_word() {
        let sessions = Sessions::new(10);
        let (early, late) = (SessionId::of([1; 16]), SessionId::of([2; 16]));
        let minutes = |count: u64| Duration::from_secs(60 * count);
        sessions.touch(early, minutes(0)).unwrap();
        sessions.touch(late, minutes(0)).unwrap();
        sessions.touch(late, minutes(10)).unwrap();
        assert_eq!(sessions.expire(minutes(29)), []);
        assert_eq!(sessions.expire(minutes(30)), [early]);
        assert!(!sessions.end(early));
        assert!(sessions.end(late));
        assert_eq!(sessions.len(), 0);
    }

    #[test]
    fn there_is_a_bound() {
        let sessions = Sessions::new(2);
        let now = Duration::ZERO;
        sessions.touch(SessionId::of([1; 16]), now).unwrap();
        sessions.touch(SessionId::of([2; 16]), now).unwrap();
        assert_eq!(sessions.touch(SessionId::of([3; 16]), now).unwrap_err().code, Code::TooManyLogicalSessions);
        sessions.touch(SessionId::of([1; 16]), now).unwrap();
        sessions.end(SessionId::of([1; 16]));
        sessions.touch(SessionId::of([3; 16]), now).unwrap();
    }
}
