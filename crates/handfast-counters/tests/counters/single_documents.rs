//! A storage without transactions: what a process leaves that stops in between, and which data it opens.

use std::sync::Arc;

use bson::rawdoc;
use handfast_counters::jiff::civil::date;
use handfast_counters::{Batch, Change, Error, Event, ImportName, Saved, Storage, StorageForm};
use handfast_store::decorator::{Address, Fault, Faulty, Operation, Plan};
use handfast_store::{DocumentStore, MemoryStore, Namespace, StoreExt as _};
use handfast_txn::{Database, PercolatorOptions};
use tokio::task::JoinHandle;

use crate::rebuild::rebuild;
use crate::retention::break_total;
use crate::waiting::until_frozen;
use crate::world::{World, ad, ads, save_all, total, whole};

fn views(number: u64, id: &str, views: u32) -> Event {
    Event { number, id: ad(id).id, change: Change::Views { views, day: date(2026, 11, 30) } }
}

fn deletion(number: u64, id: &str) -> Event {
    Event { number, id: ad(id).id, change: Change::Delete }
}

fn batch(events: impl IntoIterator<Item = Event>) -> Batch {
    Batch { kind: ads(), events: events.into_iter().collect() }
}

async fn storage(world: &World, store: Arc<dyn DocumentStore>) -> handfast_counters::Result<Storage> {
    Storage::open_single_documents(store, world.sources(1), "counters").await
}

/// The stored total of an item, and its views of the last day of November.
async fn stored(storage: &Storage, id: &str) -> (u64, u64) {
    let day = date(2026, 11, 30);
    let days = storage.daily(&ad(id), day, day).await.expect("days");
    (storage.totals(&ads(), &[ad(id).id]).await.expect("totals")[0], days[0].views)
}

/// Begins to save a batch in a process that hangs before the request with this address.
async fn hanging(
    world: &World,
    batch: &Batch,
    address: Address,
) -> (Arc<Faulty<MemoryStore>>, JoinHandle<handfast_counters::Result<Saved>>) {
    let faulty = Arc::new(Faulty::new(world.store.clone(), Plan::at_request(address, Fault::FreezeBefore)));
    let (slow, batch) = (storage(world, faulty.clone()).await.expect("a storage"), batch.clone());
    let saving = tokio::spawn(async move { slow.save(&batch).await });
    until_frozen(&faulty, &saving).await;
    (faulty, saving)
}

/// The request that changes days which are there.
fn change_of_days() -> Address {
    Address::first(Operation::Update).of("days")
}

#[tokio::test]
async fn a_check_tells_what_is_being_saved_from_damage() {
    let world = World::in_memory().single_documents();
    let counters = world.healthy(1).await;
    let storage = counters.storage();
    storage.save(&batch([views(1, "a", 1), views(2, "b", 2), views(3, "c", 3)])).await.expect("saved");
    let (faulty, saving) = hanging(&world, &batch([views(4, "a", 10), views(5, "b", 20)]), change_of_days()).await;
    assert_eq!((stored(storage, "a").await, stored(storage, "b").await), ((11, 1), (22, 2)));
    let verification = storage.verify(None, |_| ()).await.expect("checked");
    assert_eq!((verification.differences, verification.in_progress, verification.items), (vec![], 2, 3));
    break_total(&world, "c", 100).await;
    let verification = storage.verify(None, |_| ()).await.expect("checked");
    assert_eq!((verification.differences.len(), verification.in_progress), (1, 2));
    assert_eq!(verification.differences[0].item, ad("c"));
    let (items, rebuilt) = rebuild(&counters, None).await.expect("rebuilt");
    assert_eq!((items, rebuilt), (3, verification.differences));
    faulty.release();
    assert_eq!(saving.await.expect("ended").expect("saved"), Saved::Now);
    for (id, views) in [("a", 11), ("b", 22), ("c", 3)] {
        assert_eq!(stored(storage, id).await, (views, views), "{id}");
    }
    save_all(&counters).await;
}

