//! Faults at every operation, and copies of requests that arrive late.

use bson::{Bson, DateTime, Document, doc, rawdoc};
use handfast_patterns::Result;
use handfast_patterns::ledger::{
    Authorisation, Cancel, Capture, Ledger, NewAccount, NewEntry, Posting, Resolution, Restored,
};
use handfast_store::StoreExt;

use super::{HOUR, all, balance, books, commit_all, funded, open, posted, reports};
use crate::black_pipe::{assert_right, every_pair};
use crate::crash::{Stage, World, every_point};

/// Checks that the books are right, and nothing waits.
async fn settled(world: &World) -> Result<(), String> {
    books::check(world).await?;
    let waiting = all(world, "tx").await.into_iter().find(|entry| entry.get("proc") == Some(&"UNCOMMITTED".into()));
    if let Some(entry) = waiting {
        return Err(format!("not committed: {entry}"));
    }
    // The ledger's own verification agrees.
    let ledger = open(world).await.map_err(|error| error.to_string())?;
    let verified = ledger.verify_all().await.map_err(|error| error.to_string())?;
    let totals = ledger.totals().await.map_err(|error| error.to_string())?;
    if verified.is_clean() && totals.iter().all(handfast_patterns::ledger::Totals::is_balanced) {
        Ok(())
    } else {
        Err(format!("{verified:?} {totals:?}"))
    }
}

async fn in_the_books(world: &World, answers: &[(i32, bool)]) -> Result<(), String> {
    let entries = all(world, "tx").await;
    for (id, posted) in answers {
        let there = entries.iter().any(|entry| entry.get("_id") == Some(&Bson::Int32(*id)));
        if there != *posted {
            return Err(format!("entry {id} was answered {posted}, and is there: {there}"));
        }
    }
    Ok(())
}

fn entries() -> [NewEntry; 4] {
    [("A", "B", 60), ("A", "C", 60), ("B", "A", 10), ("A", "B", 5)]
        .map(|(payer, payee, value)| NewEntry::transfer(payer, payee, value, "EUR"))
}

/// Records the answer that an entry was posted, or was refused.
fn answered(world: &World, id: i32, posting: &Posting) -> (i32, bool) {
    match posting.entry() {
        Some(_) => world.acknowledge(posting, "tx", doc! { "_id": id }),
        None => world.acknowledge_none(posting, "tx", doc! { "_id": id }),
    }
    (id, posting.entry().is_some())
}

/// Posts the entries, of which the second one is refused, whenever it is posted.
async fn post_all(world: &World, ledger: &Ledger) -> Result<Vec<(i32, bool)>> {
    let mut answers = Vec::new();
    for (id, entry) in (1..).zip(entries()) {
        answers.push(answered(world, id, &ledger.post(entry.with_id(id)).await?));
        if id == 3 {
            ledger.commit(10).await?;
        }
    }
    ledger.commit(10).await?;
    Ok(answers)
}

async fn prepare(world: &World) {
    let ledger = open(world).await.unwrap();
    funded(&ledger, &[("A", 100), ("B", 0)]).await;
}

async fn recovered(world: &World) -> Result<()> {
    let ledger = open(world).await?;
    // Places that were drawn and not posted are filled, and the entries after them committed, in a few rounds.
    for _ in 0..3 {
        assert_eq!(ledger.commit(20).await?.failed, 0);
    }
    assert_eq!(ledger.expire(20).await?.failed, 0);
    ledger.commit(20).await.map(|_| ())
}

async fn posted_and_killed(stage: Stage) {
    let run = async |world: &World| post_all(world, &open(world).await?).await;
    let recover = async |world: &World, _: &Result<_>| recovered(world).await;
    let check = async |world: &World, _: &Result<Vec<_>>| settled(world).await;
    let report = every_point(&stage, prepare, run, recover, check).await;
    report.assert_clean("ledger, four entries posted and committed", &stage, 525);
}

