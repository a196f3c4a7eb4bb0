//! A recorder for tests, of one thread: it keeps every number under the text of its name and labels.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit,
};

type Numbers = Arc<Mutex<BTreeMap<String, f64>>>;

/// The recorded numbers, and the descriptions.
#[derive(Default)]
pub(super) struct Recorded {
    numbers: Numbers,
    /// The sums of histograms.
    sums: Numbers,
    described: Mutex<Vec<String>>,
}

impl Recorded {
    /// Runs a scenario and returns what it records, with its result. The clock stands still unless all tasks wait for
    /// it.
    pub(super) fn of<T>(scenario: impl Future<Output = crate::Result<T>>) -> (Self, T) {
        let recorded = Recorded::default();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        let runtime = runtime.expect("a runtime without threads");
        let said = metrics::with_local_recorder(&recorded, || runtime.block_on(scenario));
        (recorded, said.expect("nothing goes wrong that should not"))
    }

    /// Returns the number under `name{label=value,..}`, which for a histogram is that of its durations; `None` if it
    /// was never recorded.
    pub(super) fn number(&self, key: &str) -> Option<f64> {
        lock(&self.numbers).get(key).copied()
    }

    /// Returns the sum of the durations under a histogram's name.
    pub(super) fn seconds(&self, key: &str) -> Option<f64> {
        lock(&self.sums).get(key).copied()
    }

    pub(super) fn keys(&self) -> Vec<String> {
        lock(&self.numbers).keys().cloned().collect()
    }

    pub(super) fn described(&self) -> Vec<String> {
        lock(&self.described).clone()
    }

    fn one(&self, key: &Key) -> Arc<One> {
        let labels: Vec<_> = key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
        Arc::new(One {
            key: format!("{}{{{}}}", key.name(), labels.join(",")),
            numbers: Arc::clone(&self.numbers),
            sums: Arc::clone(&self.sums),
        })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

struct One {
    key: String,
    numbers: Numbers,
    sums: Numbers,
}

impl One {
    fn change(&self, change: impl Fn(f64) -> f64) {
        let mut numbers = lock(&self.numbers);
        let number = numbers.entry(self.key.clone()).or_default();
        *number = change(*number);
    }
}

impl CounterFn for One {
    fn increment(&self, value: u64) {
        self.change(|number| number + value as f64);
    }

    fn absolute(&self, value: u64) {
        self.change(|_| value as f64);
    }
}

impl GaugeFn for One {
    fn increment(&self, value: f64) {
        self.change(|number| number + value);
    }

    fn decrement(&self, value: f64) {
        self.change(|number| number - value);
    }

    fn set(&self, value: f64) {
        self.change(|_| value);
    }
}

impl HistogramFn for One {
    fn record(&self, value: f64) {
        self.change(|number| number + 1.0);
        *lock(&self.sums).entry(self.key.clone()).or_default() += value;
    }
}

impl Recorder for Recorded {
    fn describe_counter(&self, key: KeyName, _unit: Option<Unit>, _what: SharedString) {
        lock(&self.described).push(key.as_str().to_owned());
    }

    fn describe_gauge(&self, key: KeyName, _unit: Option<Unit>, _what: SharedString) {
        lock(&self.described).push(key.as_str().to_owned());
    }

    fn describe_histogram(&self, key: KeyName, _unit: Option<Unit>, _what: SharedString) {
        lock(&self.described).push(key.as_str().to_owned());
    }

    fn register_counter(&self, key: &Key, _metadata: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.one(key))
    }

    fn register_gauge(&self, key: &Key, _metadata: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.one(key))
    }

    fn register_histogram(&self, key: &Key, _metadata: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.one(key))
    }
}
