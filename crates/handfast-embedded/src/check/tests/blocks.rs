//! The check and the salvage of damaged blocks of data files.

use std::fs;
use std::path::{Path, PathBuf};

use bson::{RawDocumentBuf, rawdoc};
use handfast_store::{BatchLimit, CreateIndexes, DocumentStore, Find, IndexSpec, Insert, Sources, StoreExt as _};

use crate::check::{CheckReport, Remedy, Repair};
use crate::testing::{find_all, namespace};
use crate::{EmbeddedStore, Options, check};

const DOCUMENTS: i32 = 4000;

/// Options without recovery from the journal, which has everything of a store as small as these.
fn options() -> Options {
    Options { salvage_from_journal: false, ..Options::small() }
}

async fn open(path: &Path) -> EmbeddedStore {
    EmbeddedStore::open(path, Sources::seeded(1), options()).await.unwrap()
}

async fn look(path: &Path, repair: Repair) -> CheckReport {
    check(path, Sources::seeded(1), options(), repair, |_| {}).await.unwrap()
}

/// Builds a store whose first documents are in data files.
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

/// Returns the data files of a map, the largest first. Maps are numbered from 1.
fn data_files(directory: &Path, map: u32) -> Vec<PathBuf> {
    let files = fs::read_dir(directory.join(format!("engine/keyspaces/{map}/tables"))).unwrap();
    let mut files: Vec<_> = files.map(|entry| entry.unwrap().path()).collect();
    files.sort_by_key(|file| std::cmp::Reverse(fs::metadata(file).unwrap().len()));
    files
}

/// Flips a bit at `hundredths` / 100 of a file's length. Blocks of rows come first in a file.
fn flip(file: &Path, hundredths: usize) {
    let mut bytes = fs::read(file).unwrap();
    let at = bytes.len() * hundredths / 100;
    bytes[at] ^= 4;
    fs::write(file, bytes).unwrap();
}

fn unreadable(report: &CheckReport) -> Vec<String> {
    let of_documents = report.findings.iter().filter(|finding| finding.text.contains("cannot be read ("));
    of_documents.map(|finding| finding.text.clone()).collect()
}

/// Returns the `_id`s around unreadable documents, as a finding names them.
fn bounds(text: &str) -> (i32, i32) {
    let words: Vec<&str> = text.split_whitespace().collect();
    let ids: Vec<i32> = words.windows(2).filter(|pair| pair[0] == "_id").map(|pair| pair[1].parse().unwrap()).collect();
    (ids[0], ids[1])
}

