//! Counts a view of each page that axum serves, without keeping the page waiting. The counters are in the same process: there is no other service.
//!
//! ```sh
//! cargo run -p handfast-http --example count_views -- views 127.0.0.1:3000
//! curl http://127.0.0.1:3000/ads/4711
//! curl http://127.0.0.1:3000/v1/ads/4711
//! ```

use std::error::Error;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Path as PathOf, Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{Html, Response};
use axum::routing::get;
use handfast_counters::{Counters, CountersOptions, EmbeddedBuffer, EmbeddedBufferOptions, Item, Storage};
use handfast_embedded::EmbeddedStore;
use handfast_http::counters::{ServiceOptions, router};
use handfast_http::{AccessOptions, ConnectionOptions, TokenHash, serve_connections};
use handfast_store::Sources;
use handfast_txn::Database;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

/// The views that are being counted; more are given up, so that a full disk does not fill the memory.
const WAITING_MAX: usize = 1_000;

#[derive(Clone)]
struct Views {
    counters: Counters,
    places: Arc<Semaphore>,
}

/// Counts a view of the item of a page `/ads/ID`, when the page is made.
async fn count_views(State(views): State<Views>, request: Request, next: Next) -> Response {
    let id = request.uri().path().strip_prefix("/ads/").map(str::to_owned);
    let response = next.run(request).await;
    let item = id.filter(|_| response.status().is_success()).map(|id| Item::new("ads", &id));
    if let (Some(Ok(item)), Ok(place)) = (item, Arc::clone(&views.places).try_acquire_owned()) {
        tokio::spawn(async move {
            if let Err(error) = views.counters.view(item.clone(), 1, None).await {
                tracing::warn!(%item, %error, "a view was not counted");
            }
            drop(place);
        });
    }
    response
}

async fn ad(PathOf(id): PathOf<u64>) -> Html<String> {
    Html(format!("<h1>Ad {id}</h1>"))
}

/// Everybody may read the totals of the site, and only who has the token `COUNTERS_TOKEN` may count and delete over HTTP.
fn access(sources: &Sources) -> AccessOptions {
    // Without any token everybody could: so there is one that nobody knows.
    let unknown = || sources.uuid().iter().map(|byte| format!("{byte:02x}")).collect();
    let token = std::env::var("COUNTERS_TOKEN").ok().filter(|token| !token.is_empty()).unwrap_or_else(unknown);
    AccessOptions { tokens: vec![TokenHash::of(&token)], public_reads: true, ..AccessOptions::default() }
}

async fn open(directory: &Path, sources: Sources) -> Result<(Counters, EmbeddedStore), Box<dyn Error>> {
    let store = EmbeddedStore::open(directory, sources.clone(), Default::default()).await?;
    let storage = Storage::open(Database::local(store.clone(), sources.clone()), "counters").await?;
    let options = EmbeddedBufferOptions::default();
    let buffer = EmbeddedBuffer::open(Arc::new(store.clone()), "counters", &storage, sources.clone(), options).await?;
    Ok((Counters::new(Arc::new(buffer), storage, sources, CountersOptions::default()), store))
}

/// Serves pages and counters until `stop` is canceled, and saves all views.
pub(crate) async fn serve(
    directory: &Path,
    listener: TcpListener,
    stop: CancellationToken,
) -> Result<(), Box<dyn Error>> {
    let sources = Sources::system()?;
    let service = ServiceOptions { access: access(&sources), ..ServiceOptions::default() };
    let (counters, store) = open(directory, sources).await?;
    let views = Views { counters: counters.clone(), places: Arc::new(Semaphore::new(WAITING_MAX)) };
    let pages = Router::new().route("/ads/{id}", get(ad)).layer(from_fn_with_state(views.clone(), count_views));
    // The routes of the counters are beside the pages: /v1/ads/4711 is a total, and / their page.
    let site = pages.merge(router(counters.clone(), service));
    let saving = CancellationToken::new();
    let serving = async {
        serve_connections(vec![listener], site, ConnectionOptions::default(), stop).await;
        // All views are in the queue before the last of them are saved.
        let _all = views.places.acquire_many(WAITING_MAX as u32).await;
        saving.cancel();
    };
    let ((), saved) = tokio::join!(serving, counters.run(saving.clone()));
    drop((counters, views));
    store.close().await?;
    saved?;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().unwrap_or_else(|| "views".to_owned());
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:3000".to_owned());
    let listener = TcpListener::bind(address).await?;
    writeln!(std::io::stdout(), "listening on http://{}", listener.local_addr()?)?;
    let stop = CancellationToken::new();
    let mut terminated = signal(SignalKind::terminate())?;
    let stopping = async {
        tokio::select! {
            _ = terminated.recv() => {}
            _ = tokio::signal::ctrl_c() => {}
        }
        stop.cancel();
    };
    let serving = serve(Path::new(&directory), listener, stop.clone());
    tokio::pin!(serving);
    tokio::select! {
        served = &mut serving => served,
        () = stopping => serving.await,
    }
}
