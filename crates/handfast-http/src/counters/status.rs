//! The state of the service at this moment, for its page.

use std::collections::HashMap;
use std::time::Duration;

use handfast_counters::jiff::ToSpan as _;
use handfast_counters::jiff::civil::Date;
use handfast_counters::{Error, Kind, KindSummary};
use serde::Serialize;
use tokio::sync::Mutex;

use super::Service;
use super::replies::DayReply;
use super::routes::REPORT_DAYS;

/// The time for which the sums of a kind are shown again.
const SUMMARY_TIME: Duration = Duration::from_secs(10);
/// Sums read all items of a kind. They are shown again for so many times the time that they took, which bounds the work to a tenth of the store's time.
const SUMMARY_COST: u32 = 10;

/// What was read last from the store. One is read at a time, however many ask.
#[derive(Default)]
pub(super) struct Summaries {
    /// The sums by kind.
    sums: Mutex<HashMap<Kind, CachedSummary>>,
    kinds: Mutex<CachedKinds>,
}

/// The kinds that have saved items: also those without a view, as their figures were imported.
#[derive(Default)]
struct CachedKinds {
    kinds: Vec<Kind>,
    until: Option<Duration>,
}

struct CachedSummary {
    summary: KindSummary,
    today: Date,
    until: Duration,
}

#[derive(Serialize)]
pub(super) struct StatusReply {
    version: &'static str,
    buffer: &'static str,
    time_zone: String,
    uptime_seconds: f64,
    views: u64,
    saved: u64,
    ready: bool,
    parts: Vec<PartReply>,
    queues: Vec<QueueReply>,
    kind: Option<KindReply>,
}

#[derive(Serialize)]
pub(super) struct PartReply {
    pub(super) part: &'static str,
    pub(super) detail: &'static str,
}

#[derive(Serialize)]
struct QueueReply {
    kind: String,
    requests: u64,
    batches: u64,
    oldest_seconds: Option<f64>,
}

#[derive(Serialize)]
struct KindReply {
    kind: String,
    views: u64,
    items: u64,
    days: Vec<DayReply>,
}

/// Returns the state; `kind` is the kind whose sums are in it.
pub(super) async fn status(
    service: &Service,
    kind: Option<Kind>,
    parts: Vec<PartReply>,
    ready: bool,
) -> Result<StatusReply, Error> {
    let counters = &service.counters;
    let buffer = counters.buffer();
    let mut queues = Vec::new();
    // A buffer that does not answer is one of the parts.
    for kind in buffer.kinds().await.unwrap_or_default() {
        if let (Ok(depth), Ok(age)) = (buffer.depth(&kind).await, buffer.oldest_age(&kind).await) {
            queues.push(QueueReply {
                kind: kind.to_string(),
                requests: depth.pending,
                batches: depth.batches,
                oldest_seconds: age.map(|age| age.as_secs_f64()),
            });
        }
    }
    // A store that does not answer is one of the parts, and is not waited for again.
    let store_answers = parts.iter().all(|part| part.part != "store");
    for kind in service.summaries.kinds(service, store_answers).await {
        if queues.iter().all(|queue| queue.kind != kind.as_str()) {
            queues.push(QueueReply { kind: kind.to_string(), requests: 0, batches: 0, oldest_seconds: None });
        }
    }
    queues.sort_by(|one, other| one.kind.cmp(&other.kind));
    let kind = match kind {
        Some(kind) if queues.iter().any(|queue| queue.kind == kind.as_str()) => {
            service.summaries.of(service, &kind).await?
        }
        _ => None,
    };
    Ok(StatusReply {
        version: env!("CARGO_PKG_VERSION"),
        buffer: buffer.name(),
        time_zone: counters.options().time_zone.iana_name().unwrap_or("UTC").to_owned(),
        uptime_seconds: counters.sources().clock.elapsed().saturating_sub(service.started).as_secs_f64(),
        views: service.views.total(),
        saved: counters.saved().views,
        ready,
        parts,
        queues,
        kind,
    })
}

impl Summaries {
    /// Returns the kinds that have saved items; those that were read before if the store does not answer.
    async fn kinds(&self, service: &Service, store_answers: bool) -> Vec<Kind> {
        let (counters, clock) = (&service.counters, &service.counters.sources().clock);
        let mut kept = self.kinds.lock().await;
        let begun = clock.elapsed();
        if store_answers && kept.until.is_none_or(|until| until <= begun) {
            match counters.storage().item_kinds().await {
                Ok(kinds) => kept.kinds = kinds,
                Err(error) => tracing::debug!(%error, "the kinds of saved items could not be read"),
            }
            let now = clock.elapsed();
            kept.until = Some(now + SUMMARY_TIME.max(now.saturating_sub(begun) * SUMMARY_COST));
        }
        kept.kinds.clone()
    }

    /// Returns the sums of a kind that has a queue or saved items; `None` if the store does not answer and there are no earlier ones.
    async fn of(&self, service: &Service, kind: &Kind) -> Result<Option<KindReply>, Error> {
        let (counters, clock) = (&service.counters, &service.counters.sources().clock);
        let today = counters.today()?;
        let mut kept = self.sums.lock().await;
        let begun = clock.elapsed();
        if kept.get(kind).is_none_or(|kept| kept.today != today || kept.until <= begun) {
            let from = today.saturating_sub((REPORT_DAYS - 1).days());
            match counters.storage().summary(kind, from, today).await {
                Ok(summary) => {
                    let now = clock.elapsed();
                    let until = now + SUMMARY_TIME.max(now.saturating_sub(begun) * SUMMARY_COST);
                    kept.insert(kind.clone(), CachedSummary { summary, today, until });
                }
                Err(error @ Error::Damaged { .. }) => return Err(error),
                // The store is one of the parts.
                Err(error) => tracing::debug!(%kind, %error, "the sums of a kind could not be read"),
            }
        }
        Ok(kept.get(kind).map(|CachedSummary { summary, .. }| KindReply {
            kind: kind.to_string(),
            views: summary.views,
            items: summary.items,
            days: summary.days.iter().map(|day| DayReply { day: day.day.to_string(), views: day.views }).collect(),
        }))
    }
}
