//! The count of late requests that the server did not answer.

use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bson::rawdoc;
use handfast_wire::{Flags, Limits, OpMsg};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};

use super::{ANY, HOUR, LONG, find};
use crate::frame::read;
use crate::proxy::{Handle, Proxy};
use crate::{Condition, Injection, Rule, Rules};

const UNACKNOWLEDGED: Flags = Flags { checksum: false, more_to_come: true, exhaust_allowed: false };
const DELAY: Injection = Injection::Delay(Duration::from_millis(1));

/// A client of a proxy, and its connection at the server.
struct Connected {
    client: TcpStream,
    server: TcpStream,
    handle: Handle,
    /// The numbers of undelivered requests when each operation was logged.
    logged: Arc<Mutex<Vec<u64>>>,
}

impl Connected {
    /// Connects through a proxy whose first operations meet a fault.
    async fn start(injection: Injection, times: u32) -> Self {
        let listener = TcpListener::bind(ANY).await.unwrap();
        let condition = Condition { times: NonZeroU32::new(times), ..Condition::default() };
        let rules = Rules::new(vec![Rule { injection, condition }]);
        let proxy = Proxy::bind(ANY, listener.local_addr().unwrap().to_string(), rules).await.unwrap();
        let (address, handle, logged) = (proxy.address(), proxy.handle(), Arc::new(Mutex::new(Vec::new())));
        let (log, logging) = (Arc::clone(&logged), proxy.handle());
        let proxy = proxy.with_log(move |_| log.lock().unwrap().push(logging.undelivered_count()));
        tokio::spawn(proxy.run());
        let client = TcpStream::connect(address).await.unwrap();
        Connected { client, server: listener.accept().await.unwrap().0, handle, logged }
    }

    async fn send(&mut self, flags: Flags) {
        let mut bytes = Vec::new();
        OpMsg::new(flags, &find()).encode(42, 0, &mut bytes);
        self.client.write_all(&bytes).await.unwrap();
    }

    async fn read_at_server(&mut self) {
        read(&mut self.server, &Limits::default()).await.unwrap().expect("a request");
    }

    /// Waits until as many operations are logged.
    async fn until_logged(&self, count: usize) {
        while self.logged.lock().unwrap().len() < count {
            tokio::task::yield_now().await;
        }
    }

    /// Returns the number of undelivered requests when none is late any more.
    async fn undelivered(handle: &Handle) -> u64 {
        tokio::time::timeout(LONG, handle.deliver_late()).await.expect("the end of all late requests");
        handle.undelivered_count()
    }
}

#[tokio::test]
async fn a_request_that_is_held_back_when_its_server_ends_is_counted() {
    for injection in [Injection::Delay(HOUR), Injection::Reorder { within: HOUR }] {
        for flags in [Flags::default(), UNACKNOWLEDGED] {
            let mut setup = Connected::start(injection.clone(), 1).await;
            setup.send(flags).await;
            setup.until_logged(1).await;
            let Connected { mut client, server, handle, .. } = setup;
            drop(server);
            assert!(!matches!(read(&mut client, &Limits::default()).await, Ok(Some(_))));
            assert_eq!(Connected::undelivered(&handle).await, 1, "{injection:?}");
        }
    }
}

#[tokio::test]
async fn a_late_request_without_a_reply_of_its_server_is_counted() {
    for flags in [Flags::default(), UNACKNOWLEDGED] {
        let mut setup = Connected::start(DELAY, 1).await;
        setup.send(flags).await;
        setup.read_at_server().await;
        let Connected { client: _client, server, handle, .. } = setup;
        drop(server);
        assert_eq!(Connected::undelivered(&handle).await, 1);
    }
}

/// A server executes the requests of a connection in their order.
#[tokio::test]
async fn unacknowledged_writes_are_delivered_when_a_later_request_is_answered() {
    let mut setup = Connected::start(DELAY, 2).await;
    for flags in [UNACKNOWLEDGED, UNACKNOWLEDGED] {
        setup.send(flags).await;
        setup.read_at_server().await;
    }
    assert_eq!(setup.handle.undelivered_count(), 2);
    setup.send(Flags::default()).await;
    setup.read_at_server().await;
    let mut reply = Vec::new();
    OpMsg::new(Flags::default(), &rawdoc! { "ok": 1.0 }).encode(1, 42, &mut reply);
    setup.server.write_all(&reply).await.unwrap();
    assert_eq!(Connected::undelivered(&setup.handle).await, 0);
    assert!(read(&mut setup.client, &Limits::default()).await.unwrap().is_some());
}

#[tokio::test]
async fn unacknowledged_writes_are_delivered_when_the_server_has_read_all() {
    for times in [1, 2] {
        let mut setup = Connected::start(DELAY, times).await;
        for _ in 0..times {
            setup.send(UNACKNOWLEDGED).await;
            setup.read_at_server().await;
        }
        let Connected { client, mut server, handle, .. } = setup;
        drop(client);
        assert!(read(&mut server, &Limits::default()).await.unwrap().is_none());
        drop(server);
        assert_eq!(Connected::undelivered(&handle).await, 0);
    }
}

/// A reader of the log may end the proxy at once.
#[tokio::test]
async fn a_request_is_late_before_it_is_logged() {
    for injection in
        [Injection::Delay(HOUR), Injection::Reorder { within: HOUR }, Injection::Duplicate { after: Some(HOUR) }]
    {
        let mut setup = Connected::start(injection.clone(), 1).await;
        setup.send(Flags::default()).await;
        setup.until_logged(1).await;
        assert_eq!(*setup.logged.lock().unwrap(), [1], "{injection:?}");
    }
}
