//! Whether the server takes requests (`GET /readyz`).

use std::time::Duration;

use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use serde_json::json;
use tokio::sync::Mutex;

use super::{Api, NotReady, Result};
use crate::problem::{Problem, ProblemKind};

/// The time that the store has to answer.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(5);

/// The time for which a result is kept: each check is a write to the store, and everybody may ask.
const KEPT_TIME: Duration = Duration::from_secs(1);

/// The parts that did not take requests at a time of the clock; none before the first check.
pub(super) type LastCheck = Mutex<Option<(Duration, Vec<NotReady>)>>;

/// Answers with the parts that do not take requests, as a problem, or with nothing if all do.
pub(super) async fn ready(api: &Api) -> Result<Response> {
    let mut parts = checked(api).await;
    if api.stop.is_cancelled() && parts.is_empty() {
        parts.push(NotReady { part: "server", detail: "it stops".to_owned() });
    }
    if parts.is_empty() {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    let texts: Vec<String> = parts.iter().map(|NotReady { part, detail }| format!("{part}: {detail}")).collect();
    let mut problem = Problem::new(ProblemKind::Unavailable, texts.join("; "));
    let parts = parts.iter().map(|NotReady { part, detail }| json!({ "part": part, "detail": detail })).collect();
    problem.members.insert("parts".to_owned(), parts);
    Err(problem)
}

/// Returns the result of the last check if it is new, and of another one otherwise. Those who ask meanwhile wait for it.
async fn checked(api: &Api) -> Vec<NotReady> {
    let mut last = api.readiness.lock().await;
    let now = api.clock.elapsed();
    if let Some((at, parts)) = &*last
        && now.saturating_sub(*at) < KEPT_TIME
    {
        return parts.clone();
    }
    let answer = tokio::time::timeout(ANSWER_TIME_MAX, api.server.not_ready());
    let parts = answer.await.unwrap_or_else(|_| {
        let detail = format!("it has not answered within {} seconds", ANSWER_TIME_MAX.as_secs());
        vec![NotReady { part: "store", detail }]
    });
    *last = Some((now, parts.clone()));
    parts
}
