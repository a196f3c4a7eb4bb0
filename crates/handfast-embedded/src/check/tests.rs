//! The check and its repairs of records that another program has changed; and backups.

mod blocks;
mod files;

use std::path::Path;

use bson::rawdoc;
use handfast_mql::Code;
use handfast_store::{
    CollectionCheck, CreateIndexes, DocumentStore, Durability, Find, Hint, IndexSpec, Insert, Namespace, Sources,
};

use super::{CheckReport, Remedy, Repair};
use crate::directory;
use crate::engine::{Direction, Engine, Keyspace, Write, prefix_range};
use crate::store::EmbeddedStore;
use crate::testing::{all, find_all, namespace, open};
use crate::{Options, check};

async fn build(path: &Path) {
    let store = open(path).await;
    let indexes = vec![IndexSpec { unique: true, ..IndexSpec::new(rawdoc! { "a": 1 }) }];
    store.create_indexes(CreateIndexes { namespace: namespace(), indexes }).await.unwrap();
    let documents = (0..20).map(|n| rawdoc! { "_id": n, "a": n }).collect();
    store.insert(Insert { durability: Durability::Journaled, ..Insert::new(namespace(), documents) }).await.unwrap();
    store.close().await.unwrap();
}

/// Changes the first record of a map.
fn change(path: &Path, keyspace: Keyspace, new: impl FnOnce(Vec<u8>) -> Option<Vec<u8>>) {
    let locked = directory::lock(path).unwrap();
    let mut opened = directory::open(&locked, &Options::small()).unwrap();
    let row = opened.engine.view().range(keyspace, prefix_range(&[]), Direction::Forward).next();
    let (key, value) = row.unwrap().unwrap();
    let write = Write { keyspace, key: key.to_vec(), value: new(value.to_vec()) };
    let timestamp = opened.chain.last.timestamp;
    opened.chain.apply(&opened.engine, timestamp, vec![write]).unwrap();
    opened.engine.sync().unwrap();
    opened.witness.record(opened.chain.numbers()).unwrap();
}

async fn look(path: &Path, repair: Repair) -> CheckReport {
    check(path, Sources::seeded(1), Options::small(), repair, |_| {}).await.unwrap()
}

#[tokio::test]
async fn an_undamaged_store_is_clean() {
    let directory = tempfile::tempdir().unwrap();
    build(directory.path()).await;
    let report = look(directory.path(), Repair::No).await;
    assert!(report.is_clean(), "{:?}", report.findings);
    assert_eq!((report.collections, report.documents, report.entries), (1, 20, 20));
}

#[tokio::test]
async fn a_missing_index_entry_is_found_and_its_index_rebuilt() {
    let directory = tempfile::tempdir().unwrap();
    build(directory.path()).await;
    change(directory.path(), Keyspace::Indexes, |_| None);
    let report = look(directory.path(), Repair::No).await;
    assert_eq!(report.findings.len(), 1, "{:?}", report.findings);
    assert!(matches!(&report.findings[0].remedy, Remedy::BuildIndex(_, name) if name == "a_1"));
    let report = look(directory.path(), Repair::Yes).await;
    assert_eq!(report.repaired, ["rebuilt index a_1 of db.c"]);
    let report = look(directory.path(), Repair::No).await;
    assert!(report.is_clean(), "{:?}", report.findings);
    let store = open(directory.path()).await;
    let mut find = Find::new(namespace(), rawdoc! {});
    find.hint = Some(Hint::Name("a_1".to_owned()));
    assert_eq!(all(store.find(find).await.unwrap()).await.len(), 20);
}

#[tokio::test]
async fn the_check_of_an_open_collection_names_the_damaged_index() {
    let directory = tempfile::tempdir().unwrap();
    build(directory.path()).await;
    let store = open(directory.path()).await;
    let names_and_keys = |check: &CollectionCheck| -> Vec<(String, u64, bool)> {
        check.indexes.iter().map(|index| (index.name.clone(), index.keys, index.valid)).collect()
    };
    let arrays = CreateIndexes { namespace: namespace(), indexes: vec![IndexSpec::new(rawdoc! { "t": 1 })] };
    store.create_indexes(arrays).await.unwrap();
    store.insert(Insert::new(namespace(), vec![rawdoc! { "_id": 20, "a": 20, "t": [1, 2, 3] }])).await.unwrap();
    let check = store.check_collection(&namespace()).await.unwrap();
    let expected = [("_id_", 21), ("a_1", 21), ("t_1", 23)].map(|(name, keys)| (name.to_owned(), keys, true));
    assert_eq!(names_and_keys(&check), expected);
    assert_eq!((check.documents, check.documents_damaged, check.errors), (21, 0, Vec::new()));
    let unknown = store.check_collection(&Namespace::new("db", "none").unwrap()).await.unwrap_err();
    assert_eq!(unknown.code(), Code::NamespaceNotFound);
    store.close().await.unwrap();

    change(directory.path(), Keyspace::Indexes, |_| None);
    let store = open(directory.path()).await;
    let check = store.check_collection(&namespace()).await.unwrap();
    let expected = [("_id_", 21, true), ("a_1", 20, false), ("t_1", 23, true)];
    assert_eq!(names_and_keys(&check), expected.map(|(name, keys, valid)| (name.to_owned(), keys, valid)));
    assert_eq!((check.documents, check.documents_damaged, check.errors.len()), (21, 0, 1));
    assert!(check.errors[0].starts_with("index a_1 of db.c: an entry is missing: "), "{:?}", check.errors);
    store.close().await.unwrap();
}

