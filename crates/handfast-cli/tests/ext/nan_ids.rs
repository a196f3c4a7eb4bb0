//! Documents whose `_id` is NaN over SecantusDB, which keeps one and refuses to replace it: NaN is not equal to NaN there.

use bson::rawdoc;
use handfast_mongodb::{ConnectOptions, connect};
use handfast_store::{Find, Namespace, Sources, StoreExt};
use handfast_txn::{Database, PercolatorOptions};

use crate::independent::IndependentServer;
use crate::running::execute;
use crate::support::Tool;

/// The document is refused, or it can be changed. It is never left so that nobody can read its collection any more.
#[test]
fn ext_a_nan_id_over_secantusdb_leaves_its_collection_readable() {
    let (Some(server), Some(python)) = (IndependentServer::secantusdb(), Tool::Python.find()) else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(insert_and_change(&server.uri(), &python));
}

async fn insert_and_change(uri: &str, python: &str) {
    let sources = Sources::system().expect("randomness");
    let connection = connect(uri, sources.clone(), ConnectOptions::default()).await.expect("a connection");
    let options = PercolatorOptions { cleaning_interval: None, ..PercolatorOptions::default() };
    let database = Database::percolator(connection.store.clone(), sources, options).expect("a database");
    let namespace = Namespace::new("d", "c").expect("valid");
    database.insert_one(&namespace, rawdoc! { "_id": 1, "n": 0 }).await.expect("inserted");
    let change = || rawdoc! { "$inc": { "n": 1 } };
    let expected = match database.insert_one(&namespace, rawdoc! { "_id": f64::NAN, "n": 0 }).await {
        Ok(()) => {
            database.update_one(&namespace, rawdoc! { "_id": f64::NAN }, change()).await.expect("changed");
            2
        }
        Err(refused) => {
            assert!(refused.message().contains("has no documents whose _id has a NaN"), "{refused}");
            1
        }
    };
    // Another program may have inserted one on the server itself.
    let script = "import sys, pymongo; pymongo.MongoClient(sys.argv[1]).d.other.insert_many([{'_id': 1}, {'_id': float('nan')}])";
    execute(std::process::Command::new(python).args(["-c", script, uri]));
    let other = Namespace::new("d", "other").expect("valid");
    for id in [1.0, f64::NAN] {
        let _changed_or_refused = database.update_one(&other, rawdoc! { "_id": id }, change()).await;
    }
    assert_eq!(database.find_all(Find::new(other, rawdoc! {})).await.expect("readable").len(), 2);
    assert_eq!(database.find_all(Find::new(namespace, rawdoc! {})).await.expect("readable").len(), expected);
}
