//! The HTTP API of a server: the steps of the patterns, for languages and tools without a driver.
//!
//! A route is a command of the server, with its checks, its roles and its errors. The body has the document that the command is about, in Extended JSON, and the
//! answer has the reply of the command:
//!
//! ```text
//! POST /v1/shop/queues/jobs/jobs {"type": "mail", "details": {..}}
//!      {handfastEnqueueJob: "jobs", job: {type: "mail", details: {..}}, $db: "shop"}
//! {"_id": {"$oid": ".."}, "inserted": true}
//! ```
//!
//! With the header `Idempotency-Key` the command and the record of its reply are one transaction: a request that is sent again is answered from the record.

mod command_server;
mod idempotency;
mod ledgers;
mod login;
mod problems;
mod queues;
mod routes;
mod schemas;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderName, StatusCode};
use axum::response::{IntoResponse as _, Response};
use bson::{Bson, DateTime, Document, doc};
use handfast_store::{Clock, Sources};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::access::AccessOptions;
use crate::client::{ClientAddresses, ClientLimit, Limiter};
use crate::connections::{ConnectionOptions, serve_connections};
use crate::id::Id;
use crate::metrics::RequestMetrics;
use crate::openapi;
use crate::problem::{Problem, ProblemHeaders};
use crate::request::Call;
use crate::route::{self, IDEMPOTENCY_KEY, RequestLimits, RouterOptions};

pub use command_server::{CommandClient, CommandServer};

use idempotency::Idempotency;
use login::Logins;

type Result<T, E = Problem> = std::result::Result<T, E>;

/// The maximum size of a body, in bytes: that of a document in Extended JSON, which is longer than BSON.
pub const BODY_BYTES_MAX: usize = 32 * 1024 * 1024;

/// The way to log in.
const CHALLENGE: &str = "Basic realm=\"handfast\", charset=\"UTF-8\"";

/// The fields of a reply that tell drivers about the server, and not about the command.
const DRIVER_FIELDS: [&str; 4] = ["ok", "$clusterTime", "operationTime", "recoveryToken"];

/// The settings of the API.
#[derive(Clone, Debug)]
pub struct ApiOptions {
    /// The rules of access to the routes. The users of the server log in with their passwords, so that there are no tokens in it.
    pub access: AccessOptions,
    /// The time that a request may take once it has arrived, beside the time for which a claim waits for jobs.
    pub request_time_max: Duration,
    /// The number of requests that each client may send.
    pub client_limit: Option<ClientLimit>,
    /// The header in which a proxy names the client's address, as the last one.
    pub client_address_header: Option<HeaderName>,
}

impl Default for ApiOptions {
    /// A request may take 60 seconds, and clients may send as many as they like.
    fn default() -> Self {
        ApiOptions {
            access: AccessOptions::default(),
            request_time_max: Duration::from_secs(60),
            client_limit: None,
            client_address_header: None,
        }
    }
}

/// What the handlers share.
struct Api {
    logins: Logins,
    idempotency: Idempotency,
    document: Bytes,
    clock: Arc<dyn Clock>,
    stop: CancellationToken,
}

/// Serves the API on listeners until `stop` is canceled. Then it answers the requests in progress.
pub async fn serve(
    listeners: Vec<TcpListener>,
    server: Arc<dyn CommandServer>,
    sources: &Sources,
    options: ApiOptions,
    connections: ConnectionOptions,
    stop: CancellationToken,
) {
    let router = router(server, sources, options, stop.clone());
    serve_connections(listeners, router, connections, stop).await;
}

/// Makes the router of the API. `stop` ends the claims that wait for jobs.
pub fn router(
    server: Arc<dyn CommandServer>,
    sources: &Sources,
    options: ApiOptions,
    stop: CancellationToken,
) -> Router {
    let limits = RequestLimits {
        body_bytes_max: BODY_BYTES_MAX,
        request_time_max: options.request_time_max,
        problem_headers: ProblemHeaders { retry_after_seconds: 1, challenge: CHALLENGE },
    };
    let document = format!("{}\n", openapi::document(&routes::ROUTES, schemas::description()));
    let metrics = Arc::new(RequestMetrics::new(routes::ROUTES.iter().map(|route| route.operation)));
    let router_options = RouterOptions {
        access: AccessOptions { tokens: Vec::new(), ..options.access },
        limits,
        limiter: options.client_limit.map(Limiter::new),
        limiters_of_kinds: BTreeMap::new(),
        addresses: ClientAddresses::new(options.client_address_header),
        clock: Arc::clone(&sources.clock),
        metrics,
    };
    let api = Api {
        logins: Logins::new(server, &*sources.random),
        idempotency: Idempotency::new(sources.clone()),
        document: document.into(),
        clock: Arc::clone(&sources.clock),
        stop,
    };
    route::router(&routes::ROUTES, api, router_options)
}

