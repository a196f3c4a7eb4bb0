//! What `verify` and `status` say: nothing of what a crash leaves, each kind of what must not be there.

use handfast_patterns::two_phase::Finding;

use super::*;

async fn verify(world: &World) -> Vec<Finding> {
    let verified = open(world, "App2").await.unwrap().verify(1, |_| ()).await.unwrap();
    assert_eq!(verified.findings.len() as u64, verified.findings.count());
    verified.findings.to_vec()
}

async fn transfer(world: &World) -> Result<()> {
    let transfers = open(world, "App1").await?;
    transfers.begin(1, Transfer::new("A", "B", 100)).await?;
    transfers.run(1).await.map(|_| ())
}

async fn set_account(world: &World, id: &str, set: Document) {
    let update = bson::RawDocumentBuf::try_from(&doc! { "$set": set }).unwrap();
    world.store.update_one(&world.place("accounts"), rawdoc! { "_id": id }, update).await.unwrap();
}

#[tokio::test]
async fn a_crash_leaves_nothing_to_be_found() {
    for number in 0.. {
        let world = World::in_memory();
        accounts(&world).await;
        let dying = Arc::new(Faulty::new(Arc::clone(&world.store), Faults::at(number, Fault::CrashAfter)));
        let result = transfer(&world.on(dying)).await;
        assert_eq!(verify(&world).await, [], "after operation {number}");
        if result.is_ok() {
            assert!(number > 8, "{number} operations");
            return;
        }
    }
}

#[tokio::test]
async fn each_kind_of_damage_is_found() {
    let world = World::in_memory();
    accounts(&world).await;
    transfer(&world).await.unwrap();
    let place = world.place("accounts");
    let found = |participant: &str, transaction: i32| (place.clone(), Bson::from(participant), Bson::from(transaction));

    set_account(&world, "A", doc! { "pendingTransactions": [1, 7] }).await;
    let (namespace, participant, transaction) = found("A", 1);
    let over = Finding::Over { namespace, participant, transaction, state: State::Done };
    let (namespace, participant, transaction) = found("A", 7);
    let unknown = Finding::Unknown { namespace, participant, transaction };
    assert_eq!(verify(&world).await, [over, unknown]);

    let set = rawdoc! { "$set": { "state": "applied" } };
    world.store.update_one(&world.place("transactions"), rawdoc! { "_id": 1 }, set).await.unwrap();
    set_account(&world, "A", doc! { "pendingTransactions": [1] }).await;
    assert_eq!(verify(&world).await, [], "as it is after the first release");
    set_account(&world, "B", doc! { "finishedTransactions": [] }).await;
    let (namespace, participant, transaction) = found("B", 1);
    assert_eq!(verify(&world).await, [Finding::Lacking { namespace, participant, transaction }]);
    // One that remembers as many as it can may have forgotten this one.
    set_account(&world, "B", doc! { "finishedTransactions": (0..100).map(|id| 1000 + id).collect::<Vec<_>>() }).await;
    assert_eq!(verify(&world).await, []);
}

#[tokio::test]
async fn the_status_counts_states_and_what_was_left_alone() {
    let world = World::in_memory();
    accounts(&world).await;
    let transfers = open(&world, "App1").await.unwrap();
    for id in 1..=3 {
        transfers.begin(id, Transfer::new("A", "B", 100)).await.unwrap();
    }
    assert_eq!(transfers.run(1).await.unwrap(), Outcome::Done);
    let set = rawdoc! { "$set": { "state": "pending", "application": "App2" } };
    world.store.update_one(&world.place("transactions"), rawdoc! { "_id": 2 }, set).await.unwrap();
    world.clock.advance(HOUR);
    let status = transfers.status().await.unwrap();
    let counts: Vec<_> = status.states.iter().map(|state| (state.state.name(), state.count)).collect();
    let expected = [("initial", 1), ("pending", 1), ("applied", 0), ("done", 1), ("canceling", 0), ("canceled", 0)];
    assert_eq!((counts, status.abandoned), (expected.to_vec(), 1));
    assert!(status.states[1].oldest >= Some(HOUR), "{status:?}");
}
