//! The connection to a server of Redis: one for all requests, made again when it was lost, and errors that say whether a request may have been
//! applied.
//!
//! The connection manager of the crate `redis` does not tell an attempt to connect from a request that was sent; here that is the
//! difference between "not counted" and "may have been counted".

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use handfast_store::Applied;
use redis::aio::MultiplexedConnection;
use redis::{ErrorKind, RedisError, Value};
use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio::task::JoinHandle;

use super::circuit_breaker::CircuitBreaker;
use super::connector::Connector;
use super::failure::unavailable;
use super::health::{RedisHealth, Settings};
use super::sentinel::Sentinels;
use super::server_connection::{Scripts, ServerConnection};
use super::url::Address;
use crate::{Error, Result};

/// A server of Redis, whether it can be reached or not.
pub(super) struct Connection {
    source: Source,
    connector: Connector,
    scripts: Arc<Scripts>,
    live: RwLock<Option<ServerConnection>>,
    /// The error of the last attempt to connect. It is locked while an attempt goes on.
    last_failure: Arc<Mutex<Option<Error>>>,
    /// The number of attempts that have ended.
    ended_attempts: AtomicU64,
    breaker: Arc<CircuitBreaker>,
    health: RwLock<RedisHealth>,
}

/// The error of a request for which there is no connection.
pub(super) struct Unconnected {
    pub(super) error: Error,
    pub(super) role: ConnectRole,
}

/// The role of a request without a connection in an attempt to connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnectRole {
    /// It has waited for the end of one.
    Awaited,
    /// It has begun one, and has not waited for it.
    Begun,
    /// Nothing: another request has begun one.
    OfOthers,
}

/// The reason for which a server could not be connected to.
pub(super) struct Unreachable {
    pub(super) why: String,
    /// Whether there was no answer, and no refusal either.
    pub(super) is_silent: bool,
}

/// Which server a connection leads to.
pub(super) enum Source {
    /// The one at an address.
    Address(Address),
    /// The master that sentinels name. It is asked for again for each connection.
    Sentinels(Sentinels),
}

impl From<RedisError> for Unreachable {
    fn from(error: RedisError) -> Self {
        Unreachable { why: error.to_string(), is_silent: error.is_timeout() }
    }
}

impl From<Error> for Unconnected {
    fn from(error: Error) -> Self {
        Unconnected { error, role: ConnectRole::Awaited }
    }
}

impl From<Unconnected> for Error {
    fn from(unconnected: Unconnected) -> Self {
        unconnected.error
    }
}

impl Connection {
    pub(super) fn new(source: Source, connector: Connector, scripts: Arc<Scripts>) -> Self {
        Connection {
            source,
            connector,
            scripts,
            live: RwLock::default(),
            last_failure: Arc::default(),
            ended_attempts: AtomicU64::new(0),
            breaker: Arc::default(),
            health: RwLock::default(),
        }
    }

    /// Returns the connection, and makes one if there is none. All who wait for one attempt share its result; nobody waits for a server that did not answer the
    /// last one.
    ///
    /// # Errors
    /// [`Error::Buffer`], not applied, within the time for connecting, twice at most.
    pub(super) async fn get(self: &Arc<Self>) -> Result<ServerConnection, Unconnected> {
        if let Some(live) = self.live() {
            return Ok(live);
        }
        if self.breaker.is_open() {
            let probe = Arc::clone(&self.last_failure).try_lock_owned();
            let role = probe.map_or(ConnectRole::OfOthers, |last| {
                drop(self.begin_attempt(last));
                ConnectRole::Begun
            });
            return Err(Unconnected { error: CircuitBreaker::refusal(&self.name()), role });
        }
        let before = self.ended_attempts.load(Ordering::SeqCst);
        let last = Arc::clone(&self.last_failure).lock_owned().await;
        if let Some(live) = self.live() {
            return Ok(live);
        }
        if self.ended_attempts.load(Ordering::SeqCst) > before
            && let Some(error) = &*last
        {
            return Err(error.clone().into());
        }
        // Since it was looked at, a request may have got no answer.
        if self.breaker.is_open() {
            drop(self.begin_attempt(last));
            return Err(Unconnected { error: CircuitBreaker::refusal(&self.name()), role: ConnectRole::Begun });
        }
        let attempted = self.begin_attempt(last).await;
        attempted.unwrap_or_else(|error| Err(unavailable(error.to_string(), Applied::No))).map_err(Unconnected::from)
    }

    /// Connects in a task, as the request that needs the connection may end before.
    fn begin_attempt(
        self: &Arc<Self>,
        mut last: OwnedMutexGuard<Option<Error>>,
    ) -> JoinHandle<Result<ServerConnection>> {
        let connection = Arc::clone(self);
        tokio::spawn(async move {
            if let Some(live) = connection.live() {
                return Ok(live);
            }
            let attempted = connection.attempt().await;
            connection.ended_attempts.fetch_add(1, Ordering::SeqCst);
            *last = attempted.as_ref().err().cloned();
            attempted
        })
    }

