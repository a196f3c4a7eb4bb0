//! Ids that a filter would take for operators or patterns name what they are equal to, which is nothing.

use std::sync::Arc;

use bson::oid::ObjectId;
use bson::raw::cstr;
use bson::{Bson, DateTime, Document, Regex, doc, rawdoc};
use handfast_patterns::exactly_once::{TwoStep, TwoStepOptions, UpdateOutcome};
use handfast_patterns::job_queue::{JobQueue, JobQueueOptions, NewJob};
use handfast_patterns::ledger::{
    AsOf, Authorisation, Cancel, Capture, Change as EntryChange, Ledger, NewAccount, NewEntry, Page, Resolution,
};
use handfast_patterns::sync_flag::{Link, SyncFlag, SyncFlagOptions, SyncOutcome};
use handfast_patterns::two_phase::{Transfer, TwoPhase, TwoPhaseOptions, TwoPhaseOutcome};
use handfast_patterns::{Change, Error, ExactlyOnce, VersionedTree, VersionedTreeOptions};
use handfast_store::{Find, StoreExt};

use crate::crash::World;

/// Returns values that would match every `_id` that is a string.
fn conditions() -> [Bson; 4] {
    let everything = Regex { pattern: cstr!("").into(), options: cstr!("").into() };
    [
        doc! { "$gt": "" }.into(),
        doc! { "$ne": null }.into(),
        doc! { "$exists": true }.into(),
        Bson::RegularExpression(everything),
    ]
}

async fn all(world: &World, collection: &str) -> Vec<Document> {
    let find = Find { sort: rawdoc! { "_id": 1 }, ..Find::new(world.namespace(collection), rawdoc! {}) };
    let found = world.store.find_all(find).await.unwrap();
    found.iter().map(|document| Document::try_from(&**document).unwrap()).collect()
}

fn is_invalid<T>(result: Result<T, Error>) -> bool {
    matches!(result, Err(Error::Invalid { .. }))
}

#[tokio::test]
async fn of_a_ledger() {
    let world = World::in_memory();
    let store = Arc::clone(&world.store);
    let ledger =
        Ledger::open_with(store, world.namespace("tx"), world.sources.clone(), Default::default()).await.unwrap();
    ledger.open_account(NewAccount::new("ann", "EUR").with_minimum(0)).await.unwrap();
    let _ = ledger.post(NewEntry::transfer("cash", "ann", 100, "EUR").with_id("deposit")).await.unwrap();
    let later = DateTime::from_millis(world.sources.clock.now().timestamp_millis() + 60_000);
    let _ = ledger.authorise(Authorisation::new("ann", "bob", 10, "EUR").with_id("hold").until(later)).await.unwrap();
    assert_eq!(ledger.commit(10).await.unwrap().done, 2);
    let state = async || [all(&world, "tx").await, all(&world, "account").await, all(&world, "hold").await];
    let before = state().await;
    for id in conditions() {
        assert_eq!(ledger.show(id.clone()).await.unwrap(), None, "{id}");
        assert_eq!(ledger.cancel(id.clone(), "r").await.unwrap(), Cancel::Missing, "{id}");
        assert_eq!(ledger.capture(id.clone(), Capture::Full).await.unwrap(), Resolution::Missing, "{id}");
        assert_eq!(ledger.release(id.clone()).await.unwrap(), Resolution::Missing, "{id}");
        assert_eq!(ledger.hold_state(id.clone()).await.unwrap(), None, "{id}");
        assert_eq!(ledger.account(id.clone()).await.unwrap(), None, "{id}");
        assert_eq!(ledger.balance(id.clone()).await.unwrap(), None, "{id}");
        for (account, as_of) in [
            (id.clone(), AsOf::SequenceNumber(1)),
            (id.clone(), AsOf::Entry("deposit".into())),
            (id.clone(), AsOf::Time(later)),
            ("ann".into(), AsOf::Entry(id.clone())),
        ] {
            assert_eq!(ledger.balance_at(account, as_of.clone()).await.unwrap(), None, "{id} {as_of:?}");
        }
        assert!(ledger.pending(id.clone(), 10).await.unwrap().is_empty(), "{id}");
        assert!(ledger.statement(id.clone(), Page::After(0), 10).await.unwrap().lines.is_empty(), "{id}");
        assert_eq!(ledger.verify(id.clone()).await.unwrap().accounts, 0, "{id}");
        assert!(is_invalid(ledger.abandon(id.clone(), 1..=1, "r").await), "{id}");
        assert!(is_invalid(ledger.set_minimum(id.clone(), Some(-1)).await), "{id}");
        assert!(is_invalid(ledger.open_account(NewAccount::new(id.clone(), "EUR")).await), "{id}");
        let entry = NewEntry::transfer("cash", "ann", 1, "EUR").with_id(id.clone());
        assert!(is_invalid(ledger.post(entry).await), "{id}");
        let changes = [EntryChange::new("ann", -1, "EUR"), EntryChange::new(id.clone(), 1, "EUR")];
        assert!(is_invalid(ledger.post(NewEntry::new(changes).with_id("new")).await), "{id}");
        for hold in [
            Authorisation::new("ann", "bob", 1, "EUR").with_id(id.clone()),
            Authorisation::new(id.clone(), "bob", 1, "EUR"),
            Authorisation::new("ann", id.clone(), 1, "EUR"),
        ] {
            assert!(is_invalid(ledger.authorise(hold.until(later)).await), "{id}");
        }
        assert_eq!(state().await, before, "{id}");
    }
}

