//! The pages over a server whose answers each test gives.

use std::sync::Arc;

use axum::body::Body;
use axum::http::{Request, StatusCode};
use axum::response::Response;
use bson::{Document, doc};
use handfast_store::Sources;
use http_body_util::BodyExt as _;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use super::super::tests::{FakeServer, done, failed};
use super::super::{ApiOptions, router};

async fn send(server: &FakeServer, request: Request<Body>) -> (Response<()>, String) {
    let response = server.router().oneshot(request).await.unwrap();
    let (parts, body) = response.into_parts();
    let bytes = body.collect().await.unwrap().to_bytes();
    (Response::from_parts(parts, ()), String::from_utf8(bytes.to_vec()).unwrap())
}

async fn page(server: &FakeServer, path: &str) -> (Response<()>, String) {
    send(server, Request::get(path).body(Body::empty()).unwrap()).await
}

fn found(documents: Vec<Document>) -> Document {
    doc! { "cursor": { "id": 0_i64, "firstBatch": documents }, "ok": 1.0 }
}

const RETRY: &str = "/queues/db/q/jobs/7/retry";

fn form(path: &str, headers: &[(&str, &str)]) -> Request<Body> {
    let mut request = Request::post(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(Body::empty()).unwrap()
}

#[tokio::test]
async fn a_page_runs_no_script_but_its_own_and_shows_texts_as_texts() {
    let job = doc! { "_id": "<script>alert(1)</script>", "type": "<b>\"mail\"</b>", "state": "FAILED", "error": "<img src=x onerror=alert(1)>" };
    let server = FakeServer::answering([found(vec![]), doc! { "failed": 1, "ok": 1.0 }, found(vec![job])]);
    let (response, text) = page(&server, "/queues/db/q?state=FAILED").await;
    let policy = response.headers()["content-security-policy"].to_str().unwrap();
    assert!(
        policy.starts_with("default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self';"),
        "{policy}"
    );
    assert!(!policy.contains("unsafe") && !policy.contains('*'), "{policy}");
    assert!(text.contains("&lt;script&gt;alert(1)&lt;/script&gt;") && text.contains("&lt;img src=x"), "{text}");
    for wrong in ["<script>alert", "<b>", "<img src=x", " style=\"", " onclick", "http://", "https://"] {
        assert!(!text.contains(wrong), "{wrong} is in {text}");
    }
    assert!(text.contains("action=\"/queues/db/q/jobs/%3Cscript%3Ealert%281%29%3C%2Fscript%3E/retry\""), "{text}");
}

#[tokio::test]
async fn forms_are_sent_by_pages_of_the_dashboard_alone() {
    let own = [("host", "localhost:80"), ("origin", "http://localhost:80")];
    for (headers, status) in [
        (&[("sec-fetch-site", "same-origin")][..], StatusCode::SEE_OTHER),
        (&own, StatusCode::SEE_OTHER),
        (&[], StatusCode::FORBIDDEN),
        (&[("sec-fetch-site", "cross-site")], StatusCode::FORBIDDEN),
        (&[("sec-fetch-site", "same-site"), own[0], own[1]], StatusCode::FORBIDDEN),
        (&[("sec-fetch-site", "none")], StatusCode::FORBIDDEN),
        (&[("host", "localhost:80"), ("origin", "http://localhost:81")], StatusCode::FORBIDDEN),
        (&[("host", "localhost:80"), ("origin", "null")], StatusCode::FORBIDDEN),
        (&[("host", "localhost:80")], StatusCode::FORBIDDEN),
    ] {
        let server = FakeServer::answering([doc! { "retried": true, "ok": 1.0 }]);
        let (response, text) = send(&server, form(RETRY, headers)).await;
        assert_eq!(response.status(), status, "{headers:?} {text}");
        let expected: &[&str] = if status == StatusCode::SEE_OTHER { &["handfastRetryJob"] } else { &[] };
        assert_eq!(server.received(), expected, "{headers:?}");
    }
}

#[tokio::test]
async fn a_write_that_is_refused_says_so_on_a_page() {
    let server = FakeServer::answering([failed(13, "none")]);
    let (response, text) = send(&server, form(RETRY, &[("sec-fetch-site", "same-origin")])).await;
    assert_eq!(response.status(), StatusCode::FORBIDDEN);
    assert!(text.contains("the user may not do this") && text.contains("Nothing was changed."), "{text}");
}

#[tokio::test]
async fn a_document_is_replaced_if_it_is_as_it_was_shown() {
    let document = doc! { "_id": 7, "n": 5_i64 };
    let server = FakeServer::answering([found(vec![document.clone()])]);
    let (_, text) = page(&server, "/collections/db/c/documents/7").await;
    assert!(text.contains("&quot;$numberLong&quot;: &quot;5&quot;"), "{text}");
    let was = text.split("name=\"was\" value=\"").nth(1).unwrap().split('"').next().unwrap().to_owned();
    let body = |text: &str| {
        let fields = [("text", text), ("was", was.as_str())];
        let body = form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
        let request = Request::post("/collections/db/c/documents/7").header("sec-fetch-site", "same-origin");
        request.header("content-type", "application/x-www-form-urlencoded").body(Body::from(body)).unwrap()
    };
    let server = FakeServer::answering([doc! { "n": 1, "nModified": 1, "ok": 1.0 }]);
    let (response, _) = send(&server, body(r#"{"_id": 7, "n": 6}"#)).await;
    assert_eq!(response.headers()["location"], "/collections/db/c/documents/7?notice=saved");
    let statement = server.received_command(0).get_array("updates").unwrap()[0].as_document().unwrap().clone();
    let unchanged = doc! { "$eq": ["$$ROOT", { "$literal": document.clone() }] };
    assert_eq!(statement.get_document("q").unwrap(), &doc! { "_id": { "$eq": 7 }, "$expr": unchanged });
    // Somebody has changed it meanwhile.
    let server = FakeServer::answering([doc! { "n": 0, "ok": 1.0 }, found(vec![doc! { "_id": 7, "n": 9 }])]);
    let (response, text) = send(&server, body(r#"{"_id": 7, "n": 6}"#)).await;
    assert_eq!(response.status(), StatusCode::CONFLICT);
    assert!(text.contains("somebody has changed the document") && text.contains("&quot;n&quot;: 6"), "{text}");
    // The answer to the same form was lost.
    let server = FakeServer::answering([doc! { "n": 0, "ok": 1.0 }, found(vec![doc! { "_id": 7, "n": 6 }])]);
    let (response, _) = send(&server, body(r#"{"n": 6}"#)).await;
    assert_eq!(response.headers()["location"], "/collections/db/c/documents/7?notice=saved");
    for wrong in ["{", "[]", r#"{"$set": {"n": 1}}"#] {
        let server = FakeServer::answering([done()]);
        let (response, _) = send(&server, body(wrong)).await;
        assert_eq!((response.status(), server.received().len()), (StatusCode::CONFLICT, 0), "{wrong}");
    }
}

#[tokio::test]
async fn a_filter_that_is_wrong_is_explained_beside_it() {
    let server = FakeServer::answering([found(vec![]), done()]);
    let (response, text) = page(&server, "/collections/db/c?filter=%7B%22a%22").await;
    assert_eq!(response.status(), StatusCode::OK);
    assert!(text.contains("filter is no JSON") && text.contains("value=\"{&quot;a&quot;\""), "{text}");
}

/// A page of another site cannot let the server search, and no page by the name of another host can change something, whatever hosts are allowed.
#[tokio::test]
async fn other_sites_start_no_search_and_no_write() {
    let explain = |site: &str| {
        Request::get("/collections/db/c/explain").header("sec-fetch-site", site).body(Body::empty()).unwrap()
    };
    for (site, status, commands) in [("cross-site", StatusCode::FORBIDDEN, 0), ("none", StatusCode::OK, 1)] {
        let server = FakeServer::answering([doc! { "ok": 1.0 }]);
        let (response, text) = send(&server, explain(site)).await;
        assert_eq!((response.status(), server.received().len()), (status, commands), "{site}: {text}");
    }
    for (host, status) in [("127.0.0.1:80", StatusCode::SEE_OTHER), ("rebound.example:80", StatusCode::FORBIDDEN)] {
        let server = FakeServer::answering([doc! { "retried": true, "ok": 1.0 }]);
        let options = ApiOptions { any_host: true, ..ApiOptions::default() };
        let router = router(Arc::new(server.clone()), &Sources::seeded(1), options, CancellationToken::new());
        let request = form(RETRY, &[("sec-fetch-site", "same-origin"), ("host", host)]);
        assert_eq!(router.oneshot(request).await.unwrap().status(), status, "{host}");
    }
}

#[tokio::test]
async fn a_queue_that_cannot_be_shown_hides_no_other() {
    let names = found(vec![doc! { "name": "a.settings" }, doc! { "name": "b.settings" }]);
    let settings = || found(vec![doc! { "_id": "job-queue", "settings": {} }]);
    let databases = doc! { "databases": [{ "name": "db" }], "ok": 1.0 };
    let depth = doc! { "due": 5, "ok": 1.0 };
    let server = FakeServer::answering([databases, names, settings(), settings(), failed(14, "none"), depth]);
    let (response, text) = page(&server, "/queues").await;
    assert_eq!(response.status(), StatusCode::OK, "{text}");
    assert!(text.contains("db.a") && text.contains("db.b") && text.contains("why"), "{text}");
}

/// Large documents: a reply has fewer than a page, and the next page begins with the next one.
#[tokio::test]
async fn a_page_of_documents_leaves_none_out() {
    let mut large = found(vec![doc! { "_id": 1 }, doc! { "_id": 2 }]);
    large.get_document_mut("cursor").unwrap().insert("id", 7_i64);
    let server = FakeServer::answering([large]);
    let (response, text) = page(&server, "/collections/db/c?skip=3").await;
    assert_eq!(response.status(), StatusCode::OK);
    assert!(text.contains("4 to 5") && text.contains("skip=5"), "{text}");
}
