//! `handfast blackpipe proxy`: injects faults between a program and a server that is already running.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Result;
use handfast_blackpipe::{ObservedOperation, Proxy, Rules, UndeliveredRequest};
use serde_json::{Value, json};

use super::arguments::ProxyArguments;
use super::lines::{LineFile, ensure_own_files};
use super::remarks::Remarks;
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
    if let Some(log) = log {
        // The lines have no times, so that the same run gives the same file.
        proxy = logged(proxy, log, rule_lines);
    }
    let unrecorded = Remarks::default();
    if let Some(mut recording) = recording {
        let unrecorded = unrecorded.clone();
        proxy = proxy.with_recorder(move |message| match message.to_line() {
            Ok(line) => recording.write(&line),
            Err(error) => unrecorded.add(&format!("a message is not in --record: {error}")),
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
    let unrecorded = unrecorded.count();
    let ended = json!({
        "event": "stopped", "operations": operations, "faults": faults, "undelivered": undelivered, "unrecorded": unrecorded,
    });
    let text = || {
        let mut text = format!("stopped after {}, {}", counted(operations, "operations"), counted(faults, "faults"));
        if undelivered > 0 {
            text.push_str(&format!("; the server did not answer {}", counted(undelivered, "late requests")));
        }
        if unrecorded > 0 {
            text.push_str(&format!("; {} not in --record", counted(unrecorded, "messages")));
        }
        text
    };
    console.report(text, &ended)?;
    Ok(Exit::Good)
}

/// Returns the proxy with a log of each decision, and of each late request that the server did not answer.
fn logged(proxy: Proxy, log: LineFile, rule_lines: Vec<usize>) -> Proxy {
    let log = Arc::new(Mutex::new(log));
    let write = move |line: &Value| log.lock().unwrap_or_else(PoisonError::into_inner).write(&line.to_string());
    let (write_undelivered, lines) = (write.clone(), rule_lines.clone());
    proxy
        .with_log(move |operation| write(&decision_json(operation, &rule_lines)))
        .with_undelivered_log(move |request| write_undelivered(&undelivered_json(request, &lines)))
}

fn undelivered_json(UndeliveredRequest { operation, reason }: &UndeliveredRequest, rule_lines: &[usize]) -> Value {
    json!({
        "operation": operation.operation.to_string(),
        "collection": operation.collection,
        "undelivered": operation.fault.map(handfast_blackpipe::Fault::name),
        "reason": reason,
        "rule_line": rule_line(operation, rule_lines),
    })
}

/// Returns the line of the rule that decided about an operation.
fn rule_line(operation: &ObservedOperation, rule_lines: &[usize]) -> Option<usize> {
    operation.rule.and_then(|rule| rule_lines.get(rule - 1)).copied()
}

fn decision_json(operation: &ObservedOperation, rule_lines: &[usize]) -> Value {
    json!({
        "operation": operation.operation.to_string(),
        "collection": operation.collection,
        "decision": operation.fault.map_or("forward", handfast_blackpipe::Fault::name),
        "rule_line": rule_line(operation, rule_lines),
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
