//! Blocks of data files are damaged.

use std::fs;
use std::path::{Path, PathBuf};

use bson::rawdoc;
use handfast_store::{BatchLimit, CreateIndexes, DocumentStore, Find, IndexSpec, Insert};

use super::look;
use crate::check::{CheckReport, Remedy, Repair};
use crate::store::tests::{namespace, open};

const DOCUMENTS: i32 = 4000;

/// A store whose first documents are in data files.
async fn build() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path()).await;
    let indexes = vec![IndexSpec::new(rawdoc! { "text": 1 })];
    store.create_indexes(CreateIndexes { namespace: namespace(), indexes }).await.unwrap();
    let documents: Vec<_> = (0..DOCUMENTS).map(|n| rawdoc! { "_id": n, "text": format!("{n} ").repeat(100) }).collect();
    for part in documents.chunks(100) {
        store.insert(Insert::new(namespace(), part.to_vec())).await.unwrap();
    }
    store.close().await.unwrap();
    directory
}

/// The data files of a map, in the order of their sizes, the largest first. Maps are numbered from 1.
fn data_files(directory: &Path, map: u32) -> Vec<PathBuf> {
    let files = fs::read_dir(directory.join(format!("engine/keyspaces/{map}/tables"))).unwrap();
    let mut files: Vec<_> = files.map(|entry| entry.unwrap().path()).collect();
    files.sort_by_key(|file| std::cmp::Reverse(fs::metadata(file).unwrap().len()));
    files
}

/// Flips a bit at so many hundredths of a file's length. Blocks of rows come first in a file.
fn flip(file: &Path, hundredths: usize) {
    let mut bytes = fs::read(file).unwrap();
    let at = bytes.len() * hundredths / 100;
    bytes[at] ^= 4;
    fs::write(file, bytes).unwrap();
}

fn holes(report: &CheckReport) -> Vec<String> {
    let of_documents = report.findings.iter().filter(|finding| finding.text.contains("cannot be read ("));
    of_documents.map(|finding| finding.text.clone()).collect()
}

/// The `_id`s around a hole, as a finding names them.
fn bounds(text: &str) -> (i32, i32) {
    let words: Vec<&str> = text.split_whitespace().collect();
    let ids: Vec<i32> = words.windows(2).filter(|pair| pair[0] == "_id").map(|pair| pair[1].parse().unwrap()).collect();
    (ids[0], ids[1])
}

#[tokio::test]
async fn a_damaged_block_hides_nothing_but_what_is_in_it() {
    let directory = build().await;
    let file = &data_files(directory.path(), 1)[0];
    flip(file, 30);
    flip(file, 60);
    let report = look(directory.path(), Repair::No).await;
    let holes = holes(&report);
    assert_eq!(holes.len(), 2, "{report:?}");
    let mut lost = 0;
    for hole in &holes {
        let (after, before) = bounds(hole);
        assert!(after + 1 < before && before - after < 200, "{hole}");
        lost += before - after - 1;
        assert!(hole.starts_with("db.c: documents between"), "{hole}");
        assert!(hole.contains(&file.display().to_string()), "it names the file: {hole}");
        assert!(hole.contains("checksum") && !hole.contains("Mismatch"), "in plain words: {hole}");
        assert_eq!(hole.matches("checksum").count(), 1, "the block explains all of it: {hole}");
    }
    assert_eq!(report.documents, u64::try_from(DOCUMENTS - lost).unwrap());
    let summary = format!("db.c: {} of {DOCUMENTS} documents can be read", DOCUMENTS - lost);
    assert!(report.findings.iter().any(|finding| finding.text == summary), "{report:?}");
    assert_eq!(report.findings.len(), 3, "{report:?}");
}

#[tokio::test]
async fn the_rest_of_a_damaged_collection_can_be_read() {
    let directory = build().await;
    flip(&data_files(directory.path(), 1)[0], 50);
    let report = look(directory.path(), Repair::No).await;
    let (after, before) = bounds(&holes(&report)[0]);
    let store = open(directory.path()).await;
    for documents in [1, 7, 10_000] {
        let mut salvage = store.salvage(&namespace());
        let (mut ids, mut skipped) = (Vec::new(), Vec::new());
        loop {
            let page = salvage.next_page(BatchLimit { documents, bytes: 1 << 20 }).await.unwrap();
            assert!(!page.documents.is_empty() || page.exhausted);
            ids.extend(page.documents.iter().map(|document| document.get_i32("_id").unwrap()));
            skipped.extend(page.skipped);
            if page.exhausted {
                break;
            }
        }
        assert!(ids.iter().copied().eq((0..=after).chain(before..DOCUMENTS)), "pages of {documents}");
        assert_eq!(skipped.len(), 1, "{skipped:?}");
        assert_eq!(bounds(&skipped[0]), (after, before));
        if documents == 1 {
            assert!(salvage.next_page(BatchLimit::REPLY).await.unwrap().exhausted);
        }
    }
    // Who does not ask for the rest alone is refused, in plain words.
    let mut cursor = store.find(Find::new(namespace(), rawdoc! {})).await.unwrap();
    let error = loop {
        match cursor.next_page(BatchLimit::REPLY).await {
            Ok(page) => assert!(!page.exhausted),
            Err(error) => break error,
        }
    };
    assert_eq!(error.code(), handfast_mql::Code::DataCorruptionDetected);
    assert!(error.message().contains("db.c: ") && error.message().contains("checksum"), "{error}");
    assert!(!error.message().contains("Mismatch"), "{error}");
}

#[tokio::test]
async fn damage_at_the_ends_of_a_collection_is_one_finding_each() {
    let directory = build().await;
    for file in data_files(directory.path(), 1) {
        flip(&file, 0);
    }
    let report = look(directory.path(), Repair::No).await;
    let holes = holes(&report);
    assert!(!holes.is_empty() && holes[0].contains("documents before _id"), "{report:?}");
    assert!(report.documents > 1000, "{report:?}");
}

#[tokio::test]
async fn a_damaged_block_of_an_index_is_one_finding_and_built_anew() {
    let directory = build().await;
    flip(&data_files(directory.path(), 2)[0], 40);
    let report = look(directory.path(), Repair::No).await;
    assert_eq!(report.findings.len(), 1, "{report:?}");
    assert!(matches!(&report.findings[0].remedy, Remedy::BuildIndex(_, name) if name == "text_1"));
    assert_eq!(report.documents, u64::try_from(DOCUMENTS).unwrap());
    assert!(report.entries > 2000, "{}", report.entries);
}

#[tokio::test]
async fn an_index_over_damaged_documents_is_not_dropped() {
    let directory = build().await;
    flip(&data_files(directory.path(), 1)[0], 50);
    flip(&data_files(directory.path(), 2)[0], 50);
    let report = look(directory.path(), Repair::Yes).await;
    assert!(report.repaired.iter().any(|text| text.contains("is left as it is")), "{report:?}");
    let store = open(directory.path()).await;
    assert_eq!(store.list_indexes(&namespace()).await.unwrap().len(), 2);
}
