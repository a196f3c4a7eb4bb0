//! A part of a server for one test: databases whose names begin with a random word, dropped at the end whatever becomes of
//! the test. Others may have theirs on the server; nobody's are looked at or changed.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use handfast_mongodb::{ConnectOptions, Connection, Server, connect};
use handfast_store::conformance::PrefixedStore;
use handfast_store::{DocumentStore, Error, Sources};

use crate::support::skipped;

/// The server that somebody else runs, if one is named; otherwise says aloud that the test is skipped.
pub(crate) fn named() -> Option<String> {
    // No package registry has a MongoDB: whoever has one names it.
    let named = std::env::var("HANDFAST_TEST_MONGODB_URI").ok().filter(|uri| !uri.is_empty());
    if named.is_none() {
        skipped("HANDFAST_TEST_MONGODB_URI names no server");
    }
    named
}

/// The server and the databases that a test may use.
pub(crate) struct Guest {
    /// The room as a store.
    pub(crate) room: PrefixedStore,
    /// All of the server.
    pub(crate) whole: Arc<dyn DocumentStore>,
    pub(crate) server: Arc<Server>,
    pub(crate) sources: Sources,
}

/// Runs a test in a room of a server, and drops the room. On a server without atomic updates the test is the sole writer.
pub(crate) fn in_a_room<T, F: Future<Output = T>>(uri: &str, test: impl FnOnce(Guest) -> F) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let sources = Sources::system().expect("randomness");
    let prefix = format!("handfast_test_{:08x}_", sources.random.next_u64() as u32);
    let Connection { store, server } = runtime.block_on(enter(uri, &sources, &prefix)).expect("a connection");
    let room = PrefixedStore::new(Arc::clone(&store), &prefix);
    println!("{} at {}, databases {prefix}*", server.product, server.address);
    let guest = Guest { room: room.clone(), whole: store, server, sources };
    let result = catch_unwind(AssertUnwindSafe(|| runtime.block_on(test(guest))));
    runtime.block_on(room.clear()).expect("dropped");
    result.unwrap_or_else(|panic| resume_unwind(panic))
}

async fn enter(uri: &str, sources: &Sources, prefix: &str) -> Result<Connection, Error> {
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
        connected => connected,
    }
}
