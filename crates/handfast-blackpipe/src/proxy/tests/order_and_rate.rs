//! The faults that delay a request or slow a message down.

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::time::Duration;

use bson::{RawDocumentBuf, rawdoc};
use handfast_wire::{Flags, Limits, OpMsg};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};

use super::{ANY, HOUR, LONG, MOMENT, find, send, start_injecting};
use crate::frame::read;
use crate::proxy::{Handle, Proxy};
use crate::{Condition, Direction, Injection, Rule, Rules};

/// Reads the next request at the server behind the proxy, and answers it.
async fn answer_next(server: &mut TcpStream) {
    let next = tokio::time::timeout(LONG, read(server, &Limits::default())).await;
    let frame = next.expect("a request that is held back no longer").unwrap().unwrap();
    let mut bytes = Vec::new();
    OpMsg::new(Flags::default(), &rawdoc! { "ok": 1 }).encode(1, frame.header.request_id, &mut bytes);
    server.write_all(&bytes).await.unwrap();
}

/// A proxy that reorders updates, and two connections to it with their ends at the server.
struct Reordering {
    handle: Handle,
    clients: [TcpStream; 2],
    servers: [TcpStream; 2],
    address: SocketAddr,
    listener: TcpListener,
}

impl Reordering {
    async fn start(within: Duration) -> Self {
        let listener = TcpListener::bind(ANY).await.unwrap();
        let condition = Condition { command: Some("update".to_owned()), ..Condition::default() };
        let rules = Rules::new(vec![Rule { injection: Injection::Reorder { within }, condition }]);
        let server = listener.local_addr().unwrap().to_string();
        let proxy = Proxy::bind(ANY, server, rules).await.unwrap();
        let (handle, address) = (proxy.handle(), proxy.address());
        tokio::spawn(proxy.run());
        let (first, first_server) = connect_through(address, &listener).await;
        let (second, second_server) = connect_through(address, &listener).await;
        let (clients, servers) = ([first, second], [first_server, second_server]);
        Reordering { handle, clients, servers, address, listener }
    }

    /// Sends a command, and waits until the rules have decided about it.
    async fn send(&mut self, client: usize, command: &RawDocumentBuf) {
        let (mut bytes, count) = (Vec::new(), self.handle.operation_count());
        OpMsg::new(Flags::default(), command).encode(42, 0, &mut bytes);
        self.clients[client].write_all(&bytes).await.unwrap();
        while self.handle.operation_count() == count {
            tokio::task::yield_now().await;
        }
    }

    /// Returns whether the server gets no request of this connection.
    async fn is_held(&mut self, server: usize) -> bool {
        let mut byte = [0; 1];
        tokio::time::timeout(MOMENT, self.servers[server].peek(&mut byte)).await.is_err()
    }
}

async fn connect_through(proxy: SocketAddr, listener: &TcpListener) -> (TcpStream, TcpStream) {
    let client = TcpStream::connect(proxy).await.unwrap();
    (client, listener.accept().await.unwrap().0)
}

fn update() -> RawDocumentBuf {
    rawdoc! { "update": "orders", "$db": "shop" }
}

#[tokio::test]
async fn a_reordered_request_is_sent_when_another_one_was_answered() {
    let mut setup = Reordering::start(HOUR).await;
    setup.send(0, &update()).await;
    setup.send(1, &find()).await;
    answer_next(&mut setup.servers[1]).await;
    assert!(read(&mut setup.clients[1], &Limits::default()).await.unwrap().is_some());
    assert!(setup.is_held(0).await, "the find of another connection is no update");
    setup.send(1, &update()).await;
    assert!(setup.is_held(0).await, "the other update was not answered yet");
    answer_next(&mut setup.servers[1]).await;
    assert!(read(&mut setup.clients[1], &Limits::default()).await.unwrap().is_some());
    answer_next(&mut setup.servers[0]).await;
    assert!(read(&mut setup.clients[0], &Limits::default()).await.unwrap().is_some());
    // The next update is delayed again.
    setup.send(1, &update()).await;
    assert!(setup.is_held(1).await);
    let faults = setup.handle.operations().iter().map(|observed| observed.fault.is_some()).collect::<Vec<_>>();
    assert_eq!(faults, [true, false, false, true]);
}

#[tokio::test]
async fn a_reordered_request_is_sent_when_no_other_one_can_be_answered_any_more() {
    let mut setup = Reordering::start(HOUR).await;
    setup.send(0, &update()).await;
    setup.send(1, &update()).await;
    // The connection of the request that overtakes ends.
    let (client, server) = connect_through(setup.address, &setup.listener).await;
    (setup.clients[1], setup.servers[1]) = (client, server);
    answer_next(&mut setup.servers[0]).await;

    let mut setup = Reordering::start(HOUR).await;
    setup.send(0, &update()).await;
    let delivered = setup.handle.clone();
    let (client, server) = (&mut setup.clients[0], &mut setup.servers[0]);
    let read = async { read(client, &Limits::default()).await };
    let (_, (), reply) = tokio::join!(delivered.deliver_late(), answer_next(server), read);
    assert!(reply.unwrap().is_some());

    let mut setup = Reordering::start(Duration::from_millis(1)).await;
    setup.send(0, &update()).await;
    answer_next(&mut setup.servers[0]).await;
}

/// The client that gave up sends its request again on another connection: it overtakes the first one.
#[tokio::test]
async fn a_reordered_request_is_sent_although_its_client_has_gone() {
    let mut setup = Reordering::start(HOUR).await;
    setup.send(0, &update()).await;
    let (client, server) = connect_through(setup.address, &setup.listener).await;
    drop(std::mem::replace(&mut setup.clients[0], client));
    let mut first_server = std::mem::replace(&mut setup.servers[0], server);
    setup.send(0, &update()).await;
    answer_next(&mut setup.servers[0]).await;
    answer_next(&mut first_server).await;
}

#[tokio::test]
async fn a_slow_message_arrives_whole() {
    for direction in Direction::ALL {
        let bytes_per_second = NonZeroU32::new(10_000).unwrap();
        let setup = start_injecting(Injection::Throttle { direction, bytes_per_second }).await;
        let mut stream = setup.connect().await;
        assert_eq!(send(&mut stream, &find()).await, Some(rawdoc! { "answered": "find" }));
        assert_eq!(setup.handle.fault_count(), 1);
    }
}

#[tokio::test]
async fn a_slow_message_is_slow_in_its_direction_alone() {
    // The last byte of a message would arrive after a minute.
    let bytes_per_second = NonZeroU32::MIN;
    let (direction, wait) = (Direction::Request, MOMENT);
    let setup = start_injecting(Injection::Throttle { direction, bytes_per_second }).await;
    let mut stream = setup.connect().await;
    assert!(tokio::time::timeout(wait, send(&mut stream, &find())).await.is_err());
    assert_eq!(setup.requests(), 0);
    assert!(send(&mut setup.connect().await, &find()).await.is_some(), "another connection is as fast as before");

    let setup = start_injecting(Injection::Throttle { direction: Direction::Reply, bytes_per_second }).await;
    let mut stream = setup.connect().await;
    assert!(tokio::time::timeout(wait, send(&mut stream, &find())).await.is_err());
    while setup.requests() == 0 {
        tokio::task::yield_now().await;
    }
}
