//! Random sequences of steps on the buffer in memory and on Redis give the same answers, up to the number and the epoch with which a kind
//! begins. Broken scripts are caught by the same sequences, and by some that are written down because chance rarely makes them.

use std::sync::Arc;
use std::time::Duration;

use handfast_counters::{
    Batch, Buffer, COUNTED_TOTAL_MAX, Fence, IdempotencyKey, ItemId, MemoryBuffer, Owner, RedisBuffer,
    RedisBufferOptions, RedisScripts, Result, Salt, Storage, Stored, View, Visitor,
};
use handfast_store::{ManualClock, MemoryStore, Sources};
use handfast_txn::Database;
use proptest::prelude::{Just, Strategy, any};
use proptest::prop_oneof;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};

use crate::world::{World, ad, ads, broken_scripts, first_day, key};

const IDS: [&str; 3] = ["a", "b", "c"];
const OWNERS: usize = 3;
const QUEUE_EVENTS_MAX: usize = 12;
/// The time that a step [`Step::Age`] lets pass.
const HOUR: Duration = Duration::from_secs(3_600);
/// The sequences of a run.
const SEQUENCES: u32 = 64;
/// The random sequences on a cluster: each begins with empty servers, and the steps are those of one server.
const CLUSTER_SEQUENCES: u32 = 24;

static SALT: std::sync::OnceLock<Salt> = std::sync::OnceLock::new();

/// The fence that goes with a stored total.
#[derive(Clone, Copy, Debug)]
enum At {
    /// It is read now.
    Now,
    /// It was read by the last step that reads.
    Before,
}

#[derive(Clone, Debug)]
enum Step {
    Increment {
        id: usize,
        views: u32,
        key: Option<usize>,
        visitor: Option<usize>,
    },
    Upsert {
        id: usize,
        views: u32,
        key: Option<usize>,
        visitor: Option<usize>,
        stored: Option<(u64, At)>,
    },
    Read,
    Fill {
        id: usize,
        total: u64,
        at: At,
    },
    /// The store has other totals of some items.
    Refresh {
        totals: [Option<u64>; IDS.len()],
        at: At,
    },
    Delete {
        id: usize,
        key: Option<usize>,
    },
    Claim {
        owner: usize,
        events_max: usize,
    },
    TakeOver {
        owner: usize,
        idle: Duration,
    },
    /// One of the batches that were claimed, perhaps acknowledged before.
    Acknowledge {
        batch: usize,
    },
    Depth,
    /// Entries without events in the queue leave the cache.
    Evict,
    /// All batches get an hour older.
    Age,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let id = || 0..IDS.len();
    let views = || 1..5_u32;
    let key = || proptest::option::weighted(0.3, 0..2_usize);
    let visitor = || proptest::option::weighted(0.3, 0..2_usize);
    let at = || prop_oneof![3 => Just(At::Now), 1 => Just(At::Before)];
    let total = || prop_oneof![4 => 0..100_u64, 1 => Just(COUNTED_TOTAL_MAX - 3), 1 => Just((1 << 60) + 1)];
    let stored = proptest::option::weighted(0.7, (total(), at()));
    let idle = prop_oneof![Just(Duration::ZERO), Just(HOUR / 2), Just(HOUR * 24 * 365)];
    let step = prop_oneof![
        4 => (id(), views(), key(), visitor())
            .prop_map(|(id, views, key, visitor)| Step::Increment { id, views, key, visitor }),
        6 => (id(), views(), key(), visitor(), stored)
            .prop_map(|(id, views, key, visitor, stored)| Step::Upsert { id, views, key, visitor, stored }),
        3 => Just(Step::Read),
        3 => (id(), total(), at()).prop_map(|(id, total, at)| Step::Fill { id, total, at }),
        3 => (proptest::array::uniform(proptest::option::of(total())), at())
            .prop_map(|(totals, at)| Step::Refresh { totals, at }),
        1 => (id(), key()).prop_map(|(id, key)| Step::Delete { id, key }),
        5 => (0..OWNERS, 0..6_usize).prop_map(|(owner, events_max)| Step::Claim { owner, events_max }),
        2 => (0..OWNERS, idle).prop_map(|(owner, idle)| Step::TakeOver { owner, idle }),
        5 => any::<usize>().prop_map(|batch| Step::Acknowledge { batch }),
        1 => Just(Step::Depth),
        2 => Just(Step::Evict),
        1 => Just(Step::Age),
    ];
    proptest::collection::vec(step, 1..80)
}

