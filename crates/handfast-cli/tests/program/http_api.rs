//! `handfast serve --http`: the steps of job queues and ledgers over HTTP, once each, also when the process is killed.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use bson::doc;
use serde_json::{Value, json};

use crate::counters::{request_with_body, stopped};
use crate::support::{FREE_PORT, Scratch, Serve, assert_one_line, connect, handfast, output, pause, until};

const JSON: &str = "content-type: application/json";

/// A connection to the API.
struct Http {
    stream: TcpStream,
    /// Headers of each request.
    headers: String,
}

impl Http {
    fn connect(serve: &Serve) -> Result<Self> {
        let (_, address) = serve.start.rsplit_once("http://").with_context(|| serve.start.clone())?;
        let address = address.split([',', ' ']).next().unwrap_or_default();
        Ok(Http { stream: connect(address)?, headers: JSON.to_owned() })
    }

    fn with_header(mut self, header: &str) -> Self {
        self.headers = format!("{JSON}\r\n{header}");
        self
    }

    /// Sends a request, and returns the status and the JSON of the answer.
    fn send(&mut self, line: &str, body: &Value) -> Result<(u16, Value)> {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let (status, text) = request_with_body(&mut self.stream, line, &self.headers, &body).context("no answer")?;
        Ok((status, serde_json::from_str(&text).with_context(|| format!("{line}: {status} {text}"))?))
    }

    fn post(&mut self, path: &str, body: &Value) -> Result<(u16, Value)> {
        self.send(&format!("POST /v1/db/{path}"), body)
    }

    /// Sends a request that succeeds.
    fn done(&mut self, path: &str, body: &Value) -> Result<Value> {
        let (status, answer) = self.post(path, body)?;
        ensure!(status == 200, "{path}: {status} {answer}");
        Ok(answer)
    }

    /// Sends a request that is refused, and returns the last part of the problem's type.
    fn problem(&mut self, path: &str, body: &Value) -> Result<(u16, String, Value)> {
        let (status, answer) = self.post(path, body)?;
        let kind = answer["type"].as_str().with_context(|| answer.to_string())?;
        assert_eq!(answer["status"], json!(status), "{answer}");
        Ok((status, kind.trim_start_matches("urn:handfast:problem:").to_owned(), answer))
    }

    fn get(&mut self, path: &str) -> Result<(u16, Value)> {
        self.send(&format!("GET /v1/db/{path}"), &Value::Null)
    }
}

fn serve(scratch: &Scratch, further: &[&str]) -> Result<Serve> {
    Serve::start(handfast(scratch, &FREE_PORT).args(["--http", "127.0.0.1:0"]).args(further))
}

fn entry(id: &Value, value: i64) -> Value {
    json!({ "_id": id, "changes": [
        { "account": "cash", "value": -value, "asset": "EUR" }, { "account": "ann", "value": value, "asset": "EUR" },
    ] })
}

#[test]
fn a_job_is_enqueued_claimed_and_completed_over_http() -> Result<()> {
    let scratch = Scratch::new("http-jobs")?;
    let serve = serve(&scratch, &[])?;
    let mut http = Http::connect(&serve)?;
    let job = json!({ "_id": "mail 7", "type": "mail", "details": { "to": "ann", "at": { "$date": "2026-01-01T00:00:00Z" } } });
    for inserted in [true, false] {
        assert_eq!(http.done("queues/jobs/jobs", &job)?, json!({ "_id": "mail 7", "inserted": inserted }));
    }
    let later = json!({ "_id": "later", "type": "mail", "runAt": "2099-01-01T00:00:00Z" });
    http.done("queues/jobs/jobs", &later)?;
    let claim = json!({ "worker": "w", "types": ["mail"], "count": 5 });
    let claimed = http.done("queues/jobs/claims", &claim)?;
    let claimed = claimed["jobs"].as_array().context("jobs")?;
    assert_eq!((claimed.len(), &claimed[0]["_id"], &claimed[0]["details"]), (1, &json!("mail 7"), &job["details"]));
    let held = json!({ "claimState": "held" });
    assert_eq!(http.done("queues/jobs/claims/renew", &json!({ "job": claimed[0], "progress": 0.5 }))?, held);
    assert_eq!(http.done("queues/jobs/claims/complete", &json!({ "job": claimed[0], "result": "sent" }))?, held);
    let canceled = http.done("queues/jobs/jobs/later/cancel", &Value::Null)?;
    assert_eq!(canceled, json!({ "canceled": true }));
    let states: Vec<_> = serve
        .find_all("jobs")?
        .iter()
        .map(|job| job.as_document().map(|job| job.get_str("state").map(str::to_owned)))
        .collect();
    assert_eq!(states.len(), 2);
    let found =
        serve.command(doc! { "count": "jobs", "query": { "state": { "$in": ["DONE", "CANCELED"] } }, "$db": "db" })?;
    assert_eq!(found.get_i32("n")?, 2);
    stopped(serve)
}

