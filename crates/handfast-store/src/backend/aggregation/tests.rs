use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bson::{RawDocumentBuf, rawdoc};
use handfast_mql::pipeline::Pipeline;
use handfast_mql::{Code, CompileOptions};

use super::source::push_down;
use crate::decorator::{Address, DelegatingStore, Fault, Faulty, Operation, Plan};
use crate::{
    Aggregate, AggregateSource, BatchLimit, Cursor, DocumentStore, ErrorClass, Explain, Explained, Find, IndexSpec,
    Insert, InsertOutcome, MemoryStore, ModifyCollection, ModifyValidator, Namespace, Result, Sources, StoreExt,
    Verbosity,
};

fn c() -> Namespace {
    Namespace::valid("d", "c")
}

/// Returns the filter, sort, skip and limit of the find that replaces the first stages, and how many stages it replaces.
fn pushed(stages: Vec<RawDocumentBuf>) -> (RawDocumentBuf, RawDocumentBuf, u64, Option<u64>, usize) {
    let options = CompileOptions { variables: vec!["v".to_owned(), "without_value".to_owned()], collation: None };
    let pipeline = Pipeline::compile(&stages, &options).expect("valid");
    let find = Find { variables: rawdoc! { "v": 1 }, ..Find::new(c(), rawdoc! {}) };
    let (find, taken) = push_down(find, &pipeline);
    (find.filter, find.sort, find.skip, find.limit, taken)
}

#[test]
fn the_beginning_of_a_pipeline_becomes_a_find() {
    let none = rawdoc! {};
    let stages = vec![rawdoc! { "$match": { "a": 1 } }, rawdoc! { "$sort": { "b": 1 } }, rawdoc! { "$limit": 3 }];
    assert_eq!(pushed(stages), (rawdoc! { "a": 1 }, rawdoc! { "b": 1 }, 0, Some(3), 3));
    let two = vec![rawdoc! { "$match": { "a": 1 } }, rawdoc! { "$match": { "a": 2 } }, rawdoc! { "$unwind": "$a" }];
    assert_eq!(pushed(two), (rawdoc! { "$and": [{ "a": 1 }, { "a": 2 }] }, none.clone(), 0, None, 2));
    // A filter after a limit must not be moved before the limit.
    let late = vec![rawdoc! { "$limit": 3 }, rawdoc! { "$match": { "a": 1 } }];
    assert_eq!(pushed(late), (none.clone(), none.clone(), 0, Some(3), 1));
    let reshaped = vec![rawdoc! { "$set": { "a": 1 } }, rawdoc! { "$match": { "a": 1 } }];
    assert_eq!(pushed(reshaped), (none.clone(), none.clone(), 0, None, 0));
}

#[test]
fn a_find_evaluates_expressions_with_its_variables() {
    for expression in
        [rawdoc! { "$eq": ["$a", "$$v"] }, rawdoc! { "$eq": ["$a", "$b"] }, rawdoc! { "$gt": ["$$ROOT.a", "$$v.x"] }]
    {
        let computed = rawdoc! { "$or": [{ "b": 1 }, { "$expr": expression }] };
        let stages =
            vec![rawdoc! { "$match": { "a": 1 } }, rawdoc! { "$match": computed.clone() }, rawdoc! { "$limit": 3 }];
        assert_eq!(pushed(stages), (rawdoc! { "$and": [{ "a": 1 }, computed] }, rawdoc! {}, 0, Some(3), 3));
    }
}