/// Shows that the tests of damage can fail: without the checksums of records a reader would get the wrong document.
#[tokio::test]
async fn only_the_checksum_of_a_record_keeps_a_changed_document_from_readers() {
    let directory = tempfile::tempdir().unwrap();
    build(directory.path()).await;
    // The last byte of the first document's `a`, an int32, before the byte that ends the document.
    change(directory.path(), Keyspace::Documents, |value| {
        let document = rawdoc! { "_id": 0, "a": 0 };
        let start = value.windows(document.as_bytes().len()).position(|part| part == document.as_bytes());
        let mut changed = value.clone();
        changed[start.unwrap() + document.as_bytes().len() - 2] ^= 1;
        Some(changed)
    });
    let find = || Find::new(namespace(), rawdoc! { "_id": 0 });
    let store = open(directory.path()).await;
    let refused = store.find(find()).await.err().expect("a damaged document");
    assert_eq!(refused.code(), Code::DataCorruptionDetected, "{refused}");
    store.close().await.unwrap();
    let trusting = Options { verify_checksums: false, ..Options::small() };
    let store = EmbeddedStore::open(directory.path(), Sources::seeded(1), trusting).await.unwrap();
    assert_eq!(all(store.find(find()).await.unwrap()).await, [rawdoc! { "_id": 0, "a": 1 << 24 }]);
    store.close().await.unwrap();
}

#[tokio::test]
async fn a_changed_document_is_reported_and_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    build(directory.path()).await;
    let flip = |mut value: Vec<u8>| {
        let last = value.len() - 3;
        value[last] ^= 1;
        Some(value)
    };
    change(directory.path(), Keyspace::Documents, flip);
    let report = look(directory.path(), Repair::Yes).await;
    assert!(report.findings.iter().any(|finding| finding.remedy == Remedy::None), "{:?}", report.findings);
    let store = open(directory.path()).await;
    let mut cursor = store.find(Find::new(namespace(), rawdoc! {})).await.unwrap();
    let error = cursor.next_page(handfast_store::BatchLimit::REPLY).await.unwrap_err();
    assert_eq!(error.code(), handfast_mql::Code::DataCorruptionDetected);
    assert!(error.message().contains("collection 1, key"), "{error}");
}

#[tokio::test]
async fn a_damaged_document_does_not_keep_others_from_expiring() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path()).await;
    let index = IndexSpec { expire_after_seconds: Some(0), ..IndexSpec::new(rawdoc! { "t": 1 }) };
    store.create_indexes(CreateIndexes { namespace: namespace(), indexes: vec![index] }).await.unwrap();
    let date = |n: i64| bson::DateTime::from_millis(1_000_000 + n);
    // The first one is damaged, with a date in the middle.
    let documents = (0..20).map(|n| rawdoc! { "_id": n, "t": date((n + 10) % 20) }).collect();
    store.insert(Insert::new(namespace(), documents)).await.unwrap();
    store.close().await.unwrap();
    change(directory.path(), Keyspace::Documents, |mut value| {
        value.reverse();
        Some(value)
    });
    let store = open(directory.path()).await;
    let error = store.expire(date(15)).await.unwrap_err();
    assert_eq!(error.code(), handfast_mql::Code::DataCorruptionDetected);
    let left = all(store.find(Find::new(namespace(), rawdoc! { "_id": { "$gt": 0 } })).await.unwrap()).await;
    let left: Vec<_> = left.iter().map(|document| document.get_i64("_id").unwrap()).collect();
    assert_eq!(left, [6, 7, 8, 9], "later than now");
}

#[tokio::test]
async fn a_missing_document_is_found() {
    let directory = tempfile::tempdir().unwrap();
    build(directory.path()).await;
    change(directory.path(), Keyspace::Documents, |_| None);
    let report = look(directory.path(), Repair::No).await;
    assert!(report.findings.iter().any(|finding| matches!(finding.remedy, Remedy::Count(_))), "{:?}", report.findings);
    let store = open(directory.path()).await;
    let mut cursor = store.find(Find::new(namespace(), rawdoc! {})).await.unwrap();
    let error = cursor.next_page(handfast_store::BatchLimit::REPLY).await.unwrap_err();
    assert_eq!(error.code(), handfast_mql::Code::DataCorruptionDetected, "nineteen documents are no answer");
}

