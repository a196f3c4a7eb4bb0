//! The API over a server whose answers each test gives.

use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use bson::{Bson, DateTime, Document, RawDocument, RawDocumentBuf, doc};
use handfast_store::{Namespace, Sources};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use super::{ApiOptions, CommandClient, CommandServer, NotReady, TokenOwner, router};

/// A server with answers for its next commands, and the commands that it has received.
#[derive(Clone, Default)]
pub(super) struct FakeServer {
    answers: Arc<Mutex<VecDeque<Document>>>,
    received: Arc<Mutex<Vec<(String, Document)>>>,
    /// The logins that were tried; `None` for a server without users.
    logins: Option<Arc<Mutex<Vec<String>>>>,
    /// Tells those who wait that something was written.
    writes: Arc<watch::Sender<()>>,
    /// How often a login was looked up among those that are kept, or given back to them.
    looked_up: Arc<AtomicUsize>,
}

impl FakeServer {
    pub(super) fn answering(answers: impl IntoIterator<Item = Document>) -> Self {
        FakeServer { answers: Arc::new(Mutex::new(answers.into_iter().collect())), ..FakeServer::default() }
    }

    pub(super) fn router(&self) -> Router {
        let sources = Sources::seeded(1);
        router(Arc::new(self.clone()), &sources, ApiOptions::default(), CancellationToken::new())
    }

    /// Returns the names of the commands that it has received.
    pub(super) fn received(&self) -> Vec<String> {
        let received = self.received.lock().unwrap();
        received.iter().filter_map(|(_, command)| command.keys().next().cloned()).collect()
    }

    /// Returns a command that it has received.
    pub(super) fn received_command(&self, place: usize) -> Document {
        self.received.lock().unwrap()[place].1.clone()
    }
}

#[async_trait]
impl CommandServer for FakeServer {
    async fn not_ready(&self) -> Vec<NotReady> {
        Vec::new()
    }

    fn requires_login(&self) -> bool {
        self.logins.is_some()
    }

    fn writes_to(&self, _namespace: Namespace) -> watch::Receiver<()> {
        self.writes.subscribe()
    }

    fn connect(&self) -> Box<dyn CommandClient> {
        Box::new(self.clone())
    }
}

#[async_trait]
impl CommandClient for FakeServer {
    async fn log_in(&mut self, database: &str, name: &str, password: &str) -> handfast_store::Result<bool> {
        self.logins.as_ref().unwrap().lock().unwrap().push(format!("{name}@{database}"));
        Ok(password == "right")
    }

    async fn log_in_by_token(&mut self, token: &str) -> handfast_store::Result<bool> {
        self.logins.as_ref().unwrap().lock().unwrap().push(format!("token {token}"));
        Ok(token == "right")
    }

    async fn add_token(&mut self, name: &str, _expires_at: Option<DateTime>) -> handfast_store::Result<Document> {
        Ok(doc! { "token": "hft", "_id": "1", "name": name })
    }

    async fn tokens(&mut self, _of: Option<&TokenOwner>) -> handfast_store::Result<Vec<Document>> {
        Ok(Vec::new())
    }

    async fn revoke_token(&mut self, _of: Option<&TokenOwner>, _id: &str) -> handfast_store::Result<bool> {
        Ok(true)
    }

    fn user_id(&self) -> Option<[u8; 16]> {
        None
    }

    fn is_login_current(&self) -> bool {
        self.looked_up.fetch_add(1, Ordering::Relaxed);
        true
    }

    fn same_login(&self) -> Box<dyn CommandClient> {
        Box::new(self.clone())
    }

    async fn run(&mut self, database: &str, command: &RawDocument) -> RawDocumentBuf {
        let command = Document::try_from(command).unwrap();
        let is_end = command.contains_key("endSessions");
        self.received.lock().unwrap().push((database.to_owned(), command));
        let answer = if is_end { None } else { self.answers.lock().unwrap().pop_front() };
        RawDocumentBuf::try_from(&answer.unwrap_or_else(done)).unwrap()
    }
}

pub(super) fn done() -> Document {
    doc! { "ok": 1.0 }
}

