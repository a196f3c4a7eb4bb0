//! Tokens, and web pages of other origins.

use axum::http::StatusCode;
use handfast_http::counters::ServiceOptions;
use handfast_http::{AccessOptions, InvalidTokenHash, ProblemKind, TokenHash};

use crate::world::{Client, World};

const REQUESTS: [&str; 10] = [
    "GET /status?kind=ads",
    "GET /metrics",
    "POST /v1/ads/7/views",
    "DELETE /v1/ads/7",
    "GET /v1/ads/7",
    "GET /v1/ads?ids=7",
    "GET /v1/ads/top",
    "GET /v1/ads/7/daily",
    "GET /v1/ads/7/badge.svg",
    "HEAD /v1/ads/7",
];

async fn client(tokens: &[&str], public_reads: bool, origins: &[&str]) -> Client {
    let access = AccessOptions {
        tokens: tokens.iter().map(|token| TokenHash::of(token)).collect(),
        public_reads,
        allowed_origins: origins.iter().map(|origin| origin.parse().expect("an origin")).collect(),
    };
    let world = World::new();
    Client::with(&world.healthy(1).await, ServiceOptions { access, ..ServiceOptions::default() }).await
}

#[tokio::test]
async fn a_token_is_needed_where_tokens_are_configured() {
    for public_reads in [false, true] {
        let client = client(&["first", "second"], public_reads, &[]).await;
        for line in REQUESTS {
            let is_free = public_reads && !line.starts_with("POST") && !line.starts_with("DELETE");
            for header in ["", "authorization: Bearer third", "authorization: Basic first", "authorization: first"] {
                let headers: &[&str] = if header.is_empty() { &[] } else { &[header] };
                let answer = client.send(line, headers, "").await;
                if is_free {
                    assert_eq!(answer.status, StatusCode::OK, "{line} {header}");
                } else {
                    assert_eq!(answer.status, StatusCode::UNAUTHORIZED, "{line} {header}");
                    assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
                }
            }
            for header in ["authorization: Bearer first", "authorization: bearer second"] {
                let answer = client.send(line, &[header], "").await;
                assert!(answer.status.is_success(), "{line} {header}: {answer:?}");
            }
        }
        for line in ["GET /healthz", "GET /readyz", "GET /openapi.json", "GET /", "GET /docs", "GET /assets/page.js"] {
            assert_eq!(client.ask(line).await.status, StatusCode::OK, "{line}");
        }
    }
}

/// A proxy before the service may have checked one of two, and the service would look at the other one.
#[tokio::test]
async fn a_second_token_or_origin_is_refused() {
    let page = "https://example.org";
    for tokens in [&["first"][..], &[]] {
        let client = client(tokens, false, &[page]).await;
        // The answer to HEAD has no body.
        for line in REQUESTS.into_iter().filter(|line| !line.starts_with("HEAD")) {
            for [one, other] in
                [["authorization: Bearer first"; 2], ["authorization: Bearer first", "authorization: Bearer x"]]
            {
                let detail = client.send(line, &[one, other], "").await.problem(ProblemKind::InvalidRequest);
                assert_eq!(detail, "the header authorization is there more than once", "{line}");
            }
            let origin = format!("origin: {page}");
            for other in [&*origin, "origin: https://other.example"] {
                let headers = ["authorization: Bearer first", &*origin, other];
                let detail = client.send(line, &headers, "").await.problem(ProblemKind::InvalidRequest);
                assert_eq!(detail, "the header origin is there more than once", "{line}");
            }
        }
    }
}

#[tokio::test]
async fn the_problem_of_a_token_does_not_repeat_it() {
    let client = client(&["first"], false, &[]).await;
    let answer = client.send("GET /v1/ads/7", &["authorization: Bearer s3cret"], "").await;
    assert_eq!(answer.problem(ProblemKind::Unauthorized), "the token is unknown");
}

#[tokio::test]
async fn a_page_of_another_origin_cannot_write() {
    let client = client(&[], false, &["https://example.org"]).await;
    for line in ["POST /v1/ads/7/views", "DELETE /v1/ads/7"] {
        for origin in ["https://evil.example", "null", "https://example.org.evil.example", "http://example.org"] {
            let answer = client.send(line, &[&format!("origin: {origin}")], "").await;
            answer.problem(ProblemKind::OriginRefused);
            assert_eq!(answer.json()["outcome"], "not_applied");
            assert_eq!(answer.header("access-control-allow-origin"), None);
        }
        let answer = client.send(line, &["origin: https://example.org"], "").await;
        assert!(answer.status.is_success(), "{answer:?}");
        assert_eq!(answer.header("access-control-allow-origin"), Some("https://example.org"));
    }
}

#[tokio::test]
async fn browsers_are_told_what_pages_of_allowed_origins_may_do() {
    let allowing = client(&["first"], false, &["https://example.org"]).await;
    let preflight = ["access-control-request-method: DELETE", "access-control-request-headers: authorization"];
    let ask = async |client: &Client, origin: &str| {
        client.send("OPTIONS /v1/ads/7", &[origin, preflight[0], preflight[1]], "").await
    };
    let answer = ask(&allowing, "origin: https://example.org").await;
    assert_eq!(answer.status, StatusCode::OK);
    assert_eq!(answer.header("access-control-allow-origin"), Some("https://example.org"));
    assert_eq!(answer.header("access-control-allow-methods"), Some("GET,POST,DELETE"));
    assert_eq!(
        answer.header("access-control-allow-headers"),
        Some("authorization,content-type,idempotency-key,visitor")
    );
    assert_eq!(ask(&allowing, "origin: https://evil.example").await.header("access-control-allow-origin"), None);
    let silent = client(&["first"], false, &[]).await;
    let answer = ask(&silent, "origin: https://example.org").await;
    answer.problem(ProblemKind::MethodNotAllowed);
    assert_eq!(answer.header("access-control-allow-origin"), None);
}

#[test]
fn a_hash_is_what_sha256sum_prints() {
    // printf abc | sha256sum (FIPS 180-2, appendix B.1)
    let printed = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    assert_eq!(printed.parse(), Ok(TokenHash::of("abc")));
    assert_eq!(printed.to_uppercase().parse(), Ok(TokenHash::of("abc")));
    for wrong in ["", "abc", &printed[1..], &printed.replace('b', "g"), &format!("{printed}0"), &"é".repeat(32)] {
        assert_eq!(wrong.parse::<TokenHash>(), Err(InvalidTokenHash), "{wrong}");
    }
}
