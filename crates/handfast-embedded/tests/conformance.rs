//! The embedded store passes the conformance suite.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "helpers of tests are tests")]

use std::sync::{Arc, Mutex};

use handfast_embedded::{EmbeddedStore, Options};
use handfast_store::Sources;
use handfast_store::conformance::{self, Subject};
use handfast_store::decorator::Checked;

/// Each answer is also checked against the contract, whatever the case examines.
#[tokio::test(flavor = "multi_thread")]
async fn the_embedded_store_conforms() {
    let pick = std::env::var("HANDFAST_CASES").unwrap_or_default();
    let stores = Mutex::new(Vec::new());
    let subject = async || {
        let directory = tempfile::tempdir().unwrap();
        let store = EmbeddedStore::open(directory.path(), Sources::seeded(1), Options::small()).await.unwrap();
        let store = Arc::new(Checked::new(store, Sources::seeded(2)));
        stores.lock().unwrap().push(Arc::clone(&store));
        Subject::atomic(store).keeping(directory)
    };
    let report = conformance::run_matching(subject, |name| name.contains(&pick)).await;
    println!("{report}");
    assert!(report.is_clean(), "{report}");
    assert!(report.skipped.is_empty(), "the embedded store can run every case:\n{report}");
    let breaches: Vec<_> = stores.lock().unwrap().iter().flat_map(|store| store.breaches()).collect();
    assert_eq!(breaches, Vec::<String>::new());
}
