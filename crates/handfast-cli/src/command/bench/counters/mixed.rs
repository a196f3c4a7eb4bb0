//! The load of the service that the counters follow, in an open loop: each request is due at its time, whether earlier ones were answered or not, and
//! its latency counts from that time.

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::Duration;

use anyhow::Result;
use handfast_store::Clock;
use hdrhistogram::Histogram;
use tokio::task::JoinSet;

use super::super::measure::{Round, new_histogram, processor_time};
use super::super::report::{Comparison, Measurement};
use super::super::store::scattered;
use super::Plan;
use super::http_client::{HttpClient, read_request, write_request};
use super::requests::{READS_PER_MINUTE, WRITES_PER_MINUTE, is_view};
use super::service::Service;

/// The time within which 99 % of the requests were answered (seed 3).
const P99_MILLIS: f64 = 5.0;
/// Connections: as many requests may be under way.
const CONNECTIONS: u64 = 64;

/// Applies the load to the service, and to the constant route, which shows what the machine itself takes; returns the latency and the share of the machine.
pub(super) async fn run(plan: &Plan, clock: &Arc<dyn Clock>, service: &Service) -> Result<Vec<Measurement>> {
    let constant = load(plan, clock, service.constant).await?;
    let subject = load(plan, clock, service.address).await?;
    Ok(measurements(&subject, &constant))
}

async fn load(plan: &Plan, clock: &Arc<dyn Clock>, address: SocketAddr) -> Result<Round> {
    let per_second = (READS_PER_MINUTE + WRITES_PER_MINUTE) as f64 / 60.0;
    let interval = Duration::from_secs_f64(CONNECTIONS as f64 / per_second);
    let duration = Duration::from_secs_f64(plan.seconds * plan.rounds as f64);
    let mut clients = Vec::new();
    for _ in 0..CONNECTIONS {
        clients.push(HttpClient::connect(address).await?);
    }
    let (start, before) = (clock.elapsed(), processor_time());
    let mut running = JoinSet::new();
    for (number, client) in clients.into_iter().enumerate() {
        let first = start + interval.mul_f64(number as f64 / CONNECTIONS as f64);
        let (clock, items) = (Arc::clone(clock), plan.items);
        running.spawn(async move {
            let schedule = Schedule { first, interval, end: start + duration };
            paced(client, &*clock, schedule, number, items).await
        });
    }
    let mut latency = new_histogram()?;
    while let Some(joined) = running.join_next().await {
        latency.add(&joined??)?;
    }
    let elapsed = clock.elapsed().saturating_sub(start);
    Ok(Round { operations: latency.len(), elapsed, processor: processor_time().saturating_sub(before), latency })
}

/// Returns the latency of the same requests, as many as the machine serves.
pub(super) fn at_full_load(mixed: &Comparison) -> Measurement {
    let load = (READS_PER_MINUTE + WRITES_PER_MINUTE) as f64 / 60.0;
    Measurement::new("as many of them as the machine serves, p99", mixed.p99_us / 1e3, "ms", P99_MILLIS)
        .with_note(format!("{:.0} times the load, with clients that wait for each answer", mixed.rate / load))
}

/// The times at which the requests of a connection are due.
#[derive(Clone, Copy)]
struct Schedule {
    first: Duration,
    interval: Duration,
    end: Duration,
}

async fn paced(
    mut client: HttpClient,
    clock: &dyn Clock,
    schedule: Schedule,
    number: usize,
    items: u64,
) -> Result<Histogram<u64>> {
    let mut latency = new_histogram()?;
    let mut due = schedule.first;
    for step in 0.. {
        if due >= schedule.end {
            break;
        }
        tokio::time::sleep(due.saturating_sub(clock.elapsed())).await;
        let id = scattered(number, step, items);
        let request = if is_view(number, step) { write_request(id) } else { read_request(id) };
        client.send(&request).await?;
        let took = clock.elapsed().saturating_sub(due);
        latency.saturating_record(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
        due += schedule.interval;
    }
    Ok(latency)
}

fn measurements(subject: &Round, constant: &Round) -> Vec<Measurement> {
    let millis =
        |round: &Round, quantile| Duration::from_nanos(round.latency.value_at_quantile(quantile)).as_secs_f64() * 1e3;
    let latencies = |round: &Round| {
        let [p50, p999] = [0.5, 0.999].map(|quantile| millis(round, quantile));
        format!("p50 {p50:.2} ms, p99.9 {p999:.2} ms")
    };
    let processors = available_parallelism().map_or(1, usize::from);
    let share = subject.processor.as_secs_f64() / (subject.elapsed.as_secs_f64() * processors as f64).max(f64::EPSILON);
    let case = |what: &str| format!("{READS_PER_MINUTE} reads and {WRITES_PER_MINUTE} writes a minute, {what}");
    vec![
        Measurement::new(&case("p99"), millis(subject, 0.99), "ms", P99_MILLIS).with_note(format!(
            "{}, {:.0} requests a second; constant route: p99 {:.2} ms, {}; the timer of the client has steps of 1 ms",
            latencies(subject),
            subject.rate(),
            millis(constant, 0.99),
            latencies(constant),
        )),
        Measurement::new(&case("share of the machine"), share * 100.0, "%", 100.0)
            .with_note(format!("{processors} processors, service and clients together")),
    ]
}