/// A buffer, and what its answers are relative to.
struct Side {
    buffer: Arc<dyn Buffer>,
    first_number: u64,
    first_epoch: u64,
    read: Fence,
    owners: Vec<Owner>,
    /// The batches that were claimed.
    batches: Vec<Batch>,
}

impl Side {
    async fn new(buffer: Arc<dyn Buffer>) -> Self {
        // The first step begins the kind.
        buffer.delete(&ad("first"), None).await.expect("deleted");
        let read = buffer.read(&ads(), &[]).await.expect("read").fence;
        let first_number = buffer.depth(&ads()).await.expect("a depth").oldest;
        let sources = Sources::seeded(7);
        let owners = (0..OWNERS).map(|_| Owner::new(&sources)).collect();
        Side { buffer, first_number, first_epoch: read.0, read, owners, batches: Vec::new() }
    }

    async fn fence(&self, at: At) -> Fence {
        match at {
            At::Now => self.buffer.read(&ads(), &[]).await.expect("read").fence,
            At::Before => self.read,
        }
    }

    async fn stored(&self, total: u64, at: At) -> Stored {
        Stored { fence: self.fence(at).await, total }
    }

    fn claimed(&mut self, batch: Option<Batch>) -> Vec<(u64, String)> {
        let Some(batch) = batch else { return Vec::new() };
        if !self.batches.contains(&batch) {
            self.batches.push(batch.clone());
        }
        let event = |event: &handfast_counters::Event| {
            (event.number - self.first_number, format!("{} {:?}", event.id, event.change))
        };
        batch.events.iter().map(event).collect()
    }

    /// Carries a step out, and returns its answer as a text that both sides should have in common.
    async fn step(&mut self, step: &Step) -> String {
        let buffer = Arc::clone(&self.buffer);
        match *step {
            Step::Increment { id, views, key, visitor } => {
                shown(buffer.increment_if_exists(&view(id, views, key, visitor)).await)
            }
            Step::Upsert { id, views, key, visitor, stored } => {
                let stored = match stored {
                    Some((total, at)) => Some(self.stored(total, at).await),
                    None => None,
                };
                shown(buffer.upsert(&view(id, views, key, visitor), stored).await)
            }
            Step::Read => {
                let ids = IDS.map(|id| ItemId::new(id).expect("an id"));
                let reading = buffer.read(&ads(), &ids).await.expect("read");
                // If all totals are whole, a buffer need not look.
                if reading.totals.iter().all(|total| total.is_some_and(|total| !total.partial)) {
                    return format!("{:?}", reading.totals);
                }
                self.read = reading.fence;
                format!("{:?} at {}", reading.totals, reading.fence.0 - self.first_epoch)
            }
            Step::Fill { id, total, at } => {
                let stored = self.stored(total, at).await;
                shown(buffer.fill(&ad(IDS[id]), stored).await)
            }
            Step::Refresh { totals, at } => {
                let totals = IDS.iter().zip(totals).filter_map(|(id, total)| Some((ad(id).id, total?)));
                shown(buffer.refresh(&ads(), &totals.collect::<Vec<_>>(), self.fence(at).await).await)
            }
            Step::Delete { id, key } => shown(buffer.delete(&ad(IDS[id]), key_named(key).as_ref()).await),
            Step::Claim { owner, events_max } => {
                let batch = buffer.claim(&ads(), &self.owners[owner], events_max).await.expect("claimed");
                format!("{:?}", self.claimed(batch))
            }
            Step::TakeOver { owner, idle } => shown(buffer.take_over(&ads(), &self.owners[owner], idle).await),
            Step::Acknowledge { batch } => match self.batches.len() {
                0 => String::new(),
                count => shown(buffer.acknowledge(&self.batches[batch % count]).await),
            },
            Step::Depth => {
                let depth = buffer.depth(&ads()).await.expect("a depth");
                let [oldest, next] = [depth.oldest, depth.next].map(|number| number - self.first_number);
                format!("{} {} {oldest} {next}", depth.pending, depth.batches)
            }
            Step::Evict | Step::Age => String::new(),
        }
    }
}

