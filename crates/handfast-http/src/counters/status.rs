//! The state of the service at this moment, for its page.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use handfast_counters::jiff::ToSpan as _;
use handfast_counters::jiff::civil::Date;
use handfast_counters::{Counters, Error, Instance, InstanceReport, Kind, KindQueue, KindSummary};
use serde::Serialize;
use tokio::sync::{Mutex as AsyncMutex, watch};
use tokio::task::AbortHandle;

use super::replies::DayReply;
use super::routes::REPORT_DAYS;
use super::{Service, handlers};

/// The time for which the sums of a kind are shown again.
const SUMMARY_TIME: Duration = Duration::from_secs(10);
/// Sums read all items of a kind. They are shown again for so many times the time that they took, which bounds the work to a tenth of the store's time.
const SUMMARY_COST: u32 = 10;

/// The time that a request waits for what is read from the store; it is answered with what there is.
const SUMMARY_WAIT: Duration = Duration::from_secs(2);

/// What was read last from the store.
#[derive(Default)]
pub(super) struct Summaries {
    /// The sums by kind. Those of a kind are read by one task at a time, however many ask, and it ends when no request waits, too.
    sums: Arc<Mutex<HashMap<Kind, KeptSummary>>>,
    kinds: AsyncMutex<CachedKinds>,
}

/// The kinds that have saved items: also those without a view, as their figures were imported.
#[derive(Default)]
struct CachedKinds {
    kinds: Vec<Kind>,
    until: Option<Duration>,
}

struct KeptSummary {
    /// The last sums that could be read.
    summary: Option<KindSummary>,
    /// Why the last ones could not be read, if no other try may help.
    damage: Option<Error>,
    /// The last day of the reading that was begun last.
    today: Date,
    /// The time before which no other reading begins, once this one has ended.
    until: Duration,
    /// Closed when the reading ends.
    ended: watch::Receiver<()>,
    task: AbortHandle,
}

#[derive(Serialize)]
pub(super) struct StatusReply {
    /// The name of the instance that answers.
    name: String,
    version: String,
    buffer: &'static str,
    transactions: &'static str,
    time_zone: String,
    uptime_seconds: f64,
    views: u64,
    saved: u64,
    instances: Vec<InstanceReply>,
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
struct InstanceReply {
    name: String,
    version: String,
    addresses: Vec<String>,
    uptime_seconds: f64,
    views: u64,
    saved: u64,
    seen_seconds: f64,
}

#[derive(Serialize)]
struct KindReply {
    kind: String,
    views: u64,
    items: u64,
    days: Vec<DayReply>,
}

/// Returns the state; `kind` is the kind whose sums are in it.
pub(super) async fn status(service: &Service, kind: Option<Kind>) -> Result<StatusReply, Error> {
    let counters = &service.counters;
    // A buffer that does not answer is one of the parts. All are asked at once, so that each is waited for at the same time.
    let ((ready, parts), queues, instances) =
        tokio::join!(handlers::parts(service), counters.queues(), service.instance.all());
    let queues = queues.into_iter().map(|KindQueue { kind, depth }| QueueReply {
        kind: kind.to_string(),
        requests: depth.pending,
        batches: depth.batches,
        oldest_seconds: depth.oldest_age.map(|age| age.as_secs_f64()),
    });
    let mut queues: Vec<QueueReply> = queues.collect();
    // A store that does not answer is one of the parts, and is not waited for again.
    let store_answers = parts.iter().all(|part| part.part != "store");
    for kind in service.summaries.kinds(counters, store_answers).await {
        if queues.iter().all(|queue| queue.kind != kind.as_str()) {
            queues.push(QueueReply { kind: kind.to_string(), requests: 0, batches: 0, oldest_seconds: None });
        }
    }
    queues.sort_by(|one, other| one.kind.cmp(&other.kind));
    let kind = match kind {
        Some(kind) if queues.iter().any(|queue| queue.kind == kind.as_str()) => {
            service.summaries.of(counters, &kind).await?
        }
        _ => None,
    };
    let InstanceReport { name, version, uptime, views, saved, .. } = service.instance.report();
    Ok(StatusReply {
        name: name.as_str().to_owned(),
        version,
        buffer: counters.buffer().name(),
        transactions: counters.storage().form().transactions(),
        time_zone: counters.options().time_zone.iana_name().unwrap_or("UTC").to_owned(),
        uptime_seconds: uptime.as_secs_f64(),
        views,
        saved,
        instances: instances.into_iter().map(InstanceReply::new).collect(),
        ready,
        parts,
        queues,
        kind,
    })
}

impl InstanceReply {
    fn new(Instance { report, seen }: Instance) -> Self {
        InstanceReply {
            name: report.name.as_str().to_owned(),
            version: report.version,
            addresses: report.addresses.iter().map(SocketAddr::to_string).collect(),
            uptime_seconds: report.uptime.as_secs_f64(),
            views: report.views,
            saved: report.saved,
            seen_seconds: seen.as_secs_f64(),
        }
    }
}

impl Summaries {
    /// Returns the kinds that have saved items; those that were read before if the store does not answer.
    async fn kinds(&self, counters: &Counters, store_answers: bool) -> Vec<Kind> {
        let clock = &counters.sources().clock;
        let mut kept = self.kinds.lock().await;
        let begun = clock.elapsed();
        if store_answers && kept.until.is_none_or(|until| until <= begun) {
            match tokio::time::timeout(SUMMARY_WAIT, counters.storage().item_kinds()).await {
                Ok(Ok(kinds)) => kept.kinds = kinds,
                Ok(Err(error)) => tracing::debug!(%error, "the kinds of saved items could not be read"),
                Err(_) => tracing::debug!("the kinds of saved items were not read in time"),
            }
            let now = clock.elapsed();
            kept.until = Some(now + SUMMARY_TIME.max(now.saturating_sub(begun) * SUMMARY_COST));
        }
        kept.kinds.clone()
    }

