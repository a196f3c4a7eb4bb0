//! The connection string of the server behind `handfast blackpipe proxy`.

use std::net::SocketAddr;
use std::path::PathBuf;

use percent_encoding::percent_decode_str;

use crate::configuration::ConnectionString;
use crate::exit::Usage;

/// A connection string that names one server.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ServerAddress {
    /// The server, as `host:port`.
    server: String,
    tls: Option<TlsOptions>,
    /// The path of the connection string with its slash: a database, or nothing.
    path: String,
    /// The options that are not those of TLS.
    options: Vec<String>,
}

/// The certificates with which the server is reached.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct TlsOptions {
    /// The authorities that sign its certificate; those of the operating system without it.
    pub(super) ca_file: Option<PathBuf>,
    /// A certificate of the proxy, with its key.
    pub(super) certificate_key_file: Option<PathBuf>,
}

impl ServerAddress {
    /// Reads a connection string.
    ///
    /// # Errors
    /// Fails for a connection string that the proxy cannot use, such as one with a login or with several servers.
    pub(super) fn of(uri: &ConnectionString) -> Result<Self, Usage> {
        let wrong = |reason: &str| Usage(format!("--upstream {uri}: {reason}"));
        uri.check().map_err(|error| wrong(&error))?;
        if uri.has_login() {
            return Err(wrong("leave user and password out: programs log in through the proxy with their own"));
        }
        let shown = uri.to_string();
        let server =
            shown.strip_prefix("mongodb://").ok_or_else(|| wrong("name a server itself, as mongodb://host:port"))?;
        if server.contains(',') {
            return Err(wrong("the proxy has one server behind it: name the primary alone"));
        }
        if server.contains('/') || server.contains('%') {
            return Err(wrong("the proxy reaches servers by TCP: name a host and a port"));
        }
        let server = match server.rsplit_once(':') {
            // The driver writes an IPv6 address without brackets.
            Some((host, port)) if host.contains(':') => format!("[{host}]:{port}"),
            _ => server.to_owned(),
        };
        let after_scheme = uri.secret().strip_prefix("mongodb://").unwrap_or_default();
        let (hosts, query) = after_scheme.split_once('?').unwrap_or((after_scheme, ""));
        let path = hosts.find('/').and_then(|at| hosts.get(at..)).unwrap_or("/").to_owned();
        let is_tls = |option: &&str| is_tls_option(&option.to_ascii_lowercase());
        let (tls, options): (Vec<&str>, Vec<&str>) =
            query.split('&').filter(|option| !option.is_empty()).partition(is_tls);
        let tls = tls_options(&tls).map_err(|reason| wrong(&reason))?;
        Ok(ServerAddress { server, tls, path, options: options.into_iter().map(str::to_owned).collect() })
    }

    pub(super) fn server(&self) -> &str {
        &self.server
    }

    /// Returns how the server is reached with TLS; `None` without it.
    pub(super) fn tls(&self) -> Option<&TlsOptions> {
        self.tls.as_ref()
    }

    /// Returns the connection string by which programs reach the server through a proxy.
    pub(super) fn behind(&self, proxy: SocketAddr, has_tls: bool) -> String {
        let mut options = self.options.clone();
        if has_tls {
            options.insert(0, "tls=true".to_owned());
        }
        let query = if options.is_empty() { String::new() } else { format!("?{}", options.join("&")) };
        format!("mongodb://{proxy}{}{query}", self.path)
    }
}

/// Returns whether an option in small letters is about TLS.
fn is_tls_option(option: &str) -> bool {
    option.starts_with("tls") || option.starts_with("ssl=")
}

/// Reads the options of TLS.
fn tls_options(options: &[&str]) -> Result<Option<TlsOptions>, String> {
    let mut tls = TlsOptions::default();
    let mut is_on = None;
    for option in options {
        let (name, value) = option.split_once('=').unwrap_or((option, ""));
        let file = || Some(PathBuf::from(percent_decode_str(value).decode_utf8_lossy().into_owned()));
        match name.to_ascii_lowercase().as_str() {
            "tls" | "ssl" => is_on = Some(value == "true"),
            "tlscafile" => tls.ca_file = file(),
            "tlscertificatekeyfile" => tls.certificate_key_file = file(),
            _ => return Err(format!("{name} is not supported: name the authority of the server with tlsCAFile")),
        }
    }
    // As drivers do: an option of TLS turns it on.
    Ok(is_on.unwrap_or(!options.is_empty()).then_some(tls))
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr, SocketAddr};

    use super::{ServerAddress, TlsOptions};
    use crate::configuration::ConnectionString;

    const PROXY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 5000);

    fn server(uri: &str) -> Result<ServerAddress, String> {
        let Ok(uri) = uri.parse::<ConnectionString>();
        ServerAddress::of(&uri).map_err(|error| error.to_string())
    }

    #[test]
    fn a_program_connects_to_the_proxy_with_the_same_options() {
        let check = |uri: &str, server: &str, behind: &str| {
            let address = self::server(uri).unwrap();
            assert_eq!(address.server(), server);
            assert_eq!(address.behind(PROXY, false), behind);
        };
        check("mongodb://db", "db:27017", "mongodb://127.0.0.1:5000/");
        check("mongodb://db:5/", "db:5", "mongodb://127.0.0.1:5000/");
        check("mongodb://[::1]:5/shop?replicaSet=rs", "[::1]:5", "mongodb://127.0.0.1:5000/shop?replicaSet=rs");
    }

    #[test]
    fn the_options_of_tls_are_those_of_the_server() {
        let check = |uri: &str, expected: Option<TlsOptions>, behind: &str| {
            let address = server(uri).unwrap();
            assert_eq!(address.tls(), expected.as_ref(), "{uri}");
            assert_eq!(address.behind(PROXY, false), format!("mongodb://127.0.0.1:5000{behind}"));
        };
        check("mongodb://db/?tls=true&w=1", Some(TlsOptions::default()), "/?w=1");
        check("mongodb://db/?SSL=true", Some(TlsOptions::default()), "/");
        check("mongodb://db/?tls=false", None, "/");
        let files = TlsOptions { ca_file: Some("/a b.pem".into()), certificate_key_file: Some("me.pem".into()) };
        let uri = "mongodb://db/shop?tlsCAFile=%2Fa%20b.pem&appName=a&tlsCertificateKeyFile=me.pem";
        check(uri, Some(files), "/shop?appName=a");
        let address = server("mongodb://db/?w=1").unwrap();
        assert_eq!(address.behind(PROXY, true), "mongodb://127.0.0.1:5000/?tls=true&w=1");
    }

    #[test]
    fn what_the_proxy_cannot_stand_before_is_refused() {
        let check = |uri: &str, expected: &str| {
            let error = server(uri).unwrap_err();
            assert!(error.contains(expected) && !error.contains("secret"), "{error}");
        };
        check("db:27017", "--upstream mongodb://..: ");
        check("mongodb://ann:secret@db", "--upstream mongodb://db:27017: leave user and password out");
        check("mongodb://db/?tls=true&tlsInsecure=true", "tlsInsecure is not supported: name the authority");
        check("mongodb+srv://db.example.com", "name a server itself");
        check("mongodb://a,b:5", "name the primary alone");
        check("mongodb://%2Ftmp%2Fmongodb.sock", "name a host and a port");
    }
}
