//! The settings of the HTTP API: origins of web pages, limits, and TLS.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use crate::counters::stopped;
use crate::support::{FREE_PORT, Scratch, Serve, assert_one_line, connect, handfast, output, skipped};

/// The time for which a connection that has to wait is watched.
const WATCHED: Duration = Duration::from_millis(200);
const ORIGIN: &str = "https://app.example.org";

pub(crate) fn serve(scratch: &Scratch, further: &[&str]) -> Result<Serve> {
    Serve::start(handfast(scratch, &FREE_PORT).args(["--http", "127.0.0.1:0", "--log-level", "error"]).args(further))
}

/// Returns the address of the API.
fn address(serve: &Serve) -> Result<String> {
    let (_, address) = serve.start.rsplit_once("://").with_context(|| serve.start.clone())?;
    Ok(address.split([',', ' ']).next().unwrap_or_default().to_owned())
}

/// Sends the text as the last request of a connection, and returns the answer.
pub(crate) fn ask(serve: &Serve, request: &str, headers: &str, body: &str) -> Result<String> {
    let mut stream = connect(&address(serve)?)?;
    let length = body.len();
    let head =
        format!("{request} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {length}\r\n{headers}");
    stream.write_all(format!("{head}\r\n{body}").as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer.to_ascii_lowercase())
}