impl Api {
    /// Runs a command that changes something, once for each idempotency key, if the request has one.
    async fn write(&self, call: &Call, command: Document) -> Result<Response> {
        let mut client = self.logins.client(&call.headers).await?;
        let reply = match call.header(IDEMPOTENCY_KEY)? {
            Some(key) => self.idempotency.run(&mut client, call.path("database"), key, &command).await?,
            None => client.run(call.path("database"), &command).await?,
        };
        Ok(answer(reply))
    }

    /// Runs a command that cannot be part of a transaction, and so has no idempotency key.
    async fn step(&self, call: &Call, command: Document) -> Result<Response> {
        refuse_key(call)?;
        self.read(call, command).await
    }

    /// Runs a command that changes nothing.
    async fn read(&self, call: &Call, command: Document) -> Result<Response> {
        let mut client = self.logins.client(&call.headers).await?;
        Ok(answer(client.run(call.path("database"), &command).await?))
    }
}

async fn document(api: &Api) -> Result<Response> {
    Ok(([(CONTENT_TYPE, "application/json")], api.document.clone()).into_response())
}

async fn healthy() -> Result<Response> {
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Returns the body as a document; an empty one if there is no body. Fields named in `dates` may be texts, such as `2026-11-27T10:00:00Z`.
fn body(call: &Call, dates: &[&str]) -> Result<Document> {
    let body = call.json::<Value>()?.unwrap_or_else(|| json!({}));
    let mut body = match Bson::try_from(body) {
        Ok(Bson::Document(body)) => body,
        Ok(other) => {
            let text = format!("the body must be a document, and is the value {}", other.into_relaxed_extjson());
            return Err(Problem::invalid(text));
        }
        Err(error) => return Err(Problem::invalid(format!("the body is no Extended JSON: {error}"))),
    };
    for name in dates {
        if let Some(Bson::String(text)) = body.get(name) {
            let date = date(name, text)?;
            body.insert(*name, date);
        }
    }
    Ok(body)
}

/// Returns a command whose arguments are the fields of the body.
fn command(call: &Call, name: &str, subject: &str, known: &[&str]) -> Result<Document> {
    let mut command = doc! { name: call.path(subject) };
    for (name, value) in body(call, &[])? {
        if !known.contains(&name.as_str()) {
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            return Err(Problem::invalid(format!("the body has the unknown field {name:?}; the fields are: {known}")));
        }
        command.insert(name, value);
    }
    Ok(command)
}

/// Refuses an idempotency key, which would have no meaning.
fn refuse_key(call: &Call) -> Result<()> {
    if call.header(IDEMPOTENCY_KEY)?.is_none() {
        return Ok(());
    }
    let text = "this request takes no Idempotency-Key: it may be sent again after a lost answer without one";
    Err(Problem::invalid(text))
}

/// Reads a date and time (RFC 3339).
fn date(name: &str, text: &str) -> Result<DateTime> {
    DateTime::parse_rfc3339_str(text).map_err(|_| {
        Problem::invalid(format!("{name} must be a date and time, such as 2026-11-27T10:00:00Z, and is {text:?}"))
    })
}

/// Returns an id that is a part of the path.
fn path_id(call: &Call, name: &str) -> Result<Bson> {
    let Id(id) = call.path(name).parse().map_err(Problem::invalid)?;
    Ok(id)
}

fn answer(mut reply: Document) -> Response {
    for name in DRIVER_FIELDS {
        reply.remove(name);
    }
    let text = format!("{}\n", Bson::Document(reply).into_relaxed_extjson());
    ([(CONTENT_TYPE, "application/json")], text).into_response()
}

#[cfg(test)]
mod tests;
