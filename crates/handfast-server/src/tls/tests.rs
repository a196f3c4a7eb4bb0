use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bson::rawdoc;
use handfast_store::{MemoryStore, Sources};
use handfast_txn::Database;
use handfast_wire::{Flags, HEADER_BYTES, OpMsg};
use rcgen::{BasicConstraints, CertificateParams, CertifiedKey, IsCa, Issuer, KeyPair};
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::{Tls, TlsFile, is_hello};
use crate::testing::TestServer;
use crate::{Address, Listeners, Options, Server};

/// The files of a test, which are removed at its end.
struct Files(TempDir);

impl Files {
    fn new() -> Self {
        Files(tempfile::tempdir().unwrap())
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }
}

fn localhost() -> CertifiedKey<KeyPair> {
    rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap()
}

async fn serve(tls: Tls) -> SocketAddr {
    let listen = Address::Tcp(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
    let listeners = Listeners::bind(&[listen]).await.unwrap();
    let options = Options { tls: Some(tls), ..Options::default() };
    let sources = Sources::seeded(1);
    let server = Server::new(listeners, options, Database::local(MemoryStore::new(sources.clone()), sources));
    let Address::Tcp(address) = server.addresses()[0].clone() else { panic!("no TCP") };
    tokio::spawn(server.run());
    address
}

/// Sends a ping and returns whether there was a reply.
async fn ping(address: SocketAddr, trusted: &CertificateDer<'static>, own: Option<&CertifiedKey<KeyPair>>) -> bool {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let builder = builder.with_root_certificates(roots);
    let config = match own {
        None => builder.with_no_client_auth(),
        Some(own) => {
            let key = PrivateKeyDer::from_pem_slice(own.signing_key.serialize_pem().as_bytes()).unwrap();
            builder.with_client_auth_cert(vec![own.cert.der().clone()], key).unwrap()
        }
    };
    let stream = TcpStream::connect(address).await.unwrap();
    let connector = TlsConnector::from(Arc::new(config));
    let Ok(mut stream) = connector.connect("localhost".try_into().unwrap(), stream).await else { return false };
    let mut bytes = Vec::new();
    OpMsg::new(Flags::default(), &rawdoc! { "ping": 1, "$db": "admin" }).encode(1, 0, &mut bytes);
    stream.write_all(&bytes).await.is_ok() && stream.read_exact(&mut [0; HEADER_BYTES]).await.is_ok()
}

#[tokio::test]
async fn a_client_that_trusts_the_certificate_is_served() {
    let files = Files::new();
    let (own, other) = (localhost(), localhost());
    let certificate = files.write("certificate.pem", &own.cert.pem());
    let key = files.write("key.pem", &own.signing_key.serialize_pem());
    let address = serve(Tls::load(&certificate, &key, None).unwrap()).await;
    assert!(ping(address, own.cert.der(), None).await);
    assert!(!ping(address, other.cert.der(), None).await, "not the certificate that it trusts");
    // Without TLS the connection is closed without a reply.
    let mut stream = TcpStream::connect(address).await.unwrap();
    let mut bytes = Vec::new();
    OpMsg::new(Flags::default(), &rawdoc! { "ping": 1, "$db": "admin" }).encode(1, 0, &mut bytes);
    stream.write_all(&bytes).await.unwrap();
    let mut answer = Vec::new();
    let _ended_or_reset = tokio::time::timeout(Duration::from_secs(10), stream.read_to_end(&mut answer)).await.unwrap();
    assert!(!answer.windows(3).any(|bytes| bytes == b"ok\0"));
    assert!(ping(address, own.cert.der(), None).await, "and others are served");
}

/// `rotateCertificates` is sent to a server without sockets, which shares the certificate.
#[tokio::test]
async fn a_new_certificate_is_shown_once_it_was_rotated() {
    let files = Files::new();
    let (old, new) = (localhost(), localhost());
    let certificate = files.write("certificate.pem", &old.cert.pem());
    let key = files.write("key.pem", &old.signing_key.serialize_pem());
    let tls = Tls::load(&certificate, &key, None).unwrap();
    let address = serve(tls.clone()).await;
    let mut server = TestServer::in_memory(Options { tls: Some(tls), ..Options::default() });
    let mut client = server.connect();
    let rotate = || rawdoc! { "rotateCertificates": 1, "message": "renewed" };
    files.write("certificate.pem", &new.cert.pem());
    assert_eq!(client.refused("admin", rotate()).await.0, 140, "the key is the old one");
    assert!(ping(address, old.cert.der(), None).await);
    files.write("key.pem", &new.signing_key.serialize_pem());
    assert!(ping(address, old.cert.der(), None).await, "the command was not sent");
    assert_eq!(client.run("admin", rotate()).await, rawdoc! { "ok": 1.0 });
    assert!(!ping(address, old.cert.der(), None).await);
    assert!(ping(address, new.cert.der(), None).await);
}

#[test]
fn a_tls_hello_is_distinguished_from_messages() {
    // A client of TLS 1.3 begins with record, version, length, ClientHello, length, version, and random
    // bytes.
    let hello = [0x16, 3, 1, 0, 0xF6, 1, 0, 0, 0xF2, 3, 3, 0x5A, 0x10, 0x77, 0xC2, 0x9D];
    assert!(is_hello(&hello));
    // The 256th message of a client begins with the same bytes if its length is 0x00010316.
    let mut message = [0x16, 3, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0xDD, 7, 0, 0];
    assert!(!is_hello(&message));
    message[0] = 0x17;
    assert!(!is_hello(&message));
}

#[tokio::test]
async fn only_clients_with_a_certificate_are_served() {
    let files = Files::new();
    let own = localhost();
    let certificate = files.write("certificate.pem", &own.cert.pem());
    let key = files.write("key.pem", &own.signing_key.serialize_pem());
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority_key = KeyPair::generate().unwrap();
    let authority = params.self_signed(&authority_key).unwrap();
    let ca = files.write("ca.pem", &authority.pem());
    let issuer = Issuer::new(params, authority_key);
    let signing_key = KeyPair::generate().unwrap();
    let cert = CertificateParams::new(vec!["client".to_owned()]).unwrap().signed_by(&signing_key, &issuer).unwrap();
    let client = CertifiedKey { cert, signing_key };

    let address = serve(Tls::load(&certificate, &key, Some(&ca)).unwrap()).await;
    assert!(ping(address, own.cert.der(), Some(&client)).await);
    assert!(!ping(address, own.cert.der(), None).await);
    assert!(!ping(address, own.cert.der(), Some(&localhost())).await);
}

#[test]
fn an_error_names_its_file() {
    let files = Files::new();
    let (own, other) = (localhost(), localhost());
    let certificate = files.write("certificate.pem", &own.cert.pem());
    let key = files.write("key.pem", &own.signing_key.serialize_pem());
    let foreign = files.write("other.pem", &other.signing_key.serialize_pem());
    let (nonsense, nowhere) = (files.write("nonsense.pem", "nonsense"), files.0.path().join("nowhere.pem"));
    let check = |certificate: &Path, key: &Path, ca: Option<&Path>, file, path: &Path, text: &str| {
        let error = Tls::load(certificate, key, ca).unwrap_err();
        assert_eq!((error.file, error.path.as_path()), (file, path));
        assert_eq!(error.is_unreadable, path == nowhere);
        assert!(error.to_string().contains(text), "{error}");
    };
    check(&nowhere, &key, None, TlsFile::Certificate, &nowhere, "it cannot be read: No such file");
    check(&nonsense, &key, None, TlsFile::Certificate, &nonsense, "there is no certificate in it");
    check(&key, &key, None, TlsFile::Certificate, &key, "there is no certificate in it");
    check(&certificate, &nowhere, None, TlsFile::Key, &nowhere, "it cannot be read: No such file");
    check(&certificate, &certificate, None, TlsFile::Key, &certificate, "no private key in PEM form can be read");
    check(&certificate, &foreign, None, TlsFile::Key, &foreign, "the key does not belong to the certificate in");
    check(&certificate, &key, Some(&nowhere), TlsFile::ClientCa, &nowhere, "it cannot be read: No such file");
    check(&certificate, &key, Some(&nonsense), TlsFile::ClientCa, &nonsense, "there is no certificate in it");
    assert!(Tls::load(&certificate, &key, Some(&certificate)).is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_handshake_that_does_not_come_times_out() {
    let files = Files::new();
    let own = localhost();
    let certificate = files.write("certificate.pem", &own.cert.pem());
    let key = files.write("key.pem", &own.signing_key.serialize_pem());
    let address = serve(Tls::load(&certificate, &key, None).unwrap()).await;
    let mut stream = TcpStream::connect(address).await.unwrap();
    assert_eq!(stream.read(&mut [0; 1]).await.unwrap_or(0), 0);
}
