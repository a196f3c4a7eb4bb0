//! Bits are flipped in the files of a store; every answer must be right, or say that data is damaged.
//!
//! `HANDFAST_FLIPS` says how many (default 40, 2,000 in continuous integration). Each flip is made in a copy of the
//! directory; then the store is opened and every document is read, by a scan and by an index.
//!
//! That the test can fail is shown by a store that does not verify its checksums, on bytes that were changed past the
//! engine's own checksums.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "helpers of tests are tests")]

use std::fs;
use std::path::{Path, PathBuf};

use bson::{RawDocumentBuf, rawdoc};
use handfast_embedded::{EmbeddedStore, Error, Options, Repair, check};
use handfast_mql::Code;
use handfast_sim::directory::copy;
use handfast_store::{
    BatchLimit, Count, CreateIndexes, Delete, DeleteStatement, DocumentStore, Durability, Find, Hint, IndexSpec,
    Insert, Namespace, Random, SeededRandom, Sources, Update, UpdateSpec, UpdateStatement,
};

const DOCUMENTS: i32 = 3000;

fn namespace() -> Namespace {
    Namespace::new("flip", "c").unwrap()
}

fn options() -> Options {
    Options::small()
}

fn document(n: i32) -> RawDocumentBuf {
    rawdoc! { "_id": n, "a": n * 7 % 1000, "text": format!("{n}-").repeat((n % 300) as usize) }
}

async fn open(path: &Path) -> Result<EmbeddedStore, Error> {
    EmbeddedStore::open(path, Sources::seeded(1), options()).await
}

/// A store whose documents are in data files and, the last ones, in the journal alone.
async fn build(path: &Path) {
    let store = open(path).await.unwrap();
    let indexes = vec![IndexSpec::new(rawdoc! { "a": 1 })];
    store.create_indexes(CreateIndexes { namespace: namespace(), indexes }).await.unwrap();
    let documents: Vec<_> = (0..DOCUMENTS).map(document).collect();
    for part in documents.chunks(100) {
        let outcome = store.insert(Insert::new(namespace(), part.to_vec())).await.unwrap();
        assert_eq!(outcome.inserted, part.len() as u64);
    }
    store.close().await.unwrap();
    // Opening again cuts the zeros that the journal is laid out with.
    open(path).await.unwrap().close().await.unwrap();
}

fn files(path: &Path) -> Vec<(PathBuf, u64)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(path).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            found.extend(files(&entry.path()));
        } else if entry.metadata().unwrap().len() > 0 && entry.file_name() != "lock" {
            found.push((entry.path(), entry.metadata().unwrap().len()));
        }
    }
    found.sort();
    found
}

/// All documents, in the order of `_id`; or the code of the error.
async fn read(store: &EmbeddedStore, hint: Option<&str>) -> Result<Vec<RawDocumentBuf>, handfast_store::Error> {
    let mut find = Find::new(namespace(), rawdoc! {});
    find.hint = hint.map(|name| Hint::Name(name.to_owned()));
    let mut cursor = store.find(find).await?;
    let mut documents = Vec::new();
    loop {
        let page = cursor.next_page(BatchLimit::REPLY).await?;
        documents.extend(page.documents);
        if page.exhausted {
            documents.sort_by_key(|document| document.get_i32("_id").unwrap_or(-1));
            return Ok(documents);
        }
    }
}

#[derive(Debug, PartialEq)]
enum Answer {
    Right,
    Reported,
    Wrong(String),
}

async fn ask(path: &Path, expected: &[RawDocumentBuf]) -> Answer {
    let store = match open(path).await {
        Ok(store) => store,
        Err(Error::Damaged { .. } | Error::Corrupt(_) | Error::NewerFormat { .. }) => return Answer::Reported,
        Err(error) => return Answer::Wrong(format!("opening: {error}")),
    };
    let mut answer = Answer::Right;
    for hint in [None, Some("a_1")] {
        match read(&store, hint).await {
            Ok(documents) if documents == expected => {}
            Ok(documents) => {
                return Answer::Wrong(format!("{} of {} documents by {hint:?}", documents.len(), expected.len()));
            }
            Err(error) if error.code() == Code::DataCorruptionDetected => answer = Answer::Reported,
            // The catalog was lost with a metadata record that could not be read: the hint says so.
            Err(error) => return Answer::Wrong(format!("reading by {hint:?}: {error}")),
        }
    }
    match store.count(Count::new(namespace(), rawdoc! {})).await {
        Ok(count) if count == expected.len() as u64 => {}
        other => return Answer::Wrong(format!("counted {other:?}")),
    }
    store.close().await.unwrap();
    answer
}

