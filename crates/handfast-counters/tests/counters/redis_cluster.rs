//! A Redis Cluster of a test: three servers with a third of the slots each, without replicas or with one each.

use std::sync::Arc;
use std::time::Duration;

use crate::server::{RedisServer, is_before_7};

/// The first slots of the servers, and the end.
const SLOTS: [u16; 4] = [0, 5_461, 10_923, 16_384];
const POLL: Duration = Duration::from_millis(20);
/// How often a condition is looked at: for two minutes.
const POLLS_MAX: usize = 6_000;

/// The servers of a cluster.
pub(crate) struct RedisCluster {
    pub(crate) servers: Vec<Arc<RedisServer>>,
    /// The replica of each of them, in their order; none in a cluster without replicas.
    pub(crate) replicas: Vec<Arc<RedisServer>>,
}

/// Returns the arguments of a server with this setting `appendfsync`.
fn arguments(appendfsync: &str, bus: u16) -> Vec<String> {
    let fixed = ["--save", "", "--appendonly", "yes", "--appendfsync", appendfsync, "--cluster-enabled", "yes"];
    // A server that is busy for a while must not be taken for dead.
    let times = ["--cluster-node-timeout", "30000"];
    let mut arguments: Vec<String> = fixed.iter().chain(&times).map(|text| (*text).to_owned()).collect();
    if !is_before_7() {
        arguments.extend(["--cluster-port".to_owned(), bus.to_string()]);
    }
    arguments
}

impl RedisCluster {
    /// Starts a cluster with this setting `appendfsync`; `None`, having said so, if the program is not installed.
    pub(crate) async fn start_with(appendfsync: &str) -> Option<Self> {
        let mut servers = Vec::new();
        for _ in 0..SLOTS.len() - 1 {
            servers.push(Arc::new(RedisServer::start(|_, bus| arguments(appendfsync, bus)).await?));
        }
        let cluster = RedisCluster { servers, replicas: Vec::new() };
        let first = &cluster.servers[0];
        for (at, server) in cluster.servers.iter().enumerate() {
            server.command(&["CLUSTER", "SET-CONFIG-EPOCH", &(at + 1).to_string()]).await;
            // Redis 6.2 takes no ranges.
            let slots: Vec<String> = (SLOTS[at]..SLOTS[at + 1]).map(|slot| slot.to_string()).collect();
            let command: Vec<&str> =
                ["CLUSTER", "ADDSLOTS"].into_iter().chain(slots.iter().map(|slot| &**slot)).collect();
            server.command(&command).await;
            if at > 0 {
                first.meet(server).await;
            }
        }
        cluster.until_ready().await;
        Some(cluster)
    }

    /// Starts a cluster in which each server has a replica.
    pub(crate) async fn start_with_replicas(appendfsync: &str) -> Option<Self> {
        let mut cluster = Self::start_with(appendfsync).await?;
        for _ in 0..cluster.servers.len() {
            let replica = Arc::new(RedisServer::start(|_, bus| arguments(appendfsync, bus)).await?);
            cluster.servers[0].meet(&replica).await;
            cluster.replicas.push(replica);
        }
        cluster.until_ready().await;
        for (server, replica) in cluster.servers.iter().zip(&cluster.replicas) {
            let name: String = server.ask(&["CLUSTER", "MYID"]).await;
            replica.command(&["CLUSTER", "REPLICATE", &name]).await;
        }
        for replica in &cluster.replicas {
            replica.until_info("master_link_status:up").await;
        }
        Some(cluster)
    }

    /// The URL, with two of the servers.
    pub(crate) fn url(&self) -> String {
        format!("redis+cluster://127.0.0.1:{},127.0.0.1:{}", self.servers[2].port(), self.servers[1].port())
    }

    /// Waits until each server takes requests.
    pub(crate) async fn until_ready(&self) {
        let known = format!("cluster_known_nodes:{}", self.servers.len() + self.replicas.len());
        for server in self.servers.iter().chain(&self.replicas) {
            for poll in 0.. {
                let info: String = server.ask(&["CLUSTER", "INFO"]).await;
                let is_ready = ["cluster_state:ok", "cluster_slots_ok:16384", &known];
                if is_ready.iter().all(|line| info.lines().any(|found| found == *line)) {
                    break;
                }
                assert!(poll < POLLS_MAX, "{info}");
                tokio::time::sleep(POLL).await;
            }
        }
    }

    /// Returns the server that has had a key since the beginning.
    pub(crate) fn server(&self, key: &str) -> &Arc<RedisServer> {
        let slot = slot(key);
        let at = SLOTS.iter().rposition(|first| *first <= slot).expect("a server");
        &self.servers[at]
    }

    /// Removes all keys.
    pub(crate) async fn flush(&self) {
        for server in &self.servers {
            server.command(&["FLUSHALL"]).await;
        }
    }

    /// Moves the slot of a key to another server as `redis-cli --cluster reshard` does, with a pause after each key.
    pub(crate) async fn move_slot(&self, key: &str, from: usize, to: usize, pause: Duration) {
        let slot = slot(key).to_string();
        let (from, to) = (&self.servers[from], &self.servers[to]);
        let name = async |server: &RedisServer| server.ask::<String>(&["CLUSTER", "MYID"]).await;
        let (from_name, to_name, port) = (name(from).await, name(to).await, to.port().to_string());
        to.command(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &from_name]).await;
        from.command(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &to_name]).await;
        loop {
            let keys: Vec<String> = from.ask(&["CLUSTER", "GETKEYSINSLOT", &slot, "1"]).await;
            let Some(key) = keys.first() else { break };
            from.command(&["MIGRATE", "127.0.0.1", &port, key, "0", "60000"]).await;
            tokio::time::sleep(pause).await;
        }
        for server in [to, from].into_iter().chain(&self.servers) {
            server.command(&["CLUSTER", "SETSLOT", &slot, "NODE", &to_name]).await;
        }
    }
}

/// Returns the slot of a key with a hash tag, in the words of the specification: CRC-16 of XMODEM, bit by bit.
fn slot(key: &str) -> u16 {
    let tag = key.split(['{', '}']).nth(1).unwrap_or(key);
    let mut crc = 0_u16;
    for bit in tag.bytes().flat_map(|byte| (0..8).rev().map(move |bit| u16::from(byte >> bit & 1))) {
        let top = crc >> 15;
        crc = (crc << 1) ^ ((top ^ bit) * 0x1021);
    }
    crc % 16_384
}
