//! The open cursors of clients, which hold the results that did not fit into the first reply.
//!
//! A cursor is taken out of the table while a `getMore` works on it ([`Cursors::take`]) and put back after it; a second
//! `getMore` meanwhile is refused. A cursor that is killed meanwhile is dropped instead of being put back. A cursor without a
//! `getMore` for ten minutes is closed, unless its client asked for no time-out; then it ends with its session.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use handfast_mql::Code;
use handfast_store::Random;
use tokio::sync::Notify;

use crate::auth::user::UserId;
use crate::batches::Batches;
use crate::changes::Changes;
use crate::error::{CommandError, CommandResult};
use crate::lock::lock;
use crate::request::SessionId;

/// Bounds on cursors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CursorLimits {
    /// A cursor without a `getMore` for this long is closed (MongoDB: ten minutes).
    pub idle_timeout: Duration,
    /// The number of cursors that may be open at once. Each may hold a snapshot.
    pub open_max: usize,
    /// The number of cursors that one connection may have open.
    pub per_connection_max: usize,
}

impl Default for CursorLimits {
    fn default() -> Self {
        CursorLimits { idle_timeout: Duration::from_secs(600), open_max: 10_000, per_connection_max: 1_000 }
    }
}

/// The description of a cursor, without its results.
#[derive(Clone, Debug)]
pub(crate) struct Description {
    /// `database.collection`, as the replies show it.
    pub(crate) namespace: String,
    /// The session that it belongs to.
    pub(crate) session: Option<SessionId>,
    /// The number of the transaction that it reads in.
    pub(crate) transaction: Option<i64>,
    /// The connection that opened it.
    pub(crate) connection: u64,
    /// The user who opened it.
    pub(crate) user: Option<UserId>,
    /// Whether its client asked for no time-out.
    pub(crate) no_timeout: bool,
    /// The rest of the `maxTimeMS` of the command that opened it.
    pub(crate) time_left: Option<Duration>,
}

/// The results of a cursor.
pub(crate) enum Results {
    Documents(Batches),
    /// A change stream, which may have new results at any time.
    Changes(Changes),
}

impl From<Batches> for Results {
    fn from(batches: Batches) -> Self {
        Results::Documents(batches)
    }
}

impl From<Changes> for Results {
    fn from(changes: Changes) -> Self {
        Results::Changes(changes)
    }
}

enum State {
    /// The cursor is in the table since this moment.
    Idle(Results, Duration),
    /// A `getMore` works on it.
    Taken,
}

struct Entry {
    description: Description,
    is_change_stream: bool,
    state: State,
    /// Notified when the cursor is killed while a `getMore` works on it.
    killed: Arc<Notify>,
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.killed.notify_one();
    }
}

/// A cursor that a `getMore` works on.
pub(crate) struct TakenCursor {
    pub(crate) id: i64,
    pub(crate) description: Description,
    pub(crate) results: Results,
    /// Notified when the cursor is killed.
    pub(crate) killed: Arc<Notify>,
    guard: Guard,
}

/// Removes the entry of a cursor that is not put back, because its command failed or was dropped.
struct Guard {
    id: i64,
    table: Arc<Table>,
    armed: bool,
}

impl Drop for Guard {
    fn drop(&mut self) {
        if self.armed {
            lock(&self.table.entries).remove(&self.id);
        }
    }
}

struct Table {
    entries: Mutex<HashMap<i64, Entry>>,
}

/// The table of open cursors.
pub(crate) struct Cursors {
    table: Arc<Table>,
    limits: CursorLimits,
    /// The time after which an idle cursor is closed, in milliseconds: that of the limits, until `setParameter` changes it.
    idle_timeout_millis: AtomicU64,
    random: Arc<dyn Random>,
    opened: AtomicU64,
    timed_out: AtomicU64,
}

/// A cursor on which no `getMore` works.
pub(crate) struct IdleCursor {
    pub(crate) description: Description,
    pub(crate) is_change_stream: bool,
    /// The end of the command that used it last, since the clock's start.
    pub(crate) since: Duration,
}

/// The counts of cursors for `serverStatus`.
pub(crate) struct CursorCounts {
    pub(crate) open: u64,
    pub(crate) no_timeout: u64,
    pub(crate) pinned: u64,
    pub(crate) opened: u64,
    pub(crate) timed_out: u64,
}