#[tokio::test(flavor = "multi_thread")]
async fn every_flipped_bit_is_harmless_or_reported() {
    let flips: u64 = std::env::var("HANDFAST_FLIPS").ok().and_then(|flips| flips.parse().ok()).unwrap_or(40);
    let original = tempfile::tempdir().unwrap();
    build(original.path()).await;
    let expected: Vec<_> = (0..DOCUMENTS).map(document).collect();
    let files = files(original.path());
    let has = |part: &str| files.iter().any(|(path, _)| path.to_string_lossy().contains(part));
    assert!(has(".jnl") && has("tables"), "the store has a journal and data files: {files:?}");
    let random = SeededRandom::new(flips);
    let (mut reported, mut wrong) = (0, Vec::new());
    for _ in 0..flips {
        // Each file is as likely as the other, so that small ones (manifests, versions) are hit too.
        let (path, length) = &files[(random.next_u64() % files.len() as u64) as usize];
        let offset = random.next_u64() % length;
        let bit = random.next_u64() % 8;
        let damaged = tempfile::tempdir().unwrap();
        copy(original.path(), damaged.path()).unwrap();
        let target = damaged.path().join(path.strip_prefix(original.path()).unwrap());
        let mut bytes = fs::read(&target).unwrap();
        bytes[offset as usize] ^= 1 << bit;
        fs::write(&target, bytes).unwrap();
        match ask(damaged.path(), &expected).await {
            Answer::Right => {}
            Answer::Reported => reported += 1,
            Answer::Wrong(what) => wrong.push(format!("bit {bit} of byte {offset} of {}: {what}", path.display())),
        }
    }
    println!("{flips} flips in {} files: {reported} reported, the others harmless", files.len());
    assert!(wrong.is_empty(), "{} of {flips} flips gave a wrong answer:\n{}", wrong.len(), wrong.join("\n"));
    assert!(reported > 0, "no flip was noticed: this test cannot fail");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flip_in_the_synced_part_of_the_journal_is_reported_and_repaired_with_a_word() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path()).await.unwrap();
    for n in 0..20 {
        store.insert(Insert::new(namespace(), vec![document(n)])).await.unwrap();
    }
    store.close().await.unwrap();
    let (journal, _) =
        files(directory.path()).into_iter().find(|(path, _)| path.extension().is_some_and(|e| e == "jnl")).unwrap();
    let mut bytes = fs::read(&journal).unwrap();
    let end = bytes.iter().rposition(|&byte| byte != 0).unwrap();
    // A page of zeros among synced commits: the engine alone would open with fewer records, without a word.
    bytes[end / 2..end / 2 + 64].fill(0);
    fs::write(&journal, bytes).unwrap();
    let error = open(directory.path()).await.unwrap_err();
    assert!(matches!(&error, Error::Damaged { .. }), "{error}");
    assert!(error.to_string().contains("handfast check"), "{error}");
    let report = check(directory.path(), Sources::seeded(1), options(), Repair::No, |_| {}).await.unwrap();
    assert!(!report.is_clean());
    let report = check(directory.path(), Sources::seeded(1), options(), Repair::Yes, |_| {}).await.unwrap();
    assert!(report.repaired.iter().any(|text| text.contains("dropped")), "{:?}", report.repaired);
    let again = check(directory.path(), Sources::seeded(1), options(), Repair::No, |_| {}).await.unwrap();
    assert!(again.is_clean(), "{:?}", again.findings);
    let store = open(directory.path()).await.unwrap();
    let left = read(&store, None).await.unwrap();
    assert!(!left.is_empty() && left.len() < 20, "{} documents are left", left.len());
    store.close().await.unwrap();
}

/// Changes of one document that come one directly after the other: what a wrong order of batches would betray.
const CHANGES: i32 = 700;

