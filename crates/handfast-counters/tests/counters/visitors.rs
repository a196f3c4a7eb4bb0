//! One view of each visitor in a window.

use std::sync::Arc;
use std::time::Duration;

use handfast_counters::{CountOutcome, Counters, Error, Result, View};
use handfast_store::decorator::Fault;

use crate::faulty_buffer::FaultyBuffer;
use crate::world::{QUEUE_EVENTS_MAX, World, ad, key, on_both_forms, save_all, total, whole};

const WINDOW: Duration = Duration::from_secs(30 * 60);

async fn view(counters: &Counters, id: &str, visitor: &str, name: Option<&str>) -> View {
    let visitor = counters.visitor(&ad(id), visitor, WINDOW).await.expect("a visitor");
    let view = View::new(ad(id), 1, counters.today().expect("a day")).expect("a view");
    View { visitor: Some(visitor), key: name.and_then(key), ..view }
}

async fn count(counters: &Counters, id: &str, visitor: &str) -> CountOutcome {
    counters.count(&view(counters, id, visitor, None).await).await.expect("an outcome")
}

fn counted(views: u64) -> CountOutcome {
    CountOutcome::Counted(whole(views))
}

fn repeated(views: u64) -> CountOutcome {
    CountOutcome::Repeated(whole(views))
}

async fn a_visitor_is_counted_once_in_a_window(world: World) {
    let counters = world.healthy(1).await;
    assert_eq!(count(&counters, "7", "a").await, counted(1));
    assert_eq!(count(&counters, "7", "a").await, repeated(1));
    assert_eq!(count(&counters, "7", "b").await, counted(2));
    assert_eq!(count(&counters, "8", "a").await, counted(1));
    save_all(&counters).await;
    assert_eq!(count(&counters, "7", "a").await, repeated(2), "also when it is saved");
    world.advance(WINDOW / 2).await;
    assert_eq!(count(&counters, "7", "a").await, repeated(2), "which does not begin a new window");
    world.advance(WINDOW / 2).await;
    assert_eq!(count(&counters, "7", "a").await, counted(3));
    assert_eq!(count(&counters, "7", "a").await, repeated(3));
    save_all(&counters).await;
    assert_eq!((total(&counters, "7").await, total(&counters, "8").await), (whole(3), whole(1)));
}

async fn of_requests_at_once_one_is_counted(world: World) {
    let counters = world.healthy(1).await;
    for round in 1..=3 {
        let visitor = round.to_string();
        let requests: Vec<_> = (0..8)
            .map(|_| {
                let (counters, visitor) = (counters.clone(), visitor.clone());
                tokio::spawn(async move { count(&counters, "7", &visitor).await })
            })
            .collect();
        let mut outcomes = Vec::new();
        for request in requests {
            outcomes.push(request.await.expect("ended"));
        }
        let once = outcomes.iter().filter(|outcome| matches!(outcome, CountOutcome::Counted(_))).count();
        assert_eq!((once, total(&counters, "7").await), (1, whole(round)), "{outcomes:?}");
    }
}

async fn a_key_is_older_than_a_visitor(world: World) {
    let counters = world.healthy(1).await;
    let with_key = view(&counters, "7", "a", Some("k")).await;
    for _ in 0..2 {
        assert_eq!(counters.count(&with_key).await.expect("an outcome"), counted(1), "the request was counted");
    }
    // A request that was not counted leaves its key unused.
    let later = view(&counters, "7", "a", Some("later")).await;
    assert_eq!(counters.count(&later).await.expect("an outcome"), repeated(1));
    world.advance(WINDOW).await;
    for _ in 0..2 {
        assert_eq!(counters.count(&later).await.expect("an outcome"), counted(2));
    }
}

async fn a_view_that_is_refused_leaves_no_mark(world: World) {
    let counters = world.healthy(1).await;
    for _ in 0..QUEUE_EVENTS_MAX {
        counters.view(ad("7"), 1, None).await.expect("counted");
    }
    let refused = counters.count(&view(&counters, "7", "a", None).await).await;
    assert!(matches!(refused, Err(Error::Full { .. })), "{refused:?}");
    save_all(&counters).await;
    assert_eq!(count(&counters, "7", "a").await, counted(QUEUE_EVENTS_MAX as u64 + 1));
}

