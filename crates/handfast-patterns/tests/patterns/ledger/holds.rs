//! Authorisations and their resolutions.

use std::time::Duration;

use bson::{Bson, DateTime, Document, doc, rawdoc};
use handfast_patterns::ledger::{Authorisation, Capture, HoldState, Ledger, Posting, Resolution};
use handfast_patterns::{CancellationToken, Round, RunnerOptions};
use handfast_store::StoreExt;
use handfast_store::decorator::{Fault, Operation};

use super::{HOUR, balance, books, commit_all, funded, open};
use crate::crash::World;
use crate::fault::{first, second};

/// Makes an authorisation that is captured in part, one that is released and one that expires, of accounts `A` and
/// `B`.
pub(super) async fn walk_through(world: &World, ledger: &Ledger) {
    let hold = |id: &str, value: i64| Authorisation::new("A", "B", value, "EUR").with_id(id);
    let (a, b) = (balance(ledger, "A").await, balance(ledger, "B").await);
    let state = async |id: &str| ledger.hold_state(id).await.unwrap();
    let tomorrow = DateTime::from_millis(world.sources.clock.now().timestamp_millis() + 24 * 3_600_000);
    for (id, value) in [("part", 40), ("free", 5), ("late", 7)] {
        let hold = hold(id, value);
        let hold = if id == "late" { hold.until(tomorrow) } else { hold };
        assert!(matches!(ledger.authorise(hold.clone()).await.unwrap(), Posting::Posted(_)));
        assert!(matches!(ledger.authorise(hold).await.unwrap(), Posting::AlreadyPosted(_)));
    }
    let now = ledger.balance("A").await.unwrap().unwrap();
    assert_eq!((now.balance, now.held, now.available), (a, 52, a - 52));
    assert!(matches!(ledger.authorise(hold("much", a - 51)).await.unwrap(), Posting::Refused(_)));
    let Resolution::Done(_) = ledger.capture("part", Capture::Part(30)).await.unwrap() else { panic!("it was open") };
    let Resolution::Done(_) = ledger.capture("part", Capture::Part(30)).await.unwrap() else {
        panic!("the same again")
    };
    let Resolution::Done(_) = ledger.release("free").await.unwrap() else { panic!("it was open") };
    assert_eq!(state("part").await, Some(HoldState::Captured));
    assert_eq!(state("free").await, Some(HoldState::Released));
    assert_eq!(state("late").await, Some(HoldState::Open));
    assert_eq!(state("much").await, None);
    for (id, expected) in [("part", HoldState::Captured), ("free", HoldState::Released)] {
        let other = ledger.capture(id, Capture::Full).await.unwrap();
        assert!(matches!(other, Resolution::Otherwise { state, .. } if state == expected), "{other:?}");
    }
    commit_all(ledger).await;
    assert_eq!(ledger.expire(10).await.unwrap(), Round::default());
    world.clock.advance(Duration::from_secs(24 * 3600));
    let late = ledger.capture("late", Capture::Full).await.unwrap();
    assert!(matches!(late, Resolution::Otherwise { state: HoldState::Expired, .. }), "{late:?}");
    assert_eq!(ledger.expire(10).await.unwrap(), Round::default(), "nothing is left to look for");
    let now = ledger.balance("A").await.unwrap().unwrap();
    assert_eq!((now.balance, now.held, balance(ledger, "B").await), (a - 30, 0, b + 30));
}

#[tokio::test]
async fn authorised_and_captured_released_or_expired() {
    let world = World::in_memory();
    let ledger = open(&world).await.unwrap();
    funded(&ledger, &[("A", 100), ("B", 0)]).await;
    walk_through(&world, &ledger).await;
    books::check(&world).await.unwrap();
    commit_all(&ledger).await;
    books::check(&world).await.unwrap();
    assert!(ledger.verify_all().await.unwrap().is_clean());
    assert_eq!(ledger.totals().await.unwrap()[0].held, 0);
}

