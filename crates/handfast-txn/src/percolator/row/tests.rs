//! Each step on each kind of row, as tables; then random steps against the rules of the module.

use std::time::Duration;

use bson::{RawBson, RawDocumentBuf, rawdoc};
use handfast_store::{DocumentStore, MemoryStore, Namespace, Sources, StoreExt};
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

use super::{
    Body, Collected, CommitRefused, GiveUpRefused, HistoryNeeds, Key, Lock, PrewriteRefused, PrimaryStatus,
    RECORDS_MAX, ReadResult, Revision, Row, SafePoint, Status, Step, Timestamp, VERSIONS_MAX, collect, commit, due,
    give_up, prewrite, read_at, renew, rollback, status_of,
};

mod old_versions;

const TTL: Duration = Duration::from_secs(5);

/// A state in which no transaction is finished and no snapshot is read.
struct NoneFinished;

impl HistoryNeeds for NoneFinished {
    fn is_finished(&self, _: Timestamp) -> bool {
        false
    }

    fn oldest_reader(&self) -> Timestamp {
        Timestamp(u64::MAX)
    }
}

/// A state in which all transactions are finished and snapshots are read from this one on.
struct ReadFrom(Timestamp);

impl HistoryNeeds for ReadFrom {
    fn is_finished(&self, _: Timestamp) -> bool {
        true
    }

    fn oldest_reader(&self) -> Timestamp {
        self.0
    }
}

/// A state in which all transactions are finished and no snapshot is read.
const NOTHING: ReadFrom = ReadFrom(Timestamp(u64::MAX));

fn key(id: &str) -> Key {
    Key { namespace: Namespace::new("bank", "accounts").unwrap(), id: RawBson::String(id.to_owned()) }
}

fn bob(balance: i64) -> RawDocumentBuf {
    rawdoc! { "_id": "Bob", "balance": balance }
}

fn put(start: u64, balance: i64) -> Lock {
    let (primary, keys) = (key("Bob"), vec![key("Joe")]);
    Lock { start: Timestamp(start), primary, keys, body: Body::Document(bob(balance)), ttl: TTL }
}

fn row(document: RawDocumentBuf) -> Row {
    Row::from_document(&document).unwrap()
}

/// Returns the row of Bob, who has 10 since 5 by the transaction that began at 4.
fn committed() -> RawDocumentBuf {
    rawdoc! { "_id": "Bob", "balance": 10_i64, "_hf": { "v": 1_i64, "c": 5_i64, "s": 4_i64 } }
}

/// Returns that row, locked by the transaction that began at 7 with the new balance 3.
fn locked() -> RawDocumentBuf {
    let Ok(Step::Change(next)) = prewrite(&row(committed()), &put(7, 3)) else { panic!() };
    next.to_document()
}

/// Returns that row after the transaction has committed at 8.
fn moved() -> RawDocumentBuf {
    let Ok(Step::Change(next)) = commit(&row(locked()), Timestamp(7), Timestamp(8), &NoneFinished) else { panic!() };
    next.to_document()
}

/// Returns that row after the transaction was rolled back.
fn given_up() -> RawDocumentBuf {
    let Ok(Step::Change(next)) = rollback(&row(locked()), Timestamp(7), true) else { panic!() };
    next.to_document()
}

fn missing() -> Row {
    Row::missing(RawBson::String("Bob".to_owned()))
}

/// The status is read without the rest of the row.
#[test]
fn a_primary_status_agrees_with_the_whole_row() {
    let documents = [committed(), locked(), moved(), given_up(), bob(10)];
    let mut seen = Vec::new();
    for document in documents {
        for start in [4, 7, 9].map(Timestamp) {
            let standing = PrimaryStatus::from_document(&document, start).unwrap();
            let lock = row(document.clone()).lock.filter(|lock| lock.start == start);
            assert_eq!(standing.status, status_of(&row(document.clone()), start), "{document:?} at {start}");
            assert_eq!(standing.ttl, lock.map(|lock| lock.ttl));
            seen.push(standing.status);
        }
    }
    let all = [Status::Committed(Timestamp(8)), Status::RolledBack, Status::Locked, Status::Unknown];
    assert!(all.iter().all(|status| seen.contains(status)));
}

