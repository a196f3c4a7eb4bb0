//! The tokens of users: made over HTTP and by the program, used, revoked, expired.

use std::process::Output;

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use serde_json::{Value, json};

use crate::counters::stopped;
use crate::http_limits::{ask, serve};
use crate::support::{Scratch, Serve, assert_one_line, handfast, output};

/// A time at which a token is long over.
const FUTURE: &str = "2099-01-01T00:00:00Z";
const BALANCE: &str = "GET /v1/db/ledgers/tx/accounts/ann/balance";
const JOB: &str = r#"{"type":"mail"}"#;

fn user(scratch: &Scratch, arguments: &[&str]) -> Result<Output> {
    output(handfast(scratch, &["user"]).args(arguments))
}

/// Sends a request with this header `Authorization`, and returns the status and the body.
fn send(serve: &Serve, line: &str, login: &str, body: &str) -> Result<(u16, Value)> {
    let headers = format!("content-type: application/json\r\nauthorization: {login}\r\n");
    let answer = ask(serve, line, &headers, body)?;
    let (head, body) = answer.split_once("\r\n\r\n").context("a body")?;
    let status = head.split(' ').nth(1).context("a status")?.parse()?;
    Ok((status, serde_json::from_str(body).with_context(|| answer.clone())?))
}

fn basic(text: &str) -> String {
    format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(text))
}

/// Adds users of a database.
fn users(scratch: &Scratch) -> Result<()> {
    std::fs::write(scratch.path("password"), "s3cret\n")?;
    for (name, role) in [("ann", "readWrite"), ("eve", "read"), ("guard", "userAdmin")] {
        let flags = ["--database", "db", "--role", role, "--password-file", "password"];
        let added = user(scratch, &[&["add", name], &flags[..]].concat())?;
        ensure!(added.status.success(), "{added:?}");
    }
    Ok(())
}

#[test]
fn a_token_stands_for_a_user_until_it_is_revoked() -> Result<()> {
    let scratch = Scratch::new("http-tokens")?;
    users(&scratch)?;
    let server = serve(&scratch, &["--auth"])?;
    let [ann, eve] = ["ann@db:s3cret", "eve@db:s3cret"].map(basic);
    let make = |login: &str, body: &Value| send(&server, "POST /v1/tokens", login, &body.to_string());
    let (status, made) = make(&ann, &json!({ "name": "reports", "expiresAt": FUTURE }))?;
    assert_eq!((status, &made["name"]), (200, &json!("reports")), "{made}");
    let token = format!("Bearer {}", made["token"].as_str().context("a token")?);
    assert_eq!(send(&server, BALANCE, &token, "")?.0, 200);
    assert_eq!(send(&server, "POST /v1/db/queues/jobs/jobs", &token, JOB)?.0, 200, "it has the roles of its user");
    let (_, of_eve) = make(&eve, &json!({ "name": "x" }))?;
    let of_eve = format!("Bearer {}", of_eve["token"].as_str().context("a token")?);
    assert_eq!(send(&server, "POST /v1/db/queues/jobs/jobs", &of_eve, JOB)?.0, 403);

    // A token makes no other one, and shows none.
    assert_eq!(make(&token, &json!({ "name": "x" }))?.0, 403);
    assert_eq!(send(&server, "GET /v1/tokens", &token, "")?.0, 403);
    let (_, listed) = send(&server, "GET /v1/tokens", &ann, "")?;
    let secret = token.rsplit('_').next().context("a secret")?;
    assert_eq!((&listed["tokens"][0]["_id"], &listed["tokens"][1]), (&made["_id"], &Value::Null), "{listed}");
    assert!(!listed.to_string().contains(secret), "{listed}");

    for (body, why) in [
        (json!({}), "needs the field name"),
        (json!({ "name": "" }), "from 1 to 256 bytes"),
        (json!({ "name": "x", "expiresAt": "2001-01-01T00:00:00Z" }), "in the future"),
        (json!({ "name": "x", "for": 1 }), "unknown field"),
    ] {
        let (status, problem) = make(&ann, &body)?;
        assert!(status == 400 && problem["detail"].as_str().is_some_and(|detail| detail.contains(why)), "{problem}");
    }
    for wrong in ["Bearer x", "Bearer", &format!("{token}0"), &token.replace(secret, &"0".repeat(secret.len()))] {
        assert_eq!(send(&server, BALANCE, wrong, "")?.0, 401, "{wrong}");
    }

    let revoke = format!("DELETE /v1/tokens/{}", made["_id"].as_str().context("an id")?);
    assert_eq!(send(&server, &revoke, &eve, "")?, (200, json!({ "revoked": false })), "it is not hers");
    assert_eq!(send(&server, BALANCE, &token, "")?.0, 200);
    assert_eq!(send(&server, &revoke, &ann, "")?, (200, json!({ "revoked": true })));
    assert_eq!(send(&server, BALANCE, &token, "")?.0, 401, "at once");
    assert_eq!(send(&server, BALANCE, &of_eve, "")?.0, 200, "the others stay");
    stopped(server)
}

