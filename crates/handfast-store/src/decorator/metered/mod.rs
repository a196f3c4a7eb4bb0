//! A decorator that counts operations and measures their latency.
//!
//! Latencies go into histograms with two significant digits (hdrhistogram), so that p99.9 is a measured value and not
//! an average of averages. A histogram takes about 25 kB, and only operations that were called have one.

mod store;
#[cfg(test)]
mod tests;

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hdrhistogram::Histogram;

use super::Operation;
use crate::{Clock, Cursor, DocumentStore, ErrorClass, Result};

/// Latencies are kept in microseconds up to an hour; longer ones count as an hour.
const LATENCY_MICROS_MAX: u64 = 3_600_000_000;
/// Two significant digits: a precision of 1 %.
const LATENCY_DIGITS: u8 = 2;

/// A decorator that counts and times operations. See the module's documentation.
pub struct Metered<S> {
    store: S,
    meters: Arc<Meters>,
}

impl<S: DocumentStore> Metered<S> {
    /// Wraps a store and measures with this clock.
    pub fn new(store: S, clock: Arc<dyn Clock>) -> Self {
        let meters = Operation::ALL.map(|_| Meter::default());
        Metered { store, meters: Arc::new(Meters { clock, meters }) }
    }

    /// Returns the inner store.
    pub fn inner(&self) -> &S {
        &self.store
    }

    /// Returns the counts of all operations that were called, in the order of [`Operation::ALL`].
    pub fn report(&self) -> Vec<OperationReport> {
        let reports = Operation::ALL.into_iter().map(|operation| self.meters.meter(operation).report(operation));
        reports.filter(|report| report.started > 0).collect()
    }

    fn wrap(&self, cursor: Box<dyn Cursor>) -> Box<dyn Cursor> {
        Box::new(store::MeteredCursor { cursor, meters: Arc::clone(&self.meters) })
    }
}

/// The counts and latencies of one operation.
#[derive(Clone, Debug)]
pub struct OperationReport {
    /// The operation.
    pub operation: Operation,
    /// The number of calls.
    pub started: u64,
    /// The number of calls that succeeded.
    pub succeeded: u64,
    /// Failures of class [`ErrorClass::TransientNetwork`].
    pub failed_transient: u64,
    /// Failures of class [`ErrorClass::Outage`].
    pub failed_outage: u64,
    /// Failures of class [`ErrorClass::Command`].
    pub failed_command: u64,
    /// Calls that the caller cancelled.
    pub cancelled: u64,
    /// The latencies of the calls that returned, with a result or an error.
    pub latency: Latency,
}

/// Percentiles of the latency of calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    /// The median.
    pub p50: Duration,
    /// The 99th percentile.
    pub p99: Duration,
    /// The 99.9th percentile.
    pub p999: Duration,
    /// The maximum.
    pub max: Duration,
}

struct Meters {
    clock: Arc<dyn Clock>,
    meters: [Meter; Operation::ALL.len()],
}

impl Meters {
    fn meter(&self, operation: Operation) -> &Meter {
        // The discriminant of an operation is its index in `ALL` (see the test).
        &self.meters[operation as usize]
    }

    async fn time<T>(&self, operation: Operation, call: impl Future<Output = Result<T>> + Send) -> Result<T> {
        let meter = self.meter(operation);
        meter.started.fetch_add(1, Ordering::Relaxed);
        let unfinished = Unfinished { meter };
        let start = self.clock.elapsed();
        let result = call.await;
        std::mem::forget(unfinished);
        meter.finished(self.clock.elapsed().saturating_sub(start), result.as_ref().err().map(crate::Error::class));
        result
    }
}

#[derive(Default)]
struct Meter {
    started: AtomicU64,
    succeeded: AtomicU64,
    failed_transient: AtomicU64,
    failed_outage: AtomicU64,
    failed_command: AtomicU64,
    cancelled: AtomicU64,
    latency_micros: Mutex<Option<Histogram<u64>>>,
}

impl Meter {
    fn finished(&self, took: Duration, failed: Option<ErrorClass>) {
        let count = match failed {
            None => &self.succeeded,
            Some(ErrorClass::TransientNetwork) => &self.failed_transient,
            Some(ErrorClass::Outage) => &self.failed_outage,
            Some(ErrorClass::Command) => &self.failed_command,
        };
        count.fetch_add(1, Ordering::Relaxed);
        let mut histogram = self.latency_micros.lock().unwrap_or_else(PoisonError::into_inner);
        if histogram.is_none() {
            // The bounds are constants that the histogram accepts (see the test).
            *histogram = Histogram::new_with_max(LATENCY_MICROS_MAX, LATENCY_DIGITS).ok();
        }
        if let Some(histogram) = histogram.as_mut() {
            histogram.saturating_record(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
        }
    }

    fn report(&self, operation: Operation) -> OperationReport {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let histogram = self.latency_micros.lock().unwrap_or_else(PoisonError::into_inner);
        let latency = histogram.as_ref().map_or_else(Latency::default, |histogram| Latency {
            p50: Duration::from_micros(histogram.value_at_quantile(0.5)),
            p99: Duration::from_micros(histogram.value_at_quantile(0.99)),
            p999: Duration::from_micros(histogram.value_at_quantile(0.999)),
            max: Duration::from_micros(histogram.max()),
        });
        OperationReport {
            operation,
            started: load(&self.started),
            succeeded: load(&self.succeeded),
            failed_transient: load(&self.failed_transient),
            failed_outage: load(&self.failed_outage),
            failed_command: load(&self.failed_command),
            cancelled: load(&self.cancelled),
            latency,
        }
    }
}

/// Counts a cancelled call when it is dropped, which happens only if the caller cancels.
struct Unfinished<'a> {
    meter: &'a Meter,
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        self.meter.cancelled.fetch_add(1, Ordering::Relaxed);
    }
}
