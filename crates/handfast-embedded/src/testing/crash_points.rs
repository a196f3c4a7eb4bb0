//! Runs writes with tickets, transactions among them, while the engine fails or crashes at each of its steps in turn. After the
//! next opening each write is there as a whole or not at all, and repeating all writes gives the first results.

use std::time::Duration;

use bson::{RawDocumentBuf, rawdoc};
use handfast_sim::directory::copy;
use handfast_store::{
    Applied, AtomicBatch, AtomicStore, BatchWrite, CreateIndexes, Delete, DeleteStatement, DocumentStore,
    DocumentWrite, Find, FindAndModify, IndexSpec, Insert, Modification, Namespace, RequestedDocument, ReturnDocument,
    Sources, StoreExt, Ticket, Update, UpdateSpec, UpdateStatement,
};
use handfast_txn::{Database, Outcome, TransactionId, TransactionOptions};

use super::faulty_engine::{Fault, FaultKind};
use super::{all, checked, find_all, namespace, open, open_faulty, replayed};
use crate::write::log_trimming;
use crate::{EmbeddedStore, Options};

/// The writes of the scenario, each in a session of its own.
const WRITES: u8 = 8;

async fn fill(store: &EmbeddedStore) {
    log_trimming::begin(&store.context).await.unwrap();
    let documents = (0..4).map(|n| rawdoc! { "_id": n, "n": 10, "name": format!("name {n}") }).collect();
    store.insert(Insert::new(namespace(), documents)).await.unwrap();
    // The collection of the records is created before, so that every write takes the same steps.
    write(store, WRITES, Some(0)).await.unwrap();
}

fn increment(filter: RawDocumentBuf, by: i32) -> UpdateStatement {
    UpdateStatement::one(filter, UpdateSpec::Document(rawdoc! { "$inc": { "n": by } }))
}

/// Runs a write of the scenario, and returns its answer.
async fn write(store: &EmbeddedStore, session: u8, kind: Option<u8>) -> handfast_store::Result<String> {
    let ticket =
        Some(Ticket { session: [session; 16], number: 1, statement: 0, requested: RequestedDocument::Nothing });
    let update = |statement| Update { ticket, ..Update::new(namespace(), vec![statement]) };
    let checked = checked(store);
    Ok(match kind.unwrap_or(session) {
        0 => {
            let documents = (0..3).map(|n| rawdoc! { "_id": format!("{session} {n}") }).collect();
            let outcome = checked.insert(Insert { ticket, ..Insert::new(namespace(), documents) }).await?;
            format!("{} {:?}", outcome.inserted, outcome.errors)
        }
        1 => format!("{:?}", checked.update(update(increment(rawdoc! { "_id": 1 }, 1))).await?),
        2 => {
            let upsert = UpdateStatement { upsert: true, ..increment(rawdoc! { "name": "new" }, 1) };
            format!("{:?}", checked.update(update(upsert)).await?)
        }
        3 => {
            let modification = Modification::Update {
                update: UpdateSpec::Document(rawdoc! { "$inc": { "n": 100 } }),
                upsert: false,
                returns: ReturnDocument::Before,
                array_filters: Vec::new(),
            };
            let request = FindAndModify::new(namespace(), rawdoc! { "name": "name 2" }, modification);
            format!("{:?}", checked.find_and_modify(FindAndModify { ticket, ..request }).await?)
        }
        4 => {
            let statements = vec![DeleteStatement { filter: rawdoc! { "_id": 3 }, multi: false, hint: None }];
            format!("{:?}", checked.delete(Delete { ticket, ..Delete::new(namespace(), statements) }).await?)
        }
        6 | 7 => transaction(store, TransactionId { session: [session; 16], number: 1 }).await?,
        _ => {
            let put = |id: i32, n: i32| {
                let document = rawdoc! { "_id": id, "n": n };
                BatchWrite::new(namespace(), id, DocumentWrite::Put(document))
            };
            let read_at = checked.snapshot().await?.timestamp();
            let batch = AtomicBatch { writes: vec![put(0, 3), put(1, 18)], ticket, ..AtomicBatch::new(read_at) };
            format!("{:?}", checked.commit(batch).await?)
        }
    })
}

/// Runs a transaction, or finds that it is committed. The repeated commit has other writes, which must have no effect.
async fn transaction(store: &EmbeddedStore, id: TransactionId) -> handfast_store::Result<String> {
    let database = Database::local(checked(store), Sources::seeded(1));
    let done = database.outcome(id).await?;
    let transaction = database.begin_with(TransactionOptions { id: Some(id), ..TransactionOptions::default() }).await?;
    if let Outcome::Committed(at) = done {
        transaction.insert_one(&namespace(), rawdoc! { "_id": "doubled" }).await?;
        assert_eq!(transaction.commit().await?, at);
        return Ok(format!("{at:?}"));
    }
    if id.session[0] == 7 {
        let index = IndexSpec { unique: true, ..IndexSpec::new(rawdoc! { "n": 1 }) };
        transaction.create_indexes(CreateIndexes { namespace: made(), indexes: vec![index] }).await?;
        for n in 0..3 {
            transaction.insert_one(&made(), rawdoc! { "_id": n, "n": n }).await?;
        }
    }
    for (id, by) in [(0, -1), (1, 1)] {
        transaction.update_one(&namespace(), rawdoc! { "_id": id }, rawdoc! { "$inc": { "n": by } }).await?;
    }
    Ok(format!("{:?}", transaction.commit().await?))
}

/// Returns the namespace of the collection that a transaction creates.
fn made() -> Namespace {
    Namespace::new("db", "made").unwrap()
}

