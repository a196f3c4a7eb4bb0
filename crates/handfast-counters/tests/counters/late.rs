//! A command to Redis that arrives late: after its instance gave up and sent it again, after another instance has taken over what it had, after
//! totals were rebuilt, after the item was deleted, after its entry has left the cache, after Redis has become another master.
//!
//! A process counts, deletes and saves; each command that it writes with is late once, instead of or besides its arrival. All requests have keys
//! and are sent again until they are answered, so all figures are known exactly.

use std::sync::Arc;
use std::time::Duration;

use handfast_counters::{Counters, Error, StorageForm, Total};
use tokio::task::{LocalSet, spawn_local};

use crate::late_proxy::{Late, LateProxy};
use crate::rebuild::rebuild;
use crate::server::RedisServer;
use crate::world::{World, ad, ads, broken_scripts, key, save_all, total, whole};

/// How often a request is sent until it is answered.
const ATTEMPTS: usize = 20;
/// A time after which entries that nobody needs have left the cache, and keys are still known.
const CACHE_TIME: Duration = Duration::from_secs(2 * 3_600);

/// What has happened when the late command arrives.
#[derive(Clone, Copy, Debug)]
enum Moment {
    /// The same process has saved all.
    Flush,
    /// The process is dead, and another one has saved its batch.
    TakeOver,
    /// Totals were rebuilt.
    Rebuild,
    /// Items were deleted, and one has new views.
    Deletion,
    /// The entries have left the cache.
    Expiry,
    /// Redis counts as another run: it was a replica in between.
    NewRun,
}

const MOMENTS: [Moment; 6] =
    [Moment::Flush, Moment::TakeOver, Moment::Rebuild, Moment::Deletion, Moment::Expiry, Moment::NewRun];
/// The moments at which a command arrives once more that had arrived: those at which least is left of its effect.
const MOMENTS_OF_SECOND: [Moment; 3] = [Moment::Deletion, Moment::Expiry, Moment::NewRun];

/// Sends a request until it is answered.
async fn answered<T>(request: impl AsyncFn() -> handfast_counters::Result<T>) -> T {
    let mut last = None;
    for _ in 0..ATTEMPTS {
        match request().await {
            Ok(answer) => return answer,
            Err(error @ Error::Buffer { .. }) => last = Some(error),
            Err(other) => panic!("{other}"),
        }
    }
    panic!("no attempt succeeds: {last:?}");
}

async fn view(counters: &Counters, id: &str, views: u32, name: &str) -> Total {
    answered(async || counters.view(ad(id), views, key(name)).await).await
}

async fn delete(counters: &Counters, id: &str, name: &str) {
    answered(async || counters.delete(&ad(id), key(name).as_ref()).await).await;
}

/// Sends all requests of the process; sent a second time, they change nothing.
async fn requests(counters: &Counters, between: impl AsyncFn()) {
    view(counters, "a", 1, "1").await;
    view(counters, "a", 10, "2").await;
    view(counters, "b", 1, "3").await;
    view(counters, "c", 5, "4").await;
    between().await;
    view(counters, "a", 100, "5").await;
    delete(counters, "c", "6").await;
    view(counters, "c", 1_000, "7").await;
    view(counters, "e", 2, "11").await;
    between().await;
    view(counters, "b", 10, "8").await;
}

/// The process: it reads, counts, deletes and saves, and has a batch in the end that is not saved.
async fn scenario(counters: &Counters) {
    requests(counters, async || {
        while answered(async || counters.flush().await).await.batches > 0 {}
        // At first, the second item has no views, and this is put into the cache.
        let totals = answered(async || counters.totals(&ads(), &[ad("a").id, ad("e").id]).await).await;
        assert_eq!(totals.len(), 2);
    })
    .await;
    answered(async || counters.buffer().claim(&ads(), counters.owner(), 3).await).await.expect("a batch");
}

