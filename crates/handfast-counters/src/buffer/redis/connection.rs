//! The connection to a server of Redis: one for all requests, made again when it was lost, and errors that say whether a request may have been
//! applied.
//!
//! The connection manager of the crate `redis` does not tell an attempt to connect from a request that was sent; here that is the
//! difference between "not counted" and "may have been counted".

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use handfast_store::Applied;
use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, ErrorKind, IntoConnectionInfo as _, ProtocolVersion, PushKind,
    RedisConnectionInfo, RedisError, ServerErrorKind, TlsCertificates, Value,
};

use super::failure::{Failure, Remedy, unavailable};
use super::health::{RedisHealth, Settings};
use super::sentinel::Sentinels;
use super::url::{Address, Login};
use super::{RedisBufferOptions, RedisScripts};
use crate::{Error, Kind, Result};

/// The maximum number of requests that wait to be sent; further ones wait to be queued.
const WAITING_REQUESTS_MAX: usize = 4_096;

/// The login, the encryption and the times of connections.
#[derive(Clone)]
pub(super) struct Connector {
    settings: RedisConnectionInfo,
    /// `None` for connections that are not encrypted.
    certificates: Option<TlsCertificates>,
    connect_timeout: Duration,
    response_timeout: Duration,
}

/// A server of Redis, whether it can be reached or not.
pub(super) struct Connection {
    source: Source,
    connector: Connector,
    scripts: Arc<Scripts>,
    live: RwLock<Option<Live>>,
    /// Held while a connection is made; the error of the last attempt.
    attempt: tokio::sync::Mutex<Option<Error>>,
    /// The number of attempts that have ended.
    attempts: AtomicU64,
    health: RwLock<RedisHealth>,
}

/// Which server a connection leads to.
pub(super) enum Source {
    /// The one at an address.
    Address(Address),
    /// The master that sentinels name. It is asked for again for each connection.
    Sentinels(Sentinels),
}

/// The scripts that each connection has loaded.
pub(super) struct Scripts {
    pub(super) count: Script,
    pub(super) steps: Script,
}

/// A script that each connection has loaded.
pub(super) struct Script {
    text: String,
    hash: String,
}

/// A connection to one run of the server.
#[derive(Clone)]
pub(super) struct Live {
    pub(super) connection: MultiplexedConnection,
    /// The address of the server.
    pub(super) address: Arc<Address>,
    /// The name of the run of the server ([`Settings::run`]).
    pub(super) run: Arc<str>,
    /// The generation of each kind that was found to be begun in this run.
    generations: Arc<RwLock<HashMap<Kind, Arc<str>>>>,
    is_closed: Arc<AtomicBool>,
}

impl Connector {
    /// # Errors
    /// [`Error::Invalid`] for certificates that cannot be read.
    pub(super) fn new(
        login: &Login,
        database: i64,
        certificates: Option<TlsCertificates>,
        options: RedisBufferOptions,
    ) -> Result<Self> {
        let mut settings = RedisConnectionInfo::default().set_db(database).set_skip_set_lib_name();
        if let Some(user) = &login.user {
            settings = settings.set_username(user);
        }
        if let Some(password) = &login.password {
            settings = settings.set_password(password);
        }
        let RedisBufferOptions { connect_timeout, response_timeout, .. } = options;
        let connector = Connector { settings, certificates, connect_timeout, response_timeout };
        // Any address: the certificates are read.
        connector
            .client(&Address { host: "localhost".to_owned(), port: 1 }, ProtocolVersion::RESP2)
            .map_err(|error| Error::invalid(format!("the URL of Redis: {error}")))?;
        Ok(connector)
    }