/// The reply to a search for a record that is not there.
fn none() -> Document {
    doc! { "cursor": { "firstBatch": [] }, "ok": 1.0 }
}

pub(super) fn failed(code: i32, label: &str) -> Document {
    doc! { "ok": 0.0, "errmsg": "why", "code": code, "errorLabels": [label] }
}

async fn send(router: &Router, request: Request<Body>) -> (StatusCode, Value) {
    let response = router.clone().oneshot(request).await.unwrap();
    let status = response.status();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (status, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
}

fn post(path: &str, body: &Value, headers: &[(&str, &str)]) -> Request<Body> {
    let mut request = Request::post(path).header("content-type", "application/json");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(Body::from(body.to_string())).unwrap()
}

const JOBS: &str = "/v1/db/queues/q/jobs";
const KEY: [(&str, &str); 1] = [("idempotency-key", "k")];

fn keyed() -> Request<Body> {
    post(JOBS, &json!({ "type": "a" }), &KEY)
}

#[tokio::test]
async fn the_reply_and_its_record_are_one_transaction() {
    let reply = doc! { "_id": 7, "inserted": true, "ok": 1.0, "operationTime": 5 };
    let server = FakeServer::answering([done(), none(), reply, done(), done()]);
    let (status, answer) = send(&server.router(), keyed()).await;
    assert_eq!((status, answer), (StatusCode::OK, json!({ "_id": 7, "inserted": true })));
    let names = ["createIndexes", "find", "handfastEnqueueJob", "insert", "commitTransaction", "endSessions"];
    assert_eq!(server.received(), names);
    let received = server.received.lock().unwrap();
    let [_, _, (_, step), (_, insert), (database, commit), _] = &received[..] else { panic!("{received:?}") };
    for command in [step, insert, commit] {
        assert_eq!(
            (command.get("lsid"), command.get("autocommit")),
            (step.get("lsid"), Some(&Bson::Boolean(false))),
            "{command}"
        );
    }
    assert_eq!(
        (step.get("startTransaction"), insert.get("startTransaction"), &**database),
        (Some(&Bson::Boolean(true)), None, "admin")
    );
    let record = insert.get_array("documents").unwrap()[0].as_document().unwrap();
    assert_eq!(record.get_document("_id").unwrap(), &doc! { "user": null, "key": "k" });
    assert_eq!(record.get_document("reply").unwrap(), &doc! { "_id": 7, "inserted": true });
}

#[tokio::test]
async fn a_recorded_reply_is_returned_and_nothing_is_done() {
    let server = FakeServer::answering([done(), none(), doc! { "_id": 7, "ok": 1.0 }, done(), done()]);
    send(&server.router(), keyed()).await;
    let record = server.received.lock().unwrap()[3].1.get_array("documents").unwrap()[0].clone();
    let found = || doc! { "cursor": { "firstBatch": [record.clone()] }, "ok": 1.0 };
    let server = FakeServer::answering([done(), found()]);
    assert_eq!(send(&server.router(), keyed()).await, (StatusCode::OK, json!({ "_id": 7 })));
    assert_eq!(server.received(), ["createIndexes", "find"]);
    let server = FakeServer::answering([done(), found()]);
    let (status, problem) = send(&server.router(), post(JOBS, &json!({ "type": "b" }), &KEY)).await;
    assert_eq!((status.as_u16(), &problem["type"]), (422, &json!("urn:handfast:problem:key-reused")));
}

#[tokio::test]
async fn a_transaction_that_conflicts_is_run_again() {
    let transient = || failed(112, "TransientTransactionError");
    let duplicate = doc! { "n": 0, "writeErrors": [{ "index": 0, "code": 11_000, "errmsg": "why" }], "ok": 1.0 };
    let server = FakeServer::answering([
        done(),
        none(),
        transient(),
        none(),
        done(),
        duplicate,
        none(),
        done(),
        done(),
        transient(),
        none(),
        doc! { "_id": 7, "ok": 1.0 },
        done(),
        done(),
    ]);
    assert_eq!(send(&server.router(), keyed()).await, (StatusCode::OK, json!({ "_id": 7 })));
    let sessions: BTreeSet<_> = server
        .received
        .lock()
        .unwrap()
        .iter()
        .filter_map(|(_, command)| Some(command.get("lsid")?.to_string()))
        .collect();
    assert_eq!(sessions.len(), 4, "each attempt is a transaction of its own");
    let server = FakeServer::answering([done()].into_iter().chain((0..20).flat_map(|_| [none(), transient()])));
    let (status, problem) = send(&server.router(), keyed()).await;
    assert_eq!((status.as_u16(), &problem["type"]), (503, &json!("urn:handfast:problem:outcome-unknown")));
    assert_eq!(problem["outcome"], json!("unknown"));
}

#[tokio::test]
async fn a_commit_with_an_unknown_outcome_is_sent_again() {
    let unknown = || {
        let mut reply = failed(91, "UnknownTransactionCommitResult");
        reply.insert("errorLabels", ["UnknownTransactionCommitResult", "OutcomeUnknown"]);
        reply
    };
    let begun = || [done(), none(), doc! { "_id": 7, "ok": 1.0 }, done()];
    let server = FakeServer::answering(begun().into_iter().chain([unknown(), done()]));
    assert_eq!(send(&server.router(), keyed()).await, (StatusCode::OK, json!({ "_id": 7 })));
    // The server stops after the first attempt, and says no more what became of it.
    let server = FakeServer::answering(begun().into_iter().chain([unknown(), failed(91, ""), failed(13, "")]));
    assert_eq!(send(&server.router(), keyed()).await.1["outcome"], json!("unknown"));
    let server = FakeServer::answering([failed(91, "")]);
    assert_eq!(send(&server.router(), keyed()).await.1["outcome"], json!("unknown"), "the record cannot be looked for");
    let server = FakeServer::answering(begun().into_iter().chain((0..3).map(|_| unknown())));
    let (status, problem) = send(&server.router(), keyed()).await;
    assert_eq!((status.as_u16(), &problem["outcome"]), (503, &json!("unknown")));
    assert_eq!(server.received().iter().filter(|name| *name == "commitTransaction").count(), 3);
}

#[tokio::test]
async fn a_step_that_fails_is_not_recorded() {
    let server = FakeServer::answering([done(), none(), failed(121, "")]);
    let (status, problem) = send(&server.router(), keyed()).await;
    assert_eq!((status.as_u16(), &problem["code"]), (422, &json!(121)));
    assert_eq!(server.received(), ["createIndexes", "find", "handfastEnqueueJob", "endSessions"]);
}

#[tokio::test]
async fn a_step_that_was_made_without_the_key_says_so() {
    let server = FakeServer::answering([done(), none(), failed(256, ""), doc! { "posted": false, "ok": 1.0 }]);
    assert_eq!(send(&server.router(), keyed()).await, (StatusCode::OK, json!({ "posted": false })));
    assert_eq!(server.received(), ["createIndexes", "find", "handfastEnqueueJob", "handfastEnqueueJob", "endSessions"]);
    let no_transactions = doc! { "ok": 0.0, "code": 20, "errmsg": "Transaction numbers are only allowed on a replica set member or mongos" };
    let server = FakeServer::answering([done(), none(), no_transactions]);
    let (status, problem) = send(&server.router(), keyed()).await;
    assert!(
        status == StatusCode::BAD_REQUEST && problem["detail"].to_string().contains("Idempotency-Key"),
        "{problem}"
    );
}

#[tokio::test]
async fn a_password_is_checked_once_for_many_requests() {
    let logins = Arc::new(Mutex::new(Vec::new()));
    let server = FakeServer { logins: Some(Arc::clone(&logins)), ..FakeServer::default() };
    let router = server.router();
    // ann@shop:right, and bob:wrong
    let [right, wrong] = ["Basic YW5uQHNob3A6cmlnaHQ=", "basic Ym9iOndyb25n"];
    for expected in [200, 200] {
        let request = post(JOBS, &json!({ "type": "a" }), &[("authorization", right)]);
        assert_eq!(send(&router, request).await.0.as_u16(), expected);
    }
    assert_eq!(*logins.lock().unwrap(), ["ann@shop"]);
    for _ in 0..2 {
        let request = post(JOBS, &json!({ "type": "a" }), &[("authorization", wrong)]);
        let response = router.clone().oneshot(request).await.unwrap();
        assert_eq!(response.status().as_u16(), 401);
        assert!(response.headers()["www-authenticate"].to_str().unwrap().starts_with("Basic "));
    }
    assert_eq!(*logins.lock().unwrap(), ["ann@shop", "bob@admin", "bob@admin"]);
    // Nobody may try passwords for ever.
    let mut statuses = Vec::new();
    for _ in 0..10 {
        let request = post(JOBS, &json!({ "type": "a" }), &[("authorization", wrong)]);
        statuses.push(send(&router, request).await.0.as_u16());
    }
    assert_eq!(statuses, [[401; 8].as_slice(), &[429; 2]].concat());
    let request = post(JOBS, &json!({ "type": "a" }), &[("authorization", right)]);
    assert_eq!(send(&router, request).await.0.as_u16(), 429, "from the same address");
}

#[tokio::test]
async fn a_login_is_looked_up_once_for_each_request() {
    let server = FakeServer { logins: Some(Arc::default()), ..FakeServer::default() };
    let router = server.router();
    for header in ["Bearer right", "bearer right", "Basic YW5uQHNob3A6cmlnaHQ="] {
        let requests = || {
            let login = [("authorization", header)];
            let read = Request::get("/v1/db/ledgers/tx/accounts/a/balance").header("authorization", header);
            let step = post("/v1/db/queues/q/pause", &json!({}), &login);
            [post(JOBS, &json!({ "type": "a" }), &login), step, read.body(Body::empty()).unwrap()]
        };
        // The first one logs in.
        let [first, ..] = requests();
        assert_eq!(send(&router, first).await.0.as_u16(), 200, "{header}");
        for request in requests() {
            let before = server.looked_up.load(Ordering::Relaxed);
            assert_eq!(send(&router, request).await.0.as_u16(), 200, "{header}");
            // Once when it is taken, and once when it is given back.
            assert_eq!(server.looked_up.load(Ordering::Relaxed) - before, 2, "{header}");
        }
    }
    let logins = server.logins.as_ref().unwrap().lock().unwrap().clone();
    assert_eq!(logins, ["token right", "ann@shop"], "and its secret is checked once for many");
}

#[tokio::test]
async fn nobody_sends_a_body_without_a_login() {
    let logins = Arc::new(Mutex::new(Vec::new()));
    let server = FakeServer { logins: Some(logins), ..FakeServer::default() };
    // A body that would be refused if it was read.
    let request = Request::post(JOBS).header("content-type", "text/plain").body(Body::from("{")).unwrap();
    assert_eq!(send(&server.router(), request).await.0.as_u16(), 401);
}

#[tokio::test]
async fn a_body_that_nothing_reads_is_refused() {
    let server = FakeServer::default();
    let request = post("/v1/db/queues/q/jobs/7/cancel", &json!({ "reason": "late" }), &[]);
    assert_eq!(send(&server.router(), request).await.0.as_u16(), 400);
    assert!(server.received().is_empty());
}

#[tokio::test]
async fn a_page_of_another_origin_may_not_write() {
    let server = FakeServer::default();
    let request = post(JOBS, &json!({ "type": "a" }), &[("origin", "https://example.org")]);
    let (status, problem) = send(&server.router(), request).await;
    assert_eq!((status.as_u16(), &problem["type"]), (403, &json!("urn:handfast:problem:origin-refused")));
    assert!(server.received().is_empty());
}

#[tokio::test]
async fn a_page_cannot_read_by_a_name_of_its_own() {
    let router = FakeServer::default().router();
    for (host, status) in [
        ("127.0.0.1:80", 200),
        ("[::1]:80", 200),
        ("localhost", 200),
        ("evil.example", 403),
        ("127.0.0.1.evil.example", 403),
    ] {
        let request =
            Request::get("/v1/db/ledgers/tx/accounts/a/balance").header("host", host).body(Body::empty()).unwrap();
        assert_eq!(send(&router, request).await.0.as_u16(), status, "{host}");
    }
}

#[tokio::test]
async fn the_guide_has_all_routes_and_problems() {
    let guide = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/http.md")).unwrap();
    let request = Request::get("/openapi.json").body(Body::empty()).unwrap();
    let (_, document) = send(&FakeServer::default().router(), request).await;
    let rows: Vec<(&str, &str)> = guide
        .lines()
        .filter_map(|line| line.strip_prefix("| "))
        .filter_map(|row| row.split_once(" | "))
        .map(|(first, rest)| (first.trim_matches('`'), rest.split(" | ").next().unwrap_or_default()))
        .collect();
    let mut routes = BTreeSet::new();
    let mut problems = BTreeSet::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            routes.insert(format!("{} {path}", method.to_uppercase()));
            for (status, response) in operation["responses"].as_object().unwrap() {
                let description = response["description"].as_str().unwrap();
                let names = description.split('`').filter_map(|part| part.strip_prefix("urn:handfast:problem:"));
                problems.extend(names.map(|name| (name.to_owned(), status.clone())));
            }
        }
    }
    // It is named above the table.
    routes.remove("GET /openapi.json");
    let documented: BTreeSet<String> =
        rows.iter().map(|(first, _)| (*first).to_owned()).filter(|first| first.contains(" /")).collect();
    assert_eq!(documented, routes);
    problems.extend(
        [("not-found", "404"), ("method-not-allowed", "405")]
            .map(|(name, status)| (name.to_owned(), status.to_owned())),
    );
    let documented: BTreeSet<(String, String)> = rows
        .iter()
        .filter(|(_, status)| status.len() == 3 && status.parse::<u16>().is_ok())
        .map(|(name, status)| ((*name).to_owned(), (*status).to_owned()))
        .collect();
    assert_eq!(documented, problems);
}

