//! TLS on both sides of a proxy: a proxy with TLS is the server of another one.

use std::sync::{Arc, Mutex};

use bson::rawdoc;
use rcgen::{CertifiedKey, KeyPair};
use rustls::pki_types::{PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::{ANY, find, send, start_server};
use crate::proxy::{Proxy, Warning};
use crate::{Condition, Injection, Playback, PlaybackServer, Rule, Rules, Upstream};

const NAME: &str = "localhost";

fn certificate() -> CertifiedKey<KeyPair> {
    rcgen::generate_simple_self_signed(vec![NAME.to_owned()]).unwrap()
}

fn server_config(certificate: &CertifiedKey<KeyPair>) -> Arc<ServerConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let key = PrivateKeyDer::try_from(certificate.signing_key.serialize_der()).unwrap();
    let chain = vec![certificate.cert.der().clone()];
    Arc::new(builder.with_no_client_auth().with_single_cert(chain, key).unwrap())
}

fn client_config(trusted: &CertifiedKey<KeyPair>) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.cert.der().clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    Arc::new(builder.with_root_certificates(roots).with_no_client_auth())
}

fn name() -> ServerName<'static> {
    ServerName::try_from(NAME).unwrap()
}

#[tokio::test]
async fn a_client_with_tls_reaches_the_proxy_by_its_name() {
    let (server, requests) = start_server().await;
    let certificate = certificate();
    let proxy = Proxy::bind(ANY, server.to_string(), Rules::default()).await.unwrap();
    let warnings = Arc::new(Mutex::new(Vec::new()));
    let reported = Arc::clone(&warnings);
    let proxy = proxy.with_warnings(move |warning| reported.lock().unwrap().push(warning));
    let proxy = proxy.with_tls(server_config(&certificate));
    let address = proxy.address();
    tokio::spawn(proxy.run());
    let connect = async |config| TlsConnector::from(config).connect(name(), TcpStream::connect(address).await?).await;

    let mut stream = connect(client_config(&certificate)).await.unwrap();
    let hello = send(&mut stream, &rawdoc! { "hello": 1, "$db": "admin" }).await.unwrap();
    let at = format!("{NAME}:{}", address.port());
    let expected = rawdoc! { "hosts": [at.as_str()], "me": at.as_str(), "setName": "rs", "maxWireVersion": 21 };
    assert_eq!(hello, expected);
    assert_eq!(send(&mut stream, &find()).await, Some(rawdoc! { "answered": "find" }));

    assert!(connect(client_config(&self::certificate())).await.is_err(), "another authority");
    assert_eq!(*warnings.lock().unwrap(), []);
    // The first byte of a message is that of its length, and 20 to 24 are types of TLS records.
    for padding in 0..8 {
        let request = rawdoc! { "find": "c", "$db": "db", "comment": "x".repeat(200 + padding) };
        assert_eq!(send(&mut TcpStream::connect(address).await.unwrap(), &request).await, None, "a client without TLS");
    }
    assert_eq!(*warnings.lock().unwrap(), [Warning::ClientSpeaksNoTls]);
    assert_eq!(requests.load(std::sync::atomic::Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_server_with_tls_gets_requests_and_their_copies() {
    let (server, requests) = start_server().await;
    let certificate = certificate();
    let inner = Proxy::bind(ANY, server.to_string(), Rules::default()).await.unwrap();
    let inner = inner.with_tls(server_config(&certificate));
    let address = inner.address().to_string();
    tokio::spawn(inner.run());

    let upstream = Upstream::with_tls(&address, name(), client_config(&certificate));
    upstream.check().await.unwrap();
    let duplicate = Rule { injection: Injection::Duplicate { after: None }, condition: Condition::default() };
    let outer = Proxy::bind(ANY, upstream, Rules::new(vec![duplicate])).await.unwrap();
    let (outer_address, handle) = (outer.address(), outer.handle());
    tokio::spawn(outer.run());
    let mut stream = TcpStream::connect(outer_address).await.unwrap();
    assert_eq!(send(&mut stream, &find()).await, Some(rawdoc! { "answered": "find" }));
    handle.deliver_late().await;
    assert_eq!(requests.load(std::sync::atomic::Ordering::SeqCst), 2);

    let untrusted = Upstream::with_tls(&address, name(), client_config(&self::certificate()));
    assert!(untrusted.check().await.unwrap_err().to_string().contains("certificate"));
    assert!(Upstream::plain(server.to_string()).check().await.is_ok());
}

#[tokio::test]
async fn a_recording_is_played_with_tls() {
    let certificate = certificate();
    let recording = "{\"hello\":{\"setName\":\"rs\",\"hosts\":[\"a:1\"],\"me\":\"a:1\",\"maxWireVersion\":21}}";
    let server = PlaybackServer::bind(ANY, Playback::parse(recording, Vec::new()).unwrap(), |_| {}).await.unwrap();
    let server = server.with_tls(server_config(&certificate));
    let address = server.address();
    tokio::spawn(server.run());
    let stream = TcpStream::connect(address).await.unwrap();
    let mut stream = TlsConnector::from(client_config(&certificate)).connect(name(), stream).await.unwrap();
    let hello = send(&mut stream, &rawdoc! { "hello": 1, "$db": "admin" }).await.unwrap();
    assert_eq!(hello.get_str("me").unwrap(), format!("{NAME}:{}", address.port()));
}
