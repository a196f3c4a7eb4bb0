//! The HTTP service of the view counters.
//!
//! The table of routes (`routes.rs`) says what there is; [`router`] makes a service of it, and [`serve`] runs it with the passes that save views.
//!
//! The word `top` is a part of a path (`GET /v1/ads/top`), so no item can have it as its id: a request that names such an item is refused.

mod badge;
mod handlers;
mod replies;
mod routes;
mod schemas;

use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use handfast_counters::{Counters, Flushed, Result};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::access::AccessOptions;
use crate::connections::{ConnectionOptions, serve_connections};
use crate::openapi;
use crate::route::{self, RequestLimits};

pub use routes::RESERVED_ID;

/// The maximum size of a body, in bytes: more than a number of views needs, with room for white space.
pub const BODY_BYTES_MAX: usize = 4 * 1024;

/// The settings of the service.
#[derive(Clone, Debug)]
pub struct ServiceOptions {
    /// The rules of access to the routes.
    pub access: AccessOptions,
    /// The time that a request may take once it has arrived.
    pub request_time_max: Duration,
}

impl Default for ServiceOptions {
    /// Everybody who can reach the service may send requests, which take at most 30 seconds.
    fn default() -> Self {
        ServiceOptions { access: AccessOptions::default(), request_time_max: Duration::from_secs(30) }
    }
}

/// The state that all handlers share.
struct Service {
    counters: Counters,
    /// The OpenAPI document.
    document: Bytes,
}

/// Creates the router of the service.
pub fn router(counters: Counters, options: ServiceOptions) -> Router {
    // The next pass makes room in a full queue.
    let retry_after_seconds = counters.options().flush_interval.as_secs().max(1);
    let limits = RequestLimits {
        body_bytes_max: BODY_BYTES_MAX,
        request_time_max: options.request_time_max,
        retry_after_seconds,
    };
    let document = openapi::document(&routes::ROUTES, schemas::description()).to_string();
    let service = Service { counters, document: document.into() };
    route::router(&routes::ROUTES, service, options.access, limits)
}

/// Serves the counters on a listener, and saves their views, until `stop` is canceled. Then it answers the requests in progress, saves what is
/// in the queue, and returns what the last pass has saved.
///
/// # Errors
/// Those of the last pass: the views that it has not saved are in the queue, which is durable, and saved after the next start.
pub async fn serve(
    listener: TcpListener,
    counters: Counters,
    service: ServiceOptions,
    connections: ConnectionOptions,
    stop: CancellationToken,
) -> Result<Flushed> {
    let saving = CancellationToken::new();
    let router = router(counters.clone(), service);
    let serving = async {
        serve_connections(listener, router, connections, stop).await;
        saving.cancel();
    };
    let ((), flushed) = tokio::join!(serving, counters.run(saving.clone()));
    flushed
}
