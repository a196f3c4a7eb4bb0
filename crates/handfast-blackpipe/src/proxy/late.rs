//! The requests that reach the server later than they arrived: delayed ones, and copies.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bson::RawBsonRef;
use tokio::io::AsyncWriteExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use super::stream::send;
use super::warning::Warning;
use super::{Shared, recorder};
use crate::ObservedOperation;
use crate::frame::{ReadError, read};

/// The bytes of all copies that wait to be sent: one request of the largest size, or many of the usual ones.
const COPY_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The unacknowledged writes of a connection that are late together and are named if they fail. Further ones are counted alone.
const NAMED_MAX: usize = 1_000;

/// A request that its fault sends later, and that the server did not answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UndeliveredRequest {
    /// The operation, with its fault.
    pub operation: ObservedOperation,
    /// The reason, as a part of a sentence.
    pub reason: String,
}

/// A function that is called with each request that is not delivered.
type UndeliveredLog = Box<dyn FnMut(&UndeliveredRequest) + Send>;

/// The late requests of a proxy.
pub(super) struct LateRequests {
    released: watch::Sender<bool>,
    counts: watch::Sender<Counts>,
    copy_bytes: Arc<Semaphore>,
    log: Mutex<Option<UndeliveredLog>>,
}

#[derive(Default)]
struct Counts {
    /// Requests that are late.
    late: u64,
    /// Requests that are not late any more, and that the server has not executed as far as the proxy knows.
    failed: u64,
}

/// Requests that are late until this is dropped. They count as failed afterwards, unless the server has answered them.
pub(super) struct LateRequest {
    requests: Arc<LateRequests>,
    /// 1, or more if others have joined.
    count: u64,
    /// The operations, up to [`NAMED_MAX`].
    operations: Vec<ObservedOperation>,
    /// The reason why the server has not answered; `None` if it has.
    failure: Option<String>,
}

impl Default for LateRequests {
    fn default() -> Self {
        LateRequests {
            released: watch::Sender::new(false),
            counts: watch::Sender::default(),
            copy_bytes: Arc::new(Semaphore::new(COPY_BYTES_MAX)),
            log: Mutex::default(),
        }
    }
}

impl LateRequests {
    /// Notes that a request is late.
    pub(super) fn begin(self: &Arc<Self>, operation: &ObservedOperation) -> LateRequest {
        self.counts.send_modify(|counts| counts.late += 1);
        let failure = Some("its connection ended before the server had answered".to_owned());
        LateRequest { requests: Arc::clone(self), count: 1, operations: vec![operation.clone()], failure }
    }

    /// Calls a function with each request that is not delivered.
    pub(super) fn set_log(&self, log: UndeliveredLog) {
        *self.log.lock().unwrap_or_else(PoisonError::into_inner) = Some(log);
    }

    fn log(&self, undelivered: &UndeliveredRequest) {
        if let Some(log) = &mut *self.log.lock().unwrap_or_else(PoisonError::into_inner) {
            log(undelivered);
        }
    }

    /// Returns the memory of a copy, if there is enough.
    pub(super) fn copy_memory(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.copy_bytes).try_acquire_many_owned(u32::try_from(bytes).ok()?).ok()
    }

    /// Returns the number of requests that are late, and of those that failed.
    pub(super) fn undelivered(&self) -> u64 {
        let counts = self.counts.borrow();
        counts.late + counts.failed
    }

    /// Sends what is late at once, and waits until it is answered or has failed.
    pub(super) async fn deliver(&self) {
        self.released.send_replace(true);
        // The sender is here, so that it does not fail.
        let _ = self.counts.subscribe().wait_for(|counts| counts.late == 0).await;
    }
}

impl LateRequest {
    /// Waits for this time, or until all late requests are to be sent.
    pub(super) async fn wait(&self, time: Option<Duration>) {
        let mut released = self.requests.released.subscribe();
        let over = async {
            match time {
                Some(time) => tokio::time::sleep(time).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = over => {}
            _ = released.wait_for(|released| *released) => {}
        }
    }

    /// Notes that the server has answered. The request is late until this is dropped, because the client may not have its reply yet.
    pub(super) fn set_answered(&mut self) {
        self.failure = None;
    }

    /// Notes why the server will not answer.
    pub(super) fn set_failed(&mut self, reason: impl Into<String>) {
        self.failure = Some(reason.into());
    }

    /// Adds a request that the server answers before this one.
    pub(super) fn join(&mut self, mut earlier: LateRequest) {
        self.count += std::mem::take(&mut earlier.count);
        let mut operations = std::mem::take(&mut earlier.operations);
        operations.append(&mut self.operations);
        operations.truncate(NAMED_MAX);
        self.operations = operations;
    }
}

impl Drop for LateRequest {
    fn drop(&mut self) {
        let failed = if self.failure.is_some() { self.count } else { 0 };
        if let Some(reason) = self.failure.take() {
            for operation in self.operations.drain(..) {
                self.requests.log(&UndeliveredRequest { operation, reason: reason.clone() });
            }
        }
        // Whoever waits for the last late request finds all of them in the log.
        self.requests.counts.send_modify(|counts| {
            counts.late -= self.count;
            counts.failed += failed;
        });
    }
}

/// The code of the error with which a server refuses a request on a connection without a login: Unauthorized.
const UNAUTHORIZED: i32 = 13;

/// Sends a request on a connection of its own. Returns whether the server has executed it.
///
/// A server that refuses a request without a reply, because it asks for a login, says nothing: such a request counts as executed.
pub(super) async fn send_copy(bytes: &[u8], has_reply: bool, shared: &Shared) -> Result<bool, ReadError> {
    let (mut from_server, mut to_server) = shared.server.connect().await?;
    send(&mut to_server, bytes).await?;
    if !has_reply {
        // The server closes the connection when it has read all of it.
        to_server.shutdown().await?;
    }
    let Some(frame) = read(&mut from_server, &shared.limits).await? else {
        return if has_reply { Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()) } else { Ok(true) };
    };
    let reply = recorder::document_of(&frame.bytes, &shared.limits);
    let code = reply.as_ref().and_then(|reply| reply.get("code").ok().flatten()).and_then(RawBsonRef::as_i32);
    let needs_login = code == Some(UNAUTHORIZED);
    if needs_login {
        shared.warnings.report(Warning::CopyNeedsLogin);
    }
    Ok(!needs_login)
}