#[test]
fn expressions_of_time_chance_and_missing_variables_stay_in_the_pipeline_with_what_comes_after_them() {
    for expression in [
        rawdoc! { "$lt": ["$a", "$$NOW"] },
        rawdoc! { "$lt": ["$a", "$$CLUSTER_TIME"] },
        rawdoc! { "$lt": ["$a", { "$rand": {} }] },
        rawdoc! { "$eq": ["$a", "$$without_value"] },
        rawdoc! { "$eq": ["$a", "$$without_value.x"] },
        rawdoc! { "$let": { "vars": { "x": "$a" }, "in": { "$eq": ["$$x", 1] } } },
    ] {
        let computed = rawdoc! { "$match": { "b": 1, "$expr": expression.clone() } };
        let stages = vec![rawdoc! { "$match": { "a": 1 } }, computed, rawdoc! { "$limit": 3 }];
        let expected = (rawdoc! { "$and": [{ "a": 1 }, { "b": 1 }] }, rawdoc! {}, 0, None, 1);
        assert_eq!(pushed(stages), expected, "{expression:?}");
    }
}

/// If the find and the pipeline both left out nine of ten documents, one of a hundred would be left.
#[test]
fn chance_decides_once() {
    let sample = rawdoc! { "$sampleRate": 0.1, "a": 1 };
    assert_eq!(pushed(vec![rawdoc! { "$match": sample.clone() }]), (sample, rawdoc! {}, 0, None, 1));
    let both = rawdoc! { "$sampleRate": 0.1, "a": 1, "$or": [{ "$sampleRate": 0.1 }], "$expr": { "$lt": [{ "$rand": {} }, 0.5] } };
    assert_eq!(pushed(vec![rawdoc! { "$match": both }]), (rawdoc! { "a": 1 }, rawdoc! {}, 0, None, 0));
}

type Watched = Faulty<MemoryStore>;

/// Returns a store with documents, which numbers its operations.
async fn watched(plan: Plan) -> Arc<Watched> {
    let store = MemoryStore::new(Sources::seeded(1));
    let documents = (0..500).map(|n| rawdoc! { "_id": n, "k": n % 50 }).collect();
    store.insert(Insert::new(c(), documents)).await.expect("inserted");
    let others = (0..50).map(|n| rawdoc! { "_id": n, "name": n.to_string() }).collect();
    store.insert(Insert::new(Namespace::valid("d", "others"), others)).await.expect("inserted");
    Arc::new(Faulty::new(Arc::new(store), plan))
}

async fn run(store: &Arc<Watched>, pipeline: Vec<RawDocumentBuf>) -> Result<Vec<RawDocumentBuf>> {
    let shared: Arc<dyn DocumentStore> = store.clone();
    let mut cursor = super::open(shared, &Sources::seeded(1), Aggregate::new(c(), pipeline)).await?;
    let mut found = Vec::new();
    loop {
        let page = cursor.next_page(BatchLimit { documents: 7, bytes: usize::MAX }).await?;
        found.extend(page.documents);
        if page.exhausted {
            return Ok(found);
        }
    }
}

fn lookup() -> RawDocumentBuf {
    rawdoc! { "$lookup": { "from": "others", "localField": "k", "foreignField": "_id", "as": "o" } }
}

/// Round trips are counted: 500 documents with 50 keys take one find for the source, and one for all keys.
#[tokio::test]
async fn a_lookup_finds_many_keys_with_one_request() {
    let store = watched(Plan::none()).await;
    let found = run(&store, vec![lookup()]).await.expect("found");
    assert_eq!(found.len(), 500);
    for document in &found {
        let own = document.get_array("o").expect("an array");
        let first = own.get_document(0).expect("one");
        assert_eq!(first.get_i32("_id").ok(), document.get_i32("k").ok());
    }
    assert!(store.operations() <= 4, "{} operations", store.operations());
}

/// A store that records the finds that it gets.
struct Recording(Arc<MemoryStore>, Mutex<Vec<Find>>);

#[async_trait]
impl DelegatingStore for Recording {
    type Inner = MemoryStore;

    fn inner(&self) -> &MemoryStore {
        &self.0
    }

    async fn find(&self, request: Find) -> Result<Box<dyn Cursor>> {
        self.1.lock().expect("not poisoned").push(request.clone());
        self.0.find(request).await
    }
}

