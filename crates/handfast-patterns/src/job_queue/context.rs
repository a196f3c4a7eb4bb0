//! The context that a handler gets with its details.

use bson::Bson;

use super::{ClaimState, Job, JobQueue};
use crate::{CancellationToken, Change, ExactlyOnce, Outcome, Result};

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
    pub fn id(&self) -> &Bson {
        &self.job.id
    }

    /// Cancelled when the worker is to stop: a handler that takes long may return early with
    /// [`JobError::Snooze`](super::JobError::Snooze).
    pub fn stop(&self) -> &CancellationToken {
        &self.stop
    }

    /// Says how far it is, and renews the lease.
    pub async fn progress(&self, progress: impl Into<Bson>) -> Result<ClaimState> {
        self.queue.renew(&self.job, Some(progress.into())).await
    }

    /// Changes a document as a step of this job: once for each name of a step, however often, and by how many workers, the job is
    /// done. A worker that has lost the job and does not know is kept away from documents that the next one has written to
    /// ([`Outcome::Fenced`]): it should stop. A step that was applied before ([`Outcome::AlreadyApplied`]) writes nothing, and so keeps no
    /// earlier claim from the document: [`JobContext::fence`] does.
    ///
    /// # Errors
    /// As [`ExactlyOnce::apply_fenced`].
    pub async fn guard(
        &self,
        step: &str,
        documents: &ExactlyOnce,
        id: impl Into<Bson>,
        change: &Change,
    ) -> Result<Outcome> {
        documents.apply_fenced(self.job.fence(), step, id, change).await
    }

    /// Keeps workers from a document that had this job before. For a change that is computed from what the document says: fence it
    /// off, read it, change it.
    ///
    /// # Errors
    /// As [`ExactlyOnce::fence`].
    pub async fn fence(&self, documents: &ExactlyOnce, id: impl Into<Bson>) -> Result<Outcome> {
        documents.fence(self.job.fence(), id).await
    }
}