#[test]
fn a_claimed_job_is_sent_back_as_it_was_answered() -> Result<()> {
    let scratch = Scratch::new("http-sent-back")?;
    let serve = serve(&scratch, &[])?;
    let mut http = Http::connect(&serve)?;
    let details = doc! {
        "double": 1e22, "date": bson::DateTime::MAX, "id": { "$oid": "507f1f77bcf86cd799439011" }, "no id": { "$oid": "nothex" },
    };
    let enqueue = doc! { "handfastEnqueueJob": "jobs", "job": { "_id": 1, "type": "mail", "details": details.clone() }, "$db": "db" };
    serve.command(enqueue)?;
    let claimed = http.done("queues/jobs/claims", &json!({ "worker": "w", "types": ["mail"] }))?;
    let job = &claimed["jobs"][0];
    assert_eq!(job["details"]["double"], json!({ "$numberDouble": "1e22" }));
    assert_eq!(job["details"]["date"], json!({ "$date": { "$numberLong": i64::MAX.to_string() } }));
    let held = json!({ "claimState": "held" });
    let result = &job["details"]["double"];
    assert_eq!(http.done("queues/jobs/claims/complete", &json!({ "job": job, "result": result }))?, held);
    let found = serve.find_all("jobs")?;
    let found = found[0].as_document().context("a job")?;
    assert_eq!((found.get_document("details")?, found.get_f64("result")?), (&details, 1e22));
    stopped(serve)
}

/// Returns the number of claims that the server has answered.
fn claims(serve: &Serve) -> Result<i64> {
    let status = serve.command(doc! { "serverStatus": 1, "$db": "admin" })?;
    let commands = status.get_document("metrics")?.get_document("commands")?;
    Ok(commands.get_document("handfastClaimJobs")?.get_i64("total")?)
}

#[test]
fn a_claim_waits_for_a_job() -> Result<()> {
    let scratch = Scratch::new("http-wait")?;
    let serve = serve(&scratch, &[])?;
    let mut http = Http::connect(&serve)?;
    let claim = |wait: u64| json!({ "worker": "w", "types": ["mail"], "waitMillis": wait });
    assert_eq!(http.done("queues/jobs/claims", &claim(300))?["jobs"], json!([]));
    for id in [1, 2] {
        let (mut other, before) = (Http::connect(&serve)?, claims(&serve)?);
        let waiting = std::thread::spawn(move || other.done("queues/jobs/claims", &claim(30_000)));
        until("the claim waits", || Ok(claims(&serve)? > before))?;
        let job = json!({ "_id": id, "type": "mail" });
        if id == 1 {
            http.done("queues/jobs/jobs", &job)?;
        } else {
            // A request with a key is a transaction.
            Http::connect(&serve)?.with_header("Idempotency-Key: k").done("queues/jobs/jobs", &job)?;
        }
        let claimed = waiting.join().expect("the claim")?;
        assert_eq!(claimed["jobs"][0]["_id"], json!(id));
    }
    // A claim that waits is answered when the server stops, which gives requests less time than it would wait.
    let (mut other, before) = (Http::connect(&serve)?, claims(&serve)?);
    let waiting = std::thread::spawn(move || other.done("queues/other/claims", &claim(30_000)));
    until("the claim waits", || Ok(claims(&serve)? > before))?;
    stopped(serve)?;
    assert_eq!(waiting.join().expect("the claim")?["jobs"], json!([]));
    Ok(())
}

