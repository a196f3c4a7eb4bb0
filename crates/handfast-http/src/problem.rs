//! Errors as problem details (RFC 9457): a JSON object with a stable `type`, which a program compares, and a `detail` for people.
//!
//! ```json
//! {"type": "urn:handfast:problem:queue-full", "title": "the queue is full", "status": 503,
//!  "detail": "the queue is full, as it holds 1000000 requests at most: try again when some are saved", "outcome": "not_applied"}
//! ```
//!
//! A problem of a request that writes has an `outcome`: `not_applied` if nothing was changed, `unknown` if something may have been.

use std::time::Duration;

use axum::http::header::{CACHE_CONTROL, CONNECTION, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse as _, Response};
use serde_json::{Map, Value, json};

/// The media type of problem details.
pub(crate) const MEDIA_TYPE: &str = "application/problem+json";
/// The beginning of each `type`.
const TYPE_PREFIX: &str = "urn:handfast:problem:";

/// A kind of error, as the `type` of problem details names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProblemKind {
    /// A part of the request is missing, invalid or unknown; the detail names it.
    InvalidRequest,
    /// The token is missing or unknown.
    Unauthorized,
    /// A web page of an origin that is not allowed sent a request that writes.
    OriginRefused,
    /// The user may not do this.
    Forbidden,
    /// The path is none of the service's.
    NotFound,
    /// The entry, hold, document or transaction of the request does not exist.
    Missing,
    /// The path has no such method.
    MethodNotAllowed,
    /// The body did not arrive in time.
    BodyTimeout,
    /// The item has as many views as are counted.
    TotalTooLarge,
    /// The state of what the request is about does not allow it.
    Conflict,
    /// The body is larger than the limit.
    BodyTooLarge,
    /// The body has another media type than `application/json`.
    UnsupportedMediaType,
    /// A rule of the data does not allow it, such as the minimum of an account.
    Refused,
    /// Another request has the idempotency key.
    KeyReused,
    /// The client has sent more requests than it may.
    TooManyRequests,
    /// The data of the service cannot be read.
    DamagedData,
    /// The queue holds as many views as it may.
    QueueFull,
    /// As many idempotency keys are remembered as may be.
    KeysFull,
    /// The part that is needed for the request does not answer.
    Unavailable,
    /// Other requests changed the same data at each attempt.
    Contended,
    /// Whether the request was applied is unknown.
    OutcomeUnknown,
    /// The service cannot take views; `parts` names the parts that do not work.
    NotReady,
    /// The service has failed.
    Failed,
}

impl ProblemKind {
    /// Returns the last part of the `type`, the status and the title.
    fn parts(self) -> (&'static str, StatusCode, &'static str) {
        match self {
            ProblemKind::InvalidRequest => ("invalid-request", StatusCode::BAD_REQUEST, "the request is invalid"),
            ProblemKind::Unauthorized => ("unauthorized", StatusCode::UNAUTHORIZED, "a login is needed"),
            ProblemKind::OriginRefused => ("origin-refused", StatusCode::FORBIDDEN, "the origin is not allowed"),
            ProblemKind::Forbidden => ("forbidden", StatusCode::FORBIDDEN, "the user may not do this"),
            ProblemKind::Missing => ("missing", StatusCode::NOT_FOUND, "what the request names does not exist"),
            ProblemKind::NotFound => ("not-found", StatusCode::NOT_FOUND, "there is no such path"),
            ProblemKind::MethodNotAllowed => {
                ("method-not-allowed", StatusCode::METHOD_NOT_ALLOWED, "the path has no such method")
            }
            ProblemKind::BodyTimeout => ("body-timeout", StatusCode::REQUEST_TIMEOUT, "the body is late"),
            ProblemKind::TotalTooLarge => ("total-too-large", StatusCode::CONFLICT, "the total is too large"),
            ProblemKind::Conflict => ("conflict", StatusCode::CONFLICT, "the state does not allow it"),
            ProblemKind::Refused => {
                ("refused", StatusCode::UNPROCESSABLE_ENTITY, "a rule of the data does not allow it")
            }
            ProblemKind::KeyReused => {
                ("key-reused", StatusCode::UNPROCESSABLE_ENTITY, "another request has the idempotency key")
            }
            ProblemKind::BodyTooLarge => ("body-too-large", StatusCode::PAYLOAD_TOO_LARGE, "the body is too large"),
            ProblemKind::UnsupportedMediaType => {
                ("unsupported-media-type", StatusCode::UNSUPPORTED_MEDIA_TYPE, "the body is not JSON")
            }
            ProblemKind::TooManyRequests => {
                ("too-many-requests", StatusCode::TOO_MANY_REQUESTS, "the client has sent too many requests")
            }
            ProblemKind::DamagedData => {
                ("damaged-data", StatusCode::INTERNAL_SERVER_ERROR, "data of the service cannot be read")
            }
            ProblemKind::QueueFull => ("queue-full", StatusCode::SERVICE_UNAVAILABLE, "the queue is full"),
            ProblemKind::KeysFull => {
                ("keys-full", StatusCode::SERVICE_UNAVAILABLE, "no further idempotency key can be remembered")
            }
            ProblemKind::Unavailable => {
                ("unavailable", StatusCode::SERVICE_UNAVAILABLE, "a part of the service is unavailable")
            }
            ProblemKind::Contended => {
                ("contended", StatusCode::SERVICE_UNAVAILABLE, "other requests change the same data")
            }
            ProblemKind::Failed => ("failed", StatusCode::INTERNAL_SERVER_ERROR, "the service has failed"),
            ProblemKind::OutcomeUnknown => {
                ("outcome-unknown", StatusCode::SERVICE_UNAVAILABLE, "whether the request was applied is unknown")
            }
            ProblemKind::NotReady => ("not-ready", StatusCode::SERVICE_UNAVAILABLE, "the service cannot take views"),
        }
    }

