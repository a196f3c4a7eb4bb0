//! Comparisons of `$expr` find documents by an index, and find all of them.

use bson::{RawArrayBuf, RawBson, RawDocument, RawDocumentBuf, rawdoc};
use handfast_store::{CreateIndexes, DocumentStore, Explain, Explained, Find, IndexSpec, Insert, Verbosity};

use crate::EmbeddedStore;
use crate::testing::{all, namespace, open};

/// The documents that no case finds.
const OTHERS: i32 = 500;

/// Returns the number of documents that a query examines, and the `_id`s that it finds.
async fn examined(store: &EmbeddedStore, filter: &RawDocument, variables: &RawDocument) -> (i32, Vec<i32>) {
    let find = Find { variables: variables.to_owned(), ..Find::new(namespace(), filter.to_owned()) };
    let mut ids: Vec<i32> =
        all(store.find(find.clone()).await.unwrap()).await.iter().map(|found| found.get_i32("_id").unwrap()).collect();
    ids.sort_unstable();
    let explain = Explain { explained: Explained::Find(find), verbosity: Verbosity::ExecutionStats };
    let explained = store.explain(explain).await.unwrap();
    (explained.get_document("executionStats").unwrap().get_i32("totalDocsExamined").unwrap(), ids)
}

async fn filled(path: &std::path::Path, index: IndexSpec, few: &[RawDocumentBuf], other: &RawBson) -> EmbeddedStore {
    let store = open(path).await;
    store.create_indexes(CreateIndexes { namespace: namespace(), indexes: vec![index] }).await.unwrap();
    let others = (0..OTHERS).map(|n| rawdoc! { "_id": 1000 + n, "a": other.clone() });
    let documents = few.iter().cloned().chain(others).collect();
    let inserted = store.insert(Insert::new(namespace(), documents)).await.unwrap();
    assert!(inserted.errors.is_empty(), "{:?}", inserted.errors);
    store
}

fn array(values: impl IntoIterator<Item = i32>) -> RawBson {
    RawBson::Array(RawArrayBuf::from_iter(values))
}

fn whole_values() -> Vec<RawDocumentBuf> {
    vec![
        rawdoc! { "_id": 1, "a": 1 },
        rawdoc! { "_id": 2, "a": 2.0 },
        rawdoc! { "_id": 3, "a": "x" },
        rawdoc! { "_id": 4, "a": null },
        rawdoc! { "_id": 5 },
        rawdoc! { "_id": 6, "a": { "b": 1 } },
        rawdoc! { "_id": 7, "a": RawBson::Undefined },
        rawdoc! { "_id": 8, "a": RawBson::MinKey },
        rawdoc! { "_id": 9, "a": f64::NAN },
    ]
}

