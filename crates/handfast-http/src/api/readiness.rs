//! Whether the server takes requests (`GET /readyz`).

use std::time::Duration;

use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use serde_json::json;

use super::{Api, NotReady, Result};
use crate::problem::{Problem, ProblemKind};

/// The time that the store has to answer.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(5);

/// Answers with the parts that do not take requests, as a problem, or with nothing if all do.
pub(super) async fn ready(api: &Api) -> Result<Response> {
    let answer = tokio::time::timeout(ANSWER_TIME_MAX, api.server.not_ready());
    let mut parts = answer.await.unwrap_or_else(|_| {
        let detail = format!("it has not answered within {} seconds", ANSWER_TIME_MAX.as_secs());
        vec![NotReady { part: "store", detail }]
    });
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
