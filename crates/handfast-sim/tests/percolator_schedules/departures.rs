//! A collection is dropped or renamed beside those who commit in it and in another one: nothing is half lost.
//!
//! Each transaction puts one number into both collections, the first of which has its primary and goes away meanwhile, twice. What
//! was acknowledged is in the one that stays; what was refused is nowhere. A collection that is renamed loses nothing, so there each number
//! is in both or in none.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bson::{DateTime, rawdoc};
use handfast_store::decorator::{Fault, Plan};
use handfast_store::{DocumentStore, Find, MemoryStore, Namespace, RenameCollection, Sources, StoreExt};
use handfast_txn::{Database, Error, Percolator};

use crate::conductor::{Conductor, Gate, Weather};
use crate::seeds;
use crate::stage::options;

/// Clients, on two processes by turns..
const CLIENTS: i32 = 3;
/// ..and what each of them tries.
const NUMBERS: i32 = 4;
/// Times that the collection goes away.
const DEPARTURES: usize = 2;

/// Seeds of each kind of weather, if nothing else is said: some ten seconds' worth.
const SCHEDULES: u64 = 40;

/// What a client was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    Committed,
    Refused,
    Unknown,
}

fn named(collection: &str) -> Namespace {
    Namespace::new("sim", collection).unwrap()
}

fn moved(time: usize) -> Namespace {
    named(&format!("moved{time}"))
}

async fn put(database: &Database, number: i32) -> Told {
    let put = async {
        let tx = database.begin().await?;
        for namespace in [named("going"), named("kept")] {
            tx.insert_one(&namespace, rawdoc! { "_id": number }).await?;
        }
        tx.commit().await
    };
    match put.await {
        Ok(_) => Told::Committed,
        Err(Error::CommitUnknown { .. }) => Told::Unknown,
        Err(Error::Conflict(_) | Error::Store(_)) => Told::Refused,
    }
}

async fn pause() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

async fn numbers(database: &Database, namespaces: &[Namespace]) -> BTreeSet<i32> {
    let mut numbers = BTreeSet::new();
    for namespace in namespaces {
        let found = database.find_all(Find::new(namespace.clone(), rawdoc! {})).await.unwrap();
        numbers.extend(found.iter().map(|document| document.get_i32("_id").unwrap()));
    }
    numbers
}

/// Plays the schedule of a seed. Returns what the clients were told, and what is wrong.
async fn play(seed: u64, weather: Weather, is_renamed: bool) -> (Vec<Told>, Vec<String>) {
    let (sources, clock) = Sources::manual(seed);
    clock.set(DateTime::from_millis(0));
    let store: Arc<dyn DocumentStore> = Arc::new(MemoryStore::new(sources.clone()));
    let gates: Vec<_> =
        (0..4).map(|_| Arc::new(Gate::new(Arc::clone(&store), Plan::always(Fault::FreezeBefore)))).collect();
    let open = |gate: &Arc<Gate>| {
        Database::percolator(Arc::clone(gate) as Arc<dyn DocumentStore>, sources.clone(), options()).unwrap()
    };
    let mut running = Vec::new();
    for client in 0..CLIENTS {
        let database = open(&gates[client as usize % 2]);
        running.push(tokio::spawn(async move {
            let mut told = Vec::new();
            for number in client * NUMBERS..(client + 1) * NUMBERS {
                told.push((number, put(&database, number).await));
                pause().await;
            }
            told
        }));
    }
    let database = open(&gates[2]);
    let going = tokio::spawn(async move {
        for time in 0..DEPARTURES {
            pause().await;
            // What fails was not done, or is done later.
            let _ = match is_renamed {
                true => {
                    let request = RenameCollection { from: named("going"), to: moved(time), drop_target: false };
                    database.rename_collection(request).await
                }
                false => database.drop_collection(&named("going")).await.map(drop),
            };
        }
    });
    let engine = Percolator::new(Arc::clone(&gates[3]) as Arc<dyn DocumentStore>, sources.clone(), options()).unwrap();
    let cleaning = tokio::spawn(async move {
        loop {
            let _ = engine.clean().await;
            pause().await;
        }
    });

    let mut conductor = Conductor::new(gates, vec![Arc::clone(&clock)], seed, weather);
    let is_done = || going.is_finished() && running.iter().all(tokio::task::JoinHandle::is_finished);
    conductor.conduct(is_done, async || {}).await;
    cleaning.abort();
    let mut told = Vec::new();
    for client in running {
        told.extend(client.await.unwrap());
    }
    // What is late arrives; then everything runs out.
    for gate in &conductor.gates {
        gate.restart();
        gate.deliver_late().await;
    }
    let cleaner = Percolator::new(Arc::clone(&store), sources.clone(), options()).unwrap();
    for _ in 0..2 {
        clock.advance(Duration::from_secs(1_300));
        cleaner.clean().await.unwrap();
    }
    let reader = Database::percolator(store, sources, options()).unwrap();
    let kept = numbers(&reader, &[named("kept")]).await;
    let names: Vec<_> = (0..DEPARTURES).map(moved).chain([named("going")]).collect();
    let going = numbers(&reader, &names).await;
    let mut complaints = Vec::new();
    for (number, told) in &told {
        let (is_kept, is_there) = (kept.contains(number), going.contains(number));
        let is_right = match told {
            Told::Committed => is_kept && (is_there || !is_renamed),
            Told::Refused => !is_kept && !is_there,
            Told::Unknown if is_renamed => is_kept == is_there,
            Told::Unknown => is_kept || !is_there,
        };
        if !is_right {
            complaints.push(format!("{number}: {told:?}, kept {is_kept}, where it goes {is_there}"));
        }
    }
    (told.into_iter().map(|(_, told)| told).collect(), complaints)
}

async fn nothing_is_half_lost(weather: Weather) {
    let (mut committed, mut refused, mut unknown) = (0, 0, 0);
    for seed in seeds(SCHEDULES) {
        let (told, complaints) = play(seed, weather, seed % 2 == 0).await;
        assert!(complaints.is_empty(), "{weather:?} seed {seed}:\n{}", complaints.join("\n"));
        let count = |of| told.iter().filter(|told| **told == of).count() as u64;
        committed += count(Told::Committed);
        refused += count(Told::Refused);
        unknown += count(Told::Unknown);
    }
    let schedules = seeds(SCHEDULES).count() as u64;
    println!("{weather:?}: {schedules} schedules; {committed} committed, {refused} refused, {unknown} unknown");
    if schedules > 1 {
        assert!(committed > schedules && refused > schedules, "{committed} committed, {refused} refused");
    }
}

#[tokio::test(start_paused = true)]
async fn departures_while_locks_run_out() {
    nothing_is_half_lost(Weather::Slow).await;
}

#[tokio::test(start_paused = true)]
async fn departures_with_lost_late_and_repeated_requests() {
    nothing_is_half_lost(Weather::Lossy).await;
}

#[tokio::test(start_paused = true)]
async fn departures_with_crashes() {
    nothing_is_half_lost(Weather::Deadly).await;
}
