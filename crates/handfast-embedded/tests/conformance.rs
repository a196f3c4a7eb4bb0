//! The embedded store does what every backend must.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "helpers of tests are tests")]

use std::sync::Arc;

use handfast_embedded::{EmbeddedStore, Options};
use handfast_store::Sources;
use handfast_store::conformance::{self, Subject};

async fn subject() -> Subject {
    let directory = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(directory.path(), Sources::seeded(1), Options::small()).await.unwrap();
    Subject::atomic(Arc::new(store)).keeping(directory)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_embedded_store_conforms() {
    let pick = std::env::var("HANDFAST_CASES").unwrap_or_default();
    let report = conformance::run_matching(subject, |name| name.contains(&pick)).await;
    println!("{report}");
    assert!(report.is_clean(), "{report}");
    assert!(report.skipped.is_empty(), "the embedded store can run every case:\n{report}");
}
