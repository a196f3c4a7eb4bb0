//! The commands of job queues: the steps of the pattern, for programs in any language.
//!
//! ```text
//! handfastEnqueueJob      {_id, inserted}      a job exists if and only if its transaction commits
//! handfastClaimJobs       {jobs: [{_id, claim, type, details, ..}], leaseMillis}
//! handfastRenewJob        {claimState}         a worker renews its claim three times in a lease
//! handfastCompleteJob     {claimState}         held, cancelRequested or lost; in a transaction, the job is done if and only if that commits
//! handfastFailJob         {claimState}
//! handfastReleaseJob      {claimState}
//! handfastCancelJob       {canceled}
//! handfastRetryJob        {retried}            a job that was given up, with all its attempts again
//! handfastPauseQueue      {}                   no job is claimed until handfastResumeQueue
//! handfastQueueDepth      {due, scheduled, processing, silent, failed, canceled, done, foreign, paused}
//! ```

pub(super) mod cancel;
pub(super) mod claim;
pub(super) mod complete;
pub(super) mod depth;
pub(super) mod enqueue;
pub(super) mod fail;
pub(super) mod pause;
pub(super) mod release;
pub(super) mod renew;
pub(super) mod retry;

use bson::Bson;
use bson::oid::ObjectId;
use handfast_mql::Code;
use handfast_patterns::JobQueue;
use handfast_patterns::job_queue::{ClaimState, Job, JobState};

use super::Call;
use super::pattern_steps::required_id;
use crate::arguments::Arguments;
use crate::error::{CommandError, CommandResult};
use crate::patterns;
use crate::reply::Answer;
use crate::writer::Writer;

/// The claim that a worker's command is about.
struct Claim {
    id: Bson,
    claim: ObjectId,
}

impl Claim {
    /// Reads `job`, as `handfastClaimJobs` returned it: its `_id` and its `claim`.
    fn read(arguments: &mut Arguments<'_>) -> CommandResult<Self> {
        let mut job = job_argument(arguments)?;
        let id = required_id(&mut job)?;
        let claim = job.any("claim")?;
        let claim = job.required("claim", claim)?;
        let Some(claim) = claim.as_object_id() else {
            let text = "job.claim must be the ObjectId that handfastClaimJobs returned with the job";
            return Err(CommandError::new(Code::TypeMismatch, text));
        };
        Ok(Claim { id, claim })
    }

    /// Returns the queue and the job; `None` if the claim is lost.
    async fn held(&self, call: &Call<'_>) -> CommandResult<Option<(JobQueue, Job)>> {
        let queue: JobQueue = patterns::of(call).await?;
        let job = self.of(&queue).await?;
        Ok(job.map(|job| (queue, job)))
    }

    /// Returns the state of the job outside of the transaction of the command; `None` if the claim is lost.
    async fn state_outside(&self, call: &Call<'_>) -> CommandResult<Option<JobState>> {
        Ok(self.of(&patterns::outside(call).await?).await?.map(|job| job.state))
    }

    /// Returns the job if the claim still holds or was the last one.
    async fn of(&self, queue: &JobQueue) -> CommandResult<Option<Job>> {
        Ok(queue.claimed(self.id.clone(), self.claim).await?)
    }
}

/// Returns the fields of `job`.
fn job_argument<'a>(arguments: &mut Arguments<'a>) -> CommandResult<Arguments<'a>> {
    let job = arguments.document("job")?;
    Arguments::of_document("job", arguments.required("job", job)?)
}

/// Writes the reply to a worker: whether it still has the job.
fn claim_answer(state: ClaimState) -> Answer {
    let state = match state {
        ClaimState::Held => "held",
        ClaimState::CancelRequested => "cancelRequested",
        ClaimState::Lost => "lost",
    };
    let mut writer = Writer::new();
    writer.put("claimState", state);
    writer.into()
}

#[cfg(test)]
mod tests;