/// The renewal is sent without the rest of the row.
#[tokio::test]
async fn a_renewal_makes_of_a_row_what_the_step_does() {
    let store = std::sync::Arc::new(MemoryStore::new(Sources::seeded(1)));
    let rows = crate::percolator::rows::Rows::new(store.clone(), 1);
    let longer = TTL * 2;
    for (document, is_locked) in [(locked(), true), (committed(), false), (moved(), false), (given_up(), false)] {
        let namespace = key("Bob").namespace;
        store.drop_collection(&namespace).await.unwrap();
        store.insert_one(&namespace, document.clone()).await.unwrap();
        rows.renew(&key("Bob"), Timestamp(7), longer).await.unwrap();
        let expected = match renew(&row(document.clone()), Timestamp(7), longer) {
            Ok(Step::Change(next)) => next,
            Ok(Step::Done) | Err(_) => row(document.clone()),
        };
        assert_eq!(expected != row(document), is_locked);
        assert_eq!(rows.read(&key("Bob")).await.unwrap(), expected);
    }
}

#[test]
fn rows_are_stored_as_the_specification_lays_them_out() {
    let primary = rawdoc! { "ns": "bank.accounts", "id": "Bob" };
    let joe = rawdoc! { "ns": "bank.accounts", "id": "Joe" };
    let lock = rawdoc! { "s": 7_i64, "primary": primary, "keys": [joe], "op": "put", "doc": bob(3), "ttl": 5000_i64 };
    let hidden = rawdoc! { "v": 2_i64, "c": 5_i64, "s": 4_i64, "lock": lock };
    assert_eq!(locked(), rawdoc! { "_id": "Bob", "balance": 10_i64, "_hf": hidden });

    let before = rawdoc! { "c": 5_i64, "s": 4_i64, "doc": bob(10) };
    let hidden = rawdoc! { "v": 3_i64, "c": 8_i64, "s": 7_i64, "p": true, "old": [before], "d": 8_i64 };
    assert_eq!(moved(), rawdoc! { "_id": "Bob", "balance": 3_i64, "_hf": hidden });

    let hidden = rawdoc! { "v": 3_i64, "c": 5_i64, "s": 4_i64, "rb": [7_i64], "d": 8_i64 };
    assert_eq!(given_up(), rawdoc! { "_id": "Bob", "balance": 10_i64, "_hf": hidden });
}

#[test]
fn a_row_that_is_made_begins_at_its_maker_s_start() {
    let Ok(Step::Change(made)) = prewrite(&missing(), &put(7, 3)) else { panic!() };
    assert_eq!(made.revision, Revision::At(7));
    let Ok(Step::Change(made)) = prewrite(&row(bob(10)), &put(7, 3)) else { panic!() };
    assert_eq!(made.revision, Revision::At(7));
    let Ok(Step::Change(noted)) = rollback(&missing(), Timestamp(7), true) else { panic!() };
    let hidden = rawdoc! { "v": 7_i64, "c": 0_i64, "s": 0_i64, "del": true, "rb": [7_i64], "d": 8_i64 };
    assert_eq!(noted.to_document(), rawdoc! { "_id": "Bob", "_hf": hidden });
}

#[test]
fn prewrites() {
    let check = |document: RawDocumentBuf, start, expected: Result<bool, PrewriteRefused>| {
        let found = prewrite(&row(document.clone()), &put(start, 0)).map(|step| step != Step::Done);
        assert_eq!(found, expected, "{start} on {document:?}");
    };
    check(bob(10), 1, Ok(true));
    check(committed(), 6, Ok(true));
    check(committed(), 5, Err(PrewriteRefused::Conflict(Timestamp(5))));
    check(committed(), 4, Err(PrewriteRefused::Committed(Timestamp(5))));
    check(committed(), 3, Err(PrewriteRefused::Conflict(Timestamp(5))));
    check(locked(), 7, Ok(false));
    check(locked(), 9, Err(PrewriteRefused::Locked(Box::new(put(7, 3)))));
    // A lock does not hide that a newer version is there.
    check(locked(), 3, Err(PrewriteRefused::Conflict(Timestamp(5))));
    check(moved(), 7, Err(PrewriteRefused::Committed(Timestamp(8))));
    check(moved(), 9, Ok(true));
    check(given_up(), 7, Err(PrewriteRefused::RolledBack));
    check(given_up(), 6, Ok(true));
}

