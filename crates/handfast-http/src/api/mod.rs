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
//! Beside the API there are the pages of the dashboard, which run the same commands.
//!
//! With the header `Idempotency-Key` the command and the record of its reply are one transaction: a request that is sent again is answered from the record.

mod command_server;
mod dashboard;
mod events;
mod exports;
mod found_patterns;
mod idempotency;
mod ledgers;
mod lists;
mod login;
mod metrics;
mod parameters;
mod problems;
mod queues;
mod readiness;
mod reads;
mod routes;
mod schemas;
mod statements;
mod synced;
mod tokens;
mod trees;
mod two_phase;
mod updates;

use std::collections::BTreeMap;
use std::future::Future;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, HOST};
use axum::http::{HeaderMap, HeaderName, StatusCode};
use axum::response::{IntoResponse as _, Response};
use bson::{Bson, DateTime, Document, doc};
use handfast_store::{Clock, Sources};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::RwLock;
use tokio_util::sync::CancellationToken;

use crate::access::{AccessOptions, RouteAccess};
use crate::client::{ClientAddresses, ClientLimit, Limiter};
use crate::connections::{ConnectionOptions, serve_connections};
use crate::id::{Id, check_numbers, extended_json};
use crate::metrics::{MEDIA_TYPE, RequestMetrics};
use crate::openapi;
use crate::problem::{Problem, ProblemHeaders, ProblemKind};
use crate::request::{BodyBudget, Call};
use crate::route::{self, CheckLogin, IDEMPOTENCY_KEY, RequestLimits, RouterOptions};

pub use command_server::{CommandClient, CommandServer, NotReady, TokenOwner};
pub(crate) use dashboard::problem_page;
pub(crate) use login::RequestClient;

use events::Events;
use idempotency::Idempotency;
use login::Logins;

type Result<T, E = Problem> = std::result::Result<T, E>;

/// The maximum size of a body without another one in [`ApiOptions`], in bytes: that of a document in Extended JSON, which is longer than BSON.
pub const BODY_BYTES_MAX: usize = 16 * 1024 * 1024;

/// The number of bodies of the maximum size that there is room for. Their values take many times the memory of their text.
const LARGE_BODIES_MAX: usize = 2;

/// The part of the path that names the collection, of most patterns.
const SUBJECT: &str = "collection";

/// The way to log in.
const CHALLENGE: &str = "Basic realm=\"handfast\", charset=\"UTF-8\"";

/// The fields of a reply that tell drivers about the server, and not about the command.
const DRIVER_FIELDS: [&str; 4] = ["ok", "$clusterTime", "operationTime", "recoveryToken"];

/// The settings of the API.
#[derive(Clone, Debug)]
pub struct ApiOptions {
    /// The rules of access to the routes. The users of the server log in with their passwords, so that there are no tokens in it.
    pub access: AccessOptions,
    /// The time that a request may take once it has arrived, with the time for which a claim waits for jobs. A write goes on afterwards.
    pub request_time_max: Duration,
    /// Whether requests without a login may name the server by any host.
    pub any_host: bool,
    /// The number of requests that each client may send.
    pub client_limit: Option<ClientLimit>,
    /// The header in which a proxy names the client's address, as the last one.
    pub client_address_header: Option<HeaderName>,
    /// The maximum size of a body, in bytes. Twice as much is the maximum size of all large bodies together.
    pub body_bytes_max: usize,
}

impl Default for ApiOptions {
    /// A request may take 60 seconds, a body has at most 16 MiB, and clients may send as many as they like.
    fn default() -> Self {
        ApiOptions {
            access: AccessOptions::default(),
            request_time_max: Duration::from_secs(60),
            any_host: false,
            client_limit: None,
            client_address_header: None,
            body_bytes_max: BODY_BYTES_MAX,
        }
    }
}

/// The state that all handlers use.
struct Api {
    logins: Arc<Logins>,
    idempotency: Arc<Idempotency>,
    /// Writes that run hold it for reading.
    running: Arc<RwLock<()>>,
    document: Bytes,
    clock: Arc<dyn Clock>,
    requests: Arc<RequestMetrics>,
    events: Arc<Events>,
    server: Arc<dyn CommandServer>,
    readiness: readiness::LastCheck,
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
    let running = Arc::default();
    let shutdown_grace = connections.shutdown_grace;
    let router = build(server, sources, options, stop.clone(), Arc::clone(&running));
    serve_connections(listeners, router, connections, stop).await;
    // Writes whose clients are gone.
    if tokio::time::timeout(shutdown_grace, running.write()).await.is_err() {
        tracing::warn!("requests still run after the grace period, and end with the server");
    }
}

