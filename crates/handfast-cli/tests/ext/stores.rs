//! Servers as stores: the contract's suite through the official driver, on programs of their own.
//!
//! What a server lacks it refuses by name, in these cases and no others; every other case passes. `HANDFAST_TEST_MONGODB_URI`
//! names a MongoDB, empty, for the same suite: it lacks nothing.

use std::sync::Arc;

use handfast_mongodb::{ConnectOptions, Connection, Server, connect};
use handfast_store::conformance::{self, Report, Subject};
use handfast_store::{DocumentStore, Sources};

use crate::ferretdb::FerretDb;
use crate::support::{Handfast, skipped};

/// `handfast serve`, with its data in a directory.
#[test]
fn ext_conformance_of_handfast() {
    let server = Handfast::start();
    let (report, about) = conform(&server.uri(), false);
    println!("{}\n{report}", about.product);
    assert!(report.is_clean() && report.refused.is_empty(), "{report}");
    server.stop();
}

/// A server that nobody here wrote.
#[test]
fn ext_conformance_of_ferretdb() {
    let Some(server) = FerretDb::start() else { return };
    let (report, about) = conform(&server.uri(), true);
    println!("{}\n{report}", about.product);
    assert!(report.is_clean(), "{report}");
    assert_eq!(report.refused, REFUSED_BY_FERRETDB, "{report}");
}

#[test]
fn ext_conformance_of_mongodb() {
    let Ok(uri) = std::env::var("HANDFAST_TEST_MONGODB_URI") else {
        // No package registry has one: whoever has a MongoDB runs this.
        skipped("HANDFAST_TEST_MONGODB_URI names no MongoDB");
        return;
    };
    let (report, about) = conform(&uri, false);
    println!("{}\n{report}", about.product);
    assert!(report.is_clean() && report.refused.is_empty(), "{report}");
}

/// What FerretDB 1 lacks, by the cases that need it.
const REFUSED_BY_FERRETDB: [(&str, &str); 17] = [
    ("insert_keeps_every_type", "MinKey and MaxKey"),
    ("insert_keeps_every_type_as_id", "MinKey and MaxKey"),
    ("find_by_dotted_path", "field names with a point"),
    ("find_by_element_of_an_array", "arrays within arrays"),
    ("find_sorts_values_of_all_types", "MinKey and MaxKey"),
    ("update_of_the_id_nan", "NaN and infinity"),
    ("aggregate_out_replaces_a_collection", "rename onto another collection"),
    ("aggregate_out_to_its_own_source", "rename onto another collection"),
    ("aggregate_out_keeps_the_targets_indexes", "rename onto another collection"),
    ("index_definition_comes_back_as_given", "sparse indexes"),
    ("index_lifetime_is_changed", "expiring indexes"),
    ("sparse_unique_index_lets_many_miss_the_field", "sparse indexes"),
    ("sparse_index_leaves_documents_out_under_a_hint", "sparse indexes"),
    ("partial_unique_index_binds_those_that_match", "partial indexes"),
    ("partial_index_follows_documents_in_and_out", "partial indexes"),
    ("rename_to_another_database", "rename to another database"),
    ("rename_may_drop_its_target", "rename onto another collection"),
];

fn conform(uri: &str, sole_writer: bool) -> (Report, Arc<Server>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let sources = Sources::system().expect("randomness");
        let options = ConnectOptions { sole_writer, ..ConnectOptions::default() };
        let Connection { store, server } = connect(uri, sources, options).await.expect("a connection");
        let databases = store.list_databases().await.expect("databases");
        assert!(databases.is_empty(), "the suite drops every database: it wants an empty server, not {databases:?}");
        let subject = async || {
            empty(&*store).await;
            let missing = server.capabilities.missing().iter().map(|capability| capability.name());
            Subject::new(Arc::clone(&store)).without(missing)
        };
        let report = conformance::run(subject).await;
        empty(&*store).await;
        (report, server)
    })
}

async fn empty(store: &dyn DocumentStore) {
    for database in store.list_databases().await.expect("databases") {
        store.drop_database(&database).await.expect("dropped");
    }
}
