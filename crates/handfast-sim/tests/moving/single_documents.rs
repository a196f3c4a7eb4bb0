//! Judged histories of the engine Percolator: processes share a store in memory, of which they use only operations on one document.
//! Two of them have clients, and lose requests and answers; a third one changes the catalog.

use std::sync::Arc;
use std::time::Duration;

use handfast_store::decorator::{Fault, Faulty, Plan};
use handfast_store::{DocumentStore, MemoryStore, Sources};
use handfast_txn::{Database, PercolatorOptions};

use crate::{Catalog, Databases, check_all};

/// The number of transactions that have to commit; it is small, as each takes many requests.
const COMMITTED: u64 = 50;
/// The number of faults per thousand operations. A serializable transaction that opens accounts has hundreds of operations.
const FAULTS_PER_THOUSAND: u16 = 2;
/// The step of the shared clock per millisecond of waiting.
const TIME_PER_MILLISECOND: Duration = Duration::from_millis(10);

async fn without_faults(seed: u64) -> Databases {
    open(seed, 0)
}

async fn with_faults(seed: u64) -> Databases {
    open(seed, FAULTS_PER_THOUSAND)
}

fn open(seed: u64, faults_per_thousand: u16) -> Databases {
    let (sources, clock) = Sources::manual(seed);
    // Time passes, so that locks of lost requests expire.
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(Duration::from_millis(1)).await;
            clock.advance(TIME_PER_MILLISECOND);
        }
    });
    let store = Arc::new(MemoryStore::new(sources.clone()));
    let process = |store: Arc<dyn DocumentStore>| {
        let options = PercolatorOptions { cleaning_interval: None, ..PercolatorOptions::default() };
        Database::percolator(store, sources.clone(), options).unwrap()
    };
    let client = |number: u64| {
        let faults = [Fault::Refuse, Fault::LoseRequest, Fault::LoseReply];
        let plan = Plan::seeded(seed.wrapping_add(number << 32), faults_per_thousand, faults);
        process(Arc::new(Faulty::new(Arc::clone(&store), plan)))
    };
    Databases {
        committed: COMMITTED,
        clients: vec![client(1), client(2)],
        background: process(store.clone()),
        _kept: None,
    }
}

#[tokio::test(start_paused = true)]
async fn histories_over_single_documents_are_clean() {
    check_all("single documents", Catalog::Fixed, without_faults).await;
}

#[tokio::test(start_paused = true)]
async fn histories_over_single_documents_are_clean_while_the_catalog_changes() {
    check_all("single documents", Catalog::Changing, without_faults).await;
}

#[tokio::test(start_paused = true)]
async fn histories_over_single_documents_with_faults_are_clean() {
    check_all("single documents with faults", Catalog::Fixed, with_faults).await;
}

#[tokio::test(start_paused = true)]
async fn histories_over_single_documents_with_faults_are_clean_while_the_catalog_changes() {
    check_all("single documents with faults", Catalog::Changing, with_faults).await;
}
