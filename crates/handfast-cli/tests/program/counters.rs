//! `handfast counters`: views are counted over HTTP, the process is killed in their midst, and what it acknowledged is there.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests are tests")]

mod clients;
mod ferretdb;
mod long_run;
mod long_run_clients;
mod redis_server;
mod scaled;
mod scaled_import;
mod scaled_start;
mod stopped_parts;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Output;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use anyhow::{Context as _, Result, ensure};
use bson::rawdoc;
use handfast_embedded::EmbeddedStore;
use handfast_store::{Namespace, Sources, StoreExt as _};
use serde_json::{Value, json};

use crate::support::{Scratch, Serve, assert_one_line, connect, handfast, output, until};

pub(crate) const SERVE: [&str; 8] =
    ["counters", "serve", "--data", "data", "--listen", "127.0.0.1:0", "--flush-interval", "20ms"];
/// The answers after which the process is killed.
const KILL_AT: u64 = 200;
/// The clients without keys, and as many with keys.
const CLIENTS: usize = 4;

/// An answer: its status, and its body.
type Answer = (u16, String);

/// Sends a request, and reads the answer; `None` if the connection ends before it is whole.
pub(crate) fn request(stream: &mut TcpStream, line: &str, header: &str) -> Option<Answer> {
    request_with_body(stream, line, header, "")
}

pub(crate) fn request_with_body(stream: &mut TcpStream, line: &str, header: &str, body: &str) -> Option<Answer> {
    let (head, body) = exchange(stream, line, header, body)?;
    Some((head.split(' ').nth(1)?.parse().ok()?, body))
}

/// Sends a request, and returns the head and the body of the answer.
fn exchange(stream: &mut TcpStream, line: &str, header: &str, body: &str) -> Option<(String, String)> {
    let (end, length) = (if header.is_empty() { "" } else { "\r\n" }, body.len());
    // In one write: the system would hold back the later ones of several.
    let message = format!("{line} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {length}\r\n{header}{end}\r\n{body}");
    stream.write_all(message.as_bytes()).ok()?;
    let (mut text, mut buffer) = (String::new(), [0; 4_096]);
    loop {
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap_or("0");
            if body.len() == length.parse::<usize>().ok()? {
                return Some((head.to_owned(), body.to_owned()));
            }
        }
        match stream.read(&mut buffer) {
            Ok(0) | Err(_) => return None,
            Ok(bytes) => text.push_str(std::str::from_utf8(buffer.get(..bytes)?).ok()?),
        }
    }
}

/// Sends a request to a service that answers with success, and returns the JSON.
pub(crate) fn ask(serve: &Serve, line: &str, header: &str) -> Result<Value> {
    let (status, body) = request(&mut serve_connection(serve)?, line, header).context("no answer")?;
    ensure!(status == 200, "{line}: {status} {body}");
    Ok(serde_json::from_str(&body)?)
}

fn serve_connection(serve: &Serve) -> Result<TcpStream> {
    connect(&serve.address()?)
}

/// Runs a command on the counters of the directory.
pub(crate) fn run(scratch: &Scratch, arguments: &[&str]) -> Result<Output> {
    run_with(scratch, arguments, &["--data", "data"])
}

/// Runs a command on the counters in a place.
fn run_with(scratch: &Scratch, arguments: &[&str], place: &[&str]) -> Result<Output> {
    output(handfast(scratch, &["counters"]).args(arguments).args(place))
}

pub(crate) fn stdout(output: &Output) -> Result<String> {
    ensure!(output.status.success(), "{output:?}");
    Ok(String::from_utf8(output.stdout.clone())?)
}

pub(crate) fn stopped(mut serve: Serve) -> Result<()> {
    serve.stop("TERM")?;
    let (code, stderr) = serve.wait()?;
    ensure!(code == Some(0) && stderr.is_empty(), "{code:?} {stderr}");
    Ok(())
}

