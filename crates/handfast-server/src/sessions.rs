//! The sessions that clients speak of.
//!
//! A session is an id that a client makes up and names in its commands. The server remembers when it was named last,
//! forgets it after half an hour without a word, and closes what belongs to it when it ends. Nothing else hangs on a
//! session yet; transactions and retryable writes will.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use handfast_mql::Code;

use crate::error::{CommandError, Outcome};
use crate::lock::lock;
use crate::request::SessionId;

/// What `logicalSessionTimeoutMinutes` says.
pub(crate) const SESSION_TIMEOUT_MINUTES: i32 = 30;
const SESSION_TIMEOUT: Duration = Duration::from_secs(30 * 60);
/// Sessions remembered at once, as in MongoDB's `maxSessions`: 24 bytes each.
pub(crate) const SESSIONS_MAX: usize = 1_000_000;

/// When each session was named last, as time since the clock's start.
pub(crate) struct Sessions {
    last_use: Mutex<HashMap<SessionId, Duration>>,
    max: usize,
}

impl Sessions {
    pub(crate) fn new(max: usize) -> Self {
        Sessions { last_use: Mutex::new(HashMap::new()), max }
    }

    /// Notes that a session was named; it begins with that.
    pub(crate) fn touch(&self, id: SessionId, now: Duration) -> Outcome<()> {
        let mut last_use = lock(&self.last_use);
        if last_use.len() >= self.max && !last_use.contains_key(&id) {
            return Err(CommandError::new(
                Code::TooManyLogicalSessions,
                format!(
                    "Unable to add session ID {id} into the cache because the number of active sessions is too high"
                ),
            ));
        }
        last_use.insert(id, now);
        Ok(())
    }

    /// Ends a session; `false` if there was none.
    pub(crate) fn end(&self, id: SessionId) -> bool {
        lock(&self.last_use).remove(&id).is_some()
    }

    /// Ends all sessions, and returns them.
    pub(crate) fn end_all(&self) -> Vec<SessionId> {
        lock(&self.last_use).drain().map(|(id, _)| id).collect()
    }

    /// Forgets those that have not been named for too long, and returns them.
    pub(crate) fn expire(&self, now: Duration) -> Vec<SessionId> {
        lock(&self.last_use)
            .extract_if(|_, last| now.saturating_sub(*last) >= SESSION_TIMEOUT)
            .map(|(id, _)| id)
            .collect()
    }

    pub(crate) fn len(&self) -> usize {
        lock(&self.last_use).len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_lives_from_word_to_word() {
        let sessions = Sessions::new(10);
        let (early, late) = (SessionId([1; 16]), SessionId([2; 16]));
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
        sessions.touch(SessionId([1; 16]), now).unwrap();
        sessions.touch(SessionId([2; 16]), now).unwrap();
        assert_eq!(sessions.touch(SessionId([3; 16]), now).unwrap_err().code, Code::TooManyLogicalSessions);
        sessions.touch(SessionId([1; 16]), now).unwrap();
        sessions.end(SessionId([1; 16]));
        sessions.touch(SessionId([3; 16]), now).unwrap();
    }
}
