//! An operator sees transactions whose processes are gone, and resolves them.

use std::sync::Arc;

use bson::rawdoc;
use handfast_store::StoreExt;
use handfast_store::decorator::{Address, Fault, Faulty, Operation, Plan};
use handfast_txn::percolator::{Cleaned, Decided, Percolator};

use crate::support::{Bank, LOCK_TIME, OPERATIONS_MAX, accounts, options, pay_once};

/// Returns the engine of an operator of the bank.
fn operator(bank: &Bank) -> Percolator {
    Percolator::new(bank.store.clone(), bank.sources.clone(), options()).unwrap()
}

/// Lets a process die at this operation of a payment, and returns whether there is such an operation.
async fn dies_at(bank: &Bank, number: u64) -> bool {
    let dying = Arc::new(Faulty::new(bank.store.clone(), Plan::at(number, Fault::CrashAfter)));
    let _ = pay_once(&bank.process_over(dying.clone())).await;
    dying.operations() > number
}

#[tokio::test(start_paused = true)]
async fn locks_of_a_dead_process_are_listed_and_can_be_resolved() {
    let mut seen = [0; 3];
    for number in 0..OPERATIONS_MAX {
        let bank = Bank::of_the_seed().await;
        if !dies_at(&bank, number).await {
            break;
        }
        let operator = operator(&bank);
        let locks = operator.locks(None, 10).await.unwrap();
        assert_eq!(operator.count_locks().await.unwrap(), locks.len() as u64);
        let open = operator.transactions(10).await.unwrap();
        assert_eq!(open.iter().map(|open| open.locks).sum::<u64>(), locks.len() as u64);
        for open in &open {
            assert!(open.age < LOCK_TIME);
            let before = operator.decided(open.start).await.unwrap().unwrap();
            assert_eq!(open.decided, before, "as it is listed");
            assert!(matches!(before, Decided::Open | Decided::Committed(_)), "{before:?}");
            // An operator cannot roll back a transaction that may still commit.
            if before == Decided::Open {
                let cleaned = operator.resolve(Some(open.start)).await.unwrap();
                assert_eq!((cleaned.resolved, cleaned.alive), (0, open.locks));
            }
        }
        bank.clock.advance(LOCK_TIME);
        for open in operator.transactions(10).await.unwrap() {
            assert!(open.age >= LOCK_TIME);
            let decided = operator.decided(open.start).await.unwrap().unwrap();
            let primary_is_locked =
                operator.locks(Some(open.start), 10).await.unwrap().iter().any(|l| l.key == l.primary);
            match decided {
                Decided::Abandoned => seen[0] += 1,
                Decided::Committed(_) => seen[1] += 1,
                other => panic!("{other:?}"),
            }
            assert_eq!(open.decided, decided, "as it is listed");
            assert_eq!(primary_is_locked, decided == Decided::Abandoned);
            let cleaned = operator.resolve(Some(open.start)).await.unwrap();
            assert_eq!(cleaned, Cleaned { resolved: open.locks, ..Cleaned::default() });
            assert_eq!(operator.decided(open.start).await.unwrap(), None);
            let paid = matches!(decided, Decided::Committed(_));
            assert_eq!(bank.balances().await, if paid { (3, 9) } else { (10, 2) });
            seen[2] += 1;
        }
        assert_eq!(operator.count_locks().await.unwrap(), 0);
    }
    assert!(seen.iter().all(|count| *count > 0), "abandoned, committed, resolved: {seen:?}");
}

#[tokio::test(start_paused = true)]
async fn one_transaction_is_resolved_and_another_left() {
    let bank = Bank::of_the_seed().await;
    // Each transaction locks two documents, one that exists and one that does not, and dies before its
    // commit point.
    for name in ["Bob", "Joe"] {
        let commit_point = Address::second(Operation::Update).of("accounts");
        let dying = Arc::new(Faulty::new(bank.store.clone(), Plan::at_request(commit_point, Fault::CrashBefore)));
        let tx = bank.process_over(dying).begin().await.unwrap();
        tx.update_one(&accounts(), rawdoc! { "_id": name }, rawdoc! { "$set": { "seen": true } }).await.unwrap();
        tx.insert_one(&accounts(), rawdoc! { "_id": format!("{name}'s note") }).await.unwrap();
        tx.commit().await.unwrap_err();
    }
    bank.clock.advance(LOCK_TIME);
    let operator = operator(&bank);
    let open = operator.transactions(100).await.unwrap();
    assert_eq!(open.iter().map(|open| open.locks).collect::<Vec<_>>(), [2, 2], "{open:?}");
    assert!(open[0].start < open[1].start, "oldest first");
    assert_eq!(operator.locks(None, 3).await.unwrap().len(), 3);
    operator.resolve(Some(open[0].start)).await.unwrap();
    let left = operator.locks(None, 100).await.unwrap();
    assert!(left.len() == 2 && left.iter().all(|lock| lock.start == open[1].start), "{left:?}");
    assert_eq!(operator.resolve(None).await.unwrap().resolved, 2);
}

/// A row whose version is unreadable is listed as well: the listing does not read the locked document.
#[tokio::test(start_paused = true)]
async fn locks_are_listed_without_what_is_locked() {
    let bank = Bank::of_the_seed().await;
    for (name, op) in [("Bob", "put"), ("Joe", "delete")] {
        let lock = rawdoc! {
            "s": 7_i64, "primary": { "ns": "bank.accounts", "id": "Bob" }, "op": op, "doc": "no document", "ttl": 5_000_i64,
        };
        let locked = rawdoc! { "$set": { "_hf.lock": lock, "_hf.old": "no versions" } };
        bank.store.update_one(&accounts(), rawdoc! { "_id": name }, locked).await.unwrap();
    }
    bank.clock.advance(LOCK_TIME);
    let locks = operator(&bank).locks(None, 10).await.unwrap();
    let seen: Vec<_> = locks.iter().map(|lock| (lock.key.to_string(), lock.deletes, lock.is_expired)).collect();
    assert_eq!(
        seen,
        [
            ("the document with _id \"Bob\" in bank.accounts".to_owned(), false, true),
            ("the document with _id \"Joe\" in bank.accounts".to_owned(), true, true)
        ]
    );
    assert!(locks.iter().all(|lock| lock.start.0 == 7 && lock.primary == locks[0].key), "{locks:?}");
}

#[tokio::test(start_paused = true)]
async fn the_safe_point_says_who_holds_it_back() {
    let bank = Bank::of_the_seed().await;
    let (retention, reader) = (options().retention, bank.process());
    let points = operator(&bank).safe_points().await.unwrap().unwrap();
    assert_eq!((points.messages.0, points.readers.0), (0, 0), "nobody has counted any time yet");
    let tx = reader.begin_reads(retention * 3).await.unwrap();
    tx.find_one(&accounts(), rawdoc! {}).await.unwrap();
    for _ in 0..6 {
        bank.let_pass(retention / 3).await;
        tx.find_one(&accounts(), rawdoc! {}).await.unwrap();
    }
    let points = operator(&bank).safe_points().await.unwrap().unwrap();
    assert_eq!(points.leases.len(), 1);
    assert_eq!(points.readers, points.leases[0]);
    assert!(points.readers < points.messages && points.messages <= points.now.minus(retention), "{points:?}");
}
