//! The body of a request that is answered before it was read, as one that is refused is.
//!
//! hyper closes a connection whose last body was not read, after the answer and without a word in it. A client that sends its next request there gets no answer, and
//! cannot know whether that was carried out. So a short body is read to its end, and for others the answer says that the connection is closed.

use std::time::Duration;

use axum::body::Body;
use axum::http::HeaderValue;
use axum::http::header::CONNECTION;
use axum::response::Response;
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Body as _;

/// The maximum size of a body that is read to be dropped.
const BYTES_MAX: usize = 64 * 1024;
/// The time that it has to arrive.
const TIME_MAX: Duration = Duration::from_secs(1);

/// A body that may have been taken.
pub(crate) struct UnreadBody(Option<Body>);

impl UnreadBody {
    pub(crate) fn new(body: Body) -> Self {
        UnreadBody(Some(body))
    }

    /// Returns whether the request has no body.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.as_ref().is_none_or(Body::is_end_stream)
    }

    /// Returns the body to read it; an empty one the second time.
    pub(crate) fn take(&mut self) -> Body {
        self.0.take().unwrap_or_default()
    }

    /// Reads and drops the rest, or lets the answer say that the connection is closed.
    pub(crate) async fn finish(self, response: &mut Response) {
        let Some(body) = self.0 else { return };
        if body.is_end_stream() {
            return;
        }
        let is_short = body.size_hint().lower() <= BYTES_MAX as u64;
        let rest = Limited::new(body, BYTES_MAX).collect();
        if !is_short || !matches!(tokio::time::timeout(TIME_MAX, rest).await, Ok(Ok(_))) {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
    }
}