/// Runs the scenario with a late command, and compares all figures. Returns whether there was such a command.
async fn point(world: &World, number: u64, late: Late, moment: Moment) -> bool {
    let at = format!("{moment:?}, command {number} {late:?}");
    let proxy = LateProxy::start(world.server().port(), Some((number, late))).await;
    let one = world.clone().through(&proxy.url()).healthy(1).await;
    scenario(&one).await;
    let mut expected = [("a", 111), ("b", 11), ("c", 1_000), ("d", 7), ("e", 2)];
    let two = world.healthy(2).await;
    match moment {
        Moment::Flush => while answered(async || one.flush().await).await.batches > 0 {},
        Moment::TakeOver => save_all(&two).await,
        Moment::Rebuild => {
            save_all(&two).await;
            assert_eq!(rebuild(&two, None).await.expect("rebuilt").1, [], "{at}");
        }
        Moment::Deletion => {
            save_all(&two).await;
            delete(&two, "a", "delete").await;
            delete(&two, "b", "delete").await;
            view(&two, "a", 7, "new").await;
            (expected[0].1, expected[1].1) = (7, 0);
        }
        Moment::Expiry => {
            save_all(&two).await;
            world.advance(CACHE_TIME).await;
        }
        Moment::NewRun => {
            // Port 1 has no master.
            world.server().command(&["REPLICAOF", "127.0.0.1", "1"]).await;
            world.server().command(&["REPLICAOF", "NO", "ONE"]).await;
        }
    }
    view(&two, "d", 3, "9").await;
    let answer = proxy.deliver().await;
    view(&two, "d", 4, "10").await;
    let shown = |id| total(&two, id);
    for (id, views) in expected {
        let shown = shown(id).await;
        assert!(shown.partial || shown == whole(views), "{at}: {id} has {shown:?} for a reader: {answer:?}");
    }
    save_all(&two).await;
    let three = world.healthy(3).await;
    requests(&three, async || ()).await;
    save_all(&three).await;
    for (id, views) in expected {
        for process in [&two, &three] {
            assert_eq!(total(process, id).await, whole(views), "{at}: {id}: {answer:?}");
        }
    }
    let depth = three.buffer().depth(&ads()).await.expect("a depth");
    assert_eq!((depth.pending, depth.batches), (0, 0), "{at}: {answer:?}");
    answer.is_some()
}

/// Lets each command be late in each way and at each moment; returns how many points there were.
async fn every_point(server: &Arc<RedisServer>, world: &World) -> u64 {
    let fresh = async || {
        server.command(&["FLUSHALL"]).await;
        World { store: World::embedded().store, ..world.clone() }
    };
    let proxy = LateProxy::start(server.port(), None).await;
    scenario(&fresh().await.through(&proxy.url()).healthy(1).await).await;
    let commands = proxy.writes();
    let ways = MOMENTS.map(|moment| (Late::Instead, moment)).into_iter();
    let ways: Vec<_> = ways.chain(MOMENTS_OF_SECOND.map(|moment| (Late::Again, moment))).collect();
    let mut met = 0;
    for number in 0..commands {
        for (late, moment) in &ways {
            met += u64::from(point(&fresh().await, number, *late, *moment).await);
        }
    }
    println!("{:?}: {commands} commands, {met} points", world.form);
    assert_eq!(met, commands * ways.len() as u64, "each command was late");
    met
}

async fn late_commands(form: StorageForm) {
    let Some(world) = World::redis().await else { return };
    let server = world.redis.clone().expect("a server");
    assert!(every_point(&server, &World { form, ..world }).await > 200);
}

#[tokio::test]
async fn ext_redis_a_late_command_changes_no_figure() {
    late_commands(StorageForm::Transactions).await;
}

#[tokio::test]
async fn ext_redis_a_late_command_changes_no_figure_of_single_documents() {
    late_commands(StorageForm::SingleDocuments).await;
}

#[tokio::test]
async fn ext_redis_late_commands_find_broken_scripts() {
    let mutants = [
        (
            "a deletion is carried out again",
            "if remembered and redis.call('EXISTS', remembered) == 1 then",
            "if false then",
        ),
        ("an old total is put into the cache", "if not run or fence ~= epoch then return { 'refused' } end", ""),
        ("keys are forgotten", "KEYS[5], '1', 'PX', ARGV[5], 'NX')", "KEYS[5], '1', 'PX', ARGV[5])"),
    ];
    for (name, right, wrong) in mutants {
        let Some(world) = World::redis().await else { return };
        let server = world.redis.clone().expect("a server");
        let world = World { scripts: broken_scripts(name, right, wrong), ..world };
        let run = async move { every_point(&server, &world).await };
        let caught = LocalSet::new().run_until(async { spawn_local(run).await }).await;
        let failure = caught.expect_err(name).into_panic();
        let wrong = failure.downcast::<String>().expect("a failed assertion has a text");
        assert!(wrong.contains(", command "), "{name}: no figure is wrong, but {wrong}");
    }
}