/// Each of the 500 documents finds one of the others by its `_id`, and none of them reads the whole collection.
#[tokio::test]
async fn a_lookup_with_an_equality_of_a_variable_finds_documents_by_id() {
    let store = Arc::new(Recording(watched(Plan::none()).await.inner().clone(), Mutex::default()));
    let shared: Arc<dyn DocumentStore> = store.clone();
    for equality in [rawdoc! { "$eq": ["$_id", "$$k"] }, rawdoc! { "$and": [{ "$in": ["$_id", ["$$k"]] }, "$name"] }] {
        let lookup = rawdoc! { "$lookup": {
            "from": "others", "let": { "k": "$k" }, "pipeline": [{ "$match": { "$expr": equality } }], "as": "o",
        } };
        let aggregate = Aggregate::new(c(), vec![lookup]);
        let mut cursor = super::open(Arc::clone(&shared), &Sources::seeded(1), aggregate).await.expect("opened");
        let found = cursor.next_page(BatchLimit { documents: 1000, bytes: usize::MAX }).await.expect("found").documents;
        assert_eq!(found.len(), 500);
        for document in &found {
            let own = document.get_array("o").expect("an array");
            assert_eq!(own.get_document(0).expect("one").get_i32("_id").ok(), document.get_i32("k").ok());
        }
        let finds = std::mem::take(&mut *store.1.lock().expect("not poisoned"));
        let mut examined = 0;
        for find in finds.into_iter().filter(|find| find.namespace != c()) {
            let explain = Explain { explained: Explained::Find(find), verbosity: Verbosity::ExecutionStats };
            let explained = store.0.explain(explain).await.expect("explained");
            examined += explained
                .get_document("executionStats")
                .expect("statistics")
                .get_i64("totalDocsExamined")
                .expect("counted");
        }
        assert_eq!(examined, 500);
    }
}

/// A store in which others change a collection at each insert.
struct Changing(MemoryStore, bool);

#[async_trait]
impl DelegatingStore for Changing {
    type Inner = MemoryStore;

    fn inner(&self) -> &MemoryStore {
        &self.0
    }

    async fn insert(&self, request: Insert) -> Result<InsertOutcome> {
        let others = Namespace::valid("d", "others");
        match self.1 {
            true => {
                let validator = ModifyValidator { validator: Some(rawdoc! { "n": 1 }), ..ModifyValidator::default() };
                self.0.modify_collection(ModifyCollection { validator, ..ModifyCollection::new(others) }).await?;
            }
            false => self.0.create_index(&others, IndexSpec::new(rawdoc! { "n": 1 })).await?,
        }
        self.0.insert(request).await
    }
}

/// The new collection would not have what was set meanwhile.
#[tokio::test]
async fn out_does_not_replace_a_collection_that_is_changed_meanwhile() {
    for changes_options in [true, false] {
        let store = watched(Plan::none()).await.inner().clone();
        let shared: Arc<dyn DocumentStore> = Arc::new(Changing((*store).clone(), changes_options));
        let out =
            Aggregate::new(c(), vec![rawdoc! { "$match": { "_id": { "$lt": 10 } } }, rawdoc! { "$out": "others" }]);
        let error = super::open(shared, &Sources::seeded(1), out).await.err().expect("an error");
        assert_eq!(error.code(), Code(125), "{error}");
        assert_eq!(store.list_collections("d").await.expect("listed").len(), 2, "no temporary collection is left");
        assert_eq!(
            store.find_all(Find::new(Namespace::valid("d", "others"), rawdoc! {})).await.expect("found").len(),
            50
        );
    }
}

#[tokio::test]
async fn an_error_of_the_store_ends_the_pipeline() {
    for number in 0..4 {
        let store = watched(Plan::at(number, Fault::Refuse)).await;
        let error = run(&store, vec![lookup()]).await.expect_err("refused");
        assert_eq!(error.class(), ErrorClass::Outage, "operation {number}");
    }
}

