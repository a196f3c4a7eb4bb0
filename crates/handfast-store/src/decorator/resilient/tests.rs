//! Every kind of request meets every fault at each of its operations.

use std::sync::Arc;

use bson::{RawDocumentBuf, rawdoc};
use handfast_mql::Code;

use super::{Resilient, repeated_by_caller};
use crate::decorator::{Address, Fault, Faulty, Operation, Plan};
use crate::{
    Applied, BatchLimit, DocumentStore, ErrorClass, Find, FindAndModify, IndexSpec, Insert, InsertOutcome, MemoryStore,
    Modification, Namespace, Result, ReturnDocument, Sources, StoreExt, UpdateSpec,
};

type Network = Arc<Faulty<MemoryStore>>;

fn c() -> Namespace {
    Namespace::valid("d", "c")
}

/// Returns a store with two documents and a unique index on `k`.
async fn store(plan: Plan) -> (Resilient<Faulty<MemoryStore>>, Network) {
    let sources = Sources::seeded(1);
    let memory = Arc::new(MemoryStore::new(sources.clone()));
    let unique = IndexSpec { unique: true, ..IndexSpec::new(rawdoc! { "k": 1 }) };
    memory.create_index(&c(), unique).await.expect("an index");
    for document in [rawdoc! { "_id": 1, "k": "x", "n": 0 }, rawdoc! { "_id": 2, "k": "y", "n": 0 }] {
        memory.insert_one(&c(), document).await.expect("inserted");
    }
    let network = Arc::new(Faulty::new(memory, plan));
    (Resilient::new(Arc::clone(&network), sources.ids), network)
}

async fn documents(network: &Network) -> Vec<RawDocumentBuf> {
    let find = Find { sort: rawdoc! { "_id": 1 }, ..Find::new(c(), rawdoc! {}) };
    network.inner().find_all(find).await.expect("no fault")
}

fn insert(documents: Vec<RawDocumentBuf>, ordered: bool) -> Insert {
    Insert { ordered, ..Insert::new(c(), documents) }
}

fn three() -> Vec<RawDocumentBuf> {
    vec![rawdoc! { "_id": 3, "k": "a" }, rawdoc! { "k": "b", "_id": 4 }, rawdoc! { "_id": 5, "k": "c" }]
}

/// A kind of request.
#[derive(Clone, Copy, Debug)]
enum Request {
    Insert,
    InsertUnordered,
    InsertWithoutId,
    Set,
    SetByKey,
    Upsert,
    SetMany,
    Guarded,
    Increment,
    Delete,
    DeleteMany,
    Take,
    After,
    Before,
}

const REQUESTS: [Request; 14] = {
    use Request::*;
    [
        Insert,
        InsertUnordered,
        InsertWithoutId,
        Set,
        SetByKey,
        Upsert,
        SetMany,
        Guarded,
        Increment,
        Delete,
        DeleteMany,
        Take,
        After,
        Before,
    ]
};

impl Request {
    /// Sends the request, and returns the number of changed documents by its outcome.
    async fn send(self, store: &dyn DocumentStore) -> Result<u64> {
        let set = || rawdoc! { "$set": { "n": 7 } };
        let modify = |update: RawDocumentBuf, returns| {
            let update = UpdateSpec::Document(update);
            let modification = Modification::Update { update, upsert: false, returns, array_filters: Vec::new() };
            store.find_and_modify(FindAndModify::new(c(), rawdoc! { "_id": 1 }, modification))
        };
        match self {
            Request::Insert => Ok(store.insert(insert(three(), true)).await?.inserted),
            Request::InsertUnordered => Ok(store.insert(insert(three(), false)).await?.inserted),
            Request::InsertWithoutId => Ok(store.insert(insert(vec![rawdoc! { "k": "d" }], true)).await?.inserted),
            Request::Set => Ok(store.update_one(&c(), rawdoc! { "_id": 1 }, set()).await?.matched),
            Request::SetByKey => Ok(store.update_one(&c(), rawdoc! { "k": "y" }, set()).await?.matched),
            Request::Upsert => {
                let outcome = store.upsert_one(&c(), rawdoc! { "_id": 9 }, rawdoc! { "$set": { "k": "z" } }).await?;
                Ok(outcome.matched + outcome.upserted.len() as u64)
            }
            Request::SetMany => Ok(store.update_many(&c(), rawdoc! {}, set()).await?.matched),
            Request::Guarded => Ok(store.update_one(&c(), rawdoc! { "_id": 1, "n": 0 }, set()).await?.matched),
            Request::Increment => {
                let inc = rawdoc! { "$inc": { "n": 1 } };
                Ok(store.update_one(&c(), rawdoc! { "_id": 1 }, inc).await?.matched)
            }
            Request::Delete => Ok(u64::from(store.delete_one(&c(), rawdoc! { "_id": 1 }).await?)),
            Request::DeleteMany => store.delete_many(&c(), rawdoc! { "n": 0 }).await,
            Request::Take => {
                let take = FindAndModify::new(c(), rawdoc! { "_id": 1 }, Modification::Remove);
                Ok(u64::from(store.find_and_modify(take).await?.matched))
            }
            Request::After => {
                let outcome = modify(set(), ReturnDocument::After).await?;
                assert_eq!(outcome.value, Some(rawdoc! { "_id": 1, "k": "x", "n": 7 }));
                Ok(u64::from(outcome.matched))
            }
            Request::Before => {
                let outcome = modify(set(), ReturnDocument::Before).await?;
                assert_eq!(outcome.value, Some(rawdoc! { "_id": 1, "k": "x", "n": 0 }));
                Ok(u64::from(outcome.matched))
            }
        }
    }

