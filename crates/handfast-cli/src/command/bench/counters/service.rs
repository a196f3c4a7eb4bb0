//! The HTTP service of a data directory, and a route that answers a constant, over the same loop of connections.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use axum::Router;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::routing::{get, post};
use handfast_counters::{Counters, CountersOptions, EmbeddedBufferOptions, Flushed, Item, PassError};
use handfast_embedded::EmbeddedStore;
use handfast_http::counters::{ServiceOptions, serve};
use handfast_http::{ConnectionOptions, serve_connections};
use handfast_store::Sources;
use tokio::net::TcpListener;
use tokio::sync::Mutex;
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use super::super::measure::{InterleavedRounds, Round, interleaved, processor_time, round};
use super::super::report::Comparison;
use super::super::store::scattered;
use super::Plan;
use super::http_client::{HttpClient, read_request, write_request};
use super::requests::{PopularItems, is_view};
use crate::command::counters::opened_counters::counters;

/// The tasks that load the items.
const LOADING_TASKS: u64 = 64;
/// The time between two looks at a queue that is being saved.
const DRAIN_POLL_INTERVAL: Duration = Duration::from_millis(10);
/// How many times more connections count views: each view waits for a sync, and those that wait at the same time share it.
const VIEW_CONNECTIONS: usize = 4;
/// The answer of the constant route, which is as long as an answer of the service with a total.
const CONSTANT: &str = r#"{"kind":"bench","id":"12345","total":1234,"partial":false}"#;

/// A service, and the constant route beside it.
pub(super) struct Service {
    embedded: EmbeddedStore,
    sources: Sources,
    counters: Counters,
    pub(super) address: SocketAddr,
    pub(super) constant: SocketAddr,
    stop: CancellationToken,
    serving: JoinHandle<Result<Flushed, PassError>>,
    answering: JoinHandle<()>,
}

/// The requests of a case.
#[derive(Clone, Copy)]
enum Requests {
    Reads,
    /// Views of items of which few are popular, as on a site.
    Views,
    /// Views of all items alike: nearly each view of a moment is of another item, so that none are summed before they are saved.
    ScatteredViews,
    /// A view after each 33 reads: as many as in the load of the service that the counters follow.
    Mixed,
}

/// The requests of a case, and the connections that send them.
struct Load {
    requests: Requests,
    connections: usize,
    popular: Arc<PopularItems>,
}

impl Requests {
    /// Returns the request that a connection sends at this step.
    fn text(self, connection: usize, step: u64, id: u64) -> Vec<u8> {
        let is_view = match self {
            Requests::Reads => false,
            Requests::Views | Requests::ScatteredViews => true,
            Requests::Mixed => is_view(connection, step),
        };
        if is_view { write_request(id) } else { read_request(id) }
    }
}

impl Service {
    /// Starts both, and counts a view of each item.
    pub(super) async fn start(embedded: EmbeddedStore, sources: Sources, plan: &Plan) -> Result<Self> {
        let (options, buffer) = (CountersOptions::default(), EmbeddedBufferOptions::default());
        let counters = counters(&embedded, "counters", &sources, options, buffer).await?;
        load(&counters, plan.items).await?;
        let (listener, stop) = (loopback().await?, CancellationToken::new());
        let address = listener.local_addr()?;
        let (service, connections) = (ServiceOptions::default(), ConnectionOptions::default());
        let serving = tokio::spawn(serve(listener, counters.clone(), service, connections.clone(), stop.clone()));
        let listener = loopback().await?;
        let constant = listener.local_addr()?;
        let answering = tokio::spawn(serve_connections(vec![listener], constant_router(), connections, stop.clone()));
        Ok(Service { embedded, sources, counters, address, constant, stop, serving, answering })
    }

    /// Compares reads, views, and both mixed with the constant route.
    pub(super) async fn compare(&self, plan: &Plan, progress: &(dyn Fn(&str) + Sync)) -> Result<[Comparison; 5]> {
        let connections = plan.connections;
        progress("totals over HTTP");
        let (reads, _) = self.interleaved(plan, connections, Requests::Reads).await?;
        let reads = Comparison::new("read a total, HTTP", "constant route", &reads, plan.promises.ratio(0.6));
        progress("views over HTTP");
        let many = (connections * VIEW_CONNECTIONS).min(ConnectionOptions::default().open_max);
        let views = self.views("count a view, HTTP", plan, many, Requests::Views).await?;
        let views = views.with_promise(plan.promises.ratio(0.4));
        progress("views over fewer connections");
        let few_views = self.views("count a view, HTTP, fewer", plan, connections, Requests::Views).await?;
        progress("views of scattered items over HTTP");
        let scattered_views = self.views("count a scattered view, HTTP", plan, many, Requests::ScatteredViews).await?;
        progress("totals and views over HTTP");
        let (mixed, _) = self.interleaved(plan, connections, Requests::Mixed).await?;
        let mixed = Comparison::new("33 totals to a view, HTTP", "constant route", &mixed, plan.promises.ratio(0.6));
        Ok([
            reads.with_note(format!("{connections} connections, {} items", plan.items)),
            views,
            few_views,
            scattered_views,
            mixed.with_note(format!("{connections} connections")),
        ])
    }