#[tokio::test]
async fn of_a_job_queue() {
    let world = World::in_memory();
    let (store, options) = (Arc::clone(&world.store), JobQueueOptions::default());
    let queue = JobQueue::open_with(store, world.namespace("jobs"), world.sources.clone(), options).await.unwrap();
    let job = || NewJob::new("mail", &doc! {}).unwrap();
    for id in ["claimed", "failed", "waits"] {
        queue.enqueue(job().with_id(id)).await.unwrap();
    }
    let kinds = ["mail".to_owned()];
    let claimed = queue.claim_many("w", &kinds, 2).await.unwrap();
    let failed = claimed.iter().find(|job| job.id == Bson::from("failed")).unwrap();
    let _ = queue.give_up(failed, "no").await.unwrap();
    let claims: Vec<ObjectId> = claimed.iter().filter_map(|job| job.worker.as_ref()?.claim).collect();
    let before = all(&world, "jobs").await;
    for id in conditions() {
        assert!(queue.show(id.clone()).await.unwrap().is_none(), "{id}");
        assert!(!queue.cancel(id.clone()).await.unwrap(), "{id}");
        assert!(!queue.retry(id.clone()).await.unwrap(), "{id}");
        assert!(!queue.discard(id.clone()).await.unwrap(), "{id}");
        assert!(queue.position_of(id.clone()).await.unwrap().is_none(), "{id}");
        for claim in &claims {
            assert!(queue.claimed(id.clone(), *claim).await.unwrap().is_none(), "{id}");
        }
        assert!(queue.enqueue(job().with_id(id.clone())).await.is_err(), "{id}");
        assert!(queue.enqueue_all([job().with_id(id.clone())]).await.is_err(), "{id}");
        assert_eq!(all(&world, "jobs").await, before, "{id}");
    }
}

#[tokio::test]
async fn of_two_phase_commits() {
    let world = World::in_memory();
    for id in ["A", "B"] {
        world.store.insert_one(&world.namespace("accounts"), rawdoc! { "_id": id, "balance": 10 }).await.unwrap();
    }
    let (store, options) = (Arc::clone(&world.store), TwoPhaseOptions::new("App", world.namespace("accounts")));
    let two_phase = TwoPhase::open_with(store, world.namespace("tx"), world.sources.clone(), options).await.unwrap();
    two_phase.begin("waits", Transfer::new("A", "B", 1)).await.unwrap();
    two_phase.begin("done", Transfer::new("A", "B", 1)).await.unwrap();
    assert_eq!(two_phase.run("done").await.unwrap(), TwoPhaseOutcome::Done);
    let state = async || [all(&world, "tx").await, all(&world, "accounts").await];
    for (number, id) in conditions().into_iter().enumerate() {
        let before = state().await;
        assert!(two_phase.show(id.clone()).await.unwrap().is_none(), "{id}");
        assert_eq!(two_phase.run(id.clone()).await.unwrap(), TwoPhaseOutcome::Missing, "{id}");
        let _ = two_phase.cancel(id.clone(), "r").await;
        assert!(two_phase.read(&world.namespace("accounts"), id.clone()).await.unwrap().is_none(), "{id}");
        assert!(is_invalid(two_phase.compensate(id.clone(), "back").await), "{id}");
        assert!(two_phase.begin(id.clone(), Transfer::new("A", "B", 1)).await.is_err(), "{id}");
        assert_eq!(state().await, before, "{id}");
        // A participant that does not exist refuses the transaction.
        let transfer = format!("to {number}");
        two_phase.begin(transfer.as_str(), Transfer::new("A", id.clone(), 1)).await.unwrap();
        let outcome = two_phase.run(transfer).await.unwrap();
        assert!(matches!(outcome, TwoPhaseOutcome::Canceled { .. }), "{id}: {outcome:?}");
        let balances: Vec<_> = all(&world, "accounts").await.iter().map(|one| one.get("balance").cloned()).collect();
        let before: Vec<_> = before[1].iter().map(|one| one.get("balance").cloned()).collect();
        assert_eq!(balances, before, "{id}");
    }
}