/// A process hangs before it changes the totals, or the days, of an item. Another one saves the batch, the item is deleted and forgotten, and has new
/// views. Then the first process goes on.
#[tokio::test]
async fn a_process_that_comes_back_after_a_week_changes_nothing() {
    for address in [
        Address::first(Operation::Update).of("totals"),
        change_of_days(),
        Address::second(Operation::Update).of("days"),
    ] {
        let world = World::in_memory().single_documents();
        let healthy = storage(&world, world.store.clone()).await.expect("a storage");
        let late = batch([views(1, "a", 5), views(2, "b", 1)]);
        let (faulty, saving) = hanging(&world, &late, address).await;
        world.clock.advance(std::time::Duration::from_secs(7 * 24 * 3_600));
        healthy.save(&late).await.expect("saved");
        healthy.save(&batch([deletion(3, "a")])).await.expect("saved");
        healthy.forget_batches(&ads(), 4).await.expect("forgotten");
        let days = Namespace::new("counters", "days").expect("a name");
        assert!(world.store.find_one(&days, rawdoc! { "_id.id": "a" }).await.expect("read").is_none(), "removed");
        healthy.save(&batch([views(4, "a", 100)])).await.expect("saved");
        faulty.release();
        saving.await.expect("ended").expect("saved by another process");
        assert_eq!((stored(&healthy, "a").await, stored(&healthy, "b").await), ((100, 100), (1, 1)));
        assert_eq!(healthy.save(&late).await.expect("asked"), Saved::Before);
        assert_eq!(stored(&healthy, "a").await, (100, 100));
    }
}

/// The queue has lost a batch of which a process has saved a part.
#[tokio::test]
async fn a_batch_that_was_left_in_part_is_finished_by_the_next_pass() {
    let world = World::in_memory().single_documents();
    let counters = world.healthy(1).await;
    let (_hangs, saving) = hanging(&world, &batch([views(1, "a", 5)]), change_of_days()).await;
    saving.abort();
    assert_eq!(stored(counters.storage(), "a").await, (5, 0));
    assert_eq!(counters.storage().last_number(&ads()).await.expect("a number"), 1, "it is not given again");
    counters.storage().forget_batches(&ads(), 10).await.expect("forgotten");
    assert_eq!(stored(counters.storage(), "a").await, (5, 5));
    save_all(&counters).await;
}

#[tokio::test]
async fn a_deletion_that_is_saved_late_keeps_later_views() {
    let world = World::in_memory().single_documents();
    let storage = storage(&world, world.store.clone()).await.expect("a storage");
    for saved in [
        batch([views(1, "a", 1)]),
        batch([views(4, "a", 1_000), views(5, "a", 10_000)]),
        batch([views(2, "a", 10), deletion(3, "a")]),
        batch([views(6, "a", 100_000)]),
    ] {
        storage.save(&saved).await.expect("saved");
    }
    assert_eq!(stored(&storage, "a").await, (111_000, 111_000));
    assert_eq!(storage.verify(None, |_| ()).await.expect("checked").differences, []);
}

#[tokio::test]
async fn data_of_the_other_form_are_refused_and_both_are_named() {
    let invalid = |error: Option<Error>| match error {
        Some(Error::Invalid { what }) => what,
        other => panic!("{other:?}"),
    };
    let both = |what: &str| assert!(what.contains("`handfast`") && what.contains("`none`"), "{what}");
    let world = World::in_memory();
    let single = storage(&world, world.store.clone()).await.expect("a storage");
    assert_eq!(single.form(), StorageForm::SingleDocuments);
    both(&invalid(world.start(1, world.store.clone()).await.err()));
    let import = single.begin_import(ImportName::new("may").expect("a name")).await;
    assert!(invalid(import.err()).contains("an import needs transactions"));
    let queue = World { memory: None, ..World::in_memory().single_documents() };
    assert!(invalid(queue.start(1, queue.store.clone()).await.err()).contains("needs transactions"));

    let world = World::in_memory();
    let (sources, options) = (world.sources(1), PercolatorOptions::default());
    let database = Database::percolator(world.store.clone(), sources, options).expect("a database");
    let transactions = Storage::open(database, "counters").await.expect("a storage");
    transactions.save(&batch([views(1, "a", 1)])).await.expect("saved");
    both(&invalid(storage(&world, world.store.clone()).await.err()));
    assert_eq!(StorageForm::recorded(&world.store, "counters").await.expect("read"), StorageForm::Transactions);
}