/// Returns everything that is stored, with indexes and records of tickets. The log of changes must say the same.
async fn dump(store: &EmbeddedStore) -> Vec<RawDocumentBuf> {
    let mut everything = find_all(store).await;
    assert_eq!(replayed(store, &namespace()).await, everything, "the log of changes says something else");
    let in_made = all(store.find(Find::new(made(), rawdoc! {})).await.unwrap()).await;
    assert_eq!(replayed(store, &made()).await, in_made, "the log of changes says something else");
    let store = checked(store);
    for other in [made(), Ticket::namespace().unwrap()] {
        everything.extend(all(store.find(Find::new(other, rawdoc! {})).await.unwrap()).await);
    }
    let indexes = store.list_indexes(&made()).await.unwrap_or_default();
    everything.extend(indexes.iter().map(|index| index.spec.to_document()));
    everything
}

/// Returns the answers, the states before, between and after the writes, and the number of their steps.
async fn undisturbed() -> (Vec<String>, Vec<Vec<RawDocumentBuf>>, u64) {
    let directory = tempfile::tempdir().unwrap();
    let (engine, store) = open_faulty(directory.path(), Options::small());
    fill(&store).await;
    engine.plan(None);
    let (mut answers, mut states) = (Vec::new(), vec![dump(&store).await]);
    for session in 0..WRITES {
        answers.push(write(&store, session, None).await.unwrap());
        states.push(dump(&store).await);
    }
    (answers, states, engine.steps())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_at_any_step_leaves_each_write_whole_and_its_ticket_used() {
    let (answers, states, steps) = undisturbed().await;
    assert_eq!(steps, 2 * u64::from(WRITES), "a batch and a sync each");
    let (mut points, mut undecided) = (0, 0);
    for step in 0..steps {
        for crash in [false, true] {
            let directories = tempfile::tempdir().unwrap();
            let (original, left) = (directories.path().join("original"), directories.path().join("left"));
            let (engine, store) = open_faulty(&original, Options::small());
            fill(&store).await;
            let (from, to) = (original.clone(), left.clone());
            let kind = if crash {
                FaultKind::CrashAfter(Box::new(move || copy(&from, &to).unwrap()))
            } else {
                FaultKind::Fail
            };
            engine.plan(Some(Fault { step, kind }));
            let mut done = 0;
            let error = loop {
                match write(&store, done, None).await {
                    // After the crash the process is gone, and so are its answers.
                    Ok(_) if crash && left.exists() => break None,
                    Ok(answer) => assert_eq!(answer, answers[usize::from(done)], "step {step}"),
                    Err(error) => break Some(error),
                }
                done += 1;
            };
            assert!(crash || error.is_some(), "step {step}: a step that failed was acknowledged");
            drop((engine, store));

            let store = open(if crash { &left } else { &original }).await;
            let state = dump(&store).await;
            let Some(reached) = states.iter().position(|other| *other == state) else {
                panic!("step {step}, crash {crash}: something half done is left: {state:#?}");
            };
            let possible = if error.is_some_and(|error| error.applied() == Applied::No) { 0 } else { 1 };
            let done = usize::from(done);
            assert!((done..=done + possible).contains(&reached), "step {step}: {done} acknowledged, {reached} there");
            undecided += reached - done;
            for session in 0..WRITES {
                let answer = write(&store, session, None).await.unwrap();
                assert_eq!(answer, answers[usize::from(session)], "step {step}, crash {crash}: another result");
            }
            assert_eq!(dump(&store).await, states[usize::from(WRITES)], "step {step}, crash {crash}");
            store.close().await.unwrap();
            points += 1;
        }
    }
    println!("{points} crash points of {WRITES} writes; {undecided} writes were there without an acknowledgement");
    assert!(undecided > 0, "no write got lost between disk and caller: this test shows nothing");
}

/// A sync between two steps of a request fails: later steps are refused, but earlier ones may be on the disk.
#[tokio::test]
async fn a_request_that_stops_half_way_is_in_doubt() {
    let mut refused = 0;
    for round in 0..20 {
        let directory = tempfile::tempdir().unwrap();
        let options = Options { memory_sync_interval: Duration::ZERO, step_documents_max: 1, ..Options::small() };
        let (engine, store) = open_faulty(directory.path(), options);
        fill(&store).await;
        let store = checked(&store);
        let kind = FaultKind::CrashAfter(Box::new(|| ()));
        engine.plan(Some(Fault { step: 0, kind }));
        let error = match round % 4 {
            0 => {
                let statements = (0..2).map(|n| increment(rawdoc! { "_id": n }, 1)).collect();
                store.update(Update { ordered: false, ..Update::new(namespace(), statements) }).await.unwrap_err()
            }
            1 => {
                let many = UpdateStatement { multi: true, ..increment(rawdoc! {}, 1) };
                store.update(Update::new(namespace(), vec![many])).await.unwrap_err()
            }
            2 => {
                let statement = DeleteStatement { filter: rawdoc! {}, multi: true, hint: None };
                store.delete(Delete::new(namespace(), vec![statement])).await.unwrap_err()
            }
            _ => {
                let documents = (10..12).map(|n| rawdoc! { "_id": n }).collect();
                store.insert(Insert::new(namespace(), documents)).await.unwrap_err()
            }
        };
        assert_eq!(error.applied(), Applied::Maybe, "round {round}: {error}");
        refused += u32::from(error.message().contains("must be reopened"));
        // A request that changed nothing has a known outcome.
        let error = store.insert(Insert::new(namespace(), vec![rawdoc! {}])).await.unwrap_err();
        assert_eq!(error.applied(), Applied::No, "{error}");
    }
    assert!(refused > 0, "no request met a store that had stopped");
}