#[test]
fn entries_and_holds_are_posted_over_http() -> Result<()> {
    let scratch = Scratch::new("http-ledger")?;
    let serve = serve(&scratch, &[])?;
    let mut http = Http::connect(&serve)?;
    assert_eq!(http.done("ledgers/tx/accounts", &json!({ "_id": "ann", "asset": "EUR", "minimum": 0 }))?, json!({}));
    let posted = http.done("ledgers/tx/entries", &entry(&json!("pay 1"), 100))?;
    assert_eq!(posted, json!({ "_id": "pay 1", "posted": true, "state": "VALID" }));
    let (status, kind, problem) = http.problem("ledgers/tx/entries", &entry(&json!("pay 2"), -101))?;
    assert_eq!((status, &*kind, &problem["errInfo"]["available"]), (422, "refused", &json!(100)));
    assert_eq!((&problem["code"], &problem["outcome"]), (&json!(121), &json!("not_applied")));
    let hold = json!({ "_id": "room 5", "payer": "ann", "payee": "inn", "value": 40, "asset": "EUR", "expiresAt": "2099-01-01T00:00:00Z" });
    assert_eq!(http.done("ledgers/tx/holds", &hold)?["holdState"], json!("open"));
    let (_, balance) = http.get("ledgers/tx/accounts/ann/balance")?;
    assert_eq!((&balance["balance"], &balance["available"], &balance["held"]), (&json!(100), &json!(60), &json!(40)));
    let captured = http.done("ledgers/tx/holds/room%205/capture", &json!({ "value": 30 }))?;
    assert_eq!(captured["holdState"], json!("captured"));
    let (status, kind, _) = http.problem("ledgers/tx/holds/room%205/release", &Value::Null)?;
    assert_eq!((status, &*kind), (409, "conflict"));
    let (status, kind, _) = http.problem("ledgers/tx/holds/none/release", &Value::Null)?;
    assert_eq!((status, &*kind), (404, "missing"));
    http.done("ledgers/tx/entries/pay%201/cancel", &json!({ "reason": "twice" }))
        .expect_err("ann has spent what the entry gave");
    let (_, before) = http.get("ledgers/tx/accounts/ann/balance?entry=pay%201")?;
    assert_eq!(before["balance"], json!(100));
    let (_, nobody) = http.get("ledgers/tx/accounts/7/balance")?;
    assert_eq!(nobody, json!({ "exists": false }));
    assert_eq!(http.done("ledgers/tx/reconcile", &json!({ "count": 10 }))?["failed"], json!(0));
    stopped(serve)
}

#[test]
fn a_request_with_a_key_is_carried_out_once() -> Result<()> {
    let scratch = Scratch::new("http-keys")?;
    let serve = serve(&scratch, &[])?;
    let mut first = Http::connect(&serve)?.with_header("Idempotency-Key: k1");
    let enqueue = json!({ "type": "mail", "details": { "to": "ann" } });
    // The job has no id of its own, so that without the key each request would add one.
    let answer = first.done("queues/jobs/jobs", &enqueue)?;
    assert_eq!(answer["inserted"], json!(true));
    assert_eq!(first.done("queues/jobs/jobs", &enqueue)?, answer, "the answer of the first request");
    let (status, kind, _) = first.problem("queues/jobs/jobs", &json!({ "type": "other" }))?;
    assert_eq!((status, &*kind), (422, "key-reused"));
    // A request that failed may be sent again with its key.
    let mut second = Http::connect(&serve)?.with_header("Idempotency-Key: k2");
    let (status, ..) = second.problem("ledgers/tx/entries/pay/cancel", &json!({ "reason": "twice" }))?;
    assert_eq!(status, 404);
    Http::connect(&serve)?.done("ledgers/tx/entries", &entry(&json!("pay"), 5))?;
    assert_eq!(second.done("ledgers/tx/entries/pay/cancel", &json!({ "reason": "twice" }))?["canceled"], json!(true));
    // An entry that was posted without the key, or with another one.
    let again = second.with_header("Idempotency-Key: k3").done("ledgers/tx/entries", &entry(&json!("pay"), 5))?;
    assert_eq!(again, json!({ "_id": "pay", "posted": false, "state": "CANCELED" }));
    let claim = json!({ "worker": "w", "types": ["mail"] });
    let (status, _, problem) = first.problem("queues/jobs/claims", &claim)?;
    assert!(status == 400 && problem["detail"].to_string().contains("takes no Idempotency-Key"), "{problem}");
    let count = serve.command(doc! { "count": "jobs", "$db": "db" })?;
    assert_eq!(count.get_i32("n")?, 1);
    stopped(serve)
}