#[tokio::test]
async fn a_damaged_block_hides_its_own_documents_only() {
    let directory = build().await;
    let file = &data_files(directory.path(), 1)[0];
    flip(file, 30);
    flip(file, 60);
    let report = look(directory.path(), Repair::No).await;
    let unreadable = unreadable(&report);
    assert_eq!(unreadable.len(), 2, "{report:?}");
    let mut lost = 0;
    for unreadable in &unreadable {
        let (after, before) = bounds(unreadable);
        assert!(after + 1 < before && before - after < 200, "{unreadable}");
        lost += before - after - 1;
        assert!(unreadable.starts_with("db.c: documents between"), "{unreadable}");
        assert!(unreadable.contains(&file.display().to_string()), "it names the file: {unreadable}");
        assert!(unreadable.contains("checksum") && !unreadable.contains("Mismatch"), "in plain words: {unreadable}");
        assert_eq!(unreadable.matches("checksum").count(), 1, "the block explains all of it: {unreadable}");
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
    let (after, before) = bounds(&unreadable(&report)[0]);
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
    // Every other read fails with a clear message.
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
    let unreadable = unreadable(&report);
    assert!(!unreadable.is_empty() && unreadable[0].contains("documents before _id"), "{report:?}");
    assert!(report.documents > 1000, "{report:?}");
}

#[tokio::test]
async fn a_damaged_block_of_an_index_is_one_finding_and_the_index_is_rebuilt() {
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

/// Changes documents throughout the collection: some are in a newer data file then, some in the write buffer, some are deleted.
/// Returns all documents.
async fn change_some(directory: &Path) -> Vec<RawDocumentBuf> {
    let store = open(directory).await;
    let files = data_files(directory, 1).len();
    let text = |letter: &str, length: usize| rawdoc! { "$set": { "text": letter.repeat(length) } };
    let every_tenth = |from: i32| (from..DOCUMENTS).step_by(10);
    for id in every_tenth(3) {
        store.update_one(&namespace(), rawdoc! { "_id": id }, text("f", 4000)).await.unwrap();
    }
    for id in every_tenth(6) {
        store.delete_one(&namespace(), rawdoc! { "_id": id }).await.unwrap();
    }
    for id in every_tenth(9) {
        store.update_one(&namespace(), rawdoc! { "_id": id }, text("b", 10)).await.unwrap();
    }
    assert!(data_files(directory, 1).len() > files, "some of it is in a data file");
    let everything = find_all(&store).await;
    store.close().await.unwrap();
    everything
}

/// Returns the documents that can be read, and the texts about the others.
async fn salvaged(directory: &Path, options: Options) -> (Vec<RawDocumentBuf>, Vec<String>) {
    let store = EmbeddedStore::open(directory, Sources::seeded(1), options).await.unwrap();
    let page = store.salvage(&namespace()).next_page(BatchLimit { documents: 10_000, bytes: 1 << 30 }).await.unwrap();
    assert!(page.exhausted);
    store.close().await.unwrap();
    (page.documents, page.skipped)
}

#[tokio::test]
async fn newer_states_than_a_damaged_block_are_salvaged_and_no_older_ones() {
    let directory = build().await;
    let everything = change_some(directory.path()).await;
    // Every data file is damaged, so that the only older state of some documents is unreadable.
    for file in data_files(directory.path(), 1) {
        for hundredths in [20, 35, 50, 65, 80] {
            flip(&file, hundredths);
        }
    }
    let (documents, skipped) = salvaged(directory.path(), options()).await;
    let is_within = |document: &&RawDocumentBuf| {
        let id = document.get_i32("_id").unwrap();
        skipped.iter().map(|text| bounds(text)).any(|(after, before)| after < id && id < before)
    };
    let is_in_buffer = |document: &&RawDocumentBuf| document.get_str("text").unwrap().starts_with('b');
    let (there, lost): (Vec<_>, Vec<_>) = everything.iter().partition(|document| documents.contains(document));
    assert!(documents.iter().eq(there), "nothing older, and nothing twice");
    assert!(!lost.is_empty() && lost.iter().all(is_within));
    assert!(!lost.iter().any(is_in_buffer));
    let known: Vec<_> = documents.iter().filter(is_within).collect();
    assert!(known.iter().any(is_in_buffer), "of the write buffer");
    assert!(!known.iter().all(is_in_buffer), "of another data file");
    let counted: usize = skipped.iter().map(|text| recovered(text)).sum();
    assert_eq!(counted, known.len(), "{skipped:?}");
    let report = look(directory.path(), Repair::No).await;
    assert_eq!(report.documents, documents.len() as u64);
    assert_eq!(unreadable(&report).iter().map(|text| recovered(text)).sum::<usize>(), known.len(), "{report:?}");
}

/// Returns the number of recovered documents that a finding names.
fn recovered(text: &str) -> usize {
    let Some((_, said)) = text.split_once("); ") else { return 0 };
    let (count, rest) = said.split_once(' ').unwrap();
    assert_eq!(rest, "of them were recovered from another data file or the journal");
    count.parse().unwrap()
}

#[tokio::test]
async fn documents_of_a_damaged_block_are_recovered_from_the_journal() {
    let directory = build().await;
    let everything = change_some(directory.path()).await;
    for hundredths in [20, 50, 80] {
        flip(&data_files(directory.path(), 1)[0], hundredths);
    }
    let (documents, skipped) = salvaged(directory.path(), Options::small()).await;
    assert_eq!(documents, everything);
    assert_eq!(skipped.len(), 3, "it is said all the same: {skipped:?}");
    let report = check(directory.path(), Sources::seeded(1), Options::small(), Repair::No, |_| {}).await.unwrap();
    let summary = format!("db.c: {0} of {0} documents can be read", everything.len());
    assert!(report.findings.iter().any(|finding| finding.text == summary), "{report:?}");
}
