//! The buffer on encrypted connections.

use std::path::Path;
use std::time::Duration;

use handfast_counters::{Buffer as _, Error, RedisBuffer, RedisBufferOptions, Storage};
use handfast_store::{MemoryStore, Sources};
use handfast_txn::Database;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

use crate::server::RedisServer;

fn write(directory: &Path, name: &str, text: &str) {
    std::fs::write(directory.join(name), text).expect("written");
}

/// Writes an authority, and a certificate of the server and one of a client that it has signed.
fn certificates(directory: &Path) {
    let mut params = CertificateParams::new(Vec::new()).expect("parameters");
    params.distinguished_name.push(DnType::CommonName, "authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("an authority");
    write(directory, "ca.pem", &authority.pem());
    for (name, host) in [("server", "localhost"), ("client", "client")] {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(vec![host.to_owned()]).expect("parameters");
        // A certificate with the name of its authority would be taken for one that has signed itself.
        params.distinguished_name.push(DnType::CommonName, name);
        let certificate = params.signed_by(&key, &authority).expect("a certificate");
        write(directory, &format!("{name}.pem"), &certificate.pem());
        write(directory, &format!("{name}.key"), &key.serialize_pem());
    }
}

/// Connects to the servers of a URL, with times for a busy machine.
pub(crate) async fn connect(url: &str) -> Result<RedisBuffer, Error> {
    let sources = Sources::seeded(1);
    let database = Database::local(MemoryStore::new(sources.clone()), sources.clone());
    let storage = Storage::open(database, "counters").await.expect("a storage");
    let times = Duration::from_secs(60);
    let options =
        RedisBufferOptions { connect_timeout: times, response_timeout: times, ..RedisBufferOptions::default() };
    RedisBuffer::connect(url, storage, sources, options).await
}

/// Returns the error of a request, which is empty for one that succeeds.
async fn problem(url: &str) -> String {
    match connect(url).await {
        Ok(buffer) => buffer.kinds().await.err().map(|error| error.to_string()).unwrap_or_default(),
        Err(error) => error.to_string(),
    }
}

#[tokio::test]
async fn ext_redis_connections_are_encrypted_and_certificates_are_checked() {
    let files = tempfile::tempdir().expect("a directory");
    certificates(files.path());
    let others = tempfile::tempdir().expect("a directory");
    certificates(others.path());
    let file = |name: &str| files.path().join(name).display().to_string();
    let server = RedisServer::start(|_, tls_port| {
        let arguments = ["--save", "", "--requirepass", "", "--tls-port"].map(str::to_owned).into_iter();
        let of_files =
            [("--tls-ca-cert-file", "ca.pem"), ("--tls-cert-file", "server.pem"), ("--tls-key-file", "server.key")];
        let of_files = of_files.into_iter().flat_map(|(flag, name)| [flag.to_owned(), file(name)]);
        arguments.chain([tls_port.to_string()]).chain(of_files).collect()
    });
    let Some(server) = server.await else { return };
    server.command(&["CONFIG", "SET", "tls-auth-clients", "optional"]).await;
    let port = server.second_port();
    let authority = format!("tls_ca={}", file("ca.pem"));
    assert_eq!(problem(&format!("rediss://localhost:{port}/1?{authority}")).await, "");
    for (url, expected) in [
        // The authorities of the operating system do not know this one, and neither do others.
        (format!("rediss://localhost:{port}"), "invalid peer certificate"),
        (
            format!("rediss://localhost:{port}?tls_ca={}", others.path().join("ca.pem").display()),
            "invalid peer certificate",
        ),
        // The certificate is for a name.
        (format!("rediss://127.0.0.1:{port}?{authority}"), "not valid for name"),
        (format!("redis://localhost:{port}"), "cannot be connected to"),
        (format!("rediss://localhost:{port}?tls_ca={}", file("missing.pem")), "missing.pem: No such file"),
        (format!("rediss://localhost:{port}?tls_ca={}", file("server.key")), "no certificate in PEM format"),
        (format!("rediss://localhost:{port}?{authority}&tls_cert={0}&tls_key={0}", file("client.pem")), "private key"),
    ] {
        let problem = problem(&url).await;
        assert!(problem.contains(expected), "{url}: {problem}");
    }
    server.command(&["CONFIG", "SET", "tls-auth-clients", "yes"]).await;
    let refused = problem(&format!("rediss://localhost:{port}?{authority}")).await;
    assert!(refused.contains("cannot be connected to"), "{refused}");
    let client = format!("tls_cert={}&tls_key={}", file("client.pem"), file("client.key"));
    assert_eq!(problem(&format!("rediss://localhost:{port}?{authority}&{client}")).await, "");
}
