//! `handfast bench`: its measured cases, its report on documented bounds, and its exit codes; not the speed of anything.

use anyhow::{Context, Result};
use bson::doc;
use serde_json::Value;

use crate::support::{Scratch, Serve, assert_one_line, handfast};

const SHORT: [&str; 7] = ["--json", "--rounds", "1", "--seconds", "0.05", "--documents", "50"];

/// Runs a benchmark, and returns its cases and its exit code.
fn run(scratch: &Scratch, arguments: &[&str]) -> Result<(Vec<Value>, Option<i32>)> {
    let output = handfast(scratch, &["bench"]).args(arguments).args(SHORT).output()?;
    let cases = serde_json::from_slice(&output.stdout).map_err(|error| anyhow::anyhow!("{error}: {output:?}"))?;
    Ok((cases, output.status.code()))
}

fn kept(cases: &[Value]) -> Vec<&Value> {
    cases.iter().map(|case| &case["kept"]).collect()
}

#[test]
fn the_server_is_measured_with_the_clients_that_the_promise_is_for() -> Result<()> {
    let scratch = Scratch::new("bench-serve")?;
    // The speed of this machine decides whether the bound is kept: the report marks it, and the exit code is 0 in both cases.
    let (cases, code) = run(&scratch, &["serve"])?;
    assert_eq!(code, Some(0));
    assert!(cases[0]["note"].as_str().is_some_and(|note| note.starts_with("16 connections")), "{cases:?}");
    assert_eq!(cases[0]["promised"], 0.6);
    assert_eq!(cases[0]["kept"].as_bool(), cases[0]["ratio"].as_f64().map(|ratio| ratio >= 0.6), "{cases:?}");
    assert_eq!(cases[1]["kept"], Value::Null, "nothing is promised of an update");
    let (cases, code) = run(&scratch, &["serve", "--clients", "2", "--strict"])?;
    assert_eq!((kept(&cases), code), (vec![&Value::Null, &Value::Null], Some(0)), "{cases:?}");
    Ok(())
}

#[test]
fn the_proxy_is_measured_against_a_relay() -> Result<()> {
    let scratch = Scratch::new("bench-proxy")?;
    let (cases, code) = run(&scratch, &["proxy"])?;
    assert_eq!((cases.len(), code), (1, Some(0)), "{cases:?}");
    let case = &cases[0];
    assert_eq!((&case["case"], &case["baseline"]), (&"find, blackpipe proxy".into(), &"bare TCP relay".into()));
    assert!(case["rate"].as_f64() > Some(0.0) && case["baseline_rate"].as_f64() > Some(0.0), "{case}");
    assert_eq!(case["promised"], 0.7);
    assert!(case["note"].as_str().is_some_and(|note| note.starts_with("16 connections, replies of 1")), "{case}");
    Ok(())
}

#[test]
fn a_missed_promise_is_a_failure_for_who_says_so() -> Result<()> {
    let scratch = Scratch::new("bench-strict")?;
    // No machine reaches the first demand, and each machine reaches the last one.
    for (demand, strict, expected) in [("1e9", true, 3), ("1e9", false, 0), ("1e-9", true, 0)] {
        let mut arguments = vec!["store", "--document-bytes", "100", "--demand", demand];
        arguments.extend(strict.then_some("--strict"));
        let (cases, code) = run(&scratch, &arguments)?;
        assert_eq!(code, Some(expected), "{demand}: {cases:?}");
        let kept = kept(&cases);
        let of_promises: Vec<_> = kept.iter().filter_map(|kept| kept.as_bool()).collect();
        assert!(!of_promises.is_empty() && of_promises.iter().all(|kept| *kept == (demand == "1e-9")), "{cases:?}");
    }
    Ok(())
}