#[test]
fn a_manager_of_users_lists_and_revokes_their_tokens() -> Result<()> {
    let scratch = Scratch::new("tokens-of-others")?;
    users(&scratch)?;
    let server = serve(&scratch, &["--auth"])?;
    let [ann, eve, guard] = ["ann@db:s3cret", "eve@db:s3cret", "guard@db:s3cret"].map(basic);
    let (_, made) = send(&server, "POST /v1/tokens", &ann, r#"{"name":"lost"}"#)?;
    let token = format!("Bearer {}", made["token"].as_str().context("a token")?);
    let revoke = format!("DELETE /v1/tokens/{}?user=ann@db", made["_id"].as_str().context("an id")?);
    for line in ["GET /v1/tokens?user=ann@db", &*revoke] {
        assert_eq!(send(&server, line, &eve, "")?.0, 403, "{line}");
        assert_eq!(send(&server, line, &token, "")?.0, 403, "{line}");
        // A manager of another database is none here.
        assert_eq!(send(&server, &line.replace("@db", ""), &guard, "")?.0, 403, "{line}");
    }
    assert_eq!(send(&server, "GET /v1/tokens?user=nobody@db", &guard, "")?.0, 404);
    let (status, listed) = send(&server, "GET /v1/tokens?user=ann@db", &guard, "")?;
    assert_eq!((status, &listed["tokens"][0]["name"]), (200, &json!("lost")), "{listed}");
    assert_eq!(send(&server, BALANCE, &token, "")?.0, 200);
    assert_eq!(send(&server, &revoke, &guard, "")?, (200, json!({ "revoked": true })));
    assert_eq!(send(&server, BALANCE, &token, "")?.0, 401, "at once");
    stopped(server)
}

#[test]
fn the_program_makes_and_revokes_tokens_while_the_server_is_stopped() -> Result<()> {
    let scratch = Scratch::new("user-tokens")?;
    users(&scratch)?;
    let of_ann = ["--database", "db"];
    let add = |name: &str, further: &[&str]| -> Result<Value> {
        let added = user(&scratch, &[&["add-token", "ann", "--name", name, "--json"], &of_ann[..], further].concat())?;
        ensure!(added.status.success(), "{added:?}");
        Ok(serde_json::from_slice(&added.stdout)?)
    };
    let [short, long, revoked] =
        [add("short", &["--expires", "1ms"])?, add("long", &["--expires", "9d"])?, add("old", &[])?];
    // It is over now, and forgotten with the next one.
    let list = user(&scratch, &["tokens", "ann", "--database", "db", "--json"])?;
    let lines = String::from_utf8(list.stdout)?;
    assert_eq!(lines.lines().count(), 2, "{lines}");
    let text = |token: &Value| token["token"].as_str().map(str::to_owned).context("a token");
    for token in [&short, &long, &revoked] {
        assert!(!lines.contains(&text(token)?), "{lines}");
    }
    let id = revoked["_id"].as_str().context("an id")?;
    let revoke = || user(&scratch, &[&["revoke-token", "ann", id], &of_ann[..]].concat());
    assert!(revoke()?.status.success());
    assert_one_line(&revoke()?, 1, "has no token");
    assert_one_line(&user(&scratch, &["add-token", "ann", "--name", ""])?, 2, "the name of a token");
    let server = serve(&scratch, &["--auth"])?;
    for (token, status) in [(&short, 401), (&long, 200), (&revoked, 401)] {
        assert_eq!(send(&server, BALANCE, &format!("Bearer {}", text(token)?), "")?.0, status, "{}", token["name"]);
    }
    stopped(server)
}

#[test]
fn a_server_without_users_has_no_tokens() -> Result<()> {
    let scratch = Scratch::new("no-tokens")?;
    let server = serve(&scratch, &[])?;
    let (status, problem) = send(&server, "POST /v1/tokens", "Bearer x", r#"{"name":"x"}"#)?;
    assert!(status == 409 && problem["detail"].to_string().contains("--auth"), "{problem}");
    stopped(server)
}
