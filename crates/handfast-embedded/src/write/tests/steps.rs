//! Requests of many steps: their effects when one fails or is given up, and the memory that they keep in use.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bson::{RawBsonRef, RawDocumentBuf, rawdoc};
use handfast_mql::{Code, CompileOptions, Filter, Sort};
use handfast_store::{
    CreateIndexes, Delete, DeleteStatement, DocumentStore, DropIndexes, Find, Hint, IndexCounts, IndexSelector,
    IndexSpec, Insert, Sources, Update, UpdateSpec, UpdateStatement,
};

use crate::committer::{AnswerAfter, Writer};
use crate::engine::{Direction, Keyspace, prefix_range};
use crate::keys;
use crate::testing::{all, find_all, namespace};
use crate::write::change_many::{change_many, change_step};
use crate::write::evaluation::{Evaluated, Evaluation};
use crate::write::target::Target;
use crate::{EmbeddedStore, Options};

/// Returns a store whose large requests take many steps.
async fn stepping(path: &std::path::Path, options: Options) -> EmbeddedStore {
    let options = Options { step_documents_max: 10, ..options };
    EmbeddedStore::open(path, Sources::seeded(1), options).await.unwrap()
}

async fn fill(store: &EmbeddedStore, documents: i32, document: impl Fn(i32) -> RawDocumentBuf) {
    let documents = (0..documents).map(document).collect();
    let outcome = store.insert(Insert::new(namespace(), documents)).await.unwrap();
    assert_eq!(outcome.errors.len(), 0);
}

fn create(indexes: Vec<IndexSpec>) -> CreateIndexes {
    CreateIndexes { namespace: namespace(), indexes }
}

fn on(field: &str) -> IndexSpec {
    let mut key = RawDocumentBuf::new();
    key.append(bson::raw::CString::try_from(field).unwrap(), 1);
    IndexSpec::new(key)
}

fn unique(field: &str) -> IndexSpec {
    IndexSpec { unique: true, ..on(field) }
}

async fn names(store: &EmbeddedStore) -> Vec<String> {
    let indexes = store.list_indexes(&namespace()).await.unwrap();
    indexes.into_iter().map(|info| info.spec.name).collect()
}

