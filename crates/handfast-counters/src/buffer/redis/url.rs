//! The URL of a Redis server: which forms there are, and what of it may be shown.

use redis::{ConnectionInfo, IntoConnectionInfo as _};

use crate::{Error, Result};

/// The scheme of URLs that are supported.
const SCHEME: &str = "redis://";

/// Schemes that other programs know, with what they stand for.
const OTHERS: [(&str, &str); 8] = [
    ("rediss:", "TLS"),
    ("valkeys:", "TLS"),
    ("redis+sentinel:", "Redis Sentinel"),
    ("redis-sentinel:", "Redis Sentinel"),
    ("rediss+sentinel:", "Redis Sentinel"),
    ("redis+cluster:", "Redis Cluster"),
    ("redis-cluster:", "Redis Cluster"),
    ("rediss+cluster:", "Redis Cluster"),
];

/// Reads a URL such as `redis://user:password@host:6379/0`.
///
/// # Errors
/// [`Error::Invalid`], without the URL, which may hold a password.
pub(super) fn parse(url: &str) -> Result<ConnectionInfo> {
    if let Some((scheme, what)) = OTHERS.iter().find(|(scheme, _)| url.starts_with(scheme)) {
        return Err(Error::invalid(format!(
            "the URL of Redis begins with {scheme}//, and {what} is not supported yet: name one server with \
             redis://HOST:PORT/DB"
        )));
    }
    if !url.starts_with(SCHEME) {
        return Err(Error::invalid("the URL of Redis must begin with redis://, as in redis://HOST:6379/0"));
    }
    let is_list = url.split('/').nth(2).is_some_and(|hosts| hosts.rsplit('@').next().unwrap_or(hosts).contains(','));
    if is_list {
        return Err(Error::invalid(
            "the URL of Redis names several hosts, and Redis Sentinel and Redis Cluster are not supported yet: name one \
             server with redis://HOST:PORT/DB",
        ));
    }
    url.into_connection_info().map_err(|error| Error::invalid(format!("the URL of Redis is invalid: {error}")))
}

/// Returns the URL without user and password.
///
/// # Errors
/// [`Error::Invalid`] for a URL that cannot be read.
pub(super) fn shown(url: &str) -> Result<String> {
    let info = parse(url)?;
    Ok(format!("{SCHEME}{}/{}", info.addr(), info.redis_settings().db()))
}

#[cfg(test)]
mod tests {
    use super::shown;

    #[test]
    fn a_url_is_shown_without_its_secrets() {
        for (url, expected) in [
            ("redis://localhost", "redis://localhost:6379/0"),
            ("redis://127.0.0.1:7000/", "redis://127.0.0.1:7000/0"),
            ("redis://ann:secret@redis.example.org:6380/3", "redis://redis.example.org:6380/3"),
            ("redis://:sec%2Cret@h/1", "redis://h:6379/1"),
        ] {
            assert_eq!(shown(url).expect("a URL"), expected);
        }
    }

    #[test]
    fn other_forms_are_refused_by_name_and_without_their_secrets() {
        for (url, expected) in [
            ("rediss://ann:secret@h", "TLS is not supported"),
            ("redis+sentinel://:secret@a:1,b:2/main", "Redis Sentinel is not supported"),
            ("redis-cluster://secret@a", "Redis Cluster is not supported"),
            ("redis://:secret@a:1,b:2/0", "several hosts"),
            ("http://secret@h", "must begin with redis://"),
            ("secret", "must begin with redis://"),
            ("redis://:secret@h/x", "invalid"),
            ("redis://:secret@h:port", "invalid"),
        ] {
            let error = shown(url).expect_err("refused").to_string();
            assert!(error.contains(expected) && !error.contains("secret"), "{url}: {error}");
        }
    }
}