    /// Compares views with the constant route.
    async fn views(
        &self,
        case: &'static str,
        plan: &Plan,
        connections: usize,
        requests: Requests,
    ) -> Result<Comparison> {
        let before = self.embedded.costs();
        let (rounds, saving) = self.interleaved(plan, connections, requests).await?;
        let after = self.embedded.costs();
        let views = rounds.subject.operations().max(1) as f64;
        let (operations, syncs) = (after.operations - before.operations, after.syncs - before.syncs);
        let note = format!(
            "{connections} connections, {:.2} writes of the store and {:.2} syncs a view, saving included; {:.0} a second until they are saved",
            operations as f64 / views,
            syncs as f64 / views,
            views / (rounds.subject.elapsed() + saving).as_secs_f64(),
        );
        Ok(Comparison::new(case, "constant route", &rounds, None).with_note(note))
    }

    /// Measures requests and the constant route in turns. A round ends with its last answer, and its processor time includes that of saving its views; returns the
    /// time which that took, too.
    async fn interleaved(
        &self,
        plan: &Plan,
        connections: usize,
        requests: Requests,
    ) -> Result<(InterleavedRounds, Duration)> {
        let load = Load { requests, connections, popular: Arc::new(PopularItems::new(plan.items)) };
        let mut saving = Duration::ZERO;
        let baseline = async |_| self.measured(plan, &load, self.constant).await;
        let rounds = interleaved(plan.rounds, baseline, async |_| {
            let mut round = self.measured(plan, &load, self.address).await?;
            let (begun, before) = (self.sources.clock.elapsed(), processor_time());
            self.saved().await;
            saving += self.sources.clock.elapsed().saturating_sub(begun);
            round.processor += processor_time().saturating_sub(before);
            Ok(round)
        });
        let rounds = rounds.await?;
        Ok((rounds, saving))
    }

    async fn measured(&self, plan: &Plan, load: &Load, address: SocketAddr) -> Result<Round> {
        let Load { requests, connections, ref popular } = *load;
        let mut clients = Vec::with_capacity(connections);
        for _ in 0..connections {
            clients.push(Mutex::new(HttpClient::connect(address).await?));
        }
        let (clients, items, popular) = (Arc::new(clients), plan.items, Arc::clone(popular));
        let duration = Duration::from_secs_f64(plan.seconds);
        round(Arc::clone(&self.sources.clock), connections, duration, move |task, step| {
            let clients = Arc::clone(&clients);
            let id = match requests {
                Requests::Views => popular.item(task, step),
                Requests::Reads | Requests::ScatteredViews | Requests::Mixed => scattered(task, step, items),
            };
            async move {
                let client = clients.get(task).context("a task without a connection")?;
                let request = requests.text(task, step, id);
                client.lock().await.send(&request).await.map(drop)
            }
        })
        .await
    }

    /// Waits until all views are saved.
    async fn saved(&self) {
        while self.counters.queues().await.iter().any(|queue| queue.depth.pending > 0 || queue.depth.batches > 0) {
            tokio::time::sleep(DRAIN_POLL_INTERVAL).await;
        }
    }

    /// Stops the service, and fails if a total is not the sum of its days, which would make every figure worthless.
    pub(super) async fn stop(self) -> Result<()> {
        self.stop.cancel();
        self.serving.await??;
        self.answering.await?;
        let differences = self.counters.storage().verify(None, |_| ()).await?.differences;
        ensure!(differences.is_empty(), "the totals of {} items are not the sums of their days", differences.len());
        Ok(())
    }
}

/// Counts a view of each item, and saves them.
async fn load(counters: &Counters, items: u64) -> Result<()> {
    let mut tasks = JoinSet::new();
    for task in 0..LOADING_TASKS {
        let counters = counters.clone();
        tasks.spawn(async move {
            for id in (task..items).step_by(usize::try_from(LOADING_TASKS)?) {
                counters.view(Item::new("bench", &id.to_string())?, 1, None).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(loaded) = tasks.join_next().await {
        loaded??;
    }
    counters.flush().await?;
    Ok(())
}

async fn loopback() -> Result<TcpListener> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?)
}

/// Routes with the paths and headers of the service, without anything behind them.
fn constant_router() -> Router {
    let answer = || async { ([(CONTENT_TYPE, "application/json"), (CACHE_CONTROL, "no-store")], CONSTANT) };
    Router::new().route("/v1/{kind}/{id}", get(answer)).route("/v1/{kind}/{id}/views", post(answer))
}
