//! `handfast blackpipe`: refused arguments and programs, the proxy in front of a server, and rules files. tests/ext has programs with a
//! driver.

use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};
use bson::doc;
use serde_json::{Value, json};

use crate::support::{
    FREE_PORT, Scratch, Serve, assert_one_line, connect, exchange, finish, handfast, output, signal, until,
};

/// Explores a program that speaks to no server, with these flags.
fn check(flags: &[&str], code: i32, expected: &str) -> Result<()> {
    let scratch = Scratch::new("blackpipe")?;
    let mut explore = handfast(&scratch, &[&["blackpipe", "explore"], flags].concat());
    // The exploration writes no files, which would stay after a kill.
    let output = explore.env("TMPDIR", "/nowhere").output()?;
    assert_one_line(&output, code, expected);
    assert!(output.stdout.is_empty());
    Ok(())
}

#[test]
fn an_exploration_says_what_is_wrong_without_a_fault() -> Result<()> {
    check(&["--check", "true", "--", "true"], 1, "the program sent no operation")?;
    check(&["--check", "true", "--", "/nowhere/app"], 1, "cannot start '/nowhere/app'")?;
    let failing = ["--check", "true", "--", "sh", "-c", "echo no such file; exit 7"];
    check(&failing, 1, "the program fails without any fault (exit 7: no such file)")?;
    check(&["--check", "echo wrong; exit 1", "--", "true"], 1, "--check fails without any fault (exit 1: wrong)")?;
    check(&["--setup", "exit 5", "--check", "true", "--", "true"], 1, "--setup fails (exit 5)")?;
    let slow = ["--timeout", "100ms", "--check", "true", "--", "sleep", "3600"];
    check(&slow, 1, "the program fails without any fault (timed out)")
}

#[test]
fn wrong_flags_are_usage_errors() -> Result<()> {
    let scratch = Scratch::new("blackpipe-usage")?;
    let check = |flags: &[&str], expected: &str| -> Result<()> {
        let output = handfast(&scratch, &[&["blackpipe", "explore"], flags].concat()).output()?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && stderr.contains(expected), "{stderr}");
        Ok(())
    };
    check(
        &["--", "true"],
        "<--check <COMMAND>|--sum <COLLECTION.FIELD[=VALUE]>|--unique <COLLECTION.FIELD>|--count-equals ",
    )?;
    check(&["--sum", "accounts", "--", "true"], "'accounts' is no field")?;
    check(&["--check", "true"], "<PROGRAM>")?;
    check(&["--check", "true", "--replay", "find:0/lose-reply", "--", "true"], "'find:0' is not an operation")?;
    check(&["--check", "true", "--replay", "find:1/lose", "--", "true"], "the faults are lose-request, lose-reply")?;
    check(
        &["--check", "true", "--only", "find,lose-it", "--", "true"],
        "'lose-it' is neither an operation nor a fault",
    )?;
    check(&["--check", "true", "--only", "cut", "--replay", "find:1/cut", "--", "true"], "--only")?;
    check(&["--check", "true", "--times", "0", "--", "true"], "--times")
}

