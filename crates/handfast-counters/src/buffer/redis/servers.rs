//! The servers that a URL leads to, and what happens before a request is sent again that was refused.

use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Value};

use super::cluster::Cluster;
use super::connection::{Connection, Source};
use super::connector::Connector;
use super::failure::{Failure, Remedy};
use super::health::RedisHealth;
use super::sentinel::Sentinels;
use super::server_connection::{Scripts, ServerConnection};
use super::url::{Target, Topology};
use super::{RedisBufferOptions, RedisScripts, tls, url};
use crate::{Error, Result};

/// How often a request is sent again because its kind had to be begun, or because another server has its key: that changes once, but hardly again.
const ATTEMPTS: usize = 5;
/// The time between two attempts while a slot is moved.
const MOVE_POLL: Duration = Duration::from_millis(20);

/// The servers of a URL.
pub(super) struct Servers {
    topology: Connections,
    pub(super) scripts: Arc<Scripts>,
    response_timeout: Duration,
}

enum Connections {
    /// One server at a time: that of an address, or the master that sentinels name.
    One(Arc<Connection>),
    /// Each key has its server.
    Cluster(Arc<Cluster>),
}

/// How often a request was sent.
#[derive(Default)]
pub(super) struct Attempts {
    number: usize,
    waited: Duration,
}

impl Attempts {
    /// Counts an attempt that has to be repeated.
    ///
    /// # Errors
    /// `error` after too many.
    pub(super) fn next(&mut self, error: impl FnOnce() -> Error) -> Result<()> {
        self.number += 1;
        if self.number < ATTEMPTS { Ok(()) } else { Err(error()) }
    }
}

impl Servers {
    /// Checks a URL and reads its certificates. Nothing is connected to.
    ///
    /// # Errors
    /// [`Error::Invalid`].
    pub(super) fn new(url: &str, scripts: &RedisScripts, options: RedisBufferOptions) -> Result<Self> {
        let Target { topology, addresses, login, database, tls: files } = url::parse(url)?;
        let certificates = files.map(|files| tls::read(&files)).transpose()?;
        let scripts = Arc::new(Scripts::new(scripts));
        let connector = Connector::new(&login, database, certificates.clone(), options)?;
        let one = |source| Connections::One(Arc::new(Connection::new(source, connector.clone(), Arc::clone(&scripts))));
        let topology = match topology {
            Topology::One => match addresses.into_iter().next() {
                Some(address) => one(Source::Address(address)),
                None => return Err(Error::invalid("the URL of Redis names no host")),
            },
            Topology::Sentinel { master, login } => {
                // Half of the time is for connecting to the master.
                let timeout = options.connect_timeout / 2;
                let connector = Connector::new(&login, 0, certificates, options)?;
                one(Source::Sentinels(Sentinels::new(addresses, master, connector, timeout)))
            }
            Topology::Cluster => {
                Connections::Cluster(Arc::new(Cluster::new(addresses, connector, Arc::clone(&scripts))))
            }
        };
        Ok(Servers { topology, scripts, response_timeout: options.response_timeout })
    }

    /// Returns a connection to the server that has a key.
    ///
    /// # Errors
    /// [`Error::Buffer`], not applied.
    pub(super) async fn get(&self, key: &str) -> Result<ServerConnection> {
        match &self.topology {
            Connections::One(connection) => Ok(connection.get().await?),
            Connections::Cluster(cluster) => cluster.get(key).await,
        }
    }

    /// Sends a command on a key that changes nothing, or that may be sent twice.
    ///
    /// # Errors
    /// [`Error::Buffer`], which says that nothing was applied.
    pub(super) async fn send(&self, key: &str, command: &Cmd) -> Result<Value> {
        let mut attempts = Attempts::default();
        loop {
            let live = self.get(key).await?;
            match live.send(command).await {
                Ok(answer) => return Ok(answer),
                Err(failure) => self.prepare_again(key, &live, failure, &mut attempts).await?,
            }
        }
    }

    /// Sends commands on a key that change nothing, and returns their answers.
    ///
    /// # Errors
    /// [`Error::Buffer`], which says that nothing was applied.
    pub(super) async fn read(&self, key: &str, pipeline: &redis::Pipeline) -> Result<Vec<Value>> {
        let mut attempts = Attempts::default();
        loop {
            let live = self.get(key).await?;
            match live.read(pipeline).await {
                Ok(answers) => return Ok(answers),
                Err(failure) => self.prepare_again(key, &live, failure, &mut attempts).await?,
            }
        }
    }

    /// Returns once a request that has failed can be sent again, which is only for one that was refused before it had an effect.
    ///
    /// # Errors
    /// The error of the request, if it should not be sent again.
    pub(super) async fn prepare_again(
        &self,
        key: &str,
        refused: &ServerConnection,
        failure: Failure,
        attempts: &mut Attempts,
    ) -> Result<()> {
        let Failure { error, remedy } = failure;
        match (&self.topology, remedy) {
            (_, Remedy::None) => Err(error),
            (Connections::One(_), Remedy::Reconnect) => attempts.next(|| error),
            (Connections::One(_), Remedy::ReadMap | Remedy::Wait) => Err(belongs_to_a_cluster(error)),
            (Connections::Cluster(cluster), Remedy::Reconnect | Remedy::ReadMap) => {
                attempts.next(|| error)?;
                cluster.moved(key, refused).await
            }
            (Connections::Cluster(_), Remedy::Wait) if attempts.waited >= self.response_timeout => Err(error),
            (Connections::Cluster(_), Remedy::Wait) => {
                tokio::time::sleep(MOVE_POLL).await;
                attempts.waited += MOVE_POLL;
                Ok(())
            }
        }
    }

    /// Fails unless all servers answer.
    pub(super) async fn check(&self) -> Result<()> {
        match &self.topology {
            Connections::One(connection) => Ok(connection.get().await.map(drop)?),
            Connections::Cluster(cluster) => cluster.check().await,
        }
    }

    /// Asks the servers for their versions and settings.
    ///
    /// # Errors
    /// [`Error::Buffer`] if one cannot be reached.
    pub(super) async fn health(&self) -> Result<RedisHealth> {
        match &self.topology {
            Connections::One(connection) => connection.health().await,
            Connections::Cluster(cluster) => cluster.health().await,
        }
    }

    /// Returns the health as of the last look.
    pub(super) fn last_health(&self) -> RedisHealth {
        match &self.topology {
            Connections::One(connection) => connection.last_health(),
            Connections::Cluster(cluster) => cluster.last_health(),
        }
    }
}

/// Adds advice to the error of a server that has a part of the keys.
fn belongs_to_a_cluster(error: Error) -> Error {
    match error {
        Error::Buffer { what, applied } => {
            let what = format!("{what}; the server belongs to a cluster: begin the URL of Redis with redis+cluster://");
            Error::Buffer { what, applied }
        }
        other => other,
    }
}