#[test]
fn commits() {
    let check = |document: RawDocumentBuf, start, expected: Result<bool, CommitRefused>| {
        let found = commit(&row(document.clone()), Timestamp(start), Timestamp(20), &NoneFinished);
        assert_eq!(found.map(|step| step != Step::Done), expected, "{start} on {document:?}");
    };
    check(locked(), 7, Ok(true));
    check(moved(), 7, Ok(false));
    check(given_up(), 7, Err(CommitRefused::RolledBack));
    check(committed(), 7, Err(CommitRefused::NoLock));
    // The lock is that of another transaction.
    check(locked(), 9, Err(CommitRefused::NoLock));
}

#[test]
fn rollbacks() {
    let check = |document: RawDocumentBuf, start, record, expected: Result<bool, Timestamp>| {
        let found = rollback(&row(document.clone()), Timestamp(start), record).map(|step| step != Step::Done);
        assert_eq!(found, expected, "{start} on {document:?}");
    };
    check(locked(), 7, true, Ok(true));
    check(locked(), 7, false, Ok(true));
    check(locked(), 9, false, Ok(false));
    check(locked(), 9, true, Ok(true));
    check(moved(), 7, true, Err(Timestamp(8)));
    check(given_up(), 7, true, Ok(false));
}

#[test]
fn abandoned_transactions() {
    // The lock of Bob expires 5 s after 7; that of Joe has the same lifetime.
    let check = |document: RawDocumentBuf, now: Timestamp, expected: Result<bool, GiveUpRefused>| {
        let found = give_up(&row(document.clone()), &put(7, 9), now).map(|step| step != Step::Done);
        assert_eq!(found, expected, "at {now} on {document:?}");
    };
    let end = Timestamp(7).plus(TTL);
    let later = Timestamp(end.0 + 1);
    check(locked(), end, Err(GiveUpRefused::Alive));
    check(locked(), later, Ok(true));
    // The primary's own lock decides, which may have been renewed.
    let Ok(Step::Change(renewed)) = renew(&row(locked()), Timestamp(7), TTL * 2) else { panic!() };
    check(renewed.to_document(), later, Err(GiveUpRefused::Alive));
    // The primary is not locked yet: its lock may still arrive.
    check(committed(), end, Err(GiveUpRefused::Alive));
    check(committed(), later, Ok(true));
    // The primary is decided, at any time.
    for now in [Timestamp(8), later] {
        check(moved(), now, Err(GiveUpRefused::Committed(Timestamp(8))));
        check(given_up(), now, Ok(false));
    }
}

/// Returns a row with the hidden field `hidden` and a document that is `room` bytes smaller than the largest that a store takes.
fn row_with_room(room: usize, hidden: &RawDocumentBuf) -> Row {
    let of = |length: usize| rawdoc! { "_id": "Bob", "text": "x".repeat(length), "_hf": hidden.clone() };
    let (max, least) = (handfast_store::insertion::DOCUMENT_BYTES_MAX, of(0).as_bytes().len());
    row(of(max - least - room))
}

