//! The handlers of job queues.

use std::time::Duration;

use axum::response::Response;
use bson::{Document, doc};
use handfast_store::Namespace;
use tokio::sync::watch;

use super::{Api, Result, answer, body, command, path_id, refuse_key};
use crate::problem::Problem;
use crate::request::Call;

/// The longest time for which a claim waits for jobs.
pub(super) const WAIT_MILLIS_MAX: u64 = 30_000;
/// The pause between two attempts of a claim that waits, if nothing is written to the queue meanwhile. Jobs become due without a write, and other programs write
/// to the same store.
const PAUSE: Duration = Duration::from_secs(1);
/// The pause after an attempt before the next one that a write causes.
const PAUSE_MIN: Duration = Duration::from_millis(100);

pub(super) async fn enqueue(api: &Api, call: Call) -> Result<Response> {
    let job = body(&call, &["runAt"])?;
    api.write(&call, doc! { "handfastEnqueueJob": call.path("queue"), "job": job }).await
}

/// Claims jobs, and waits for some if there are none.
pub(super) async fn claim(api: &Api, call: Call) -> Result<Response> {
    refuse_key(&call)?;
    let mut command = command(&call, "handfastClaimJobs", "queue", &["worker", "types", "count", "waitMillis"])?;
    let wait = wait(&mut command)?;
    let mut client = api.client(&call).await?;
    let until = api.clock.elapsed() + wait;
    // A wrong name is refused by the command.
    let queue = Namespace::new(call.path("database"), call.path("queue")).ok().filter(|_| !wait.is_zero());
    let mut writes = queue.map(|queue| api.server.writes_to(queue));
    let mut reply = client.run(call.path("database"), &command).await?;
    loop {
        let is_empty = reply.get_array("jobs").is_ok_and(Vec::is_empty);
        let left = until.saturating_sub(api.clock.elapsed());
        if !is_empty || left.is_zero() || api.stop.is_cancelled() {
            return Ok(answer(reply));
        }
        tokio::select! {
            () = until_next(writes.as_mut(), left) => {}
            () = api.stop.cancelled() => continue,
        }
        match client.run(call.path("database"), &command).await {
            Ok(next) => reply = next,
            // The server stops, too.
            Err(_) if api.stop.is_cancelled() => {}
            Err(problem) => return Err(problem),
        }
    }
}

/// Waits between two claims, for a write to the queue or for some time.
async fn until_next(writes: Option<&mut watch::Receiver<()>>, left: Duration) {
    tokio::time::sleep(PAUSE_MIN.min(left)).await;
    let look = tokio::time::sleep(PAUSE.saturating_sub(PAUSE_MIN).min(left.saturating_sub(PAUSE_MIN)));
    match writes {
        Some(writes) => tokio::select! {
            () = look => {}
            written = writes.changed() => if written.is_err() {
                // The server stops.
                tokio::time::sleep(PAUSE.min(left)).await;
            },
        },
        None => look.await,
    }
}

fn wait(command: &mut Document) -> Result<Duration> {
    let Some(wait) = command.remove("waitMillis") else { return Ok(Duration::ZERO) };
    let millis = wait.as_i64().or(wait.as_i32().map(i64::from)).and_then(|millis| u64::try_from(millis).ok());
    match millis.filter(|millis| *millis <= WAIT_MILLIS_MAX) {
        Some(millis) => Ok(Duration::from_millis(millis)),
        None => {
            let wait = wait.into_relaxed_extjson();
            Err(Problem::invalid(format!("waitMillis must be an integer from 0 to {WAIT_MILLIS_MAX}, and is {wait}")))
        }
    }
}

pub(super) async fn renew(api: &Api, call: Call) -> Result<Response> {
    let command = command(&call, "handfastRenewJob", "queue", &["job", "progress"])?;
    api.step(&call, command).await
}

pub(super) async fn complete(api: &Api, call: Call) -> Result<Response> {
    let command = command(&call, "handfastCompleteJob", "queue", &["job", "result"])?;
    api.write(&call, command).await
}

pub(super) async fn fail(api: &Api, call: Call) -> Result<Response> {
    let command = command(&call, "handfastFailJob", "queue", &["job", "error", "giveUp"])?;
    api.step(&call, command).await
}

pub(super) async fn release(api: &Api, call: Call) -> Result<Response> {
    let command = command(&call, "handfastReleaseJob", "queue", &["job", "delayMillis"])?;
    api.step(&call, command).await
}

pub(super) async fn retry(api: &Api, call: Call) -> Result<Response> {
    let job = doc! { "_id": path_id(&call, "job")? };
    api.step(&call, doc! { "handfastRetryJob": call.path("queue"), "job": job }).await
}

pub(super) async fn depth(api: &Api, call: Call) -> Result<Response> {
    api.read(&call, doc! { "handfastQueueDepth": call.path("queue") }).await
}

pub(super) async fn pause(api: &Api, call: Call) -> Result<Response> {
    let command = command(&call, "handfastPauseQueue", "queue", &["reason"])?;
    api.step(&call, command).await
}

pub(super) async fn resume(api: &Api, call: Call) -> Result<Response> {
    api.step(&call, doc! { "handfastResumeQueue": call.path("queue") }).await
}

pub(super) async fn cancel(api: &Api, call: Call) -> Result<Response> {
    let job = doc! { "_id": path_id(&call, "job")? };
    api.write(&call, doc! { "handfastCancelJob": call.path("queue"), "job": job }).await
}
