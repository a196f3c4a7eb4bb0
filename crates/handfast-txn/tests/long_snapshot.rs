//! A transaction stays open, while others write the same document again and again: it may take a bounded amount of disk space
//! and of memory.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::path::Path;

use bson::rawdoc;
use handfast_embedded::{EmbeddedStore, JOURNAL_BYTES_MIN, Options};
use handfast_mql::Code;
use handfast_store::{DocumentStore, Durability, Namespace, Sources, StoreExt, Update, UpdateSpec, UpdateStatement};
use handfast_txn::{Database, Error};

const MIB: u64 = 1024 * 1024;
/// The number of writes of one document: together they have more bytes than both bounds.
const WRITES: u64 = 4_000;
const DOCUMENT_BYTES: usize = 64 * 1024;
/// The most bytes of data files, those that wait to be merged included.
const FILES_BYTES_MAX: u64 = 64 * MIB;
/// The most bytes that the snapshot may keep in memory, besides those that the store uses without one for its cache and write buffers. An
/// allocator does not give memory back at once, so the bound is generous, and still a quarter of what is written.
const RESIDENT_BYTES_MAX: u64 = 64 * MIB;

fn namespace() -> Namespace {
    Namespace::new("db", "c").unwrap()
}

fn bytes_of(directory: &Path) -> u64 {
    let entries = std::fs::read_dir(directory).unwrap().flatten();
    entries
        .map(|entry| match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => bytes_of(&entry.path()),
            // A journal file is allocated long before it is full, so its blocks on the disk count.
            Ok(metadata) => std::os::unix::fs::MetadataExt::blocks(&metadata) * 512,
            // The file was removed meanwhile.
            Err(_) => 0,
        })
        .sum()
}

/// Returns the bytes that the process has in memory now.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_held_open_costs_no_more_than_the_bound() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options { snapshot_bytes_max: 8 * MIB, ..Options::small() };
    let store = EmbeddedStore::open(directory.path(), Sources::seeded(1), options).await.unwrap();
    let database = Database::local(store.clone(), Sources::seeded(2));
    database.insert_one(&namespace(), rawdoc! { "_id": 1, "n": 0, "fill": "" }).await.unwrap();
    let held = database.begin().await.unwrap();
    assert!(held.find_one(&namespace(), rawdoc! { "_id": 1 }).await.unwrap().is_some());
    assert_eq!(store.snapshots_in_use(), 1);

    let fill = "x".repeat(DOCUMENT_BYTES);
    let resident_before = resident_bytes();
    let (mut most, mut most_resident) = (0, 0);
    for n in 0..WRITES {
        let change =
            UpdateSpec::Document(rawdoc! { "$set": { "n": i64::try_from(n).unwrap(), "fill": fill.as_str() } });
        let statements = vec![UpdateStatement::one(rawdoc! { "_id": 1 }, change)];
        let update = Update { durability: Durability::Memory, ..Update::new(namespace(), statements) };
        database.update(update).await.unwrap();
        if n % 500 == 0 {
            most = most.max(bytes_of(directory.path()));
        }
        if n % 50 == 0 {
            most_resident = most_resident.max(resident_bytes().saturating_sub(resident_before));
        }
    }
    most = most.max(bytes_of(directory.path()));
    println!(
        "at most {} MiB on the disk and {} MiB more in memory, {} MiB were written",
        most / MIB,
        most_resident / MIB,
        WRITES * DOCUMENT_BYTES as u64 / MIB
    );
    assert!(most < JOURNAL_BYTES_MIN + FILES_BYTES_MAX, "{most} bytes on the disk");
    assert!(most_resident < RESIDENT_BYTES_MAX, "{most_resident} bytes in memory");

    // The store ended the transaction, which kept too much: it gets an error, and a new transaction can read.
    let error = held.find_one(&namespace(), rawdoc! { "_id": 1 }).await.unwrap_err();
    assert_eq!(error.code(), Code::SnapshotTooOld);
    assert!(matches!(held.commit().await, Err(Error::Conflict(_))));
    let next = database.begin().await.unwrap();
    assert!(next.find_one(&namespace(), rawdoc! { "_id": 1 }).await.unwrap().is_some());
    next.commit().await.unwrap();
    assert_eq!((database.counts().open(), store.snapshots_in_use()), (0, 0));
}
