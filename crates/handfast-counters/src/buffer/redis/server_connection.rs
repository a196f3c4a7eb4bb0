//! A connection to one run of a server, and the requests that it sends.

use std::collections::HashMap;
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use handfast_store::Applied;
use redis::aio::MultiplexedConnection;
use redis::{Cmd, ErrorKind, RedisError, ServerErrorKind, Value};

use super::RedisScripts;
use super::circuit_breaker::{CircuitBreaker, ConnectionNumber};
use super::connection::{run, settings};
use super::failure::{Failure, Remedy};
use super::health::Settings;
use super::url::Address;
use crate::Kind;

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
pub(super) struct ServerConnection {
    pub(super) connection: MultiplexedConnection,
    /// The address of the server.
    pub(super) address: Arc<Address>,
    /// The name of the run of the server ([`Settings::run`](super::health::Settings::run)).
    pub(super) run: Arc<str>,
    /// The generation of each kind that was found to be begun in this run.
    generations: Arc<RwLock<HashMap<Kind, Arc<str>>>>,
    is_closed: Arc<AtomicBool>,
    /// The time after which the server is taken for stopped.
    stall_timeout: Duration,
    breaker: Arc<CircuitBreaker>,
    number: ConnectionNumber,
}

impl Script {
    fn new(text: &str) -> Self {
        Script { text: text.to_owned(), hash: redis::Script::new(text).get_hash().to_owned() }
    }

    pub(super) async fn load(&self, connection: &mut MultiplexedConnection) -> Result<(), RedisError> {
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

impl ServerConnection {
    pub(super) fn new(
        connection: MultiplexedConnection,
        address: Arc<Address>,
        run: Arc<str>,
        is_closed: Arc<AtomicBool>,
        stall_timeout: Duration,
        breaker: Arc<CircuitBreaker>,
    ) -> Self {
        let (generations, number) = Default::default();
        ServerConnection { connection, address, run, generations, is_closed, stall_timeout, breaker, number }
    }

    /// Returns the connection with its number, by which the breaker knows it.
    pub(super) fn numbered(self, number: ConnectionNumber) -> Self {
        ServerConnection { number, ..self }
    }

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
        self.request(Applied::No, command.query_async(&mut connection)).await
    }

    /// Sends commands that change nothing, and returns their answers.
    ///
    /// # Errors
    /// A failure of a request that was not applied.
    pub(super) async fn read(&self, pipeline: &redis::Pipeline) -> Result<Vec<Value>, Failure> {
        let mut connection = self.connection.clone();
        self.request(Applied::No, pipeline.query_async(&mut connection)).await
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
        match self.answer(lost, command.query_async(&mut connection)).await {
            // The script cache is lost by SCRIPT FLUSH.
            Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                self.request(Applied::No, script.load(&mut connection)).await?;
                self.request(lost, command.query_async(&mut connection)).await
            }
            answer => answer.map_err(|error| self.failed(&error, lost)),
        }
    }

    /// Asks the server for its run, and gives the connection up if that is another one than before: it was a replica meanwhile, or got its first
    /// replica. Returns whether the run is the same.
    pub(super) async fn has_same_run(&self) -> Result<bool, Failure> {
        let mut connection = self.connection.clone();
        let run = self.request(Applied::No, run(&mut connection)).await?;
        let is_same = run == *self.run;
        if !is_same {
            self.is_closed.store(true, Ordering::SeqCst);
        }
        Ok(is_same)
    }

    /// Asks the server for its settings.
    ///
    /// # Errors
    /// A failure of a request that was not applied.
    pub(super) async fn settings(&self) -> Result<Settings, Failure> {
        let mut connection = self.connection.clone();
        self.request(Applied::No, settings(&mut connection)).await
    }

    /// Sends a request: `lost` is whether it may have been applied if it gets no answer.
    async fn request<T>(
        &self,
        lost: Applied,
        request: impl Future<Output = Result<T, RedisError>>,
    ) -> Result<T, Failure> {
        self.answer(lost, request).await.map_err(|error| self.failed(&error, lost))
    }

    /// Waits for an answer. If there is none for a while, the server is taken for stopped, and the connection is given up: no other request waits for it. This
    /// one does if it may have been applied.
    async fn answer<T>(
        &self,
        lost: Applied,
        request: impl Future<Output = Result<T, RedisError>>,
    ) -> Result<T, RedisError> {
        let mut request = pin!(request);
        if let Ok(answer) = tokio::time::timeout(self.stall_timeout, request.as_mut()).await {
            return answer;
        }
        // In this order, so that no request finds neither a connection nor an open breaker.
        self.breaker.open_by(self.number, &self.address.to_string());
        self.is_closed.store(true, Ordering::SeqCst);
        match lost {
            Applied::Maybe => request.await,
            Applied::No => {
                let late = format!("no answer within {} s", self.stall_timeout.as_secs_f64());
                Err(std::io::Error::new(std::io::ErrorKind::TimedOut, late).into())
            }
        }
    }

    /// Makes a failure of what a request met, and gives the connection up if it is lost, does not answer, or leads to a server that is no master any
    /// more: its name, or its sentinels, may lead to another one.
    pub(super) fn failed(&self, error: &RedisError, lost: Applied) -> Failure {
        let failure = Failure::new(error, lost);
        if error.is_unrecoverable_error() || error.is_timeout() || failure.remedy == Remedy::Reconnect {
            self.is_closed.store(true, Ordering::SeqCst);
        }
        failure
    }
}
