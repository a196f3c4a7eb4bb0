//! The conformance suite of the contract, through the wire.

use handfast_mongodb::ConnectOptions;
use handfast_server::Topology;
use handfast_store::conformance::{self, Subject};

use crate::support::{Proxy, TestServer, as_ferretdb_1, connected};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_of_this_workspace_conforms() {
    let subject = async || {
        let server = TestServer::start(Topology::default()).await;
        let connection = server.connect().await;
        assert_eq!(connection.server.capabilities.missing(), [], "{:?}", connection.server);
        Subject::new(connection.store).keeping(server)
    };
    let report = conformance::run(subject).await;
    println!("{report}");
    assert!(report.is_clean() && report.refused.is_empty(), "{report}");
    assert!(report.passed.len() >= 270, "{report}");
}

/// The server reports the name of a server without atomic updates, so that the client evaluates all
/// requests.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_with_client_side_evaluation_conforms() {
    let subject = async || {
        let server = TestServer::start(Topology::Standalone).await;
        let proxy = Proxy::before(&server).await;
        proxy.play(as_ferretdb_1);
        let options = ConnectOptions { sole_writer: true, ..ConnectOptions::default() };
        let connection = connected(&proxy.uri(), options).await;
        let missing = connection.server.capabilities.missing().iter().map(|capability| capability.name());
        Subject::new(connection.store).without(missing).keeping((server, proxy))
    };
    let report = conformance::run(subject).await;
    println!("{report}");
    assert!(report.is_clean(), "{report}");
    assert_eq!(report.refused, [("rename_to_another_database", "rename to another database")], "{report}");
}