impl Cursors {
    pub(crate) fn new(limits: CursorLimits, random: Arc<dyn Random>) -> Self {
        let table = Arc::new(Table { entries: Mutex::new(HashMap::new()) });
        let idle_timeout_millis = AtomicU64::new(u64::try_from(limits.idle_timeout.as_millis()).unwrap_or(u64::MAX));
        Cursors { table, limits, idle_timeout_millis, random, opened: AtomicU64::new(0), timed_out: AtomicU64::new(0) }
    }

    /// Returns the time after which an idle cursor is closed, in milliseconds.
    pub(crate) fn idle_timeout_millis(&self) -> u64 {
        self.idle_timeout_millis.load(Ordering::Relaxed)
    }

    /// Changes this time until the server stops.
    pub(crate) fn set_idle_timeout_millis(&self, millis: u64) {
        self.idle_timeout_millis.store(millis, Ordering::Relaxed);
    }

    /// Keeps a cursor for `getMore`, and returns its id.
    pub(crate) fn open(
        &self,
        results: impl Into<Results>,
        description: Description,
        now: Duration,
    ) -> CommandResult<i64> {
        let results = results.into();
        let mut entries = lock(&self.table.entries);
        if entries.len() >= self.limits.open_max {
            return Err(too_many(format!(
                "there are already {} open cursors: close some, or raise max-cursors",
                entries.len()
            )));
        }
        let connection = description.connection;
        let own = entries.values().filter(|entry| entry.description.connection == connection).count();
        if own >= self.limits.per_connection_max {
            let text = format!(
                "this connection already has {own} open cursors: close some, or raise max-cursors-per-connection"
            );
            return Err(too_many(text));
        }
        let id = loop {
            // The id is positive, as some clients print it, and random, so that no client can guess the cursor of another one.
            let id = i64::try_from(self.random.next_u64() >> 1).unwrap_or_default();
            if id != 0 && !entries.contains_key(&id) {
                break id;
            }
        };
        let is_change_stream = matches!(results, Results::Changes(_));
        let (state, killed) = (State::Idle(results, now), Arc::default());
        entries.insert(id, Entry { description, is_change_stream, state, killed });
        self.opened.fetch_add(1, Ordering::Relaxed);
        Ok(id)
    }

    /// Takes a cursor to work on it.
    pub(crate) fn take(
        &self,
        id: i64,
        namespace: &str,
        session: Option<SessionId>,
        transaction: Option<i64>,
        user: Option<UserId>,
    ) -> CommandResult<TakenCursor> {
        let mut entries = lock(&self.table.entries);
        let entry = entries.get_mut(&id).ok_or_else(|| not_found(id))?;
        if entry.description.user != user {
            let text = format!("cursor id {id} was not created by the authenticated user");
            return Err(CommandError::new(Code::Unauthorized, text));
        }
        if entry.description.namespace != namespace {
            let text = format!(
                "Requested getMore on namespace '{namespace}', but cursor belongs to a different namespace {}",
                entry.description.namespace
            );
            return Err(CommandError::new(Code::Unauthorized, text));
        }
        check_session(id, entry.description.session, session)?;
        check_transaction(id, entry.description.transaction, transaction)?;
        match std::mem::replace(&mut entry.state, State::Taken) {
            State::Idle(results, _) => {
                let killed = Arc::clone(&entry.killed);
                let guard = Guard { id, table: Arc::clone(&self.table), armed: true };
                Ok(TakenCursor { id, description: entry.description.clone(), results, killed, guard })
            }
            State::Taken => Err(CommandError::new(Code::CursorInUse, format!("cursor id {id} is already in use"))),
        }
    }

    /// Puts a cursor back, or drops it if it was killed meanwhile. Returns whether it is still open.
    pub(crate) fn put_back(&self, mut taken: TakenCursor, now: Duration) -> bool {
        taken.guard.armed = false;
        match lock(&self.table.entries).get_mut(&taken.id) {
            Some(entry) => {
                entry.description = taken.description;
                entry.state = State::Idle(taken.results, now);
                true
            }
            None => false,
        }
    }

    /// Returns whether a cursor is open and is a change stream.
    pub(crate) fn is_change_stream(&self, id: i64) -> bool {
        lock(&self.table.entries).get(&id).is_some_and(|entry| entry.is_change_stream)
    }

    /// Closes a cursor. Returns `false` if the user has none of that id and namespace.
    pub(crate) fn kill(&self, id: i64, namespace: &str, user: Option<UserId>) -> bool {
        let mut entries = lock(&self.table.entries);
        let known = entries
            .get(&id)
            .is_some_and(|entry| entry.description.namespace == namespace && entry.description.user == user);
        let removed = if known { entries.remove(&id) } else { None };
        // The cursor is dropped outside of the lock.
        drop(entries);
        removed.is_some()
    }

