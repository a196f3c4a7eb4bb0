//! Views that are saved through MongoDB's driver in our own server, with faults of the network at each operation. Behind each, a new process saves what the
//! queue has: what was answered is there, and what is in doubt is there once or not at all.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use handfast_blackpipe::{Exploration, Fault, ObservedOperation, PairOutcome};
use handfast_counters::{Counters, CountersOptions, Storage};
use handfast_mongodb::{ConnectOptions, connect};
use handfast_server::{Address, Listeners, Options, Server, ShutdownHandle};
use handfast_store::{DocumentStore, MemoryStore, Sources};
use handfast_txn::Database;

use crate::crash::{Answers, Bounds};
use crate::waiting::PATIENCE;
use crate::world::{World, save_all, total};

/// The least number of pairs: a scenario that makes fewer operations than it did tests less.
const PAIRS_MIN: usize = 40;

/// A server for one pair, which stops when this is dropped.
struct Served {
    database: Database,
    world: World,
    handle: ShutdownHandle,
}

impl Served {
    async fn start() -> (String, Self) {
        let database = Database::local(MemoryStore::new(Sources::seeded(1)), Sources::seeded(1));
        let listen = Address::Tcp("127.0.0.1:0".parse().expect("an address"));
        let listeners = Listeners::bind(&[listen]).await.expect("a port");
        let server = Server::new(listeners, Options::default(), database.clone());
        let Some(Address::Tcp(address)) = server.addresses().first().cloned() else { panic!("no address") };
        let handle = server.shutdown_handle();
        tokio::spawn(server.run());
        (address.to_string(), Served { database, world: World::in_memory(), handle })
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.handle.shutdown();
    }
}

/// Starts a process whose queue is that of the world, and which saves in another store.
async fn process(world: &World, store: Arc<dyn DocumentStore>, number: u64) -> handfast_counters::Result<Counters> {
    let sources = world.sources(number);
    let storage = Storage::open_single_documents(store, sources.clone(), "counters").await?;
    let buffer = world.memory.clone().expect("a queue in memory");
    let idle = Duration::ZERO;
    let options = CountersOptions { batch_events: 3, idle, read_time_max: PATIENCE, ..CountersOptions::default() };
    Ok(Counters::new(buffer, storage, sources, options))
}

/// Explores two passes that save views of an item, which is new for the first one.
async fn explored() -> Vec<(String, PairOutcome)> {
    let (current, bounds) = (Mutex::new(None), Mutex::new(Bounds::new()));
    let start = async || {
        let (address, served) = Served::start().await;
        *current.lock().expect("a lock") = Some(served.world.clone());
        (address, served)
    };
    let scenario = async |uri: String| {
        let world = current.lock().expect("a lock").take().expect("a server was started");
        let connection = connect(&uri, Sources::seeded(2), ConnectOptions::default()).await.expect("a connection");
        let mut answers = Answers::default();
        if let Ok(counters) = process(&world, connection.store, 1).await {
            answers.view(&counters, "a", 1, None).await;
            drop(counters.flush().await);
            answers.view(&counters, "a", 100, None).await;
            drop(counters.flush().await);
        }
        *bounds.lock().expect("a lock") = answers.bounds;
    };
    let invariant = async |served: &Served| {
        let store = Arc::new(served.database.clone());
        let counters = process(&served.world, store, 2).await.map_err(|error| error.to_string())?;
        save_all(&counters).await;
        let bounds = std::mem::take(&mut *bounds.lock().expect("a lock"));
        for (id, (least, most)) in bounds {
            let views = total(&counters, id).await.views;
            if !(least..=most).contains(&views) {
                return Err(format!("{id} has {views} views, and must have {least} to {most}"));
            }
        }
        Ok(())
    };
    // The connection tries what the server can do in a collection of its own.
    let only = |operation: &ObservedOperation| {
        operation.collection.as_deref().is_some_and(|collection| collection.starts_with("counters."))
    };
    let faults = vec![Fault::LoseRequest, Fault::LoseReply, Fault::Duplicate];
    let exploration = Exploration { faults, only, ..Exploration::default() };
    let explored = exploration.explore(start, scenario, invariant).await.expect("right without any fault");
    explored.pairs.into_iter().map(|(pair, outcome)| (pair.to_string(), outcome)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_or_doubled_by_a_fault_of_the_network() {
    let pairs = explored().await;
    println!("{} pairs over the wire", pairs.len());
    let wrong: Vec<_> = pairs.iter().filter(|(_, outcome)| *outcome != PairOutcome::Right).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(pairs.len() >= PAIRS_MIN, "{pairs:#?}");
}
