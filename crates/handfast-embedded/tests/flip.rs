//! Flips bits in the files of a store: every answer must be right, or an error that reports damage.
//!
//! `HANDFAST_FLIPS` is the number of flips (default 40, 2,000 in continuous integration). Each flip is made in a copy of the
//! directory; then the store is opened and every document is read, by a scan and by an index, and checked against the contract.
//! A flip in any byte of the synced part of the journal must be reported when the store is opened.
//!
//! `src/check/tests.rs` shows that a store which does not verify its checksums gives a wrong answer, on bytes that were changed
//! together with the engine's own checksums.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "helpers of tests are tests")]

use std::fs;
use std::path::{Path, PathBuf};

use bson::{RawDocumentBuf, rawdoc};
use handfast_embedded::{EmbeddedStore, Error, Options, Repair, check};
use handfast_mql::Code;
use handfast_sim::directory::copy;
use handfast_store::decorator::Checked;
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

/// Creates a store with an index.
async fn make(path: &Path) -> EmbeddedStore {
    let store = open(path).await.unwrap();
    let indexes = vec![IndexSpec::new(rawdoc! { "a": 1 })];
    store.create_indexes(CreateIndexes { namespace: namespace(), indexes }).await.unwrap();
    store
}

/// Builds a store whose documents are in data files, except the last ones, which are in the journal alone.
async fn build(path: &Path) {
    let store = make(path).await;
    let documents: Vec<_> = (0..DOCUMENTS).map(document).collect();
    for part in documents.chunks(100) {
        let outcome = store.insert(Insert::new(namespace(), part.to_vec())).await.unwrap();
        assert_eq!(outcome.inserted, part.len() as u64);
    }
    store.close().await.unwrap();
    // The second opening cuts the zeros with which the journal is allocated.
    open(path).await.unwrap().close().await.unwrap();
}

fn flips() -> u64 {
    std::env::var("HANDFAST_FLIPS").ok().and_then(|flips| flips.parse().ok()).unwrap_or(40)
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

/// Returns all documents in the order of `_id`, or the code of the error.
async fn read(
    store: &Checked<EmbeddedStore>,
    hint: Option<&str>,
) -> Result<Vec<RawDocumentBuf>, handfast_store::Error> {
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
    ReportedAtOpen,
    ReportedByRead,
    Wrong(String),
}

async fn ask(path: &Path, expected: &[RawDocumentBuf]) -> Answer {
    let store = match open(path).await {
        Ok(store) => store,
        Err(Error::Damaged { .. } | Error::Corrupt(_) | Error::NewerFormat { .. }) => return Answer::ReportedAtOpen,
        Err(error) => return Answer::Wrong(format!("opening: {error}")),
    };
    let store = Checked::new(store, Sources::seeded(1));
    let mut answer = Answer::Right;
    for hint in [None, Some("a_1")] {
        match read(&store, hint).await {
            Ok(documents) if documents == expected => {}
            Ok(documents) => {
                return Answer::Wrong(format!("{} of {} documents by {hint:?}", documents.len(), expected.len()));
            }
            Err(error) if error.code() == Code::DataCorruptionDetected => answer = Answer::ReportedByRead,
            // The index was lost with an unreadable record of the catalog, so the hint fails.
            Err(error) => return Answer::Wrong(format!("reading by {hint:?}: {error}")),
        }
    }
    match store.count(Count::new(namespace(), rawdoc! {})).await {
        Ok(count) if count == expected.len() as u64 => {}
        other => return Answer::Wrong(format!("counted {other:?}")),
    }
    store.into_inner().close().await.unwrap();
    answer
}

#[tokio::test(flavor = "multi_thread")]
async fn every_flipped_bit_is_harmless_or_reported() {
    let flips = flips();
    let original = tempfile::tempdir().unwrap();
    build(original.path()).await;
    let expected: Vec<_> = (0..DOCUMENTS).map(document).collect();
    let files = files(original.path());
    let has = |part: &str| files.iter().any(|(path, _)| path.to_string_lossy().contains(part));
    assert!(has(".jnl") && has("tables"), "the store has a journal and data files: {files:?}");
    let random = SeededRandom::new(flips);
    let (mut reported, mut wrong) = (0, Vec::new());
    for _ in 0..flips {
        // Each file is equally likely, so that small ones (manifests, versions) are hit too.
        let (path, length) = &files[(random.next_u64() % files.len() as u64) as usize];
        let offset = random.next_u64() % length;
        let bit = random.next_u64() % 8;
        let damaged = flipped(original.path(), path, offset as usize, bit as u8);
        let what = match (ask(damaged.path(), &expected).await, is_journal(path)) {
            (Answer::Right, false) => continue,
            (Answer::ReportedByRead, false) | (Answer::ReportedAtOpen, _) => {
                reported += 1;
                continue;
            }
            (answer @ (Answer::Right | Answer::ReportedByRead), true) => format!("not reported at open: {answer:?}"),
            (Answer::Wrong(what), _) => what,
        };
        wrong.push(format!("bit {bit} of byte {offset} of {}: {what}", path.display()));
    }
    println!("{flips} flips in {} files: {reported} reported, the others harmless", files.len());
    assert!(wrong.is_empty(), "{} of {flips} flips gave a wrong answer:\n{}", wrong.len(), wrong.join("\n"));
    assert!(reported > 0, "no flip was noticed: this test cannot fail");
}

/// Copies a store, and flips one bit of a file.
fn flipped(original: &Path, file: &Path, offset: usize, bit: u8) -> tempfile::TempDir {
    let damaged = tempfile::tempdir().unwrap();
    copy(original, damaged.path()).unwrap();
    let target = damaged.path().join(file.strip_prefix(original).unwrap());
    let mut bytes = fs::read(&target).unwrap();
    bytes[offset] ^= 1 << bit;
    fs::write(&target, bytes).unwrap();
    damaged
}

fn is_journal(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "jnl")
}