    /// Returns the last part of the `type`.
    pub(crate) fn name(self) -> &'static str {
        self.parts().0
    }

    /// Returns the `type` of the problem details.
    pub fn uri(self) -> String {
        format!("{TYPE_PREFIX}{}", self.name())
    }

    /// Returns whether the response says in `Retry-After` how long to wait.
    pub(crate) fn has_retry_after(self) -> bool {
        matches!(self.status(), StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS)
    }

    /// Returns whether the connection ends with the response, as the rest of the request is not read.
    fn ends_connection(self) -> bool {
        matches!(self, ProblemKind::BodyTimeout | ProblemKind::BodyTooLarge)
    }

    /// Returns the HTTP status.
    pub fn status(self) -> StatusCode {
        self.parts().1
    }

    /// Returns the title, which is the same for all problems of the kind.
    pub fn title(self) -> &'static str {
        self.parts().2
    }
}

/// The outcome of a writing request that was not answered with success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    NotApplied,
    Unknown,
}

/// The values of the headers of problems.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProblemHeaders {
    /// The time after which a client should try again.
    pub(crate) retry_after_seconds: u64,
    /// The way to log in (`WWW-Authenticate`).
    pub(crate) challenge: &'static str,
}

/// A problem, before it becomes a response.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Problem {
    pub(crate) kind: ProblemKind,
    pub(crate) detail: String,
    /// Further members of the JSON object.
    pub(crate) members: Map<String, Value>,
    /// The time that the client should wait, if it is another one than usual.
    pub(crate) retry_after: Option<Duration>,
}

impl Problem {
    pub(crate) fn new(kind: ProblemKind, detail: impl Into<String>) -> Self {
        Problem { kind, detail: detail.into(), members: Map::new(), retry_after: None }
    }

    pub(crate) fn invalid(detail: impl Into<String>) -> Self {
        Problem::new(ProblemKind::InvalidRequest, detail)
    }

    /// Creates the response. `outcome` is that of a request that writes.
    pub(crate) fn into_response(self, outcome: Option<Outcome>, say: ProblemHeaders) -> Response {
        let status = self.kind.status();
        let mut body = json!({
            "type": self.kind.uri(),
            "title": self.kind.title(),
            "status": status.as_u16(),
            "detail": self.detail,
        });
        if let Value::Object(body) = &mut body {
            if let Some(outcome) = outcome {
                body.insert("outcome".into(), outcome.name().into());
            }
            body.extend(self.members);
        }
        let mut response = (status, format!("{body}\n")).into_response();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if self.kind.has_retry_after() {
            // A part of a second is waited for as a whole one.
            let seconds = self.retry_after.map(|time| time.as_millis().div_ceil(1_000));
            let seconds = seconds.map_or(say.retry_after_seconds, |seconds| u64::try_from(seconds).unwrap_or(u64::MAX));
            headers.insert(RETRY_AFTER, seconds.into());
        }
        if self.kind.ends_connection() {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static(say.challenge));
        }
        response
    }
}

impl Outcome {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Outcome::NotApplied => "not_applied",
            Outcome::Unknown => "unknown",
        }
    }
}
