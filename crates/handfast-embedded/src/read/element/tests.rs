use bson::{RawDocument, RawDocumentBuf, rawdoc};
use handfast_store::{CreateIndexes, DocumentStore, Explain, Explained, Find, Hint, IndexSpec, Insert, Verbosity};

use crate::EmbeddedStore;
use crate::testing::{all, namespace, open};

/// Returns the ids that a filter finds by an index, and the number of examined keys.
async fn found(store: &EmbeddedStore, index: &RawDocument, filter: RawDocumentBuf) -> (Vec<i32>, i64) {
    let find = Find { hint: Some(Hint::Key(index.to_owned())), ..Find::new(namespace(), filter) };
    let mut ids: Vec<i32> =
        all(store.find(find.clone()).await.unwrap()).await.iter().map(|found| found.get_i32("_id").unwrap()).collect();
    ids.sort_unstable();
    let explain = Explain { explained: Explained::Find(find), verbosity: Verbosity::ExecutionStats };
    let explained = store.explain(explain).await.unwrap();
    let keys = explained.get_document("executionStats").unwrap().get("totalKeysExamined").unwrap().unwrap();
    (ids, keys.as_i64().or(keys.as_i32().map(i64::from)).unwrap())
}

#[tokio::test]
async fn one_element_bounds_several_fields() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path()).await;
    let (pair, deep) = (rawdoc! { "a.p": 1, "a.q": 1 }, rawdoc! { "a.r.s": 1, "a.r.t": 1 });
    let indexes = vec![IndexSpec::new(pair.clone()), IndexSpec::new(deep.clone())];
    store.create_indexes(CreateIndexes { namespace: namespace(), indexes }).await.unwrap();
    let mut documents = vec![
        rawdoc! { "_id": 1, "a": [{ "p": 1, "q": 990 }, { "p": 2, "q": 5 }] },
        rawdoc! { "_id": 2, "a": [{ "p": 3, "q": 5 }, { "p": 1, "q": 6 }] },
        rawdoc! { "_id": 3, "a": [{ "p": [4, 9], "q": 5 }] },
        rawdoc! { "_id": 4, "a": [{ "r": [{ "s": 1, "t": 9 }, { "s": 9, "t": 2 }] }] },
    ];
    documents.extend((100..600).map(|n| rawdoc! { "_id": n, "a": [{ "p": 1, "q": n }] }));
    store.insert(Insert::new(namespace(), documents)).await.unwrap();

    let element = |condition: RawDocumentBuf| rawdoc! { "a": { "$elemMatch": condition } };
    let cases = [
        // Both fields of one element: few keys.
        (&pair, element(rawdoc! { "p": 1, "q": { "$gte": 598 } }), vec![1, 598, 599], 10),
        (&pair, element(rawdoc! { "p": 1, "q": { "$in": [6, 300] } }), vec![2, 300], 10),
        (&pair, element(rawdoc! { "p": { "$in": [2, 3] }, "q": 5 }), vec![1, 2], 10),
        (&pair, element(rawdoc! { "$and": [{ "q": 5 }, { "p": 2 }] }), vec![1], 10),
        (
            &pair,
            rawdoc! { "a": { "$all": [{ "$elemMatch": { "p": 1, "q": 6 } }, { "$elemMatch": { "p": 3 } }] } },
            vec![2],
            10,
        ),
        // Different elements may match each condition, so one field alone is bounded.
        (&pair, rawdoc! { "a.p": 1, "a.q": 5 }, vec![1, 2], 1000),
        (&pair, rawdoc! { "a": { "$elemMatch": { "p": 2 } }, "a.q": 990 }, vec![1], 1000),
        // The field of the element is itself an array: 9 is greater than 5, and 4 less than 8.
        (&pair, element(rawdoc! { "p": { "$gt": 5, "$lt": 8 } }), vec![3], 1000),
        // The inner array has other elements.
        (&deep, element(rawdoc! { "r.s": 1, "r.t": 2 }), vec![4], 1000),
    ];
    for (index, filter, expected, keys_max) in cases {
        let (ids, keys) = found(&store, index, filter.clone()).await;
        assert_eq!(ids, expected, "{filter:?}");
        assert!(keys <= keys_max, "{filter:?} looked at {keys} keys");
    }
    store.close().await.unwrap();
}
