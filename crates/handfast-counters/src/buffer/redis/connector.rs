//! How connections are made: their login, their encryption and their times.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, IntoConnectionInfo as _, ProtocolVersion, PushKind,
    RedisConnectionInfo, RedisError, TlsCertificates,
};

use super::RedisBufferOptions;
use super::url::{Address, Login};
use crate::{Error, Result};

/// The maximum number of requests that wait to be sent; further ones wait to be queued.
const WAITING_REQUESTS_MAX: usize = 4_096;

/// The login, the encryption and the times of connections.
#[derive(Clone)]
pub(super) struct Connector {
    settings: RedisConnectionInfo,
    /// `None` for connections that are not encrypted.
    certificates: Option<TlsCertificates>,
    pub(super) connect_timeout: Duration,
    response_timeout: Duration,
    pub(super) stall_timeout: Duration,
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
        let RedisBufferOptions { connect_timeout, response_timeout, stall_timeout, .. } = options;
        let connector = Connector { settings, certificates, connect_timeout, response_timeout, stall_timeout };
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
    pub(super) async fn open_watched(
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
