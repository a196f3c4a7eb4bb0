//! Requests to a server that does not answer are refused at once, so that none of them waits for it in vain, while one probe at a time asks it.
//!
//! ```text
//!            a request, or an attempt to connect, has no answer in time
//!   closed ------------------------------------------------------------> open
//!          <------------------------------------------------------------
//!            an attempt to connect is answered, or refused
//! ```
//!
//! The probe is an attempt to connect, which a request begins that finds the breaker open and no attempt under way. A server that refuses connections leaves
//! it closed: a refusal comes at once, and the first request after the server has started again succeeds.
//!
//! A request may wait on a connection that was given up, while the server has answered on another one since. So each connection has a number, and only a request on the newest one opens the
//! breaker.
//!
//! Source: the pattern *circuit breaker* (M. Nygard, *Release It!*), with a probe beside the requests in the place of one of them.

use std::sync::{Mutex, MutexGuard, PoisonError};

use handfast_store::Applied;

use super::failure::unavailable;
use crate::Error;

/// The circuit breaker of a server.
#[derive(Debug, Default)]
pub(super) struct CircuitBreaker(Mutex<State>);

/// The number of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ConnectionNumber(u64);

#[derive(Debug, Default)]
struct State {
    is_open: bool,
    /// The number of the newest connection.
    newest: ConnectionNumber,
}

impl CircuitBreaker {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_open(&self) -> bool {
        self.state().is_open
    }

    /// Records that the server has not answered an attempt to connect.
    pub(super) fn open(&self, server: &str) {
        self.state().open(server);
    }

    /// Records that the server has not answered a request on a connection, unless there is a newer one.
    pub(super) fn open_by(&self, connection: ConnectionNumber, server: &str) {
        let mut state = self.state();
        if state.newest == connection {
            state.open(server);
        }
    }

    /// Records that the server has answered an attempt to connect, and returns the number of the connection.
    pub(super) fn close(&self, server: &str) -> ConnectionNumber {
        let mut state = self.state();
        if std::mem::take(&mut state.is_open) {
            tracing::info!(server, "Redis answers again");
        }
        state.newest.0 += 1;
        state.newest
    }

    /// Records that the server refuses connections: a request gets an error at once, without the breaker.
    pub(super) fn close_refused(&self) {
        self.state().is_open = false;
    }

    /// Makes the error of a request while the breaker is open.
    pub(super) fn refusal(server: &str) -> Error {
        unavailable(format!("{server} does not answer, and requests are refused until it does"), Applied::No)
    }
}

impl State {
    fn open(&mut self, server: &str) {
        if !std::mem::replace(&mut self.is_open, true) {
            tracing::warn!(server, "Redis does not answer: requests are refused at once until it does");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::CircuitBreaker;

    #[test]
    fn a_request_on_an_earlier_connection_opens_nothing() {
        let breaker = CircuitBreaker::default();
        let first = breaker.close("redis");
        breaker.open_by(first, "redis");
        assert!(breaker.is_open());
        let second = breaker.close("redis");
        breaker.open_by(first, "redis");
        assert!(!breaker.is_open(), "the server has answered since");
        breaker.open_by(second, "redis");
        assert!(breaker.is_open());
    }
}
