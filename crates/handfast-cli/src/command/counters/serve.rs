//! `handfast counters serve`, from the first line to the last.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Result;
use handfast_counters::{Counters, CountersOptions};
use handfast_http::ConnectionOptions;
use handfast_http::counters::serve_all;
use serde_json::json;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::OpenedCounters;
use super::arguments::ServeCountersArguments;
use super::listen::listen;
use super::opened_counters::Limits;
use super::service_options::service_options;
use crate::configuration::{Configuration, Span};
use crate::console::Console;
use crate::exit::{Exit, Usage};
use crate::service_manager::{ServiceState, notify};
use crate::shutdown::Shutdown;

/// The shortest interval at which views are saved: more often, passes over empty queues would keep the store busy.
const FLUSH_INTERVAL_MIN: Duration = Duration::from_millis(10);
/// The shortest time after which a batch is taken over: saving one takes less, so that two instances seldom save the same.
const TAKE_OVER_AFTER_MIN: Duration = Duration::from_secs(1);
/// The interval at which a service that cannot count views yet looks whether it can.
const READINESS_INTERVAL: Duration = Duration::from_millis(500);

pub(super) async fn run(
    configuration: &Configuration,
    arguments: &ServeCountersArguments,
    console: Console,
) -> Result<Exit> {
    let shutdown = Shutdown::reported_on(console)?;
    let service = service_options(arguments)?;
    check_times(arguments)?;
    // Before the data directory is created: a busy port leaves nothing behind.
    let listeners = listen(arguments).await?;
    let options = CountersOptions {
        time_zone: arguments.days.time_zone.0.clone(),
        flush_interval: arguments.flush_interval.0,
        idle: arguments.take_over_after.0,
        keep_days: arguments.keep_days,
        ..CountersOptions::default()
    };
    let limits = Limits { queue_events: arguments.queue_events, idempotency_keys: arguments.idempotency_keys };
    let opened = OpenedCounters::open(configuration, &arguments.counters, options, limits).await?;
    let addresses = listeners.iter().map(TcpListener::local_addr).collect::<io::Result<Vec<SocketAddr>>>()?;
    announce(configuration, arguments, &opened, &addresses, console)?;

    let stop = CancellationToken::new();
    let serving = serve_all(listeners, opened.counters.clone(), service, ConnectionOptions::default(), stop.clone());
    let stopping = async {
        shutdown.requested().await;
        stop.cancel();
    };
    let reporting = async {
        let reported = stop.run_until_cancelled(report_readiness(&opened.counters, console)).await.unwrap_or(Ok(()));
        if reported.is_err() {
            stop.cancel();
        }
        reported
    };
    let stopping = stop.run_until_cancelled(stopping);
    let (saved, _, reported) = tokio::join!(serving, stopping, reporting);
    opened.close().await?;
    reported?;
    let saved = saved?;
    console.report(|| "stopped".to_owned(), &json!({ "event": "stopped", "saved": saved.views }))?;
    Ok(Exit::Good)
}

/// Refuses times that are too short to work with.
fn check_times(arguments: &ServeCountersArguments) -> Result<(), Usage> {
    let times = [
        ("--flush-interval", arguments.flush_interval, FLUSH_INTERVAL_MIN),
        ("--take-over-after", arguments.take_over_after, TAKE_OVER_AFTER_MIN),
    ];
    for (flag, time, least) in times {
        if time.0 < least {
            return Err(Usage(format!("{flag} must be at least {}, and is {time}", Span(least))));
        }
    }
    Ok(())
}

/// Reports that views are counted as soon as they are. Until then Redis may be away, and totals be read all the same.
async fn report_readiness(counters: &Counters, console: Console) -> Result<()> {
    let mut is_reported = false;
    while let Some(error) = counters.readiness().await.queue {
        if !is_reported {
            let text = || format!("waiting: views are refused until this is over: {error}");
            console.report(text, &json!({ "event": "waiting", "reason": error.to_string() }))?;
            is_reported = true;
        }
        tokio::time::sleep(READINESS_INTERVAL).await;
    }
    console.report(|| "ready".to_owned(), &json!({ "event": "ready" }))?;
    notify(ServiceState::Ready);
    Ok(())
}

/// Reports the addresses, the form with the locations of queue and data, and the time zone.
fn announce(
    configuration: &Configuration,
    arguments: &ServeCountersArguments,
    opened: &OpenedCounters,
    addresses: &[SocketAddr],
    console: Console,
) -> Result<()> {
    let data = &configuration.settings.data;
    let data = std::path::absolute(data).unwrap_or_else(|_| data.clone()).to_string_lossy().into_owned();
    let time_zone = arguments.days.time_zone.0.iana_name().unwrap_or("UTC");
    let addresses: Vec<String> = addresses.iter().map(SocketAddr::to_string).collect();
    let version = env!("CARGO_PKG_VERSION");
    let text = || {
        format!(
            "handfast {version} counts views, and listens on {}, {}, days in {time_zone}",
            addresses.join(" and "),
            opened.location_text(&data)
        )
    };
    let mut json = json!({
        "event": "listening",
        "version": version,
        "addresses": addresses,
        "time_zone": time_zone,
    });
    for (key, value) in opened.location_fields(&data) {
        json[key] = value;
    }
    Ok(console.report(text, &json)?)
}