fn view(id: usize, views: u32, name: Option<usize>, visitor: Option<usize>) -> View {
    let (item, salt) = (ad(IDS[id]), SALT.get_or_init(|| Salt::new().expect("a salt")));
    // No step lasts as long as the window.
    let with_window = |visitor: usize| Visitor { mark: salt.mark(&item, &visitor.to_string()), window: 100_000 * HOUR };
    let visitor = visitor.map(with_window);
    let view = View::new(item, views, first_day()).expect("a view");
    View { key: key_named(name), visitor, ..view }
}

fn key_named(name: Option<usize>) -> Option<IdempotencyKey> {
    name.and_then(|name| key(&format!("k{name}")))
}

fn shown<T: std::fmt::Debug>(answer: Result<T>) -> String {
    match answer {
        Ok(answer) => format!("{answer:?}"),
        Err(error) => error.to_string(),
    }
}

/// The two sides, and how time passes for them.
struct Pair {
    world: World,
    memory: Arc<MemoryBuffer>,
    clock: Arc<ManualClock>,
    sides: [Side; 2],
}

impl Pair {
    async fn new(world: &World, scripts: &RedisScripts) -> Self {
        for server in world.servers() {
            server.command(&["FLUSHALL"]).await;
        }
        let (sources, clock) = Sources::manual(1);
        let memory = Arc::new(MemoryBuffer::new(sources.clone(), QUEUE_EVENTS_MAX));
        let store = MemoryStore::new(sources.clone());
        let storage = Storage::open(Database::local(store, sources.clone()), "counters").await.expect("a storage");
        let options = RedisBufferOptions { queue_events_max: QUEUE_EVENTS_MAX as u64, ..RedisBufferOptions::default() };
        let redis = RedisBuffer::connect_with_scripts(&world.url(), scripts, storage, sources, options).await;
        let sides = [Side::new(memory.clone()).await, Side::new(Arc::new(redis.expect("a buffer"))).await];
        Pair { world: world.clone(), memory, clock, sides }
    }

    async fn step(&mut self, step: &Step) -> [String; 2] {
        match step {
            Step::Evict => {
                self.memory.evict();
                let mut client = self.world.server().client().await;
                let items: Vec<String> =
                    redis::cmd("KEYS").arg("hf:{ads}:item:*").query_async(&mut client).await.expect("keys");
                for item in items {
                    let expires: i64 = redis::cmd("PTTL").arg(&item).query_async(&mut client).await.expect("a time");
                    if expires >= 0 {
                        redis::cmd("DEL").arg(&item).exec_async(&mut client).await.expect("deleted");
                    }
                }
            }
            Step::Age => {
                self.clock.advance(HOUR);
                let mut client = self.world.server().client().await;
                let since = "hf:{ads}:since";
                let batches: Vec<String> =
                    redis::cmd("ZRANGE").arg(since).arg(0).arg(-1).query_async(&mut client).await.expect("batches");
                for batch in batches {
                    let hour = -i64::try_from(HOUR.as_millis()).expect("a time");
                    redis::cmd("ZINCRBY").arg(since).arg(hour).arg(batch).exec_async(&mut client).await.expect("set");
                }
            }
            _ => {}
        }
        let [memory, redis] = &mut self.sides;
        [memory.step(step).await, redis.step(step).await]
    }
}

/// Sequences in which an event of before a deletion is acknowledged after it, and one that chance rarely makes: a refresh with the totals that are there.
fn written_sequences() -> [Vec<Step>; 4] {
    let count = |views| Step::Upsert { id: 0, views, key: None, visitor: None, stored: Some((10, At::Now)) };
    let claim = |owner| Step::Claim { owner, events_max: 5 };
    // The batches are claimed in the order in which they were made; the first one has the deletion with which a kind begins.
    let deleted = vec![
        count(2),
        claim(0),
        Step::Delete { id: 0, key: None },
        Step::Acknowledge { batch: 0 },
        Step::Evict,
        Step::Read,
        count(1),
        claim(0),
        Step::Read,
    ];
    let made_again = |first| {
        vec![
            count(2),
            claim(0),
            Step::Delete { id: 0, key: None },
            claim(1),
            Step::Acknowledge { batch: 1 },
            Step::Evict,
            first,
            Step::Read,
            Step::Acknowledge { batch: 0 },
            Step::Read,
            Step::Evict,
            Step::Read,
            claim(1),
            Step::Acknowledge { batch: 2 },
            Step::Read,
        ]
    };
    let views = Step::Upsert { id: 0, views: 3, key: None, visitor: None, stored: Some((0, At::Now)) };
    let fill = |id, total| Step::Fill { id, total, at: At::Now };
    let refreshed = vec![
        fill(0, 7),
        fill(1, 7),
        Step::Refresh { totals: [Some(7), Some(8), None], at: At::Now },
        Step::Read,
        Step::Increment { id: 0, views: 1, key: None, visitor: None },
    ];
    [deleted, made_again(views), made_again(fill(0, 0)), refreshed]
}

