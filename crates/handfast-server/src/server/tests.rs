use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bson::rawdoc;
use handfast_store::{DocumentStore, Sources};
use handfast_txn::{Database, StoreCatalog};
use handfast_wire::{Flags, HEADER_BYTES, Header, Limits, Message, OpMsg};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};

use super::Server;
use crate::listeners::Listeners;
use crate::lock::lock;
use crate::options::{Address, ConnectionLimits, Options};
use crate::testing::{AdjustableStore, Plain, ReplyFields, error_of};

fn any_port() -> Address {
    Address::Tcp(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
}

fn database(store: Arc<dyn DocumentStore>) -> Database {
    Database::new(Arc::new(Plain(StoreCatalog(store))), Sources::seeded(1))
}

async fn server(address: &Address, options: Options) -> Server {
    serving(address, options, Arc::new(AdjustableStore::default())).await
}

async fn serving(address: &Address, options: Options, store: Arc<AdjustableStore>) -> Server {
    let listeners = Listeners::bind(std::slice::from_ref(address)).await.unwrap();
    Server::new(listeners, options, database(store))
}

async fn connect(address: &Address) -> TcpStream {
    match address {
        Address::Tcp(address) => TcpStream::connect(address).await.unwrap(),
        Address::Unix(_) => panic!("no TCP"),
    }
}

async fn run<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut S, command: bson::RawDocumentBuf) -> bson::RawDocumentBuf {
    let mut bytes = Vec::new();
    OpMsg::new(Flags::default(), &command).encode(1, 0, &mut bytes);
    stream.write_all(&bytes).await.unwrap();
    let mut frame = vec![0; HEADER_BYTES];
    stream.read_exact(&mut frame).await.unwrap();
    frame.resize(Header::of_frame(&frame).unwrap().frame_bytes(&Limits::default()).unwrap(), 0);
    stream.read_exact(&mut frame[HEADER_BYTES..]).await.unwrap();
    match Message::decode(&frame, &Limits::default()).unwrap() {
        (_, Message::Msg(msg)) => msg.body.to_owned(),
        (_, other) => panic!("no OP_MSG: {other:?}"),
    }
}

fn ping() -> bson::RawDocumentBuf {
    rawdoc! { "ping": 1, "$db": "admin" }
}

#[tokio::test]
async fn a_tcp_server_serves_until_its_shutdown() {
    let server = server(&any_port(), Options::default()).await;
    let address = server.addresses()[0].clone();
    let handle = server.shutdown_handle();
    let running = tokio::spawn(server.run());
    let mut stream = connect(&address).await;
    assert_eq!(run(&mut stream, ping()).await.double("ok"), 1.0);
    let reply = run(&mut stream, rawdoc! { "whatsmyuri": 1, "$db": "admin" }).await;
    assert_eq!(reply.text("you"), stream.local_addr().unwrap().to_string());
    handle.shutdown();
    running.await.unwrap();
    assert_eq!(stream.read(&mut [0; 1]).await.unwrap(), 0, "the connection is closed");
    let Address::Tcp(address) = address else { panic!() };
    assert!(TcpStream::connect(address).await.is_err(), "the port is free");
}

#[tokio::test]
async fn the_file_of_a_unix_socket_is_removed_with_its_server() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db.sock");
    let server = server(&Address::Unix(path.clone()), Options::default()).await;
    let handle = server.shutdown_handle();
    let running = tokio::spawn(server.run());
    let mut stream = UnixStream::connect(&path).await.unwrap();
    assert_eq!(run(&mut stream, ping()).await.double("ok"), 1.0);
    handle.shutdown();
    running.await.unwrap();
    assert!(!path.exists());
}

#[tokio::test]
async fn a_connection_beyond_the_limit_gets_an_error() {
    let connections = ConnectionLimits { open_max: 2, ..ConnectionLimits::default() };
    let server = server(&any_port(), Options { connections, ..Options::default() }).await;
    let address = server.addresses()[0].clone();
    let metrics = server.metrics();
    let running = tokio::spawn(server.run());
    let mut first = connect(&address).await;
    let mut second = connect(&address).await;
    run(&mut first, ping()).await;
    run(&mut second, ping()).await;
    let mut third = connect(&address).await;
    let (code, _, text) = error_of(&run(&mut third, ping()).await);
    assert_eq!(
        (code, text.as_str()),
        (96, "the server has 2 open connections, which is its limit (--max-connections)")
    );
    assert_eq!(third.read(&mut [0; 1]).await.unwrap(), 0);
    assert_eq!(metrics.connections_refused.get(), 1);
    drop(first);
    for _ in 0..100 {
        let mut again = connect(&address).await;
        if run(&mut again, ping()).await.double("ok") == 1.0 {
            running.abort();
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the place was not given back");
}

#[tokio::test]
async fn commands_that_outlast_the_grace_period_are_aborted() {
    let store = Arc::new(AdjustableStore::default());
    *lock(&store.delay) = Duration::from_secs(1_000);
    let options = Options { shutdown_grace: Duration::from_millis(50), ..Options::default() };
    let server = serving(&any_port(), options, store).await;
    let address = server.addresses()[0].clone();
    let handle = server.shutdown_handle();
    let running = tokio::spawn(server.run());
    let mut stream = connect(&address).await;
    let insert = rawdoc! { "insert": "c", "documents": [{ "_id": 1 }], "$db": "d" };
    let mut bytes = Vec::new();
    OpMsg::new(Flags::default(), &insert).encode(1, 0, &mut bytes);
    stream.write_all(&bytes).await.unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    handle.shutdown();
    tokio::time::timeout(Duration::from_secs(10), running).await.unwrap().unwrap();
    assert_eq!(stream.read(&mut [0; 1]).await.unwrap_or(0), 0);
}
