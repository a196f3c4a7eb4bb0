//! Routes as a table, from which the router and the OpenAPI document are made, so that neither can have what the other has not.

use std::collections::BTreeMap;
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderName, RETRY_AFTER};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::Response;
use axum::routing::{MethodFilter, on};
use handfast_store::Clock;
use tower_http::cors::CorsLayer;

use crate::access::{AccessOptions, RouteAccess};
use crate::api::{RequestClient, problem_page};
use crate::client::{Client, ClientAddresses, Limiter};
use crate::metrics::RequestMetrics;
use crate::problem::{Outcome, Problem, ProblemHeaders, ProblemKind};
use crate::request::{self, BodyBudget, BodyLimits, Call};
use crate::unread_body::UnreadBody;

/// The header by which a repeated request is recognised.
pub(crate) const IDEMPOTENCY_KEY: &str = "idempotency-key";
/// The header that names the visitor whose view is counted.
pub(crate) const VISITOR: &str = "visitor";
/// How long a browser may remember what is allowed.
const CORS_TIME: Duration = Duration::from_secs(3_600);

/// The answer of a handler, later.
pub(crate) type Answer<'a> = Pin<Box<dyn Future<Output = Result<Response, Problem>> + Send + 'a>>;

/// Checks the headers of a request from an address, which wants to use a route.
pub(crate) type CheckLogin =
    Box<dyn for<'a> Fn(RouteAccess, &'a HeaderMap, Option<IpAddr>) -> Checked<'a> + Send + Sync>;

/// The client with the login that was checked, later.
pub(crate) type Checked<'a> = Pin<Box<dyn Future<Output = Result<RequestClient, Problem>> + Send + 'a>>;

/// A route: a method of a path.
pub(crate) struct Route<S: 'static> {
    pub(crate) method: RouteMethod,
    pub(crate) path: &'static str,
    /// The name of the operation in the OpenAPI document.
    pub(crate) operation: &'static str,
    /// The group of operations that it belongs to.
    pub(crate) tag: &'static Tag,
    pub(crate) summary: &'static str,
    pub(crate) access: RouteAccess,
    pub(crate) query: &'static [Parameter],
    pub(crate) headers: &'static [Parameter],
    /// The schema of the body, which may be left out.
    pub(crate) body: Option<&'static str>,
    pub(crate) reply: Reply,
    /// The problems that the route itself has, beside those of every route.
    pub(crate) problems: &'static [ProblemKind],
    pub(crate) handler: for<'a> fn(&'a S, Call) -> Answer<'a>,
}

/// A group of operations, under which pages and generated clients have them.
pub(crate) struct Tag {
    pub(crate) name: &'static str,
    pub(crate) description: &'static str,
}

/// The methods of routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RouteMethod {
    Get,
    Post,
    Delete,
}

/// A parameter of a query, or a header.
pub(crate) struct Parameter {
    pub(crate) name: &'static str,
    pub(crate) description: &'static str,
    pub(crate) required: bool,
    pub(crate) value: ParameterValue,
}

/// The values of a parameter.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ParameterValue {
    Integer {
        maximum: u64,
    },
    /// A whole number of 0 or more.
    Place,
    Date,
    OneOf {
        values: &'static [&'static str],
    },
    Text {
        length_max: usize,
    },
}

/// The answer to a request that succeeded.
pub(crate) enum Reply {
    Json {
        schema: &'static str,
    },
    Svg,
    Gif,
    /// A file of the program, or another text.
    Text {
        /// The media types that it may have.
        media_types: &'static [&'static str],
    },
    /// A document that is JSON of another kind.
    Document,
    /// A page for people, as are its problems.
    Page,
    NoContent,
}

/// The limits of requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestLimits {
    pub(crate) body_bytes_max: usize,
    pub(crate) request_time_max: Duration,
    pub(crate) problem_headers: ProblemHeaders,
}

/// The settings that all routes share.
pub(crate) struct RouterOptions {
    pub(crate) access: AccessOptions,
    pub(crate) limits: RequestLimits,
    pub(crate) body_budget: BodyBudget,
    /// Checks the login of a request before its body is read, beside the tokens of `access`.
    pub(crate) check_login: Option<CheckLogin>,
    /// The number of requests that each client may send.
    pub(crate) limiter: Option<Limiter>,
    /// The number of requests for a kind that each client may send, in the place of the limit of all requests. Paths name the kind as `kind`.
    pub(crate) limiters_of_kinds: BTreeMap<String, Limiter>,
    pub(crate) addresses: ClientAddresses,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) metrics: Arc<RequestMetrics>,
}