/// Compares the sides on a sequence; the error is the first difference.
async fn compare_on(world: &World, scripts: &RedisScripts, steps: &[Step]) -> std::result::Result<(), String> {
    let mut pair = Pair::new(world, scripts).await;
    for (at, step) in steps.iter().chain([&Step::Read, &Step::Depth]).enumerate() {
        let [memory, redis] = pair.step(step).await;
        if memory != redis {
            return Err(format!("step {at}, {step:?}: {memory} and {redis}"));
        }
    }
    Ok(())
}

/// Compares the sides on a cluster.
pub(crate) fn on_cluster(runtime: &tokio::runtime::Runtime, world: &World) {
    let config =
        Config { cases: CLUSTER_SEQUENCES, failure_persistence: None, max_shrink_iters: 500, ..Config::default() };
    compare(runtime, world, &RedisScripts::default(), config).expect("the same answers");
}

/// Compares the sides on sequences that are written down and on random ones; the result is the first difference.
fn compare(
    runtime: &tokio::runtime::Runtime,
    world: &World,
    scripts: &RedisScripts,
    config: Config,
) -> std::result::Result<(), String> {
    let mut runner = match std::env::var("CI") {
        Ok(_) => TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha)),
        Err(_) => TestRunner::new(config),
    };
    for steps in written_sequences() {
        runtime.block_on(compare_on(world, scripts, &steps))?;
    }
    let result =
        runner.run(&steps(), |steps| runtime.block_on(compare_on(world, scripts, &steps)).map_err(TestCaseError::fail));
    result.map_err(|error| match error {
        TestError::Fail(why, steps) => format!("{why}\n{steps:#?}"),
        TestError::Abort(why) => why.to_string(),
    })
}

/// Runs a test that is not async with a server.
fn with_server(test: impl FnOnce(&tokio::runtime::Runtime, &World)) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    if let Some(world) = runtime.block_on(World::redis()) {
        test(&runtime, &world);
    }
}

#[test]
fn ext_redis_gives_the_answers_of_the_model() {
    with_server(|runtime, world| {
        let config = Config { cases: SEQUENCES, failure_persistence: None, max_shrink_iters: 500, ..Config::default() };
        compare(runtime, world, &RedisScripts::default(), config).expect("the same answers");
    });
}