/// Makes the router of the API. `stop` ends the claims that wait for jobs.
pub fn router(
    server: Arc<dyn CommandServer>,
    sources: &Sources,
    options: ApiOptions,
    stop: CancellationToken,
) -> Router {
    build(server, sources, options, stop, Arc::default())
}

fn build(
    server: Arc<dyn CommandServer>,
    sources: &Sources,
    options: ApiOptions,
    stop: CancellationToken,
    running: Arc<RwLock<()>>,
) -> Router {
    let limits = RequestLimits {
        body_bytes_max: options.body_bytes_max,
        request_time_max: options.request_time_max,
        problem_headers: ProblemHeaders { retry_after_seconds: 1, challenge: CHALLENGE },
    };
    let document = format!("{}\n", openapi::document(&routes::ROUTES, schemas::description()));
    let logins = Arc::new(Logins::new(Arc::clone(&server), sources));
    let pages = || dashboard::routes::ROUTES.iter().chain(&dashboard::routes::FILES);
    let all = || routes::ROUTES.iter().chain(pages());
    let requests = Arc::new(RequestMetrics::new(all().map(|route| route.operation)));
    let router_options = RouterOptions {
        access: AccessOptions { tokens: Vec::new(), ..options.access },
        limits,
        body_budget: BodyBudget::new(options.body_bytes_max.saturating_mul(LARGE_BODIES_MAX)),
        limiter: options.client_limit.map(Limiter::new),
        limiters_of_kinds: BTreeMap::new(),
        addresses: ClientAddresses::new(options.client_address_header),
        clock: Arc::clone(&sources.clock),
        metrics: Arc::clone(&requests),
        check_login: Some(check_login(Arc::clone(&logins), options.any_host)),
    };
    let api = Api {
        logins,
        idempotency: Arc::new(Idempotency::new(sources.clone())),
        running,
        document: document.into(),
        clock: Arc::clone(&sources.clock),
        requests,
        events: Arc::new(Events::new(Arc::clone(&sources.clock))),
        server,
        readiness: readiness::LastCheck::default(),
        stop,
    };
    route::router(all(), api, router_options)
}

/// Returns the check of a request before its body is read.
fn check_login(logins: Arc<Logins>, any_host: bool) -> CheckLogin {
    Box::new(move |access, headers, address| {
        let logins = Arc::clone(&logins);
        Box::pin(async move {
            // A page that has given its name the address of this server is one of its own pages for a browser.
            if (!any_host || access == RouteAccess::PageWrite) && !logins.are_required() {
                check_host(headers)?;
            }
            logins.check(headers, address).await
        })
    })
}

/// Refuses a request to another host than this machine by its own name. A web page can give its own name the address of the reader's machine, and then read what a server there
/// returns without a login.
fn check_host(headers: &HeaderMap) -> Result<()> {
    let Some(host) = headers.get(HOST) else { return Ok(()) };
    let host = host.to_str().unwrap_or_default();
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let is_address = name.trim_matches(['[', ']']).parse::<IpAddr>().is_ok();
    if is_address || name.eq_ignore_ascii_case("localhost") || name.to_ascii_lowercase().ends_with(".localhost") {
        return Ok(());
    }
    let detail = format!(
        "the header Host is {host:?}: without a login, requests name the server by its address or as localhost"
    );
    Err(Problem::new(ProblemKind::OriginRefused, detail))
}

impl Api {
    /// Returns the client whose login was checked before the body was read; another one with this login if it is in use.
    async fn client(&self, call: &Call) -> Result<RequestClient> {
        match call.take_client() {
            Some(client) => Ok(client),
            None => self.logins.client(&call.headers).await,
        }
    }

    /// Runs a command that changes something, once for each idempotency key, if the request has one.
    async fn write(&self, call: &Call, command: Document) -> Result<Response> {
        let mut client = self.client(call).await?;
        let (database, key) = (call.path("database").to_owned(), call.header(IDEMPOTENCY_KEY)?.map(str::to_owned));
        let idempotency = Arc::clone(&self.idempotency);
        let work = async move {
            match key {
                Some(key) => idempotency.run(&mut client, &database, &key, &command).await,
                None => client.run(&database, &command).await,
            }
        };
        self.run_to_the_end(work).await
    }

    /// Runs a write to its end, also if the client is gone: its steps would stop between two documents.
    async fn run_to_the_end(&self, work: impl Future<Output = Result<Document>> + Send + 'static) -> Result<Response> {
        self.finish(work).await.map(answer)
    }

