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
//! Source: the pattern *circuit breaker* (M. Nygard, *Release It!*), with a probe beside the requests in the place of one of them.

use std::sync::atomic::{AtomicBool, Ordering};

use handfast_store::Applied;

use super::failure::unavailable;
use crate::Error;

/// The circuit breaker of a server.
#[derive(Debug, Default)]
pub(super) struct CircuitBreaker {
    is_open: AtomicBool,
}

impl CircuitBreaker {
    pub(super) fn is_open(&self) -> bool {
        self.is_open.load(Ordering::SeqCst)
    }

    /// Records that the server has not answered in time.
    pub(super) fn open(&self, server: &str) {
        if !self.is_open.swap(true, Ordering::SeqCst) {
            tracing::warn!(server, "Redis does not answer: requests are refused at once until it does");
        }
    }

    /// Records that the server has answered.
    pub(super) fn close(&self, server: &str) {
        if self.is_open.swap(false, Ordering::SeqCst) {
            tracing::info!(server, "Redis answers again");
        }
    }

    /// Records that the server refuses connections: a request gets an error at once, without the breaker.
    pub(super) fn close_refused(&self) {
        self.is_open.store(false, Ordering::SeqCst);
    }

    /// Makes the error of a request while the breaker is open.
    pub(super) fn refusal(server: &str) -> Error {
        unavailable(format!("{server} does not answer, and requests are refused until it does"), Applied::No)
    }
}
