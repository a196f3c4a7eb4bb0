//! Counters over a store in memory, and a client of their router that compares each answer with the OpenAPI document.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode};
use handfast_counters::jiff::civil::date;
use handfast_counters::jiff::tz::TimeZone;
use handfast_counters::{Counters, CountersOptions, EmbeddedBuffer, EmbeddedBufferOptions, Storage};
use handfast_http::PeerAddress;
use handfast_http::counters::{ServiceOptions, router};
use handfast_store::decorator::{Faulty, Plan};
use handfast_store::{AtomicStore, DocumentStore, ManualClock, MemoryStore, Sources};
use handfast_txn::{Database, Local};
use http_body_util::BodyExt as _;
use serde_json::Value;
use tower::ServiceExt as _;

use crate::document::Document;

/// The number of events that the queue holds.
pub(crate) const QUEUE_EVENTS: usize = 50;

/// A store and a clock, which outlive the processes. The clock stands at noon of 30 November 2026.
pub(crate) struct World {
    pub(crate) store: Arc<MemoryStore>,
    pub(crate) clock: Arc<ManualClock>,
}

/// The answer to a request.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

/// A client of a router.
pub(crate) struct Client {
    router: Router,
    document: Document,
    /// Headers that each request has.
    pub(crate) headers: HeaderMap,
    /// The other end of the connection.
    pub(crate) peer: IpAddr,
}

impl World {
    pub(crate) fn new() -> Self {
        let (sources, clock) = Sources::manual(1);
        let noon = date(2026, 11, 30).at(12, 0, 0, 0).in_tz("UTC").expect("a time").timestamp().as_millisecond();
        clock.set(bson::DateTime::from_millis(noon));
        World { store: Arc::new(MemoryStore::new(sources)), clock }
    }

    /// Starts counters whose queue and whose totals are in two views of the store, which may have faults.
    pub(crate) async fn start<S: AtomicStore>(
        &self,
        process: u64,
        queue: Arc<dyn DocumentStore>,
        totals: Arc<S>,
    ) -> Counters {
        let sources = Sources { clock: self.clock.clone(), ..Sources::seeded(process) };
        let database = Database::new(Arc::new(Local::new(totals, sources.clone())), sources.clone());
        let storage = Storage::open(database, "counters").await.expect("a storage");
        let options = EmbeddedBufferOptions { queue_events_max: QUEUE_EVENTS, ..EmbeddedBufferOptions::default() };
        let buffer = EmbeddedBuffer::open(queue, "counters", &storage, sources.clone(), options).await;
        let buffer = Arc::new(buffer.expect("a buffer"));
        let time_zone = TimeZone::get("Europe/Berlin").expect("a time zone");
        Counters::new(buffer, storage, sources, CountersOptions { time_zone, ..CountersOptions::default() })
    }

    /// Starts counters over the store without faults.
    pub(crate) async fn healthy(&self, process: u64) -> Counters {
        self.start(process, self.store.clone(), self.store.clone()).await
    }

    /// Returns a view of the store that may have faults.
    pub(crate) fn faulty(&self, plan: Plan) -> Arc<Faulty<MemoryStore>> {
        Arc::new(Faulty::new(self.store.clone(), plan))
    }
}

impl Client {
    pub(crate) async fn new(counters: &Counters) -> Self {
        Client::with(counters, ServiceOptions::default()).await
    }

    pub(crate) async fn with(counters: &Counters, options: ServiceOptions) -> Self {
        Client::of(router(counters.clone(), options)).await
    }

    pub(crate) async fn of(router: Router) -> Self {
        let document = router.clone().oneshot(Request::get("/openapi.json").body(Body::empty()).expect("a request"));
        let answer = Answer::read(document.await.expect("an answer")).await;
        Client {
            router,
            document: Document(answer.json()),
            headers: HeaderMap::new(),
            peer: Ipv4Addr::LOCALHOST.into(),
        }
    }

    /// Returns a request for each operation of the document, such as `GET /v1/ads/7`.
    pub(crate) fn operations(&self) -> Vec<String> {
        self.document.requests(&[("{kind}", "ads"), ("{id}", "7"), ("{file}", "page.js")], "ids=7")
    }

    /// Sends a request, and compares the answer with the document.
    pub(crate) async fn request(&self, mut request: Request<Body>) -> Answer {
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        request.headers_mut().extend(self.headers.clone());
        request.extensions_mut().insert(PeerAddress(self.peer));
        let answer = Answer::read(self.router.clone().oneshot(request).await.expect("an answer")).await;
        self.document.check(&method, &path, &answer);
        answer
    }

    /// Sends a request such as `POST /v1/ads/7/views`, with headers such as `idempotency-key: a`, and with a body.
    pub(crate) async fn send(&self, line: &str, headers: &[&str], body: &str) -> Answer {
        let (method, path) = line.split_once(' ').expect("a method and a path");
        let mut request = Request::new(Body::from(body.to_owned()));
        *request.method_mut() = Method::from_bytes(method.as_bytes()).expect("a method");
        *request.uri_mut() = path.parse().expect("a path");
        for header in headers {
            let (name, value) = header.split_once(": ").expect("a header");
            let name: HeaderName = name.parse().expect("the name of a header");
            request.headers_mut().append(name, HeaderValue::from_str(value).expect("the value of a header"));
        }
        self.request(request).await
    }

    /// Sends a request without headers and body.
    pub(crate) async fn ask(&self, line: &str) -> Answer {
        self.send(line, &[], "").await
    }
}

impl Answer {
    async fn read(response: axum::response::Response) -> Self {
        let (parts, body) = response.into_parts();
        let body = body.collect().await.expect("a body").to_bytes().to_vec();
        Answer { status: parts.status, headers: parts.headers, body }
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("JSON")
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().expect("a text"))
    }

    /// Checks that the answer is this problem, and returns its detail.
    pub(crate) fn problem(&self, kind: handfast_http::ProblemKind) -> String {
        assert_eq!(self.status, kind.status(), "{self:?}");
        assert_eq!(self.header("content-type"), Some("application/problem+json"));
        let problem = self.json();
        assert_eq!((&problem["type"], &problem["title"]), (&kind.uri().into(), &kind.title().into()), "{problem}");
        assert_eq!(problem["status"], kind.status().as_u16());
        problem["detail"].as_str().expect("a detail").to_owned()
    }
}
