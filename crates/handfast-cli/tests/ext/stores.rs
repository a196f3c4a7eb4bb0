//! Servers as stores: the contract's suite through the official driver, on programs of their own.
//!
//! What a server lacks it refuses by name, in these cases and no others; every other case passes.

use std::sync::Arc;

use bson::rawdoc;
use handfast_mongodb::Server;
use handfast_store::conformance::{self, Report, Subject};
use handfast_store::{Namespace, StoreExt};

use crate::independent::IndependentServer;
use crate::own_databases::{OwnDatabases, in_own_databases};
use crate::support::Handfast;

/// `handfast serve`, with its data in a directory.
#[test]
fn ext_conformance_of_handfast() {
    let server = Handfast::start();
    let (report, about) = conform(&server.uri());
    println!("{}\n{report}", about.product);
    assert!(report.is_clean() && report.refused.is_empty(), "{report}");
    server.stop();
}

/// A server that nobody here wrote.
#[test]
fn ext_conformance_of_ferretdb() {
    let Some(server) = IndependentServer::ferretdb() else { return };
    let (report, about) = conform(&server.uri());
    println!("{}\n{report}", about.product);
    assert!(report.is_clean(), "{report}");
    assert_eq!(report.refused, REFUSED_BY_FERRETDB, "{report}");
}

/// The cases that FerretDB 1 cannot pass, with the feature that it lacks.
const REFUSED_BY_FERRETDB: [(&str, &str); 17] = [
    ("insert_keeps_every_type", "MinKey and MaxKey"),
    ("insert_keeps_every_type_as_id", "MinKey and MaxKey"),
    ("find_by_dotted_path", "field names with a point"),
    ("find_by_element_of_an_array", "arrays within arrays"),
    ("find_sorts_values_of_all_types", "MinKey and MaxKey"),
    ("update_of_the_id_nan", "documents whose _id has a NaN"),
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

/// Runs the suite on a server that somebody else uses, too.
fn conform(uri: &str) -> (Report, Arc<Server>) {
    in_own_databases(uri, async |databases: OwnDatabases| {
        // Named as one of the suite's own.
        let somebody = Namespace::new("conformance", "c").expect("a name");
        databases.server_store.insert_one(&somebody, rawdoc! { "_id": 1 }).await.expect("inserted");
        let report = conform_in(&databases).await;
        assert_eq!(databases.server_store.count_matching(&somebody, rawdoc! {}).await.expect("counted"), 1);
        (report, databases.server)
    })
}

/// Runs the suite in databases of its own.
pub(crate) async fn conform_in(databases: &OwnDatabases) -> Report {
    let subject = async || {
        databases.store.clear().await.expect("empty databases");
        let missing = databases.server.capabilities.missing().iter().map(|capability| capability.name());
        Subject::new(Arc::new(databases.store.clone())).without(missing)
    };
    conformance::run(subject).await
}