#[tokio::test]
async fn the_metrics_are_those_of_the_page() {
    let status = doc! {
        "uptime": 5.0, "connections": { "current": 3_i64 }, "ok": 1.0,
        "metrics": { "commands": { "<UNKNOWN>": 0_i64, "find": { "failed": 1_i64, "total": 4_i64, "micros": 2_500_000_i64 }, "insert": { "failed": 0_i64, "total": 0_i64 } } },
    };
    let router = FakeServer::answering([status]).router();
    let response = router.oneshot(Request::get("/metrics").body(Body::empty()).unwrap()).await.unwrap();
    let text = String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap();
    for line in [
        "handfast_server_uptime_seconds 5",
        r#"handfast_server_connections{state="open"} 3"#,
        r#"handfast_server_commands_total{command="find",result="succeeded"} 3"#,
        r#"handfast_server_command_seconds_total{command="find"} 2.5"#,
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in {text}");
    }
    assert!(!text.contains("command=\"insert\""), "a command that has not run");
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md")).unwrap();
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` | "));
    let rows = rows.filter(|(name, _)| name.starts_with("handfast_server_") || name.starts_with("handfast_http_"));
    let documented: BTreeSet<String> =
        rows.map(|(name, rest)| format!("{name} {}", rest.split(" | ").next().unwrap_or_default())).collect();
    let types: BTreeSet<String> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")).map(str::to_owned).collect();
    assert_eq!(types, documented);
}

/// A claim that waits looks when something is written to the queue, and each second.
#[tokio::test(start_paused = true)]
async fn a_write_wakes_a_claim() {
    let claimed = || doc! { "jobs": [{ "_id": 1 }], "ok": 1.0 };
    let nothing = || doc! { "jobs": [], "ok": 1.0 };
    for (written_after, millis) in [(Some(20), 100), (Some(400), 400), (None, 1_000)] {
        let server = FakeServer::answering([nothing(), claimed()]);
        if let Some(after) = written_after {
            let writes = Arc::clone(&server.writes);
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(after)).await;
                writes.send_replace(());
            });
        }
        let now = || tokio::time::sleep(Duration::ZERO).deadline();
        let began = now();
        let body = json!({ "worker": "w", "types": ["a"], "waitMillis": 5_000 });
        let (status, answer) = send(&server.router(), post("/v1/db/queues/q/claims", &body, &[])).await;
        assert_eq!((status, answer), (StatusCode::OK, json!({ "jobs": [{ "_id": 1 }] })));
        assert_eq!(now().duration_since(began).as_millis() / 10, millis / 10, "written after {written_after:?}");
    }
}
