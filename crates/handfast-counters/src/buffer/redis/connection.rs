//! The connection to Redis: one for all requests, made again when it was lost, and errors that say whether a request may have been applied.
//!
//! The connection manager of the crate `redis` does not tell an attempt to connect from a request that was sent; here that is the
//! difference between "not counted" and "may have been counted".

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use handfast_store::Applied;
use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ErrorKind, ProtocolVersion, PushKind, RedisError, ServerErrorKind, Value,
};

use super::health::{RedisHealth, Settings};
use super::{RedisBufferOptions, RedisScripts, url};
use crate::{Error, Kind, Result};

/// The maximum number of requests that wait to be sent; further ones wait to be queued.
const WAITING_REQUESTS_MAX: usize = 4_096;

/// A server of Redis, whether it can be reached or not.
pub(super) struct Connection {
    client: Client,
    pub(super) count: Script,
    pub(super) steps: Script,
    options: RedisBufferOptions,
    live: RwLock<Option<Live>>,
    /// Held while a connection is made; the error of the last attempt.
    attempt: tokio::sync::Mutex<Option<Error>>,
    /// The number of attempts that have ended.
    attempts: AtomicU64,
    health: RwLock<RedisHealth>,
}

/// A script that each connection has loaded.
pub(super) struct Script {
    text: String,
    hash: String,
}

/// A connection to one run of the server.
#[derive(Clone)]
pub(super) struct Live {
    connection: MultiplexedConnection,
    /// The name of the run of the server.
    pub(super) run: Arc<str>,
    /// The generation of each kind that was found to be begun in this run.
    generations: Arc<RwLock<HashMap<Kind, Arc<str>>>>,
    is_closed: Arc<AtomicBool>,
}

impl Connection {
    /// Checks a URL.
    ///
    /// # Errors
    /// [`Error::Invalid`].
    pub(super) fn new(url: &str, scripts: &RedisScripts, options: RedisBufferOptions) -> Result<Self> {
        let info = url::parse(url)?;
        // RESP3 tells at once that a connection was lost.
        let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
        let info = info.set_redis_settings(settings).set_tcp_settings(TcpSettings::default().set_nodelay(true));
        Ok(Connection {
            client: Client::open(info)
                .map_err(|error| Error::invalid(format!("the URL of Redis is invalid: {error}")))?,
            count: Script::new(&scripts.count),
            steps: Script::new(&scripts.steps),
            options,
            live: RwLock::default(),
            attempt: tokio::sync::Mutex::default(),
            attempts: AtomicU64::new(0),
            health: RwLock::default(),
        })
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
        let connected = tokio::time::timeout(self.options.connect_timeout, self.connect()).await;
        self.attempts.fetch_add(1, Ordering::SeqCst);
        let result = match connected {
            Ok(result) => {
                result.map_err(|error| unavailable(format!("it cannot be connected to: {error}"), Applied::No))
            }
            Err(_) => {
                let seconds = self.options.connect_timeout.as_secs_f64();
                Err(unavailable(format!("it cannot be connected to within {seconds} s"), Applied::No))
            }
        };
        *last = result.as_ref().err().cloned();
        let live = result?;
        *self.live.write().unwrap_or_else(PoisonError::into_inner) = Some(live.clone());
        Ok(live)
    }

    fn live(&self) -> Option<Live> {
        let live = self.live.read().unwrap_or_else(PoisonError::into_inner);
        live.as_ref().filter(|live| !live.is_closed.load(Ordering::SeqCst)).cloned()
    }