/// A store in whose journal a document is overwritten, or deleted, directly after it was written; what is left at the end.
async fn build_of_changes(path: &Path) -> Vec<RawDocumentBuf> {
    let store = open(path).await.unwrap();
    let indexes = vec![IndexSpec::new(rawdoc! { "a": 1 })];
    store.create_indexes(CreateIndexes { namespace: namespace(), indexes }).await.unwrap();
    let mut left = std::collections::BTreeMap::new();
    for n in 0..CHANGES {
        let id = n / 2 % 20;
        if n % 10 == 5 {
            let statements = vec![DeleteStatement { filter: rawdoc! { "_id": id }, multi: false, hint: None }];
            let delete = Delete { durability: Durability::Memory, ..Delete::new(namespace(), statements) };
            store.delete(delete).await.unwrap();
            left.remove(&id);
        } else {
            let update = UpdateSpec::Document(rawdoc! { "$set": { "a": n } });
            let statement = UpdateStatement { upsert: true, ..UpdateStatement::one(rawdoc! { "_id": id }, update) };
            let update = Update { durability: Durability::Memory, ..Update::new(namespace(), vec![statement]) };
            assert_eq!(store.update(update).await.unwrap().errors.len(), 0);
            left.insert(id, rawdoc! { "_id": id, "a": n });
        }
    }
    store.close().await.unwrap();
    open(path).await.unwrap().close().await.unwrap();
    left.into_values().collect()
}

/// Where each batch of a journal begins.
fn batches(journal: &[u8]) -> Vec<usize> {
    let number = |at: usize| u32::from_le_bytes(journal[at..at + 4].try_into().unwrap()) as usize;
    let (mut starts, mut at) = (Vec::new(), 0);
    while journal.get(at) == Some(&1) {
        starts.push(at);
        let items = number(at + 1);
        at += 13;
        for _ in 0..items {
            let key = usize::from(u16::from_le_bytes(journal[at + 11..at + 13].try_into().unwrap()));
            at += 21 + key + number(at + 17);
        }
        at += 13;
    }
    starts
}

#[tokio::test(flavor = "multi_thread")]
async fn every_flipped_bit_of_a_batch_header_is_harmless_or_reported() {
    const HEADER_BITS: usize = 13 * 8;
    let original = tempfile::tempdir().unwrap();
    let expected = build_of_changes(original.path()).await;
    let (journal, _) =
        files(original.path()).into_iter().find(|(path, _)| path.extension().is_some_and(|e| e == "jnl")).unwrap();
    let bytes = fs::read(&journal).unwrap();
    let starts = batches(&bytes);
    assert!(starts.len() >= CHANGES as usize, "{} batches", starts.len());
    let sequence = |start: usize| u64::from_le_bytes(bytes[start + 5..start + 13].try_into().unwrap());
    // Written at once again by the next batch, with more than 512 batches behind it: bit 9 makes it look like one of them.
    let overwritten = starts[starts.len() - CHANGES as usize + 40];
    assert_eq!(sequence(overwritten) & 512, 0);
    let deleted = starts[starts.len() - CHANGES as usize + 44];
    let last = *starts.last().unwrap();
    let (mut reported, mut wrong) = (0, Vec::new());
    for (start, what) in [(overwritten, "overwritten"), (deleted, "deleted"), (last, "last")] {
        for bit in 0..HEADER_BITS {
            let damaged = tempfile::tempdir().unwrap();
            copy(original.path(), damaged.path()).unwrap();
            let mut bytes = bytes.clone();
            bytes[start + bit / 8] ^= 1 << (bit % 8);
            fs::write(damaged.path().join(journal.strip_prefix(original.path()).unwrap()), bytes).unwrap();
            match ask(damaged.path(), &expected).await {
                Answer::Right => {}
                Answer::Reported => reported += 1,
                Answer::Wrong(found) => wrong.push(format!("bit {bit} of the header of the {what} batch: {found}")),
            }
        }
    }
    assert!(wrong.is_empty(), "{} flips gave a wrong answer:\n{}", wrong.len(), wrong.join("\n"));
    assert!(reported > 0, "no flip was noticed: this test cannot fail");
}