#[test]
fn mistakes_are_problems_that_name_them() -> Result<()> {
    let scratch = Scratch::new("http-mistakes")?;
    let serve = serve(&scratch, &[])?;
    let mut http = Http::connect(&serve)?;
    for (path, body, text) in [
        ("queues/jobs/jobs", json!({}), "'handfastEnqueueJob.job.type' is missing"),
        ("queues/jobs/jobs", json!({ "type": 7 }), "type"),
        ("queues/jobs/jobs", json!({ "type": "a", "kind": "b" }), "kind"),
        ("queues/jobs/jobs", json!({ "type": "a", "runAt": "soon" }), "runAt must be a date and time"),
        ("queues/jobs/jobs", json!({ "$oid": "x" }), "Extended JSON"),
        ("queues/jobs/jobs", json!({ "$oid": "0123456789abcdef01234567" }), "must be a document"),
        ("queues/jobs/claims", json!({ "worker": "w", "types": ["a"], "$db": "admin" }), "unknown field \"$db\""),
        ("queues/jobs/claims", json!({ "worker": "w", "types": ["a"], "waitMillis": 30_001 }), "waitMillis must be"),
        ("queues/jobs/claims/complete", json!({ "job": 7 }), "job"),
        ("queues/system.users/jobs", json!({ "type": "a" }), "system.users"),
        ("ledgers/tx/entries/%7B/cancel", json!({ "reason": "r" }), "is not an id"),
        ("ledgers/tx/entries", json!({ "_id": 1, "changes": [] }), "change"),
        ("queues/jobs/jobs", json!({ "_id": 2.026_112_7e19, "type": "a" }), "may have been rounded"),
        ("queues/jobs/jobs/99999999999999999999/cancel", Value::Null, "may have been rounded"),
    ] {
        let (status, kind, problem) = http.problem(path, &body)?;
        assert!(status == 400 && kind == "invalid-request", "{path} {body}: {problem}");
        assert!(problem["detail"].as_str().is_some_and(|detail| detail.contains(text)), "{path} {body}: {problem}");
    }
    let (status, problem) = http.send("GET /v1/db/nothing", &Value::Null)?;
    assert_eq!((status, &problem["type"]), (404, &json!("urn:handfast:problem:not-found")));
    let (status, problem) = http.send("DELETE /v1/db/ledgers/tx/entries", &Value::Null)?;
    assert_eq!((status, &problem["type"]), (405, &json!("urn:handfast:problem:method-not-allowed")));
    let (status, document) = http.send("GET /openapi.json", &Value::Null)?;
    assert_eq!((status, &document["openapi"]), (200, &json!("3.1.1")));
    let far = ["serve", "--listen", "127.0.0.1:0", "--http", "0.0.0.0:0"];
    assert_one_line(
        &output(&mut handfast(&scratch, &far))?,
        2,
        "http (from flag --http): 0.0.0.0:0 is not a loopback address",
    );
    stopped(serve)
}

#[test]
fn a_connection_outlives_a_request_that_is_refused_before_its_body() -> Result<()> {
    let scratch = Scratch::new("http-body")?;
    let serve = serve(&scratch, &[])?;
    for path in ["/v1/db/nothing", "/v1/db/ledgers/tx/holds/%7B/release", "/metrics"] {
        let mut stream = Http::connect(&serve)?.stream;
        stream.write_all(format!("POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5\r\n\r\n").as_bytes())?;
        // The answer could be on its way by now.
        pause(Duration::from_millis(100));
        stream.write_all(b"helloGET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")?;
        let mut answers = String::new();
        stream.read_to_string(&mut answers)?;
        assert_eq!(answers.matches("HTTP/1.1 ").count(), 2, "{path}: {answers}");
    }
    stopped(serve)
}