    /// Returns whether the caller gets an outcome although the answer to the first attempt is lost.
    fn survives_a_lost_reply(self) -> bool {
        !matches!(self, Request::Guarded | Request::Increment | Request::Take | Request::Before)
    }

    /// Returns whether the caller gets an outcome although the first attempt is lost.
    fn survives_a_lost_request(self) -> bool {
        !matches!(self, Request::Increment | Request::Before)
    }

    /// Returns whether the outcome counts only the documents that the second attempt deleted.
    fn counts_the_second_attempt_only(self) -> bool {
        matches!(self, Request::Delete | Request::DeleteMany)
    }
}

#[tokio::test]
async fn every_request_is_applied_once_or_its_outcome_is_unknown() {
    let mut met = 0;
    for request in REQUESTS {
        let (whole, network) = store(Plan::none()).await;
        let untouched = documents(&network).await;
        let wanted = request.send(&whole).await.expect("no fault");
        let done = documents(&network).await;
        assert_ne!(untouched, done, "{request:?} changes something");
        for fault in [Fault::LoseRequest, Fault::LoseReply, Fault::Refuse, Fault::CrashAfter, Fault::CrashBefore] {
            // A second attempt has more operations than the first, as it reads the stored documents.
            for number in 0..4 {
                let (store, network) = store(Plan::explicit([(0, Fault::LoseReply), (number, fault)])).await;
                let answer = request.send(&store).await;
                met += network.injected().len();
                let now = documents(&network).await;
                let what = format!("{request:?}, {fault:?} at {number}: {answer:?}");
                assert!(now == untouched || now == done, "{what}: {now:?}");
                match answer {
                    Ok(count) => {
                        assert_eq!(now, done, "{what}");
                        assert!(count == wanted || request.counts_the_second_attempt_only(), "{what}");
                    }
                    Err(error) if error.applied() == Applied::No => assert_eq!(now, untouched, "{what}"),
                    Err(_) => {}
                }
            }
        }
    }
    assert!(met > 14 * 5 * 4, "{met} faults were met");
}

#[tokio::test]
async fn a_lost_message_is_hidden_where_a_repetition_is_safe() {
    for request in REQUESTS {
        for fault in [Fault::LoseRequest, Fault::LoseReply] {
            let (store, _) = store(Plan::at(0, fault)).await;
            let answer = request.send(&store).await;
            let survives = match fault {
                Fault::LoseReply => request.survives_a_lost_reply(),
                _ => request.survives_a_lost_request(),
            };
            assert_eq!(answer.is_ok(), survives, "{request:?}, {fault:?}: {answer:?}");
        }
    }
}

#[tokio::test]
async fn a_request_is_sent_twice_after_a_network_failure_and_once_in_an_outage() {
    for request in [Request::Set, Request::SetMany, Request::Delete] {
        let lost = Plan::explicit((0..9).map(|number| (number, Fault::LoseRequest)));
        let (store, network) = store(lost).await;
        let error = request.send(&store).await.expect_err("all is lost");
        assert_eq!((error.class(), error.applied()), (ErrorClass::TransientNetwork, Applied::Maybe));
        assert_eq!(network.operations(), 2, "{request:?}");
    }
    for request in REQUESTS {
        let (store, network) = store(Plan::at(0, Fault::Refuse)).await;
        let error = request.send(&store).await.expect_err("no server");
        assert_eq!((error.class(), error.applied()), (ErrorClass::Outage, Applied::No));
        assert_eq!(network.operations(), 1, "{request:?}");
    }
}