    /// Returns the sums of a kind that has a queue or saved items; `None` if there are none yet, because the store is slow or does not answer.
    async fn of(&self, counters: &Counters, kind: &Kind) -> Result<Option<KindReply>, Error> {
        let mut ended = self.reading(counters, kind)?;
        // Its end closes the channel. A slow one goes on, and a later request gets what it finds.
        let _ = tokio::time::timeout(SUMMARY_WAIT, ended.changed()).await;
        let by_kind = lock(&self.sums);
        let Some(kept) = by_kind.get(kind) else { return Ok(None) };
        if let Some(damage) = &kept.damage {
            return Err(damage.clone());
        }
        Ok(kept.summary.as_ref().map(|summary| KindReply {
            kind: kind.to_string(),
            views: summary.views,
            items: summary.items,
            days: summary.days.iter().map(|day| DayReply { day: day.day.to_string(), views: day.views }).collect(),
        }))
    }

    /// Returns the end of the last reading of a kind's sums, after a new one was begun if it is time.
    fn reading(&self, counters: &Counters, kind: &Kind) -> Result<watch::Receiver<()>, Error> {
        let (today, begun) = (counters.today()?, counters.sources().clock.elapsed());
        let mut by_kind = lock(&self.sums);
        if let Some(kept) = by_kind.get(kind)
            && (kept.ended.has_changed().is_ok() || (kept.today == today && begun < kept.until))
        {
            return Ok(kept.ended.clone());
        }
        let (running, ended) = watch::channel(());
        let (summaries, counters, of_kind) = (Arc::clone(&self.sums), counters.clone(), kind.clone());
        // A task, as the request may end before.
        let task = tokio::spawn(async move {
            let from = today.saturating_sub((REPORT_DAYS - 1).days());
            let result = counters.storage().summary(&of_kind, from, today).await;
            let now = counters.sources().clock.elapsed();
            if let Some(kept) = lock(&summaries).get_mut(&of_kind) {
                kept.until = now + SUMMARY_TIME.max(now.saturating_sub(begun) * SUMMARY_COST);
                match result {
                    Ok(summary) => (kept.summary, kept.damage) = (Some(summary), None),
                    Err(error @ Error::Damaged { .. }) => kept.damage = Some(error),
                    // The store is one of the parts. Earlier sums are shown until there are new ones.
                    Err(error) => tracing::debug!(kind = %of_kind, %error, "the sums of a kind could not be read"),
                }
            }
            drop(running);
        });
        let (summary, damage) = by_kind.remove(kind).map_or((None, None), |kept| (kept.summary, kept.damage));
        let task = task.abort_handle();
        // If the task is aborted or fails, the next request begins another one.
        let kept = KeptSummary { summary, damage, today, until: begun, ended: ended.clone(), task };
        by_kind.insert(kind.clone(), kept);
        Ok(ended)
    }
}

impl Drop for Summaries {
    fn drop(&mut self) {
        lock(&self.sums).values().for_each(|kept| kept.task.abort());
    }
}

fn lock(summaries: &Mutex<HashMap<Kind, KeptSummary>>) -> MutexGuard<'_, HashMap<Kind, KeptSummary>> {
    summaries.lock().unwrap_or_else(PoisonError::into_inner)
}