/// The document is nearly as large as the store accepts.
#[test]
fn rollbacks_where_there_is_little_room() {
    let later = Timestamp(Timestamp(7).plus(TTL).0 + 1);
    let given_up = |row: &Row| give_up(row, &put(7, 9), later).unwrap();
    let hidden = rawdoc! { "v": 1_i64, "c": 5_i64, "s": 4_i64 };
    // There is space for a record and a lock, for a record alone, or for none, in which case there is none for a lock either.
    for (room, is_recorded) in [(1000, true), (31, true), (30, false), (0, false)] {
        let row = row_with_room(room, &hidden);
        match given_up(&row) {
            Step::Change(next) => {
                next.check().unwrap();
                assert_eq!(status_of(&next, Timestamp(7)), Status::RolledBack);
                assert!(is_recorded, "{room}");
            }
            Step::Done => {
                let Ok(Step::Change(locked)) = prewrite(&row, &Lock { body: Body::Deleted, ..put(7, 9) }) else {
                    panic!()
                };
                locked.check().unwrap_err();
                assert!(!is_recorded, "{room}");
            }
        }
    }
    // Versions that are kept for readers are dropped for the record; records of decisions stay.
    let old = rawdoc! { "c": 5_i64, "s": 4_i64, "p": true, "doc": bob(10) };
    let older = rawdoc! { "c": 3_i64, "s": 2_i64, "doc": bob(8) };
    let hidden = rawdoc! { "v": 1_i64, "c": 6_i64, "s": 5_i64, "old": [old, older], "d": 6_i64 };
    let Step::Change(next) = given_up(&row_with_room(0, &hidden)) else { panic!() };
    next.check().unwrap();
    assert_eq!(status_of(&next, Timestamp(4)), Status::Committed(Timestamp(5)));
    assert_eq!((read_at(&next, Timestamp(5)), read_at(&next, Timestamp(4))), (ReadResult::TooOld, ReadResult::TooOld));
    // No commit could write this document in a replacement.
    assert_eq!(given_up(&row(rawdoc! { "_id": "Bob", "$to": "Joe" })), Step::Done);
}

#[test]
fn rolling_back_one_leaves_the_lock_of_another() {
    let Ok(Step::Change(next)) = rollback(&row(locked()), Timestamp(9), true) else { panic!() };
    assert_eq!((next.lock, next.rolled_back), (Some(put(7, 3)), vec![Timestamp(9)]));
}

#[test]
fn every_rollback_is_remembered_not_only_the_last() {
    let Ok(Step::Change(next)) = rollback(&row(given_up()), Timestamp(9), true) else { panic!() };
    assert_eq!(prewrite(&next, &put(7, 3)), Err(PrewriteRefused::RolledBack));
    assert_eq!(prewrite(&next, &put(9, 3)), Err(PrewriteRefused::RolledBack));
}

#[test]
fn reads() {
    let check = |document: RawDocumentBuf, at, expected: Option<i64>| {
        let row = row(document);
        match (read_at(&row, Timestamp(at)), expected) {
            (ReadResult::Document(document), Some(balance)) => assert_eq!(document, &bob(balance), "{at}"),
            (ReadResult::Locked(lock), None) => assert_eq!(lock.start, Timestamp(7), "{at}"),
            (found, _) => panic!("at {at}: {found:?}, not {expected:?}"),
        }
    };
    check(bob(10), 0, Some(10));
    check(committed(), 5, Some(10));
    check(locked(), 6, Some(10));
    check(locked(), 7, None);
    check(locked(), 8, None);
    check(moved(), 7, Some(10));
    check(moved(), 8, Some(3));
    check(given_up(), 9, Some(10));
    // The versions before the first one that is kept are unknown.
    assert_eq!(read_at(&row(committed()), Timestamp(4)), ReadResult::TooOld);
    assert_eq!(read_at(&missing(), Timestamp(4)), ReadResult::Nothing);
}

#[test]
fn an_expired_lock_is_one_whose_time_is_over_on_the_oracle_s_clock() {
    let mut lock = put(0, 3);
    lock.start = Timestamp::of_millis(1_000);
    assert!(!lock.is_expired(Timestamp::of_millis(6_000)));
    assert!(lock.is_expired(Timestamp(Timestamp::of_millis(6_000).0 + 1)));
    let locked = Row { lock: Some(lock), ..missing() };
    let Ok(Step::Change(renewed)) = renew(&locked, Timestamp::of_millis(1_000), 2 * TTL) else { panic!() };
    assert!(!renewed.lock.unwrap().is_expired(Timestamp::of_millis(11_000)));
}

/// Commits 10 and so on, at 11 and so on.
fn after_commits(mut row: Row, starts: impl Iterator<Item = u64>, needs: &dyn HistoryNeeds) -> Row {
    for start in starts {
        let Ok(Step::Change(locked)) = prewrite(&row, &put(start, start as i64)) else { panic!() };
        let Ok(Step::Change(next)) = commit(&locked, Timestamp(start), Timestamp(start + 1), needs) else { panic!() };
        row = next;
    }
    row
}

