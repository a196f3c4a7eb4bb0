//! `handfast blackpipe proxy`: injects faults between a program and a server that is already running.

use std::fs::File;
use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use anyhow::{Context as _, Result};
use handfast_blackpipe::{ObservedOperation, Proxy, Rules, WrittenRule};
use serde_json::{Value, json};
use tokio::net::TcpStream;

use super::arguments::ProxyArguments;
use super::rules;
use super::upstream::Upstream;
use crate::console::{Console, write_remark};
use crate::exit::Exit;
use crate::listing::counted;
use crate::shutdown::{STOPPING, Shutdown};

pub(super) async fn run(arguments: ProxyArguments) -> Result<Exit> {
    let console = Console::new(arguments.output);
    let tell = move || {
        // A closed output must not keep the proxy from stopping.
        let _ = console.report(|| STOPPING.to_owned(), &json!({ "event": "stopping" }));
    };
    let shutdown = Shutdown::listen(tell).context("cannot listen for signals")?;
    let upstream = Upstream::of(&arguments.upstream)?;
    let written = match &arguments.rules {
        Some(path) => rules::read(path)?,
        None => Vec::new(),
    };
    let log = arguments.log.as_deref().map(|path| DecisionLog::create(path, &written)).transpose()?;
    let rules = Rules::new(written.into_iter().map(|written| written.rule).collect()).with_seed(arguments.seed);
    let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, arguments.port.unwrap_or(0)));
    let mut proxy = Proxy::bind(listen, upstream.server(), rules).await?;
    if let Some(mut log) = log {
        proxy = proxy.with_log(move |operation| log.write(operation));
    }
    if let Err(error) = TcpStream::connect(upstream.server()).await {
        write_remark(&format!(
            "{} cannot be reached yet, and connections are closed until then: {error}",
            upstream.server()
        ));
    }
    let (uri, handle) = (upstream.behind(proxy.address()), proxy.handle());
    let begun = json!({ "event": "listening", "uri": uri, "upstream": upstream.server(), "seed": arguments.seed });
    console.report(|| format!("connect to {uri} instead of {}", upstream.server()), &begun)?;
    tokio::select! {
        () = shutdown.requested() => {}
        never = proxy.run() => match never {},
    }
    let (operations, faults) = (handle.operation_count(), handle.fault_count());
    let ended = json!({ "event": "stopped", "operations": operations, "faults": faults });
    console.report(
        || format!("stopped after {}, {}", counted(operations, "operations"), counted(faults, "faults")),
        &ended,
    )?;
    Ok(Exit::Good)
}

/// The file with a line of JSON for each decision. The lines have no times, so that the same run gives the same file.
struct DecisionLog {
    /// `None` after a write has failed.
    file: Option<File>,
    /// The line of each rule in its file.
    rule_lines: Vec<usize>,
}

impl DecisionLog {
    fn create(path: &Path, rules: &[WrittenRule]) -> Result<Self> {
        let file = File::create(path).with_context(|| format!("cannot write --log {}", path.display()))?;
        Ok(DecisionLog { file: Some(file), rule_lines: rules.iter().map(|rule| rule.line).collect() })
    }

    /// Writes a line at once: it is in the file although the proxy may be killed.
    fn write(&mut self, operation: &ObservedOperation) {
        let Some(file) = &mut self.file else { return };
        if let Err(error) = file.write_all(format!("{}\n", decision_json(operation, &self.rule_lines)).as_bytes()) {
            write_remark(&format!("--log cannot be written, and ends here: {error}"));
            self.file = None;
        }
    }
}

fn decision_json(operation: &ObservedOperation, rule_lines: &[usize]) -> Value {
    let line = operation.rule.and_then(|rule| rule_lines.get(rule - 1));
    json!({
        "operation": operation.operation.to_string(),
        "collection": operation.collection,
        "decision": operation.fault.map_or("forward", handfast_blackpipe::Fault::name),
        "rule_line": line,
    })
}

#[cfg(test)]
mod tests {
    use handfast_blackpipe::{Operation, Rule, Rules};
    use serde_json::json;

    use super::decision_json;

    #[test]
    fn a_line_names_the_operation_and_the_rule() {
        let mut rules = Rules::new(vec![Rule::once("find:2/cut".parse().unwrap())]);
        rules.decide(&Operation::of("ping"));
        rules.decide(&Operation::of("find"));
        rules.decide(&Operation { collection: Some("shop.orders"), ..Operation::of("find") });
        let line = |index: usize| decision_json(&rules.operations()[index], &[7]);
        let forwarded = json!({ "operation": "ping:1", "collection": null, "decision": "forward", "rule_line": null });
        assert_eq!(line(0), forwarded);
        let cut = json!({ "operation": "find:2", "collection": "shop.orders", "decision": "cut", "rule_line": 7 });
        assert_eq!(line(2), cut);
    }
}
