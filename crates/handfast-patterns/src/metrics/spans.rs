//! Everything that a background round does to an item, and a worker to a job, happens in a span that names the item,
//! so that log messages can be found by it.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// A collector of the names and fields of this crate's spans.
#[derive(Default)]
pub(super) struct Spans {
    last: AtomicU64,
    seen: Mutex<BTreeSet<String>>,
}

impl Spans {
    /// Returns each span once: `job_queue.reclaim{id}`.
    pub(super) fn names(&self) -> BTreeSet<String> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Subscriber for Spans {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_span() && metadata.target().starts_with("handfast_patterns")
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let fields: Vec<_> = span.metadata().fields().iter().map(|field| field.name().to_owned()).collect();
        let name = format!("{}{{{}}}", span.metadata().name(), fields.join(","));
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).insert(name);
        Id::from_u64(self.last.fetch_add(1, Ordering::Relaxed) + 1)
    }

    fn record(&self, _span: &Id, _values: &Record<'_>) {}

    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}

    fn event(&self, _event: &Event<'_>) {}

    fn enter(&self, _span: &Id) {}

    fn exit(&self, _span: &Id) {}
}
