//! Measures how many documents per second typical filters evaluate in one thread. `cargo bench -p handfast-mql --bench filter`
//!
//! The collection is the same in every run. Without `--bench` (as `cargo test` starts it) one pass shows that it works.

use std::{hint::black_box, time::Instant};

use bson::{DateTime, RawDocumentBuf, Timestamp, oid::ObjectId, rawdoc};
use handfast_mql::{CompileOptions, Context, Filter, key};

const DOCUMENTS: u32 = 10_000;
/// The number of passes of a measurement, of which the fastest counts: other work of the machine slows passes down.
const PASSES: usize = 20;

fn collection() -> Vec<RawDocumentBuf> {
    let document = |n: u32| {
        let mut id = [0; 12];
        id[..4].copy_from_slice(&n.to_be_bytes());
        rawdoc! {
            "_id": ObjectId::from_bytes(id),
            "name": format!("user number {n}"),
            "age": (n % 90) as i32,
            "balance": f64::from(n) * 1.25,
            "tags": ["red", if n.is_multiple_of(3) { "blue" } else { "green" }, "large"],
            "address": { "city": if n.is_multiple_of(7) { "Delft" } else { "Utrecht" }, "zip": "3511" },
            "orders": [{ "sku": "a", "qty": (n % 5) as i32 }, { "sku": "b", "qty": (n % 11) as i32 }],
        }
    };
    (0..DOCUMENTS).map(document).collect()
}

#[expect(clippy::disallowed_methods, reason = "a measurement reads the clock")]
#[expect(clippy::print_stdout, reason = "a measurement prints its result")]
fn measure(name: &str, passes: usize, mut pass: impl FnMut() -> usize) {
    let mut best = f64::INFINITY;
    let mut found = 0;
    for _ in 0..passes {
        let start = Instant::now();
        found = black_box(pass());
        best = best.min(start.elapsed().as_secs_f64());
    }
    let nanoseconds = best * 1e9 / f64::from(DOCUMENTS);
    println!("{name:<28} {:>7.2} million/s  {nanoseconds:>6.0} ns each  {found} found", 1e3 / nanoseconds);
}

fn main() -> Result<(), handfast_mql::Error> {
    let passes = if std::env::args().any(|argument| argument == "--bench") { PASSES } else { 1 };
    let documents = collection();
    let context = Context::new(DateTime::from_millis(0), Timestamp { time: 0, increment: 0 }, 0);
    for (name, filter) in [
        ("one field", rawdoc! { "age": 42 }),
        ("range and nested field", rawdoc! { "age": { "$gte": 20, "$lt": 30 }, "address.city": "Delft" }),
        (
            "arrays",
            rawdoc! { "tags": { "$in": ["blue", "black"] }, "orders": { "$elemMatch": { "sku": "b", "qty": { "$gt": 8 } } } },
        ),
        ("regular expression", rawdoc! { "name": { "$regex": "^user .*77$" } }),
    ] {
        let filter = Filter::compile(&filter, &CompileOptions::default())?;
        measure(name, passes, || {
            let matching = |document: &&RawDocumentBuf| matches!(filter.matches(document, &context), Ok(true));
            documents.iter().filter(matching).count()
        });
    }
    let mut bytes = Vec::new();
    measure("key of a double", passes, || {
        documents
            .iter()
            .filter(|document| {
                bytes.clear();
                if let Ok(Some(value)) = document.get("balance") {
                    key::encode(value, &mut bytes);
                }
                !black_box(&bytes).is_empty()
            })
            .count()
    });
    Ok(())
}