#[test]
fn users_log_in_over_http() -> Result<()> {
    let scratch = Scratch::new("http-users")?;
    std::fs::write(scratch.path("password"), "s3cret: ü\n")?;
    for user in [["ann", "--database", "db", "--role", "readWrite"], ["eve", "--database", "db", "--role", "read"]] {
        let added = output(handfast(&scratch, &["user", "add"]).args(user).args(["--password-file", "password"]))?;
        ensure!(added.status.success(), "{added:?}");
    }
    let serve = serve(&scratch, &["--auth", "--log-level", "error"])?;
    let job = json!({ "_id": 1, "type": "mail" });
    let login = |text: &str| {
        use base64::Engine as _;
        format!("Authorization: Basic {}", base64::engine::general_purpose::STANDARD.encode(text))
    };
    let mut stranger = Http::connect(&serve)?;
    assert_eq!(stranger.problem("queues/jobs/jobs", &job)?.0, 401);
    for wrong in ["ann@db:s3cret", "ann:s3cret: ü", "bob@db:s3cret: ü", "nothing", "a\0b@db:x", "ann@:x"] {
        assert_eq!(
            Http::connect(&serve)?.with_header(&login(wrong)).problem("queues/jobs/jobs", &job)?.0,
            401,
            "{wrong}"
        );
    }
    let mut ann = Http::connect(&serve)?.with_header(&login("ann@db:s3cret: ü"));
    for inserted in [true, false] {
        assert_eq!(ann.done("queues/jobs/jobs", &job)?["inserted"], json!(inserted));
    }
    let mut eve = Http::connect(&serve)?.with_header(&login("eve@db:s3cret: ü"));
    assert_eq!(eve.problem("queues/jobs/jobs", &job)?.1, "forbidden");
    assert_eq!(eve.get("ledgers/tx/accounts/ann/balance")?, (200, json!({ "exists": false })));
    assert_eq!(ann.send("POST /v1/other/queues/jobs/jobs", &job)?.0, 403, "another database");
    stopped(serve)
}

