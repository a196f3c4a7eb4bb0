//! TLS of the connections over TCP, by rustls: versions 1.2 and 1.3.
//!
//! The files are read at the start; `rotateCertificates` reads the certificate and its key again. A handshake that fails or does not
//! finish in time ends its connection.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use handfast_wire::{HEADER_BYTES, Header, OpCode};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{InvalidMessage, RootCertStore, ServerConfig};
use tokio_rustls::TlsAcceptor;

use crate::lock::lock;

/// The files of the TLS settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsFile {
    /// The certificate chain of the server.
    Certificate,
    /// Its private key.
    Key,
    /// The authorities that sign certificates of clients.
    ClientCa,
}

/// The error of a file of the TLS settings.
#[derive(Debug, thiserror::Error)]
#[error("{}: {why}", path.display())]
pub struct TlsError {
    /// The file that cannot be used.
    pub file: TlsFile,
    /// The path of the file.
    pub path: PathBuf,
    /// Whether the operating system could not read it.
    pub is_unreadable: bool,
    why: String,
}

impl TlsError {
    fn content(file: TlsFile, path: &Path, why: String) -> Self {
        TlsError { file, path: path.to_owned(), is_unreadable: false, why }
    }

    fn pem(file: TlsFile, path: &Path, what: &str, error: &pem::Error) -> Self {
        match error {
            pem::Error::Io(error) => {
                let why = format!("it cannot be read: {error}");
                TlsError { file, path: path.to_owned(), is_unreadable: true, why }
            }
            other => TlsError::content(file, path, format!("no {what} in PEM form can be read: {other}")),
        }
    }
}

/// A server certificate with its key, and the authorities that sign certificates of clients.
#[derive(Clone)]
pub struct Tls {
    config: Arc<ServerConfig>,
    certificate: Arc<Certificate>,
}

/// The certificate that the server shows, with its files.
#[derive(Debug)]
struct Certificate {
    certificate: PathBuf,
    key: PathBuf,
    /// The certificate that new connections get.
    current: Mutex<Arc<CertifiedKey>>,
}

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&lock(&self.current)))
    }
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tls(..)")
    }
}

impl Tls {
    /// Reads the files, which are PEM. With `client_ca` a client needs a certificate that one of its authorities signed.
    ///
    /// # Errors
    /// Fails if a file cannot be read or parsed, or the key does not belong to the certificate.
    pub fn load(certificate: &Path, key: &Path, client_ca: Option<&Path>) -> Result<Self, TlsError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let current = Mutex::new(Arc::new(read_certificate(certificate, key, &provider)?));
        let shown = Arc::new(Certificate { certificate: certificate.to_owned(), key: key.to_owned(), current });
        let wrong = TlsError::content;
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| wrong(TlsFile::Certificate, certificate, error.to_string()))?;
        let builder = match client_ca {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let refused = |why: String| wrong(TlsFile::ClientCa, path, why);
                let mut roots = RootCertStore::empty();
                for authority in certificates(TlsFile::ClientCa, path)? {
                    roots.add(authority).map_err(|error| refused(error.to_string()))?;
                }
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
                builder.with_client_cert_verifier(verifier.map_err(|error| refused(error.to_string()))?)
            }
        };
        let config = builder.with_cert_resolver(Arc::clone(&shown) as Arc<dyn ResolvesServerCert>);
        Ok(Tls { config: Arc::new(config), certificate: shown })
    }

    /// Reads the files of the certificate and of its key again, for connections that begin later. The authorities of clients stay those
    /// of the start.
    ///
    /// # Errors
    /// As [`load`](Tls::load); the server then keeps the certificate that it has.
    pub(crate) fn reload(&self) -> Result<(), TlsError> {
        let Certificate { certificate, key, current } = &*self.certificate;
        let provider = rustls::crypto::ring::default_provider();
        let read = read_certificate(certificate, key, &provider)?;
        *lock(current) = Arc::new(read);
        Ok(())
    }

    /// Returns the configuration that was read from the files. It shows the newest certificate to each client.
    pub fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.config)
    }

    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::clone(&self.config))
    }
}

/// Reads a certificate chain and its key.
fn read_certificate(certificate: &Path, key: &Path, provider: &CryptoProvider) -> Result<CertifiedKey, TlsError> {
    let chain = certificates(TlsFile::Certificate, certificate)?;
    let secret =
        PrivateKeyDer::from_pem_file(key).map_err(|error| TlsError::pem(TlsFile::Key, key, "private key", &error))?;
    CertifiedKey::from_der(chain, secret, provider).map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => {
            let why = format!("the key does not belong to the certificate in {}", certificate.display());
            TlsError::content(TlsFile::Key, key, why)
        }
        other => {
            let why = format!("it cannot be used, a certificate of X.509 version 3 is needed: {other}");
            TlsError::content(TlsFile::Certificate, certificate, why)
        }
    })
}

fn certificates(file: TlsFile, path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let read = read.map_err(|error| TlsError::pem(file, path, "certificate", &error))?;
    if read.is_empty() {
        return Err(TlsError::content(file, path, "there is no certificate in it".to_owned()));
    }
    Ok(read)
}

/// Returns whether these bytes begin a TLS handshake and not a message: they are a `ClientHello` of SSL 3 or later, and a message
/// with these bytes as its length would have an unknown operation code.
pub(crate) fn is_hello(bytes: &[u8; HEADER_BYTES]) -> bool {
    let is_hello = matches!(bytes, [0x16, 3, _, _, _, 1, ..]);
    is_hello && matches!(Header::decode(bytes).op_code, OpCode::Other(_))
}

/// Returns a likely cause of a failed handshake, where the error does not name one.
pub(crate) fn why(error: &io::Error) -> Option<&'static str> {
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref());
    match cause {
        Some(rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType)) => {
            Some("the client does not use TLS; a MongoDB client needs tls=true in its connection string")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;
