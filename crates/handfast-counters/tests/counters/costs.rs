//! The operations that counting and saving views ask of the store, counted. A flush is one transaction, whose requests do not grow with the
//! number of views; a document is read once in the snapshot: by the search for those that are there, or by the insert of one that is not.

use std::sync::Arc;
use std::time::Duration;

use handfast_counters::{
    BATCH_ITEMS_MAX, Buffer, Counters, CountersOptions, EmbeddedBuffer, EmbeddedBufferOptions, Flushed, MemoryBuffer,
    Owner, RedisBuffer, RedisBufferOptions, Storage, View,
};
use handfast_store::decorator::{Metered, Operation};
use handfast_store::{DocumentStore, MemoryStore};
use handfast_txn::{Database, Local, PercolatorOptions};

use crate::world::{World, ad, ads, first_day, save_all, total, whole};

const ITEMS: u64 = 300;
const VIEWS: u64 = 10_000;
/// The requests that arrive together, and become one document of the queue.
const TOGETHER: usize = 20;
/// The documents of days that a flush writes: of two months for each item.
const DAYS: u64 = 2 * ITEMS;
/// The most reads of a flush besides those of the documents that it inserts: finds and their pages, and the name of the batch.
const FINDS_MAX: u64 = 30;
/// A store that counts what it is asked.
type Store = Arc<Metered<Arc<MemoryStore>>>;

/// The transactions of the storage, and with them the buffer that goes with it.
#[derive(Clone, Copy, Debug)]
enum Form {
    /// Transactions of a store that commits several documents at once, and a queue in it.
    Embedded,
    /// Transactions on single documents; the queue is elsewhere, as it is in Redis.
    SingleDocuments,
    /// No transactions; the queue is elsewhere, too.
    NoTransactions,
}

fn store(world: &World) -> Store {
    Arc::new(Metered::new(world.store.clone(), world.clock.clone()))
}

async fn counters(world: &World, store: &Store, form: Form) -> (Counters, Option<Database>) {
    let sources = world.sources(1);
    let database = match form {
        Form::Embedded => Some(Database::new(Arc::new(Local::new(store.clone(), sources.clone())), sources.clone())),
        Form::SingleDocuments => {
            let database = Database::percolator(store.clone(), sources.clone(), PercolatorOptions::default());
            Some(database.expect("a database"))
        }
        Form::NoTransactions => None,
    };
    let storage = match &database {
        Some(database) => Storage::open(database.clone(), "counters").await,
        None => Storage::open_single_documents(store.clone(), sources.clone(), "counters").await,
    };
    let storage = storage.expect("a storage");
    let buffer: Arc<dyn Buffer> = match form {
        Form::Embedded => {
            let (store, options): (Arc<dyn DocumentStore>, _) = (store.clone(), EmbeddedBufferOptions::default());
            let buffer = EmbeddedBuffer::open(store, "counters", &storage, sources.clone(), options).await;
            Arc::new(buffer.expect("a buffer"))
        }
        Form::SingleDocuments | Form::NoTransactions => Arc::new(MemoryBuffer::new(sources.clone(), 1_000_000)),
    };
    (Counters::new(buffer, storage, sources, CountersOptions::default()), database)
}

/// Counts views of all items on two days, the last of a month and the first of the next one.
async fn count_views(world: &World, counters: &Counters) {
    for _ in 0..2 {
        for first in (0..VIEWS / 2).step_by(TOGETHER) {
            let requests = (first..first + TOGETHER as u64).map(|number| {
                let counters = counters.clone();
                tokio::spawn(async move { counters.view(ad(&(number % ITEMS).to_string()), 1, None).await })
            });
            for request in requests.collect::<Vec<_>>() {
                request.await.expect("ended").expect("counted");
            }
        }
        world.clock.advance(Duration::from_secs(24 * 3_600));
    }
}

/// Returns the number of requests of each operation.
fn counted(store: &Store) -> impl Fn(Operation) -> u64 {
    let report = store.report();
    move |operation| report.iter().find(|of| of.operation == operation).map_or(0, |of| of.started)
}

fn all(store: &Store) -> u64 {
    store.report().iter().map(|of| of.started).sum()
}

