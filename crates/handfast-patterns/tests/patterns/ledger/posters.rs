//! Many posters on one account: no place is taken twice, no entry is lost, no limit is broken.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use handfast_patterns::Error;
use handfast_patterns::ledger::{Authorisation, Cancel, Capture, Ledger, LedgerOptions, NewEntry, Posting};
use handfast_store::decorator::{Fault, Faulty, Operation, Plan as Faults};

use super::{balance, books, commit_all, funded, open, open_with, options, posted};
use crate::crash::World;
use crate::fault::{first, wait_until_frozen};

const POSTERS: u32 = 16;
/// The number of entries that each poster posts.
const ENTRIES: i32 = 12;
/// The smallest number of totals that are read meanwhile.
const MOMENTS_MIN: u32 = 11;

/// Posts an entry until it is in or refused, over a network that loses messages; returns whether it is in.
pub(super) async fn insist(ledger: &Ledger, entry: &NewEntry) -> bool {
    loop {
        match ledger.post(entry.clone()).await {
            Ok(posting) => return posting.entry().is_some(),
            Err(Error::Invalid { what }) => panic!("{what}"),
            Err(_) => {}
        }
    }
}

pub(super) async fn opened(world: &World) -> Ledger {
    loop {
        if let Ok(ledger) = open(world).await {
            return ledger;
        }
    }
}

/// Returns the world on a network that loses one write in twenty, its request or its answer.
pub(super) fn lossy(world: &World, seed: u32) -> World {
    let faults = Faults::seeded(seed.into(), 50, [Fault::LoseReply, Fault::LoseRequest, Fault::Duplicate]);
    world.on(Arc::new(Faulty::new(Arc::clone(&world.store), faults.writes_only())))
}

/// Sixteen posters withdraw more from one account than it has, while two committers work.
#[tokio::test(flavor = "multi_thread")]
async fn concurrent_withdrawals_never_overdraw_an_account() {
    let world = World::in_memory();
    let ledger = open(&world).await.unwrap();
    funded(&ledger, &[("hot", 1000)]).await;
    let mut tasks = Vec::new();
    for poster in 0..POSTERS {
        let world = lossy(&world.process(poster + 10), poster);
        tasks.push(tokio::spawn(async move {
            let ledger = opened(&world).await;
            let (mut posted, mut refused) = (0, 0);
            for number in 0..ENTRIES {
                let value = 1 + (world.sources.random.next_u64() % 20) as i64;
                let entry = NewEntry::transfer("hot", format!("user {poster}"), value, "EUR");
                let entry = entry.with_id(format!("{poster}/{number}"));
                if insist(&ledger, &entry).await {
                    posted += value;
                    // The entry is posted again, as by a caller that did not receive the answer.
                    assert!(insist(&ledger, &entry).await);
                } else {
                    refused += 1;
                }
                if poster < 2 {
                    let _ = ledger.commit(20).await;
                }
            }
            (posted, refused)
        }));
    }
    let (mut posted, mut refused) = (0, 0);
    for task in tasks {
        let (own_posted, own_refused) = task.await.unwrap();
        posted += own_posted;
        refused += own_refused;
    }
    assert!(posted <= 1000 && posted > 900 && refused > 10, "{posted} posted, {refused} times refused");
    assert_eq!(balance(&ledger, "hot").await, 1000 - posted, "what was answered is what is in the books");
    commit_all(&ledger).await;
    books::check(&world).await.unwrap();
    assert!(ledger.verify_all().await.unwrap().is_clean());
    // A committer may have lost the request that writes the last balance into the account: the commit of the next
    // entry writes it.
    assert!(insist(&ledger, &NewEntry::transfer("bank", "hot", 5, "EUR")).await);
    commit_all(&ledger).await;
    assert_eq!(ledger.account("hot").await.unwrap().unwrap().cache.unwrap().balance, 1005 - posted);
}

/// Debits equal credits at every moment, and not only at the end.
#[tokio::test(flavor = "multi_thread")]
async fn the_totals_are_zero_while_transfers_are_posted() {
    let world = World::in_memory();
    let ledger = open(&world).await.unwrap();
    funded(&ledger, &[("a0", 300), ("a1", 300), ("a2", 300)]).await;
    let moments = Arc::new(AtomicU32::new(0));
    let posters: Vec<_> = (0..4_u32)
        .map(|number| {
            let (world, looked_at) = (lossy(&world.process(number + 10), number), Arc::clone(&moments));
            tokio::spawn(async move {
                let ledger = opened(&world).await;
                for round in 0_u32.. {
                    if round >= 40 && looked_at.load(Ordering::Relaxed) >= MOMENTS_MIN {
                        break;
                    }
                    let account = |n: u32| format!("a{}", n % 3);
                    let entry = NewEntry::transfer(account(round), account(round + 1), 7, "EUR");
                    insist(&ledger, &entry.with_id(format!("{number}/{round}"))).await;
                    let _ = ledger.commit(5).await;
                }
            })
        })
        .collect();
    while !posters.iter().all(tokio::task::JoinHandle::is_finished) {
        let totals = ledger.totals().await.unwrap();
        assert!(!totals.is_empty() && totals.iter().all(handfast_patterns::ledger::Totals::is_balanced), "{totals:?}");
        moments.fetch_add(1, Ordering::Relaxed);
        tokio::task::yield_now().await;
    }
    for poster in posters {
        poster.await.unwrap();
    }
    commit_all(&ledger).await;
    books::check(&world).await.unwrap();
}

