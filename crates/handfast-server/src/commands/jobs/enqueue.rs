//! `handfastEnqueueJob`: adds a job to a queue.

use std::time::Duration;

use bson::{Document, RawDocument};
use handfast_patterns::job_queue::Enqueued;
use handfast_patterns::{JobQueue, NewJob};

use super::super::pattern_steps::{IN_TRANSACTION, command, invalid, owned, put_value, required_text};
use super::super::{Call, Command};
use crate::arguments::Arguments;
use crate::error::CommandResult;
use crate::patterns;
use crate::reply::Answer;
use crate::writer::Writer;

pub(crate) const COMMAND: Command =
    command("handfastEnqueueJob", "adds a job to a queue", IN_TRANSACTION, |call| Box::pin(run(call)));

async fn run(call: &Call<'_>) -> CommandResult<Answer> {
    let mut arguments = call.arguments("handfastEnqueueJob");
    let job = arguments.document("job")?;
    let job = read(arguments.required("job", job)?)?;
    arguments.finish()?;
    let _kept = call.shared.patterns.keep_indexes().await;
    let queue: JobQueue = patterns::of(call).await?;
    let enqueued = queue.enqueue(job).await?;
    let mut writer = Writer::new();
    match enqueued {
        Enqueued::New(id) => {
            put_value(&mut writer, "_id", &id)?;
            writer.put("inserted", true);
        }
        Enqueued::Existing(id) => {
            put_value(&mut writer, "_id", &id)?;
            writer.put("inserted", false);
        }
        Enqueued::Duplicate(holder) => {
            writer.put("inserted", false);
            if let Some(id) = holder {
                put_value(&mut writer, "duplicateOf", &id)?;
            }
        }
    }
    Ok(writer.into())
}

fn read(job: &RawDocument) -> CommandResult<NewJob> {
    let mut arguments = Arguments::of_document("handfastEnqueueJob.job", job)?;
    let kind = required_text(&mut arguments, "type")?;
    let details = Document::try_from(arguments.document_or_empty("details")?)?;
    let mut job = NewJob::new(kind, &details)?;
    if let Some(id) = arguments.any_or_null("_id")? {
        job = job.with_id(owned(id)?);
    }
    if let Some(priority) = arguments.exact_integer("priority")? {
        let priority = i32::try_from(priority)
            .map_err(|_| invalid(format!("priority is {priority}, not from {} to {}", i32::MIN, i32::MAX)))?;
        job = job.with_priority(priority);
    }
    let run_at = arguments.date("runAt")?;
    if let Some(run_at) = run_at {
        job = job.at(run_at);
    }
    if let Some(delay) = millis(&mut arguments, "delayMillis")? {
        if run_at.is_some() {
            return Err(invalid("runAt and delayMillis exclude each other"));
        }
        job = job.after(delay);
    }
    if let Some(attempts) = arguments.exact_unsigned("attemptsMax")? {
        let attempts = u32::try_from(attempts)
            .map_err(|_| invalid(format!("attemptsMax is {attempts}, more than {}", u32::MAX)))?;
        job = job.with_attempts(attempts);
    }
    if let Some(timeout) = millis(&mut arguments, "timeoutMillis")? {
        job = job.with_timeout(timeout);
    }
    job = with_unique_key(job, &mut arguments)?;
    if let Some(order) = arguments.text("order")? {
        job = job.in_order(order);
    }
    arguments.finish()?;
    Ok(job)
}

/// Reads `unique`, and how long it is: until the job is done, in a window of time, or as long as the job is kept.
fn with_unique_key(job: NewJob, arguments: &mut Arguments<'_>) -> CommandResult<NewJob> {
    let (window, for_ever) =
        (millis(arguments, "uniqueWindowMillis")?, arguments.flag("uniqueForEver")?.unwrap_or(false));
    let Some(key) = arguments.text("unique")? else {
        if window.is_some() || for_ever {
            return Err(invalid("uniqueWindowMillis and uniqueForEver need the key: unique"));
        }
        return Ok(job);
    };
    match (window, for_ever) {
        (Some(_), true) => Err(invalid("uniqueWindowMillis and uniqueForEver exclude each other")),
        (Some(window), false) => Ok(job.unique_within(key, window)),
        (None, true) => Ok(job.unique_for_ever(key)),
        (None, false) => Ok(job.unique(key)),
    }
}

fn millis(arguments: &mut Arguments<'_>, name: &str) -> CommandResult<Option<Duration>> {
    Ok(arguments.exact_unsigned(name)?.map(Duration::from_millis))
}
