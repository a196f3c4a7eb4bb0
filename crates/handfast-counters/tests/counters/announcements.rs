//! The list of the instances that run: who announces itself is in it, who withdraws or dies is not, and what is damaged harms nobody.

use std::time::Duration;

use handfast_counters::{Counters, Instance, InstanceReport};

use crate::world::{World, on_both_forms};

/// Long enough for a busy machine: Redis measures real time.
const LIFETIME: Duration = Duration::from_secs(10_000);
const NAMES: &str = "hf:{.instances}:names";

on_both_forms! {
    instances_are_listed_until_they_withdraw_or_die,
}

fn report(counters: &Counters, views: u64) -> InstanceReport {
    InstanceReport {
        name: counters.owner().clone(),
        version: "1.2.3".to_owned(),
        addresses: vec!["127.0.0.1:8080".parse().expect("an address"), "[::1]:8080".parse().expect("an address")],
        uptime: Duration::from_millis(1_500),
        views,
        saved: views / 2,
    }
}

async fn announce(counters: &Counters, views: u64) -> InstanceReport {
    let report = report(counters, views);
    counters.buffer().announce(report.clone(), LIFETIME).await.expect("announced");
    report
}

async fn listed(counters: &Counters) -> Vec<Instance> {
    counters.buffer().instances().await.expect("a list")
}

fn reports(instances: Vec<Instance>) -> Vec<InstanceReport> {
    instances.into_iter().map(|instance| instance.report).collect()
}

fn sorted(mut reports: Vec<InstanceReport>) -> Vec<InstanceReport> {
    reports.sort_by(|one, other| one.name.cmp(&other.name));
    reports
}

async fn instances_are_listed_until_they_withdraw_or_die(world: World) {
    let first = world.healthy(1).await;
    assert_eq!(listed(&first).await, []);
    // Over Redis another process; in a process, other counters over its buffer.
    let second = match &world.redis {
        Some(_) => world.healthy(2).await,
        None => {
            let (buffer, storage) = (first.buffer().clone(), first.storage().clone());
            Counters::new(buffer, storage, world.sources(2), first.options().clone())
        }
    };
    let one = announce(&first, 10).await;
    let other = announce(&second, 7).await;
    for reader in [&first, &second] {
        assert_eq!(reports(listed(reader).await), sorted(vec![one.clone(), other.clone()]));
    }
    world.advance(LIFETIME / 2).await;
    let one = announce(&first, 20).await;
    for Instance { report, seen } in listed(&second).await {
        let (least, is_first) = (if report == one { Duration::ZERO } else { LIFETIME / 2 }, report == one);
        assert!(seen >= least && seen < least + LIFETIME / 4, "{seen:?} of the first one: {is_first}");
    }
    // The second one is dead, which nobody has noticed.
    world.advance(LIFETIME / 2).await;
    assert_eq!(reports(listed(&first).await), [one]);
    let again = announce(&second, 8).await;
    first.buffer().withdraw(first.owner()).await.expect("withdrawn");
    first.buffer().withdraw(first.owner()).await.expect("the answer was lost");
    assert_eq!(reports(listed(&first).await), [again]);
}

#[tokio::test]
async fn ext_redis_names_of_the_dead_are_removed_and_those_of_the_living_come_back() {
    let Some(world) = World::redis().await else { return };
    let counters = world.healthy(1).await;
    let names = async || {
        let mut client = world.server().client().await;
        redis::cmd("SCARD").arg(NAMES).query_async::<u64>(&mut client).await.expect("a number")
    };
    announce(&counters, 1).await;
    world.advance(LIFETIME).await;
    assert_eq!(names().await, 1);
    assert_eq!(listed(&counters).await, []);
    assert_eq!(names().await, 0);
    let report = announce(&counters, 2).await;
    // A reader saw no key, as the instance was silent for long, and then removed its name.
    world.server().command(&["SREM", NAMES, counters.owner().as_str()]).await;
    assert_eq!(listed(&counters).await, []);
    announce(&counters, 2).await;
    assert_eq!(reports(listed(&counters).await), [report]);
}

#[tokio::test]
async fn ext_redis_damaged_reports_are_left_out() {
    let Some(world) = World::redis().await else { return };
    let counters = world.healthy(1).await;
    let report = announce(&counters, 1).await;
    let server = world.server();
    for (name, value) in [("a", ""), ("b", "1|2|3"), ("c", "1|2|3|4|nowhere|v"), ("d", "\u{0}")] {
        server.command(&["SET", &format!("hf:{{.instances}}:{name}"), value, "PX", "100000"]).await;
        server.command(&["SADD", NAMES, name]).await;
    }
    // One that does not expire, one of another type, and names that are none.
    server.command(&["SET", "hf:{.instances}:e", "10000|1|2|3||v"]).await;
    server.command(&["LPUSH", "hf:{.instances}:f", "10000|1|2|3||v"]).await;
    server.command(&["SADD", NAMES, "e", "f", "names", "", &"x".repeat(100)]).await;
    assert_eq!(reports(listed(&counters).await), std::slice::from_ref(&report));
    server.command(&["SET", NAMES, "no set"]).await;
    counters.buffer().instances().await.expect_err("no set of names");
    counters.buffer().announce(report, LIFETIME).await.expect_err("no set of names");
    counters.view(crate::world::ad("7"), 1, None).await.expect("counted");
}