/// The second run with a fault does not end: before it, the check has run three times, once of them without a fault.
#[test]
fn an_exploration_that_is_stopped_reports_the_runs_before() -> Result<()> {
    let scratch = Scratch::new("blackpipe-stopped")?;
    let check = "echo >>checks; test $(wc -l <checks) -ne 3 || exec sleep 3600";
    let program = format!("exec {} txns status --store \"$MONGODB_URI\"", env!("CARGO_BIN_EXE_handfast"));
    let flags = ["--jobs", "1", "--timeout", "1h", "--junit", "report.xml", "--json", "--check", check];
    let explore = [&["blackpipe", "explore"], &flags[..], &["--", "sh", "-c", &program]].concat();
    let child = handfast(&scratch, &explore).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    until("the third check", || {
        let checks = std::fs::read(scratch.path("checks")).unwrap_or_default();
        Ok(checks.len() == 3)
    })?;
    signal(child.id(), "TERM")?;
    let output = finish(child)?;
    ensure!(output.status.code() == Some(1), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout)?;
    ensure!(report["pairs"].as_array().is_some_and(|pairs| pairs.len() == 1), "{report}");
    ensure!(report["pairs"][0]["result"] == "right" && report["not_run"].as_u64() > Some(1), "{report}");
    let junit = std::fs::read_to_string(scratch.path("report.xml"))?;
    let skipped = format!(r#"errors="0" skipped="{}""#, report["not_run"]);
    ensure!(junit.contains(&skipped) && junit.contains("<skipped message="), "{junit}");
    Ok(())
}

/// Three runs are under way at the same time, each with a server of its own: the check of each waits for the other two. There are never more than three.
#[test]
fn as_many_runs_overlap_as_there_are_jobs() -> Result<()> {
    let scratch = Scratch::new("blackpipe-jobs")?;
    // The first check is that of the run without faults, which is alone.
    let check = "echo $MONGODB_URI >>servers; test $(wc -l <servers) -gt 1 || exit 0
        mkdir running.$$; ls -d running.* | wc -l >>counts
        until test $(wc -l <servers) -ge 4; do sleep 0.05; done; rmdir running.$$";
    let program = format!("exec {} txns status --store \"$MONGODB_URI\"", env!("CARGO_BIN_EXE_handfast"));
    let flags =
        ["--jobs", "3", "--json", "--only", "find:1,lose-request,lose-reply,error,cut,duplicate", "--check", check];
    let explore = [&["blackpipe", "explore"], &flags[..], &["--", "sh", "-c", &program]].concat();
    let output = output(&mut handfast(&scratch, &explore))?;
    let report: Value = serde_json::from_slice(&output.stdout)?;
    let pairs = report["pairs"].as_array().context("the pairs")?;
    ensure!(pairs.len() == 5 && pairs.iter().all(|pair| pair["result"] == "right"), "{report:#}");
    let lines = |name: &str| std::fs::read_to_string(scratch.path(name));
    let servers = lines("servers")?;
    let mut together: Vec<_> = servers.lines().skip(1).take(3).collect();
    together.sort_unstable();
    together.dedup();
    ensure!(together.len() == 3 && servers.lines().count() == 6, "{servers}");
    let counts = lines("counts")?;
    ensure!(counts.lines().all(|count| count.trim().parse().is_ok_and(|count: u32| count <= 3)), "{counts}");
    Ok(())
}

/// A report that cannot be written is refused before the program runs.
#[test]
fn an_exploration_begins_its_report_first() -> Result<()> {
    let scratch = Scratch::new("blackpipe-junit")?;
    ensure!(std::process::Command::new("mkfifo").arg(scratch.path("pipe")).status()?.success());
    for (file, expected) in [("none/report.xml", "--junit: cannot write none/report.xml"), ("pipe", "nobody reads it")]
    {
        let flags = ["blackpipe", "explore", "--check", "true", "--junit", file, "--", "touch", "ran"];
        assert_one_line(&output(&mut handfast(&scratch, &flags))?, 1, expected);
        ensure!(!scratch.path("ran").exists(), "the program ran");
    }
    let flags = ["blackpipe", "explore", "--check", "true", "--junit", "report.xml", "--", "touch", "ran"];
    std::fs::write(scratch.path("report.xml"), "of before")?;
    assert_one_line(&output(&mut handfast(&scratch, &flags))?, 1, "the program sent no operation");
    ensure!(scratch.path("ran").exists());
    ensure!(std::fs::read_to_string(scratch.path("report.xml"))? == "of before", "there is no other report");
    Ok(())
}

const RULES: &str = "\
[[rule]]
fault = 'error'
command = 'insert'
collection = 'orders'
nth = 2
code = 112

[[rule]]
fault = 'lose-reply'
command = 'insert'
first = 3
";

/// The decisions are those of the file, the log has a line for each, and the proxy ends cleanly.
#[test]
fn a_proxy_follows_its_rules_and_logs_its_decisions() -> Result<()> {
    let scratch = Scratch::new("blackpipe-proxy")?;
    std::fs::write(scratch.path("rules.toml"), RULES)?;
    let server = Serve::start(&mut handfast(&scratch, &FREE_PORT))?;
    let upstream = format!("mongodb://{}/?retryWrites=false", server.address()?);
    let flags = ["--rules", "rules.toml", "--log", "log.jsonl", "--seed", "7", "--json"];
    let mut proxy = handfast(&scratch, &["blackpipe", "proxy", "--upstream", &upstream]);
    let mut proxy = Serve::spawn(proxy.args(flags))?;
    let start: Value = serde_json::from_str(&proxy.start)?;
    let uri = start["uri"].as_str().context("a connection string")?;
    let address = uri.strip_prefix("mongodb://").and_then(|uri| uri.strip_suffix("/?retryWrites=false"));
    let address = address.with_context(|| uri.to_owned())?;
    ensure!((start["event"].as_str(), start["seed"].as_u64()) == (Some("listening"), Some(7)), "{start}");

    let stream = connect(address)?;
    let hello = exchange(&stream, &doc! { "hello": 1, "$db": "admin" })?;
    ensure!(hello.get_array("hosts")? == &vec![address.into()], "{hello}");
    let insert = |id: i32| doc! { "insert": "orders", "documents": [{ "_id": id }], "$db": "db" };
    ensure!(exchange(&stream, &insert(1))?.get_i32("n")? == 1);
    ensure!(exchange(&stream, &insert(2))?.get_i32("code")? == 112);
    ensure!(exchange(&stream, &insert(3)).is_err(), "the connection is closed");
    let found = server.find_all("orders")?;
    ensure!(found == [doc! { "_id": 1 }.into(), doc! { "_id": 3 }.into()], "{found:?}");

    proxy.signal("TERM")?;
    ensure!(serde_json::from_str::<Value>(&proxy.line()?)? == json!({ "event": "stopping" }));
    let stopped: Value = serde_json::from_str(&proxy.line()?)?;
    ensure!(
        stopped == json!({ "event": "stopped", "operations": 3, "faults": 2, "undelivered": 0, "unrecorded": 0 }),
        "{stopped}"
    );
    let (code, said) = proxy.wait()?;
    ensure!(code == Some(0) && said.is_empty(), "{code:?} {said}");
    let line = |number: u32, decision: &str, rule_line: Option<u32>| {
        let operation = format!("insert:{number}");
        json!({ "operation": operation, "collection": "db.orders", "decision": decision, "rule_line": rule_line })
    };
    let log = std::fs::read_to_string(scratch.path("log.jsonl"))?;
    let found = log.lines().map(serde_json::from_str).collect::<Result<Vec<Value>, _>>()?;
    ensure!(found == [line(1, "forward", None), line(2, "error", Some(1)), line(3, "lose-reply", Some(8))], "{log}");
    Ok(())
}

/// Starts a proxy with a rule, and returns it with the address for programs.
fn start_proxy(scratch: &Scratch, server: &Serve, rule: &str) -> Result<(Serve, String)> {
    std::fs::write(scratch.path("rules.toml"), format!("[[rule]]\n{rule}\n"))?;
    let upstream = format!("mongodb://{}", server.address()?);
    let flags = ["--upstream", &upstream, "--rules", "rules.toml", "--log", "log.jsonl", "--json"];
    let proxy = Serve::spawn(&mut handfast(scratch, &[&["blackpipe", "proxy"], &flags[..]].concat()))?;
    let start: Value = serde_json::from_str(&proxy.start)?;
    let uri = start["uri"].as_str().context("a connection string")?;
    let address = uri.trim_start_matches("mongodb://").trim_end_matches('/').to_owned();
    Ok((proxy, address))
}

/// Returns the number of requests that a proxy names at its end.
fn undelivered(mut proxy: Serve) -> Result<Value> {
    ensure!(serde_json::from_str::<Value>(&proxy.line()?)? == json!({ "event": "stopping" }));
    let stopped: Value = serde_json::from_str(&proxy.line()?)?;
    ensure!(stopped["event"] == "stopped" && proxy.wait()?.0 == Some(0), "{stopped}");
    Ok(stopped["undelivered"].clone())
}

/// A proxy sends requests that are late at the first signal before it ends, or names them.
#[test]
fn a_proxy_delivers_late_requests_before_it_stops() -> Result<()> {
    let insert = doc! { "insert": "orders", "documents": [{ "_id": 1 }], "$db": "db" };
    let scratch = Scratch::new("blackpipe-late")?;
    let server = Serve::start(&mut handfast(&scratch, &FREE_PORT))?;
    let (proxy, address) = start_proxy(&scratch, &server, "fault = 'delay'\ndelay = '1h'\ncommand = 'insert'")?;
    let answer = std::thread::spawn(move || exchange(&connect(&address)?, &insert));
    let log = scratch.path("log.jsonl");
    until("the request is delayed", || Ok(std::fs::read_to_string(&log)?.contains("delay")))?;
    ensure!(server.find_all("orders")?.is_empty());
    proxy.signal("TERM")?;
    ensure!(undelivered(proxy)? == 0);
    let answer = answer.join().map_err(|_| anyhow::anyhow!("the client failed"))??;
    ensure!(answer.get_i32("n")? == 1 && server.find_all("orders")?.len() == 1, "{answer}");

    std::fs::remove_file(log)?;
    let increment = doc! {
        "update": "orders", "updates": [{ "q": { "_id": 1 }, "u": { "$inc": { "n": 1 } } }], "$db": "db",
    };
    let rule = "fault = 'duplicate'\nafter = '1h'\ncommand = 'update'";
    for (is_server_there, expected) in [(true, 0_u64), (false, 1)] {
        let _ = std::fs::remove_file(scratch.path("log.jsonl"));
        let (proxy, address) = start_proxy(&scratch, &server, rule)?;
        ensure!(exchange(&connect(&address)?, &increment)?.get_i32("n")? == 1);
        if !is_server_there {
            server.signal("KILL")?;
            until("the server is gone", || Ok(connect(&server.address()?).is_err()))?;
        }
        proxy.signal("TERM")?;
        let found = undelivered(proxy)?;
        ensure!(found == expected, "{found}");
        let log = std::fs::read_to_string(scratch.path("log.jsonl"))?;
        let lines = log.lines().map(serde_json::from_str).collect::<Result<Vec<Value>, _>>()?;
        ensure!((lines.len() as u64, &lines[0]["decision"]) == (1 + expected, &json!("duplicate")), "{log}");
        for line in &lines[1..] {
            let reason = line["reason"].as_str().context("a reason")?;
            ensure!(reason.starts_with("its copy was not answered: "), "{log}");
            ensure!((&line["operation"], &line["undelivered"]) == (&json!("update:1"), &json!("duplicate")), "{log}");
        }
        if is_server_there {
            let document = server.find_all("orders")?;
            ensure!(document == [doc! { "_id": 1, "n": 2 }.into()], "{document:?}");
        }
    }
    Ok(())
}

/// Two runs with the same seed have the same decisions; a run with another seed has others.
#[test]
fn a_proxy_repeats_its_decisions_with_the_same_seed() -> Result<()> {
    let scratch = Scratch::new("blackpipe-seed")?;
    std::fs::write(scratch.path("rules.toml"), "[[rule]]\nfault = 'error'\ncode = 112\nprobability = 0.5\n")?;
    let server = Serve::start(&mut handfast(&scratch, &FREE_PORT))?;
    let upstream = format!("mongodb://{}", server.address()?);
    let run = |seed: &str| -> Result<String> {
        let _ = std::fs::remove_file(scratch.path("log.jsonl"));
        let flags = ["--rules", "rules.toml", "--log", "log.jsonl", "--seed", seed, "--json"];
        let mut proxy = handfast(&scratch, &["blackpipe", "proxy", "--upstream", &upstream]);
        let proxy = Serve::spawn(proxy.args(flags))?;
        let start: Value = serde_json::from_str(&proxy.start)?;
        let uri = start["uri"].as_str().context("a connection string")?;
        let stream = connect(uri.trim_start_matches("mongodb://").trim_end_matches('/'))?;
        for _ in 0..64 {
            exchange(&stream, &doc! { "ping": 1, "$db": "db" })?;
        }
        Ok(std::fs::read_to_string(scratch.path("log.jsonl"))?)
    };
    let first = run("7")?;
    ensure!(first.lines().count() == 64 && first.contains("forward") && first.contains("error"), "{first}");
    ensure!(first == run("7")?);
    ensure!(first != run("8")?);
    Ok(())
}

#[test]
fn a_proxy_says_what_is_wrong() -> Result<()> {
    let scratch = Scratch::new("blackpipe-proxy-wrong")?;
    let check = |flags: &[&str], code: i32, expected: &str| -> Result<()> {
        let output = output(&mut handfast(&scratch, &[&["blackpipe", "proxy"], flags].concat()))?;
        assert_one_line(&output, code, expected);
        Ok(())
    };
    let server = ["--upstream", "mongodb://127.0.0.1:1"];
    check(&[&server[..], &["--rules", "none.toml"]].concat(), 1, "cannot read none.toml")?;
    check(&[&server[..], &["--log", "none/log"]].concat(), 1, "cannot write --log none/log")?;
    check(&[&server[..], &["--record", "none/run"]].concat(), 1, "cannot write --record none/run")?;
    std::fs::write(scratch.path("full.jsonl"), "{}\n")?;
    for flag in ["--log", "--record"] {
        let refusal = format!("cannot write {flag} full.jsonl: the file exists, and is not overwritten: remove it");
        check(&[&server[..], &[flag, "full.jsonl"]].concat(), 1, &refusal)?;
        ensure!(std::fs::read_to_string(scratch.path("full.jsonl"))? == "{}\n");
    }
    let tls = ["--tls-certificate", "none.pem", "--tls-key", "none.pem"];
    check(&[&server[..], &tls].concat(), 1, "--tls-certificate: none.pem: it cannot be read")?;
    check(&["--upstream", "mongodb://127.0.0.1:1/?tlsCAFile=none.pem"], 1, "--upstream: tlsCAFile none.pem: ")?;
    std::fs::write(scratch.path("empty.pem"), "")?;
    check(&["--upstream", "mongodb://127.0.0.1:1/?tlsCAFile=empty.pem"], 1, "there is no certificate in PEM form")?;
    check(&["--upstream", "mongodb://ann:secret@db"], 2, "leave user and password out")?;
    std::fs::write(scratch.path("rules.toml"), "[[rule]]\nfault = 'cut'\nnht = 2\n")?;
    check(&[&server[..], &["--rules", "rules.toml"]].concat(), 2, "rules.toml: line 3: unknown key 'nht'")?;
    let taken = std::net::TcpListener::bind("127.0.0.1:0")?;
    let port = taken.local_addr()?.port().to_string();
    check(&[&server[..], &["--port", &port]].concat(), 1, "cannot listen on 127.0.0.1:")
}

#[test]
fn a_recording_that_cannot_be_played_is_refused() -> Result<()> {
    let scratch = Scratch::new("blackpipe-play")?;
    let play = || handfast(&scratch, &["blackpipe", "play", "run.jsonl"]).output();
    assert_one_line(&play()?, 1, "cannot read run.jsonl");
    std::fs::write(scratch.path("run.jsonl"), "")?;
    assert_one_line(&play()?, 2, "run.jsonl: line 1: there is no handshake in the recording");
    std::fs::write(scratch.path("run.jsonl"), "{\"hello\":{\"ok\":1}}\nping\n")?;
    assert_one_line(&play()?, 2, "run.jsonl: line 2: it is no object");
    Ok(())
}

/// Requests that no recording can have are named up to a bound, and counted at the end.
#[test]
fn requests_that_are_not_recorded_are_named_and_counted() -> Result<()> {
    let scratch = Scratch::new("blackpipe-unrecorded")?;
    let server = Serve::start(&mut handfast(&scratch, &FREE_PORT))?;
    let upstream = format!("mongodb://{}", server.address()?);
    let flags = ["blackpipe", "proxy", "--upstream", &upstream, "--record", "run.jsonl"];
    for (count, named) in [(3, 3), (50, 10)] {
        let _ = std::fs::remove_file(scratch.path("run.jsonl"));
        let mut proxy = Serve::spawn(&mut handfast(&scratch, &flags))?;
        let (_, address) = proxy.start.split_once("mongodb://").context("a connection string")?;
        let stream = connect(address.split('/').next().unwrap_or_default())?;
        let deep = (0..150).fold(doc! {}, |inner, _| doc! { "a": inner });
        for _ in 0..count {
            exchange(&stream, &doc! { "ping": 1, "comment": deep.clone(), "$db": "db" })?;
        }
        proxy.signal("TERM")?;
        proxy.line()?;
        let stopped = proxy.line()?;
        let expected = format!("stopped after {count} operations, 0 faults; {count} messages not in --record");
        ensure!(stopped == expected, "{stopped}");
        let (code, said) = proxy.wait()?;
        let lines = said.lines().filter(|line| line.contains("not in --record: ")).count();
        ensure!((code, lines, said.lines().count()) == (Some(0), named, named), "{said}");
        ensure!(said.contains("; further ones are counted at the end") == (count > named), "{said}");
    }
    Ok(())
}

#[test]
fn a_rules_file_is_checked() -> Result<()> {
    let scratch = Scratch::new("blackpipe-rules")?;
    let check = |text: &str, flags: &[&str]| -> Result<(Option<i32>, String, String)> {
        std::fs::write(scratch.path("rules.toml"), text)?;
        let output = handfast(&scratch, &[&["blackpipe", "rules", "check", "rules.toml"], flags].concat()).output()?;
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Ok((output.status.code(), text(output.stdout), text(output.stderr)))
    };
    let expected = "\
line  fault       operations
1     error 112   insert on orders, match 2
8     lose-reply  insert, from match 3 on
";
    assert_eq!(check(RULES, &[])?, (Some(0), expected.to_owned(), String::new()));
    let line = json!({ "line": 8, "fault": "lose-reply", "operations": "insert, from match 3 on" });
    let (_, lines, _) = check(RULES, &["--json"])?;
    ensure!(lines.lines().nth(1) == Some(line.to_string().as_str()), "{lines}");
    let (code, _, said) = check("[[rule]]\nfault = 'cut'\nnth = 0", &[])?;
    ensure!(code == Some(2), "{code:?}");
    ensure!(said == "handfast: rules.toml: line 3: 'nth' is a whole number from 1 to 4294967295\n", "{said}");
    Ok(())
}