struct Shared<S> {
    service: S,
    options: RouterOptions,
}

impl RouteMethod {
    pub(crate) fn name(self) -> &'static str {
        match self {
            RouteMethod::Get => "get",
            RouteMethod::Post => "post",
            RouteMethod::Delete => "delete",
        }
    }

    fn filter(self) -> MethodFilter {
        match self {
            RouteMethod::Get => MethodFilter::GET,
            RouteMethod::Post => MethodFilter::POST,
            RouteMethod::Delete => MethodFilter::DELETE,
        }
    }
}

/// Makes the router of tables of routes.
pub(crate) fn router<S: Send + Sync + 'static>(
    routes: impl IntoIterator<Item = &'static Route<S>>,
    service: S,
    options: RouterOptions,
) -> Router {
    let cors = cors(&options.access);
    let say = options.limits.problem_headers;
    let metrics = [Arc::clone(&options.metrics), Arc::clone(&options.metrics)];
    let shared = Arc::new(Shared { service, options });
    let mut router = Router::new();
    for (at, route) in routes.into_iter().enumerate() {
        let shared = Arc::clone(&shared);
        let handler = move |request: Request| answer(route, at, Arc::clone(&shared), request);
        router = router.route(route.path, on(route.method.filter(), handler));
    }
    let [of_paths, of_methods] = metrics;
    let refused = move |metrics: &RequestMetrics, method: &Method, kind, detail: String| {
        metrics.count(None, ProblemKind::status(kind), Some(kind), Duration::ZERO);
        // A client that sent a request that writes, to a wrong path, knows that it changed nothing.
        let outcome = (!method.is_safe()).then_some(Outcome::NotApplied);
        Problem::new(kind, detail).into_response(outcome, say)
    };
    let not_found = move |request: Request| async move {
        let detail = "there is no such path: /openapi.json lists those that are there".to_owned();
        let mut response = refused(&of_paths, request.method(), ProblemKind::NotFound, detail);
        UnreadBody::new(request.into_body()).finish(&mut response).await;
        response
    };
    let not_allowed = move |request: Request| async move {
        let method = request.method();
        let detail = format!("the path has no method {method}: the header Allow lists those that it has");
        let mut response = refused(&of_methods, method, ProblemKind::MethodNotAllowed, detail);
        UnreadBody::new(request.into_body()).finish(&mut response).await;
        response
    };
    let router = router.fallback(not_found).method_not_allowed_fallback(not_allowed);
    match cors {
        Some(cors) => router.layer(cors),
        None => router,
    }
}

/// Returns what browsers are told; nothing if no origin is allowed.
fn cors(access: &AccessOptions) -> Option<CorsLayer> {
    if access.allowed_origins.is_empty() {
        return None;
    }
    let own = [IDEMPOTENCY_KEY, VISITOR].map(HeaderName::from_static);
    let headers: Vec<HeaderName> = [AUTHORIZATION, CONTENT_TYPE].into_iter().chain(own).collect();
    let cors = CorsLayer::new().allow_origin(access.allowed_origins.clone()).allow_headers(headers);
    let methods = [Method::GET, Method::POST, Method::DELETE];
    Some(cors.allow_methods(methods).expose_headers([RETRY_AFTER]).max_age(CORS_TIME))
}

async fn answer<S: Send + Sync>(
    route: &'static Route<S>,
    at: usize,
    shared: Arc<Shared<S>>,
    request: Request,
) -> Response {
    let RouterOptions { clock, metrics, limits, .. } = &shared.options;
    let begun = clock.elapsed();
    let (parts, body) = request.into_parts();
    let mut body = UnreadBody::new(body);
    let result = checked(route, &shared, parts, &mut body).await;
    let problem = result.as_ref().err().map(|problem| problem.kind);
    let mut response = response(route, *limits, result);
    body.finish(&mut response).await;
    metrics.count(Some(at), response.status(), problem, clock.elapsed().saturating_sub(begun));
    response
}

