//! Accepts connections, forwards messages, and injects the faults that the rules decide on.
//!
//! ```text
//! driver            proxy                 server
//!   | -- request --> | decide              |
//!   |                |  forward       -->  | -- reply --> proxy -- reply --> driver
//!   |                |  lose-request       |   both connections are closed
//!   |                |  lose-reply    -->  | -- reply --> proxy    both connections are closed
//!   |                |  cut           -->  | -- reply --> proxy -- half of it --> driver    both connections are closed
//!   |                |  delay ..      -->  | -- reply --> proxy -- reply --> driver
//!   |                |  error              |             proxy -- error reply --> driver
//!   |                |  duplicate     -->  | -- reply --> proxy -- reply --> driver
//!   |                |  .. later, on another connection -->  | -- reply --> proxy
//!   |                |  half-open     -->  | -- reply --> proxy    both connections stay open, and are silent
//!   |                |  throttle      -->  | -- reply --> proxy -- reply --> driver    one of the messages takes its time
//!   |                |  reorder .. until a request of another connection was answered -->  | -- reply --> proxy -- reply --> driver
//! ```
//!
//! Each connection of a driver has one to the server. A message is in memory as a whole, at most one for each direction of a connection;
//! and so are the requests that are sent once more later, within a limit.

mod hold;
mod late;
mod plan;
mod recorder;
mod relay;
pub(crate) mod stream;
mod throttle;
mod warning;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use handfast_wire::Limits;
use rustls::ServerConfig;
use tokio::net::TcpListener;
use tokio::sync::Notify;

use self::hold::{HeldRequest, Holds, Overtaking};
use self::late::{LateRequest, LateRequests};
use self::recorder::Recorder;
use self::stream::Acceptor;
use crate::accept::accept;
use crate::recording::RecordedMessage;
use crate::rules::Observation;
use crate::{Decision, Error, Fault, ObservedOperation, Operation, Result, Rules};

pub use self::late::UndeliveredRequest;
pub use self::stream::Upstream;
pub use self::warning::Warning;
pub(crate) use self::warning::Warnings;

/// The number of open connections, each with two sockets. Further ones wait until one is closed.
pub const CONNECTIONS_MAX: usize = 10_000;

/// The memory of a connection without TLS that waits for the next message: a buffer of 8 KiB for each direction, the task and its state. With 10,000
/// connections that is 320 MB.
pub const IDLE_CONNECTION_BYTES_MAX: usize = 32 * 1024;

/// The time between an error that says that the state of the server has changed and the end of the connections that monitor it: drivers
/// read the error first then, and ask for the state afterwards.
const STATE_CHANGE_PAUSE: Duration = Duration::from_millis(50);

/// A proxy with a bound address, which does not accept connections yet.
pub struct Proxy {
    listener: TcpListener,
    address: SocketAddr,
    connections_max: usize,
    acceptor: Acceptor,
    shared: Arc<Shared>,
}

/// A function that is called with each operation, in the order of the decisions.
type Log = Box<dyn FnMut(&ObservedOperation) + Send>;

struct Shared {
    server: Upstream,
    rules: Mutex<LoggedRules>,
    limits: Limits,
    late: Arc<LateRequests>,
    recorder: Recorder,
    warnings: Warnings,
    /// All connections so far.
    connection_count: AtomicU64,
    /// Wakes the connections by which drivers monitor the server.
    state_change: Notify,
    state_change_pause: Duration,
}

struct LoggedRules {
    rules: Rules,
    log: Option<Log>,
    holds: Holds,
}

/// The decision about an operation.
struct Decided {
    decision: Decision,
    /// The late request, if the server gets one later because of the fault.
    late: Option<LateRequest>,
    /// The request that is held back, with [`Fault::Reorder`].
    held: Option<HeldRequest>,
    /// The requests that are held back until this one is answered.
    overtaking: Option<Overtaking>,
}

impl Shared {
    fn rules(&self) -> MutexGuard<'_, LoggedRules> {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn decide(self: &Arc<Self>, operation: &Operation<'_>) -> Decided {
        let LoggedRules { rules, log, holds } = &mut *self.rules();
        let Observation { decision, operation, overtakes } = rules.observe(operation);
        let is_late = |operation: &&ObservedOperation| {
            matches!(operation.fault, Some(Fault::Delay | Fault::Duplicate | Fault::Reorder))
        };
        // Begun before the operation is in the log: what the log shows is late or was answered.
        let late = operation.as_ref().filter(is_late).map(|operation| self.late.begin(operation));
        if let (Some(log), Some(operation)) = (log, &operation) {
            log(operation);
        }
        let overtaking = (!overtakes.is_empty()).then(|| holds.overtake(&overtakes));
        let holding = operation.filter(|operation| operation.fault == Some(Fault::Reorder));
        let held = holding.and_then(|operation| operation.rule).map(|rule| holds.begin(rule, self));
        Decided { decision, late, held, overtaking }
    }
}

