//! Sends any bytes through the proxy of the black pipe, from a client and from a server: it closes the connections at their end, and
//! nothing else happens. Some operations meet a fault, and all messages are recorded.
#![no_main]

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::OnceLock;

use handfast_blackpipe::{Condition, Fault, Probability, Proxy, Rule, Rules};
use libfuzzer_sys::fuzz_target;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};

/// The operation code of OP_MSG.
const MSG: [u8; 4] = 2013_i32.to_le_bytes();

struct Harness {
    runtime: Runtime,
    server: TcpListener,
    proxy: SocketAddr,
}

impl Harness {
    fn start() -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let (server, proxy) = runtime.block_on(async {
            let server = TcpListener::bind(any).await.expect("a free port");
            let probability = Probability::new(0.2).expect("a probability");
            let condition = Condition { probability, ..Condition::default() };
            let faults = [Fault::Error, Fault::Cut, Fault::LoseReply];
            let rules = faults.map(|fault| Rule { injection: fault.into(), condition: condition.clone() });
            let address = server.local_addr().expect("its address").to_string();
            let proxy = Proxy::bind(any, address, Rules::new(rules.to_vec())).await.expect("a free port");
            let proxy = proxy.with_recorder(|message| drop(message.to_line()));
            let at = proxy.address();
            tokio::spawn(proxy.run());
            (server, at)
        });
        Harness { runtime, server, proxy }
    }

    async fn exchange(&self, request: &[u8], reply: &[u8]) {
        let mut client = TcpStream::connect(self.proxy).await.expect("the proxy listens");
        let (mut server, _) = self.server.accept().await.expect("the proxy connects");
        // Either one may be closed by the proxy before all bytes are sent.
        let _ = client.write_all(request).await;
        let _ = client.shutdown().await;
        let _ = server.write_all(reply).await;
        let _ = server.shutdown().await;
        let (mut replies, mut requests) = (Vec::new(), Vec::new());
        let _ = client.read_to_end(&mut replies).await;
        let _ = server.read_to_end(&mut requests).await;
        assert!(requests.len() <= request.len(), "the server gets what the client sends");
    }
}

/// Returns the bytes as one message, with the length that they have, if they are to be one.
fn framed(bytes: &[u8], is_message: bool) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let length = i32::try_from(bytes.len()).unwrap_or(i32::MAX).to_le_bytes();
    if let (true, Some(header)) = (is_message, bytes.first_chunk_mut::<16>()) {
        header[..4].copy_from_slice(&length);
        header[12..].copy_from_slice(&MSG);
    }
    bytes
}

fuzz_target!(|bytes: &[u8]| {
    static HARNESS: OnceLock<Harness> = OnceLock::new();
    let [choice, length, bytes @ ..] = bytes else { return };
    let (request, reply) = bytes.split_at(bytes.len().min(usize::from(*length)));
    let (request, reply) = (framed(request, choice & 1 != 0), framed(reply, choice & 2 != 0));
    let harness = HARNESS.get_or_init(Harness::start);
    harness.runtime.block_on(harness.exchange(&request, &reply));
});
