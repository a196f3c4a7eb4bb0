//! `/metrics` of the view counters: what the service has counted since its start, and the state of its parts at this moment.

use std::sync::atomic::{AtomicU64, Ordering};

use handfast_counters::{Counters, KindQueue, Readiness, RememberedKeys};

use super::Service;
use super::replies::NotCounted;
use crate::metrics::MetricsText;

const PREFIX: &str = "handfast_counters";

/// The views that requests brought.
#[derive(Default)]
pub(super) struct ViewMetrics {
    counted: AtomicU64,
    left_out: [AtomicU64; NotCounted::ALL.len()],
}

impl ViewMetrics {
    pub(super) fn counted(&self, views: u32) {
        self.counted.fetch_add(views.into(), Ordering::Relaxed);
    }

    pub(super) fn left_out(&self, views: u32, reason: NotCounted) {
        for (known, count) in NotCounted::ALL.iter().zip(&self.left_out) {
            if *known == reason {
                count.fetch_add(views.into(), Ordering::Relaxed);
            }
        }
    }

    /// Returns the number of views that were counted since the start.
    pub(super) fn total(&self) -> u64 {
        self.counted.load(Ordering::Relaxed)
    }

    fn write(&self, text: &mut MetricsText) {
        text.family("views_total", "counter", "Views of the requests that were answered as counted");
        text.sample("views_total", &[], self.total());
        text.family("views_left_out_total", "counter", "Views that were not counted, by reason");
        for (reason, count) in NotCounted::ALL.iter().zip(&self.left_out) {
            text.sample("views_left_out_total", &[("reason", reason.name())], count.load(Ordering::Relaxed));
        }
    }
}

/// Returns all metrics.
pub(super) async fn text(service: &Service) -> String {
    let mut text = MetricsText::new(PREFIX);
    service.views.write(&mut text);
    service.requests.write(&mut text);
    write_saved(&service.counters, &mut text);
    // At once, so that a buffer that does not answer is waited for once.
    let (queues, readiness) = tokio::join!(service.counters.queues(), service.counters.readiness());
    write_queues(&queues, &mut text);
    write_keys(&service.counters, &mut text);
    write_parts(&readiness, &mut text);
    text.into_string()
}

fn write_saved(counters: &Counters, text: &mut MetricsText) {
    let saved = counters.saved();
    text.family("views_saved_total", "counter", "Views that this instance has saved");
    text.sample("views_saved_total", &[], saved.views);
    text.family("batches_saved_total", "counter", "Batches that this instance has saved");
    text.sample("batches_saved_total", &[], saved.batches);
    let transactions = counters.storage().form().transactions();
    text.family("storage_info", "gauge", "Whose transactions save a batch: handfast or none. Always 1");
    text.sample("storage_info", &[("transactions", transactions)], 1);
    if let Some(at) = saved.last_pass {
        let help = "Time of the end of the last pass over the queues without an error, in seconds since 1970";
        text.family("last_save_timestamp_seconds", "gauge", help);
        text.sample("last_save_timestamp_seconds", &[], at.timestamp_millis() as f64 / 1_000.0);
    }
}

/// Writes the contents of the queues. Those of a buffer that does not answer are missing; its part is not ready.
fn write_queues(queues: &[KindQueue], text: &mut MetricsText) {
    text.family("queue_requests", "gauge", "Requests whose views wait in the queue, by kind");
    for KindQueue { kind, depth } in queues {
        text.sample("queue_requests", &[("kind", kind.as_str())], depth.pending);
    }
    text.family("queue_batches", "gauge", "Batches that are being saved, by kind");
    for KindQueue { kind, depth } in queues {
        text.sample("queue_batches", &[("kind", kind.as_str())], depth.batches);
    }
    let help = "Time for which the oldest request has waited in the queue or in a batch, by kind; 0 if none waits";
    text.family("queue_oldest_seconds", "gauge", help);
    for KindQueue { kind, depth } in queues {
        let is_empty = depth.pending == 0 && depth.batches == 0;
        if let Some(seconds) = depth.oldest_age.map(|age| age.as_secs_f64()).or(is_empty.then_some(0.0)) {
            text.sample("queue_oldest_seconds", &[("kind", kind.as_str())], seconds);
        }
    }
}

/// Writes how many idempotency keys are remembered, if the buffer has a maximum.
fn write_keys(counters: &Counters, text: &mut MetricsText) {
    let Some(RememberedKeys { keys, keys_max }) = counters.buffer().remembered_keys() else { return };
    text.family("idempotency_keys", "gauge", "Idempotency keys that are remembered");
    text.sample("idempotency_keys", &[], keys);
    text.family("idempotency_keys_limit", "gauge", "Idempotency keys at which requests with further ones are refused");
    text.sample("idempotency_keys_limit", &[], keys_max);
}

fn write_parts(readiness: &Readiness, text: &mut MetricsText) {
    text.family("part_ready", "gauge", "Whether a part works: 1 or 0");
    for part in ["queue", "store", "saving"] {
        let works = readiness.errors().all(|(broken, _)| broken != part);
        text.sample("part_ready", &[("part", part)], u8::from(works));
    }
}
