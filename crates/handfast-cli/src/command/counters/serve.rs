//! `handfast counters serve`, from the first line to the last.

use std::net::SocketAddr;

use anyhow::{Context as _, Result};
use handfast_counters::CountersOptions;
use handfast_http::counters::{ServiceOptions, serve};
use handfast_http::{AccessOptions, ConnectionOptions};
use serde_json::json;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::arguments::ServeCountersArguments;
use super::{OpenedCounters, tokens};
use crate::configuration::Configuration;
use crate::console::Console;
use crate::exit::{Exit, Usage};
use crate::shutdown::{STOPPING, Shutdown};

pub(super) async fn run(
    configuration: &Configuration,
    arguments: &ServeCountersArguments,
    console: Console,
) -> Result<Exit> {
    let tell = move || {
        // A closed output must not keep the service from stopping.
        let _ = console.report(|| STOPPING.to_owned(), &json!({ "event": "stopping" }));
    };
    let shutdown = Shutdown::listen(tell).context("cannot listen for signals")?;
    let access = access(arguments)?;
    let address = address(arguments).await?;
    if arguments.flush_interval.0.is_zero() {
        return Err(Usage("--flush-interval must be longer than zero".to_owned()).into());
    }
    // Before the data directory is created: a busy port leaves nothing behind.
    let listener = TcpListener::bind(address).await.with_context(|| format!("--listen: cannot listen on {address}"))?;
    let counters = &arguments.counters;
    let options = CountersOptions {
        time_zone: counters.time_zone.0.clone(),
        flush_interval: arguments.flush_interval.0,
        idle: arguments.take_over_after.0,
        ..CountersOptions::default()
    };
    let opened = OpenedCounters::open(configuration, &counters.database, options, arguments.queue_events).await?;
    announce(configuration, arguments, &opened, listener.local_addr()?, console)?;

    let stop = CancellationToken::new();
    let service = ServiceOptions { access, ..ServiceOptions::default() };
    let serving = serve(listener, opened.counters.clone(), service, ConnectionOptions::default(), stop.clone());
    let stopping = async {
        shutdown.requested().await;
        stop.cancel();
    };
    console.report(|| "ready".to_owned(), &json!({ "event": "ready" }))?;
    let (saved, ()) = tokio::join!(serving, stopping);
    opened.close().await?;
    let saved =
        saved.context("the last views could not be saved; they are in the queue, and saved after the next start")?;
    console.report(|| "stopped".to_owned(), &json!({ "event": "stopped", "saved": saved.views }))?;
    Ok(Exit::Good)
}

fn access(arguments: &ServeCountersArguments) -> Result<AccessOptions> {
    let tokens = arguments.tokens.as_deref().map(tokens::read).transpose()?.unwrap_or_default();
    let origins = arguments.allowed_origins.iter().map(|origin| {
        origin.0.parse().map_err(|_| Usage(format!("--allow-origin: {:?} is no origin", origin.0)).into())
    });
    let allowed_origins = origins.collect::<Result<Vec<_>>>()?;
    Ok(AccessOptions { tokens, public_reads: arguments.public_reads, allowed_origins })
}

/// Returns the first address of the name. One that other machines can reach needs tokens.
async fn address(arguments: &ServeCountersArguments) -> Result<SocketAddr> {
    let ServeCountersArguments { listen, tokens, .. } = arguments;
    let named = tokio::net::lookup_host(listen).await;
    let mut addresses =
        named.map_err(|error| Usage(format!("--listen: '{listen}' is not an address (HOST:PORT): {error}")))?;
    let address = addresses.next().ok_or_else(|| Usage(format!("--listen: '{listen}' resolves to no address")))?;
    if !address.ip().is_loopback() && tokens.is_none() {
        let why = "everybody who can reach it could count and delete views";
        let text = format!("--listen: {address} is not a loopback address, and {why}; --tokens requires a token");
        return Err(Usage(text).into());
    }
    Ok(address)
}

/// Reports the address, the form with the locations of queue and data, and the time zone.
fn announce(
    configuration: &Configuration,
    arguments: &ServeCountersArguments,
    opened: &OpenedCounters,
    address: SocketAddr,
    console: Console,
) -> Result<()> {
    let data = &configuration.settings.data;
    let data = std::path::absolute(data).unwrap_or_else(|_| data.clone()).to_string_lossy().into_owned();
    let time_zone = arguments.counters.time_zone.0.iana_name().unwrap_or("UTC");
    let version = env!("CARGO_PKG_VERSION");
    let text = || {
        format!(
            "handfast {version} counts views, and listens on {address}, {}, days in {time_zone}",
            opened.location_text(&data)
        )
    };
    let mut json = json!({
        "event": "listening",
        "version": version,
        "addresses": [address.to_string()],
        "time_zone": time_zone,
    });
    for (key, value) in opened.location_fields(&data) {
        json[key] = value;
    }
    Ok(console.report(text, &json)?)
}
