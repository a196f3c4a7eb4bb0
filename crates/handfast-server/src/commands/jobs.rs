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
//! ```

pub(super) mod cancel;
pub(super) mod claim;
pub(super) mod complete;
pub(super) mod enqueue;
pub(super) mod fail;
pub(super) mod release;
pub(super) mod renew;

use bson::oid::ObjectId;
use bson::{Bson, RawBson, RawBsonRef};
use handfast_mql::Code;
use handfast_patterns::JobQueue;
use handfast_patterns::job_queue::{ClaimState, Job};

use super::{Access, Call, Command, InTransaction, Properties, Running};
use crate::arguments::Arguments;
use crate::auth::guard::Needs;
use crate::auth::role::Action;
use crate::error::{CommandError, CommandResult};
use crate::job_queues::JobQueues;
use crate::reply::Answer;
use crate::writer::Writer;

/// Opening a queue creates its indexes.
const NEEDS: Needs = Needs::Collection(&[Action::Find, Action::Write, Action::Structure]);

/// The properties of the commands that can be part of a transaction.
const IN_TRANSACTION: Properties = Properties { in_transaction: InTransaction::Allowed, ..Properties::DEFAULT };

/// Returns a command of job queues.
const fn command(
    name: &'static str,
    help: &'static str,
    properties: Properties,
    run: for<'a> fn(&'a Call<'a>) -> Running<'a>,
) -> Command {
    Command {
        name,
        aliases: &[],
        help,
        access: Access::Write,
        needs: NEEDS,
        admin_only: false,
        confidential: false,
        versioned: false,
        properties,
        run,
    }
}

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

    /// Returns the queue, and the job if the claim still holds or was the last one.
    async fn job(&self, call: &Call<'_>) -> CommandResult<(JobQueue, Option<Job>)> {
        let queue = JobQueues::of(call).await?;
        let job = self.of(&queue).await?;
        Ok((queue, job))
    }

    async fn of(&self, queue: &JobQueue) -> CommandResult<Option<Job>> {
        Ok(queue.claimed(self.id.clone(), self.claim).await?)
    }
}

/// Returns the fields of `job`, a document. (pymongo sends an `_id` of the command itself before the name of the command.)
fn job_argument<'a>(arguments: &mut Arguments<'a>) -> CommandResult<Arguments<'a>> {
    let job = arguments.document("job")?;
    Arguments::of_document("job", arguments.required("job", job)?)
}

fn required_id(job: &mut Arguments<'_>) -> CommandResult<Bson> {
    let id = job.any_or_null("_id")?;
    owned(job.required("_id", id)?)
}

fn owned(value: RawBsonRef<'_>) -> CommandResult<Bson> {
    Ok(Bson::try_from(value)?)
}

/// Reads the text of an error or a name that a command requires.
fn required_text<'a>(arguments: &mut Arguments<'a>, name: &'static str) -> CommandResult<&'a str> {
    let text = arguments.text(name)?;
    arguments.required(name, text)
}

/// Writes a value of any type.
fn put_value(writer: &mut Writer, name: &str, value: &Bson) -> CommandResult<()> {
    let raw = RawBson::try_from(value.clone())?;
    writer.put_any(name, raw.as_raw_bson_ref());
    Ok(())
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
