//! `handfastClaimJobs`: gives jobs to a worker.

use bson::{RawBsonRef, RawDocumentBuf};
use handfast_mql::Code;
use handfast_mql::depth::ANSWER_BYTES_MAX;
use handfast_patterns::JobQueue;
use handfast_patterns::job_queue::Job;

use super::super::pattern_steps::{command, invalid, put_value, required_text};
use super::super::{Call, Command, Properties};
use crate::error::{CommandError, CommandResult};
use crate::patterns;
use crate::reply::Answer;
use crate::writer::{Writer, decimal};

/// Limit on the jobs of a claim.
const COUNT_MAX: u64 = 100;
/// Limit on the jobs of silent workers that a claim returns to the queue when it finds no other.
const RECLAIMED_MAX: u32 = 100;

/// The bytes of a reply beside its jobs.
const ENVELOPE_BYTES_MAX: usize = 1024;

pub(crate) const COMMAND: Command =
    command("handfastClaimJobs", "gives jobs to a worker", Properties::DEFAULT, |call| Box::pin(run(call)));

async fn run(call: &Call<'_>) -> CommandResult<Answer> {
    let mut arguments = call.arguments("handfastClaimJobs");
    let worker = required_text(&mut arguments, "worker")?;
    let types = arguments.array("types")?;
    let types = arguments.required("types", types)?;
    let count = arguments.exact_unsigned("count")?.unwrap_or(1);
    arguments.finish()?;
    let kinds = types.into_iter().map(|kind| match kind? {
        RawBsonRef::String(kind) => Ok(kind.to_owned()),
        _ => Err(CommandError::new(Code::TypeMismatch, "types must be an array of strings")),
    });
    let kinds = kinds.collect::<CommandResult<Vec<String>>>()?;
    if kinds.is_empty() {
        return Err(invalid("types must name at least one type of jobs"));
    }
    let Some(count) = u32::try_from(count).ok().filter(|count| (1..=COUNT_MAX).contains(&u64::from(*count))) else {
        return Err(invalid(format!("count must be from 1 to {COUNT_MAX}, and is {count}")));
    };
    let queue: JobQueue = patterns::of(call).await?;
    let mut jobs = queue.claim_many(worker, &kinds, count).await?;
    if jobs.is_empty() && queue.reclaim(RECLAIMED_MAX).await?.done > 0 {
        jobs = queue.claim_many(worker, &kinds, count).await?;
    }
    let unchanged = jobs.is_empty();
    Ok(Answer { unchanged, ..answer(&queue, jobs).await? })
}

/// Writes the reply. Jobs that do not fit into it return to the queue, as the worker would not know of them.
async fn answer(queue: &JobQueue, jobs: Vec<Job>) -> CommandResult<Answer> {
    let mut writer = Writer::new();
    writer.begin_array("jobs");
    let mut written = 0;
    for job in jobs {
        let document = described(&job)?;
        let fits = writer.len() + document.as_bytes().len() + ENVELOPE_BYTES_MAX <= ANSWER_BYTES_MAX;
        if written > 0 && !fits {
            let _state = queue.release(&job).await?;
            continue;
        }
        writer.put(decimal(written, &mut [0; 20]), document);
        written += 1;
    }
    writer.end();
    writer.put("leaseMillis", i64::try_from(queue.lease().as_millis()).unwrap_or(i64::MAX));
    Ok(writer.into())
}

/// Returns the fields of a job that a worker needs.
fn described(job: &Job) -> CommandResult<RawDocumentBuf> {
    let claim = job.worker.as_ref().and_then(|worker| worker.claim);
    let mut writer = Writer::new();
    put_value(&mut writer, "_id", &job.id)?;
    writer.put_some("claim", claim).put("type", job.kind.as_str());
    writer.put("details", RawDocumentBuf::try_from(&job.details)?);
    writer
        .put("claims", job.claims)
        .put("attempts", i64::from(job.attempts))
        .put("priority", job.priority)
        .put("ts", job.ts)
        .put_some("order", job.order.as_deref())
        .put_some("timeoutMillis", job.timeout.and_then(|timeout| i64::try_from(timeout.as_millis()).ok()));
    Ok(writer.finish())
}