#[test]
fn views_are_counted_saved_at_a_stop_and_shown() -> Result<()> {
    let scratch = Scratch::new("counters")?;
    // Nothing is saved before the stop.
    let arguments = ["counters", "serve", "--data", "data", "--listen", "127.0.0.1:0", "--flush-interval", "1h"];
    let serve = Serve::start(handfast(&scratch, &arguments).args(["--time-zone", "Asia/Tokyo"]))?;
    ensure!(serve.start.ends_with("days in Asia/Tokyo"), "{}", serve.start);
    for total in 1..=3 {
        let answer = ask(&serve, "POST /v1/ads/7/views", "")?;
        assert_eq!(answer, json!({ "kind": "ads", "id": "7", "total": total, "partial": false, "counted": true }));
    }
    ask(&serve, "POST /v1/ads/8/views", "")?;
    stopped(serve)?;
    let top = stdout(&run(&scratch, &["top", "ads"])?)?;
    assert_eq!(top, "id  views\n7   3\n8   1\n");
    let top = stdout(&run(&scratch, &["top", "ads", "--limit", "1", "--json"])?)?;
    assert_eq!(top, "{\"id\":\"7\",\"views\":3}\n");
    let shown = stdout(&run(&scratch, &["show", "ads/7", "--time-zone", "Asia/Tokyo"])?)?;
    assert!(shown.starts_with("ads/7 has 3 views\nday "), "{shown}");
    let verified = stdout(&run(&scratch, &["verify"])?)?;
    assert_eq!(verified, "2 items with 4 views checked: each total is its base and the sum of its days\n");
    Ok(())
}

#[test]
fn a_total_that_differs_from_its_days_is_found() -> Result<()> {
    let scratch = Scratch::new("counters-verify")?;
    let serve = Serve::start(&mut handfast(&scratch, &SERVE))?;
    ask(&serve, "POST /v1/ads/7/views", "")?;
    stopped(serve)?;
    let change = async {
        let store = EmbeddedStore::open(&scratch.path("data"), Sources::system()?, Default::default()).await?;
        let totals = Namespace::new("counters", "totals")?;
        store.update_one(&totals, rawdoc! {}, rawdoc! { "$inc": { "total": 1_i64 } }).await?;
        anyhow::Ok(store.close().await?)
    };
    tokio::runtime::Runtime::new()?.block_on(change)?;
    let output = run(&scratch, &["verify"])?;
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let text = String::from_utf8(output.stdout)?;
    assert_eq!(
        text,
        "1 item with 2 views checked: 1 total is not its base and the sum of its days\n  ads/7: the total is 2, and base 0 and days 1 are 1\n"
    );
    let output = run(&scratch, &["verify", "--json", "--kind", "ads"])?;
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let differences = json!([{ "kind": "ads", "id": "7", "total": 2, "base": 0, "days": 1 }]);
    let report: Value = serde_json::from_slice(&output.stdout)?;
    assert_eq!(report, json!({ "items": 1, "views": 2, "waiting": 0, "differences": differences, "damaged": [] }));
    let other = run(&scratch, &["verify", "--kind", "news"])?;
    assert_one_line(&other, 1, "there is no saved item of the kind 'news'; there is ads");
    assert_one_line(&run(&scratch, &["top", "news"])?, 1, "there is no saved item of the kind 'news'; there is ads");
    Ok(())
}

