//! An index serves strings only under its own collation.

use bson::{RawBson, RawDocument, RawDocumentBuf, rawdoc};
use handfast_mql::collation::with_variable;
use handfast_store::{
    Count, CreateIndexes, Distinct, DocumentStore, Explain, Explained, Find, Hint, IndexSpec, Insert, Update,
    UpdateSpec, UpdateStatement, Verbosity,
};

use crate::EmbeddedStore;
use crate::testing::{all, namespace, open};

/// Returns an index on `a` with a name of its own.
fn index(name: &str, collation: Option<&RawDocument>) -> IndexSpec {
    let mut document = rawdoc! { "key": { "a": 1 }, "name": name };
    if let Some(collation) = collation {
        document.append(bson::raw::cstr!("collation"), collation.to_owned());
    }
    IndexSpec::from_document(&document).unwrap()
}

fn insensitive() -> RawDocumentBuf {
    rawdoc! { "locale": "en_US", "strength": 2 }
}

async fn store(path: &std::path::Path, indexes: Vec<IndexSpec>) -> EmbeddedStore {
    let store = open(path).await;
    store.create_indexes(CreateIndexes { namespace: namespace(), indexes }).await.unwrap();
    let values = ["b", "A", "a", "C", "B"].map(RawBson::from).into_iter().chain([RawBson::Int32(1), RawBson::Int32(2)]);
    let documents = (0..).zip(values).map(|(n, a)| rawdoc! { "_id": n, "a": a }).collect();
    let inserted = store.insert(Insert::new(namespace(), documents)).await.unwrap();
    assert!(inserted.errors.is_empty(), "{:?}", inserted.errors);
    store
}

fn find(filter: RawDocumentBuf, sort: RawDocumentBuf, collation: Option<&RawDocument>) -> Find {
    Find { sort, variables: with_variable(rawdoc! {}, collation), ..Find::new(namespace(), filter) }
}

/// Returns the `_id`s that are found, the index that is used, and whether documents are sorted afterwards.
async fn run(store: &EmbeddedStore, find: Find) -> (Vec<i32>, Option<String>, bool) {
    let found = all(store.find(find.clone()).await.unwrap()).await;
    let ids = found.iter().map(|found| found.get_i32("_id").unwrap()).collect();
    let explain = Explain { explained: Explained::Find(find), verbosity: Verbosity::QueryPlanner };
    let explained = store.explain(explain).await.unwrap();
    let text = format!("{:?}", bson::Document::try_from(explained.as_ref()).unwrap());
    let used = text.split("\"indexName\": String(\"").nth(1).and_then(|rest| rest.split('"').next()).map(str::to_owned);
    (ids, used, text.contains("\"SORT\""))
}

#[tokio::test]
async fn an_index_serves_strings_only_under_its_own_collation() {
    let directory = tempfile::tempdir().unwrap();
    let indexes = vec![index("folded", Some(&insensitive()))];
    let store = store(directory.path(), indexes).await;
    let english = rawdoc! { "locale": "en_US" };
    let a = || rawdoc! { "a": "B" };
    let used = Some("folded".to_owned());
    let folded = insensitive();
    assert_eq!(run(&store, find(a(), rawdoc! {}, Some(&folded))).await, (vec![0, 4], used.clone(), false));
    let (ids, other, _) = run(&store, find(a(), rawdoc! {}, None)).await;
    assert_eq!((ids, other), (vec![4], None), "bytes");
    let (ids, other, _) = run(&store, find(a(), rawdoc! {}, Some(&english))).await;
    assert_eq!((ids, other), (vec![4], None), "another collation");
    // Numbers are the same under each.
    for collation in [None, Some(&*english), Some(&*folded)] {
        let numbers = find(rawdoc! { "a": { "$gte": 2 } }, rawdoc! {}, collation);
        assert_eq!(run(&store, numbers).await, (vec![6], used.clone(), false), "{collation:?}");
    }
    // Ranges, lists and equalities of $expr.
    for filter in [
        rawdoc! { "a": { "$gt": "a", "$lte": "b" } },
        rawdoc! { "a": { "$in": ["B", "x"] } },
        rawdoc! { "$expr": { "$eq": ["$a", "B"] } },
        rawdoc! { "$or": [{ "a": "B" }, { "a": "x" }] },
    ] {
        let found = run(&store, find(filter.clone(), rawdoc! {}, Some(&folded))).await;
        assert_eq!(found, (vec![0, 4], used.clone(), false), "{filter:?}");
        assert_eq!(run(&store, find(filter, rawdoc! {}, Some(&english))).await.1, None);
    }
}

