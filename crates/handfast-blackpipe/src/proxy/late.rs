//! The requests that reach the server later than they arrived: delayed ones, and copies.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

/// The bytes of all copies that wait to be sent: one request of the largest size, or many of the usual ones.
const COPY_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The late requests of a proxy.
pub(super) struct LateRequests {
    released: watch::Sender<bool>,
    unanswered: watch::Sender<usize>,
    copy_bytes: Arc<Semaphore>,
}

/// A request that is late, until this is dropped because the server has answered it.
pub(super) struct LateRequest(Arc<LateRequests>);

impl Default for LateRequests {
    fn default() -> Self {
        LateRequests {
            released: watch::Sender::new(false),
            unanswered: watch::Sender::new(0),
            copy_bytes: Arc::new(Semaphore::new(COPY_BYTES_MAX)),
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
