//! The parts of a request, checked before a handler sees them.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{FromRequestParts as _, Query, RawPathParams};
use axum::http::header::CONTENT_TYPE;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, Uri};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::Body as _;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::api::RequestClient;
use crate::distinct_names::DistinctNames;
use crate::problem::{Problem, ProblemKind};
use crate::unread_body::UnreadBody;

/// The time that a body has to arrive.
const BODY_TIME_MAX: Duration = Duration::from_secs(10);

/// A body up to this size needs no reservation.
const SMALL_BODY_BYTES: usize = 64 * 1024;
/// The unit of reservations.
const UNIT_BYTES: usize = 1024;

/// The media type of the forms of pages.
const FORM: &str = "application/x-www-form-urlencoded";

/// The memory for large bodies, which all requests share.
#[derive(Clone)]
pub(crate) struct BodyBudget(Arc<Semaphore>);

impl BodyBudget {
    pub(crate) fn new(bytes: usize) -> Self {
        BodyBudget(Arc::new(Semaphore::new(bytes / UNIT_BYTES)))
    }

    /// Waits until there is room for a body of this size.
    async fn reserve(&self, bytes: usize) -> Result<Option<OwnedSemaphorePermit>, Problem> {
        if bytes <= SMALL_BODY_BYTES {
            return Ok(None);
        }
        let units = u32::try_from(bytes.div_ceil(UNIT_BYTES)).unwrap_or(u32::MAX);
        match tokio::time::timeout(BODY_TIME_MAX, Arc::clone(&self.0).acquire_many_owned(units)).await {
            Ok(Ok(permit)) => Ok(Some(permit)),
            // The semaphore is never closed.
            Ok(Err(_)) | Err(_) => {
                Err(Problem::new(ProblemKind::Unavailable, "the memory for large bodies is in use by other requests"))
            }
        }
    }
}

/// The limits of a body.
#[derive(Clone, Copy)]
pub(crate) struct BodyLimits<'a> {
    /// 0 for a route without a body, which is not read then.
    pub(crate) bytes_max: usize,
    pub(crate) budget: &'a BodyBudget,
}

/// A request whose parameters are those that its route knows.
pub(crate) struct Call {
    pub(crate) method: Method,
    path: RawPathParams,
    query: Vec<(String, String)>,
    pub(crate) headers: HeaderMap,
    /// The address of the client, if the program says it.
    pub(crate) address: Option<IpAddr>,
    /// The client with the login of the request, until its handler takes it.
    client: Mutex<Option<RequestClient>>,
    body: Bytes,
    _reserved: Option<OwnedSemaphorePermit>,
}

impl Call {
    /// Reads the parameters of a path.
    pub(crate) async fn path_of(parts: &mut Parts) -> Result<RawPathParams, Problem> {
        let path = RawPathParams::from_request_parts(parts, &()).await;
        path.map_err(|error| Problem::invalid(format!("the path cannot be read: {error}")))
    }

    /// Reads a request. `known` are the names of the query parameters.
    pub(crate) async fn read(
        parts: Parts,
        path: RawPathParams,
        address: Option<IpAddr>,
        body: &mut UnreadBody,
        known: impl Iterator<Item = &'static str>,
        limits: BodyLimits<'_>,
    ) -> Result<Self, Problem> {
        let query = query(&parts.uri, known)?;
        if limits.bytes_max == 0 && parts.method != Method::GET && !body.is_empty() {
            return Err(Problem::invalid("the request has a body, which nothing would read: send it without one"));
        }
        let (body, reserved) =
            if limits.bytes_max == 0 { (Bytes::new(), None) } else { read_body(body.take(), limits).await? };
        let (client, method) = (Mutex::default(), parts.method);
        Ok(Call { method, path, query, headers: parts.headers, address, client, body, _reserved: reserved })
    }

    /// Adds the client with the login of the request.
    pub(crate) fn with_client(self, client: Option<RequestClient>) -> Self {
        Call { client: Mutex::new(client), ..self }
    }

