//! The requests that reach the server later than they arrived: delayed ones, and copies.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bson::RawBsonRef;
use tokio::io::AsyncWriteExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use super::remark::Remark;
use super::stream::send;
use super::{Shared, recorder};
use crate::frame::{ReadError, read};

/// The bytes of all copies that wait to be sent: one request of the largest size, or many of the usual ones.
const COPY_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The late requests of a proxy.
pub(super) struct LateRequests {
    released: watch::Sender<bool>,
    unanswered: watch::Sender<usize>,
    copy_bytes: Arc<Semaphore>,
    /// Copies that did not reach the server.
    failed: AtomicU64,
}

/// A request that is late, until this is dropped because the server has answered it.
pub(super) struct LateRequest(Arc<LateRequests>);

impl Default for LateRequests {
    fn default() -> Self {
        LateRequests {
            released: watch::Sender::new(false),
            unanswered: watch::Sender::new(0),
            copy_bytes: Arc::new(Semaphore::new(COPY_BYTES_MAX)),
            failed: AtomicU64::new(0),
        }
    }
}

impl LateRequests {
    /// Notes that a request is late.
    pub(super) fn begin(self: &Arc<Self>) -> LateRequest {
        self.unanswered.send_modify(|count| *count += 1);
        LateRequest(Arc::clone(self))
    }

    /// Returns the memory of a copy, if there is enough.
    pub(super) fn copy_memory(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.copy_bytes).try_acquire_many_owned(u32::try_from(bytes).ok()?).ok()
    }

    /// Notes that a copy did not reach the server.
    pub(super) fn fail(&self) {
        self.failed.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of requests that are late, and of copies that did not reach the server.
    pub(super) fn undelivered(&self) -> u64 {
        self.failed.load(Ordering::Relaxed) + *self.unanswered.borrow() as u64
    }

    /// Sends what is late at once, and waits until it is answered.
    pub(super) async fn deliver(&self) {
        self.released.send_replace(true);
        // The sender is here, so that it does not fail.
        let _ = self.unanswered.subscribe().wait_for(|count| *count == 0).await;
    }
}

impl LateRequest {
    /// Waits for this time, or until all late requests are to be sent.
    pub(super) async fn wait(&self, time: Option<Duration>) {
        let mut released = self.0.released.subscribe();
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
}

impl Drop for LateRequest {
    fn drop(&mut self) {
        self.0.unanswered.send_modify(|count| *count -= 1);
    }
}

/// The code of the error with which a server refuses a request on a connection without a login: Unauthorized.
const UNAUTHORIZED: i32 = 13;

/// Sends a request on a connection of its own, and waits until the server has executed it.
pub(super) async fn send_copy(bytes: &[u8], has_reply: bool, shared: &Shared) -> Result<(), ReadError> {
    let (mut from_server, mut to_server) = shared.server.connect().await?;
    send(&mut to_server, bytes).await?;
    if !has_reply {
        // The server closes the connection when it has read all of it.
        to_server.shutdown().await?;
    }
    if let Some(frame) = read(&mut from_server, &shared.limits).await?
        && let Some(reply) = recorder::document_of(&frame.bytes, &shared.limits)
        && reply.get("code").ok().flatten().and_then(RawBsonRef::as_i32) == Some(UNAUTHORIZED)
    {
        shared.late.fail();
        shared.remarks.tell(Remark::CopyNeedsLogin);
    }
    Ok(())
}