/// The entry of an authorisation stays the same, byte by byte, after it was resolved.
#[tokio::test]
async fn the_authorisation_itself_never_changes() {
    let world = World::in_memory();
    let ledger = open(&world).await.unwrap();
    funded(&ledger, &[("A", 100)]).await;
    let hold = Authorisation::new("A", "B", 30, "EUR").with_id(7);
    let Posting::Posted(_) = ledger.authorise(hold).await.unwrap() else { panic!("there is enough") };
    commit_all(&ledger).await;
    let stored = async || world.store.find_one(&world.namespace("tx"), rawdoc! { "_id": 7 }).await.unwrap().unwrap();
    let before = stored().await;
    let shown = Document::try_from(&*before).unwrap();
    let change = doc! {
        "account": "A", "type": "authorise", "value": 0_i64, "asset": "EUR", "seqId": 2_i64, "cachedBal": 100_i64,
        "hold": 30_i64, "cachedHeld": 30_i64,
    };
    assert_eq!(shown.get_array("changes").unwrap(), &[Bson::Document(change)]);
    assert_eq!(shown.get_document("authorises").unwrap(), &doc! { "account": "B", "value": 30_i64 });
    let Resolution::Done(_) = ledger.capture(7, Capture::Full).await.unwrap() else { panic!("it is open") };
    commit_all(&ledger).await;
    assert_eq!(stored().await, before);
    assert!(ledger.cancel(7, "no").await.unwrap_err().to_string().contains("release it"));
    let error = ledger.authorise(Authorisation::new("A", "B", 0, "EUR")).await.unwrap_err();
    assert!(error.to_string().contains("it must be from 1"), "{error}");
    let hold = Authorisation::new("A", "B", 30, "EUR").with_id(8);
    let Posting::Posted(_) = ledger.authorise(hold).await.unwrap() else { panic!("there is enough") };
    let error = ledger.capture(8, Capture::Part(31)).await.unwrap_err();
    assert!(error.to_string().contains("31 cannot be captured of 30"), "{error}");
    // A capture is an entry like others: it can be reversed, and holds nothing afterwards.
    let Resolution::Done(_) = ledger.capture(8, Capture::Full).await.unwrap() else { panic!("it is open") };
    let reversed = ledger.cancel(doc! { "resolves": 8 }, "returned").await.unwrap();
    assert!(matches!(reversed, handfast_patterns::ledger::Cancel::Reversed(_)), "{reversed:?}");
    let now = ledger.balance("A").await.unwrap().unwrap();
    assert_eq!((now.balance, now.held), (70, 0));
    books::check(&world).await.unwrap();
}

/// Capture, release and expiry at once: one of them resolves it.
#[tokio::test(flavor = "multi_thread")]
async fn an_authorisation_is_resolved_once() {
    let world = World::in_memory();
    let ledger = open(&world).await.unwrap();
    funded(&ledger, &[("A", 1000), ("B", 0)]).await;
    let soon = DateTime::from_millis(world.sources.clock.now().timestamp_millis() + 1000);
    for id in 0..20 {
        let hold = Authorisation::new("A", "B", 50, "EUR").with_id(id).until(soon);
        let Posting::Posted(_) = ledger.authorise(hold).await.unwrap() else { panic!("there is enough") };
    }
    let refused = ledger.authorise(Authorisation::new("A", "B", 1, "EUR").until(soon)).await.unwrap();
    assert!(matches!(refused, Posting::Refused(_)));
    assert_eq!(ledger.status().await.unwrap().expiring, 20, "what was refused is not waited for");
    let mut tasks = Vec::new();
    for way in 0..3_u32 {
        let world = world.process(way + 10);
        tasks.push(tokio::spawn(async move {
            let ledger = open(&world).await.unwrap();
            let mut done = 0;
            for id in 0..20 {
                let resolution = match way {
                    0 => ledger.capture(id, Capture::Full).await.unwrap(),
                    1 => ledger.release(id).await.unwrap(),
                    _ => ledger.capture(id, Capture::Part(20)).await.unwrap(),
                };
                done += u32::from(matches!(resolution, Resolution::Done(_)));
            }
            done
        }));
    }
    let mut done = 0;
    for task in tasks {
        done += task.await.unwrap();
    }
    assert_eq!(done, 20);
    commit_all(&ledger).await;
    world.clock.advance(HOUR);
    assert_eq!(ledger.expire(100).await.unwrap(), Round::default());
    assert_eq!(ledger.balance("A").await.unwrap().unwrap().held, 0);
    books::check(&world).await.unwrap();
}

/// The announcement of an authorisation that was never posted is removed, but not before its request can no longer be
/// under way.
#[tokio::test]
async fn announcements_of_dead_processes_are_removed() {
    let world = World::in_memory();
    let ledger = open(&world).await.unwrap();
    funded(&ledger, &[("A", 100), ("B", 1)]).await;
    let soon = || DateTime::from_millis(world.sources.clock.now().timestamp_millis() + 1000);
    let hold = |id: i32| Authorisation::new("A", "B", 50, "EUR").with_id(id).until(soon());
    // It is announced; the insert of its entry arrives late, and the process dies before it sends the insert again.
    let insert = first(Operation::Insert, "tx");
    let late =
        world.faults_at([(insert.clone(), Fault::DeliverLate), (second(Operation::Insert, "tx"), Fault::CrashBefore)]);
    open(&world.on(late.clone())).await.unwrap().authorise(hold(1)).await.unwrap_err();
    let expiring = async || ledger.status().await.unwrap().expiring;
    assert_eq!(expiring().await, 1);
    world.clock.advance(HOUR);
    assert_eq!((ledger.expire(10).await.unwrap(), expiring().await), (Round::default(), 1));
    late.deliver_late().await;
    assert_eq!(ledger.balance("A").await.unwrap().unwrap().held, 50);
    assert_eq!((ledger.expire(10).await.unwrap().done, expiring().await), (1, 0));
    assert_eq!(ledger.hold_state(1).await.unwrap(), Some(HoldState::Expired));
    // This authorisation is never posted.
    open(&world.on(world.fault_at(insert, Fault::CrashBefore))).await.unwrap().authorise(hold(2)).await.unwrap_err();
    world.clock.advance(HOUR);
    assert_eq!((ledger.expire(10).await.unwrap().done, expiring().await), (0, 1));
    world.clock.advance(Duration::from_secs(24 * 3600));
    assert_eq!((ledger.expire(10).await.unwrap().done, expiring().await), (0, 0), "nothing was held");
}

