//! The operations that counting and saving 10,000 views ask of the store, counted.

use std::sync::Arc;

use anyhow::{Result, ensure};
use handfast_counters::jiff::civil::{Date, date};
use handfast_counters::{
    Buffer as _, Counters, CountersOptions, EmbeddedBuffer, EmbeddedBufferOptions, Item, Storage, View,
};
use handfast_embedded::EmbeddedStore;
use handfast_store::decorator::{Metered, Operation};
use handfast_store::{DocumentStore, Sources};
use handfast_txn::Database;
use tokio::task::JoinSet;

use super::super::report::Measurement;

const VIEWS: u64 = 10_000;
const ITEMS: u64 = 300;
/// The days of the views: the last of a month and the first of the next one, so that each item has two documents.
const DAYS: [Date; 2] = [date(2026, 11, 30), date(2026, 12, 1)];
/// The tasks that count the views.
const TASKS: u64 = 64;

/// Counts and saves the views, and returns the operations of each.
pub(super) async fn run(embedded: &EmbeddedStore, sources: &Sources) -> Result<Vec<Measurement>> {
    let store = Arc::new(Metered::new(embedded.clone(), Arc::clone(&sources.clock)));
    let storage = Storage::open(Database::local(store.clone(), sources.clone()), "counters_flush").await?;
    let queue: Arc<dyn DocumentStore> = store.clone();
    let options = EmbeddedBufferOptions::default();
    let buffer = Arc::new(EmbeddedBuffer::open(queue, "counters_flush", &storage, sources.clone(), options).await?);
    let before = operations(&store);
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let buffer = Arc::clone(&buffer);
        tasks.spawn(async move {
            for number in (task..VIEWS).step_by(usize::try_from(TASKS)?) {
                let day = DAYS.into_iter().nth(usize::from(number >= VIEWS / 2)).unwrap_or_default();
                let view = View::new(Item::new("bench", &(number % ITEMS).to_string())?, 1, day)?;
                buffer.upsert(&view, None).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(counted) = tasks.join_next().await {
        counted??;
    }
    let counted = operations(&store) - before;
    let counters = Counters::new(buffer, storage, sources.clone(), CountersOptions::default());
    let before = [operations(&store), of(&store, Operation::Commit), of(&store, Operation::SnapshotGet)];
    let start = sources.clock.elapsed();
    let flushed = counters.flush().await?;
    let took = sources.clock.elapsed().saturating_sub(start);
    ensure!((flushed.batches, flushed.views) == (1, VIEWS), "a flush saved {flushed:?}");
    let [all, commits, reads] = before;
    let (commits, reads) = (of(&store, Operation::Commit) - commits, of(&store, Operation::SnapshotGet) - reads);
    let saved = operations(&store) - all - reads;
    let bound = ITEMS + ITEMS * DAYS.len() as u64 + 3;
    Ok(vec![
        Measurement::new("store operations of a view", counted as f64 / VIEWS as f64, "operations", 2.0)
            .with_note(format!("{TASKS} views at a time")),
        Measurement::new("store operations of a flush of 10000 views", saved as f64, "operations", bound as f64)
            .with_note(format!(
                "{ITEMS} items, {} days, {commits} transactions, {reads} documents read again in the snapshot, {:.0} ms",
                DAYS.len(),
                took.as_secs_f64() * 1e3
            )),
    ])
}

fn operations(store: &Metered<EmbeddedStore>) -> u64 {
    store.report().iter().map(|of| of.started).sum()
}

fn of(store: &Metered<EmbeddedStore>, operation: Operation) -> u64 {
    let report = store.report();
    report.iter().find(|of| of.operation == operation).map_or(0, |of| of.started)
}