#[test]
fn what_cannot_be_served_or_read_is_named() -> Result<()> {
    let scratch = Scratch::new("counters-usage")?;
    let serve = |flags: &[&str]| output(handfast(&scratch, &["counters", "serve"]).args(flags));
    assert_one_line(&serve(&["--listen", "0.0.0.0:0"])?, 2, "--tokens requires a token");
    assert_one_line(&serve(&["--listen", "nowhere"])?, 2, "--listen: 'nowhere' is not an address");
    assert_one_line(&serve(&["--listen", "18090"])?, 2, "HOST:PORT is expected: 127.0.0.1:18090");
    for (flag, time, least) in
        [("--flush-interval", "0s", "10ms"), ("--flush-interval", "9ms", "10ms"), ("--take-over-after", "0s", "1s")]
    {
        let expected = format!("{flag} must be at least {least}, and is {time}");
        assert_one_line(&serve(&[flag, time])?, 2, &expected);
    }
    let window = serve(&["--visitor-window", "ads=0s"])?;
    let text = String::from_utf8_lossy(&window.stderr);
    let expected = "for '--visitor-window <KIND=TIME>': the time must be at least 1s and at most 24h";
    ensure!(window.status.code() == Some(2) && text.contains(expected), "{text}");
    assert_one_line(&serve(&["--tokens", "none.txt"])?, 2, "--tokens: cannot read the file none.txt");
    std::fs::write(scratch.path("tokens.txt"), "# none\nabc\n")?;
    let wrong = serve(&["--tokens", "tokens.txt"])?;
    assert_one_line(&wrong, 2, "--tokens: tokens.txt, line 2: the hash of a token has 64 hexadecimal digits");
    assert_one_line(&wrong, 2, "`printf %s TOKEN | sha256sum` prints that of the token TOKEN");
    let twice = ["--visitor-window", "ads=30m", "--visitor-window", "ads=1h"];
    assert_one_line(&serve(&twice)?, 2, "--visitor-window: ads is there more than once");
    let twice = ["--pixel", "ads", "--pixel", "news", "--pixel", "ads"];
    assert_one_line(&serve(&twice)?, 2, "--pixel: ads is there more than once");
    let twice = ["--bots", "refuse", "--bots", "count"];
    assert_one_line(&serve(&twice)?, 2, "--bots: the value for all kinds is there more than once");
    let twice = ["--limit-per-client", "ads=60/1m", "--limit-per-client", "ads=6/1m"];
    assert_one_line(&serve(&twice)?, 2, "--limit-per-client: ads is there more than once");
    let header = ["--client-address-header", "X Forwarded"];
    assert_one_line(&serve(&header)?, 2, r#"--client-address-header: "X Forwarded" is no name of a header"#);
    let header = ["--client-address-header", "forwarded"];
    assert_one_line(&serve(&header)?, 2, "--client-address-header: forwarded cannot be read: let the proxy send");
    for (limit, expected) in [
        ("0/1m", "the number of requests must be at least 1 and at most 4294967295, and is 0"),
        ("ads=4000000000/1s", "the time for 4000000000 requests must be at least 4s"),
    ] {
        let output = serve(&["--limit-per-client", limit])?;
        let text = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.code() == Some(2) && text.contains(expected), "{text}");
    }
    ensure!(!scratch.path("handfast-data").exists(), "nothing was created");
    assert_one_line(&run(&scratch, &["verify"])?, 1, "cannot read the data directory data");
    stopped(Serve::start(&mut handfast(&scratch, &SERVE))?)?;
    assert_one_line(&run(&scratch, &["top", "ads", "--database", "shop"])?, 1, "there is no database 'shop'");
    let reversed = run(&scratch, &["show", "ads/7", "--from", "2026-12-01", "--to", "2026-11-30"])?;
    assert_one_line(&reversed, 2, "the range of days ends before it begins");
    assert_eq!(stdout(&run(&scratch, &["show", "ads/7"])?)?, "ads/7 has 0 views\nnone\n");
    let reserved = run(&scratch, &["show", "ads/top"])?;
    let text = String::from_utf8_lossy(&reserved.stderr);
    ensure!(reserved.status.code() == Some(2) && text.contains("the id 'top' is a word of the path"), "{text}");
    Ok(())
}

#[test]
fn a_token_of_the_file_is_needed() -> Result<()> {
    let scratch = Scratch::new("counters-tokens")?;
    // printf abc | sha256sum
    let hash = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad  -\n";
    std::fs::write(scratch.path("tokens.txt"), hash)?;
    let serve = Serve::start(handfast(&scratch, &SERVE).args(["--tokens", "tokens.txt", "--public-reads"]))?;
    let mut stream = serve_connection(&serve)?;
    let refused = request(&mut stream, "POST /v1/ads/7/views", "").context("no answer")?;
    ensure!(refused.0 == 401 && refused.1.contains("urn:handfast:problem:unauthorized"), "{refused:?}");
    assert_eq!(ask(&serve, "POST /v1/ads/7/views", "authorization: Bearer abc")?["total"], 1);
    assert_eq!(ask(&serve, "GET /v1/ads/7", "")?["total"], 1);
    stopped(serve)
}

