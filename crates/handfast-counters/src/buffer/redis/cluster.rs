//! Redis Cluster: a connection to each server that has slots, and the map of the slots.
//!
//! The map is read at the first request, and again when a server refuses a key because another one has it (`MOVED`), and when a server cannot be
//! connected to, as another one may have taken its place.
//!
//! # While a slot is moved
//! The keys of a slot move to another server one after the other. Until the last one has, the first server refuses a request for a key that it has
//! not (any more) with `ASK`, or `TRYAGAIN` if it has some of its keys. Clients may then ask the other server, which has the other half. The scripts
//! of this buffer need all keys of a kind, also those that they do not name: on half of them, an acknowledgement would find no batch, and a
//! view would begin a second list of pending events. So a request waits until the slot has moved, and then goes to its new server. So that
//! a script is never carried out during such a move, each one also names a key that is never there (`none`): the server refuses it before it begins.
//!
//! # After a slot has moved
//! The new server has another run than the state of the kind, so the kind is begun anew. Nothing was lost, and nothing would have to begin: but
//! a slot that was moved cannot be told from one whose new server was given old files, or took the place of one that failed. Its price is one read of
//! the store, and totals that are partial until what waits in the queue is saved.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use handfast_store::Applied;
use tokio::task::JoinSet;

use super::connection::{ConnectRole, Connection, Source, Unconnected};
use super::connector::Connector;
use super::failure::unavailable;
use super::health::RedisHealth;
use super::server_connection::{Scripts, ServerConnection};
use super::slots::{SlotMap, slot};
use super::url::Address;
use crate::{Error, Result};

/// The servers of a cluster.
pub(super) struct Cluster {
    /// The servers that the URL names.
    seeds: Vec<Address>,
    connector: Connector,
    scripts: Arc<Scripts>,
    map: RwLock<Arc<Map>>,
    /// Held while the map is read.
    reading: tokio::sync::Mutex<()>,
}

/// A map, and a connection to each of its servers.
#[derive(Default)]
struct Map {
    /// The number of maps that were read before; 0 if none was read yet.
    version: u64,
    slots: SlotMap,
    connections: BTreeMap<Address, Arc<Connection>>,
}

impl Map {
    fn connection(&self, slot: u16) -> Result<&Arc<Connection>> {
        let connection = self.slots.server(slot).and_then(|address| self.connections.get(address));
        connection.ok_or_else(|| no_server(slot))
    }
}

fn no_server(slot: u16) -> Error {
    unavailable(format!("no server of the cluster has slot {slot}"), Applied::No)
}

impl Cluster {
    pub(super) fn new(seeds: Vec<Address>, connector: Connector, scripts: Arc<Scripts>) -> Self {
        Cluster { seeds, connector, scripts, map: RwLock::default(), reading: tokio::sync::Mutex::default() }
    }

    /// Returns a connection to the server that has a key.
    ///
    /// # Errors
    /// [`Error::Buffer`], not applied.
    pub(super) async fn get(self: &Arc<Self>, key: &str) -> Result<ServerConnection> {
        let slot = slot(key);
        let map = self.map().await?;
        let Unconnected { error, role } = match map.connection(slot) {
            Ok(connection) => match connection.get().await {
                Ok(live) => return Ok(live),
                Err(unconnected) => unconnected,
            },
            Err(error) => error.into(),
        };
        // Another server may have taken its place.
        match role {
            ConnectRole::Awaited => {}
            ConnectRole::Begun => {
                let cluster = Arc::clone(self);
                tokio::spawn(async move { cluster.read_map(map.version, None).await.map(drop) });
                return Err(error);
            }
            ConnectRole::OfOthers => return Err(error),
        }
        let Ok(newer) = self.read_map(map.version, None).await else { return Err(error) };
        match newer.slots.server(slot) {
            Some(address) if map.slots.server(slot) != Some(address) => Ok(newer.connection(slot)?.get().await?),
            _ => Err(error),
        }
    }

    fn current(&self) -> Arc<Map> {
        Arc::clone(&self.map.read().unwrap_or_else(PoisonError::into_inner))
    }

    async fn map(&self) -> Result<Arc<Map>> {
        match self.current() {
            map if map.version > 0 => Ok(map),
            _ => self.read_map(0, None).await,
        }
    }

    /// Reads the map again after a server has refused a key that it has not any more: it knows which one has it.
    ///
    /// # Errors
    /// [`Error::Buffer`], not applied, if no server has answered.
    pub(super) async fn moved(&self, key: &str, refused: &ServerConnection) -> Result<()> {
        let map = self.current();
        match map.slots.server(slot(key)) {
            // Another request has read it since.
            Some(address) if *address != *refused.address => Ok(()),
            _ => self.read_map(map.version, Some(refused)).await.map(drop),
        }
    }

