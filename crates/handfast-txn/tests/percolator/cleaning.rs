//! Resolvers and cleaners: they meet every fault at every operation, leave live transactions alone, and run without a request.

use std::sync::Arc;
use std::time::Duration;

use bson::{Document, rawdoc};
use handfast_store::decorator::{Fault, Faulty, Operation, Plan};
use handfast_store::{DocumentStore, Find, StoreExt};
use handfast_txn::percolator::CLEANING_INTERVAL;
use handfast_txn::{Percolator, PercolatorOptions};

use crate::support::*;

/// The process that finds the locks.
#[derive(Clone, Copy, Debug)]
enum Comer {
    Cleaner,
    Reader,
}

/// Returns a bank with a payment whose process died when both rows were locked, or when the first had committed.
async fn dead_payment(has_committed: bool) -> Bank {
    let bank = Bank::of_the_seed().await;
    let payment = Stepped::payment(&bank);
    payment.until(&bank, if has_committed { half_committed } else { both_locked }).await;
    payment.payment.abort();
    bank.clock.advance(LOCK_TIME);
    bank
}

fn cleaner(bank: &Bank) -> Percolator {
    Percolator::new(bank.store.clone(), bank.sources.clone(), options()).unwrap()
}

/// A process that cleans up may die, or lose its requests, at any operation: the next one finds what is left, with the same result.
#[tokio::test]
async fn every_operation_of_a_cleaning_process_meets_every_fault() {
    let mut cases = 0;
    for (has_committed, expected) in [(false, (10, 2)), (true, (3, 9))] {
        for comer in [Comer::Cleaner, Comer::Reader] {
            for fault in Fault::ALL_OUTCOMES {
                for number in 0..OPERATIONS_MAX {
                    let bank = dead_payment(has_committed).await;
                    let faulty = Arc::new(Faulty::new(bank.store.clone(), Plan::at(number, fault)));
                    let case = format!("{comer:?}, committed {has_committed}, {fault:?} at {number}");
                    match comer {
                        Comer::Cleaner => {
                            let cleaner = Percolator::new(faulty.clone(), bank.sources.clone(), options()).unwrap();
                            cleaner.clean().await.ok();
                        }
                        Comer::Reader => {
                            let reader = bank.process_over(faulty.clone());
                            if let Ok(found) = reader.find_all(Find::new(accounts(), rawdoc! {})).await {
                                let sum: i32 = found.iter().map(|of| of.get_i32("balance").unwrap()).sum();
                                assert_eq!((found.len(), sum), (2, 12), "{case}");
                            }
                            reader.flush().await.ok();
                        }
                    }
                    let is_over = faulty.operations() <= number;
                    faulty.restart();
                    assert_eq!(bank.balances().await, expected, "{case}");
                    faulty.deliver_late().await;
                    assert_eq!(bank.balances().await, expected, "{case}");
                    let cleaner = cleaner(&bank);
                    for _ in 0..2 {
                        bank.clock.advance(Duration::from_secs(1_300));
                        assert_eq!(cleaner.clean().await.unwrap().failed, 0, "{case}");
                    }
                    let is_left =
                        |hidden: &Document| hidden.keys().any(|name| !["v", "c", "s", "p"].contains(&name.as_str()));
                    assert!(!bank.hidden().await.iter().any(is_left), "{case}: {:?}", bank.rows().await);
                    assert_eq!(bank.balances().await, expected, "{case}");
                    cases += 1;
                    if is_over {
                        break;
                    }
                }
            }
        }
    }
    println!("{cases} cases");
    assert!(cases > 200, "{cases}");
}

/// A commit that takes longer than a lock lives sends heartbeats, and is not taken for abandoned.
#[tokio::test(start_paused = true)]
async fn a_commit_that_takes_long_is_not_rolled_back_by_others() {
    let bank = Bank::of_the_seed().await;
    let payment = Stepped::payment(&bank);
    payment.until(&bank, both_locked).await;
    let lifetime = async || bank.hidden().await[0].get_document("lock").unwrap().get_i64("ttl").unwrap();
    let first = lifetime().await;
    for _ in 0..4 {
        bank.clock.advance(Duration::from_secs(3));
        // The request for the timestamp stays under way; heartbeats get through.
        for _ in 0..40 {
            tokio::time::sleep(Duration::from_millis(100)).await;
            for (number, operation) in payment.store.frozen_operations() {
                if operation != Operation::FindAndModify {
                    payment.store.release_one(number, None);
                }
            }
        }
        let cleaned = cleaner(&bank).clean().await.unwrap();
        assert_eq!((cleaned.resolved, cleaned.alive), (0, 2));
    }
    assert!(lifetime().await >= first + 9_000, "{} after {first}", lifetime().await);
    payment.finish().await.unwrap();
    assert_eq!(bank.balances().await, (3, 9));
}

/// The cleaner needs no request: it also resolves a lock that no reader or writer finds.
#[tokio::test(start_paused = true)]
async fn the_cleaner_comes_by_itself() {
    let bank = dead_payment(false).await;
    let locked = async || bank.hidden().await.iter().any(|hidden| hidden.contains_key("lock"));
    let options = PercolatorOptions::default();
    assert_eq!(options.cleaning_interval, Some(CLEANING_INTERVAL));
    let engine = Percolator::new(bank.store.clone(), bank.sources.clone(), options).unwrap();
    tokio::time::sleep(CLEANING_INTERVAL - Duration::from_secs(1)).await;
    assert!(locked().await);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(!locked().await);
    drop(engine);
}

/// A reader without Handfast has to leave out documents that are deleted, or about to be inserted. They have only an `_id` and a mark.
#[tokio::test]
async fn a_plain_reader_can_recognise_deleted_documents() {
    let bank = Bank::of_the_seed().await;
    let database = bank.process();
    database.insert_one(&accounts(), rawdoc! { "_id": "Ann", "balance": 1 }).await.unwrap();
    database.delete_one(&accounts(), rawdoc! { "_id": "Ann" }).await.unwrap();
    database.flush().await.unwrap();
    let stopping = stepped(bank.store.clone());
    let dying = bank.process_over(stopping.clone());
    let inserting =
        tokio::spawn(async move { dying.insert_one(&accounts(), rawdoc! { "_id": "Eve", "balance": 2 }).await });
    while !bank.rows().await.iter().any(|row| row.get_str("_id").unwrap() == "Eve") {
        assert!(stopped(&stopping, || inserting.is_finished()).await);
        stopping.release();
    }
    inserting.abort();
    let (stubs, documents): (Vec<_>, Vec<_>) =
        bank.rows().await.into_iter().partition(|row| row.get_document("_hf").unwrap().contains_key("del"));
    let names = |rows: &[Document]| rows.iter().map(|row| row.get_str("_id").unwrap().to_owned()).collect::<Vec<_>>();
    assert_eq!(
        (names(&stubs), names(&documents)),
        (vec!["Ann".into(), "Eve".into()], vec!["Bob".into(), "Joe".into()])
    );
    for stub in stubs {
        assert_eq!(stub.keys().collect::<Vec<_>>(), ["_id", "_hf"]);
    }
    let plain = bank.store.find_all(Find::new(accounts(), rawdoc! { "_hf.del": { "$ne": true } })).await.unwrap();
    assert_eq!(plain.len(), 2);
    database.flush().await.unwrap();
}
