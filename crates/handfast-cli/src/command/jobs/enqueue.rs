//! `handfast jobs enqueue`: adds a job to a queue.

use anyhow::{Result, bail};
use bson::Document;
use handfast_patterns::job_queue::{Enqueued, NewJob};
use serde_json::json;

use super::Queue;
use super::arguments::NewJobFlags;
use crate::console::Console;
use crate::exit::Exit;
use crate::id::{extended_json, shown};

/// Returns the job that the flags describe.
fn new_job(kind: &str, details: &Document, flags: &NewJobFlags) -> Result<NewJob> {
    let NewJobFlags { id, priority, at, delay, attempts, timeout, unique, window, for_ever, order } = flags;
    let mut job = NewJob::new(kind, details)?.with_priority(*priority);
    if let Some(id) = id {
        job = job.with_id(id.0.clone());
    }
    if let Some(at) = at {
        job = job.at(*at);
    }
    if let Some(delay) = delay {
        job = job.after(delay.0);
    }
    if let Some(attempts) = attempts {
        job = job.with_attempts(*attempts);
    }
    if let Some(timeout) = timeout {
        job = job.with_timeout(timeout.0);
    }
    if let Some(key) = unique {
        job = match window {
            Some(window) => job.unique_within(key, window.0),
            None if *for_ever => job.unique_for_ever(key),
            None => job.unique(key),
        };
    }
    if let Some(order) = order {
        job = job.in_order(order);
    }
    Ok(job)
}

impl Queue {
    pub(super) async fn enqueue(
        &self,
        kind: &str,
        details: &Document,
        flags: &NewJobFlags,
        console: Console,
    ) -> Result<Exit> {
        let (queue, job) = (self.open().await?, new_job(kind, details, flags)?);
        let (is_new, id) = match queue.enqueue(job).await? {
            Enqueued::New(id) => (true, id),
            Enqueued::Existing(id) => (false, id),
            Enqueued::Duplicate(holder) => {
                let text = || match &holder {
                    Some(id) => format!("not enqueued: the job {} has the key of --unique", shown(id)),
                    None => "not enqueued: another job has the key of --unique".to_owned(),
                };
                console
                    .report(text, &json!({ "enqueued": false, "duplicateOf": holder.as_ref().map(extended_json) }))?;
                return Ok(Exit::Good);
            }
        };
        if !is_new && queue.show(id.clone()).await?.is_some_and(|there| there.kind != kind || there.details != *details)
        {
            bail!("not enqueued: another job has the id {}; `jobs show` shows it", shown(&id));
        }
        let text = || match is_new {
            true => format!("enqueued {}", shown(&id)),
            false => format!("{} was enqueued before", shown(&id)),
        };
        console.report(text, &json!({ "enqueued": is_new, "_id": extended_json(&id) }))?;
        Ok(Exit::Good)
    }
}
