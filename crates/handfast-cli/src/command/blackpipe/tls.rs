//! TLS of the proxy, on both sides.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use handfast_blackpipe::Upstream;
use handfast_server::Tls;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig};

use super::arguments::TlsFlags;
use super::upstream::{ServerAddress, TlsOptions};
use crate::exit::Usage;

/// Loads the certificate by which programs know the proxy, if there is one.
pub(super) fn load(flags: &TlsFlags) -> Result<Option<Arc<ServerConfig>>> {
    let (Some(certificate), Some(key)) = (&flags.tls_certificate, &flags.tls_key) else { return Ok(None) };
    let tls = Tls::load(certificate, key, flags.tls_client_ca.as_deref()).map_err(|error| {
        let flag = match error.file {
            handfast_server::TlsFile::Certificate => "--tls-certificate",
            handfast_server::TlsFile::Key => "--tls-key",
            handfast_server::TlsFile::ClientCa => "--tls-client-ca",
        };
        let message = format!("{flag}: {error}");
        // A missing file may exist the next time: no usage error.
        if error.is_unreadable { anyhow::anyhow!(message) } else { Usage(message).into() }
    })?;
    Ok(Some(tls.config()))
}

/// Returns the server behind the proxy, with the certificates of its connection string.
pub(super) fn upstream(address: &ServerAddress) -> Result<Upstream> {
    let server = address.server();
    let Some(options) = address.tls() else { return Ok(Upstream::plain(server)) };
    let host = server.rsplit_once(':').map_or(server, |(host, _)| host).trim_matches(['[', ']']);
    let name = ServerName::try_from(host.to_owned())
        .map_err(|_| Usage(format!("--upstream: '{host}' is no name that a certificate can have")))?;
    Ok(Upstream::with_tls(server, name, Arc::new(client_config(options)?)))
}

fn client_config(options: &TlsOptions) -> Result<ClientConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let builder = builder.with_root_certificates(authorities(options.ca_file.as_deref())?);
    let Some(path) = &options.certificate_key_file else { return Ok(builder.with_no_client_auth()) };
    let wrong = || format!("--upstream: tlsCertificateKeyFile {}", path.display());
    let key = PrivateKeyDer::from_pem_file(path).with_context(wrong)?;
    builder.with_client_auth_cert(certificates(path).with_context(wrong)?, key).with_context(wrong)
}

/// Returns the authorities of a file, or those of the operating system.
fn authorities(ca_file: Option<&Path>) -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    match ca_file {
        Some(path) => {
            let wrong = || format!("--upstream: tlsCAFile {}", path.display());
            for certificate in certificates(path).with_context(wrong)? {
                roots.add(certificate).with_context(wrong)?;
            }
        }
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            ensure!(
                !roots.is_empty(),
                "--upstream: the system has no certificates of authorities: name some with tlsCAFile"
            );
        }
    }
    Ok(roots)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let certificates = CertificateDer::pem_file_iter(path)?.collect::<Result<Vec<_>, _>>()?;
    ensure!(!certificates.is_empty(), "there is no certificate in PEM form in it");
    Ok(certificates)
}
