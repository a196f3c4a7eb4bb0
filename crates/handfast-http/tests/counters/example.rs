//! The example of a site with counters in its process: each page is counted, and none waits for it.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

#[path = "../../examples/count_views.rs"]
#[allow(dead_code, reason = "the test has its own start and end")]
mod count_views;

/// A time after which the test fails that would wait for ever: it does not need it.
const DEADLINE: Duration = Duration::from_secs(60);

/// Asks for a path on a connection of its own, and returns the answer.
async fn get(address: SocketAddr, path: &str) -> String {
    ask(address, &format!("GET {path}")).await
}

/// Sends a request such as `DELETE /v1/ads/7` on a connection of its own, and returns the answer.
async fn ask(address: SocketAddr, line: &str) -> String {
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    let request = format!("{line} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("an answer");
    answer
}

#[tokio::test(flavor = "multi_thread")]
async fn a_site_counts_its_pages_in_its_own_process() {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("count-views-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&directory);
    std::fs::create_dir_all(&directory).expect("a directory");
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let (address, stop) = (listener.local_addr().expect("an address"), CancellationToken::new());
    let reading = async {
        for _ in 0..3 {
            let page = get(address, "/ads/7").await;
            assert!(page.starts_with("HTTP/1.1 200") && page.ends_with("<h1>Ad 7</h1>"), "{page}");
        }
        assert!(get(address, "/ads/none").await.starts_with("HTTP/1.1 400"), "which is not counted");
        // The pages did not wait.
        let counted = async { while !get(address, "/v1/ads/7").await.contains(r#""total":3,"#) {} };
        tokio::time::timeout(DEADLINE, counted).await.expect("all pages are counted");
        for (request, expected) in
            [("DELETE /v1/ads/7", "401"), ("POST /v1/ads/7/views", "401"), ("GET /v1/ads/7", "200")]
        {
            assert!(ask(address, request).await.starts_with(&format!("HTTP/1.1 {expected}")), "{request}");
        }
        stop.cancel();
    };
    let (served, ()) = tokio::join!(count_views::serve(&directory, listener, stop.clone()), reading);
    served.expect("served, and all views saved");
    std::fs::remove_dir_all(&directory).expect("removed");
}