    async fn finish(&self, work: impl Future<Output = Result<Document>> + Send + 'static) -> Result<Document> {
        let running = Arc::clone(&self.running).read_owned().await;
        let task = tokio::spawn(async move {
            let result = work.await;
            drop(running);
            result
        });
        match task.await {
            Ok(result) => result,
            Err(error) => Err(Problem::new(ProblemKind::OutcomeUnknown, format!("the request has failed: {error}"))),
        }
    }

    /// Runs a command that cannot be part of a transaction, and so has no idempotency key.
    async fn step(&self, call: &Call, command: Document) -> Result<Response> {
        refuse_key(call)?;
        let mut client = self.client(call).await?;
        let database = call.path("database").to_owned();
        self.run_to_the_end(async move { client.run(&database, &command).await }).await
    }

    /// Runs a command that a form of the dashboard sends, and returns its reply.
    async fn page_step(&self, call: &Call, command: Document) -> Result<Document> {
        let mut client = self.client(call).await?;
        let database = call.path("database").to_owned();
        self.finish(async move { client.run(&database, &command).await }).await
    }

    /// Runs a command that changes nothing.
    async fn read(&self, call: &Call, command: Document) -> Result<Response> {
        let mut client = self.client(call).await?;
        Ok(answer(client.run(call.path("database"), &command).await?))
    }
}

async fn document(api: &Api) -> Result<Response> {
    Ok(([(CONTENT_TYPE, "application/json")], api.document.clone()).into_response())
}

async fn server_metrics(api: &Api, call: Call) -> Result<Response> {
    let mut client = api.client(&call).await?;
    let status = client.run("admin", &doc! { "serverStatus": 1 }).await?;
    let headers = [(CONTENT_TYPE, MEDIA_TYPE), (CACHE_CONTROL, "no-store")];
    Ok((headers, metrics::text(&status, &api.requests)).into_response())
}

async fn healthy() -> Result<Response> {
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Returns the body as a document; an empty one if there is no body. Fields named in `dates` may be texts, such as `2026-11-27T10:00:00Z`.
fn body(call: &Call, dates: &[&str]) -> Result<Document> {
    read_body(call.json::<Value>()?.unwrap_or_else(|| json!({})), dates)
}

fn read_body(body: Value, dates: &[&str]) -> Result<Document> {
    check_numbers(&body).map_err(|error| Problem::invalid(format!("the body is invalid: {error}")))?;
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
    let mut body = call.json::<Value>()?.unwrap_or_else(|| json!({}));
    // A worker sends back the whole job of its claim. Its details need not be Extended JSON.
    if let Some(job) = body.get_mut("job").and_then(Value::as_object_mut) {
        job.retain(|name, _| ["_id", "claim"].contains(&name.as_str()));
    }
    let mut command = doc! { name: call.path(subject) };
    for (name, value) in read_body(body, &[])? {
        if !known.contains(&name.as_str()) {
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            return Err(Problem::invalid(format!("the body has the unknown field {name:?}; the fields are: {known}")));
        }
        command.insert(name, value);
    }
    Ok(command)
}

/// Returns a command about the transaction or the document of the path; the body has the other arguments.
fn of_path(call: &Call, name: &str, argument: &str, known: &[&str]) -> Result<Document> {
    let mut command = command(call, name, SUBJECT, known)?;
    command.insert(argument, doc! { "_id": path_id(call, argument)? });
    Ok(command)
}

/// Refuses an idempotency key, which would have no meaning.
fn refuse_key(call: &Call) -> Result<()> {
    if call.header(IDEMPOTENCY_KEY)?.is_none() {
        return Ok(());
    }
    let text = "this request takes no Idempotency-Key, as it cannot be part of a transaction; the page of its command says what it does if it is sent again";
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

/// Adds a parameter of the query that is an integer, if it is there.
fn put_integer(command: &mut Document, call: &Call, name: &str) -> Result<()> {
    if let Some(text) = call.query(name) {
        let number = text
            .parse()
            .map_err(|_| Problem::invalid(format!("the query parameter {name} must be an integer, and is {text:?}")))?;
        command.insert(name, Bson::Int64(number));
    }
    Ok(())
}

fn answer(mut reply: Document) -> Response {
    for name in DRIVER_FIELDS {
        reply.remove(name);
    }
    let text = format!("{}\n", extended_json(&Bson::Document(reply)));
    // An answer is about documents as they are now, or a secret.
    ([(CONTENT_TYPE, "application/json"), (CACHE_CONTROL, "no-store")], text).into_response()
}

#[cfg(test)]
mod tests;
