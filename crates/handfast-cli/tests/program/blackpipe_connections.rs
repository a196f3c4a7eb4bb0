//! A proxy and a server hold the documented number of connections, or as many as the system lets a process open. The proxy's memory for
//! each connection is bounded.

use anyhow::{Context as _, Result, ensure};
use bson::doc;
use handfast_blackpipe::proxy::{CONNECTIONS_MAX, IDLE_CONNECTION_BYTES_MAX};
use serde_json::Value;

use crate::support::{FREE_PORT, Scratch, Serve, connect, exchange, handfast};

/// The number of sockets of a connection in the proxy, which is the process that has the most.
const FILES_PER_CONNECTION: usize = 2;
/// The number of files that a process has open beside those of the connections.
const OTHER_FILES: usize = 100;

/// Returns the number after a name in a file of /proc.
fn number(path: &str, name: &str) -> Result<usize> {
    let text = std::fs::read_to_string(path)?;
    let after = text.lines().find_map(|line| line.strip_prefix(name));
    let number = after.and_then(|rest| rest.split_whitespace().next()).with_context(|| format!("{path}: {name}"))?;
    // The number of open files may be unlimited.
    Ok(number.parse().unwrap_or(usize::MAX))
}

#[test]
fn ten_thousand_connections_are_held_within_memory_for_each() -> Result<()> {
    let open_files_max = number("/proc/self/limits", "Max open files")?;
    let count = CONNECTIONS_MAX.min(open_files_max.saturating_sub(OTHER_FILES) / FILES_PER_CONNECTION);
    let scratch = Scratch::new("blackpipe-connections")?;
    let server = Serve::start(&mut handfast(&scratch, &FREE_PORT))?;
    let upstream = format!("mongodb://{}", server.address()?);
    let proxy = Serve::spawn(&mut handfast(&scratch, &["blackpipe", "proxy", "--upstream", &upstream, "--json"]))?;
    let start: Value = serde_json::from_str(&proxy.start)?;
    let uri = start["uri"].as_str().context("a connection string")?;
    let address = uri.trim_start_matches("mongodb://").trim_end_matches('/');
    let (ping, memory) = (doc! { "ping": 1, "$db": "db" }, format!("/proc/{}/status", proxy.process()));

    let mut streams = vec![connect(address)?];
    // The first exchange allocates the memory that is needed once.
    exchange(&streams[0], &ping)?;
    let before = number(&memory, "VmRSS:")?;
    while streams.len() < count {
        let stream = connect(address)?;
        exchange(&stream, &ping)?;
        streams.push(stream);
    }
    let (grown, bound) = ((number(&memory, "VmRSS:")? - before) * 1024, count * IDLE_CONNECTION_BYTES_MAX);
    println!("{count} connections have {grown} bytes, {} each", grown / count);
    ensure!(grown <= bound, "{count} connections have {grown} bytes, and {bound} at most");
    // All connections work, whichever was opened first.
    for stream in &streams {
        let reply = exchange(stream, &ping)?;
        ensure!(reply.get_f64("ok").is_ok_and(|ok| ok == 1.0), "{reply}");
    }
    Ok(())
}