    /// Closes the cursors of sessions.
    pub(crate) fn kill_of_sessions(&self, ids: &[SessionId]) {
        self.remove_where(|entry| entry.description.session.is_some_and(|session| ids.contains(&session)));
    }

    /// Closes the cursors of a transaction.
    pub(crate) fn kill_of_transaction(&self, session: SessionId, number: i64) {
        self.remove_where(|entry| {
            entry.description.session == Some(session) && entry.description.transaction == Some(number)
        });
    }

    /// Closes the cursors without a `getMore` for the idle timeout.
    pub(crate) fn expire(&self, now: Duration) {
        let timeout = Duration::from_millis(self.idle_timeout_millis());
        let expired = self.remove_where(|entry| match entry.state {
            State::Idle(_, since) => !entry.description.no_timeout && now.saturating_sub(since) >= timeout,
            State::Taken => false,
        });
        self.timed_out.fetch_add(expired, Ordering::Relaxed);
    }

    /// Returns the cursors on which no `getMore` works, with their ids, in the order of the ids.
    pub(crate) fn idle(&self) -> Vec<(i64, IdleCursor)> {
        let entries = lock(&self.table.entries);
        let idle = entries.iter().filter_map(|(id, entry)| match entry.state {
            State::Idle(_, since) => {
                let (description, is_change_stream) = (entry.description.clone(), entry.is_change_stream);
                Some((*id, IdleCursor { description, is_change_stream, since }))
            }
            State::Taken => None,
        });
        let mut idle: Vec<_> = idle.collect();
        idle.sort_unstable_by_key(|(id, _)| *id);
        idle
    }

    fn remove_where(&self, condition: impl Fn(&Entry) -> bool) -> u64 {
        let removed: Vec<_> = lock(&self.table.entries).extract_if(|_, entry| condition(entry)).collect();
        removed.len() as u64
    }

    pub(crate) fn counts(&self) -> CursorCounts {
        let entries = lock(&self.table.entries);
        let count = |condition: fn(&Entry) -> bool| entries.values().filter(|entry| condition(entry)).count() as u64;
        CursorCounts {
            open: entries.len() as u64,
            no_timeout: count(|entry| entry.description.no_timeout),
            pinned: count(|entry| matches!(entry.state, State::Taken)),
            opened: self.opened.load(Ordering::Relaxed),
            timed_out: self.timed_out.load(Ordering::Relaxed),
        }
    }
}

fn too_many(text: String) -> CommandError {
    CommandError::new(Code::OperationFailed, format!("{text}: close some or read them to their end"))
}

pub(crate) fn not_found(id: i64) -> CommandError {
    CommandError::new(Code::CursorNotFound, format!("cursor id {id} not found"))
}

/// Refuses a request of another session than the one that opened the cursor.
fn check_session(id: i64, owner: Option<SessionId>, session: Option<SessionId>) -> CommandResult<()> {
    let (code, text) = match (owner, session) {
        (None, None) => return Ok(()),
        (Some(owner), Some(session)) if owner == session => return Ok(()),
        (None, Some(session)) => (50_736, format!("which was not created in a session, in session {session}")),
        (Some(owner), None) => (50_737, format!("which was created in session {owner}, without an lsid")),
        (Some(owner), Some(session)) => (50_738, format!("which was created in session {owner}, in session {session}")),
    };
    Err(CommandError::new(Code(code), format!("Cannot run getMore on cursor {id}, {text}")))
}

/// Refuses a request of another transaction than the one that opened the cursor.
fn check_transaction(id: i64, owner: Option<i64>, transaction: Option<i64>) -> CommandResult<()> {
    let (code, text) = match (owner, transaction) {
        (None, None) => return Ok(()),
        (Some(owner), Some(transaction)) if owner == transaction => return Ok(()),
        (None, Some(number)) => {
            (50_739, format!("which was not created in a transaction, in transaction with txnNumber {number}"))
        }
        (Some(owner), None) => {
            (50_740, format!("which was created in transaction with txnNumber {owner}, without a txnNumber"))
        }
        (Some(owner), Some(number)) => {
            let text = format!(
                "which was created in transaction with txnNumber {owner}, in transaction with txnNumber {number}"
            );
            (50_741, text)
        }
    };
    Err(CommandError::new(Code(code), format!("Cannot run getMore on cursor {id}, {text}")))
}

#[cfg(test)]
mod tests;