/// All types are compared, and a missing field is less than null. Undefined equals both.
#[tokio::test]
async fn a_comparison_of_whole_values_examines_what_it_finds() {
    let directory = tempfile::tempdir().unwrap();
    let store = filled(directory.path(), IndexSpec::new(rawdoc! { "a": 1 }), &whole_values(), &true.into()).await;
    let descending = tempfile::tempdir().unwrap();
    let index = IndexSpec::new(rawdoc! { "a": -1, "b": 1 });
    let descending_store = filled(descending.path(), index, &whole_values(), &true.into()).await;
    let variables = rawdoc! { "one": 1, "list": [1, 2, 5] };
    for (expression, found) in [
        (rawdoc! { "$eq": ["$a", 1] }, vec![1]),
        (rawdoc! { "$eq": ["$$one", "$a"] }, vec![1]),
        (rawdoc! { "$in": ["$a", "$$list"] }, vec![1, 2]),
        (rawdoc! { "$in": ["$a", ["x", null]] }, vec![3, 4, 7]),
        (rawdoc! { "$eq": ["$a", null] }, vec![4, 7]),
        (rawdoc! { "$eq": ["$a", "$$REMOVE"] }, vec![5, 7]),
        (rawdoc! { "$eq": ["$a", { "$literal": { "b": 1 } }] }, vec![6]),
        (rawdoc! { "$eq": ["$a", [1]] }, vec![]),
        (rawdoc! { "$lt": ["$a", 1] }, vec![4, 5, 7, 8, 9]),
        (rawdoc! { "$lte": ["$a", 1] }, vec![1, 4, 5, 7, 8, 9]),
        (rawdoc! { "$lt": ["$a", null] }, vec![5, 8]),
        (rawdoc! { "$lte": ["$a", null] }, vec![4, 5, 7, 8]),
        (rawdoc! { "$lt": ["$a", { "$literal": RawBson::MinKey }] }, vec![]),
        (rawdoc! { "$and": [{ "$gt": ["$a", null] }, { "$lt": ["$a", true] }] }, vec![1, 2, 3, 6, 9]),
        (rawdoc! { "$and": [{ "$gt": ["$a", 1] }, { "$gte": ["y", "$a"] }] }, vec![2, 3]),
        (rawdoc! { "$and": [{ "$gte": ["$a", f64::NAN] }, { "$lt": ["$a", 2] }] }, vec![1, 9]),
    ] {
        for (name, store) in [("ascending", &store), ("descending", &descending_store)] {
            let (examined, ids) = examined(store, &rawdoc! { "$expr": expression.clone() }, &variables).await;
            assert_eq!(ids, found, "{expression:?}, {name}");
            // Null, undefined and a missing field have one key.
            assert!(examined <= found.len() as i32 + 3, "{expression:?}, {name}: {examined} documents examined");
        }
    }
    // With conditions of the filter, the index is used for both.
    let both = rawdoc! { "a": { "$gte": 1 }, "$expr": { "$lt": ["$a", 2] } };
    assert_eq!(examined(&store, &both, &variables).await, (1, vec![1]));
}

#[tokio::test]
async fn a_comparison_of_ids_examines_what_it_finds() {
    let directory = tempfile::tempdir().unwrap();
    let store = filled(directory.path(), IndexSpec::new(rawdoc! { "a": 1 }), &whole_values(), &true.into()).await;
    let none = rawdoc! {};
    for (expression, found) in [
        (rawdoc! { "$eq": ["$_id", 3] }, vec![3]),
        (rawdoc! { "$in": ["$_id", [3, 2, 3.0]] }, vec![2, 3]),
        (rawdoc! { "$lt": ["$_id", 3] }, vec![1, 2]),
        (rawdoc! { "$and": [{ "$gte": ["$_id", 8] }, { "$lt": ["$_id", 1000] }] }, vec![8, 9]),
    ] {
        let (examined, ids) = examined(&store, &rawdoc! { "$expr": expression.clone() }, &none).await;
        assert_eq!((examined, &ids), (found.len() as i32, &found), "{expression:?}");
    }
}

/// An index with keys from arrays holds the elements and not the arrays that `$expr` compares.
#[tokio::test]
async fn an_index_with_arrays_serves_equalities_alone() {
    let directory = tempfile::tempdir().unwrap();
    let mut few = whole_values();
    few.extend([
        rawdoc! { "_id": 10, "a": array([1]) },
        rawdoc! { "_id": 11, "a": array([]) },
        rawdoc! { "_id": 12, "a": [{ "b": 1 }] },
    ]);
    let store = filled(directory.path(), IndexSpec::new(rawdoc! { "a": 1 }), &few, &"z".into()).await;
    let none = rawdoc! {};
    let check = async |expression: RawDocumentBuf, found: Vec<i32>, examined_most: i32| {
        let (examined, ids) = examined(&store, &rawdoc! { "$expr": expression.clone() }, &none).await;
        assert_eq!(ids, found, "{expression:?}");
        assert!(examined <= examined_most, "{expression:?}: {examined} documents examined");
    };
    check(rawdoc! { "$eq": ["$a", 1] }, vec![1], 2).await;
    check(rawdoc! { "$in": ["$a", [1, 2]] }, vec![1, 2], 3).await;
    let everything = OTHERS + few.len() as i32;
    check(rawdoc! { "$gt": ["$a", "z"] }, vec![6, 10, 11, 12], everything).await;
    check(rawdoc! { "$eq": ["$a", [1]] }, vec![10], everything).await;
    check(rawdoc! { "$eq": ["$a", []] }, vec![11], everything).await;
    check(rawdoc! { "$eq": ["$a.b", [1]] }, vec![12], everything).await;
}

