//! The context that a handler receives with its details.

use bson::Bson;

use super::{ClaimState, Job, JobQueue};
use crate::{CancellationToken, Change, ExactlyOnce, Result, UpdateOutcome};

/// The job that a handler works on.
#[derive(Clone)]
pub struct JobContext {
    pub(super) queue: JobQueue,
    pub(super) job: Job,
    pub(super) stop: CancellationToken,
}

impl JobContext {
    /// Returns the job as it was claimed.
    pub fn job(&self) -> &Job {
        &self.job
    }

    /// Returns the id of the job, which serves as an idempotency token: it is the same whenever this job is done
    /// again.
    pub fn id(&self) -> &Bson {
        &self.job.id
    }

    /// Returns a token that is cancelled when the worker is to stop: a handler that takes long may return early with
    /// [`JobError::Snooze`](super::JobError::Snooze).
    pub fn stop(&self) -> &CancellationToken {
        &self.stop
    }

    /// Records the progress of the job, and renews the lease.
    pub async fn progress(&self, progress: impl Into<Bson>) -> Result<ClaimState> {
        self.queue.renew(&self.job, Some(progress.into())).await
    }

    /// Changes a document as a step of this job, once for each name of a step, however often and by however many
    /// workers the job is done. A worker that has lost the job unknowingly cannot change documents that a later holder
    /// has written to ([`UpdateOutcome::Fenced`]), and should stop. A step that was applied before
    /// ([`UpdateOutcome::AlreadyApplied`]) writes nothing, and so does not keep earlier holders from the document;
    /// [`JobContext::fence`] does.
    ///
    /// # Errors
    /// [`Error::Store`](crate::Error::Store) if the store fails, [`Error::Contended`](crate::Error::Contended) if
    /// other processes insert and delete the document at each attempt: call again with the same arguments.
    pub async fn guard(
        &self,
        step: &str,
        documents: &ExactlyOnce,
        id: impl Into<Bson>,
        change: &Change,
    ) -> Result<UpdateOutcome> {
        documents.apply_fenced(self.job.fence(), step, id, change).await
    }

    /// Keeps earlier holders of this job from a document. Where a change is computed from what the document says, call
    /// this before reading the document.
    ///
    /// # Errors
    /// [`Error::Store`](crate::Error::Store) if the store fails, [`Error::Contended`](crate::Error::Contended) if
    /// other processes insert and delete the document at each attempt: call again.
    pub async fn fence(&self, documents: &ExactlyOnce, id: impl Into<Bson>) -> Result<UpdateOutcome> {
        documents.fence(self.job.fence(), id).await
    }
}
