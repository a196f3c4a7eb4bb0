use std::time::Duration;

use jiff::civil::date;

use super::KindState;
use crate::buffer::{Fence, IncrementOutcome, Owner, Stored, Total, UpsertOutcome};
use crate::{Change, ItemId, Kind};

const NOW: Duration = Duration::from_secs(100);

fn id(id: &str) -> ItemId {
    ItemId::new(id).expect("an id")
}

fn kind() -> Kind {
    Kind::new("ads").expect("a kind")
}

fn owner(name: &str) -> Owner {
    Owner(name.into())
}

fn views(views: u32) -> Change {
    Change::Views { views, day: date(2026, 11, 24) }
}

fn whole(views: u64) -> Total {
    Total { views, partial: false }
}

fn stored(state: &KindState, total: u64) -> Option<Stored> {
    Some(Stored { fence: state.fence(), total })
}

/// Claims, and acknowledges at once.
fn flush(state: &mut KindState, by: &str) {
    let batch = state.claim(&kind(), &owner(by), 100, NOW).expect("a batch");
    state.acknowledge(batch.number());
}

#[test]
fn two_racing_first_views_are_both_counted() {
    let mut state = KindState::new(1, 0);
    assert_eq!(state.increment_if_exists(&id("7"), views(1), NOW), IncrementOutcome::Absent);
    let (one, other) = (stored(&state, 5), stored(&state, 5));
    assert_eq!(state.upsert(&id("7"), views(1), one, NOW), UpsertOutcome::Counted(whole(6)));
    assert_eq!(state.upsert(&id("7"), views(1), other, NOW), UpsertOutcome::Counted(whole(7)));
    assert_eq!(state.increment_if_exists(&id("7"), views(3), NOW), IncrementOutcome::Counted(whole(10)));
}

#[test]
fn a_total_does_not_change_while_its_views_are_saved() {
    let mut state = KindState::new(1, 0);
    let five = stored(&state, 5);
    state.upsert(&id("7"), views(2), five, NOW);
    let batch = state.claim(&kind(), &owner("a"), 100, NOW).expect("a batch");
    assert_eq!(state.total(&id("7")), Some(whole(7)));
    state.increment_if_exists(&id("7"), views(1), NOW);
    state.acknowledge(batch.number());
    assert_eq!(state.total(&id("7")), Some(whole(8)));
    state.evict(Duration::ZERO, NOW);
    assert_eq!(state.total(&id("7")), Some(whole(8)), "an item with views that are not saved stays");
    flush(&mut state, "a");
    state.evict(Duration::ZERO, NOW);
    assert_eq!(state.total(&id("7")), None);
}

#[test]
fn a_total_that_was_read_before_a_batch_was_saved_is_outdated() {
    let mut state = KindState::new(1, 0);
    let before = stored(&state, 5);
    state.upsert(&id("7"), views(1), before, NOW);
    flush(&mut state, "a");
    state.evict(Duration::ZERO, NOW);
    assert_eq!(state.upsert(&id("7"), views(1), before, NOW), UpsertOutcome::Outdated);
    assert_eq!(state.fill(&id("7"), before.expect("stored"), NOW), None);
    let after = stored(&state, 6);
    assert_eq!(state.upsert(&id("7"), views(1), after, NOW), UpsertOutcome::Counted(whole(7)));
}

#[test]
fn a_total_without_the_store_is_partial_until_it_is_filled() {
    let mut state = KindState::new(1, 0);
    assert_eq!(state.upsert(&id("7"), views(2), None, NOW), UpsertOutcome::Counted(Total { views: 2, partial: true }));
    let batch = state.claim(&kind(), &owner("a"), 100, NOW).expect("a batch");
    let while_claimed = Stored { fence: state.fence(), total: 7 };
    state.increment_if_exists(&id("7"), views(1), NOW);
    assert_eq!(state.fill(&id("7"), while_claimed, NOW), None, "the store may have the batch or not");
    state.acknowledge(batch.number());
    let saved = Stored { fence: state.fence(), total: 7 };
    assert_eq!(state.fill(&id("7"), saved, NOW), Some(whole(8)));
}

#[test]
fn a_partial_total_leaves_with_its_last_event() {
    let mut state = KindState::new(1, 0);
    state.upsert(&id("7"), views(2), None, NOW);
    flush(&mut state, "a");
    assert_eq!(state.total(&id("7")), None);
}

#[test]
fn a_batch_never_changes_and_belongs_to_one_owner() {
    let mut state = KindState::new(1, 0);
    for _ in 0..5 {
        state.upsert(&id("7"), views(1), None, NOW);
    }
    let first = state.claim(&kind(), &owner("a"), 2, NOW).expect("a batch");
    assert_eq!((first.first(), first.number(), first.views()), (1, 2, 2));
    assert_eq!(state.claim(&kind(), &owner("a"), 5, NOW), Some(first.clone()), "the answer was lost");
    let second = state.claim(&kind(), &owner("b"), 2, NOW).expect("a batch");
    assert_eq!((second.first(), second.number()), (3, 4));
    let idle = Duration::from_secs(60);
    assert!(!state.take_over(&owner("c"), idle, NOW + idle - Duration::from_millis(1)));
    assert!(state.take_over(&owner("c"), idle, NOW + idle));
    assert_eq!(state.claim(&kind(), &owner("c"), 5, NOW), Some(first.clone()));
    state.acknowledge(first.number());
    let next = Fence(state.fence().0);
    assert!(state.acknowledge(first.number()).is_empty(), "the late owner does it once more");
    assert_eq!(state.fence(), next);
    assert_eq!(state.depth(NOW).oldest, 3);
}