    /// Reads the map, unless that was done since the version `known`.
    ///
    /// # Errors
    /// [`Error::Buffer`], not applied, if no server has answered.
    async fn read_map(&self, known: u64, first: Option<&ServerConnection>) -> Result<Arc<Map>> {
        let _reading = self.reading.lock().await;
        let map = self.current();
        if map.version > known {
            return Ok(map);
        }
        let of_first = match first {
            Some(live) => ask_live(live).await.ok(),
            None => None,
        };
        let slots = match of_first {
            Some(slots) => slots,
            None => self.ask_all(&map).await?,
        };
        let connections = slots.servers().into_iter().map(|address| {
            let connection = map.connections.get(address).cloned();
            (address.clone(), connection.unwrap_or_else(|| self.connection(address)))
        });
        let connections = connections.collect();
        let newer = Arc::new(Map { version: map.version + 1, slots, connections });
        *self.map.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&newer);
        Ok(newer)
    }

    fn connection(&self, address: &Address) -> Arc<Connection> {
        let source = Source::Address(address.clone());
        Arc::new(Connection::new(source, self.connector.clone(), Arc::clone(&self.scripts)))
    }

    /// Asks all servers that are known for the map, and returns the first answer.
    async fn ask_all(&self, map: &Map) -> Result<SlotMap> {
        let mut addresses: Vec<&Address> = map.connections.keys().chain(&self.seeds).collect();
        addresses.sort();
        addresses.dedup();
        let mut questions = JoinSet::new();
        for address in addresses {
            let live = map.connections.get(address).and_then(|connection| connection.live());
            let (connector, address) = (self.connector.clone(), address.clone());
            questions.spawn(async move {
                match live {
                    Some(live) => ask_live(&live).await,
                    None => ask(connector, &address).await,
                }
            });
        }
        let mut problems = Vec::new();
        while let Some(answer) = questions.join_next().await {
            match answer.unwrap_or_else(|error| Err(error.to_string())) {
                Ok(slots) => return Ok(slots),
                Err(problem) => problems.push(problem),
            }
        }
        Err(unavailable(
            format!("no server of the cluster says who has which slots: {}", problems.join("; ")),
            Applied::No,
        ))
    }

    /// Fails unless each slot has a server that answers.
    ///
    /// # Errors
    /// [`Error::Buffer`], not applied.
    pub(super) async fn check(&self) -> Result<()> {
        let map = self.read_map(self.current().version, None).await?;
        for connection in map.connections.values() {
            connection.get().await?.send(&redis::cmd("PING")).await?;
        }
        map.slots.missing().map_or(Ok(()), |slot| Err(no_server(slot)))
    }

    /// Reads the map again, and asks each server for its version and settings.
    pub(super) async fn health(&self) -> Result<RedisHealth> {
        let map = self.read_map(self.current().version, None).await?;
        for connection in map.connections.values() {
            connection.health().await?;
        }
        Ok(self.last_health())
    }

    /// Returns the health as of the last look: each version once, and the warnings with the address of their server.
    pub(super) fn last_health(&self) -> RedisHealth {
        let mut health = RedisHealth::default();
        let mut versions = Vec::new();
        for (address, connection) in &self.current().connections {
            let of_server = connection.last_health();
            versions.extend(Some(of_server.version).filter(|version| !version.is_empty()));
            health.warnings.extend(of_server.warnings.iter().map(|warning| format!("{address}: {warning}")));
        }
        versions.sort();
        versions.dedup();
        RedisHealth { version: versions.join(", "), ..health }
    }
}

/// Asks a server that is connected to for the map.
async fn ask_live(live: &ServerConnection) -> Result<SlotMap, String> {
    let answer = live.send(&slots_command()).await.map_err(|failure| format!("{}: {}", live.address, failure.error))?;
    read_slots(&answer, &live.address)
}

/// Connects to a server to ask it for the map.
async fn ask(connector: Connector, address: &Address) -> Result<SlotMap, String> {
    let answer = async { slots_command().query_async(&mut connector.open(address).await?).await };
    let answer = answer.await.map_err(|error: redis::RedisError| format!("{address}: {error}"))?;
    read_slots(&answer, address)
}

fn slots_command() -> redis::Cmd {
    let mut command = redis::cmd("CLUSTER");
    command.arg("SLOTS");
    command
}

fn read_slots(answer: &redis::Value, address: &Address) -> Result<SlotMap, String> {
    let slots =
        SlotMap::read(answer, address).ok_or_else(|| format!("{address}: CLUSTER SLOTS has answered {answer:?}"))?;
    match slots.servers().is_empty() {
        true => Err(format!("{address}: the server belongs to no cluster with slots")),
        false => Ok(slots),
    }
}
