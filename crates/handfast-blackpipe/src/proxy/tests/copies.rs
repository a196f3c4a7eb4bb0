//! The copies of a message between the two sockets, counted by the memory that its bytes take: each copy is made into memory that was not there before.
//!
//! Messages of two sizes are sent, so that what does not depend on the size is left out.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;

use bson::rawdoc;
use handfast_wire::{Flags, OpMsg};

use super::ANY;
use crate::{Proxy, Rules};

/// The requests on a connection, each with a reply of the same size.
const REQUESTS: u64 = 20;

/// Starts a server, in a thread of its own, that answers each message of one connection with the same bytes as a reply.
fn start_echo(message: Vec<u8>) -> SocketAddr {
    let listener = TcpListener::bind(ANY).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = vec![0; message.len()];
        while stream.read_exact(&mut request).is_ok() {
            stream.write_all(&message).unwrap();
        }
    });
    address
}

/// Returns an operation with this many bytes of text, or the reply to it, and its length.
fn message(text_bytes: usize, response_to: i32) -> Vec<u8> {
    let mut bytes = Vec::new();
    let body = rawdoc! { "find": "orders", "$db": "shop", "comment": "x".repeat(text_bytes) };
    OpMsg::new(Flags::default(), &body).encode(42, response_to, &mut bytes);
    bytes
}

/// Returns the bytes of memory that the proxy takes while it forwards messages with this much text in both directions.
fn memory(text_bytes: usize) -> u64 {
    let (request, reply) = (message(text_bytes, 0), message(text_bytes, 42));
    let server = start_echo(reply.clone());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let proxy = runtime.block_on(Proxy::bind(ANY, server.to_string(), Rules::default())).unwrap();
    let (address, handle) = (proxy.address(), proxy.handle());
    let (ended, end) = tokio::sync::oneshot::channel();
    let client = thread::spawn(move || {
        let mut stream = TcpStream::connect(address).unwrap();
        let mut received = vec![0; reply.len()];
        for _ in 0..REQUESTS {
            stream.write_all(&request).unwrap();
            stream.read_exact(&mut received).unwrap();
        }
        assert_eq!(received, reply);
        ended.send(()).unwrap();
    });
    // The client and the server are in other threads, which are not counted.
    let counted = allocation_counter::measure(|| {
        runtime.block_on(async {
            tokio::select! {
                never = proxy.run() => match never {},
                _ = end => {}
            }
        });
    });
    client.join().unwrap();
    assert_eq!(handle.operations().len() as u64, REQUESTS);
    counted.bytes_total
}

/// Returns how often the bytes of a message are in new memory, on the way of a request and its reply.
fn copies(smaller: usize, larger: usize) -> f64 {
    let growth = memory(larger) - memory(smaller);
    growth as f64 / ((larger - smaller) as u64 * REQUESTS) as f64
}

/// A message that no rule matches is copied at most once from socket to socket. A small one is copied into memory of its size. Of a large one the first bytes
/// are, and the rest is read there; that memory grows with what arrives, in steps that have less than a half of the bytes together.
#[test]
fn a_message_is_copied_at_most_once_in_each_direction() {
    let small = copies(200, 800);
    assert!(small <= 2.0, "{small} times the bytes of a request and its reply");
    let large = copies(100_000, 400_000);
    assert!(large <= 3.0, "{large} times the bytes of a request and its reply");
    println!("{small} and {large} times the bytes of a request and its reply");
}