#[test]
fn pages_of_allowed_origins_may_use_the_api() -> Result<()> {
    let scratch = Scratch::new("http-origins")?;
    let path = "/v1/db/queues/jobs/jobs";
    let json = "content-type: application/json\r\n";
    let from = |origin: &str| format!("origin: {origin}\r\n");
    let preflight = |origin: &str| {
        let asked = "access-control-request-method: POST\r\naccess-control-request-headers: authorization,idempotency-key,content-type\r\n";
        format!("{}{asked}", from(origin))
    };
    let allows = format!("access-control-allow-origin: {ORIGIN}\r\n");

    let open = serve(&scratch, &["--http-allow-origin", "http://b.example:81", "--http-allow-origin", ORIGIN])?;
    let answer = ask(&open, &format!("OPTIONS {path}"), &preflight(ORIGIN), "")?;
    assert!(answer.starts_with("http/1.1 200") && answer.contains(&allows), "{answer}");
    let methods = answer.lines().find(|line| line.starts_with("access-control-allow-methods: ")).unwrap_or_default();
    assert!(methods.contains("post") && methods.contains("delete"), "{answer}");
    for header in ["authorization", "content-type", "idempotency-key"] {
        assert!(answer.contains(header), "{header}: {answer}");
    }
    // A page sends the login itself: what a browser has stored of it is not used.
    assert!(!answer.contains("access-control-allow-credentials"), "{answer}");
    let answer = ask(&open, &format!("POST {path}"), &format!("{}{json}", from(ORIGIN)), r#"{"_id":1,"type":"a"}"#)?;
    assert!(answer.starts_with("http/1.1 200") && answer.contains(&allows), "{answer}");
    let answer = ask(&open, &format!("OPTIONS {path}"), &preflight("https://evil.example"), "")?;
    assert!(!answer.contains("access-control-allow-origin"), "{answer}");
    let answer = ask(&open, &format!("POST {path}"), &format!("{}{json}", from("https://evil.example")), "{}")?;
    assert!(answer.starts_with("http/1.1 403") && answer.contains("origin-refused"), "{answer}");
    stopped(open)?;

    let closed = serve(&scratch, &[])?;
    let answer = ask(&closed, &format!("OPTIONS {path}"), &preflight(ORIGIN), "")?;
    assert!(!answer.contains("access-control"), "none is allowed: {answer}");
    let answer = ask(&closed, &format!("POST {path}"), &format!("{}{json}", from(ORIGIN)), "{}")?;
    assert!(answer.starts_with("http/1.1 403"), "{answer}");
    stopped(closed)
}

#[test]
fn bad_settings_of_the_api_are_refused_at_the_start() -> Result<()> {
    let scratch = Scratch::new("http-settings")?;
    for (flag, value, why) in [
        ("--http-max-connections", "0", "http-max-connections (from flag --http-max-connections): must be at least 1"),
        ("--http-body-bytes", "1KiB", "http-body-bytes (from flag --http-body-bytes): must be at least 4KiB"),
        ("--http-body-bytes", "1GiB", "must be at most 64MiB"),
    ] {
        assert_one_line(&output(handfast(&scratch, &FREE_PORT).args([flag, value]))?, 2, why);
    }
    for origin in ["*", "example.org", "https://example.org/", "null"] {
        let refused = output(handfast(&scratch, &FREE_PORT).args(["--http-allow-origin", origin]))?;
        let why = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(refused.status.code() == Some(2) && why.contains("--http-allow-origin"), "{origin}: {why}");
    }
    assert!(!scratch.path("handfast-data").exists(), "nothing was made");
    Ok(())
}

#[test]
fn a_body_over_the_limit_is_refused() -> Result<()> {
    let scratch = Scratch::new("http-body-limit")?;
    let serve = serve(&scratch, &["--http-body-bytes", "8KiB"])?;
    let post = |length: usize| {
        let job = format!(r#"{{"type":"a","details":{{"text":"{}"}}}}"#, "x".repeat(length));
        ask(&serve, "POST /v1/db/queues/jobs/jobs", "content-type: application/json\r\n", &job)
    };
    let answer = post(8_000)?;
    assert!(answer.starts_with("http/1.1 200"), "{answer}");
    let answer = post(8_192)?;
    assert!(answer.starts_with("http/1.1 413") && answer.contains("body-too-large"), "{answer}");
    stopped(serve)
}

#[test]
fn a_connection_over_the_limit_waits_until_another_one_ends() -> Result<()> {
    let scratch = Scratch::new("http-connections")?;
    let serve = serve(&scratch, &["--http-max-connections", "1"])?;
    let address = address(&serve)?;
    let send = |stream: &mut TcpStream| stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n");
    let mut buffer = [0; 1_024];
    let mut first = connect(&address)?;
    send(&mut first)?;
    assert!(first.read(&mut buffer)? > 0);
    let mut second = connect(&address)?;
    let usual = second.read_timeout()?;
    send(&mut second)?;
    second.set_read_timeout(Some(WATCHED))?;
    let early = second.read(&mut buffer).map_err(|error| error.kind());
    assert!(matches!(early, Err(ErrorKind::WouldBlock | ErrorKind::TimedOut)), "{early:?}");
    drop(first);
    second.set_read_timeout(usual)?;
    assert!(second.read(&mut buffer)? > 0);
    drop(second);
    stopped(serve)
}

/// Writes a certificate for localhost and its key, and returns the flags that name them.
fn certificate(scratch: &Scratch) -> Result<[&'static str; 4]> {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()])?;
    std::fs::write(scratch.path("server.pem"), made.cert.pem())?;
    std::fs::write(scratch.path("server.key"), made.signing_key.serialize_pem())?;
    Ok(["--tls-certificate", "server.pem", "--tls-key", "server.key"])
}

#[test]
fn the_api_is_served_with_the_certificate_of_the_server() -> Result<()> {
    let scratch = Scratch::new("http-tls")?;
    let flags = certificate(&scratch)?;
    let serve = serve(&scratch, &flags)?;
    ensure!(serve.start.contains(" and https://127.0.0.1:"), "{}", serve.start);
    let address = address(&serve)?;
    let (_, port) = address.rsplit_once(':').context("a port")?;
    let url = format!("https://localhost:{port}/v1/operations");
    let here = format!("localhost:{port}:127.0.0.1");
    let Ok(version) = Command::new("curl").arg("--version").output() else {
        return skipped("curl is missing: scripts/install-test-tools installs it");
    };
    ensure!(version.status.success(), "{version:?}");
    let curl = |further: &[&str]| {
        let mut command = Command::new("curl");
        command.current_dir(scratch.path("")).args(["--silent", "--show-error", "--noproxy", "*", "--max-time", "60"]);
        output(command.args(["--resolve", &here]).args(further))
    };
    let answer = curl(&["--cacert", "server.pem", &url])?;
    assert!(answer.status.success() && answer.stdout.starts_with(b"{\"operations\""), "{answer:?}");
    // The client checks: it has no reason to trust the certificate otherwise.
    assert_eq!(curl(&[&url])?.status.code(), Some(60), "CURLE_PEER_FAILED_VERIFICATION");
    let plain = format!("http://localhost:{port}/v1/operations");
    let answer = curl(&["--write-out", "%{http_code}", &plain])?;
    let text = String::from_utf8_lossy(&answer.stdout).into_owned();
    assert!(text.ends_with("400") && text.contains("https://"), "{answer:?}");
    let mut nonsense = connect(&address)?;
    nonsense.write_all(b"\x16\x03\x01\xff\xff nonsense")?;
    nonsense.shutdown(std::net::Shutdown::Write)?;
    let mut end = Vec::new();
    // A reset is an end, too.
    let _ = nonsense.read_to_end(&mut end);
    let answer = curl(&["--cacert", "server.pem", &url])?;
    assert!(answer.status.success(), "others are served on: {answer:?}");
    stopped(serve)?;

    let behind_a_proxy = self::serve(&scratch, &[&flags[..], &["--http-tls=false"]].concat())?;
    assert!(ask(&behind_a_proxy, "GET /healthz", "", "")?.starts_with("http/1.1 204"));
    stopped(behind_a_proxy)
}