#[tokio::test(start_paused = true)]
async fn expired_authorisations_are_freed_in_the_background() {
    let world = World::in_memory();
    let ledger = open(&world).await.unwrap();
    funded(&ledger, &[("A", 100)]).await;
    let soon = DateTime::from_millis(world.sources.clock.now().timestamp_millis() + 1000);
    let Posting::Posted(_) = ledger.authorise(Authorisation::new("A", "B", 50, "EUR").until(soon)).await.unwrap()
    else {
        panic!("there is enough")
    };
    let cancel = CancellationToken::new();
    let options = RunnerOptions { interval: Duration::from_secs(10), jitter: 0.0, batch: 10 };
    let (committer, expiry) =
        (ledger.spawn_committer(options.clone(), &cancel).unwrap(), ledger.spawn_expiry(options, &cancel).unwrap());
    world.clock.advance(HOUR);
    tokio::time::sleep(Duration::from_secs(60)).await;
    committer.stop().await;
    expiry.stop().await;
    let now = ledger.balance("A").await.unwrap().unwrap();
    assert_eq!((now.held, now.pending, now.seq_id, now.anchor_seq_id), (0, 0, 3, 3));
}

/// An authorisation has one announcement, however often it is sent, and none if it is refused.
#[tokio::test]
async fn an_authorisation_that_is_sent_again_has_one_announcement() {
    let world = World::in_memory();
    let ledger = open(&world).await.unwrap();
    funded(&ledger, &[("A", 100)]).await;
    let at = |seconds: i64| DateTime::from_millis(world.sources.clock.now().timestamp_millis() + seconds * 1000);
    let hold = |id: &str| Authorisation::new("A", "B", 10, "EUR").with_id(id);
    let expiring = async || ledger.status().await.unwrap().expiring;
    for _ in 0..3 {
        let _ = ledger.authorise(hold("7").until(at(60))).await.unwrap();
    }
    let _ = ledger.authorise(hold("8")).await.unwrap();
    assert_eq!(expiring().await, 1);
    // Another time is another authorisation.
    for other in [
        hold("7").until(at(1)),
        hold("7"),
        hold("8").until(at(60)),
        hold("7").until(at(60)).with_metadata(doc! { "n": 1 }),
    ] {
        let error = ledger.authorise(other.clone()).await.unwrap_err();
        assert!(error.to_string().contains("another entry has the id"), "{other:?}: {error}");
    }
    assert_eq!(expiring().await, 1);
    let Resolution::Done(_) = ledger.capture("7", Capture::Full).await.unwrap() else { panic!("it was open") };
    let again = ledger.authorise(hold("7").until(at(60))).await.unwrap();
    assert!(matches!(again, Posting::AlreadyPosted(_)), "{again:?}");
    assert_eq!(expiring().await, 0);
}

/// What an expiry returns is the number of authorisations whose amounts it has freed.
#[tokio::test]
async fn an_expiry_counts_what_it_frees() {
    let world = World::in_memory();
    let ledger = open(&world).await.unwrap();
    funded(&ledger, &[("A", 100)]).await;
    let soon = DateTime::from_millis(world.sources.clock.now().timestamp_millis() + 1000);
    let _ = ledger.authorise(Authorisation::new("A", "B", 10, "EUR").with_id(7).until(soon)).await.unwrap();
    // Another process has announced it at the same time, and one an authorisation that was never posted.
    for (id, entry) in [(1, 7), (2, 7), (3, 8)] {
        let announced = rawdoc! { "_id": id, "entry": entry, "expiresAt": soon };
        world.store.insert_one(&world.namespace("hold"), announced).await.unwrap();
    }
    world.clock.advance(HOUR);
    assert_eq!(ledger.expire(10).await.unwrap(), Round { done: 1, failed: 0, more: false });
    world.clock.advance(24 * HOUR);
    assert_eq!(ledger.expire(10).await.unwrap(), Round::default());
    assert_eq!(ledger.status().await.unwrap().expiring, 0);
}
