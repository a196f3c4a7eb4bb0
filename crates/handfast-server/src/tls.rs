//! TLS of the connections over TCP, by rustls: versions 1.2 and 1.3.
//!
//! The files are read once, at the start. A handshake that fails or does not finish in time ends its connection.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use handfast_wire::{HEADER_BYTES, Header, OpCode};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{InvalidMessage, RootCertStore, ServerConfig};
use tokio_rustls::TlsAcceptor;

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
pub struct Tls(Arc<ServerConfig>);

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
        let chain = certificates(TlsFile::Certificate, certificate)?;
        let wrong = TlsError::content;
        let secret = PrivateKeyDer::from_pem_file(key)
            .map_err(|error| TlsError::pem(TlsFile::Key, key, "private key", &error))?;
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
        let config = builder.with_single_cert(chain, secret).map_err(|error| match error {
            rustls::Error::InconsistentKeys(_) => {
                let why = format!("the key does not belong to the certificate in {}", certificate.display());
                wrong(TlsFile::Key, key, why)
            }
            other => {
                let why = format!("it cannot be used, a certificate of X.509 version 3 is needed: {other}");
                wrong(TlsFile::Certificate, certificate, why)
            }
        })?;
        Ok(Tls(Arc::new(config)))
    }

    /// Returns the configuration that was read from the files.
    pub fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.0)
    }

    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::clone(&self.0))
    }
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