#[test]
fn transfers_are_measured_in_every_way() -> Result<()> {
    let scratch = Scratch::new("bench-transfers")?;
    let flags = ["--delay", "0s", "--clients", "1", "--documents", "100", "--seconds", "0.05", "--rounds", "1"];
    let output = handfast(&scratch, &["bench", "transfers", "--json"]).args(flags).output()?;
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout)?;
    let cases = report.as_array().context("a list of cases")?;
    // One case counts round trips; three comparisons run both between all accounts and between few.
    assert_eq!(cases.len(), 1 + 3 * 2, "{report}");
    are_counted(cases);
    Ok(())
}

#[test]
fn transactions_are_measured_against_the_engine_each_other_and_the_server() -> Result<()> {
    let scratch = Scratch::new("bench-transactions")?;
    let (cases, code) = run(&scratch, &["transactions", "--clients", "2"])?;
    assert_eq!(code, Some(0), "{cases:?}");
    let against = |name: &str, baseline: &str| {
        let mut found = cases.iter().filter(|case| case["case"] == name && case["baseline"] == baseline);
        found.next().with_context(|| format!("{name} against {baseline} in {cases:?}"))
    };
    for clients in [1, 2] {
        let case = against(&format!("transfer, {clients} clients"), "bare batch of four writes")?;
        let note = case["note"].as_str().unwrap_or_default();
        let batches = note.split(' ').next().and_then(|count| count.parse::<f64>().ok());
        // A transfer takes one batch; background work may add one, even to a single transfer on a busy machine.
        assert!(batches.is_some_and(|batches| (1.0..=2.0).contains(&batches)), "{case}");
    }
    against("transfer, 10 hot accounts, 2 clients", "uniform transfers")?;
    against("transfer, server, 16 connections", "the two updates alone")?;
    assert!(cases.iter().all(|case| case["rate"].as_f64() > Some(0.0) && case["baseline_rate"].as_f64() > Some(0.0)));
    Ok(())
}

/// Checks that each of these cases was measured, and that its store operations were counted; the first case has round trips as well.
fn are_counted(cases: &[Value]) {
    for (number, case) in cases.iter().enumerate() {
        assert!(case["rate"].as_f64() > Some(0.0) && case["baseline_rate"].as_f64() > Some(0.0), "{case}");
        assert!(case["p50_us"].as_f64() <= case["p95_us"].as_f64(), "{case}");
        assert!(case["p95_us"].as_f64() <= case["p99_us"].as_f64(), "{case}");
        let note = case["note"].as_str().unwrap_or_default();
        let (trips, counted) =
            note.split_once(" round trips, ").map_or((None, note), |(trips, rest)| (Some(trips), rest));
        assert_eq!(trips.is_some(), number == 0, "{case}");
        // The trips are a ratio of two times: where one update of the baseline stood still, it rounds to nothing.
        assert!(trips.is_none_or(|trips| trips.parse::<f64>().is_ok_and(|trips| trips >= 0.0)), "{case}");
        let operations = counted.strip_suffix(" store operations").and_then(|count| count.parse::<f64>().ok());
        assert!(operations > Some(0.9), "{case}");
    }
}

#[test]
fn transfers_are_measured_on_a_server() -> Result<()> {
    let scratch = Scratch::new("bench-transfers-server")?;
    let server = Serve::start(&mut handfast(&scratch, &["serve", "--listen", "127.0.0.1:0", "--data", "data"]))?;
    let store = format!("mongodb://{}", server.address()?);
    let (cases, code) = run(&scratch, &["transfers", "--clients", "1", "--store", &store])?;
    assert_eq!(code, Some(0), "{cases:?}");
    assert_eq!(cases.len(), 1 + 3 * 2, "{cases:?}");
    are_counted(&cases);
    // The store is in memory, where an operation takes a millisecond and nothing else takes time: a transfer has six of them.
    assert!(cases[0]["baseline_p50_us"].as_f64() >= Some(1_000.0), "{}", cases[0]);
    // A transfer by two updates takes two operations; one by a two-phase commit takes eight.
    assert_eq!(cases[2]["note"], "8.0 store operations", "{}", cases[2]);
    // The collections of the benchmark are removed; the oracle stays.
    let databases = server.command(doc! { "listDatabases": 1, "nameOnly": true, "$db": "admin" })?;
    let names =
        databases.get_array("databases")?.iter().filter_map(|database| database.as_document()?.get_str("name").ok());
    assert_eq!(names.collect::<Vec<_>>(), ["handfast"], "{databases}");
    Ok(())
}

