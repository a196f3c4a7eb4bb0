//! The HTTP service of the view counters.
//!
//! The table of routes (`routes.rs`) says what there is; [`router`] makes a service of it, and [`serve`] runs it with the passes that save views.
//!
//! The word `top` is a part of a path (`GET /v1/ads/top`), so no item can have it as its id: a request that names such an item is refused.

mod badge;
mod bots;
mod handlers;
mod instances;
mod metrics;
mod pages;
mod pixel;
mod replies;
mod routes;
mod schemas;
mod status;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::http::HeaderName;
use handfast_counters::{Counters, Flushed, Kind, PassError};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::access::AccessOptions;
use crate::client::{ClientAddresses, ClientLimit, Limiter};
use crate::connections::{ConnectionOptions, serve_connections};
use crate::metrics::RequestMetrics;
use crate::openapi;
use crate::problem::ProblemHeaders;
use crate::request::BodyBudget;
use crate::route::{self, RequestLimits, RouterOptions};

use instances::ThisInstance;
use metrics::ViewMetrics;
use status::Summaries;

pub use bots::BotPolicy;

pub use routes::{RESERVED_ID, check_reserved};

/// The maximum size of a body, in bytes: more than a number of views needs, with room for white space.
pub const BODY_BYTES_MAX: usize = 4 * 1024;

/// The settings of the service.
#[derive(Clone, Debug)]
pub struct ServiceOptions {
    /// The rules of access to the routes.
    pub access: AccessOptions,
    /// The time that a request may take once it has arrived.
    pub request_time_max: Duration,
    /// The kinds that count one view of each visitor in a window of time, at most [a day](handfast_counters::VISITOR_WINDOW_MAX).
    pub visitor_windows: BTreeMap<Kind, Duration>,
    /// The treatment of views by bots.
    pub bots: BotPolicy,
    /// That of some kinds, in its place.
    pub bots_of_kinds: BTreeMap<Kind, BotPolicy>,
    /// The kinds whose views pages of all origins may count without a token, by a picture (`pixel.gif`).
    pub pixels: BTreeSet<Kind>,
    /// The number of requests that each client may send.
    pub client_limit: Option<ClientLimit>,
    /// The number of requests for some kinds that each client may send, in its place.
    pub client_limits_of_kinds: BTreeMap<Kind, ClientLimit>,
    /// The header in which a proxy names the client's address, as the last one. Without a proxy that sets it, clients could choose their addresses. A
    /// request that counts without such an address is warned about once; `Forwarded`, whose addresses are within parameters, cannot be read.
    pub client_address_header: Option<HeaderName>,
}

impl Default for ServiceOptions {
    /// Everybody who can reach the service may send requests, as many as they like, which take at most 30 seconds. Each view is counted.
    fn default() -> Self {
        ServiceOptions {
            access: AccessOptions::default(),
            request_time_max: Duration::from_secs(30),
            visitor_windows: BTreeMap::new(),
            bots: BotPolicy::default(),
            bots_of_kinds: BTreeMap::new(),
            pixels: BTreeSet::new(),
            client_limit: None,
            client_limits_of_kinds: BTreeMap::new(),
            client_address_header: None,
        }
    }
}

/// The state that all handlers share.
struct Service {
    counters: Counters,
    /// The OpenAPI document.
    document: Bytes,
    visitor_windows: BTreeMap<Kind, Duration>,
    bots: BotPolicy,
    bots_of_kinds: BTreeMap<Kind, BotPolicy>,
    pixels: BTreeSet<Kind>,
    requests: Arc<RequestMetrics>,
    views: Arc<ViewMetrics>,
    instance: ThisInstance,
    summaries: Summaries,
}

/// Creates the router of the service. It lists the instances that run, and does not announce this one: [`serve`] does.
pub fn router(counters: Counters, options: ServiceOptions) -> Router {
    let (instance, views) = this_instance(&counters, Vec::new());
    router_of(instance, views, counters, options)
}

/// Returns the instance that listens on these addresses, and the views that it counts.
fn this_instance(counters: &Counters, addresses: Vec<SocketAddr>) -> (ThisInstance, Arc<ViewMetrics>) {
    let views = Arc::new(ViewMetrics::default());
    (ThisInstance::new(counters.clone(), addresses, Arc::clone(&views)), views)
}

fn router_of(instance: ThisInstance, views: Arc<ViewMetrics>, counters: Counters, options: ServiceOptions) -> Router {
    // The next pass makes room in a full queue.
    let retry_after_seconds = counters.options().flush_interval.as_secs().max(1);
    let limits = RequestLimits {
        body_bytes_max: BODY_BYTES_MAX,
        request_time_max: options.request_time_max,
        problem_headers: ProblemHeaders { retry_after_seconds, challenge: "Bearer" },
    };
    let document = format!("{}\n", openapi::document(&routes::ROUTES, schemas::description()));
    let requests = Arc::new(RequestMetrics::new(routes::ROUTES.iter().map(|route| route.operation)));
    let router_options = RouterOptions {
        access: options.access,
        limits,
        // No body is large.
        body_budget: BodyBudget::new(0),
        check_login: None,
        limiter: options.client_limit.map(Limiter::new),
        limiters_of_kinds: options
            .client_limits_of_kinds
            .into_iter()
            .map(|(kind, limit)| (kind.to_string(), Limiter::new(limit)))
            .collect(),
        addresses: ClientAddresses::new(options.client_address_header),
        clock: Arc::clone(&counters.sources().clock),
        metrics: Arc::clone(&requests),
    };
    let service = Service {
        instance,
        summaries: Summaries::default(),
        counters,
        document: document.into(),
        visitor_windows: options.visitor_windows,
        bots: options.bots,
        bots_of_kinds: options.bots_of_kinds,
        pixels: options.pixels,
        requests,
        views,
    };
    route::router(&routes::ROUTES, service, router_options)
}

/// Serves the counters on a listener, saves their views, and announces itself to the other instances, until `stop` is canceled. Then it answers the
/// requests in progress, saves what is in the queue, withdraws, and returns what the last pass has saved.
///
/// # Errors
/// That of the last pass: the views that it has not saved are in the queue, which is durable.
pub async fn serve(
    listener: TcpListener,
    counters: Counters,
    service: ServiceOptions,
    connections: ConnectionOptions,
    stop: CancellationToken,
) -> Result<Flushed, PassError> {
    serve_all(vec![listener], counters, service, connections, stop).await
}

/// Serves the counters on several listeners, as [`serve`] does on one.
///
/// # Errors
/// Those of [`serve`].
pub async fn serve_all(
    listeners: Vec<TcpListener>,
    counters: Counters,
    service: ServiceOptions,
    connections: ConnectionOptions,
    stop: CancellationToken,
) -> Result<Flushed, PassError> {
    let saving = CancellationToken::new();
    let addresses = listeners.iter().filter_map(|listener| listener.local_addr().ok()).collect();
    let (instance, views) = this_instance(&counters, addresses);
    let router = router_of(instance.clone(), views, counters.clone(), service);
    let serving = async {
        serve_connections(listeners, router, connections, stop).await;
        saving.cancel();
    };
    let announcing = instance.announce_until(saving.clone());
    let ((), flushed, ()) = tokio::join!(serving, counters.run(saving.clone()), announcing);
    flushed
}