fn response<S>(route: &Route<S>, limits: RequestLimits, result: Result<Response, Problem>) -> Response {
    let writes = route.access.writes();
    match result {
        Ok(response) => response,
        Err(problem) => {
            let outcome = match problem.kind {
                _ if !writes => None,
                ProblemKind::OutcomeUnknown => Some(Outcome::Unknown),
                _ => Some(Outcome::NotApplied),
            };
            match route.reply {
                Reply::Page => problem_page(&problem, outcome, limits.problem_headers.challenge),
                _ => problem.into_response(outcome, limits.problem_headers),
            }
        }
    }
}

async fn checked<S: Send + Sync>(
    route: &'static Route<S>,
    shared: &Shared<S>,
    mut parts: Parts,
    body: &mut UnreadBody,
) -> Result<Response, Problem> {
    let path = Call::path_of(&mut parts).await;
    let RouterOptions { access, limits, addresses, .. } = &shared.options;
    let address = addresses.address(&parts.extensions, &parts.headers);
    // Before the token is looked at: a client that tries tokens is limited by its address.
    if route.access != RouteAccess::Open {
        let kind = path.as_ref().ok().and_then(|path| request::parameter(path, "kind"));
        shared.options.take(kind, &parts.headers, address)?;
    }
    access.check(route.access, &parts.headers)?;
    let client = match &shared.options.check_login {
        Some(check_login) if route.access != RouteAccess::Open => {
            Some(check_login(route.access, &parts.headers, address).await?)
        }
        _ => None,
    };
    // Others are also asked from beside the proxy, such as /metrics.
    if route.access.writes() {
        addresses.check(&parts.headers);
    }
    let bytes_max = if route.body.is_some() { limits.body_bytes_max } else { 0 };
    let body_limits = BodyLimits { bytes_max, budget: &shared.options.body_budget };
    let known = route.query.iter().map(|parameter| parameter.name);
    let call = Call::read(parts, path?, address, body, known, body_limits).await?.with_client(client);
    let time = limits.request_time_max;
    match tokio::time::timeout(time, (route.handler)(&shared.service, call)).await {
        Ok(answer) => answer,
        Err(_) => {
            let detail = format!("there was no answer within {} seconds", time.as_secs());
            let kind = if route.access.writes() { ProblemKind::OutcomeUnknown } else { ProblemKind::Unavailable };
            Err(Problem::new(kind, detail))
        }
    }
}

impl RouterOptions {
    /// Counts a request of a client, for a kind if its path names one, if there is a limit.
    fn take(&self, kind: Option<&str>, headers: &HeaderMap, address: Option<IpAddr>) -> Result<(), Problem> {
        let of_kind = kind.and_then(|kind| self.limiters_of_kinds.get(kind));
        let Some(limiter) = of_kind.or(self.limiter.as_ref()) else { return Ok(()) };
        let client = Client::new(self.access.token(headers), address);
        limiter.take(client, self.clock.elapsed()).map_err(|wait| {
            let detail = "the client has sent more requests than it may: send this one again after Retry-After seconds";
            Problem { retry_after: Some(wait), ..Problem::new(ProblemKind::TooManyRequests, detail) }
        })
    }
}

impl<S> Route<S> {
    /// Returns the problems of the route, in the order of their kinds.
    pub(crate) fn all_problems(&self) -> Vec<ProblemKind> {
        let mut problems = self.problems.to_vec();
        problems.push(ProblemKind::InvalidRequest);
        match self.access {
            RouteAccess::Open => {}
            RouteAccess::Read => {
                problems.extend([ProblemKind::Unauthorized, ProblemKind::TooManyRequests, ProblemKind::Unavailable]);
            }
            RouteAccess::Write => problems.extend([
                ProblemKind::Unauthorized,
                ProblemKind::OriginRefused,
                ProblemKind::TooManyRequests,
                ProblemKind::Unavailable,
                ProblemKind::OutcomeUnknown,
            ]),
            RouteAccess::PageWrite => {}
            RouteAccess::PublicWrite => {
                problems.extend([ProblemKind::TooManyRequests, ProblemKind::Unavailable, ProblemKind::OutcomeUnknown]);
            }
        }
        if self.body.is_some() {
            let of_body = [ProblemKind::BodyTimeout, ProblemKind::BodyTooLarge, ProblemKind::UnsupportedMediaType];
            problems.extend(of_body);
        }
        problems.sort();
        problems.dedup();
        problems
    }
}

impl Reply {
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Reply::Json { .. } | Reply::Svg | Reply::Gif | Reply::Text { .. } | Reply::Document | Reply::Page => {
                StatusCode::OK
            }
            Reply::NoContent => StatusCode::NO_CONTENT,
        }
    }
}
