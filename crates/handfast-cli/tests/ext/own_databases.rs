//! Databases of a server for one test: their names begin with a random number, and they are dropped at the end, also of a test that
//! fails. The server may be in use: no other database is read or changed.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use handfast_mongodb::{ConnectOptions, Connection, Server, connect};
use handfast_store::conformance::PrefixedStore;
use handfast_store::{DocumentStore, Error, Sources};

use crate::support::skipped;

/// Returns the address of the server that `HANDFAST_TEST_MONGODB_URI` names; without one, says aloud that the test is skipped.
pub(crate) fn named() -> Option<String> {
    // No package registry has a MongoDB.
    let named = std::env::var("HANDFAST_TEST_MONGODB_URI").ok().filter(|uri| !uri.is_empty());
    if named.is_none() {
        skipped("HANDFAST_TEST_MONGODB_URI names no server");
    }
    named
}

/// The server and the databases that a test may use.
pub(crate) struct OwnDatabases {
    /// A store of these databases alone.
    pub(crate) store: PrefixedStore,
    /// A store of all databases of the server.
    pub(crate) server_store: Arc<dyn DocumentStore>,
    pub(crate) server: Arc<Server>,
    pub(crate) sources: Sources,
}

/// Runs a test in databases of its own, and drops them. On a server without atomic updates the test is the sole writer.
pub(crate) fn in_own_databases<T, F: Future<Output = T>>(uri: &str, test: impl FnOnce(OwnDatabases) -> F) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let sources = Sources::system().expect("randomness");
    let prefix = format!("handfast_test_{:08x}_", sources.random.next_u64() as u32);
    let Connection { store, server } = runtime.block_on(connected(uri, &sources, &prefix)).expect("a connection");
    let own = PrefixedStore::new(Arc::clone(&store), &prefix);
    println!("{} at {}, databases {prefix}*", server.product, server.address);
    let databases = OwnDatabases { store: own.clone(), server_store: store, server, sources };
    let result = catch_unwind(AssertUnwindSafe(|| runtime.block_on(test(databases))));
    runtime.block_on(own.clear()).expect("dropped");
    result.unwrap_or_else(|panic| resume_unwind(panic))
}

async fn connected(uri: &str, sources: &Sources, prefix: &str) -> Result<Connection, Error> {
    let options = |sole_writer| ConnectOptions {
        sole_writer,
        probe_database: format!("{prefix}probe"),
        ..ConnectOptions::default()
    };
    match connect(uri, sources.clone(), options(false)).await {
        Err(error) if error.message().contains("no atomic updates") => {
            println!("{error}: taken as its sole writer");
            connect(uri, sources.clone(), options(true)).await
        }
        result => result,
    }
}
