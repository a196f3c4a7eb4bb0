//! `handfast blackpipe play`: answers a program from a recording.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use anyhow::{Context as _, Result};
use handfast_blackpipe::recording::RECORDING_BYTES_MAX;
use handfast_blackpipe::{Playback, PlaybackServer};
use serde_json::json;

use super::arguments::PlayArguments;
use super::remarks::Remarks;
use super::tls;
use crate::console::Console;
use crate::exit::{Exit, Usage};
use crate::listing::counted;
use crate::shutdown::Shutdown;

/// The number of requests that did not arrive and are shown to people.
const MISSING_SHOWN_MAX: usize = 10;

pub(super) async fn run(arguments: PlayArguments) -> Result<Exit> {
    let console = Console::new(arguments.output);
    let shutdown = Shutdown::reported_on(console)?;
    let path = arguments.file.display().to_string();
    let playback = Playback::parse(&read(&arguments.file)?, arguments.ignore)
        .map_err(|error| Usage(format!("{path}: {error}")))?;
    let recorded = playback.request_count();
    let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, arguments.port.unwrap_or(0)));
    let remarks = Remarks::default();
    let mut server = PlaybackServer::bind(listen, playback, move |text| remarks.add(text)).await?;
    let mut options = "";
    if let Some(config) = tls::load(&arguments.tls)? {
        (server, options) = (server.with_tls(config), "?tls=true");
    }
    let (uri, handle) = (format!("mongodb://{}/{options}", server.address()), server.handle());
    let requests = counted(recorded as u64, "requests");
    let begun = json!({ "event": "listening", "uri": uri, "requests": recorded });
    console.report(|| format!("connect to {uri}: {path} answers {requests}"), &begun)?;
    tokio::select! {
        () = shutdown.requested() => {}
        never = server.run() => match never {},
    }
    let (missing, not_recorded) = handle.inspect(|playback| (playback.missing(), playback.not_recorded_count()));
    let text = || {
        let mut lines: Vec<String> =
            missing.iter().take(MISSING_SHOWN_MAX).map(|request| format!("did not arrive: {request}")).collect();
        if missing.len() > MISSING_SHOWN_MAX {
            lines.push(format!("did not arrive: {} more", missing.len() - MISSING_SHOWN_MAX));
        }
        let arrived = recorded - missing.len();
        let others = counted(not_recorded, "requests");
        lines.push(format!("{arrived} of {requests} arrived, and {others} that the recording does not have"));
        lines.join("\n")
    };
    let ended = json!({ "event": "stopped", "requests": recorded, "missing": missing, "not_recorded": not_recorded });
    console.report(text, &ended)?;
    Ok(if missing.is_empty() && not_recorded == 0 { Exit::Good } else { Exit::GuaranteeBroken })
}

fn read(path: &Path) -> Result<String> {
    let cannot = || format!("cannot read {}", path.display());
    let bytes = std::fs::metadata(path).with_context(cannot)?.len();
    if bytes > RECORDING_BYTES_MAX {
        let reason =
            format!("{} has {bytes} bytes, and {RECORDING_BYTES_MAX} can be played: record less", path.display());
        return Err(Usage(reason).into());
    }
    std::fs::read_to_string(path).with_context(cannot)
}