async fn a_view_whose_answer_was_lost_is_not_counted_again(world: World) {
    for name in [None, Some("k")] {
        let id = name.unwrap_or("7");
        world.healthy(1).await.view(ad(id), 1, None).await.expect("counted");
        // Requests to the buffer: the salt, the view.
        let lossy = |buffer| -> Arc<dyn handfast_counters::Buffer> {
            Arc::new(FaultyBuffer::new(buffer, Some((1, Fault::LoseReply))))
        };
        let counters = world.start_with(2, world.store.clone(), lossy).await.expect("a process");
        let view = view(&counters, id, "a", name).await;
        let lost: Result<CountOutcome> = counters.count(&view).await;
        assert!(matches!(lost, Err(Error::Buffer { .. })), "{lost:?}");
        let again = counters.count(&view).await.expect("an outcome");
        assert_eq!(again, if name.is_some() { counted(2) } else { repeated(2) });
        assert_eq!(total(&counters, id).await, whole(2));
    }
}

async fn a_new_day_forgets_the_visitors(world: World) {
    let counters = world.healthy(1).await;
    // Ten minutes before midnight.
    world.advance(Duration::from_secs((11 * 60 + 50) * 60)).await;
    assert_eq!(count(&counters, "7", "a").await, counted(1));
    let yesterday = view(&counters, "7", "a", None).await.visitor.expect("a visitor").mark;
    world.advance(Duration::from_secs(20 * 60)).await;
    let today = view(&counters, "7", "a", None).await.visitor.expect("a visitor").mark;
    assert_ne!(yesterday, today, "the salt is another one");
    assert_eq!(count(&counters, "7", "a").await, counted(2));
    assert_eq!(count(&counters, "7", "a").await, repeated(2));
}

on_both_forms! {
    a_visitor_is_counted_once_in_a_window,
    of_requests_at_once_one_is_counted,
    a_key_is_older_than_a_visitor,
    a_view_that_is_refused_leaves_no_mark,
    a_view_whose_answer_was_lost_is_not_counted_again,
    a_new_day_forgets_the_visitors,
}

#[tokio::test]
async fn an_embedded_process_that_starts_again_has_forgotten_its_visitors() {
    let world = World::embedded();
    let first = world.healthy(1).await;
    assert_eq!(count(&first, "7", "a").await, counted(1));
    let keyed = view(&first, "7", "b", Some("k")).await;
    assert_eq!(first.count(&keyed).await.expect("an outcome"), counted(2));
    drop(first);
    let second = world.healthy(2).await;
    assert_eq!(count(&second, "7", "a").await, counted(3));
    assert_eq!(second.count(&keyed).await.expect("an outcome"), counted(3), "keys are not forgotten");
    save_all(&second).await;
    assert_eq!(total(&second, "7").await, whole(3));
}

#[tokio::test]
async fn ext_redis_keeps_visitors_and_their_salt_for_all_instances() {
    let Some(world) = World::redis().await else { return };
    let [first, second] = [world.healthy(1).await, world.healthy(2).await];
    assert_eq!(count(&first, "7", "a").await, counted(1));
    assert_eq!(count(&second, "7", "a").await, repeated(1));
    drop((first, second));
    assert_eq!(count(&world.healthy(3).await, "7", "a").await, repeated(1));
}

#[tokio::test]
async fn what_is_kept_of_a_visitor_is_in_no_document() {
    let world = World::embedded();
    let counters = world.healthy(1).await;
    count(&counters, "7", "192.0.2.7 Firefox").await;
    let mark = view(&counters, "7", "192.0.2.7 Firefox", None).await.visitor.expect("a visitor").mark;
    let documents = |world: &World| {
        let store = world.store.clone();
        async move {
            let mut found = Vec::new();
            for collection in ["queue", "keys", "totals", "days", "batches"] {
                let namespace = handfast_store::Namespace::new("counters", collection).expect("a namespace");
                let all = handfast_store::Find::new(namespace, bson::rawdoc! {});
                found.extend(handfast_store::StoreExt::find_all(&store, all).await.expect("documents"));
            }
            let readable = |document: bson::RawDocumentBuf| bson::Document::try_from(document).expect("a document");
            found.into_iter().map(|document| readable(document).to_string()).collect::<String>()
        }
    };
    let waiting = documents(&world).await;
    save_all(&counters).await;
    let saved = documents(&world).await;
    for text in [waiting, saved] {
        assert!(text.contains("\"7\""), "{text}");
        assert!(!text.contains(&mark.to_string()) && !text.contains("192.0.2.7"), "{text}");
    }
}

#[tokio::test]
async fn a_window_is_longer_than_nothing_and_at_most_a_day() {
    let counters = World::embedded().healthy(1).await;
    for window in [Duration::ZERO, Duration::from_secs(24 * 3_600 + 1)] {
        let refused = counters.visitor(&ad("7"), "a", window).await;
        assert!(matches!(refused, Err(Error::Invalid { .. })), "{refused:?}");
    }
}
