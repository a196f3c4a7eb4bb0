//! What a handler gets beside its details.

use bson::Bson;
use bson::oid::ObjectId;

use super::{Held, Job, JobQueue};
use crate::{CancellationToken, Change, ExactlyOnce, Outcome, Result, Token};

/// The job that a handler works on.
#[derive(Clone)]
pub struct JobContext {
    pub(super) queue: JobQueue,
    pub(super) job: Job,
    pub(super) stop: CancellationToken,
}

impl JobContext {
    /// The job as it was claimed.
    pub fn job(&self) -> &Job {
        &self.job
    }

    /// The idempotency token: the same whenever this job is done again.
    pub fn id(&self) -> ObjectId {
        self.job.id
    }

    /// Cancelled when the worker is to stop: a handler that takes long may return early with
    /// [`JobError::Snooze`](super::JobError::Snooze).
    pub fn stop(&self) -> &CancellationToken {
        &self.stop
    }

    /// Says how far it is, and renews the lease.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn progress(&self, progress: impl Into<Bson>) -> Result<Held> {
        self.queue.renew(&self.job, Some(progress.into())).await
    }

    /// Changes a document once for this job, however often, and by how many workers, the job is done: also by one that has
    /// lost it and does not know.
    ///
    /// # Errors
    /// Those of [`ExactlyOnce::apply`].
    pub async fn guard(&self, documents: &ExactlyOnce, id: impl Into<Bson>, change: &Change) -> Result<Outcome> {
        documents.apply(Token(self.job.id), id, change).await
    }
}