#[tokio::test]
async fn a_backup_is_complete_and_leaves_the_store_in_use() {
    let directory = tempfile::tempdir().unwrap();
    build(&directory.path().join("store")).await;
    let store = open(&directory.path().join("store")).await;
    let copy = directory.path().join("copy");
    let backup = store.backup(&copy).await.unwrap();
    assert_eq!((backup.documents, backup.entries), (20, 20));
    store.insert(Insert::new(namespace(), vec![rawdoc! { "_id": 99, "a": 99 }])).await.unwrap();
    store.backup(&copy).await.unwrap_err();
    let report = look(&copy, Repair::No).await;
    assert!(report.is_clean(), "{:?}", report.findings);
    assert_eq!(find_all(&open(&copy).await).await.len(), 20);
    assert_eq!(find_all(&store).await.len(), 21);
}

#[tokio::test]
async fn a_backup_removes_the_files_of_a_killed_one_and_no_others() {
    let directory = tempfile::tempdir().unwrap();
    build(&directory.path().join("store")).await;
    let store = open(&directory.path().join("store")).await;
    let (copy, beside) = (directory.path().join("copy"), directory.path().join("copy.unfinished"));
    // The user has a directory of this name.
    std::fs::create_dir(&beside).unwrap();
    std::fs::write(beside.join("letter"), "dear").unwrap();
    let error = store.backup(&copy).await.unwrap_err();
    assert!(error.message().contains("copy.unfinished"), "{error}");
    assert_eq!(std::fs::read(beside.join("letter")).unwrap(), b"dear");
    std::fs::remove_dir_all(&beside).unwrap();
    // Another process is writing it.
    let locked = directory::lock(&beside).unwrap();
    let error = store.backup(&copy).await.unwrap_err();
    assert_eq!(error.code(), handfast_mql::Code::IllegalOperation, "{error}");
    drop(locked);
    // That process was killed.
    assert_eq!(store.backup(&copy).await.unwrap().documents, 20);
    assert!(!beside.exists());
}

#[tokio::test]
async fn a_backup_that_fails_leaves_no_files() {
    let directory = tempfile::tempdir().unwrap();
    build(&directory.path().join("store")).await;
    change(&directory.path().join("store"), Keyspace::Documents, |mut value| {
        value.reverse();
        Some(value)
    });
    let store = open(&directory.path().join("store")).await;
    let error = store.backup(directory.path().join("copy")).await.unwrap_err();
    assert_eq!(error.code(), handfast_mql::Code::DataCorruptionDetected);
    let left: Vec<_> = std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["store"]);
}

#[tokio::test]
async fn a_damaged_document_does_not_keep_those_of_other_collections_from_expiring() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path()).await;
    for name in ["a", "b"] {
        let namespace = handfast_store::Namespace::new("db", name).unwrap();
        let index = IndexSpec { expire_after_seconds: Some(1), ..IndexSpec::new(rawdoc! { "at": 1 }) };
        let create = CreateIndexes { namespace: namespace.clone(), indexes: vec![index] };
        store.create_indexes(create).await.unwrap();
        let expired = rawdoc! { "_id": 1, "at": bson::DateTime::from_millis(0) };
        store.insert(Insert::new(namespace, vec![expired])).await.unwrap();
    }
    store.close().await.unwrap();
    change(directory.path(), Keyspace::Documents, |mut value| {
        value[3] ^= 1;
        Some(value)
    });
    let store = open(directory.path()).await;
    let error = store.expire(bson::DateTime::from_millis(1_000_000)).await.unwrap_err();
    assert_eq!(error.code(), handfast_mql::Code::DataCorruptionDetected);
    let stats = store.collection_stats(&handfast_store::Namespace::new("db", "b").unwrap()).await.unwrap();
    assert_eq!(stats.count, 0);
    store.close().await.unwrap();
}

#[tokio::test]
async fn a_check_creates_no_store() {
    let directory = tempfile::tempdir().unwrap();
    for path in [directory.path().to_owned(), directory.path().join("none")] {
        let error = check(&path, Sources::seeded(1), Options::small(), Repair::No, |_| {}).await.unwrap_err();
        assert!(error.to_string().contains("holds no handfast store"), "{error}");
        assert!(!path.exists() || std::fs::read_dir(&path).unwrap().next().is_none());
    }
}

#[tokio::test]
async fn a_backup_of_many_batches_is_complete() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&directory.path().join("store")).await;
    let document = |n: i32| rawdoc! { "_id": n, "fill": "x".repeat(300_000) };
    store.insert(Insert::new(namespace(), (0..40).map(document).collect())).await.unwrap();
    let copy = directory.path().join("copy");
    assert_eq!(store.backup(&copy).await.unwrap().documents, 40);
    let copied = find_all(&open(&copy).await).await;
    assert!(copied == (0..40).map(document).collect::<Vec<_>>());
}