#[test]
fn ext_redis_broken_scripts_are_caught() {
    let mutants = [
        ("upsert takes any stored total", "if ARGV[7] ~= '' and ARGV[8] ~= state[1] then", "if false then"),
        ("fill takes any stored total", "if not run or fence ~= epoch then", "if not run then"),
        ("fill does not wait for batches", "redis.call('ZCARD', key('since')) > 0 or", ""),
        ("refresh takes any stored total", "if fence ~= epoch or may_be_saved() then", "if may_be_saved() then"),
        ("refresh does not wait for batches", "if fence ~= epoch or may_be_saved() then", "if fence ~= epoch then"),
        ("a refresh leaves the epoch", "redis.call('HINCRBY', KEYS[1], 'epoch', 1)\n  local items", "local items"),
        ("a deletion forgets its key", "if remembered then redis.call('SET', remembered, '1', 'PX', key_ms) end\n", ""),
        (
            "a deletion does not look for its key",
            "if remembered and redis.call('EXISTS', remembered) == 1 then",
            "if false then",
        ),
        ("a refresh undoes a deletion", "if entry and entry.o == 0 and (", "if entry and ("),
        (
            "a refresh keeps what nothing needs",
            "if entry.p == 0 then\n        redis.call('DEL'",
            "if false then\n        redis.call('DEL'",
        ),
        (
            "a refresh removes views",
            "if entry.p == 0 then\n        redis.call('DEL'",
            "if true then\n        redis.call('DEL'",
        ),
        ("a refresh removes what is right", " and (entry.s ~= stored or entry.g ~= generation) then", " then"),
        ("a refresh leaves totals", "entry.s, entry.g = stored, generation\n        set_entry(id, entry)\n", ""),
        (
            "a claim does not wait for deletions",
            "if is_deleting and redis.call('SISMEMBER'",
            "if false and redis.call('SISMEMBER'",
        ),
        (
            "an acknowledged deletion holds events back",
            "if change == 'D' then redis.call('SREM', key('deleting'), id) end",
            "",
        ),
        ("a deletion parts nothing", "elseif event[1] >= entry.f then", "else"),
        ("a new entry has the events before it", "generation .. number .. '|0')", "generation .. '0|0')"),
        ("a filled entry has the events before it", "f = next_number(), o = 0 }", "f = 0, o = 0 }"),
        ("an open deletion keeps nothing", "(entry and entry.o or 0) + 1", "0"),
        ("acknowledged views leave the total", "if entry.s ~= '' then entry.s = sum(entry.s, views) end", ""),
        ("keys are not remembered", "KEYS[5], '1', 'PX', ARGV[5], 'NX')", "KEYS[5], '1', 'PX', ARGV[5])"),
        (
            "a request with a known key is counted",
            "then return 'remembered|' .. before end",
            "then before = before end",
        ),
        ("marks are not seen", "KEYS[#KEYS], '1', 'PX', ARGV[6], 'NX')", "KEYS[#KEYS], '1', 'PX', ARGV[6])"),
        ("a visitor uses the key up", "if has_key then call('DEL', KEYS[5]) end", ""),
        ("a key beside a mark is not seen", "if has_key and not call", "if has_key and not has_mark and not call"),
        ("the queue has no limit", "> ARGV[4] + 0 then", "> 1000 then"),
        ("the queue has no limit for deletions", "+ claimed >= tonumber(events_max) then", "+ claimed >= 1000 then"),
        ("a refused event stays", "call('LPOP', KEYS[3])", ""),
        (
            "the key of a refused event stays",
            "if KEYS[5] then call('DEL', unpack(KEYS, 5)) end",
            "if KEYS[5] and ARGV[6] ~= '' then call('DEL', KEYS[#KEYS]) end",
        ),
        (
            "the mark of a refused event stays",
            "if KEYS[5] then call('DEL', unpack(KEYS, 5)) end",
            "if KEYS[5] and ARGV[5] ~= '' then call('DEL', KEYS[5]) end",
        ),
        ("claimed events have no part in the limit", "set_claimed(claimed + count)", ""),
        ("acknowledged events keep their part", "set_claimed(claimed - #events)", ""),
        ("numbers are given twice", "redis.call('HSET', KEYS[1], 'tail', int(first + count))", ""),
        ("claimed events stay in the queue", "redis.call('LTRIM', key('pending'), 0, int(-(count + 1)))", ""),
        ("an entry with views expires", ".. string.sub(entry, bar))", ".. string.sub(entry, bar), 'KEEPTTL')"),
        ("a large total is rounded", "if added < 9007199254740992 then", "if true then"),
        ("numbers are written with 14 digits", "return string.format('%.0f', number)", "return tostring(number)"),
        (
            "a claim leaves the epoch",
            "redis.call('HINCRBY', KEYS[1], 'epoch', 1)\n  redis.call('LTRIM'",
            "redis.call('LTRIM'",
        ),
        (
            "the owner before keeps its batch",
            "redis.call('HDEL', key('owners'), redis.call('HGET', key('batches'), number))\n  redis.call('HSET'",
            "redis.call('HSET'",
        ),
    ];
    with_server(|runtime, world| {
        for (name, right, wrong) in mutants {
            let scripts = broken_scripts(name, right, wrong);
            let config =
                Config { cases: 4 * SEQUENCES, failure_persistence: None, max_shrink_iters: 0, ..Config::default() };
            // A script that is broken enough makes a step fail altogether.
            let caught =
                std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| compare(runtime, world, &scripts, config)));
            assert!(!matches!(caught, Ok(Ok(()))), "not caught: {name}");
        }
    });
}
