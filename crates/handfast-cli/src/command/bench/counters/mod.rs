//! `handfast bench counters`: the view counters against a route that answers a constant, under the load of the service that they follow, and in Redis
//! against bare commands.
//!
//! ```text
//! clients --HTTP--> service        reads from the cache, writes that wait for a sync they share     embedded form
//!         --HTTP--> constant       the same connections, paths and headers, nothing behind them
//! tasks   --------> buffer ------> Redis                                                            with --redis
//!         -----------------------> Redis: GET, a script of three calls
//! ```

mod flush;
mod http_client;
mod mixed;
mod redis;
mod requests;
mod service;

use anyhow::Result;
use handfast_embedded::EmbeddedStore;
use handfast_store::Sources;
use serde::Serialize;

use self::service::Service;
use super::Promises;
use super::report::{self, Comparison, Measurement, Promised};

pub(super) struct Plan {
    /// The number of connections, and of tasks on Redis.
    pub(super) connections: usize,
    pub(super) items: u64,
    pub(super) seconds: f64,
    pub(super) rounds: usize,
    pub(super) promises: Promises,
}

/// The figures of a run: those with a baseline, and those with a bound.
pub(super) struct Figures {
    comparisons: Vec<Comparison>,
    measurements: Vec<Measurement>,
}

/// A figure, for JSON.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum Figure<'a> {
    Comparison(&'a Comparison),
    Measurement(&'a Measurement),
}

impl Figures {
    /// Returns all figures, in the order of the tables.
    pub(super) fn all(&self) -> Vec<Figure<'_>> {
        let comparisons = self.comparisons.iter().map(Figure::Comparison);
        comparisons.chain(self.measurements.iter().map(Figure::Measurement)).collect()
    }

    /// Returns the two tables.
    pub(super) fn tables(&self) -> String {
        format!("{}\n{}", report::table(&self.comparisons), report::measurements(&self.measurements))
    }
}

impl Promised for Figure<'_> {
    fn missed(&self) -> Option<String> {
        match self {
            Figure::Comparison(comparison) => comparison.missed(),
            Figure::Measurement(measurement) => measurement.missed(),
        }
    }
}

/// Runs all cases; those of Redis if there is a URL.
pub(super) async fn run(
    plan: &Plan,
    embedded: &EmbeddedStore,
    redis: Option<&str>,
    sources: &Sources,
    progress: &(dyn Fn(&str) + Sync),
) -> Result<Figures> {
    // First, so that a wrong URL is an error at once.
    let buffer = match redis {
        Some(url) => Some(redis::connect(url, sources).await?),
        None => None,
    };
    progress("counting a view of each item");
    let service = Service::start(embedded.clone(), sources.clone(), plan).await?;
    let [reads, views, few_views, scattered_views, mixed] = service.compare(plan, progress).await?;
    progress("the load of the service");
    let mut measurements = mixed::run(plan, &sources.clock, &service).await?;
    measurements.push(mixed::at_full_load(&mixed));
    service.stop().await?;
    progress("operations, counted");
    measurements.extend(flush::run(embedded, sources).await?);
    let mut comparisons = vec![reads, views, few_views, scattered_views, mixed];
    if let Some(buffer) = buffer {
        comparisons.extend(redis::run(plan, buffer, sources, progress).await?);
    }
    Ok(Figures { comparisons, measurements })
}