/// A sparse index leaves out documents without the field, also `{a: [{c: 1}]}` without an `a.b`, where `"$a.b"` is an empty array.
#[tokio::test]
async fn a_sparse_index_serves_what_no_missing_field_fulfils() {
    let few =
        vec![rawdoc! { "_id": 1, "a": { "b": 1 } }, rawdoc! { "_id": 2, "a": { "b": "x" } }, rawdoc! { "_id": 3 }];
    let index = || IndexSpec { sparse: true, ..IndexSpec::new(rawdoc! { "a.b": 1 }) };
    let none = rawdoc! {};
    let (greater, less) = (rawdoc! { "$expr": { "$gt": ["$a.b", 1] } }, rawdoc! { "$expr": { "$lt": ["$a.b", 1] } });
    let equal = rawdoc! { "$expr": { "$eq": ["$a.b", "x"] } };

    let directory = tempfile::tempdir().unwrap();
    let store = filled(directory.path(), index(), &few, &rawdoc! { "b": 0 }.into()).await;
    assert_eq!(examined(&store, &greater, &none).await, (1, vec![2]));
    assert_eq!(examined(&store, &equal, &none).await, (1, vec![2]));
    let (all_examined, ids) = examined(&store, &less, &none).await;
    assert_eq!((all_examined, ids.len() as i32), (OTHERS + 3, OTHERS + 1));

    store.insert(Insert::new(namespace(), vec![rawdoc! { "_id": 4, "a": [{ "c": 1 }] }])).await.unwrap();
    let (all_examined, ids) = examined(&store, &greater, &none).await;
    assert_eq!((all_examined, ids), (OTHERS + 4, vec![2, 4]));
    assert_eq!(examined(&store, &equal, &none).await, (1, vec![2]));
}

#[tokio::test]
async fn a_partial_index_serves_equalities_within_its_filter() {
    let few = vec![rawdoc! { "_id": 1, "a": 7 }, rawdoc! { "_id": 2, "a": "x" }, rawdoc! { "_id": 3, "a": -7 }];
    let partial =
        IndexSpec { partial_filter: Some(rawdoc! { "a": { "$gt": 5 } }), ..IndexSpec::new(rawdoc! { "a": 1 }) };
    let directory = tempfile::tempdir().unwrap();
    let store = filled(directory.path(), partial, &few, &0.into()).await;
    let none = rawdoc! {};
    assert_eq!(examined(&store, &rawdoc! { "$expr": { "$eq": ["$a", 7] } }, &none).await, (1, vec![1]));
    // These may match documents that the index leaves out: strings are greater than 6 for `$expr`, and not for the index's filter.
    let (all_examined, ids) = examined(&store, &rawdoc! { "$expr": { "$gt": ["$a", 6] } }, &none).await;
    assert_eq!((all_examined, ids), (OTHERS + 3, vec![1, 2]));
    let (all_examined, ids) = examined(&store, &rawdoc! { "$expr": { "$eq": ["$a", -7] } }, &none).await;
    assert_eq!((all_examined, ids), (OTHERS + 3, vec![3]));
    let both = rawdoc! { "a": { "$gt": 5 }, "$expr": { "$lt": ["$a", 8] } };
    assert_eq!(examined(&store, &both, &none).await, (1, vec![1]));
}
