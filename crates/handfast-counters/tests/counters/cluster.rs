//! The buffer in a Redis Cluster: it behaves as on one server, and counts each view once while slots move and servers are killed.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use handfast_counters::{Item, RedisBuffer};

use crate::load::{Load, check, surely_counted};
use crate::redis_cluster::RedisCluster;
use crate::world::{World, ad, key, save_all, whole};
use crate::{announcements, beside, clocks, model, reports, retention, service, visitors};

/// Kinds on the first, the second and the third server.
const KINDS: [&str; 3] = ["cars", "ads", "books"];
/// The time after each key of a slot that is moved, in which requests meet a slot of which a part is elsewhere.
const PAUSE: Duration = Duration::from_millis(3);

fn state(kind: &str) -> String {
    format!("hf:{{{kind}}}:state")
}

#[test]
fn ext_redis_a_cluster_behaves_as_one_server() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let Some(cluster) = runtime.block_on(RedisCluster::start_with("no")) else { return };
    let cluster = Arc::new(cluster);
    runtime.block_on(async {
        announcements::on_cluster(&cluster).await;
        beside::on_cluster(&cluster).await;
        beside::without_events::on_cluster(&cluster).await;
        clocks::on_cluster(&cluster).await;
        reports::on_cluster(&cluster).await;
        retention::on_cluster(&cluster).await;
        service::on_cluster(&cluster).await;
        visitors::on_cluster(&cluster).await;
        kinds_are_spread(&cluster).await;
        settings_of_all_servers_are_told(&cluster).await;
        a_server_of_a_cluster_is_not_taken_for_all_of_it(&cluster).await;
    });
    model::on_cluster(&runtime, &World::on_cluster(&cluster));
}

/// The keys of a kind are on one server, in one slot; those of several kinds are on several servers.
async fn kinds_are_spread(cluster: &Arc<RedisCluster>) {
    cluster.flush().await;
    let world = World::on_cluster(cluster);
    let counters = world.healthy(1).await;
    for (at, kind) in KINDS.iter().enumerate() {
        assert!(Arc::ptr_eq(cluster.server(&state(kind)), &cluster.servers[at]), "{kind}");
        let item = Item::new(kind, "7").expect("an item");
        counters.view(item.clone(), 1, key("a")).await.expect("counted");
        let visitor = counters.visitor(&item, "ann", Duration::from_secs(60)).await.expect("a visitor");
        let view = handfast_counters::View::new(item, 1, counters.today().expect("a day")).expect("a view");
        counters.count(&handfast_counters::View { visitor: Some(visitor), ..view }).await.expect("counted");
    }
    let owner = handfast_counters::Owner::new(&world.sources(5));
    let names: Vec<String> = counters.buffer().kinds().await.expect("kinds").iter().map(ToString::to_string).collect();
    assert_eq!(names.iter().map(|name| &**name).collect::<BTreeSet<_>>(), KINDS.into_iter().collect());
    for kind in counters.buffer().kinds().await.expect("kinds") {
        counters.buffer().claim(&kind, &owner, 1).await.expect("claimed").expect("a batch");
    }
    counters.buffer().check().await.expect("all servers answer");
    for (server, kind) in cluster.servers.iter().zip(KINDS) {
        let keys: Vec<String> = server.ask(&["KEYS", "hf:{*"]).await;
        assert!(keys.len() >= 8, "{keys:?}");
        let slot: u16 = server.ask(&["CLUSTER", "KEYSLOT", &state(kind)]).await;
        for key in keys {
            assert_eq!(server.ask::<u16>(&["CLUSTER", "KEYSLOT", &key]).await, slot, "{key}");
        }
    }
}

async fn settings_of_all_servers_are_told(cluster: &Arc<RedisCluster>) {
    let world = World::on_cluster(cluster);
    let storage = world.healthy(1).await.storage().clone();
    let buffer = world.redis_buffer(&storage, world.sources(2)).await;
    cluster.servers[1].command(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]).await;
    let health = buffer.health().await.expect("healthy");
    assert_eq!(health.version.split(',').count(), 1, "{}", health.version);
    let [first, second, third] = [0, 1, 2].map(|at| format!("127.0.0.1:{}: ", cluster.servers[at].port()));
    let of = |server: &str| health.warnings.iter().filter(|warning| warning.starts_with(server)).count();
    assert_eq!((of(&first), of(&second), of(&third)), (1, 2, 1), "{:?}", health.warnings);
    cluster.servers[1].command(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]).await;
}