#[tokio::test]
async fn an_index_gives_the_order_of_its_own_collation_alone() {
    let directory = tempfile::tempdir().unwrap();
    let indexes = vec![index("folded", Some(&insensitive())), index("bytes", None)];
    let store = store(directory.path(), indexes).await;
    let (folded, english) = (insensitive(), rawdoc! { "locale": "en_US" });
    let strings = || rawdoc! { "a": { "$type": "string" } };
    let by_a = || rawdoc! { "a": 1 };
    let sorted = run(&store, find(strings(), by_a(), Some(&folded))).await;
    assert_eq!(sorted, (vec![1, 2, 0, 4, 3], Some("folded".to_owned()), false));
    let sorted = run(&store, find(strings(), by_a(), None)).await;
    assert_eq!(sorted, (vec![1, 4, 3, 2, 0], Some("bytes".to_owned()), false));
    let (ids, _, sorts) = run(&store, find(strings(), by_a(), Some(&english))).await;
    assert_eq!((ids, sorts), (vec![2, 1, 0, 4, 3], true));
    // A hint to an index of another collation reads it and sorts.
    let hint = Some(Hint::Name("bytes".to_owned()));
    let hinted = Find { hint, ..find(strings(), by_a(), Some(&english)) };
    assert_eq!(run(&store, hinted).await, (vec![2, 1, 0, 4, 3], Some("bytes".to_owned()), true));
}

#[tokio::test]
async fn ids_are_in_the_order_of_bytes() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path()).await;
    let documents = ["b", "A", "B", "a"].map(|id| rawdoc! { "_id": id }).to_vec();
    store.insert(Insert::new(namespace(), documents)).await.unwrap();
    let folded = insensitive();
    let ids = |find: Find| async {
        let found = all(store.find(find).await.unwrap()).await;
        found.iter().map(|found| found.get_str("_id").unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(ids(find(rawdoc! { "_id": "b" }, rawdoc! {}, Some(&folded))).await, ["B", "b"]);
    assert_eq!(ids(find(rawdoc! { "_id": { "$gte": "B" } }, rawdoc! { "_id": -1 }, Some(&folded))).await, ["B", "b"]);
    assert_eq!(ids(find(rawdoc! {}, rawdoc! { "_id": 1 }, Some(&folded))).await, ["A", "a", "B", "b"]);
    assert_eq!(ids(find(rawdoc! { "_id": "b" }, rawdoc! {}, None)).await, ["b"]);
    // Counts, distinct values and updates.
    let count = Count { collation: Some(folded.clone()), ..Count::new(namespace(), rawdoc! { "_id": "b" }) };
    assert_eq!(store.count(count).await.unwrap(), 2);
    let distinct = Distinct {
        namespace: namespace(),
        key: "_id".to_owned(),
        filter: rawdoc! {},
        hint: None,
        collation: Some(folded.clone()),
    };
    assert_eq!(store.distinct(distinct).await.unwrap().len(), 2);
    let change = UpdateSpec::Document(rawdoc! { "$set": { "n": 1 } });
    let statement = UpdateStatement { multi: true, ..UpdateStatement::one(rawdoc! { "_id": "b" }, change) };
    let variables = with_variable(rawdoc! {}, Some(&folded));
    let update = Update { variables, ..Update::new(namespace(), vec![statement]) };
    assert_eq!(store.update(update).await.unwrap().modified, 2);
}

#[tokio::test]
async fn a_unique_index_compares_by_its_collation_also_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let unique = IndexSpec { unique: true, ..index("username", Some(&insensitive())) };
    let opened = open(directory.path()).await;
    opened.create_indexes(CreateIndexes { namespace: namespace(), indexes: vec![unique.clone()] }).await.unwrap();
    opened.insert(Insert::new(namespace(), vec![rawdoc! { "a": "Bob" }])).await.unwrap();
    opened.close().await.unwrap();
    let store = open(directory.path()).await;
    let outcome = store.insert(Insert::new(namespace(), vec![rawdoc! { "a": "bob" }])).await.unwrap();
    assert_eq!(outcome.errors.first().map(|refused| refused.error.code().0), Some(11_000));
    let outcome = store.insert(Insert::new(namespace(), vec![rawdoc! { "a": "bób" }])).await.unwrap();
    assert!(outcome.errors.is_empty(), "another accent is another name at strength 2");
    let listed = store.list_indexes(&namespace()).await.unwrap();
    assert!(listed.iter().any(|index| index.spec == unique), "{listed:?}");
}

#[tokio::test]
async fn a_hashed_index_serves_equalities() {
    let directory = tempfile::tempdir().unwrap();
    let hashed = IndexSpec::from_document(&rawdoc! { "key": { "a": "hashed" }, "name": "hashed" }).unwrap();
    let store = store(directory.path(), vec![hashed]).await;
    let used = Some("hashed".to_owned());
    for (filter, ids) in [(rawdoc! { "a": "B" }, vec![4]), (rawdoc! { "a": { "$in": [1, "C"] } }, vec![5, 3])] {
        assert_eq!(run(&store, find(filter, rawdoc! {}, None)).await, (ids, used.clone(), false));
    }
}
