//! A scripted server that is alone.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use handfast_wire::Limits;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::connection::{CONNECTIONS_MAX, Shared, serve};
use super::identity::Identity;
use super::shared::{Autoresponder, SharedScript};
use super::{Answer, Matcher, ReceivedRequest, Role, Script};
use crate::accept::accept;
use crate::{Error, Result};

/// A server on a free port of 127.0.0.1 that follows a script. It ends when this is dropped.
#[must_use = "finish() says whether the script was followed"]
pub struct ScriptedServer {
    address: SocketAddr,
    script: SharedScript,
    _task: Task,
}

impl ScriptedServer {
    /// Starts a server on the runtime of the caller.
    ///
    /// # Errors
    /// The system has no free port; the script names members or elections, which only a [`ScriptedReplicaSet`](super::ScriptedReplicaSet) has; or an
    /// [`Answer::Exhaust`] is empty.
    pub async fn start(role: Role, script: Script) -> Result<Self> {
        script.check(0)?;
        let (listener, address) = bind().await?;
        let script = SharedScript::new(script);
        let identity = Identity::Single { role, address: address.to_string() };
        let task = Task::start(listener, identity, script.clone());
        Ok(ScriptedServer { address, script, _task: task })
    }

    /// Returns the address of the server.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the connection string of the server.
    pub fn uri(&self) -> String {
        format!("mongodb://{}/", self.address)
    }

    /// Answers each request that matches and meets no expectation, however often it arrives, from now on. Such requests are no part of the script.
    /// If several autoresponders match, the one that was added last answers. An election in the answer does nothing.
    pub fn autorespond(&self, matcher: Matcher, answer: impl Into<Answer>) -> Autoresponder {
        self.script.autorespond(matcher, answer.into())
    }

    /// Ends the server. Returns the requests that arrived, without those that were answered without the script.
    ///
    /// # Errors
    /// [`Error::Script`] with the script and the requests, if a request was not expected or did not arrive.
    pub fn finish(self) -> Result<Vec<ReceivedRequest>> {
        self.script.finish()
    }
}

/// Binds a free port of 127.0.0.1.
pub(super) async fn bind() -> Result<(TcpListener, SocketAddr)> {
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let failed = |source| Error::Listen { address: any, source };
    let listener = TcpListener::bind(any).await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    Ok((listener, address))
}

/// The task that accepts and serves the connections of a server. It ends when this is dropped.
pub(super) struct Task(JoinHandle<()>);

impl Task {
    pub(super) fn start(listener: TcpListener, identity: Identity, script: SharedScript) -> Self {
        let shared = Arc::new(Shared { identity, script, limits: Limits::default() });
        let serving = accept(listener, CONNECTIONS_MAX, move |client| serve(client, Arc::clone(&shared)));
        Task(tokio::spawn(async { match serving.await {} }))
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}
