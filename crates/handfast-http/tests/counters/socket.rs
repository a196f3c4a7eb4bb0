//! The service over a real socket: many connections at once, a stop in their midst, limits of connections.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use handfast_counters::{Counters, Flushed, ItemId, Kind, PassError};
use handfast_http::ConnectionOptions;
use handfast_http::counters::{ServiceOptions, serve, serve_all};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::world::World;

const VIEW: &str = "POST /v1/ads/7/views HTTP/1.1\r\nhost: test\r\ncontent-length: 0\r\n\r\n";

/// A time after which a test fails that would wait for ever: no test needs it.
const DEADLINE: Duration = Duration::from_secs(60);

/// The time between two looks at the list of instances.
const POLL: Duration = Duration::from_millis(10);

/// A service on a socket.
struct Running {
    address: SocketAddr,
    stop: CancellationToken,
    serving: JoinHandle<Result<Flushed, PassError>>,
}

impl Running {
    async fn start(counters: &Counters, connections: ConnectionOptions) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let (address, stop) = (listener.local_addr().expect("an address"), CancellationToken::new());
        let service = serve(listener, counters.clone(), ServiceOptions::default(), connections, stop.clone());
        Running { address, stop, serving: tokio::spawn(service) }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.expect("a connection")
    }

    async fn stopped(self) -> Flushed {
        self.stop.cancel();
        self.serving.await.expect("ended").expect("saved")
    }
}

/// Reads the head of an answer and its body; `None` if the connection ends before.
async fn read(stream: &mut TcpStream) -> Option<String> {
    let mut text = String::new();
    let mut buffer = [0; 4_096];
    loop {
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            if body.len() >= length.map_or(0, |length| length.parse().expect("a length")) {
                return Some(text);
            }
        }
        match stream.read(&mut buffer).await {
            Ok(0) | Err(_) => return None,
            Ok(bytes) => text.push_str(std::str::from_utf8(&buffer[..bytes]).expect("a text")),
        }
    }
}

async fn send(stream: &mut TcpStream, text: &str) -> Option<String> {
    stream.write_all(text.as_bytes()).await.ok()?;
    read(stream).await
}

