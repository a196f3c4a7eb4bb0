//! A server in this process, and a proxy in front of it.

use std::sync::{Arc, Mutex};

use bson::{RawDocument, RawDocumentBuf, rawdoc};
use handfast_mongodb::{ConnectOptions, Connection, connect};
use handfast_server::auth::{Password, Role, UserName, Users};
use handfast_server::{Address, Listeners, Options, Server, ShutdownHandle, Topology};
use handfast_store::{MemoryStore, Sources};
use handfast_txn::Database;
use handfast_wire::{Limits, Message};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A server over a store in memory, on a free port.
pub(crate) struct TestServer {
    pub(crate) port: u16,
    handle: ShutdownHandle,
}

impl TestServer {
    pub(crate) async fn start(topology: Topology) -> Self {
        let store = MemoryStore::new(Sources::seeded(1));
        TestServer::over(Database::local(store, Sources::seeded(1)), Options { topology, ..Options::default() }).await
    }

    /// Starts a server that requires a login, with a user `reader` (password `p`) who may read everything and write
    /// nothing.
    pub(crate) async fn with_a_reader() -> Self {
        let store = MemoryStore::new(Sources::seeded(1));
        let name = UserName::new("admin", "reader").expect("a name");
        let role = Role::new("readAnyDatabase", "admin").expect("a role");
        let users = Users::new(Arc::new(store.clone()));
        users.add(name, Password::new("p"), vec![role], None).await.expect("added");
        let database = Database::local(store, Sources::seeded(1));
        TestServer::over(database, Options { authentication: true, ..Options::default() }).await
    }

    pub(crate) async fn over(database: Database, options: Options) -> Self {
        let listen = Address::Tcp("127.0.0.1:0".parse().expect("an address"));
        let listeners = Listeners::bind(&[listen]).await.expect("a port");
        let server = Server::new(listeners, options, database);
        let Some(Address::Tcp(address)) = server.addresses().first().cloned() else { panic!("no address") };
        let handle = server.shutdown_handle();
        tokio::spawn(server.run());
        TestServer { port: address.port(), handle }
    }

    pub(crate) fn uri(&self) -> String {
        format!("mongodb://127.0.0.1:{}/", self.port)
    }

    pub(crate) async fn connect(&self) -> Connection {
        connected(&self.uri(), ConnectOptions::default()).await
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.handle.shutdown();
    }
}

pub(crate) async fn connected(uri: &str, options: ConnectOptions) -> Connection {
    connect(uri, Sources::seeded(2), options).await.expect("a connection")
}

/// The proxy's action for a request.
#[derive(Clone, Debug)]
pub(crate) enum ProxyAction {
    /// Forwards the request, and its reply.
    Pass,
    /// Closes the connection instead of forwarding the request.
    LoseRequest,
    /// Forwards the request, and closes the connection instead of forwarding the reply.
    LoseReply,
    /// Forwards the request, and withholds its reply.
    KeepReply,
    /// Replies without the server.
    Answer(RawDocumentBuf),
}

type Script = Box<dyn FnMut(&RawDocument) -> ProxyAction + Send>;

/// A proxy that asks a script about each request, and records the names of the commands that it forwarded.
pub(crate) struct Proxy {
    pub(crate) port: u16,
    script: Arc<Mutex<Script>>,
}

impl Proxy {
    /// Starts a proxy in front of this server. It forwards everything until it gets a script.
    pub(crate) async fn before(server: &TestServer) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let script: Arc<Mutex<Script>> = Arc::new(Mutex::new(Box::new(|_| ProxyAction::Pass)));
        let (asked, behind) = (Arc::clone(&script), server.port);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let asked = Arc::clone(&asked);
                tokio::spawn(async move {
                    let server = TcpStream::connect(("127.0.0.1", behind)).await.expect("the server");
                    // The connection may end with an error.
                    let _ended = forward(client, server, asked).await;
                });
            }
        });
        Proxy { port, script }
    }

    pub(crate) fn uri(&self) -> String {
        format!("mongodb://127.0.0.1:{}/?directConnection=true", self.port)
    }

    /// Sets the script that decides about each request from now on.
    pub(crate) fn play(&self, script: impl FnMut(&RawDocument) -> ProxyAction + Send + 'static) {
        *self.script.lock().expect("not poisoned") = Box::new(script);
    }

    /// Applies an action to the next command of this name, and counts the commands of this name.
    pub(crate) fn once(&self, name: &'static str, act: ProxyAction) -> Arc<Mutex<u32>> {
        let count = Arc::new(Mutex::new(0));
        let counted = Arc::clone(&count);
        self.play(move |command| {
            if name_of(command) != name {
                return ProxyAction::Pass;
            }
            let mut count = counted.lock().expect("not poisoned");
            *count += 1;
            if *count == 1 { act.clone() } else { ProxyAction::Pass }
        });
        count
    }
}

/// Returns the action that gives a server the name of one without atomic updates.
pub(crate) fn as_ferretdb_1(command: &RawDocument) -> ProxyAction {
    match name_of(command) {
        "buildInfo" => ProxyAction::Answer(rawdoc! { "version": "7.0.42", "ferretdbVersion": "v1.24.2", "ok": 1 }),
        _ => ProxyAction::Pass,
    }
}

/// Returns the name of a command.
pub(crate) fn name_of(command: &RawDocument) -> &str {
    command.iter().flatten().next().map_or("", |(name, _)| name.as_str())
}

async fn forward(mut client: TcpStream, mut server: TcpStream, script: Arc<Mutex<Script>>) -> std::io::Result<()> {
    loop {
        let request = frame(&mut client).await?;
        let act = match Message::decode(&request, &Limits::default()) {
            Ok((_, Message::Msg(message))) => (script.lock().expect("not poisoned"))(message.body),
            _ => ProxyAction::Pass,
        };
        match act {
            ProxyAction::LoseRequest => return Ok(()),
            ProxyAction::Answer(body) => {
                let mut answer = Vec::new();
                let id = i32::from_le_bytes(request[4..8].try_into().expect("four bytes"));
                handfast_wire::OpMsg::new(handfast_wire::Flags::default(), &body).encode(1, id, &mut answer);
                client.write_all(&answer).await?;
                continue;
            }
            ProxyAction::Pass | ProxyAction::LoseReply | ProxyAction::KeepReply => {}
        }
        server.write_all(&request).await?;
        let reply = frame(&mut server).await?;
        match act {
            ProxyAction::LoseReply => return Ok(()),
            ProxyAction::KeepReply => std::future::pending::<()>().await,
            _ => client.write_all(&reply).await?,
        }
    }
}

/// Reads a message.
async fn frame(stream: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let mut length = [0; 4];
    stream.read_exact(&mut length).await?;
    let bytes = usize::try_from(u32::from_le_bytes(length)).expect("a length");
    let mut frame = length.to_vec();
    frame.resize(bytes, 0);
    stream.read_exact(&mut frame[4..]).await?;
    Ok(frame)
}