#[test]
fn a_bench_of_hot_accounts_alone_is_refused() -> Result<()> {
    let scratch = Scratch::new("bench-refused")?;
    let output = handfast(&scratch, &["bench", "transfers", "--documents", "10"]).output()?;
    assert_one_line(&output, 1, "--documents must be above 10");
    Ok(())
}

#[test]
fn counters_are_measured_beside_a_constant_and_their_operations_are_counted() -> Result<()> {
    let scratch = Scratch::new("bench-counters")?;
    let (cases, code) = run(&scratch, &["counters", "--clients", "2"])?;
    assert_eq!(code, Some(0), "{cases:?}");
    let names =
        ["read a total, HTTP", "count a view, HTTP", "count a view, HTTP, fewer", "count a scattered view, HTTP"];
    for (case, name) in cases.iter().zip(names) {
        assert_eq!((&case["case"], &case["baseline"]), (&name.into(), &"constant route".into()), "{case}");
        assert!(case["rate"].as_f64() > Some(0.0) && case["baseline_rate"].as_f64() > Some(0.0), "{case}");
        assert_eq!(case["promised"], Value::Null, "of another number of connections: {case}");
    }
    let counted = |name: &str| {
        let mut found = cases.iter().filter(|case| case["case"] == name);
        found.next().with_context(|| format!("{name} in {cases:?}"))
    };
    assert_eq!(counted("store operations of a view")?["kept"], true, "{cases:?}");
    assert_eq!(counted("store operations of a flush of 10000 views")?["kept"], true, "{cases:?}");
    assert!(counted("300000 reads and 9000 writes a minute, p99")?["value"].as_f64() > Some(0.0), "{cases:?}");
    assert!(cases.iter().all(|case| !case["case"].as_str().unwrap_or_default().contains("Redis")), "{cases:?}");
    let output = handfast(&scratch, &["bench", "counters", "--redis", "redis://127.0.0.1:1"]).output()?;
    assert_one_line(
        &output,
        1,
        "--redis: the cache and the queue are unavailable: Redis: 127.0.0.1:1 cannot be connected to",
    );
    Ok(())
}

#[test]
fn patterns_are_measured_beside_the_same_writes() -> Result<()> {
    let scratch = Scratch::new("bench-patterns")?;
    let (cases, code) = run(&scratch, &["patterns", "--clients", "1"])?;
    assert_eq!(code, Some(0));
    let operations = |case: &Value| -> Option<f64> {
        case["note"].as_str().and_then(|note| note.strip_suffix(" store operations")?.parse().ok())
    };
    let named =
        |name: &str| cases.iter().find(|case| case["case"] == name).with_context(|| format!("{name} in {cases:?}"));
    // The tests of the patterns count these operations, too.
    for (name, expected) in [("increment, once", 1.0), ("transfer, two-phase commit", 8.0)] {
        let case = named(&format!("{name}, 1 clients"))?;
        assert_eq!(operations(case), Some(expected), "{case}");
    }
    // The worker reads once a second whether the queue is paused, however long a job takes; a measurement of a single job can include two
    // of these reads.
    let job = named("job, 1 clients")?;
    let seconds = job["rate"].as_f64().with_context(|| job.to_string())?.recip();
    assert!(operations(job).is_some_and(|operations| (3.0..=5.0 + seconds).contains(&operations)), "{job}");
    // The operations of the committer are included.
    assert!(operations(named("posting, 1 clients")?) > Some(7.0), "{cases:?}");
    assert!(cases.iter().all(|case| case["rate"].as_f64() > Some(0.0) && case["baseline_rate"].as_f64() > Some(0.0)));
    Ok(())
}