/// A directory, whose documents have no numbers of events, is copied into a store.
#[tokio::test]
async fn documents_from_a_directory_are_taken_over() {
    let world = World::in_memory();
    let counters = world.healthy(1).await;
    for id in ["a", "b"] {
        counters.view(ad(id), 5, None).await.expect("counted");
    }
    counters.flush().await.expect("saved");
    let single = world.clone().single_documents();
    let counters = single.healthy(2).await;
    counters.view(ad("a"), 2, None).await.expect("counted");
    counters.delete(&ad("b"), None).await.expect("deleted");
    save_all(&counters).await;
    assert_eq!((stored(counters.storage(), "a").await, stored(counters.storage(), "b").await), ((7, 7), (0, 0)));
    assert_eq!(total(&counters, "b").await, whole(0));
    let trimmed = counters.storage().trim(date(2027, 1, 1), u64::MAX, |_| ()).await.expect("removed");
    assert_eq!((trimmed.months, trimmed.views), (1, 7));
    save_all(&counters).await;

    // A name says that documents have a batch, and they do not say so.
    let world = World::in_memory();
    let counters = world.healthy(1).await;
    counters.storage().save(&batch([views(1, "a", 1)])).await.expect("saved");
    let refused = storage(&world, world.store.clone()).await.err();
    assert!(matches!(&refused, Some(Error::Invalid { what }) if what.contains("not forgotten")), "{refused:?}");
}

/// A deletion comes between the look for it and the creation of a month.
#[tokio::test]
async fn a_month_that_is_created_beside_a_deletion_stays_empty() {
    let world = World::in_memory().single_documents();
    let healthy = storage(&world, world.store.clone()).await.expect("a storage");
    let (faulty, saving) =
        hanging(&world, &batch([views(2, "a", 5)]), Address::first(Operation::Update).of("days")).await;
    healthy.save(&batch([deletion(3, "a")])).await.expect("saved");
    faulty.release();
    saving.await.expect("ended").expect("saved");
    assert_eq!(stored(&healthy, "a").await, (0, 0));
    healthy.forget_batches(&ads(), 4).await.expect("forgotten");
    let verification = healthy.verify(None, |_| ()).await.expect("checked");
    assert_eq!((verification.items, verification.differences), (0, vec![]), "nothing is left");
}

/// A batch that the queue has lost is admitted between the two requests that raise the bound.
#[tokio::test]
async fn the_bound_is_not_raised_over_a_batch_that_is_admitted() {
    let world = World::in_memory().single_documents();
    let healthy = storage(&world, world.store.clone()).await.expect("a storage");
    healthy.save(&batch([views(1, "a", 1)])).await.expect("saved");
    let raise = Plan::at_request(Address::first(Operation::Update).of("batches"), Fault::FreezeBefore);
    let raising = Arc::new(Faulty::new(world.store.clone(), raise));
    let forgetting = storage(&world, raising.clone()).await.expect("a storage");
    let forgetting = tokio::spawn(async move { forgetting.forget_batches(&ads(), 10).await });
    until_frozen(&raising, &forgetting).await;
    let (faulty, saving) = hanging(&world, &batch([views(2, "a", 10)]), change_of_days()).await;
    raising.release();
    forgetting.await.expect("ended").expect("nothing to forget yet");
    healthy.save(&batch([views(20, "a", 100)])).await.expect("saved");
    healthy.forget_batches(&ads(), 30).await.expect("forgotten");
    assert_eq!(stored(&healthy, "a").await, (111, 111));
    faulty.release();
    saving.await.expect("ended").expect("saved by another process");
    assert_eq!(stored(&healthy, "a").await, (111, 111));
}
