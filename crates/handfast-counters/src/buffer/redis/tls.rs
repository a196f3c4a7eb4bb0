//! The certificates of encrypted connections.

use std::path::Path;

use redis::{ClientTlsConfig, TlsCertificates};

use super::url::TlsFiles;
use crate::{Error, Result};

/// How a certificate begins in PEM format.
const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----";

/// Reads the files of encrypted connections.
///
/// # Errors
/// [`Error::Invalid`] for a file that cannot be read, or has no certificate.
pub(super) fn read(files: &TlsFiles) -> Result<TlsCertificates> {
    let authorities = files.authorities.as_deref().map(|path| certificates(path, "tls_ca")).transpose()?;
    let client_tls = match &files.client {
        Some((certificate, key)) => Some(ClientTlsConfig {
            client_cert: certificates(certificate, "tls_cert")?,
            client_key: contents(key, "tls_key")?,
        }),
        None => None,
    };
    Ok(TlsCertificates { client_tls, root_cert: authorities })
}

fn certificates(path: &Path, parameter: &str) -> Result<Vec<u8>> {
    let contents = contents(path, parameter)?;
    match contents.windows(CERTIFICATE.len()).any(|window| window == CERTIFICATE.as_bytes()) {
        true => Ok(contents),
        false => {
            let path = path.display();
            Err(Error::invalid(format!("{parameter} of the URL of Redis: {path} has no certificate in PEM format")))
        }
    }
}

fn contents(path: &Path, parameter: &str) -> Result<Vec<u8>> {
    std::fs::read(path)
        .map_err(|error| Error::invalid(format!("{parameter} of the URL of Redis: {}: {error}", path.display())))
}
