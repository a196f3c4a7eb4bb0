//! The default collation of a collection: it is kept, and an index that has it serves requests that name none.

use bson::{RawDocumentBuf, rawdoc};
use handfast_mql::Collation;
use handfast_mql::collation::simple;
use handfast_store::{
    CollectionOptions, CreateIndexes, DocumentStore, Explain, Explained, Find, IndexSpec, Insert, RenameCollection,
    StoreExt, Verbosity,
};

use crate::testing::{all, checked, namespace, open};
use crate::{EmbeddedStore, Options, check};

fn folded() -> RawDocumentBuf {
    let collation = Collation::parse(&rawdoc! { "locale": "en", "strength": 2 }).unwrap().unwrap();
    collation.document().to_owned()
}

fn options() -> CollectionOptions {
    CollectionOptions { collation: Some(folded()), ..CollectionOptions::default() }
}

fn named(name: &str, collation: Option<RawDocumentBuf>) -> IndexSpec {
    IndexSpec { name: name.to_owned(), collation, ..IndexSpec::new(rawdoc! { "s": 1 }) }
}

async fn found(store: &EmbeddedStore) -> usize {
    all(checked(store).find(Find::new(namespace(), rawdoc! { "s": "a" })).await.unwrap()).await.len()
}

async fn collations(store: &EmbeddedStore) -> Vec<bool> {
    store.list_indexes(&namespace()).await.unwrap().iter().map(|index| index.spec.collation.is_some()).collect()
}

#[tokio::test]
async fn it_is_kept_by_a_reopening_a_rename_and_a_backup() {
    let directories = tempfile::tempdir().unwrap();
    let (original, copy) = (directories.path().join("original"), directories.path().join("copy"));
    let store = open(&original).await;
    store.create_collection(&namespace(), options()).await.unwrap();
    let indexes = vec![named("own", None), named("bytes", Some(simple()))];
    store.create_indexes(CreateIndexes { namespace: namespace(), indexes }).await.unwrap();
    let documents = ["A", "a", "b"].iter().zip(1..).map(|(s, id)| rawdoc! { "_id": id, "s": *s }).collect();
    store.insert(Insert::new(namespace(), documents)).await.unwrap();
    store.close().await.unwrap();
    let store = open(&original).await;
    assert_eq!((found(&store).await, collations(&store).await), (2, vec![true, true, false]));
    let other = handfast_store::Namespace::new("db", "other").unwrap();
    for (from, to) in [(namespace(), other.clone()), (other, namespace())] {
        store.rename_collection(RenameCollection { from, to, drop_target: false }).await.unwrap();
    }
    store.backup(&copy).await.unwrap();
    let copied = open(&copy).await;
    assert_eq!((found(&copied).await, collations(&copied).await), (2, vec![true, true, false]));
    copied.close().await.unwrap();
    let report = check(&copy, handfast_store::Sources::seeded(1), Options::small(), crate::Repair::No, |_| ()).await;
    assert!(report.unwrap().findings.is_empty());
}

#[tokio::test]
async fn an_index_with_the_default_serves_requests_that_name_none() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path()).await;
    store.create_collection(&namespace(), options()).await.unwrap();
    store.create_index(&namespace(), named("own", None)).await.unwrap();
    let documents = (0..100).map(|id| rawdoc! { "_id": id, "s": format!("Name{}", id % 50) }).collect();
    store.insert(Insert::new(namespace(), documents)).await.unwrap();
    let find = Find::new(namespace(), rawdoc! { "s": "name7" });
    let explain = Explain { explained: Explained::Find(find), verbosity: Verbosity::ExecutionStats };
    let explained = checked(&store).explain(explain).await.unwrap();
    let statistics = explained.get_document("executionStats").unwrap();
    let number = |name: &str| statistics.get_i32(name).unwrap();
    assert_eq!((number("totalDocsExamined"), number("nReturned")), (2, 2));
}