    fn client(&self, address: &Address, protocol: ProtocolVersion) -> Result<Client, RedisError> {
        let (host, port) = (address.host.clone(), address.port);
        let address = match self.certificates {
            None => ConnectionAddr::Tcp(host, port),
            Some(_) => ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None },
        };
        let info = address
            .into_connection_info()?
            .set_redis_settings(self.settings.clone().set_protocol(protocol))
            .set_tcp_settings(TcpSettings::default().set_nodelay(true));
        match &self.certificates {
            None => Client::open(info),
            Some(certificates) => Client::build_with_tls(info, certificates.clone()),
        }
    }

    fn config(&self) -> AsyncConnectionConfig {
        AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.connect_timeout))
            .set_response_timeout(Some(self.response_timeout))
    }

    /// Connects for a few questions, also to a sentinel, which does not know RESP3 in old versions.
    pub(super) async fn open(&self, address: &Address) -> Result<MultiplexedConnection, RedisError> {
        let client = self.client(address, ProtocolVersion::RESP2)?;
        client.get_multiplexed_async_connection_with_config(&self.config()).await
    }

    /// Connects for all requests. `is_closed` is set when the connection is lost, which RESP3 tells at once.
    async fn open_watched(
        &self,
        address: &Address,
        is_closed: &Arc<AtomicBool>,
    ) -> Result<MultiplexedConnection, RedisError> {
        let closes = Arc::clone(is_closed);
        let config = self.config().set_pipeline_buffer_size(WAITING_REQUESTS_MAX).set_push_sender(
            move |push: redis::PushInfo| {
                if push.kind == PushKind::Disconnection {
                    closes.store(true, Ordering::SeqCst);
                }
                Ok::<(), redis::aio::SendError>(())
            },
        );
        self.client(address, ProtocolVersion::RESP3)?.get_multiplexed_async_connection_with_config(&config).await
    }
}

impl Connection {
    pub(super) fn new(source: Source, connector: Connector, scripts: Arc<Scripts>) -> Self {
        Connection {
            source,
            connector,
            scripts,
            live: RwLock::default(),
            attempt: tokio::sync::Mutex::default(),
            attempts: AtomicU64::new(0),
            health: RwLock::default(),
        }
    }

    /// Returns the connection, and makes one if there is none. All who wait for one attempt share its result.
    ///
    /// # Errors
    /// [`Error::Buffer`], not applied, within the time for connecting, twice at most.
    pub(super) async fn get(&self) -> Result<Live> {
        if let Some(live) = self.live() {
            return Ok(live);
        }
        let before = self.attempts.load(Ordering::SeqCst);
        let mut last = self.attempt.lock().await;
        if let Some(live) = self.live() {
            return Ok(live);
        }
        if self.attempts.load(Ordering::SeqCst) > before
            && let Some(error) = &*last
        {
            return Err(error.clone());
        }
        let timeout = self.connector.connect_timeout;
        let connected = tokio::time::timeout(timeout, self.connect()).await;
        self.attempts.fetch_add(1, Ordering::SeqCst);
        let result = match connected {
            Ok(result) => result.map_err(|why| self.unreachable(&format!(": {why}"))),
            Err(_) => Err(self.unreachable(&format!(" within {} s", timeout.as_secs_f64()))),
        };
        *last = result.as_ref().err().cloned();
        let live = result?;
        *self.live.write().unwrap_or_else(PoisonError::into_inner) = Some(live.clone());
        Ok(live)
    }

    /// Makes the error of an attempt to connect.
    fn unreachable(&self, why: &str) -> Error {
        let what = match &self.source {
            Source::Address(address) => format!("{address} cannot be connected to{why}"),
            Source::Sentinels(_) => format!("the master cannot be connected to{why}"),
        };
        unavailable(what, Applied::No)
    }

    /// Returns the connection if there is one.
    pub(super) fn live(&self) -> Option<Live> {
        let live = self.live.read().unwrap_or_else(PoisonError::into_inner);
        live.as_ref().filter(|live| !live.is_closed()).cloned()
    }

    async fn connect(&self) -> Result<Live, String> {
        let sentinels = match &self.source {
            Source::Address(address) => return self.connect_to(address).await.map_err(|error| error.to_string()),
            Source::Sentinels(sentinels) => sentinels,
        };
        let mut problems = Vec::new();
        for address in sentinels.masters().await? {
            match self.connect_to(&address).await {
                Ok(live) => return Ok(live),
                Err(error) => problems.push(format!("{address}, which sentinels name: {error}")),
            }
        }
        Err(problems.join("; "))
    }

    async fn connect_to(&self, address: &Address) -> Result<Live, RedisError> {
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
        let address = Arc::new(address.clone());
        Ok(Live { connection, address, run, generations: Arc::default(), is_closed })
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
    pub(super) async fn health(&self) -> Result<RedisHealth> {
        let mut live = self.get().await?;
        let settings = settings(&mut live.connection).await.map_err(|error| live.failed(&error, Applied::No))?;
        self.keep(settings.health());
        Ok(self.last_health())
    }
}

impl Script {
    fn new(text: &str) -> Self {
        Script { text: text.to_owned(), hash: redis::Script::new(text).get_hash().to_owned() }
    }