#[tokio::test]
async fn a_request_that_the_caller_repeats_is_sent_once() {
    for fault in [Fault::LoseRequest, Fault::LoseReply, Fault::StepDown] {
        for request in REQUESTS {
            let (store, network) = store(Plan::always(fault)).await;
            repeated_by_caller(request.send(&store)).await.expect_err("all is lost");
            assert_eq!(network.operations(), 1, "{request:?}, {fault:?}");
            // A request outside of the attempt is repeated by the store again.
            request.send(&store).await.expect_err("all is lost");
            assert!(network.operations() > 1, "{request:?}, {fault:?}");
        }
        let page = Address::first(Operation::NextPage);
        let (store, network) = store(Plan::at_request(page, fault)).await;
        let all = async { store.find(Find::new(c(), rawdoc! {})).await?.next_page(BatchLimit::REPLY).await };
        repeated_by_caller(all).await.expect_err("the page is lost");
        assert_eq!(network.operations(), 2, "a find and a page");
    }
}

#[tokio::test]
async fn a_duplicate_of_another_client_is_an_error_of_the_second_attempt_too() {
    // The key of another index is taken: no document was inserted.
    let (store, network) = store(Plan::at(0, Fault::LoseReply)).await;
    let refused = store.insert_one(&c(), rawdoc! { "_id": 3, "k": "x" }).await.expect_err("k is taken");
    assert_eq!(refused.code(), Code::DuplicateKey);
    assert_eq!(documents(&network).await.len(), 2);
    // The `_id` is taken by a different document, whose origin is unknown, and so is the outcome.
    let refused = store_with_lost_reply_insert(rawdoc! { "_id": 1, "k": "other" }).await.expect_err("_id is taken");
    assert_eq!((refused.code(), refused.applied()), (Code::DuplicateKey, Applied::Maybe));
}

async fn store_with_lost_reply_insert(document: RawDocumentBuf) -> Result<()> {
    let (store, _) = store(Plan::at(0, Fault::LoseReply)).await;
    store.insert_one(&c(), document).await
}

#[tokio::test]
async fn a_duplicate_within_a_request_is_an_error_after_a_retry_too() {
    let twice = || {
        vec![rawdoc! { "_id": 3 }, rawdoc! { "_id": 4, "k": "b" }, rawdoc! { "_id": 3 }, rawdoc! { "_id": 5, "k": "c" }]
    };
    for ordered in [true, false] {
        let (whole, network) = store(Plan::none()).await;
        let wanted = whole.insert(insert(twice(), ordered)).await.expect("no fault");
        let done = documents(&network).await;
        for fault in [Fault::LoseRequest, Fault::LoseReply] {
            let (store, network) = store(Plan::at(0, fault)).await;
            let outcome = store.insert(insert(twice(), ordered)).await.expect("sent again");
            assert_eq!(outcome.inserted, wanted.inserted, "ordered {ordered}, {fault:?}");
            let indexes =
                |outcome: &InsertOutcome| outcome.errors.iter().map(|refused| refused.index).collect::<Vec<_>>();
            assert_eq!(indexes(&outcome), indexes(&wanted));
            assert_eq!(documents(&network).await, done);
        }
    }
}

#[tokio::test]
async fn a_first_attempt_that_arrives_before_the_second_is_counted_once() {
    // The insert is delayed and arrives after the store was searched for its documents.
    for ordered in [true, false] {
        let plan = Plan::at_requests([
            (Address::first(Operation::Insert), Fault::DeliverLate),
            (Address::second(Operation::Insert), Fault::FreezeBefore),
        ]);
        let (store, network) = store(plan).await;
        let inserting = tokio::spawn(async move { store.insert(insert(three(), ordered)).await });
        while network.frozen() == 0 {
            tokio::task::yield_now().await;
        }
        for arrived in network.deliver_late().await {
            arrived.expect("the first try arrives");
        }
        network.release();
        let outcome = inserting.await.expect("no panic").expect("all are in");
        assert_eq!((outcome.inserted, outcome.errors.len()), (3, 0), "ordered {ordered}");
        assert_eq!(documents(&network).await.len(), 5);
    }
}

#[tokio::test]
async fn a_cursor_is_opened_again_until_it_has_returned_a_page() {
    for operation in [Operation::Find, Operation::NextPage] {
        let (store, network) = store(Plan::at_request(Address::first(operation), Fault::LoseReply)).await;
        let found = store.find_all(Find::new(c(), rawdoc! {})).await.expect("opened again");
        assert_eq!(found.len(), 2, "fault at {operation}");
        assert_eq!(network.injected().len(), 1, "fault at {operation}");
    }
    let (store, _) = store(Plan::at_request(Address::second(Operation::NextPage), Fault::LoseReply)).await;
    let mut cursor = store.find(Find::new(c(), rawdoc! {})).await.expect("open");
    let one = BatchLimit { documents: 1, ..BatchLimit::REPLY };
    assert_eq!(cursor.next_page(one).await.expect("the first").documents.len(), 1);
    cursor.next_page(one).await.expect_err("to begin again would show the first document twice");
}