    /// Returns the client with the login of the request, the first time.
    pub(crate) fn take_client(&self) -> Option<RequestClient> {
        self.client.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Returns a parameter of the path; empty if the route has none of this name.
    pub(crate) fn path(&self, name: &str) -> &str {
        parameter(&self.path, name).unwrap_or_default()
    }

    /// Returns a parameter of the query.
    pub(crate) fn query(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Returns a header that may be sent once.
    pub(crate) fn header(&self, name: &str) -> Result<Option<&str>, Problem> {
        let mut values = self.headers.get_all(name).iter();
        let (first, second) = (values.next(), values.next());
        if second.is_some() {
            return Err(Problem::invalid(format!("the header {name} is there more than once")));
        }
        first
            .map(|value| {
                value
                    .to_str()
                    .map_err(|_| Problem::invalid(format!("the header {name} must be visible ASCII characters")))
            })
            .transpose()
    }

    /// Returns the fields of a form.
    pub(crate) fn form(&self) -> Result<Vec<(String, String)>, Problem> {
        if self.body.is_empty() {
            return Ok(Vec::new());
        }
        let media_type = self.headers.get(CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
        if media_type != FORM.as_bytes() {
            let detail = format!("the media type of the form must be {FORM}");
            return Err(Problem::new(ProblemKind::UnsupportedMediaType, detail));
        }
        Ok(form_urlencoded::parse(&self.body).into_owned().collect())
    }

    /// Returns the body as JSON; `None` if it is empty.
    pub(crate) fn json<T: DeserializeOwned>(&self) -> Result<Option<T>, Problem> {
        if self.body.is_empty() {
            return Ok(None);
        }
        let media_type = self.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let essence = media_type.split(';').next().unwrap_or_default().trim();
        if !essence.eq_ignore_ascii_case("application/json") {
            let detail = format!("the media type of the body must be application/json, and is {essence:?}");
            return Err(Problem::new(ProblemKind::UnsupportedMediaType, detail));
        }
        if !self.body.trim_ascii_start().starts_with(b"{") {
            return Err(Problem::invalid("the body must be a JSON object"));
        }
        let invalid = |error| Problem::invalid(format!("the body is invalid: {error}"));
        serde_json::from_slice::<DistinctNames>(&self.body).map_err(invalid)?;
        serde_json::from_slice(&self.body).map(Some).map_err(invalid)
    }
}

/// Returns a parameter of a path.
pub(crate) fn parameter<'a>(path: &'a RawPathParams, name: &str) -> Option<&'a str> {
    path.iter().find(|(known, _)| *known == name).map(|(_, value)| value)
}

/// Reads the parameters of a query. A misspelt one is refused, because it would change the meaning of the request without a word.
fn query(uri: &Uri, known: impl Iterator<Item = &'static str>) -> Result<Vec<(String, String)>, Problem> {
    if uri.query().is_none() {
        return Ok(Vec::new());
    }
    let known: Vec<&str> = known.collect();
    let Query(parameters) = Query::<Vec<(String, String)>>::try_from_uri(uri)
        .map_err(|error| Problem::invalid(format!("the query cannot be read: {error}")))?;
    for (index, (name, _)) in parameters.iter().enumerate() {
        if !known.contains(&name.as_str()) {
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            return Err(Problem::invalid(format!("there is no query parameter {name:?}: the path has {known}")));
        }
        if parameters.iter().take(index).any(|(earlier, _)| earlier == name) {
            return Err(Problem::invalid(format!("the query parameter {name} is there more than once")));
        }
    }
    Ok(parameters)
}

/// Reads the value of a field that may be left out, and that has no meaning if it is null. For `#[serde(default, deserialize_with = ..)]`.
pub(crate) fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(field: D) -> Result<Option<T>, D::Error> {
    T::deserialize(field).map(Some)
}

async fn read_body(body: Body, limits: BodyLimits<'_>) -> Result<(Bytes, Option<OwnedSemaphorePermit>), Problem> {
    let bytes_max = limits.bytes_max;
    let too_large = || {
        let detail = format!("the body has more than {bytes_max} bytes, its limit");
        Problem::new(ProblemKind::BodyTooLarge, detail)
    };
    // Most requests have none, and need no timer.
    if body.is_end_stream() {
        return Ok((Bytes::new(), None));
    }
    // That of Content-Length, which is refused before the client has sent it.
    if body.size_hint().lower() > bytes_max as u64 {
        return Err(too_large());
    }
    // Without Content-Length nobody knows how long it is.
    let bytes = body.size_hint().upper().and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or(bytes_max);
    let reserved = limits.budget.reserve(bytes).await?;
    match tokio::time::timeout(BODY_TIME_MAX, Limited::new(body, bytes_max).collect()).await {
        Ok(Ok(body)) => Ok((body.to_bytes(), reserved)),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large()),
        Ok(Err(error)) => Err(Problem::invalid(format!("the body cannot be read: {error}"))),
        Err(_) => {
            let detail = format!("the body did not arrive within {} seconds", BODY_TIME_MAX.as_secs());
            Err(Problem::new(ProblemKind::BodyTimeout, detail))
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::{BodyBudget, BodyLimits, SMALL_BODY_BYTES, read_body};
    use crate::problem::ProblemKind;

    #[tokio::test(start_paused = true)]
    async fn large_bodies_share_their_memory() {
        let budget = BodyBudget::new(200 * 1024);
        let limits = BodyLimits { bytes_max: 150 * 1024, budget: &budget };
        let large = || Body::from(vec![b' '; 150 * 1024]);
        let (body, reserved) = read_body(large(), limits).await.unwrap();
        assert!(body.len() == 150 * 1024 && reserved.is_some());
        let refused = read_body(large(), limits).await.map(|_| ()).unwrap_err();
        assert_eq!(refused.kind, ProblemKind::Unavailable);
        let small = read_body(Body::from(vec![b' '; SMALL_BODY_BYTES]), limits).await.unwrap();
        assert!(small.1.is_none(), "a small one needs no room");
        drop(reserved);
        assert!(read_body(large(), limits).await.is_ok());
    }
}