#[test]
fn visitors_bots_and_limits_are_set_by_flags() -> Result<()> {
    let scratch = Scratch::new("counters-visitors")?;
    let flags = ["--visitor-window", "ads=30m", "--bots", "refuse", "--limit-per-client", "8/24h"];
    let of_kind = ["--bots", "news=count", "--limit-per-client", "news=1/24h"];
    let behind = ["--client-address-header", "X-Forwarded-For"];
    let serve = Serve::start(handfast(&scratch, &SERVE).args(flags).args(of_kind).args(behind))?;
    let view = "POST /v1/ads/7/views";
    for (header, expected) in [
        ("x-forwarded-for: 192.0.2.7", json!([1, true, null])),
        ("x-forwarded-for: 192.0.2.7", json!([1, false, "repeated"])),
        ("x-forwarded-for: 192.0.2.8", json!([2, true, null])),
        ("x-forwarded-for: 192.0.2.9\r\nuser-agent: Googlebot/2.1", json!([2, false, "bot"])),
    ] {
        let answer = ask(&serve, view, header)?;
        assert_eq!(json!([answer["total"], answer["counted"], answer["reason"]]), expected, "{header}");
    }
    let news = "x-forwarded-for: 192.0.2.7\r\nuser-agent: Googlebot/2.1";
    assert_eq!(ask(&serve, "POST /v1/news/7/views", news)?["counted"], true);
    let refused = request(&mut serve_connection(&serve)?, "POST /v1/news/7/views", news).context("no answer")?;
    assert_eq!(refused.0, 429);
    let mut stream = serve_connection(&serve)?;
    let statuses: Vec<u16> = (0..9).filter_map(|_| Some(request(&mut stream, "GET /v1/ads/7", "")?.0)).collect();
    assert_eq!(statuses, [[200; 8].as_slice(), &[429]].concat(), "the address of the connection is a client, too");
    stopped(serve)
}

#[test]
fn a_key_beyond_the_maximum_is_refused_and_not_forgotten() -> Result<()> {
    let scratch = Scratch::new("counters-keys")?;
    let serve = Serve::start(handfast(&scratch, &SERVE).args(["--idempotency-keys", "1"]))?;
    let view = "POST /v1/ads/7/views";
    assert_eq!(ask(&serve, view, "idempotency-key: a")?["total"], 1);
    let (status, body) = request(&mut serve_connection(&serve)?, view, "idempotency-key: b").context("no answer")?;
    ensure!(status == 503 && body.contains("problem:keys-full") && body.contains("not_applied"), "{status} {body}");
    assert_eq!(ask(&serve, view, "idempotency-key: a")?["total"], 1);
    assert_eq!(ask(&serve, view, "")?["total"], 2);
    let (_, metrics) = request(&mut serve_connection(&serve)?, "GET /metrics", "").context("no answer")?;
    ensure!(metrics.contains("\nhandfast_counters_idempotency_keys 1\n"), "{metrics}");
    ensure!(metrics.contains("\nhandfast_counters_idempotency_keys_limit 1\n"), "{metrics}");
    stopped(serve)
}

#[test]
fn all_addresses_of_a_name_are_listened_on() -> Result<()> {
    let scratch = Scratch::new("counters-listen")?;
    let serve =
        Serve::start(&mut handfast(&scratch, &["counters", "serve", "--data", "data", "--listen", "localhost:0"]))?;
    let (_, rest) = serve.start.split_once("listens on ").context("no address")?;
    let (addresses, _) = rest.split_once(", queue and data").context("no end")?;
    let addresses: Vec<&str> = addresses.split(" and ").collect();
    let ports: Vec<&str> = addresses.iter().filter_map(|address| Some(address.rsplit_once(':')?.1)).collect();
    ensure!(ports.iter().all(|port| *port == ports[0]), "{addresses:?}");
    for (at, address) in addresses.iter().enumerate() {
        let answer = request(&mut connect(address)?, "POST /v1/ads/7/views", "").context("no answer")?;
        ensure!(answer.1.contains(&format!("\"total\":{}", at + 1)), "{answer:?}");
    }
    stopped(serve)
}

/// What clients have sent in all lives of the service, and what they were answered.
#[derive(Default)]
struct Sent {
    /// Requests without a key, by the id of the item: all, and those that were answered.
    views: Mutex<BTreeMap<String, (u64, u64)>>,
    /// The keys of requests for the item `keyed`.
    keys: Mutex<Vec<String>>,
    answers: AtomicU64,
}

