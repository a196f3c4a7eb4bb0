//! The bytes that a transaction counts for its writes are the bytes that they take in memory, as a counting allocator measures them.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests fail and report aloud")]

use bson::{RawDocumentBuf, rawdoc};
use handfast_store::{CreateIndexes, DocumentStore, IndexSpec, MemoryStore, Namespace, Sources, StoreExt};
use handfast_txn::Database;
use tokio::runtime::Runtime;

/// The numbers of documents of a transaction: hash tables have just doubled at the first number, and are nearly full at the second.
const DOCUMENTS: [i32; 2] = [1_800, 3_570];

/// A collection, with the form of its documents.
struct Shape {
    name: &'static str,
    namespace: Namespace,
    unique: Vec<RawDocumentBuf>,
    document: fn(i32) -> RawDocumentBuf,
}

fn shapes() -> Vec<Shape> {
    let short = || Namespace::new("d", "c").unwrap();
    let long = || Namespace::new("a-database-of-a-long-name", "c".repeat(200)).unwrap();
    vec![
        Shape { name: "small", namespace: short(), unique: Vec::new(), document: |n| rawdoc! { "_id": n } },
        Shape {
            name: "long names and keys",
            namespace: long(),
            unique: Vec::new(),
            document: |n| rawdoc! { "_id": format!("{n:0200}") },
        },
        Shape {
            name: "one unique index",
            namespace: short(),
            unique: vec![rawdoc! { "a": 1 }],
            document: |n| rawdoc! { "_id": n, "a": n },
        },
        Shape {
            name: "many unique keys",
            namespace: long(),
            unique: vec![
                rawdoc! { "a": 1, "e": 1 },
                rawdoc! { "b": 1, "e": 1 },
                rawdoc! { "c": 1, "e": 1 },
                rawdoc! { "d": 1, "e": 1 },
            ],
            document: |n| {
                let text = format!("{n:050}");
                rawdoc! { "_id": n, "a": n, "b": n, "c": text.as_str(), "d": [n, n + 1_000_000], "e": text.as_str() }
            },
        },
    ]
}

async fn with_indexes(shape: &Shape) -> Database {
    let database = Database::local(MemoryStore::new(Sources::seeded(1)), Sources::seeded(2));
    let unique = |key: &RawDocumentBuf| IndexSpec { unique: true, ..IndexSpec::new(key.clone()) };
    let indexes: Vec<_> = shape.unique.iter().map(unique).collect();
    if !indexes.is_empty() {
        database.create_indexes(CreateIndexes { namespace: shape.namespace.clone(), indexes }).await.unwrap();
    }
    database
}

/// Checks the same for documents that were there before: some are kept as they were, and there are far too many to keep all.
const REPLACED: [i32; 2] = [150, 12_000];

fn replaced(runtime: &Runtime, shape: &Shape, documents: i32) -> (f64, f64) {
    let database = runtime.block_on(with_indexes(shape));
    for n in -1..documents {
        runtime.block_on(database.insert_one(&shape.namespace, (shape.document)(n))).unwrap();
    }
    let tx = runtime.block_on(database.begin()).unwrap();
    let replace = |n: i32| {
        let document = (shape.document)(n);
        let filter = rawdoc! { "_id": document.get("_id").unwrap().unwrap() };
        let change = tx.update_one(&shape.namespace, filter, rawdoc! { "$set": { "more": n } });
        assert_eq!(runtime.block_on(change).unwrap().modified, 1);
    };
    replace(-1);
    let before = database.counts().write_bytes;
    let taken = allocation_counter::measure(|| (0..documents).for_each(replace));
    let counted = database.counts().write_bytes - before;
    let each = |bytes: f64| bytes / f64::from(documents);
    (each(counted as f64), each(taken.bytes_current as f64))
}

/// Returns the bytes that were counted for each document, and those that it took.
fn measured(runtime: &Runtime, shape: &Shape, documents: i32) -> (f64, f64) {
    let database = runtime.block_on(with_indexes(shape));
    let tx = runtime.block_on(database.begin()).unwrap();
    let insert = |n: i32| runtime.block_on(tx.insert_one(&shape.namespace, (shape.document)(n))).unwrap();
    // The first insert also allocates indexes and tables.
    insert(-1);
    let before = database.counts().write_bytes;
    let taken = allocation_counter::measure(|| (0..documents).for_each(insert));
    let counted = database.counts().write_bytes - before;
    let each = |bytes: f64| bytes / f64::from(documents);
    (each(counted as f64), each(taken.bytes_current as f64))
}

#[test]
fn what_is_counted_is_what_is_taken() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    for shape in shapes() {
        for documents in DOCUMENTS {
            let (counted, taken) = measured(&runtime, &shape, documents);
            println!("{}, {documents} documents: {counted:.0} bytes counted for each, {taken:.0} taken", shape.name);
            assert!(counted >= taken, "{}: too few are counted", shape.name);
            assert!(counted <= 2.0 * taken, "{}: too many are counted", shape.name);
        }
        for documents in REPLACED {
            let (counted, taken) = replaced(&runtime, &shape, documents);
            println!("{}, {documents} replaced: {counted:.0} bytes counted for each, {taken:.0} taken", shape.name);
            assert!(counted >= taken && counted <= 2.0 * taken, "{}: replaced ones are counted wrongly", shape.name);
        }
    }
}
