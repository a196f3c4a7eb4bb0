//! The buffer behind Redis Sentinel: the master dies under load, and a replica takes its place.

use std::time::Duration;

use handfast_counters::Buffer as _;

use crate::load::{Load, check, surely_counted};
use crate::server::{RedisServer, free_port};
use crate::tls::connect;

const PASSWORD: &str = "of-the-sentinels";
const POLL: Duration = Duration::from_millis(20);
/// How often a condition is looked at: for two minutes.
const POLLS_MAX: usize = 6_000;

/// A master, its replica, and a sentinel.
struct Site {
    master: RedisServer,
    replica: RedisServer,
    sentinel: RedisServer,
}

impl Site {
    async fn start() -> Option<Self> {
        let master = RedisServer::start_with("always").await?;
        let replica = RedisServer::start_with("always").await?;
        replica.command(&["REPLICAOF", "127.0.0.1", &master.port().to_string()]).await;
        replica.until_info("master_link_status:up").await;
        master.until_info("connected_slaves:1").await;
        let port = master.port();
        let sentinel = RedisServer::start(|directory, _| {
            let file = directory.join("sentinel.conf");
            // A master that is busy for a while is not taken for dead.
            let settings = format!(
                "sentinel monitor main 127.0.0.1 {port} 1\nsentinel down-after-milliseconds main 3000\n\
                 sentinel failover-timeout main 20000\nprotected-mode no\n"
            );
            std::fs::write(&file, settings).expect("written");
            vec![file.display().to_string(), "--sentinel".to_owned()]
        });
        let sentinel = sentinel.await?;
        let site = Site { master, replica, sentinel };
        for poll in 0.. {
            let known: Vec<redis::Value> = site.sentinel.ask(&["SENTINEL", "REPLICAS", "main"]).await;
            if known.len() == 1 {
                break;
            }
            assert!(poll < POLLS_MAX, "the sentinel does not find the replica");
            tokio::time::sleep(POLL).await;
        }
        Some(site)
    }

    /// The URL, with a sentinel that is not there.
    fn url(&self) -> String {
        format!("redis+sentinel://127.0.0.1:{},127.0.0.1:{}/main", free_port(), self.sentinel.port())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ext_redis_each_view_that_a_replica_has_is_counted_once_when_it_takes_over() {
    let Some(site) = Site::start().await else { return };
    let mut load = Load::start(&site.url(), &["ads"], false).await;
    load.until_more("ads", 200).await;
    // Views that were answered before a write that the replica has are on the replica.
    let replicated = load.answered();
    let mut client = site.master.client().await;
    redis::cmd("SET").arg("probe").arg(1).exec_async(&mut client).await.expect("set");
    let replicas: u64 = redis::cmd("WAIT").arg(1).arg(60_000).query_async(&mut client).await.expect("an answer");
    assert_eq!(replicas, 1);
    site.master.kill();
    let before = load.answered();
    load.until_more("ads", 200).await;
    assert!(site.replica.ask::<Vec<redis::Value>>(&["ROLE"]).await[0] == redis::Value::BulkString("master".into()));
    // The old master comes back as a replica, and is no harm.
    site.master.restart().await;
    site.master.until_info("role:slave").await;
    load.until_more("ads", 100).await;
    let (counters, answered) = load.finish().await;
    let least = surely_counted(&answered, "ads", &replicated, &before);
    check(&counters, &least, &answered).await;
}

#[tokio::test]
async fn ext_redis_what_is_wrong_with_sentinels_is_said() {
    let Some(server) = RedisServer::start_with("no").await else { return };
    let port = server.port();
    let sentinel = RedisServer::start(|directory, _| {
        let file = directory.join("sentinel.conf");
        std::fs::write(&file, format!("sentinel monitor main 127.0.0.1 {port} 1\nprotected-mode no\n"))
            .expect("written");
        vec![file.display().to_string(), "--sentinel".to_owned()]
    });
    let sentinel = sentinel.await.expect("installed");
    let problem = async |rest: &str| {
        let buffer =
            connect(&format!("redis+sentinel://127.0.0.1:{}/{rest}", sentinel.port())).await.expect("a buffer");
        buffer.kinds().await.err().map(|error| error.to_string()).unwrap_or_default()
    };
    assert_eq!(problem("main").await, "");
    assert!(problem("other").await.contains("knows no master named other"), "{}", problem("other").await);
    // Port 1 has no master.
    server.command(&["REPLICAOF", "127.0.0.1", "1"]).await;
    assert!(problem("main").await.contains("no master any more"), "{}", problem("main").await);
    server.command(&["REPLICAOF", "NO", "ONE"]).await;
    sentinel.command(&["ACL", "SETUSER", "default", "resetpass", &format!(">{PASSWORD}")]).await;
    let refused = problem("main").await;
    assert!(refused.contains("sentinel_password"), "{refused}");
    assert_eq!(problem(&format!("main?sentinel_password={PASSWORD}")).await, "");
}