    async fn attempt(&self) -> Result<ServerConnection> {
        let timeout = self.connector.connect_timeout;
        let connected = tokio::time::timeout(timeout, self.connect()).await.unwrap_or_else(|_| {
            Err(Unreachable { why: format!("no answer within {} s", timeout.as_secs_f64()), is_silent: true })
        });
        let server = self.name();
        match connected {
            Ok(live) => {
                // The breaker first: from now on, no request on an earlier connection opens it.
                let live = live.numbered(self.breaker.close(&server));
                *self.live.write().unwrap_or_else(PoisonError::into_inner) = Some(live.clone());
                Ok(live)
            }
            Err(Unreachable { why, is_silent }) => {
                if is_silent {
                    self.breaker.open(&server);
                } else {
                    self.breaker.close_refused();
                }
                Err(unavailable(format!("{server} cannot be connected to: {why}"), Applied::No))
            }
        }
    }

    /// Returns the name of the server in messages.
    fn name(&self) -> String {
        match &self.source {
            Source::Address(address) => address.to_string(),
            Source::Sentinels(_) => "the master".to_owned(),
        }
    }

    /// Returns the connection if there is one.
    pub(super) fn live(&self) -> Option<ServerConnection> {
        let live = self.live.read().unwrap_or_else(PoisonError::into_inner);
        live.as_ref().filter(|live| !live.is_closed()).cloned()
    }

    async fn connect(&self) -> Result<ServerConnection, Unreachable> {
        let sentinels = match &self.source {
            Source::Address(address) => return self.connect_to(address).await.map_err(Unreachable::from),
            Source::Sentinels(sentinels) => sentinels,
        };
        let (mut problems, mut is_silent) = (Vec::new(), false);
        for address in sentinels.masters().await? {
            match self.connect_to(&address).await {
                Ok(live) => return Ok(live),
                Err(error) => {
                    problems.push(format!("{address}, which sentinels name: {error}"));
                    is_silent |= error.is_timeout();
                }
            }
        }
        Err(Unreachable { why: problems.join("; "), is_silent })
    }

    async fn connect_to(&self, address: &Address) -> Result<ServerConnection, RedisError> {
        let is_closed = Arc::new(AtomicBool::new(false));
        let mut connection = self.connector.open_watched(address, &is_closed).await?;
        if matches!(self.source, Source::Sentinels(_)) && !is_master(&mut connection).await? {
            return Err(RedisError::from((ErrorKind::Client, "the server is no master any more")));
        }
        let settings = settings(&mut connection).await?;
        self.keep(settings.health());
        self.scripts.count.load(&mut connection).await?;
        self.scripts.steps.load(&mut connection).await?;
        let run = settings.run().ok_or_else(no_run)?.into();
        let (address, stall_timeout) = (Arc::new(address.clone()), self.connector.stall_timeout);
        Ok(ServerConnection::new(connection, address, run, is_closed, stall_timeout, Arc::clone(&self.breaker)))
    }

    /// Logs each warning when it appears.
    fn keep(&self, health: RedisHealth) {
        let mut last = self.health.write().unwrap_or_else(PoisonError::into_inner);
        for warning in health.warnings.iter().filter(|warning| !last.warnings.contains(warning)) {
            tracing::warn!(warning, "views may be lost");
        }
        *last = health;
    }

    /// Returns the health as of the last look.
    pub(super) fn last_health(&self) -> RedisHealth {
        self.health.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Asks the server for its settings.
    ///
    /// # Errors
    /// [`Error::Buffer`] if it cannot be reached.
    pub(super) async fn health(self: &Arc<Self>) -> Result<RedisHealth> {
        self.keep(self.get().await?.settings().await?.health());
        Ok(self.last_health())
    }
}

/// Asks a server whether it is a master.
async fn is_master(connection: &mut MultiplexedConnection) -> Result<bool, RedisError> {
    let role: Vec<Value> = redis::cmd("ROLE").query_async(connection).await?;
    Ok(role.first().and_then(super::text) == Some("master"))
}

/// Asks a server for its run.
pub(super) async fn run(connection: &mut MultiplexedConnection) -> Result<String, RedisError> {
    Settings::new(&info(connection).await?, None).run().ok_or_else(no_run)
}

fn no_run() -> RedisError {
    RedisError::from((ErrorKind::UnexpectedReturnType, "INFO server has no run_id"))
}

/// Asks a server for the two parts of `INFO` that are needed; Redis 6.2 takes one at a time.
async fn info(connection: &mut MultiplexedConnection) -> Result<String, RedisError> {
    let mut pipeline = redis::pipe();
    pipeline.cmd("INFO").arg("server").cmd("INFO").arg("replication");
    let (server, replication): (String, String) = pipeline.query_async(connection).await?;
    Ok(server + &replication)
}

/// Asks a server for its settings.
pub(super) async fn settings(connection: &mut MultiplexedConnection) -> Result<Settings, RedisError> {
    let info = info(connection).await?;
    let mut settings = Vec::new();
    // Redis 6.2 takes one pattern at a time.
    for pattern in ["append*", "maxmemory*", "min-replicas*"] {
        let found: Result<Vec<(String, String)>, RedisError> =
            redis::cmd("CONFIG").arg("GET").arg(pattern).query_async(connection).await;
        match found {
            Ok(found) => settings.extend(found),
            Err(error) if error.is_unrecoverable_error() || error.is_timeout() => return Err(error),
            Err(_) => return Ok(Settings::new(&info, None)),
        }
    }
    Ok(Settings::new(&info, Some(settings)))
}