/// Whichever operation fails, the target has the old or the new documents, and no temporary collection stays.
#[tokio::test]
async fn out_is_all_or_nothing_at_every_operation() {
    let out = || vec![rawdoc! { "$match": { "_id": { "$lt": 10 } } }, rawdoc! { "$out": "others" }];
    let counting = watched(Plan::none()).await;
    run(&counting, out()).await.expect("replaced");
    let count = counting.operations();
    assert!(count >= 6, "{count} operations");
    for number in 0..count {
        for fault in [Fault::Refuse, Fault::LoseRequest, Fault::LoseReply] {
            let store = watched(Plan::at(number, fault)).await;
            let result = run(&store, out()).await;
            let target =
                store.inner().count_matching(&Namespace::valid("d", "others"), rawdoc! {}).await.expect("read");
            let hit = store.injected();
            assert!(target == 50 || target == 10, "{target} documents after {hit:?}");
            if result.is_ok() {
                assert_eq!(target, 10, "{hit:?}");
            }
            let lost_the_drop = hit.iter().any(|hit| hit.operation == Operation::DropCollection);
            let names: Vec<_> =
                store.inner().list_collections("d").await.expect("read").into_iter().map(|info| info.name).collect();
            assert!(lost_the_drop || names == ["c", "others"], "{names:?} after {hit:?}");
        }
    }
}

#[tokio::test]
async fn a_merge_beside_other_writers_loses_none_of_their_changes() {
    let store = watched(Plan::none()).await;
    let merge = rawdoc! { "$merge": { "into": "others", "whenMatched": [{ "$set": { "seen": true } }] } };
    let pipeline = vec![rawdoc! { "$match": { "_id": { "$lt": 50 } } }, merge];
    let writer = {
        let store = Arc::clone(&store);
        async move {
            for round in 0..20 {
                let target = Namespace::valid("d", "others");
                for id in 0..50 {
                    let change = rawdoc! { "$set": { "round": round } };
                    store.inner().update_one(&target, rawdoc! { "_id": id }, change).await.expect("changed");
                    if id % 10 == 0 {
                        tokio::task::yield_now().await;
                    }
                }
            }
        }
    };
    let merger = {
        let store = Arc::clone(&store);
        async move { run(&store, pipeline).await.expect("merged") }
    };
    let (writer, merger) = (tokio::spawn(writer), tokio::spawn(merger));
    writer.await.expect("no panic");
    merger.await.expect("no panic");
    let whole = rawdoc! { "seen": true, "round": 19 };
    assert_eq!(store.inner().count_matching(&Namespace::valid("d", "others"), whole).await.expect("counted"), 50);
}

#[tokio::test]
async fn a_cancelled_pipeline_leaves_no_temporary_collection() {
    // The insert into the temporary collection is frozen when the caller cancels.
    let store = watched(Plan::at_request(Address::first(Operation::Insert), Fault::FreezeBefore)).await;
    let pipeline = run(&store, vec![rawdoc! { "$out": "others" }]);
    let given_up = tokio::time::timeout(std::time::Duration::from_millis(20), pipeline).await;
    assert!(given_up.is_err(), "it did not freeze: {:?}", store.injected());
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    let names: Vec<_> =
        store.inner().list_collections("d").await.expect("read").into_iter().map(|info| info.name).collect();
    assert_eq!(names, ["c", "others"]);
}

#[tokio::test]
async fn a_pipeline_whose_source_does_not_fit_its_first_stage_is_refused() {
    let store: Arc<dyn DocumentStore> = watched(Plan::none()).await;
    let open = async |source, pipeline| {
        let request = Aggregate { source, ..Aggregate::new(c(), pipeline) };
        super::open(Arc::clone(&store), &Sources::seeded(1), request).await.map(|_| ()).map_err(|error| error.code())
    };
    let documents = || vec![rawdoc! { "$documents": [{ "a": 1 }] }];
    let database = || AggregateSource::Database("d".to_owned());
    assert_eq!(open(database(), documents()).await, Ok(()));
    assert_eq!(open(AggregateSource::Collection(c()), documents()).await, Err(Code::InvalidNamespace));
    assert_eq!(open(database(), vec![rawdoc! { "$match": {} }]).await, Err(Code::InvalidNamespace));
}
