//! `handfast bench process`: the time of the program to its first answer, and its memory, idle and after loading documents.
//!
//! There is no baseline here, only bounds. The program is this one, started again as `serve` on an empty directory.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use bson::{RawDocumentBuf, rawdoc};
use handfast_embedded::{Options, SEALED_BUFFERS_MAX};
use handfast_store::Clock;

use super::client::{Client, load};
use super::report::Measurement;
use crate::configuration::PREFIX;

/// Milliseconds from the start of the process on an empty directory to its answer to a `hello`.
const START_MILLIS_PROMISED: f64 = 50.0;
/// Resident memory of an idle server, in MB. Beyond it are only the caches and buffers that settings bound.
const IDLE_MEGABYTES_PROMISED: f64 = 40.0;
/// The time that a server idles before its memory is measured.
const SETTLING: Duration = Duration::from_secs(1);
/// Large write buffers of the store: one of documents, one of indexes.
const LARGE_BUFFERS: u64 = 2;

pub(crate) struct Plan {
    pub(crate) documents: u64,
    pub(crate) rounds: usize,
    pub(crate) cache_bytes: u64,
}

/// A running `handfast serve`; killed when dropped.
struct Serve {
    child: Child,
    address: SocketAddr,
}

impl Serve {
    /// Starts the server on an empty directory, and returns once it listens.
    fn start(scratch: &Path, name: &str, plan: &Plan) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["serve", "--json", "--listen", "127.0.0.1:0", "--log-level", "error", "--data", name]);
        command.args(["--cache-bytes", &plan.cache_bytes.to_string()]);
        command.args(["--write-buffer-bytes", &Options::default().write_buffer_bytes.to_string()]);
        // No other configuration file is in reach.
        command.current_dir(scratch).stdin(Stdio::null()).stdout(Stdio::piped());
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with(PREFIX) {
                command.env_remove(name);
            }
        }
        let mut child = command.spawn().context("cannot start the server")?;
        let stdout = child.stdout.take().context("the server has no output")?;
        let mut serve = Serve { child, address: SocketAddr::from(([127, 0, 0, 1], 0)) };
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        let line: serde_json::Value =
            serde_json::from_str(&line).context("the server does not say where it listens")?;
        let address = line["addresses"][0].as_str().context("the server has no address")?;
        serve.address = address.parse()?;
        Ok(serve)
    }

    /// Returns the resident memory in MB (10^6 bytes): now, and its maximum so far.
    fn resident(&self) -> Result<(f64, f64)> {
        let path = format!("/proc/{}/status", self.child.id());
        let status = std::fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let kibibytes: f64 = line.and_then(|rest| rest.split_whitespace().next()).context("no memory")?.parse()?;
            anyhow::Ok(kibibytes * 1024.0 / 1e6)
        };
        Ok((field("VmRSS:")?, field("VmHWM:")?))
    }
}

impl Drop for Serve {
    fn drop(&mut self) {
        // It may have ended by itself; the scratch directory goes in any case.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs all cases.
pub(crate) async fn run(
    plan: &Plan,
    clock: Arc<dyn Clock>,
    scratch: &Path,
    document: &dyn Fn(i64) -> RawDocumentBuf,
    progress: &(dyn Fn(&str) + Sync),
) -> Result<Vec<Measurement>> {
    progress("starting");
    let mut starts = Vec::with_capacity(plan.rounds);
    for round in 0..plan.rounds {
        let before = clock.elapsed();
        let serve = Serve::start(scratch, &format!("start-{round}"), plan)?;
        Client::connect(serve.address).await?.command(&rawdoc! { "hello": 1, "$db": "admin" }).await?;
        starts.push(clock.elapsed().saturating_sub(before).as_secs_f64() * 1e3);
    }
    starts.sort_by(f64::total_cmp);
    let start = starts.get(starts.len() / 2).copied().unwrap_or_default();
    let slowest = starts.last().copied().unwrap_or_default();

    let serve = Serve::start(scratch, "load", plan)?;
    Client::connect(serve.address).await?.command(&rawdoc! { "hello": 1, "$db": "admin" }).await?;
    tokio::time::sleep(SETTLING).await;
    let (idle, _) = serve.resident()?;
    progress("loading documents");
    load(serve.address, plan.documents, document).await?;
    let (loaded, most) = serve.resident()?;
    Ok(vec![
        Measurement::new("start to first hello, empty directory", start, "ms", START_MILLIS_PROMISED)
            .with_note(format!("median of {}; slowest {slowest:.1} ms", plan.rounds)),
        Measurement::new("resident, idle", idle, "MB", IDLE_MEGABYTES_PROMISED),
        Measurement::new("resident, highest while loading", most, "MB", bound_megabytes(plan)).with_note(format!(
            "{} documents of {} bytes; afterwards {loaded:.0} MB; promised: an idle server, cache-bytes and full write \
             buffers",
            plan.documents,
            document(0).as_bytes().len()
        )),
    ])
}

/// Returns the memory that the settings allow: the cache, and the large write buffers with the full ones that wait to be written.
fn bound_megabytes(plan: &Plan) -> f64 {
    let buffers = LARGE_BUFFERS * (1 + SEALED_BUFFERS_MAX as u64) * Options::default().write_buffer_bytes;
    IDLE_MEGABYTES_PROMISED + (plan.cache_bytes + buffers) as f64 / 1e6
}