async fn flush_costs(form: Form, requests_max: u64) {
    let world = World::embedded();
    let store = store(&world);
    let (counters, database) = counters(&world, &store, form).await;
    // The first time creates all documents, the second one changes them.
    for time in 1..=2 {
        count_views(&world, &counters).await;
        let (before, before_of) = (all(&store), counted(&store));
        assert_eq!(counters.flush().await.expect("saved"), Flushed { batches: 1, views: VIEWS });
        if let Some(database) = &database {
            database.flush().await.expect("flushed");
        }
        let after_of = counted(&store);
        let since = |operation| after_of(operation) - before_of(operation);
        // In a snapshot within the process: a document, or a find of one and its page.
        let reads: u64 =
            [Operation::SnapshotGet, Operation::SnapshotFind, Operation::NextPage].map(&since).iter().sum();
        let requests = all(&store) - before - reads;
        println!("{form:?}, time {time}: {requests} requests, and {reads} reads");
        assert!(requests <= requests_max, "{form:?}, time {time}: {requests} are more than {requests_max}");
        let inserted = if time == 1 { ITEMS + DAYS } else { 0 };
        assert!(reads <= inserted + FINDS_MAX, "{form:?}, time {time}: {reads} reads");
        if let Form::Embedded = form {
            // The views, and the names of batches that are forgotten.
            assert_eq!(since(Operation::Commit), 2);
        }
    }
    save_all(&counters).await;
    assert_eq!(total(&counters, "0").await, whole(2 * 2 * (VIEWS / 2).div_ceil(ITEMS)));
}

#[tokio::test]
async fn a_flush_of_many_views_is_one_transaction_of_few_operations() {
    flush_costs(Form::Embedded, 40).await;
}

/// While a transaction of thousands of documents is committed, no view can be: the seed's service has to answer within milliseconds.
#[tokio::test]
async fn many_items_are_saved_in_transactions_of_some_hundred_items() {
    const MANY: u64 = 1_201;
    let world = World::embedded();
    let store = store(&world);
    let (counters, _) = counters(&world, &store, Form::Embedded).await;
    let requests = (0..MANY).map(|number| {
        let counters = counters.clone();
        tokio::spawn(async move { counters.view(ad(&number.to_string()), 1, None).await })
    });
    for request in requests.collect::<Vec<_>>() {
        request.await.expect("ended").expect("counted");
    }
    let before = counted(&store)(Operation::Commit);
    assert_eq!(counters.flush().await.expect("saved"), Flushed { batches: 3, views: MANY });
    // Of 500 items at most each, and the names of batches that are forgotten.
    assert_eq!(counted(&store)(Operation::Commit) - before, 3 + 1);
    save_all(&counters).await;
    assert_eq!(total(&counters, "1200").await, whole(1));
}

#[tokio::test]
async fn ext_redis_a_batch_has_a_limited_number_of_items() {
    let Some(world) = World::redis().await else { return };
    let options = RedisBufferOptions { response_timeout: Duration::from_secs(60), ..RedisBufferOptions::default() };
    let storage = world.healthy(1).await.storage().clone();
    let buffer = RedisBuffer::connect(&world.url(), storage, world.sources(1), options).await.expect("a buffer");
    let items = BATCH_ITEMS_MAX as u64 + 1;
    // Each item twice: what counts is items, not views.
    for number in (0..items).flat_map(|number| [number, number]) {
        let view = View::new(ad(&number.to_string()), 1, first_day()).expect("a view");
        buffer.upsert(&view, None).await.expect("counted");
    }
    let owner = Owner::new(&world.sources(5));
    let mut batches = Vec::new();
    while let Some(batch) = buffer.claim(&ads(), &owner, 10_000).await.expect("claimed") {
        batches.push(batch.events.len());
        buffer.acknowledge(&batch).await.expect("acknowledged");
    }
    assert_eq!(batches, [2 * BATCH_ITEMS_MAX, 2]);
}

#[tokio::test]
async fn a_flush_over_single_documents_takes_few_operations() {
    flush_costs(Form::SingleDocuments, 80).await;
}

/// Each document is changed by one statement; the requests do not grow with the number of documents up to a thousand.
#[tokio::test]
async fn a_flush_without_transactions_takes_few_requests() {
    flush_costs(Form::NoTransactions, 40).await;
}

/// Requests that arrive together are one insert; a request alone is one, too.
#[tokio::test]
async fn a_view_of_a_cached_item_is_one_operation_at_most() {
    let world = World::embedded();
    let store = store(&world);
    let (counters, _) = counters(&world, &store, Form::Embedded).await;
    counters.view(ad("7"), 1, None).await.expect("counted");
    let before = all(&store);
    for _ in 0..10 {
        counters.view(ad("7"), 1, None).await.expect("counted");
    }
    assert_eq!(all(&store) - before, 10);
    let before = all(&store);
    let requests = (0..100).map(|_| {
        let counters = counters.clone();
        tokio::spawn(async move { counters.view(ad("7"), 1, None).await })
    });
    for request in requests.collect::<Vec<_>>() {
        request.await.expect("ended").expect("counted");
    }
    let operations = all(&store) - before;
    assert!(operations <= 3, "{operations} operations of 100 requests");
    let before = all(&store);
    assert_eq!(total(&counters, "7").await, whole(111));
    assert_eq!(all(&store) - before, 0, "a total is read from the cache");
}
