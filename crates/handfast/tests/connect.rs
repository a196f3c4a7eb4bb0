//! The library on a server, which stands in for a server without transactions: the library does not
//! use the server's own.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests, and an example that is run by hand"
)]

#[path = "../examples/12_connect.rs"]
#[allow(dead_code, reason = "its main takes the address from the command line")]
mod example;

use handfast::mongodb::ConnectOptions;
use handfast::prelude::*;
use handfast::{PercolatorOptions, Sources};
use handfast_server::{Address, Listeners, Options, Server, ShutdownHandle};
use handfast_store::MemoryStore;

/// A server over a store in memory, on a free port.
struct TestServer {
    uri: String,
    handle: ShutdownHandle,
}

impl TestServer {
    async fn start() -> Self {
        // The server's clock is the machine's, because a client refuses a server whose clock
        // differs much from its own.
        let sources = Sources::system().expect("randomness");
        let behind = handfast_txn::Database::local(MemoryStore::new(sources.clone()), sources);
        let listen = Address::Tcp("127.0.0.1:0".parse().expect("an address"));
        let listeners = Listeners::bind(&[listen]).await.expect("a port");
        let server = Server::new(listeners, Options::default(), behind);
        let Some(Address::Tcp(address)) = server.addresses().first().cloned() else { panic!("no address") };
        let handle = server.shutdown_handle();
        tokio::spawn(server.run());
        TestServer { uri: format!("mongodb://{address}/"), handle }
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.handle.shutdown();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_example_runs_on_a_server() {
    let server = TestServer::start().await;
    example::run(&server.uri).await.expect("the example");
    // The second run finds the documents of the first one.
    example::run(&server.uri).await.expect("the example again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_databases_on_one_server_meet_in_a_conflict() {
    let server = TestServer::start().await;
    let connect = async || {
        let sources = Sources::system().expect("randomness");
        let (options, percolator) = (ConnectOptions::default(), PercolatorOptions::default());
        Database::connect_with(&server.uri, sources, options, percolator).await.expect("connected")
    };
    let (one, other) = (connect().await, connect().await);
    let pages = Namespace::new("d", "pages").expect("valid");
    one.insert_one(&pages, rawdoc! { "_id": 1, "n": 0 }).await.expect("inserted");
    let (first, second) = (one.begin().await.expect("begun"), other.begin().await.expect("begun"));
    for transaction in [&first, &second] {
        transaction.update_one(&pages, rawdoc! { "_id": 1 }, rawdoc! { "$inc": { "n": 1 } }).await.expect("written");
    }
    first.commit().await.expect("the first committer");
    let late = second.commit().await.expect_err("the second");
    assert!(matches!(late, handfast::Error::Conflict(_)), "{late}");
    assert_eq!(other.find_one(&pages, rawdoc! {}).await.expect("read"), Some(rawdoc! { "_id": 1, "n": 1 }));
}

#[tokio::test]
async fn a_wrong_address_is_an_error_without_its_password() {
    let wrong = Database::connect("mongodb://boss:s3cret@localhost/?unknownOption=1").await.expect_err("refused");
    assert!(!wrong.to_string().contains("s3cret"), "{wrong}");
}