    async fn connect(&self) -> Result<Live, RedisError> {
        let is_closed = Arc::new(AtomicBool::new(false));
        let closes = Arc::clone(&is_closed);
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.options.connect_timeout))
            .set_response_timeout(Some(self.options.response_timeout))
            .set_pipeline_buffer_size(WAITING_REQUESTS_MAX)
            .set_push_sender(move |push: redis::PushInfo| {
                if push.kind == PushKind::Disconnection {
                    closes.store(true, Ordering::SeqCst);
                }
                Ok::<(), redis::aio::SendError>(())
            });
        let mut connection = self.client.get_multiplexed_async_connection_with_config(&config).await?;
        let settings = settings(&mut connection).await?;
        self.keep(settings.health());
        let missing = || RedisError::from((ErrorKind::UnexpectedReturnType, "INFO server has no run_id"));
        let run = settings.run.ok_or_else(missing)?;
        self.count.load(&mut connection).await?;
        self.steps.load(&mut connection).await?;
        Ok(Live { connection, run: run.into(), generations: Arc::default(), is_closed })
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

    /// Sends a command that changes nothing, or that may be sent twice.
    ///
    /// # Errors
    /// [`Error::Buffer`], which says that nothing was applied.
    pub(super) async fn send(&self, command: &Cmd) -> Result<Value> {
        let live = self.get().await?;
        self.send_on(&live, command).await
    }

    /// Sends a command that changes nothing, or that may be sent twice, on this connection.
    ///
    /// # Errors
    /// [`Error::Buffer`], which says that nothing was applied.
    pub(super) async fn send_on(&self, live: &Live, command: &Cmd) -> Result<Value> {
        let mut connection = live.connection.clone();
        command.query_async(&mut connection).await.map_err(|error| live.failed(&error, Applied::No))
    }

    /// Sends commands that change nothing, and returns their answers.
    ///
    /// # Errors
    /// [`Error::Buffer`], which says that nothing was applied.
    pub(super) async fn read(&self, live: &Live, pipeline: &redis::Pipeline) -> Result<Vec<Value>> {
        let mut connection = live.connection.clone();
        pipeline.query_async(&mut connection).await.map_err(|error| live.failed(&error, Applied::No))
    }

    /// Runs a script on this connection.
    ///
    /// # Errors
    /// [`Error::Buffer`]: `lost` is whether a request without an answer may have been applied.
    pub(super) async fn run(
        &self,
        live: &Live,
        script: &Script,
        keys: &[&str],
        arguments: &[&str],
        lost: Applied,
    ) -> Result<Value> {
        let mut connection = live.connection.clone();
        let command = script.command(keys, arguments);
        let answer: Result<Value, RedisError> = command.query_async(&mut connection).await;
        // The script cache is lost by SCRIPT FLUSH.
        if let Err(error) = &answer
            && error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
        {
            script.load(&mut connection).await.map_err(|error| live.failed(&error, Applied::No))?;
            return command.query_async(&mut connection).await.map_err(|error| live.failed(&error, lost));
        }
        answer.map_err(|error| live.failed(&error, lost))
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

impl Live {
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

    /// Makes an error of what a request met, and gives the connection up if it is lost or does not answer.
    fn failed(&self, error: &RedisError, lost: Applied) -> Error {
        if error.is_unrecoverable_error() || error.is_timeout() {
            self.is_closed.store(true, Ordering::SeqCst);
        }
        let applied = if was_refused(error) { Applied::No } else { lost };
        unavailable(error.to_string(), applied)
    }
}

async fn settings(connection: &mut MultiplexedConnection) -> Result<Settings, RedisError> {
    let info: String = redis::cmd("INFO").arg("server").query_async(connection).await?;
    let mut settings = Vec::new();
    // Redis 6.2 takes one pattern at a time.
    for pattern in ["append*", "maxmemory*"] {
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

/// Returns whether the server refused a request before it had any effect. A script is refused before its first write, or not at all.
fn was_refused(error: &RedisError) -> bool {
    const BEFORE: [&str; 14] = [
        "OOM",
        "READONLY",
        "MISCONF",
        "NOREPLICAS",
        "LOADING",
        "BUSY",
        "MASTERDOWN",
        "CLUSTERDOWN",
        "MOVED",
        "ASK",
        "TRYAGAIN",
        "CROSSSLOT",
        "NOAUTH",
        "NOSCRIPT",
    ];
    let Some(code) = error.code() else { return false };
    // Redis 6.2 wraps the error of a command in that of its script.
    let inside = |text: &str| BEFORE.iter().any(|code| text.contains(&format!("-{code} ")));
    BEFORE.contains(&code) || (code == "ERR" && error.detail().is_some_and(inside))
}

pub(super) fn unavailable(what: String, applied: Applied) -> Error {
    Error::Buffer { what: format!("Redis: {what}"), applied }
}

#[cfg(test)]
mod tests {
    use redis::{ErrorKind, RedisError};

    use super::was_refused;

    fn answer(text: &str) -> RedisError {
        redis::parse_redis_value(format!("-{text}\r\n").as_bytes())
            .and_then(redis::Value::extract_error)
            .expect_err("an error")
    }

    #[test]
    fn a_refusal_before_the_first_write_had_no_effect() {
        for refusal in [
            "OOM command not allowed when used memory > 'maxmemory'. script: 1, on @user_script:5.",
            "READONLY You can't write against a read only replica.",
            "MISCONF Errors writing to the AOF file: No space left on device",
            "LOADING Redis is loading the dataset in memory",
            "NOREPLICAS Not enough good replicas to write.",
            "BUSY Redis is busy running a script.",
            "NOAUTH Authentication required.",
            "ERR Error running script (call to f_1): @user_script:44: @user_script: 44: -OOM command not allowed",
        ] {
            assert!(was_refused(&answer(refusal)), "{refusal}");
        }
        for in_doubt in
            ["ERR Error running script: 44: attempt to index a nil value", "WRONGTYPE Operation against a key"]
        {
            assert!(!was_refused(&answer(in_doubt)), "{in_doubt}");
        }
        assert!(!was_refused(&RedisError::from((ErrorKind::Io, "connection reset"))));
    }
}