/// Returns the only journal file of a store.
fn journal_of(path: &Path) -> PathBuf {
    files(path).into_iter().map(|(path, _)| path).find(|path| is_journal(path)).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flip_in_any_byte_of_the_journal_is_reported_at_open() {
    let original = tempfile::tempdir().unwrap();
    let store = make(original.path()).await;
    for n in 0..5 {
        store.insert(Insert::new(namespace(), vec![document(n)])).await.unwrap();
    }
    store.close().await.unwrap();
    let journal = journal_of(original.path());
    let bytes = fs::read(&journal).unwrap();
    let end = end_of_batches(&bytes);
    assert!(bytes[end..].iter().all(|&byte| byte == 0), "behind the batches there is what the file was laid out with");
    // Copies without it are faster.
    fs::OpenOptions::new().write(true).open(&journal).unwrap().set_len(end as u64).unwrap();
    let expected: Vec<_> = (0..5).map(document).collect();
    assert_eq!(ask(original.path(), &expected).await, Answer::Right);
    // The flips are spread over all bytes, or hit each one in a long run.
    for offset in (0..end).step_by(end.div_ceil(flips() as usize).max(1)) {
        let damaged = flipped(original.path(), &journal, offset, (offset % 8) as u8);
        assert_eq!(ask(damaged.path(), &expected).await, Answer::ReportedAtOpen, "byte {offset} of {end}");
    }
    // After its end the journal is empty, so a flipped bit there damages nothing.
    fs::OpenOptions::new().write(true).open(&journal).unwrap().set_len(end as u64 + 100).unwrap();
    for offset in [end, end + 50, end + 99] {
        let damaged = flipped(original.path(), &journal, offset, 0);
        assert_eq!(ask(damaged.path(), &expected).await, Answer::Right, "laid out, byte {offset} behind {end}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flip_in_the_synced_part_of_the_journal_is_reported_and_so_is_its_repair() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path()).await.unwrap();
    for n in 0..20 {
        store.insert(Insert::new(namespace(), vec![document(n)])).await.unwrap();
    }
    store.close().await.unwrap();
    let journal = journal_of(directory.path());
    let mut bytes = fs::read(&journal).unwrap();
    let end = bytes.iter().rposition(|&byte| byte != 0).unwrap();
    // A page of zeros among synced commits: the engine alone would open with fewer records, without an error.
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
    let store = Checked::new(open(directory.path()).await.unwrap(), Sources::seeded(1));
    let left = read(&store, None).await.unwrap();
    assert!(!left.is_empty() && left.len() < 20, "{} documents are left", left.len());
    store.into_inner().close().await.unwrap();
}

/// Successive changes of one document, which show a wrong order of batches.
const CHANGES: i32 = 700;

/// Builds a store in whose journal a document is overwritten or deleted directly after it was written. Returns the documents at the
/// end.
async fn build_of_changes(path: &Path) -> Vec<RawDocumentBuf> {
    let store = make(path).await;
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

/// Returns the offset of each batch of a journal.
fn batches(journal: &[u8]) -> Vec<usize> {
    let mut places = offsets(journal);
    places.pop();
    places
}

/// Returns the end of the last batch of a journal.
fn end_of_batches(journal: &[u8]) -> usize {
    offsets(journal).pop().unwrap()
}

/// Returns the offset of each batch, and the end of the last one.
fn offsets(journal: &[u8]) -> Vec<usize> {
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
    starts.push(at);
    starts
}

#[tokio::test(flavor = "multi_thread")]
async fn every_flipped_bit_of_a_batch_header_is_reported_at_open_and_its_sequence_number_corrected() {
    const HEADER_BITS: usize = 13 * 8;
    /// The bits of the sequence number, which no checksum of the engine covers.
    const NUMBER_BITS: std::ops::Range<usize> = 5 * 8..HEADER_BITS;
    let original = tempfile::tempdir().unwrap();
    let expected = build_of_changes(original.path()).await;
    let journal = journal_of(original.path());
    let bytes = fs::read(&journal).unwrap();
    let starts = batches(&bytes);
    assert!(starts.len() >= CHANGES as usize, "{} batches", starts.len());
    let sequence = |start: usize| u64::from_le_bytes(bytes[start + 5..start + 13].try_into().unwrap());
    // The next batch writes the same document, and more than 512 batches follow: bit 9 makes it look like one of them.
    let overwritten = starts[starts.len() - CHANGES as usize + 40];
    assert_eq!(sequence(overwritten) & 512, 0);
    let deleted = starts[starts.len() - CHANGES as usize + 44];
    let last = *starts.last().unwrap();
    let mut wrong = Vec::new();
    for (start, what) in [(overwritten, "overwritten"), (deleted, "deleted"), (last, "last")] {
        for bit in 0..HEADER_BITS {
            let damaged = flipped(original.path(), &journal, start + bit / 8, (bit % 8) as u8);
            let answer = ask(damaged.path(), &expected).await;
            // Some are enough to show that all are recovered.
            if answer == Answer::ReportedAtOpen && NUMBER_BITS.contains(&bit) && bit % 16 == 0 {
                let report = check(damaged.path(), Sources::seeded(1), options(), Repair::Yes, |_| {}).await.unwrap();
                assert!(
                    report.repaired.iter().all(|text| text.contains("corrected the sequence number")),
                    "{:?}",
                    report.repaired
                );
                assert_eq!(ask(damaged.path(), &expected).await, Answer::Right, "bit {bit} of the {what} batch");
                let report = check(damaged.path(), Sources::seeded(1), options(), Repair::No, |_| {}).await.unwrap();
                assert!(report.is_clean(), "{:?}", report.findings);
            }
            if answer != Answer::ReportedAtOpen {
                wrong.push(format!("bit {bit} of the header of the {what} batch: {answer:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{} flips were not reported at open:\n{}", wrong.len(), wrong.join("\n"));
}
