//! Reads any text as a recording, and sends any bytes to a server that answers from one: it closes the connection at their end, and nothing
//! else happens.
#![no_main]

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::OnceLock;

use handfast_blackpipe::{Playback, PlaybackServer};
use libfuzzer_sys::fuzz_target;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};

/// The operation code of OP_MSG.
const MSG: [u8; 4] = 2013_i32.to_le_bytes();

/// A request with its reply, and one that has lost it.
const RECORDING: &str = r#"{"hello":{"isWritablePrimary":true,"setName":"rs","hosts":["a:1"],"maxWireVersion":21}}
{"connection":1,"request":1,"command":{"ping":1,"$db":"a"}}
{"connection":1,"request":1,"reply":{"ok":1.0}}
{"connection":1,"request":2,"command":{"find":"c","filter":{"_id":1},"$db":"a"}}
"#;

struct Harness {
    runtime: Runtime,
    server: SocketAddr,
}

impl Harness {
    fn start() -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        let server = runtime.block_on(async {
            let playback = Playback::parse(RECORDING, vec!["_id".to_owned()]).expect("a recording");
            let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
            let server = PlaybackServer::bind(any, playback, |_| {}).await.expect("a free port");
            let at = server.address();
            tokio::spawn(server.run());
            at
        });
        Harness { runtime, server }
    }

    async fn exchange(&self, request: &[u8]) {
        let mut client = TcpStream::connect(self.server).await.expect("the server listens");
        // It may close the connection before all bytes are sent.
        let _ = client.write_all(request).await;
        let _ = client.shutdown().await;
        let _ = client.read_to_end(&mut Vec::new()).await;
    }
}

/// Returns the bytes as one message, with the length that they have.
fn framed(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let length = i32::try_from(bytes.len()).unwrap_or(i32::MAX).to_le_bytes();
    if let Some(header) = bytes.first_chunk_mut::<16>() {
        header[..4].copy_from_slice(&length);
        header[12..].copy_from_slice(&MSG);
    }
    bytes
}

fuzz_target!(|bytes: &[u8]| {
    static HARNESS: OnceLock<Harness> = OnceLock::new();
    let [choice, bytes @ ..] = bytes else { return };
    let harness = HARNESS.get_or_init(Harness::start);
    match choice % 3 {
        0 => {
            if let Ok(text) = std::str::from_utf8(bytes) {
                let _ = Playback::parse(text, Vec::new());
            }
        }
        1 => harness.runtime.block_on(harness.exchange(bytes)),
        _ => harness.runtime.block_on(harness.exchange(&framed(bytes))),
    }
});