async fn total(counters: &Counters) -> u64 {
    let (kind, id) = (Kind::new("ads").expect("a kind"), ItemId::new("7").expect("an id"));
    counters.totals(&kind, &[id]).await.expect("a total")[0].views
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_in_the_midst_of_requests_loses_nothing() {
    const STOP_AT: u64 = 40;
    let world = World::new();
    let running = Running::start(&world.healthy(1).await, ConnectionOptions::default()).await;
    let [sent, counted] = [const { AtomicU64::new(0) }; 2].map(Arc::new);
    let clients: Vec<_> = (0..8)
        .map(|_| {
            let (address, stop) = (running.address, running.stop.clone());
            let (sent, counted) = (Arc::clone(&sent), Arc::clone(&counted));
            tokio::spawn(async move {
                let Ok(mut stream) = TcpStream::connect(address).await else { return };
                loop {
                    sent.fetch_add(1, Ordering::SeqCst);
                    let Some(answer) = send(&mut stream, VIEW).await else { return };
                    if answer.starts_with("HTTP/1.1 200") {
                        let counted = counted.fetch_add(1, Ordering::SeqCst) + 1;
                        if counted == STOP_AT {
                            stop.cancel();
                        }
                    } else {
                        assert!(answer.contains("queue-full"), "{answer}");
                    }
                }
            })
        })
        .collect();
    for client in clients {
        client.await.expect("ended");
    }
    running.serving.await.expect("ended").expect("saved");
    let (sent, counted) = (sent.load(Ordering::SeqCst), counted.load(Ordering::SeqCst));
    let restarted = world.healthy(2).await;
    let total = total(&restarted).await;
    assert!(counted >= STOP_AT && counted <= total && total <= sent, "{counted} counted, {total} in all, {sent} sent");
    assert_eq!(restarted.flush().await.expect("saved"), Flushed::default(), "the queue was saved");
    let verification = restarted.storage().verify(None, |_| ()).await.expect("checked");
    assert_eq!((verification.differences.len(), verification.views), (0, total));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_in_progress_is_answered_at_a_stop_and_its_view_saved() {
    let world = World::new();
    let running = Running::start(&world.healthy(1).await, ConnectionOptions::default()).await;
    let mut stream = running.connect().await;
    let head = "POST /v1/ads/7/views HTTP/1.1\r\nhost: test\r\ncontent-type: application/json\r\n\
                content-length: 8\r\nexpect: 100-continue\r\n\r\n";
    let answer = send(&mut stream, head).await.expect("an answer");
    assert_eq!(answer, "HTTP/1.1 100 Continue\r\n\r\n", "the service waits for the body");
    running.stop.cancel();
    let closed = async {
        while TcpStream::connect(running.address).await.is_ok() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(DEADLINE, closed).await.expect("no connection is taken any more");
    let answer = send(&mut stream, r#"{"n": 3}"#).await.expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.contains("connection: close"), "{answer}");
    assert_eq!(read(&mut stream).await, None, "the connection ends");
    assert_eq!(running.stopped().await.views, 3);
    assert_eq!(total(&world.healthy(2).await).await, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_does_not_finish_is_cut_at_a_stop() {
    let world = World::new();
    let options = ConnectionOptions { shutdown_grace: Duration::ZERO, ..ConnectionOptions::default() };
    let running = Running::start(&world.healthy(1).await, options).await;
    let mut stream = running.connect().await;
    let head = "POST /v1/ads/7/views HTTP/1.1\r\nhost: test\r\ncontent-length: 8\r\nexpect: 100-continue\r\n\r\n";
    send(&mut stream, head).await.expect("an answer");
    assert_eq!(running.stopped().await, Flushed::default());
    assert_eq!(read(&mut stream).await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_beyond_the_limit_wait_for_a_place() {
    let world = World::new();
    let options = ConnectionOptions { open_max: 1, ..ConnectionOptions::default() };
    let running = Running::start(&world.healthy(1).await, options).await;
    let mut first = running.connect().await;
    assert!(send(&mut first, VIEW).await.expect("an answer").contains(r#""total":1"#));
    let mut second = running.connect().await;
    second.write_all(VIEW.as_bytes()).await.expect("sent");
    assert!(send(&mut first, VIEW).await.expect("an answer").contains(r#""total":2"#), "the second one waits");
    drop(first);
    assert!(read(&mut second).await.expect("an answer").contains(r#""total":3"#));
    running.stopped().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_that_does_not_arrive_ends_its_connection() {
    let world = World::new();
    let options = ConnectionOptions { head_time_max: Duration::from_millis(50), ..ConnectionOptions::default() };
    let running = Running::start(&world.healthy(1).await, options).await;
    let mut slow = running.connect().await;
    assert_eq!(send(&mut slow, "GET /v1/ads/7 HTTP/1.1\r\nho").await, None);
    running.stopped().await;
}

/// Reads the rest of a connection until the service ends it, which is not a reset.
async fn read_to_the_end(stream: &mut TcpStream) -> String {
    let mut text = String::new();
    let reading = tokio::time::timeout(DEADLINE, stream.read_to_string(&mut text));
    reading.await.expect("it ends").expect("no reset");
    text
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_above_its_limit_is_refused_and_the_client_sees_the_answer() {
    let world = World::new();
    let running = Running::start(&world.healthy(1).await, ConnectionOptions::default()).await;
    let length = "content-length: 1000000";
    let rows = [
        (length.to_owned(), true),
        (format!("{length}\r\nexpect: 100-continue"), true),
        ("transfer-encoding: chunked".to_owned(), false),
    ];
    for (headers, is_announced) in rows {
        let head = format!("POST /v1/ads/7/views HTTP/1.1\r\nhost: test\r\n{headers}\r\n\r\n");
        let (mut stream, body) = (running.connect().await, "f4240\r\n".to_owned() + &"x".repeat(1_000_000));
        let refused = "HTTP/1.1 413 Payload Too Large\r\n";
        stream.write_all(head.as_bytes()).await.expect("sent");
        // Of an announced body, nothing has to be sent before the answer.
        let early = if is_announced { read(&mut stream).await.expect("an answer") } else { String::new() };
        stream.write_all(body.as_bytes()).await.expect("it is read");
        stream.shutdown().await.expect("ended");
        let answer = early + &read_to_the_end(&mut stream).await;
        assert!(answer.starts_with(refused), "{headers}: {answer}");
        assert!(answer.contains("connection: close\r\n"), "{headers}: {answer}");
        assert!(answer.contains(r#""outcome":"not_applied""#), "{headers}: {answer}");
    }
    assert_eq!(running.stopped().await, Flushed::default());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_request_is_answered_by_a_status_alone() {
    let world = World::new();
    let running = Running::start(&world.healthy(1).await, ConnectionOptions::default()).await;
    let long = "x".repeat(1_000_000);
    let many: String = (0..1_000).map(|at| format!("x-{at}: y\r\n")).collect();
    let rows = [
        ("414", format!("GET /v1/ads?ids={} HTTP/1.1\r\nhost: test\r\n\r\n", &long[..66_000])),
        ("431", format!("GET /v1/ads/7 HTTP/1.1\r\nhost: test\r\nlarge: {long}\r\n\r\n")),
        ("431", format!("GET /v1/ads/7 HTTP/1.1\r\nhost: test\r\n{many}\r\n")),
        ("400", format!("GET /v1/ads/7 HTTP/7\r\nhost: test\r\n\r\n{long}")),
        ("400", format!("POST /v1/ads/7/views HTTP/1.1\r\ncontent-length: many\r\n\r\n{long}")),
        ("400", format!("{{\"n\": 1}}\r\n\r\n{long}")),
    ];
    for (status, request) in rows {
        let mut stream = running.connect().await;
        stream.write_all(request.as_bytes()).await.expect("it is read");
        stream.shutdown().await.expect("ended");
        let answer = read_to_the_end(&mut stream).await;
        let shown: String = request.chars().take(60).collect();
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{shown}: {answer}");
        assert!(answer.contains("connection: close\r\n"), "{shown}: {answer}");
        assert!(answer.ends_with("\r\n\r\n"), "it has no body: {shown}: {answer}");
    }
    running.stopped().await;
}

/// The limits of a head are those of its bytes, however they arrive.
#[tokio::test(flavor = "multi_thread")]
async fn the_size_of_a_head_has_an_exact_limit() {
    const HEAD_BYTES_MAX: usize = 81_920;
    const ADDRESS_BYTES_MAX: usize = 65_534;
    let world = World::new();
    let running = Running::start(&world.healthy(1).await, ConnectionOptions::default()).await;
    let with_address = |bytes: usize| {
        let address = format!("/v1/ads/{}", "x".repeat(bytes - "/v1/ads/".len()));
        format!("GET {address} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n")
    };
    let with_head = |bytes: usize| {
        let empty = "GET /v1/ads/7 HTTP/1.1\r\nhost: test\r\nconnection: close\r\nlarge: \r\n\r\n";
        empty.replace("large: ", &format!("large: {}", "x".repeat(bytes - empty.len())))
    };
    let rows = [
        // The id is too long for an item.
        ("400", with_address(ADDRESS_BYTES_MAX)),
        ("414", with_address(ADDRESS_BYTES_MAX + 1)),
        ("414", with_address(ADDRESS_BYTES_MAX + 2)),
        ("414", with_address(ADDRESS_BYTES_MAX + 3)),
        ("414", with_address(80_000)),
        ("431", with_address(HEAD_BYTES_MAX)),
        ("200", with_head(HEAD_BYTES_MAX)),
        ("431", with_head(HEAD_BYTES_MAX + 1)),
        ("431", with_head(HEAD_BYTES_MAX + 10_000)),
    ];
    for (status, request) in rows {
        for pieces in [1, 2, 7, 100] {
            let mut stream = running.connect().await;
            for piece in request.as_bytes().chunks(request.len().div_ceil(pieces)) {
                stream.write_all(piece).await.expect("it is read");
                // Most often the service reads it by itself.
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            // The client does not end its side before: the service takes that for a client that has gone, and does not answer.
            let answer = read_to_the_end(&mut stream).await;
            let head = answer.split("\r\n").next().unwrap_or_default();
            let length = request.len();
            assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{length} bytes in {pieces} pieces: {head}");
        }
    }
    running.stopped().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_longest_address_is_read_and_a_longer_one_refused() {
    let world = World::new();
    let running = Running::start(&world.healthy(1).await, ConnectionOptions::default()).await;
    let ids = |count: usize| vec!["x".repeat(64); count].join(",");
    let ask = |count| format!("GET /v1/ads?ids={} HTTP/1.1\r\nhost: test\r\n\r\n", ids(count));
    let answer = send(&mut running.connect().await, &ask(1_000)).await.expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    let answer = send(&mut running.connect().await, &ask(1_010)).await.expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 414"), "{answer}");
    running.stopped().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_reads_nothing_loses_its_connection() {
    let world = World::new();
    let options = ConnectionOptions { write_time_max: Duration::from_millis(50), ..ConnectionOptions::default() };
    let running = Running::start(&world.healthy(1).await, options).await;
    let (mut deaf, mut client) = (running.connect().await, running.connect().await);
    // Sooner or later no buffer between the two takes any more, and the service waits until it gives up.
    let ask = "GET /openapi.json HTTP/1.1\r\nhost: test\r\n\r\n".repeat(100);
    let cut = async { while deaf.write_all(ask.as_bytes()).await.is_ok() {} };
    tokio::time::timeout(DEADLINE, cut).await.expect("the connection is cut");
    assert!(send(&mut client, VIEW).await.expect("an answer").contains(r#""total":1"#), "others are served");
    running.stopped().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn several_listeners_are_served() {
    let world = World::new();
    let counters = world.healthy(1).await;
    let mut listeners = Vec::new();
    for _ in 0..3 {
        listeners.push(TcpListener::bind("127.0.0.1:0").await.expect("a port"));
    }
    let addresses: Vec<SocketAddr> = listeners.iter().map(|listener| listener.local_addr().expect("bound")).collect();
    let stop = CancellationToken::new();
    let (service, connections) = (ServiceOptions::default(), ConnectionOptions::default());
    let serving = tokio::spawn(serve_all(listeners, counters, service, connections, stop.clone()));
    for round in 0..2 {
        for (at, address) in addresses.iter().enumerate() {
            let answer = send(&mut TcpStream::connect(address).await.expect("a connection"), VIEW).await;
            let expected = format!(r#""total":{}"#, round * addresses.len() + at + 1);
            assert!(answer.expect("an answer").contains(&expected));
        }
    }
    stop.cancel();
    assert_eq!(serving.await.expect("ended").expect("saved").views, 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_other_end_of_a_connection_is_the_client() {
    let world = World::new();
    let counters = world.healthy(1).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let (address, stop) = (listener.local_addr().expect("bound"), CancellationToken::new());
    let kind = Kind::new("ads").expect("a kind");
    let visitor_windows = [(kind, Duration::from_secs(1_800))].into_iter().collect();
    let service = ServiceOptions { visitor_windows, ..ServiceOptions::default() };
    let serving = tokio::spawn(serve(listener, counters, service, ConnectionOptions::default(), stop.clone()));
    // Linux has all addresses of 127.0.0.0/8.
    let clients = [("127.0.0.1", 1, true), ("127.0.0.1", 1, false), ("127.0.0.2", 2, true), ("127.0.0.2", 2, false)];
    for (client, total, counted) in clients.into_iter().take(if cfg!(target_os = "linux") { 4 } else { 2 }) {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind(SocketAddr::new(client.parse().expect("an address"), 0)).expect("an address of this machine");
        let mut stream = socket.connect(address).await.expect("a connection");
        let answer = send(&mut stream, VIEW).await.expect("an answer");
        let expected = format!(r#""total":{total},"partial":false,"counted":{counted}"#);
        assert!(answer.contains(&expected), "{client}: {answer}");
    }
    stop.cancel();
    serving.await.expect("ended").expect("saved");
}

#[tokio::test]
async fn a_service_is_listed_with_its_addresses_until_it_stops() {
    let counters = World::new().healthy(1).await;
    let mut listeners = Vec::new();
    for _ in 0..2 {
        listeners.push(TcpListener::bind("127.0.0.1:0").await.expect("a port"));
    }
    let addresses: Vec<_> = listeners.iter().map(|listener| listener.local_addr().expect("an address")).collect();
    let (service, connections, stop) =
        (ServiceOptions::default(), ConnectionOptions::default(), CancellationToken::new());
    let serving = tokio::spawn(serve_all(listeners, counters.clone(), service, connections, stop.clone()));
    let mut stream = TcpStream::connect(addresses[1]).await.expect("a connection");
    stream.write_all(VIEW.as_bytes()).await.expect("sent");
    read(&mut stream).await.expect("an answer");
    let list = async || counters.buffer().instances().await.expect("a list");
    let listed = tokio::time::timeout(DEADLINE, async {
        loop {
            match list().await.pop() {
                Some(instance) if instance.report.views == 1 => break instance.report,
                _ => tokio::time::sleep(POLL).await,
            }
        }
    });
    let report = listed.await.expect("listed in time");
    assert_eq!((&report.name, report.addresses), (counters.owner(), addresses));
    stop.cancel();
    serving.await.expect("ended").expect("saved");
    assert_eq!(list().await, []);
}