impl Sent {
    /// Sends views without keys until the service is gone.
    fn count(&self, address: &str, id: &str) {
        let Ok(mut stream) = connect(address) else { return };
        loop {
            self.views.lock().unwrap().entry(id.to_owned()).or_default().0 += 1;
            match request(&mut stream, &format!("POST /v1/ads/{id}/views"), "") {
                Some((200, _)) => self.views.lock().unwrap().entry(id.to_owned()).or_default().1 += 1,
                Some(other) => panic!("{other:?}"),
                None => return,
            }
            self.answers.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Sends views with keys until the service is gone.
    fn count_with_keys(&self, address: &str, name: &str) {
        let Ok(mut stream) = connect(address) else { return };
        for number in 0.. {
            let key = format!("{name}-{number}");
            self.keys.lock().unwrap().push(key.clone());
            let Some((status, body)) =
                request(&mut stream, "POST /v1/ads/keyed/views", &format!("idempotency-key: {key}"))
            else {
                return;
            };
            assert_eq!(status, 200, "{body}");
            self.answers.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// A tenth of `HANDFAST_KILLS` says how often (3 by default): a round has hundreds of requests over HTTP and takes seconds.
#[test]
fn a_kill_loses_no_answered_view_and_doubles_none_with_a_key() -> Result<()> {
    let kills: u64 = std::env::var("HANDFAST_KILLS").map_or(Ok(30), |kills| kills.parse())?;
    let kills = (kills / 10).max(1);
    let scratch = Scratch::new("counters-kill")?;
    let sent = Arc::new(Sent::default());
    for kill in 0..kills {
        let serve = Serve::start(&mut handfast(&scratch, &SERVE))?;
        let address = serve.address()?;
        let clients: Vec<_> = (0..CLIENTS)
            .flat_map(|client| {
                let plain = (Arc::clone(&sent), address.clone());
                let keyed = (Arc::clone(&sent), address.clone());
                let id = (client % 3).to_string();
                let name = format!("{kill}-{client}");
                [
                    std::thread::spawn(move || plain.0.count(&plain.1, &id)),
                    std::thread::spawn(move || keyed.0.count_with_keys(&keyed.1, &name)),
                ]
            })
            .collect();
        until("answers", || {
            ensure!(!clients.iter().all(JoinHandle::is_finished), "no client goes on");
            Ok(sent.answers.load(Ordering::SeqCst) >= KILL_AT * (kill + 1))
        })?;
        serve.signal("KILL")?;
        let (code, _) = serve.wait()?;
        assert_eq!(code, None, "killed");
        for client in clients {
            client.join().map_err(|_| anyhow::anyhow!("a client has failed"))?;
        }
        check(&scratch, &sent)?;
    }
    Ok(())
}

/// Starts the service again, sends all requests with keys once more, and compares what it has with what was sent.
fn check(scratch: &Scratch, sent: &Sent) -> Result<()> {
    // A kill within a write leaves a torn end of the journal, which is warned about.
    let serve = Serve::start(handfast(scratch, &SERVE).args(["--log-level", "error"]))?;
    let mut stream = serve_connection(&serve)?;
    let keys = sent.keys.lock().unwrap().clone();
    for key in &keys {
        let again = request(&mut stream, "POST /v1/ads/keyed/views", &format!("idempotency-key: {key}"));
        ensure!(again.as_ref().is_some_and(|(status, _)| *status == 200), "{again:?}");
    }
    let expected = sent.views.lock().unwrap().clone();
    let mut all = 0;
    for (id, (most, least)) in &expected {
        let total = ask(&serve, &format!("GET /v1/ads/{id}"), "")?["total"].as_u64().context("a total")?;
        ensure!((*least..=*most).contains(&total), "{id} has {total} views: {least} answered of {most} sent");
        all += total;
    }
    let keyed = &ask(&serve, "GET /v1/ads/keyed", "")?["total"];
    ensure!(*keyed == keys.len() as u64, "{keyed} views for {} keys", keys.len());
    stopped(serve)?;
    let report: Value = serde_json::from_str(&stdout(&run(scratch, &["verify", "--json"])?)?)?;
    let items = expected.len() + 1;
    let expected =
        json!({ "items": items, "views": all + keys.len() as u64, "waiting": 0, "differences": [], "damaged": [] });
    ensure!(report == expected, "{report}, and not {expected}");
    Ok(())
}