#[test]
fn history_is_bounded_and_decisions_are_kept() {
    let starts = || (10..70).step_by(2);
    let row = after_commits(missing(), starts(), &NoneFinished);
    let kept = row.old.iter().filter(|version| version.body != Body::Cut).count();
    assert_eq!((kept, row.old.len()), (VERSIONS_MAX, 29));
    for start in starts() {
        assert_eq!(status_of(&row, Timestamp(start)), Status::Committed(Timestamp(start + 1)));
    }
    assert_eq!(read_at(&row, Timestamp(12)), ReadResult::TooOld);
    assert_eq!(read_at(&row, Timestamp(68)), ReadResult::Document(&bob(66)));

    let row = after_commits(missing(), starts(), &NOTHING);
    assert_eq!(row.old.len(), VERSIONS_MAX);
    assert_eq!(read_at(&row, Timestamp(12)), ReadResult::TooOld);
}

#[test]
fn the_decision_about_a_single_document_is_kept_too() {
    let mut row = missing();
    for start in (10..70).step_by(2) {
        let lock = Lock { keys: Vec::new(), ..put(start, 0) };
        let Ok(Step::Change(locked)) = prewrite(&row, &lock) else { panic!() };
        let Ok(Step::Change(next)) = commit(&locked, Timestamp(start), Timestamp(start + 1), &NoneFinished) else {
            panic!()
        };
        row = next;
    }
    assert_eq!(status_of(&row, Timestamp(10)), Status::Committed(Timestamp(11)));
}

#[test]
fn a_row_full_of_records_takes_no_more_locks() {
    let mut row = missing();
    row.old = vec![row.visible.clone(); RECORDS_MAX];
    assert!(prewrite(&row, &put(1 << 40, 0)) == Err(PrewriteRefused::Full));
    row.old.clear();
    assert!(prewrite(&row, &put(1 << 40, 0)).is_ok());
    row.rolled_back = vec![Timestamp(1); RECORDS_MAX];
    assert!(prewrite(&row, &put(1 << 40, 0)) == Err(PrewriteRefused::Full));
}

#[test]
fn collections() {
    let three = || after_commits(missing(), [10, 20, 30].into_iter(), &NoneFinished);
    let versions = |safe| match collect(&three(), Timestamp(safe).into()) {
        Collected::Same => 4,
        Collected::Change(row) => row.versions().count(),
        Collected::Nothing => 0,
    };
    assert_eq!([5, 11, 20, 21, 31, 99].map(versions), [4, 3, 3, 2, 1, 1]);

    // A read of a removed version fails.
    let Collected::Change(left) = collect(&three(), Timestamp(21).into()) else { panic!() };
    assert_eq!(read_at(&left, Timestamp(20)), ReadResult::TooOld);
    assert_eq!(read_at(&left, Timestamp(21)), ReadResult::Document(&bob(20)));

    // Records of rollbacks are kept from the safe point on.
    let kept = |safe| match collect(&row(given_up()), Timestamp(safe).into()) {
        Collected::Same => 1,
        Collected::Change(row) => row.rolled_back.len(),
        Collected::Nothing => panic!(),
    };
    assert_eq!([7, 8].map(kept), [1, 0]);

    // Nothing is removed from a row with a lock that should have been resolved.
    assert_eq!(collect(&row(locked()), Timestamp(8).into()), Collected::Same);
    assert_eq!(collect(&missing(), Timestamp(8).into()), Collected::Same);
    assert_eq!(collect(&row(bob(10)), Timestamp(8).into()), Collected::Same);
}