#[test]
fn a_deletion_parts_the_views_before_it_from_those_after() {
    let mut state = KindState::new(1, 0);
    let five = stored(&state, 5);
    state.upsert(&id("7"), views(2), five, NOW);
    let before = state.claim(&kind(), &owner("a"), 100, NOW).expect("a batch");
    state.increment_if_exists(&id("7"), views(1), NOW);
    state.delete(&id("7"), NOW);
    assert_eq!(state.total(&id("7")), Some(whole(0)));
    state.increment_if_exists(&id("7"), views(4), NOW);
    assert_eq!(state.total(&id("7")), Some(whole(4)));
    state.acknowledge(before.number());
    assert_eq!(state.total(&id("7")), Some(whole(4)));
    flush(&mut state, "b");
    assert_eq!(state.total(&id("7")), Some(whole(4)));
}

#[test]
fn an_item_that_is_not_cached_is_deleted() {
    let mut state = KindState::new(1, 0);
    let before = stored(&state, 9);
    state.delete(&id("7"), NOW);
    assert_eq!(state.total(&id("7")), Some(whole(0)));
    assert_eq!(
        state.upsert(&id("7"), views(1), before, NOW),
        UpsertOutcome::Counted(whole(1)),
        "its entry knows better"
    );
}

/// An item that was viewed and is deleted, one whose views wait, one that is cached only, and one without an entry.
fn refreshed(total: u64) -> (KindState, Vec<(ItemId, u64)>) {
    let mut state = KindState::new(1, 0);
    for name in ["deleted", "viewed"] {
        let five = stored(&state, 5);
        state.upsert(&id(name), views(2), five, NOW);
    }
    state.delete(&id("deleted"), NOW);
    state.fill(&id("cached"), Stored { fence: state.fence(), total: 5 }, NOW).expect("filled");
    (state, ["deleted", "viewed", "cached", "absent"].map(|name| (id(name), total)).to_vec())
}

#[test]
fn a_refresh_sets_what_the_queue_needs_and_removes_the_rest() {
    let (mut state, totals) = refreshed(105);
    let before = state.fence();
    assert!(state.refresh(&totals, before));
    let found: Vec<_> = totals.iter().map(|(id, _)| state.total(id)).collect();
    assert_eq!(found, [Some(whole(0)), Some(whole(107)), None, None]);
    // A reader and a first view that have read the old total come too late.
    let old = Stored { fence: before, total: 5 };
    assert_eq!(state.fill(&id("cached"), old, NOW), None);
    assert_eq!(state.upsert(&id("absent"), views(1), Some(old), NOW), UpsertOutcome::Outdated);
    flush(&mut state, "a");
    assert_eq!(state.total(&id("viewed")), Some(whole(107)), "the views are in the stored total");
}

#[test]
fn a_refresh_with_the_same_totals_changes_none() {
    let (mut state, totals) = refreshed(5);
    assert!(state.refresh(&totals, state.fence()));
    assert_eq!(state.total(&id("viewed")), Some(whole(7)));
    assert_eq!(state.total(&id("cached")), Some(whole(5)));
}

#[test]
fn a_refresh_completes_a_partial_total() {
    let mut state = KindState::new(1, 0);
    state.upsert(&id("7"), views(2), None, NOW);
    assert!(state.refresh(&[(id("7"), 5)], state.fence()));
    assert_eq!(state.total(&id("7")), Some(whole(7)));
}

#[test]
fn a_refresh_is_refused_while_the_store_may_have_more() {
    let (mut state, totals) = refreshed(105);
    let before = state.fence();
    let batch = state.claim(&kind(), &owner("a"), 1, NOW).expect("a batch");
    assert!(!state.refresh(&totals, before), "the batch may have been saved before the totals were read");
    assert!(!state.refresh(&totals, state.fence()), "and after the fence was read");
    state.acknowledge(batch.number());
    assert!(!state.refresh(&totals, before), "the totals may lack the batch");
    assert!(state.refresh(&totals, state.fence()));
}

#[test]
fn an_event_waits_while_a_batch_has_a_deletion_of_its_item() {
    let mut state = KindState::new(1, 0);
    state.delete(&id("7"), NOW);
    let deletion = state.claim(&kind(), &owner("a"), 100, NOW).expect("a batch");
    for name in ["8", "7", "8"] {
        let zero = stored(&state, 0);
        state.upsert(&id(name), views(1), zero, NOW);
    }
    let before = state.claim(&kind(), &owner("b"), 100, NOW).expect("a batch");
    assert_eq!(before.events.len(), 1, "the view of another item");
    assert_eq!(state.claim(&kind(), &owner("c"), 100, NOW), None);
    state.acknowledge(deletion.number());
    assert_eq!(state.claim(&kind(), &owner("c"), 100, NOW).expect("a batch").events.len(), 2);
}