#[tokio::test(flavor = "multi_thread")]
async fn posted_over_the_wire() {
    let run = async |world: &World| {
        let ledger = open(world).await?;
        let posting = ledger.post(NewEntry::transfer("A", "B", 60, "EUR").with_id(1)).await?;
        answered(world, 1, &posting);
        ledger.commit(10).await
    };
    let recover = async |world: &World, _: &Result<_>| recovered(world).await;
    let check = async |world: &World, _: &Result<_>| settled(world).await;
    assert_right("ledger", &every_pair(prepare, run, recover, check).await, 40);
}

#[tokio::test]
async fn posted_and_killed_at_every_operation() {
    posted_and_killed(Stage::Memory).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn posted_and_killed_at_every_operation_embedded() {
    let directory = tempfile::tempdir().unwrap();
    posted_and_killed(Stage::embedded(directory.path()).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn posted_and_killed_at_every_operation_on_a_server() {
    posted_and_killed(Stage::server().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ext_posted_and_killed_at_every_operation_on_ferretdb() {
    if let Some(stage) = Stage::ferretdb().await {
        posted_and_killed(stage).await;
    }
}

/// Another process posts the same entries with the same ids, and each is in the ledger once.
#[tokio::test]
async fn entries_posted_again_by_another_process_are_posted_once() {
    let run = async |world: &World| post_all(world, &open(world).await?).await;
    let recover = async |world: &World, _: &Result<_>| {
        recovered(world).await?;
        post_all(world, &open(world).await?).await.map(|_| ())
    };
    let check = async |world: &World, _: &Result<Vec<_>>| {
        in_the_books(world, &[(1, true), (2, false), (3, true), (4, true)]).await?;
        settled(world).await?;
        let ledger = open(world).await.map_err(|error| error.to_string())?;
        match (balance(&ledger, "A").await, balance(&ledger, "B").await) {
            (45, 55) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    };
    // Without a fault there is no recovery, and the second commit is the last one.
    let report = every_point(&Stage::Memory, prepare, run, recover, check).await;
    report.assert_clean("ledger, four entries posted again", &Stage::Memory, 525);
}

/// Posts to an account for fees with a sequence: a place that was drawn may never be posted.
async fn drawn_and_killed(stage: Stage) {
    let prepare = async |world: &World| {
        prepare(world).await;
        let ledger = open(world).await.unwrap();
        ledger.open_account(NewAccount::new("fees", "EUR").with_sequence()).await.unwrap();
    };
    let run = async |world: &World| {
        let ledger = open(world).await?;
        let mut answers = Vec::new();
        for (id, value) in [(1, 7), (2, 1000), (3, 8)] {
            let entry = NewEntry::transfer("A", "fees", value, "EUR").with_id(id);
            answers.push(answered(world, id, &ledger.post(entry).await?));
        }
        ledger.commit(10).await?;
        Ok(answers)
    };
    let recover = async |world: &World, _: &Result<_>| {
        recovered(world).await?;
        // The next entry finds the gap, and so does the committer when it has waited long enough.
        let ledger = open(world).await?;
        let later = NewEntry::transfer("cash", "fees", 1, "EUR").with_id(9);
        let posting = ledger.post(later).await?;
        assert!(posting.entry().is_some(), "{posting:?}");
        world.clock.advance(HOUR);
        recovered(world).await
    };
    let check = async |world: &World, _: &Result<Vec<_>>| settled(world).await;
    let report = every_point(&stage, prepare, run, recover, check).await;
    report.assert_clean("ledger, places drawn from a sequence", &stage, 336);
}

#[tokio::test]
async fn drawn_and_killed_at_every_operation() {
    drawn_and_killed(Stage::Memory).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn drawn_and_killed_at_every_operation_embedded() {
    let directory = tempfile::tempdir().unwrap();
    drawn_and_killed(Stage::embedded(directory.path()).await).await;
}

/// Cancels one entry, reverses another one, and tries both for a third one, which are refused.
async fn canceled_and_killed(stage: Stage) {
    let prepare = async |world: &World| {
        let ledger = open(world).await.unwrap();
        funded(&ledger, &[("A", 100), ("B", 0)]).await;
        posted(&ledger, NewEntry::transfer("A", "B", 20, "EUR").with_id("old")).await;
        commit_all(&ledger).await;
        posted(&ledger, NewEntry::transfer("A", "B", 50, "EUR").with_id("fresh")).await;
        posted(&ledger, NewEntry::transfer("A", "C", 30, "EUR").with_id("spent")).await;
        ledger.set_minimum("C", Some(0)).await.unwrap();
        posted(&ledger, NewEntry::transfer("C", "B", 30, "EUR")).await;
    };
    let run = async |world: &World| {
        let ledger = open(world).await?;
        let mut answers = Vec::new();
        for id in ["fresh", "old", "spent"] {
            let canceled = ledger.cancel(id, "a mistake").await?;
            answers.push(match &canceled {
                Cancel::Canceled => {
                    world.acknowledge_none(&canceled, "tx", doc! { "_id": id, "state": "VALID" });
                    "canceled"
                }
                Cancel::Reversed(_) => {
                    world.acknowledge(&canceled, "tx", doc! { "reverses": id });
                    "reversed"
                }
                Cancel::Refused(_) => {
                    world.acknowledge(&canceled, "tx", doc! { "_id": id, "state": "VALID" });
                    "refused"
                }
                Cancel::Missing => "missing",
            });
        }
        ledger.commit(20).await?;
        Ok(answers)
    };
    let recover = async |world: &World, _: &Result<_>| recovered(world).await;
    let check = async |world: &World, answer: &Result<Vec<_>>| {
        if let Ok(answers) = answer {
            if *answers != ["canceled", "reversed", "refused"] {
                return Err(format!("{answers:?}"));
            }
            let ledger = open(world).await.map_err(|error| error.to_string())?;
            let balances = (balance(&ledger, "A").await, balance(&ledger, "B").await, balance(&ledger, "C").await);
            if balances != (70, 30, 0) {
                return Err(format!("{balances:?}"));
            }
        }
        settled(world).await
    };
    let report = every_point(&stage, prepare, run, recover, check).await;
    report.assert_clean("ledger, entries canceled and reversed", &stage, 518);
}

#[tokio::test]
async fn canceled_and_killed_at_every_operation() {
    canceled_and_killed(Stage::Memory).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn canceled_and_killed_at_every_operation_embedded() {
    let directory = tempfile::tempdir().unwrap();
    canceled_and_killed(Stage::embedded(directory.path()).await).await;
}

/// Captures one authorisation, releases another one, and lets a third one expire.
async fn held_and_killed(stage: Stage) {
    let run = async |world: &World| {
        let ledger = open(world).await?;
        let soon = DateTime::from_millis(world.sources.clock.now().timestamp_millis() + 3_600_000);
        for (id, value) in [(1, 40), (2, 5), (3, 7)] {
            let hold = Authorisation::new("A", "B", value, "EUR").with_id(id).until(soon);
            assert!(answered(world, id, &ledger.authorise(hold).await?).1);
        }
        let first = ledger.capture(1, Capture::Part(30)).await?;
        let second = ledger.release(2).await?;
        for (id, resolution) in [(1, &first), (2, &second)] {
            world.acknowledge(resolution, "tx", doc! { "resolves": id });
        }
        let done = [first, second].iter().all(|resolution| matches!(resolution, Resolution::Done(_)));
        ledger.commit(20).await?;
        Ok(done)
    };
    let recover = async |world: &World, _: &Result<_>| recovered(world).await;
    let check = async |world: &World, answer: &Result<bool>| {
        let ledger = open(world).await.map_err(|error| error.to_string())?;
        if let Ok(done) = answer {
            let balances = (balance(&ledger, "A").await, balance(&ledger, "B").await);
            if !done || balances != (70, 30) {
                return Err(format!("{balances:?}, {done}"));
            }
        }
        let now = ledger.balance("A").await.map_err(|error| error.to_string())?;
        let over = now.is_none_or(|now| now.held == 0);
        // The run without faults is checked before anything has expired.
        let counted = world.sources.clock.now() < DateTime::from_millis(1_577_836_800_000 + 3_600_000);
        if !over && !counted {
            return Err("an authorisation that has expired holds".to_owned());
        }
        let entries = all(world, "tx").await;
        for announced in all(world, "hold").await {
            let there = entries.iter().any(|entry| entry.get("_id") == announced.get("entry"));
            if there && !counted {
                return Err(format!("nobody needs {announced}"));
            }
        }
        settled(world).await
    };
    let report = every_point(&stage, prepare, run, recover, check).await;
    report.assert_clean("ledger, authorisations captured, released and expired", &stage, 609);
}

#[tokio::test]
async fn held_and_killed_at_every_operation() {
    held_and_killed(Stage::Memory).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn held_and_killed_at_every_operation_embedded() {
    let directory = tempfile::tempdir().unwrap();
    held_and_killed(Stage::embedded(directory.path()).await).await;
}

/// All caches are removed; the rebuild fails at every operation, and is made again.
#[tokio::test]
async fn a_rebuilding_that_is_killed_at_every_operation() {
    let prepare = async |world: &World| {
        prepare(world).await;
        post_all(world, &open(world).await.unwrap()).await.unwrap();
        reports::wipe(world).await;
    };
    let run = async |world: &World| {
        let rebuilt = open(world).await?.rebuild_all().await?;
        world.acknowledge_none(&rebuilt, "tx", doc! { "changes": { "$elemMatch": { "cachedBal": null } } });
        open(world).await?;
        Ok(rebuilt)
    };
    let recover = async |world: &World, _: &Result<_>| open(world).await?.rebuild_all().await.map(|_| ());
    let check = async |world: &World, _: &Result<_>| settled(world).await;
    let report = every_point(&Stage::Memory, prepare, run, recover, check).await;
    report.assert_clean("ledger, the rebuilding", &Stage::Memory, 287);
}

/// Restores one of two lost entries from a copy, and abandons the other one.
async fn close_gaps(world: &World) -> Result<()> {
    let ledger = open(world).await?;
    let copy = world.store.find_one(&world.namespace("copies"), rawdoc! { "_id": 1 }).await?.unwrap();
    let restored = ledger.restore(&Document::try_from(&*copy).unwrap()).await?;
    assert!(!matches!(restored, Restored::Refused(_)), "{restored:?}");
    world.acknowledge(restored, "tx", doc! { "_id": 1 });
    for (account, place) in [("A", 3), ("B", 2)] {
        let abandoned = ledger.abandon(account, place..=place, "lost").await?;
        let at = doc! { "changes": { "$elemMatch": { "account": account, "seqId": place } }, "state": "ABANDONED" };
        world.acknowledge(abandoned, "tx", at);
    }
    assert!(ledger.rebuild_all().await?.is_whole());
    Ok(())
}

#[tokio::test]
async fn closing_gaps_that_is_killed_at_every_operation() {
    let prepare = async |world: &World| {
        prepare(world).await;
        let ledger = open(world).await.unwrap();
        for (id, payer, payee, value) in [(1, "A", "B", 60), (2, "B", "A", 10), (3, "A", "B", 5)] {
            posted(&ledger, NewEntry::transfer(payer, payee, value, "EUR").with_id(id)).await;
        }
        commit_all(&ledger).await;
        let copy = world.store.find_one(&world.namespace("tx"), rawdoc! { "_id": 1 }).await.unwrap().unwrap();
        world.store.insert_one(&world.namespace("copies"), copy).await.unwrap();
        world.store.delete_many(&world.namespace("tx"), rawdoc! { "_id": { "$in": [1, 2] } }).await.unwrap();
    };
    let run = async |world: &World| close_gaps(world).await;
    let recover = async |world: &World, _: &Result<_>| close_gaps(world).await;
    let check = async |world: &World, _: &Result<_>| {
        settled(world).await?;
        let ledger = open(world).await.map_err(|error| error.to_string())?;
        match (balance(&ledger, "A").await, balance(&ledger, "B").await) {
            (35, 65) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    };
    let report = every_point(&Stage::Memory, prepare, run, recover, check).await;
    report.assert_clean("ledger, closing gaps", &Stage::Memory, 350);
}
