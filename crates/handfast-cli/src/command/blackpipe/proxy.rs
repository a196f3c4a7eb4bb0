//! `handfast blackpipe proxy`: injects faults between a program and a server that is already running.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::Result;
use handfast_blackpipe::{ObservedOperation, Proxy, Rules};
use serde_json::{Value, json};

use super::arguments::ProxyArguments;
use super::lines::{LineFile, ensure_own_files};
use super::upstream::ServerAddress;
use super::{rules, tls};
use crate::console::{Console, write_remark};
use crate::exit::Exit;
use crate::listing::counted;
use crate::shutdown::Shutdown;

/// The time that the server has after the first signal to answer the requests that are late. A second signal ends the program at once.
const DELIVERY_TIME_MAX: Duration = Duration::from_secs(10);

pub(super) async fn run(arguments: ProxyArguments) -> Result<Exit> {
    let console = Console::new(arguments.output);
    let shutdown = Shutdown::reported_on(console)?;
    let address = ServerAddress::of(&arguments.upstream)?;
    let upstream = tls::upstream(&address)?;
    let tls = tls::load(&arguments.tls)?;
    let written = match &arguments.rules {
        Some(path) => rules::read(path)?,
        None => Vec::new(),
    };
    let rule_lines: Vec<usize> = written.iter().map(|rule| rule.line).collect();
    ensure_own_files(&[
        ("--rules", arguments.rules.as_deref()),
        ("--log", arguments.log.as_deref()),
        ("--record", arguments.record.as_deref()),
    ])?;
    let log = arguments.log.as_deref().map(|path| LineFile::create("--log", path)).transpose()?;
    let recording = arguments.record.as_deref().map(|path| LineFile::create("--record", path)).transpose()?;
    let rules = Rules::new(written.into_iter().map(|written| written.rule).collect()).with_seed(arguments.seed);
    let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, arguments.port.unwrap_or(0)));
    let mut proxy = Proxy::bind(listen, upstream.clone(), rules).await?;
    if let Some(mut log) = log {
        // The lines have no times, so that the same run gives the same file.
        proxy = proxy.with_log(move |operation| log.write(&decision_json(operation, &rule_lines).to_string()));
    }
    if let Some(mut recording) = recording {
        proxy = proxy.with_recorder(move |message| match message.to_line() {
            Ok(line) => recording.write(&line),
            Err(error) => write_remark(&format!("a message is not in --record: {error}")),
        });
    }
    proxy = proxy.with_warnings(|warning| write_remark(&warning.to_string()));
    let uri = address.behind(proxy.address(), tls.is_some());
    if let Some(tls) = tls {
        proxy = proxy.with_tls(tls);
    }
    let server = address.server();
    if let Err(error) = upstream.check().await {
        write_remark(&format!("{server} cannot be reached yet, and connections are closed until then: {error}"));
    }
    let handle = proxy.handle();
    let begun = json!({ "event": "listening", "uri": uri, "upstream": server, "seed": arguments.seed });
    console.report(|| format!("connect to {uri} instead of {server}"), &begun)?;
    let stopped = async {
        shutdown.requested().await;
        // Those that are not delivered in time are counted below.
        let _ = tokio::time::timeout(DELIVERY_TIME_MAX, handle.deliver_late()).await;
    };
    tokio::select! {
        () = stopped => {}
        never = proxy.run() => match never {},
    }
    let (operations, faults, undelivered) =
        (handle.operation_count(), handle.fault_count(), handle.undelivered_count());
    let ended = json!({ "event": "stopped", "operations": operations, "faults": faults, "undelivered": undelivered });
    let text = || {
        let mut text = format!("stopped after {}, {}", counted(operations, "operations"), counted(faults, "faults"));
        if undelivered > 0 {
            text.push_str(&format!("; the server did not answer {}", counted(undelivered, "late requests")));
        }
        text
    };
    console.report(text, &ended)?;
    Ok(Exit::Good)
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