/// The URL of one server gives advice, and so does a URL of a cluster for a server that belongs to none.
async fn a_server_of_a_cluster_is_not_taken_for_all_of_it(cluster: &Arc<RedisCluster>) {
    let world = World::on_cluster(cluster);
    let alone = World { cluster: None, ..world.clone() };
    let counters = alone.healthy(1).await;
    let error = counters.view(Item::new("cars", "7").expect("an item"), 1, None).await.expect_err("elsewhere");
    assert!(error.to_string().contains("redis+cluster://"), "{error}");
    let Some(server) = World::redis().await else { return };
    let url = server.url().replace("redis:", "redis+cluster:");
    let storage = counters.storage().clone();
    let buffer = RedisBuffer::connect(&url, storage, world.sources(3), Default::default()).await.expect("a buffer");
    let error = handfast_counters::Buffer::kinds(&buffer).await.expect_err("no cluster");
    assert!(error.to_string().contains("cluster support disabled"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ext_redis_each_view_is_counted_once_while_a_slot_moves_and_a_server_is_killed() {
    let Some(cluster) = RedisCluster::start_with("always").await else { return };
    let mut load = Load::start(&cluster.url(), &KINDS, true).await;
    for kind in KINDS {
        load.until_more(kind, 100).await;
    }
    cluster.move_slot(&state("ads"), 1, 0, PAUSE).await;
    load.until_more("ads", 100).await;
    cluster.move_slot("hf:kinds", 2, 1, PAUSE).await;
    cluster.servers[2].kill();
    // The others are counted meanwhile.
    load.until_more("cars", 100).await;
    cluster.servers[2].restart().await;
    for kind in KINDS {
        load.until_more(kind, 100).await;
    }
    let (counters, answered) = load.finish().await;
    check(&counters, &answered, &answered).await;
    counters.buffer().check().await.expect("all servers answer");
    assert_eq!(counters.buffer().kinds().await.expect("kinds").len(), KINDS.len());
}

/// The replica has what was answered before a write that it has confirmed; what was answered since then is lost, or counted once, as replication is asynchronous. No
/// view is counted twice, and the other servers lose none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ext_redis_each_view_that_a_replica_of_a_cluster_has_is_counted_once_when_it_takes_over() {
    let Some(cluster) = RedisCluster::start_with_replicas("no").await else { return };
    let mut load = Load::start(&cluster.url(), &KINDS, false).await;
    for kind in KINDS {
        load.until_more(kind, 100).await;
    }
    let (server, replica) = (&cluster.servers[1], &cluster.replicas[1]);
    let replicated = load.answered();
    let mut client = server.client().await;
    redis::cmd("SET").arg("probe{ads}").arg(1).exec_async(&mut client).await.expect("set");
    let replicas: u64 = redis::cmd("WAIT").arg(1).arg(60_000).query_async(&mut client).await.expect("an answer");
    assert_eq!(replicas, 1);
    server.kill();
    let before = load.answered();
    // The others would agree on it after 30 seconds.
    replica.command(&["CLUSTER", "FAILOVER", "TAKEOVER"]).await;
    for kind in KINDS {
        load.until_more(kind, 100).await;
    }
    assert!(replica.ask::<Vec<redis::Value>>(&["ROLE"]).await[0] == redis::Value::BulkString("master".into()));
    // The old one comes back as a replica, and is no harm.
    server.restart().await;
    server.until_info("role:slave").await;
    load.until_more("ads", 100).await;
    let (counters, answered) = load.finish().await;
    let least = surely_counted(&answered, "ads", &replicated, &before);
    check(&counters, &least, &answered).await;
    counters.buffer().check().await.expect("all servers answer");
}

/// A script is refused as a whole while its slot is moved, unless all keys that it names are still there.
#[tokio::test]
async fn ext_redis_no_step_is_carried_out_on_a_part_of_a_slot() {
    let Some(cluster) = RedisCluster::start_with("no").await else { return };
    let cluster = Arc::new(cluster);
    let world = World::on_cluster(&cluster);
    let counters = world.healthy(1).await;
    counters.view(ad("7"), 1, None).await.expect("counted");
    counters.view(ad("8"), 1, None).await.expect("counted");
    save_all(&counters).await;
    assert_eq!(counters.view(ad("7"), 2, None).await.expect("counted"), whole(3));
    let slot: String = cluster.servers[1].ask::<u16>(&["CLUSTER", "KEYSLOT", &state("ads")]).await.to_string();
    let name: String = cluster.servers[0].ask(&["CLUSTER", "MYID"]).await;
    cluster.servers[1].command(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &name]).await;
    let viewing = tokio::spawn({
        let counters = counters.clone();
        // Its idempotency key is not there.
        async move { counters.view(ad("7"), 4, key("a")).await }
    });
    let deleting = tokio::spawn({
        let counters = counters.clone();
        async move { counters.delete(&ad("8"), None).await }
    });
    let pending = state("ads").replace("state", "pending");
    let before: u64 = cluster.servers[1].ask(&["LLEN", &pending]).await;
    for _ in 0..20 {
        tokio::time::sleep(PAUSE).await;
        assert!(!viewing.is_finished() && !deleting.is_finished(), "requests wait");
    }
    let after: u64 = cluster.servers[1].ask(&["LLEN", &pending]).await;
    assert_eq!(before, after, "nothing was carried out");
    assert_eq!(counters.view(ad("7"), 8, None).await.expect("all its keys are there").views, 11);
    cluster.move_slot(&state("ads"), 1, 0, PAUSE).await;
    assert_eq!(viewing.await.expect("ended").expect("counted").views, 15);
    deleting.await.expect("ended").expect("deleted");
    save_all(&counters).await;
    assert_eq!(crate::world::total(&counters, "7").await, whole(15));
    assert_eq!(crate::world::total(&counters, "8").await, whole(0));
}
