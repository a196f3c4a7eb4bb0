//! The server behind `handfast blackpipe proxy`.

use std::net::SocketAddr;

use crate::configuration::ConnectionString;
use crate::exit::Usage;

/// A connection string that names one server, which is reached without TLS.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Upstream {
    /// The server, as `host:port`.
    server: String,
    /// The connection string from the slash behind the hosts on: a database and options.
    rest: String,
}

impl Upstream {
    /// Reads a connection string.
    ///
    /// # Errors
    /// The proxy cannot stand in front of what it names.
    pub(super) fn of(uri: &ConnectionString) -> Result<Self, Usage> {
        let wrong = |reason: &str| Usage(format!("--upstream {uri}: {reason}"));
        uri.check().map_err(|error| wrong(&error))?;
        if uri.has_login() {
            return Err(wrong("leave user and password out: programs log in through the proxy with their own"));
        }
        let secret = uri.secret();
        let options = secret.split_once('?').map_or("", |(_, options)| options).to_ascii_lowercase();
        if options.split('&').any(|option| ["tls=true", "ssl=true"].contains(&option)) {
            return Err(wrong("the proxy does not speak TLS: name a server without it"));
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
        let after_scheme = secret.strip_prefix("mongodb://").unwrap_or_default();
        let rest = after_scheme.find('/').and_then(|at| after_scheme.get(at..)).unwrap_or("/");
        Ok(Upstream { server, rest: rest.to_owned() })
    }

    pub(super) fn server(&self) -> &str {
        &self.server
    }

    /// Returns the connection string by which programs reach the server through a proxy.
    pub(super) fn behind(&self, proxy: SocketAddr) -> String {
        format!("mongodb://{proxy}{}", self.rest)
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::Upstream;
    use crate::configuration::ConnectionString;

    fn upstream(uri: &str) -> Result<Upstream, String> {
        let Ok(uri) = uri.parse::<ConnectionString>();
        Upstream::of(&uri).map_err(|error| error.to_string())
    }

    #[test]
    fn a_program_connects_to_the_proxy_with_the_same_options() {
        let check = |uri: &str, server: &str, behind: &str| {
            let upstream = upstream(uri).unwrap();
            assert_eq!(upstream.server(), server);
            assert_eq!(upstream.behind(SocketAddr::from(([127, 0, 0, 1], 5000))), behind);
        };
        check("mongodb://db", "db:27017", "mongodb://127.0.0.1:5000/");
        check("mongodb://db:5/", "db:5", "mongodb://127.0.0.1:5000/");
        check("mongodb://[::1]:5/shop?replicaSet=rs", "[::1]:5", "mongodb://127.0.0.1:5000/shop?replicaSet=rs");
    }

    #[test]
    fn what_the_proxy_cannot_stand_before_is_refused() {
        let check = |uri: &str, expected: &str| {
            let error = upstream(uri).unwrap_err();
            assert!(error.contains(expected) && !error.contains("secret"), "{error}");
        };
        check("db:27017", "--upstream mongodb://..: ");
        check("mongodb://ann:secret@db", "--upstream mongodb://db:27017: leave user and password out");
        check("mongodb://db/?tls=true", "does not speak TLS");
        check("mongodb://db/?SSL=true", "does not speak TLS");
        check("mongodb+srv://db.example.com", "name a server itself");
        check("mongodb://a,b:5", "name the primary alone");
        check("mongodb://%2Ftmp%2Fmongodb.sock", "name a host and a port");
    }
}