/// Open snapshots keep the versions that they read; they do not keep records of decisions.
#[test]
fn readers_keep_versions_and_not_evidence() {
    let safe = |readers| SafePoint { messages: Timestamp(99), readers: Timestamp(readers) };
    let three = after_commits(missing(), [10, 20, 30].into_iter(), &NoneFinished);
    let Collected::Change(left) = collect(&three, safe(21)) else { panic!() };
    assert_eq!(left.versions().count(), 2);
    assert_eq!(read_at(&left, Timestamp(21)), ReadResult::Document(&bob(20)));
    assert_eq!(read_at(&left, Timestamp(20)), ReadResult::TooOld);

    let Collected::Change(left) = collect(&row(given_up()), safe(0)) else { panic!() };
    assert_eq!((left.rolled_back, left.old.len()), (vec![], 0));

    let many = after_commits(missing(), (10..70).step_by(2), &NoneFinished);
    let Collected::Change(left) = collect(&many, safe(0)) else { panic!() };
    assert_eq!(left.old.len(), VERSIONS_MAX);
    for at in 10..80 {
        assert_eq!(read_at(&left, Timestamp(at)), read_at(&many, Timestamp(at)));
    }

    let lock = Lock { body: Body::Deleted, ..put(40, 0) };
    let Ok(Step::Change(locked)) = prewrite(&three, &lock) else { panic!() };
    let Ok(Step::Change(gone)) = commit(&locked, Timestamp(40), Timestamp(41), &NoneFinished) else { panic!() };
    let Collected::Change(left) = collect(&gone, safe(40)) else { panic!() };
    assert_eq!(read_at(&left, Timestamp(40)), ReadResult::Document(&bob(30)));
    assert_eq!(collect(&gone, safe(41)), Collected::Nothing);
}

#[test]
fn a_tombstone_is_removed_when_no_reader_can_need_it() {
    let lock = Lock { body: Body::Deleted, ..put(20, 0) };
    let Ok(Step::Change(locked)) = prewrite(&row(moved()), &lock) else { panic!() };
    let Ok(Step::Change(gone)) = commit(&locked, Timestamp(20), Timestamp(21), &NoneFinished) else { panic!() };
    assert_eq!(gone.to_document().iter().count(), 2);
    assert_eq!(read_at(&gone, Timestamp(21)), ReadResult::Nothing);
    assert!(matches!(collect(&gone, Timestamp(20).into()), Collected::Change(_)));
    assert_eq!(collect(&gone, Timestamp(21).into()), Collected::Nothing);
    // A row stays while the request that inserted it may still arrive.
    let Ok(Step::Change(noted)) = rollback(&missing(), Timestamp(30), true) else { panic!() };
    assert_eq!(collect(&noted, Timestamp(30).into()), Collected::Same);
    assert_eq!(collect(&noted, Timestamp(31).into()), Collected::Nothing);
}

/// A row is due for any number of versions, including cut ones, tombstones and records.
#[test]
fn a_row_is_due_when_it_has_something_to_forget() {
    for count in [1, 2, 3, 10, 30] {
        let many = after_commits(missing(), (1..=count).map(|number| 10 * number), &NoneFinished);
        check_due(&many).unwrap();
        let lock = Lock { body: Body::Deleted, ..put(1_000, 0) };
        let Ok(Step::Change(locked)) = prewrite(&many, &lock) else { panic!() };
        let Ok(Step::Change(gone)) = commit(&locked, Timestamp(1_000), Timestamp(1_001), &NoneFinished) else {
            panic!()
        };
        check_due(&gone).unwrap();
        let Ok(Step::Change(given_up)) = rollback(&gone, Timestamp(5), true) else { panic!() };
        check_due(&given_up).unwrap();
    }
    assert_eq!((due(&row(committed())), due(&missing())), (None, None));
}

/// A step on a row.
#[derive(Clone, Copy, Debug)]
enum Try {
    Prewrite(usize),
    Commit(usize),
    RollBack(usize, bool),
    Renew(usize),
    /// Collects history; the flag tells whether the last reader keeps its snapshot open.
    Collect(bool),
}

fn tries() -> impl Strategy<Value = Vec<Try>> {
    let one = prop_oneof![
        4 => (0..6_usize).prop_map(Try::Prewrite),
        4 => (0..6_usize).prop_map(Try::Commit),
        2 => (0..6_usize, any::<bool>()).prop_map(|(of, record)| Try::RollBack(of, record)),
        1 => (0..6_usize).prop_map(Try::Renew),
        1 => any::<bool>().prop_map(Try::Collect),
    ];
    proptest::collection::vec(one, 1..60)
}