/// Shows the operations that arrived at a proxy, and delivers what is late.
#[derive(Clone)]
pub struct Handle(Arc<Shared>);

impl Handle {
    /// Returns the operations so far, the first [`OPERATIONS_MAX`](crate::rules::OPERATIONS_MAX) of them.
    pub fn operations(&self) -> Vec<ObservedOperation> {
        self.0.rules().rules.operations().to_vec()
    }

    /// Returns the number of all operations so far.
    pub fn operation_count(&self) -> u64 {
        self.0.rules().rules.operation_count()
    }

    /// Returns the number of operations that met a fault.
    pub fn fault_count(&self) -> u64 {
        self.0.rules().rules.fault_count()
    }

    /// Sends the delayed requests and the copies of requests to the server at once, and waits until it has answered them. From then on no
    /// request is late.
    pub async fn deliver_late(&self) {
        self.0.late.deliver().await;
    }

    /// Returns the number of requests that are late, and of those that the server did not answer, because it did not get them or its
    /// connection has ended.
    pub fn undelivered_count(&self) -> u64 {
        self.0.late.undelivered()
    }
}

impl Proxy {
    /// Binds an address in front of a server, `host:port`. Port 0 takes a free one.
    ///
    /// # Errors
    /// Fails if the address is in use or not allowed.
    pub async fn bind(listen: SocketAddr, server: impl Into<Upstream>, rules: Rules) -> Result<Self> {
        let failed = |source| Error::Listen { address: listen, source };
        let listener = TcpListener::bind(listen).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let shared = Shared {
            server: server.into(),
            rules: Mutex::new(LoggedRules { rules, log: None, holds: Holds::default() }),
            limits: Limits::default(),
            late: Arc::default(),
            recorder: Recorder::default(),
            warnings: Warnings::default(),
            connection_count: AtomicU64::new(0),
            state_change: Notify::new(),
            state_change_pause: STATE_CHANGE_PAUSE,
        };
        Ok(Proxy {
            listener,
            address,
            connections_max: CONNECTIONS_MAX,
            acceptor: Acceptor::default(),
            shared: Arc::new(shared),
        })
    }

    /// Returns the address at which it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Calls a function with each operation when the rules have decided about it. Messages wait for it.
    #[must_use]
    pub fn with_log(self, log: impl FnMut(&ObservedOperation) + Send + 'static) -> Self {
        self.shared.rules().log = Some(Box::new(log));
        self
    }

    /// Calls a function with each request that its fault sends later, and that the server does not answer.
    #[must_use]
    pub fn with_undelivered_log(self, log: impl FnMut(&UndeliveredRequest) + Send + 'static) -> Self {
        self.shared.late.set_log(Box::new(log));
        self
    }

    /// Calls a function with each request and reply of the application, and with the reply to the first handshake. Messages wait for it.
    #[must_use]
    pub fn with_recorder(self, write: impl FnMut(&RecordedMessage) + Send + 'static) -> Self {
        self.shared.recorder.begin(Box::new(write));
        self
    }

    /// Calls a function with each warning, once. Messages wait for it.
    #[must_use]
    pub fn with_warnings(self, write: impl FnMut(Warning) + Send + 'static) -> Self {
        self.shared.warnings.begin(Box::new(write));
        self
    }

    /// Takes connections with TLS alone.
    #[must_use]
    pub fn with_tls(self, config: Arc<ServerConfig>) -> Self {
        Proxy { acceptor: Acceptor::with_tls(config), ..self }
    }

    /// Returns a handle of the proxy, which can be used while it runs.
    pub fn handle(&self) -> Handle {
        Handle(Arc::clone(&self.shared))
    }

    /// Forwards messages.
    ///
    /// # Cancellation
    /// Dropping it closes all connections.
    pub async fn run(self) -> Infallible {
        let Proxy { listener, connections_max, acceptor, shared, .. } = self;
        accept(listener, connections_max, |client| relay::serve(client, acceptor.clone(), Arc::clone(&shared))).await
    }
}

#[cfg(test)]
mod tests;
