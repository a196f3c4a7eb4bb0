//! The metrics of requests, and the text in which Prometheus reads metrics (exposition format 0.0.4).
//!
//! They are counted here, by atomics, and not by a library's registry: the routes and the classes of statuses are known from the start, so that a request
//! looks nothing up. The metrics of several services differ by the label `instance`, which Prometheus adds.

use std::collections::BTreeMap;
use std::fmt::{Display, Write as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use axum::http::StatusCode;

use crate::problem::ProblemKind;

/// The media type of the text.
pub(crate) const MEDIA_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";
/// The bounds of the buckets of durations, in microseconds: close together around 5 ms, within which 99 % of the requests should be answered.
const BOUNDS_MICROS: [u64; 16] = [
    250, 500, 1_000, 2_000, 3_000, 4_000, 5_000, 6_000, 8_000, 10_000, 25_000, 50_000, 100_000, 250_000, 1_000_000,
    5_000_000,
];
/// The classes of statuses: no route answers with others.
const CLASSES: [(u16, &str); 3] = [(2, "2xx"), (4, "4xx"), (5, "5xx")];
/// The name of what has no route.
const NO_ROUTE: &str = "none";

/// The requests since the start, by route.
pub(crate) struct RequestMetrics {
    /// By the number of the route in its table; the last one is for requests without a route.
    routes: Vec<RouteMetrics>,
    problems: Mutex<BTreeMap<(usize, ProblemKind), u64>>,
}

struct RouteMetrics {
    name: &'static str,
    requests: [AtomicU64; CLASSES.len()],
    durations: Histogram,
}

/// The numbers of durations up to each bound, the last one without a bound, and their sum.
struct Histogram {
    buckets: [AtomicU64; BOUNDS_MICROS.len() + 1],
    nanos: AtomicU64,
}

/// Metrics as text.
pub(crate) struct MetricsText {
    prefix: &'static str,
    text: String,
}

impl RequestMetrics {
    pub(crate) fn new(routes: impl Iterator<Item = &'static str>) -> Self {
        let routes = routes.chain([NO_ROUTE]).map(|name| RouteMetrics {
            name,
            requests: [const { AtomicU64::new(0) }; CLASSES.len()],
            durations: Histogram::new(),
        });
        RequestMetrics { routes: routes.collect(), problems: Mutex::default() }
    }

    /// Counts a request to a route, by its number in the table; `None` for one without a route.
    pub(crate) fn count(
        &self,
        route: Option<usize>,
        status: StatusCode,
        problem: Option<ProblemKind>,
        duration: Duration,
    ) {
        let at = route.unwrap_or(self.routes.len().saturating_sub(1));
        let Some(route) = self.routes.get(at) else { return };
        for ((class, _), count) in CLASSES.iter().zip(&route.requests) {
            if status.as_u16() / 100 == *class {
                count.fetch_add(1, Ordering::Relaxed);
            }
        }
        route.durations.add(duration);
        if let Some(problem) = problem {
            let mut problems = self.problems.lock().unwrap_or_else(PoisonError::into_inner);
            *problems.entry((at, problem)).or_default() += 1;
        }
    }

    pub(crate) fn write(&self, text: &mut MetricsText) {
        text.family("requests_total", "counter", "Requests that were answered, by operation and class of the status");
        for route in &self.routes {
            for ((_, class), count) in CLASSES.iter().zip(&route.requests) {
                let labels = [("route", route.name), ("status", *class)];
                text.sample("requests_total", &labels, count.load(Ordering::Relaxed));
            }
        }
        text.family(
            "problems_total",
            "counter",
            "Requests that were answered with a problem, by operation and problem",
        );
        let problems = self.problems.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for ((route, problem), count) in problems {
            let name = self.routes.get(route).map_or(NO_ROUTE, |route| route.name);
            text.sample("problems_total", &[("route", name), ("problem", problem.name())], count);
        }
        text.family("request_seconds", "histogram", "Time from the head of a request to its answer, by operation");
        for route in &self.routes {
            route.durations.write("request_seconds", route.name, text);
        }
    }
}

impl Histogram {
    fn new() -> Self {
        Histogram { buckets: [const { AtomicU64::new(0) }; BOUNDS_MICROS.len() + 1], nanos: AtomicU64::new(0) }
    }

    fn add(&self, duration: Duration) {
        let bucket = BOUNDS_MICROS.partition_point(|bound| Duration::from_micros(*bound) < duration);
        if let Some(bucket) = self.buckets.get(bucket) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
        self.nanos.fetch_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    fn write(&self, name: &str, route: &str, text: &mut MetricsText) {
        let mut count = 0;
        let bounds = BOUNDS_MICROS.iter().map(|bound| Duration::from_micros(*bound).as_secs_f64().to_string());
        for (bound, bucket) in bounds.chain(["+Inf".to_owned()]).zip(&self.buckets) {
            count += bucket.load(Ordering::Relaxed);
            text.sample(&format!("{name}_bucket"), &[("route", route), ("le", &bound)], count);
        }
        let sum = Duration::from_nanos(self.nanos.load(Ordering::Relaxed)).as_secs_f64();
        text.sample(&format!("{name}_sum"), &[("route", route)], sum);
        text.sample(&format!("{name}_count"), &[("route", route)], count);
    }
}

impl MetricsText {
    /// Creates an empty text; each name in it begins with `prefix`.
    pub(crate) fn new(prefix: &'static str) -> Self {
        MetricsText { prefix, text: String::new() }
    }

    /// Begins the samples of a metric.
    pub(crate) fn family(&mut self, name: &str, kind: &str, help: &str) {
        let prefix = self.prefix;
        // Writing to a string does not fail.
        let _ = write!(self.text, "# HELP {prefix}_{name} {help}\n# TYPE {prefix}_{name} {kind}\n");
    }

    /// Adds a sample. Values of labels are names: they have nothing to escape.
    pub(crate) fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        let _ = write!(self.text, "{}_{name}", self.prefix);
        for (at, (label, value)) in labels.iter().enumerate() {
            let _ = write!(self.text, "{}{label}=\"{value}\"", if at == 0 { '{' } else { ',' });
        }
        let _ = writeln!(self.text, "{} {value}", if labels.is_empty() { "" } else { "}" });
    }

    pub(crate) fn into_string(self) -> String {
        self.text
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Histogram, MetricsText};

    #[test]
    fn a_duration_is_in_all_buckets_from_its_own_on() {
        let histogram = Histogram::new();
        for micros in [5_000, 5_001, 10_000_000] {
            histogram.add(Duration::from_micros(micros));
        }
        let mut text = MetricsText::new("x");
        histogram.write("seconds", "getTotal", &mut text);
        let text = text.into_string();
        for line in [
            r#"x_seconds_bucket{route="getTotal",le="0.004"} 0"#,
            r#"x_seconds_bucket{route="getTotal",le="0.005"} 1"#,
            r#"x_seconds_bucket{route="getTotal",le="0.006"} 2"#,
            r#"x_seconds_bucket{route="getTotal",le="5"} 2"#,
            r#"x_seconds_bucket{route="getTotal",le="+Inf"} 3"#,
            r#"x_seconds_sum{route="getTotal"} 10.010001"#,
            r#"x_seconds_count{route="getTotal"} 3"#,
        ] {
            assert!(text.lines().any(|found| found == line), "{line}: {text}");
        }
    }
}