    async fn load(&self, connection: &mut MultiplexedConnection) -> Result<(), RedisError> {
        redis::cmd("SCRIPT").arg("LOAD").arg(&self.text).exec_async(connection).await
    }

    fn command(&self, keys: &[&str], arguments: &[&str]) -> Cmd {
        let mut command = redis::cmd("EVALSHA");
        command.arg(&self.hash).arg(keys.len()).arg(keys).arg(arguments);
        command
    }
}

impl Scripts {
    pub(super) fn new(scripts: &RedisScripts) -> Self {
        Scripts { count: Script::new(&scripts.count), steps: Script::new(&scripts.steps) }
    }
}

impl Live {
    /// Returns whether the connection was given up.
    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::SeqCst)
    }

    /// Returns the generation of a kind as it was found on this connection.
    pub(super) fn generation(&self, kind: &Kind) -> Option<Arc<str>> {
        self.generations.read().unwrap_or_else(PoisonError::into_inner).get(kind).cloned()
    }

    /// Keeps the generation of a kind, of which the state names the run of this connection; `None` if it is another one than was thought.
    pub(super) fn keep_generation(&self, kind: &Kind, generation: Option<&str>) {
        let mut generations = self.generations.write().unwrap_or_else(PoisonError::into_inner);
        match generation {
            Some(generation) => drop(generations.insert(kind.clone(), generation.into())),
            None => drop(generations.remove(kind)),
        }
    }

    /// Sends a command that changes nothing, or that may be sent twice.
    ///
    /// # Errors
    /// A failure of a request that was not applied.
    pub(super) async fn send(&self, command: &Cmd) -> Result<Value, Failure> {
        let mut connection = self.connection.clone();
        command.query_async(&mut connection).await.map_err(|error| self.failed(&error, Applied::No))
    }

    /// Sends commands that change nothing, and returns their answers.
    ///
    /// # Errors
    /// A failure of a request that was not applied.
    pub(super) async fn read(&self, pipeline: &redis::Pipeline) -> Result<Vec<Value>, Failure> {
        let mut connection = self.connection.clone();
        pipeline.query_async(&mut connection).await.map_err(|error| self.failed(&error, Applied::No))
    }

    /// Runs a script on this connection.
    ///
    /// # Errors
    /// A failure: `lost` is whether a request without an answer may have been applied.
    pub(super) async fn run(
        &self,
        script: &Script,
        keys: &[&str],
        arguments: &[&str],
        lost: Applied,
    ) -> Result<Value, Failure> {
        let mut connection = self.connection.clone();
        let command = script.command(keys, arguments);
        let answer: Result<Value, RedisError> = command.query_async(&mut connection).await;
        // The script cache is lost by SCRIPT FLUSH.
        if let Err(error) = &answer
            && error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
        {
            script.load(&mut connection).await.map_err(|error| self.failed(&error, Applied::No))?;
            return command.query_async(&mut connection).await.map_err(|error| self.failed(&error, lost));
        }
        answer.map_err(|error| self.failed(&error, lost))
    }

    /// Asks the server for its run, and gives the connection up if that is another one than before: it was a replica meanwhile, or got its first
    /// replica. Returns whether the run is the same.
    pub(super) async fn has_same_run(&self) -> Result<bool, Failure> {
        let mut connection = self.connection.clone();
        let run = run(&mut connection).await.map_err(|error| self.failed(&error, Applied::No))?;
        let is_same = run == *self.run;
        if !is_same {
            self.is_closed.store(true, Ordering::SeqCst);
        }
        Ok(is_same)
    }

    /// Makes a failure of what a request met, and gives the connection up if it is lost, does not answer, or leads to a server that is no master any
    /// more: its name, or its sentinels, may lead to another one.
    fn failed(&self, error: &RedisError, lost: Applied) -> Failure {
        let failure = Failure::new(error, lost);
        if error.is_unrecoverable_error() || error.is_timeout() || failure.remedy == Remedy::Reconnect {
            self.is_closed.store(true, Ordering::SeqCst);
        }
        failure
    }
}

/// Asks a server whether it is a master.
async fn is_master(connection: &mut MultiplexedConnection) -> Result<bool, RedisError> {
    let role: Vec<Value> = redis::cmd("ROLE").query_async(connection).await?;
    Ok(role.first().and_then(super::text) == Some("master"))
}

/// Asks a server for its run.
async fn run(connection: &mut MultiplexedConnection) -> Result<String, RedisError> {
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

async fn settings(connection: &mut MultiplexedConnection) -> Result<Settings, RedisError> {
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