async fn found_by(store: &EmbeddedStore, index: &str) -> usize {
    let mut find = Find::new(namespace(), rawdoc! {});
    find.hint = Some(Hint::Name(index.to_owned()));
    all(store.find(find).await.unwrap()).await.len()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_index_whose_creation_was_given_up_can_be_created_again() {
    let directory = tempfile::tempdir().unwrap();
    let store = stepping(directory.path(), Options::small()).await;
    fill(&store, 3000, |n| rawdoc! { "_id": n, "a": n }).await;
    // On a busy machine the timer may fire after the build has ended: then the next one is given up.
    for attempt in 1.. {
        let creation = store.create_indexes(create(vec![on("a")]));
        if tokio::time::timeout(Duration::from_millis(2), creation).await.is_err() {
            break;
        }
        assert!(attempt < 100, "a build of 300 steps always ends within 2 ms");
        store.drop_indexes(DropIndexes { namespace: namespace(), selector: IndexSelector::All }).await.unwrap();
    }
    assert_eq!(store.create_indexes(create(vec![on("a")])).await.unwrap(), IndexCounts { before: 1, after: 2 });
    assert_eq!(names(&store).await, ["_id_", "a_1"]);
    assert_eq!(found_by(&store, "a_1").await, 3000);
    store.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_for_an_index_that_is_being_built_waits_for_the_build() {
    let directory = tempfile::tempdir().unwrap();
    let store = stepping(directory.path(), Options::small()).await;
    fill(&store, 1000, |n| rawdoc! { "_id": n, "a": n, "b": n % 999 }).await;
    let create = async |index: IndexSpec| {
        let before = names(&store).await.len();
        let result = store.create_indexes(create(vec![index])).await;
        let after = names(&store).await.len();
        result.map(|_| after - before).map_err(|error| error.code())
    };
    let (first, second) = tokio::join!(create(on("a")), create(on("a")));
    assert_eq!((first, second), (Ok(1), Ok(1)), "the index is there when it is said to be");
    let (first, second) = tokio::join!(create(unique("b")), create(unique("b")));
    assert_eq!((first, second), (Err(Code::DuplicateKey), Err(Code::DuplicateKey)));
    assert_eq!(names(&store).await, ["_id_", "a_1"]);
    store.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn several_indexes_are_created_together_or_not_at_all() {
    let directory = tempfile::tempdir().unwrap();
    let store = stepping(directory.path(), Options::small()).await;
    fill(&store, 100, |n| rawdoc! { "_id": n, "a": n, "b": n % 99 }).await;
    let error = store.create_indexes(create(vec![on("a"), unique("b"), on("c")])).await.unwrap_err();
    assert_eq!(error.code(), Code::DuplicateKey);
    assert_eq!(names(&store).await, ["_id_"]);
    store.close().await.unwrap();
}

/// Returns options for both searches of a change of many documents: gathered keys, and a scan.
fn searches() -> [Options; 2] {
    [Options::small(), Options { gathered_bytes_max: 100, ..Options::small() }]
}

#[tokio::test(flavor = "multi_thread")]
async fn an_update_that_moves_documents_ahead_in_its_index_changes_each_once() {
    for options in searches() {
        let directory = tempfile::tempdir().unwrap();
        let store = stepping(directory.path(), options).await;
        fill(&store, 200, |n| rawdoc! { "_id": n, "a": n }).await;
        store.create_indexes(create(vec![on("a")])).await.unwrap();
        let update = UpdateSpec::Document(rawdoc! { "$inc": { "a": 1000 } });
        let statement =
            UpdateStatement { multi: true, ..UpdateStatement::one(rawdoc! { "a": { "$gte": 100 } }, update) };
        let outcome = store.update(Update::new(namespace(), vec![statement])).await.unwrap();
        assert_eq!((outcome.matched, outcome.modified), (100, 100));
        let expected: Vec<_> =
            (0..200).map(|n| rawdoc! { "_id": n, "a": if n < 100 { n } else { n + 1000 } }).collect();
        assert_eq!(find_all(&store).await, expected);
        store.close().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hint_at_a_sparse_index_means_the_documents_in_it_however_they_are_found() {
    for options in searches() {
        let directory = tempfile::tempdir().unwrap();
        let store = stepping(directory.path(), options).await;
        fill(&store, 60, |n| {
            if n % 2 == 0 {
                rawdoc! { "_id": n, "a": n }
            } else {
                rawdoc! { "_id": n }
            }
        })
        .await;
        store.create_indexes(create(vec![IndexSpec { sparse: true, ..on("a") }])).await.unwrap();
        let hint = Some(Hint::Name("a_1".to_owned()));
        let statements = vec![DeleteStatement { filter: rawdoc! {}, multi: true, hint }];
        assert_eq!(store.delete(Delete::new(namespace(), statements)).await.unwrap().deleted, 30);
        assert_eq!(find_all(&store).await.len(), 30);
        store.close().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_of_many_documents_holds_no_old_view() {
    for options in searches() {
        for filter in [rawdoc! {}, rawdoc! { "a": { "$gte": 0 } }] {
            let directory = tempfile::tempdir().unwrap();
            let store = stepping(directory.path(), options.clone()).await;
            fill(&store, 100, |n| rawdoc! { "_id": n, "a": n }).await;
            store.create_indexes(create(vec![on("a")])).await.unwrap();
            let target = Target {
                namespace: namespace(),
                filter: Filter::compile(&filter, &CompileOptions::default()).unwrap(),
                sort: Sort::compile(&rawdoc! {}).unwrap(),
                hint: None,
                context: store.context.sources.context(&rawdoc! {}),
            };
            let first = Arc::downgrade(&store.context.latest().view);
            let held = Arc::new(Mutex::new(Vec::new()));
            let noted = held.clone();
            let mut evaluation = Evaluation::new(Arc::new(target), move |_, _| {
                noted.lock().unwrap().push(first.upgrade().is_some());
                Ok(Evaluated::Remove(()))
            });
            let mut changed = 0;
            change_many(&store.context, &mut evaluation, 0, |()| changed += 1).await.unwrap();
            assert_eq!(changed, 100);
            let held = std::mem::take(&mut *held.lock().unwrap());
            // The committer itself holds the first view until its first batch is applied; the published snapshot follows with the sync.
            assert!(held[0] && !held[30], "{filter:?}: {held:?}");
            store.close().await.unwrap();
        }
    }
}

/// The steps of an evaluation count once, even if the documents after it have been deleted: then the operation continues to the
/// last document.
#[tokio::test(flavor = "multi_thread")]
async fn documents_that_are_gone_take_no_steps_of_an_operation() {
    let directory = tempfile::tempdir().unwrap();
    let store = stepping(directory.path(), Options { turn_steps_max: 1000, ..Options::small() }).await;
    fill(&store, 2, |n| rawdoc! { "_id": n * 100 }).await;
    // It takes at least 100 of the 1000 steps, and is evaluated for two documents.
    let filter =
        rawdoc! { "$expr": { "$eq": [{ "$sum": { "$map": { "input": { "$range": [0, 100] }, "in": 1 } } }, 100] } };
    let filter = Filter::compile(&filter, &CompileOptions::default()).unwrap();
    let target = Arc::new(Target {
        namespace: namespace(),
        filter: Filter::compile(&rawdoc! {}, &CompileOptions::default()).unwrap(),
        sort: Sort::compile(&rawdoc! {}).unwrap(),
        hint: None,
        context: store.context.sources.context(&rawdoc! {}),
    });
    let context = target.clone();
    let mut evaluation = Evaluation::new(target, move |_, document| {
        assert!(filter.matches(document, &context.context)?);
        Ok(Evaluated::Remove(()))
    });
    let evaluation = evaluation.for_operation();
    let keys = (0..=100).map(|id| keys::of_id(RawBsonRef::Int32(id))).collect();
    let step = move |writer: &mut Writer<'_>| Ok(change_step(writer, evaluation, keys));
    let step = store.context.committer.submit(AnswerAfter::Applied, 0, step).await.unwrap();
    assert_eq!((step.results.len(), step.remaining.len()), (2, 0));
    store.close().await.unwrap();
}

/// A change that takes more steps than any operation may, of a document that another write changes during each evaluation.
#[tokio::test(flavor = "multi_thread")]
async fn a_document_that_changes_faster_than_its_change_is_computed_is_a_conflict_in_the_end() {
    let directory = tempfile::tempdir().unwrap();
    let store = stepping(directory.path(), Options { turn_steps_max: 20, ..Options::small() }).await;
    fill(&store, 2, |n| rawdoc! { "_id": n, "a": 0 }).await;
    let long =
        rawdoc! { "$expr": { "$eq": [{ "$sum": { "$map": { "input": { "$range": [0, 5000] }, "in": 1 } } }, 5000] } };
    let target = Arc::new(Target {
        namespace: namespace(),
        filter: Filter::compile(&rawdoc! {}, &CompileOptions::default()).unwrap(),
        sort: Sort::compile(&rawdoc! {}).unwrap(),
        hint: None,
        context: store.context.sources.context(&rawdoc! {}),
    });
    let long = Filter::compile(&long, &CompileOptions::default()).unwrap();
    let (others, runtime, context) = (store.clone(), tokio::runtime::Handle::current(), target.clone());
    let mut evaluation = Evaluation::new(target, move |_, document| {
        assert!(long.matches(document, &context.context)?);
        let id = document.get("_id").unwrap().unwrap();
        let change = UpdateSpec::Document(rawdoc! { "$inc": { "a": 1 } });
        let statement = UpdateStatement::one(rawdoc! { "_id": id }, change);
        runtime.block_on(others.update(Update::new(namespace(), vec![statement])))?;
        Ok(Evaluated::Remove(()))
    });
    let error = change_many(&store.context, &mut evaluation, 0, |()| ()).await.unwrap().unwrap();
    assert_eq!(error.code(), Code::WriteConflict, "{error}");
    assert!(error.to_string().contains("was changed 16 times while its change was computed"), "{error}");
    let found = find_all(&store).await;
    assert_eq!(found, [rawdoc! { "_id": 0, "a": 16 }, rawdoc! { "_id": 1, "a": 0 }], "nothing is removed");
    store.close().await.unwrap();
}

#[tokio::test]
async fn bytes_of_indexes_are_exact_for_a_small_collection_and_near_for_a_large_one() {
    let directory = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(directory.path(), Sources::seeded(1), Options::small()).await.unwrap();
    store.create_indexes(create(vec![on("a"), IndexSpec { sparse: true, ..on("s") }])).await.unwrap();
    let document = |n: i32| match n % 4 {
        0 => rawdoc! { "_id": n, "a": [n, n + 1, n + 2], "s": n },
        _ => rawdoc! { "_id": n, "a": n },
    };
    let counted = |store: &EmbeddedStore| {
        let view = store.context.latest().view;
        let all = view.range(Keyspace::Indexes, prefix_range(&[]), Direction::Forward);
        all.map(|row| row.unwrap()).map(|(key, value)| (key.len() + value.len()) as u64).sum::<u64>()
    };
    let reported = async |store: &EmbeddedStore| {
        let stats = store.collection_stats(&namespace()).await.unwrap();
        let names: Vec<_> = stats.index_bytes.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["_id_", "a_1", "s_1"]);
        stats.index_bytes.iter().map(|(_, bytes)| bytes).sum::<u64>()
    };
    fill(&store, 1000, document).await;
    assert_eq!(reported(&store).await, counted(&store));
    store.insert(Insert::new(namespace(), (1000..5000).map(document).collect())).await.unwrap();
    let (reported, counted) = (reported(&store).await, counted(&store));
    assert!(reported.abs_diff(counted) < counted / 10, "{reported} for {counted}");
    store.close().await.unwrap();
}