#[tokio::test]
async fn of_exactly_once_updates() {
    let world = World::in_memory();
    let days = world.namespace("days");
    world.store.insert_one(&days, rawdoc! { "_id": "today", "n": 1 }).await.unwrap();
    let store = || Arc::clone(&world.store);
    let once = ExactlyOnce::open_with(store(), days.clone(), world.sources.clone(), Default::default()).await.unwrap();
    let count = Change::increment("n", 1);
    let options = TwoStepOptions::default();
    let two_step =
        TwoStep::open_with(store(), days.clone(), world.sources.clone(), count.clone(), options).await.unwrap();
    let before = all(&world, "days").await;
    for id in conditions() {
        assert_eq!(once.apply(once.token(), id.clone(), &count).await.unwrap(), UpdateOutcome::Missing, "{id}");
        assert_eq!(two_step.apply(two_step.token(), id.clone()).await.unwrap(), UpdateOutcome::Missing, "{id}");
        // No document can have such an `_id`.
        assert!(once.apply(once.token(), id.clone(), &count.clone().or_insert()).await.is_err(), "{id}");
        assert_eq!(all(&world, "days").await, before, "{id}");
    }
}

#[tokio::test]
async fn of_sync_flags() {
    let world = World::in_memory();
    let (users, comments) = (world.namespace("users"), world.namespace("comments"));
    world.store.insert_one(&users, rawdoc! { "_id": "ann", "name": "Ann" }).await.unwrap();
    world.store.insert_one(&comments, rawdoc! { "_id": "first", "user": "ann", "userName": "Ann" }).await.unwrap();
    let options = SyncFlagOptions::new([Link::new(comments.clone(), "user").field("name", "userName")]);
    let names = SyncFlag::open_with(Arc::clone(&world.store), users, world.sources.clone(), options).await.unwrap();
    let renamed = Change::new(doc! { "$set": { "name": "Eve" } });
    let state = async || [all(&world, "users").await, all(&world, "comments").await];
    let before = state().await;
    for id in conditions() {
        let outcome = names.change(names.token(), id.clone(), &renamed).await.unwrap();
        assert!(matches!(outcome, SyncOutcome::Missing), "{id}: {outcome:?}");
        for outcome in [names.delete(id.clone()).await.unwrap(), names.sync(id.clone()).await.unwrap()] {
            assert!(matches!(outcome, SyncOutcome::Missing), "{id}: {outcome:?}");
        }
        assert!(names.read(id.clone()).await.unwrap().is_none(), "{id}");
        assert!(names.show(id.clone()).await.unwrap().is_none(), "{id}");
        assert!(names.read_copy(&comments, id.clone()).await.unwrap().is_none(), "{id}");
        assert_eq!(state().await, before, "{id}");
    }
}

#[tokio::test]
async fn of_versioned_trees() {
    let world = World::in_memory();
    let open = async |root: Bson| {
        let (store, options) = (Arc::clone(&world.store), VersionedTreeOptions::new(root));
        VersionedTree::open_with(store, world.namespace("items"), world.sources.clone(), options).await
    };
    let tree = open("tree".into()).await.unwrap();
    let put = async |item: Bson| {
        tree.change(|mut write| {
            let item = item.clone();
            async move {
                write.put(item, doc! { "n": 1 }).await?;
                Ok::<_, Error>(write.with_root(doc! {}))
            }
        })
        .await
    };
    put("a".into()).await.unwrap();
    let snapshot = tree.newest().await.unwrap().unwrap();
    for id in conditions() {
        assert!(is_invalid(open(id.clone()).await.map(|_| ())), "{id}");
        assert!(is_invalid(put(id.clone()).await), "{id}");
        assert!(snapshot.node(id.clone()).await.unwrap().is_none(), "{id}");
        assert!(snapshot.nodes([id.clone()]).await.unwrap().is_empty(), "{id}");
    }
    // An index has an entry for each element of an array, so that two of them could not be in one version.
    for id in [Bson::Null, vec!["a", "b"].into()] {
        assert!(is_invalid(open(id.clone()).await.map(|_| ())), "{id}");
        assert!(is_invalid(put(id.clone()).await), "{id}");
    }
}