#[test]
fn the_other_patterns_are_served_over_http() -> Result<()> {
    let scratch = Scratch::new("http-patterns")?;
    let serve = serve(&scratch, &[])?;
    let mut http = Http::connect(&serve)?;
    let token = |number: u8| json!({ "$oid": format!("{number:024x}") });
    let insert = doc! { "insert": "accounts", "documents": [{ "_id": "ann", "balance": 10 }, { "_id": "bob", "balance": 0 }], "$db": "db" };
    assert_eq!(serve.command(insert)?.get_i32("n")?, 2);

    let count = json!({ "document": { "_id": "home" }, "token": token(1), "update": { "$inc": { "views": 1 } }, "upsert": true });
    for applied in [true, false] {
        assert_eq!(http.done("updates/pages", &count)?, json!({ "applied": applied }));
    }

    let transfer = json!({ "_id": "t1", "source": "ann", "destination": "bob", "value": 4 });
    http.done("two-phase/transactions/transactions", &transfer)?;
    let advance = json!({ "application": "test" });
    let done = http.done("two-phase/transactions/transactions/t1/advance", &advance)?;
    assert_eq!(done, json!({ "_id": "t1", "state": "done" }));
    let bob = serve.command(doc! { "count": "accounts", "query": { "_id": "bob", "balance": 4 }, "$db": "db" })?;
    assert_eq!(bob.get_i32("n")?, 1);
    let canceled = http.problem(
        "two-phase/transactions/transactions/t1/cancel",
        &json!({ "reason": "late", "application": "test" }),
    )?;
    assert_eq!((canceled.0, &*canceled.1), (409, "conflict"));

    http.done(
        "synced/users/open",
        &json!({ "links": [{ "collection": "comments", "key": "user", "fields": { "name": "userName" } }] }),
    )?;
    let insert = doc! { "insert": "users", "documents": [{ "_id": 7, "name": "Ann" }], "$db": "db" };
    assert_eq!(serve.command(insert)?.get_i32("n")?, 1);
    http.done("synced/users/copies", &json!({ "collection": "comments", "document": { "_id": 1, "user": 7 } }))?;
    let change = json!({ "token": token(2), "update": { "$set": { "name": "Anna" } } });
    assert_eq!(http.done("synced/users/documents/7/changes", &change)?["synced"], json!(true));
    let copy = serve.command(doc! { "count": "comments", "query": { "userName": "Anna" }, "$db": "db" })?;
    assert_eq!(copy.get_i32("n")?, 1);
    assert_eq!(http.get("synced/users/audit?count=5")?.1["stale"], json!(0));
    let (status, deleted) = http.send("DELETE /v1/db/synced/users/documents/7", &Value::Null)?;
    assert_eq!((status, &deleted["deleted"]), (200, &json!(true)));

    let version =
        json!({ "token": token(3), "nodes": [{ "item": "chapter 1", "content": { "text": "a" } }], "base": 0 });
    for written in [true, false] {
        assert_eq!(http.done("trees/nodes/book/versions", &version)?, json!({ "version": 1, "written": written }));
    }
    let (_, tree) = http.get("trees/nodes/book?version=1")?;
    let written = http.post("trees/nodes/book/versions", &json!({ "token": token(4), "nodes": [], "base": 0 }))?;
    assert_eq!((written.0, &written.1["errInfo"]["newest"]), (409, &json!(1)), "another version is the newest");
    let (_, none) = http.get("trees/nodes/book?items=x,7")?;
    assert_eq!(none["nodes"], json!([]));
    assert_eq!((&tree["version"], &tree["nodes"][0]["content"]), (&json!(1), &json!({ "text": "a" })));
    stopped(serve)
}

/// The clients that post entries while the process is killed.
const CLIENTS: u64 = 4;
/// The entries after which it is killed.
const KILL_AT: u64 = 60;

#[test]
fn entries_with_keys_are_posted_once_though_the_process_is_killed() -> Result<()> {
    let scratch = Scratch::new("http-killed")?;
    let server = serve(&scratch, &[])?;
    let acknowledged = AtomicU64::new(0);
    // Each client sends its entries in order, and stops at the first one without an answer.
    let post = |http: &mut Http, client: u64, number: u64| -> Result<Value> {
        http.headers = format!("{JSON}\r\nIdempotency-Key: {client}-{number}");
        http.done("ledgers/tx/entries", &entry(&json!(format!("{client}-{number}")), 1))
    };
    let last: Vec<u64> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let (server, acknowledged) = (&server, &acknowledged);
                scope.spawn(move || {
                    let Ok(mut http) = Http::connect(server) else { return 0 };
                    for number in 0.. {
                        if post(&mut http, client, number).is_err() {
                            return number;
                        }
                        if acknowledged.fetch_add(1, Ordering::Relaxed) + 1 == KILL_AT {
                            let _ = server.signal("KILL");
                        }
                    }
                    0
                })
            })
            .collect();
        clients.into_iter().map(|client| client.join().expect("a client")).collect()
    });
    ensure!(last.iter().sum::<u64>() >= KILL_AT, "{last:?}");
    drop(server);
    let server = serve(&scratch, &[])?;
    let mut http = Http::connect(&server)?;
    for (client, last) in (0..CLIENTS).zip(&last) {
        // The one before was acknowledged; of the last one nobody knows.
        for number in last.saturating_sub(1)..=*last {
            let answer = post(&mut http, client, number)?;
            assert_eq!(answer["posted"], json!(true), "{answer}");
        }
    }
    http.headers = JSON.to_owned();
    let total: u64 = last.iter().map(|last| last + 1).sum();
    let (_, balance) = http.get("ledgers/tx/accounts/ann/balance")?;
    assert_eq!(balance["balance"], json!(total), "each entry counts once");
    stopped(server)
}