/// Transfers, cancels, authorisations with their resolutions, changing limits and committers run at once on a few
/// accounts with minimums, over a network that loses and repeats. The available amount is never less than the minimum.
#[tokio::test(flavor = "multi_thread")]
async fn all_operations_at_once_keep_the_books_consistent() {
    let world = World::in_memory();
    let ledger = open(&world).await.unwrap();
    funded(&ledger, &[("a0", 300), ("a1", 300), ("a2", 300)]).await;
    let tasks: Vec<_> = (0..8_u32)
        .map(|number| {
            let world = lossy(&world.process(number + 10), number);
            tokio::spawn(async move {
                let (ledger, random) = (opened(&world).await, &world.sources.random);
                let (mut canceled, mut captured) = (0, 0);
                for round in 0..20_i32 {
                    let account = |n: u64| format!("a{}", n % 3);
                    let (payer, payee) = (random.next_u64() % 3, 1 + random.next_u64() % 2);
                    let (payer, payee) = (account(payer), account(payer + payee));
                    let (value, id) = (1 + (random.next_u64() % 120) as i64, format!("{number}/{round}"));
                    let entry = NewEntry::transfer(payer.as_str(), payee.as_str(), value, "EUR");
                    insist(&ledger, &entry.with_id(id.as_str())).await;
                    match random.next_u64() % 4 {
                        0 | 1 => {
                            let cancel = ledger.cancel(id, "a whim").await;
                            canceled += i32::from(matches!(cancel, Ok(Cancel::Canceled | Cancel::Reversed(_))));
                        }
                        2 => {
                            let hold = Authorisation::new(payee, payer, value, "EUR").with_id(format!("hold {id}"));
                            let _ = ledger.authorise(hold).await;
                            captured += i32::from(ledger.capture(format!("hold {id}"), Capture::Part(1)).await.is_ok());
                        }
                        _ => {
                            let _ = ledger.commit(3).await;
                        }
                    }
                }
                (canceled, captured)
            })
        })
        .collect();
    let (mut canceled, mut captured) = (0, 0);
    for task in tasks {
        let own = task.await.unwrap();
        (canceled, captured) = (canceled + own.0, captured + own.1);
    }
    books::check(&world).await.unwrap();
    commit_all(&ledger).await;
    books::check(&world).await.unwrap();
    assert!(ledger.verify_all().await.unwrap().is_clean());
    let sum = balance(&ledger, "a0").await + balance(&ledger, "a1").await + balance(&ledger, "a2").await;
    assert_eq!(sum, 900);
    assert!(canceled > 5 && captured > 5, "{canceled} canceled, {captured} captured");
}

/// A new limit also holds for posters that have read the account before.
#[tokio::test]
async fn a_new_minimum_holds_for_posters_that_read_before() {
    let world = World::in_memory();
    let ledger = open(&world).await.unwrap();
    posted(&ledger, NewEntry::transfer("cash", "A", 100, "EUR")).await;
    let spend = NewEntry::transfer("A", "cash", 150, "EUR");
    let slow = world.fault_at(first(Operation::Insert, "tx"), Fault::FreezeBefore);
    let spender = open(&world.on(slow.clone())).await.unwrap();
    let spending = tokio::spawn(async move { spender.post(spend).await.unwrap() });
    wait_until_frozen(&slow, &spending).await;
    ledger.set_minimum("A", Some(0)).await.unwrap();
    slow.release();
    let refused = spending.await.unwrap();
    assert!(matches!(&refused, Posting::Refused(refusal) if refusal.available == 100), "{refused:?}");
    // It may be set above the balance: then the account may only go up.
    ledger.set_minimum("A", Some(200)).await.unwrap();
    assert!(matches!(ledger.post(NewEntry::transfer("A", "cash", 1, "EUR")).await.unwrap(), Posting::Refused(_)));
    posted(&ledger, NewEntry::transfer("cash", "A", 1, "EUR")).await;
    ledger.set_minimum("A", None).await.unwrap();
    posted(&ledger, NewEntry::transfer("A", "cash", 500, "EUR")).await;
    assert!(ledger.set_minimum("nobody", Some(0)).await.is_err());
}

/// A poster that loses each race for a place returns an error, and posts nothing.
#[tokio::test]
async fn a_poster_that_loses_each_race_reports_contention() {
    let world = World::in_memory();
    let ledger = open_with(&world, LedgerOptions { attempts_max: 1, ..options() }).await.unwrap();
    posted(&ledger, NewEntry::transfer("A", "B", 1, "EUR")).await;
    posted(&ledger, NewEntry::transfer("A", "B", 2, "EUR")).await;
    let slow = world.fault_at(first(Operation::Insert, "tx"), Fault::FreezeBefore);
    let loser = open_with(&world.on(slow.clone()), LedgerOptions { attempts_max: 1, ..options() }).await.unwrap();
    let losing = tokio::spawn(async move { loser.post(NewEntry::transfer("A", "B", 4, "EUR")).await });
    wait_until_frozen(&slow, &losing).await;
    posted(&ledger, NewEntry::transfer("A", "B", 8, "EUR")).await;
    slow.release();
    let error = losing.await.unwrap().unwrap_err();
    assert!(matches!(&error, Error::Contended { attempts: 1, .. }), "{error}");
    assert_eq!(error.applied(), handfast_store::Applied::No);
    assert_eq!(balance(&ledger, "B").await, 11);
}