/// Checks that a cleaner finds a row once it has something to forget, and does not find it again afterwards.
fn check_due(row: &Row) -> Result<(), TestCaseError> {
    let is_due = |row: &Row, safe: Timestamp| due(row).is_some_and(|due| due <= safe);
    let Revision::At(revision) = row.revision else { return Ok(()) };
    let commits = row.versions().map(|version| version.commit.0);
    for at in commits.chain(row.rolled_back.iter().map(|start| start.0)).chain([revision]) {
        for safe in [at.saturating_sub(1), at, at + 1].map(Timestamp) {
            match collect(row, safe.into()) {
                Collected::Same => prop_assert!(row.lock.is_some() || !is_due(row, safe)),
                Collected::Change(left) => {
                    prop_assert!(is_due(row, safe) && (row.lock.is_some() || !is_due(&left, safe)));
                }
                Collected::Nothing => prop_assert!(is_due(row, safe)),
            }
        }
    }
    Ok(())
}

proptest! {
    /// After any steps in any order each transaction has one decision, revisions only grow, rows are read back as they were
    /// written, and each reader gets the same result for as long as it gets one.
    #[test]
    fn any_steps_in_any_order(tries in tries(), begins_missing in any::<bool>()) {
        let mut current = if begins_missing { missing() } else { row(bob(0)) };
        let mut now = 1_000;
        let mut commits = [None::<Timestamp>; 6];
        let mut decided = [Status::Unknown; 6];
        let mut readings: Vec<(Timestamp, Option<RawDocumentBuf>)> = Vec::new();
        let mut safe = Timestamp(0);
        let mut kept = None;
        let start = |of: usize| Timestamp(100 + 10 * of as u64);
        for step in tries {
            now += 1;
            let next = match step {
                Try::Prewrite(of) => prewrite(&current, &put(start(of).0, now as i64)).ok(),
                Try::Commit(of) => {
                    // The time of the commit is fetched while the lock is there.
                    let is_locked = status_of(&current, start(of)) == Status::Locked;
                    let at = if is_locked { *commits[of].get_or_insert(Timestamp(now)) } else { Timestamp(now) };
                    commit(&current, start(of), at, &NoneFinished).ok()
                }
                Try::RollBack(of, record) => {
                    commits[of] = None;
                    rollback(&current, start(of), record).ok()
                }
                Try::Renew(of) => renew(&current, start(of), Duration::from_secs(now)).ok(),
                Try::Collect(keeps) => {
                    safe = current.lock.as_ref().map_or(Timestamp(now), |lock| lock.start);
                    if keeps {
                        kept = kept.or(readings.last().map(|(at, _)| *at));
                    }
                    let readers = kept.map_or(safe, |at| safe.min(at));
                    match collect(&current, SafePoint { messages: safe, readers }) {
                        Collected::Change(row) => Some(Step::Change(row)),
                        Collected::Same => None,
                        Collected::Nothing => break,
                    }
                }
            };
            let Some(Step::Change(next)) = next else { continue };
            let (Revision::At(after), before) = (next.revision, current.revision) else { panic!() };
            prop_assert!(!matches!(before, Revision::At(before) if before >= after));
            prop_assert_eq!(&row(next.to_document()), &next);
            current = next;
            check_due(&current)?;
            for (of, before) in decided.iter_mut().enumerate() {
                let status = status_of(&current, start(of));
                if start(of) >= safe && matches!(before, Status::Committed(_) | Status::RolledBack) {
                    prop_assert_eq!(status, *before);
                }
                *before = status;
            }
            for (at, seen) in &readings {
                match read_at(&current, *at) {
                    ReadResult::Document(document) => prop_assert_eq!(Some(document), seen.as_ref()),
                    ReadResult::Nothing => prop_assert!(seen.is_none()),
                    // Only a read below the open snapshot may be too old.
                    ReadResult::TooOld => prop_assert!(kept.is_none_or(|kept| *at < kept)),
                    ReadResult::Locked(lock) => prop_assert!(lock.start <= *at),
                }
            }
            // A reader reads at this time: later commits get later timestamps.
            now += 1;
            match read_at(&current, Timestamp(now)) {
                ReadResult::Document(document) => readings.push((Timestamp(now), Some(document.clone()))),
                ReadResult::Nothing => readings.push((Timestamp(now), None)),
                ReadResult::Locked(_) | ReadResult::TooOld => {}
            }
        }
    }
}
