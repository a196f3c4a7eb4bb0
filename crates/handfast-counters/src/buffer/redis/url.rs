//! The URL of Redis: which forms there are, and what of it may be shown.
//!
//! | form | servers |
//! | --- | --- |
//! | `redis://user:password@host:port/database` | one server |
//! | `redis+sentinel://user:password@host:port,host:port/MASTER/database` | the master of a name; the hosts are sentinels |
//! | `redis+cluster://user:password@host:port,host:port` | a cluster; the hosts are some of its servers |
//!
//! With `rediss` instead of `redis` all connections are encrypted. The forms are those of other clients: `redis+sentinel://` with a path is that of
//! Harbor and of redis-sentinel-url, `redis-sentinel://../0#MASTER` that of Lettuce, `sentinel_password` that of go-redis, `ssl_ca_certs` that of
//! redis-py.

use std::fmt;
use std::path::PathBuf;

use percent_encoding::percent_decode_str;

use crate::{Error, Result};

const PORT: u16 = 6_379;
const SENTINEL_PORT: u16 = 26_379;
/// The scheme of a URL, the form that it stands for, and whether connections are encrypted.
const SCHEMES: [(&str, Form, bool); 12] = [
    ("redis", Form::One, false),
    ("rediss", Form::One, true),
    ("valkey", Form::One, false),
    ("valkeys", Form::One, true),
    ("redis+sentinel", Form::Sentinel, false),
    ("rediss+sentinel", Form::Sentinel, true),
    ("redis-sentinel", Form::Sentinel, false),
    ("rediss-sentinel", Form::Sentinel, true),
    ("redis+cluster", Form::Cluster, false),
    ("rediss+cluster", Form::Cluster, true),
    ("redis-cluster", Form::Cluster, false),
    ("rediss-cluster", Form::Cluster, true),
];
/// The parameters of a URL, each with the names that it has.
const PARAMETERS: [(Parameter, [&str; 2]); 5] = [
    (Parameter::Authorities, ["tls_ca", "ssl_ca_certs"]),
    (Parameter::Certificate, ["tls_cert", "ssl_certfile"]),
    (Parameter::Key, ["tls_key", "ssl_keyfile"]),
    (Parameter::SentinelUser, ["sentinel_username", "sentinel_user"]),
    (Parameter::SentinelPassword, ["sentinel_password", "sentinel_pass"]),
];

#[derive(Clone, Copy, PartialEq)]
enum Form {
    One,
    Sentinel,
    Cluster,
}

#[derive(Clone, Copy, PartialEq)]
enum Parameter {
    Authorities,
    Certificate,
    Key,
    SentinelUser,
    SentinelPassword,
}

/// The servers that a URL names, and how they are connected to.
pub(super) struct Target {
    pub(super) topology: Topology,
    /// At least one.
    pub(super) addresses: Vec<Address>,
    pub(super) login: Login,
    pub(super) database: i64,
    /// `None` for connections that are not encrypted.
    pub(super) tls: Option<TlsFiles>,
}

/// The role of the addresses of a URL.
pub(super) enum Topology {
    /// A server.
    One,
    /// Sentinels that know which server is the master of a name.
    Sentinel {
        /// The name of the master.
        master: String,
        /// The login at the sentinels.
        login: Login,
    },
    /// Servers of a cluster, which know the others.
    Cluster,
}

/// A user and a password.
#[derive(Clone, Default)]
pub(super) struct Login {
    pub(super) user: Option<String>,
    pub(super) password: Option<String>,
}

/// The files of an encrypted connection, in PEM format.
#[derive(Clone, Default)]
pub(super) struct TlsFiles {
    /// The certificates of authorities; `None` for those of the operating system.
    pub(super) authorities: Option<PathBuf>,
    /// The certificate of the client, and its key.
    pub(super) client: Option<(PathBuf, PathBuf)>,
}

/// The address of a server.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Address {
    pub(super) host: String,
    pub(super) port: u16,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

/// Makes an error that does not repeat the URL, which may hold a password.
fn invalid(what: impl fmt::Display) -> Error {
    Error::invalid(format!("the URL of Redis {what}"))
}

/// Reads a URL.
///
/// # Errors
/// [`Error::Invalid`], without any part that may be secret.
pub(super) fn parse(url: &str) -> Result<Target> {
    let known = url.split_once("://").and_then(|(scheme, rest)| {
        let (_, form, is_encrypted) = SCHEMES.iter().find(|(known, ..)| scheme.eq_ignore_ascii_case(known))?;
        Some((*form, *is_encrypted, rest))
    });
    let Some((form, is_encrypted, rest)) = known else {
        return Err(invalid(
            "must begin with redis://, rediss://, redis+sentinel:// or redis+cluster://, as in redis://HOST:6379/0",
        ));
    };
    let (rest, fragment) = split(rest, '#');
    let (rest, query) = split(rest, '?');
    let (authority, path) = split(rest, '/');
    if [path, query, fragment].into_iter().flatten().any(|part| part.contains('@')) {
        return Err(invalid(
            "has an @ behind its host: in users and passwords, write / as %2F, ? as %3F, # as %23 and @ as %40",
        ));
    }
    let (login, hosts) = match authority.rsplit_once('@') {
        Some((login, hosts)) => (Login::read(login)?, hosts),
        None => (Login::default(), authority),
    };
    let parameters = Parameters::read(query.unwrap_or_default())?;
    let path = path.unwrap_or_default().trim_end_matches('/');
    let (topology, database) = match form {
        Form::One => (Topology::One, database(path)?),
        Form::Sentinel => {
            let (master, path) = match fragment {
                Some(master) => (master, path),
                None => (path.split('/').next().unwrap_or(path), path.split_once('/').map_or("", |(_, path)| path)),
            };
            let login = Login {
                user: parameters.find(Parameter::SentinelUser),
                password: parameters.find(Parameter::SentinelPassword),
            };
            (Topology::Sentinel { master: master_name(master)?, login }, database(path)?)
        }
        Form::Cluster if matches!(path, "" | "0") => (Topology::Cluster, 0),
        Form::Cluster => {
            return Err(invalid("names a database, and a cluster has number 0 alone: end it behind the hosts"));
        }
    };
    if fragment.is_some() && form != Form::Sentinel {
        return Err(invalid("has a part behind a #, which has no meaning there: leave it out"));
    }
    parameters.check(form, is_encrypted)?;
    let addresses = addresses(hosts, if form == Form::Sentinel { SENTINEL_PORT } else { PORT })?;
    if form == Form::One && addresses.len() > 1 {
        return Err(invalid(
            "names several hosts: begin it with redis+cluster:// for a cluster, or with redis+sentinel:// for sentinels",
        ));
    }
    let tls = is_encrypted.then(|| parameters.tls_files()).transpose()?;
    Ok(Target { topology, addresses, login, database, tls })
}

/// Splits a text before the first separator, which is in neither part.
fn split(text: &str, separator: char) -> (&str, Option<&str>) {
    match text.split_once(separator) {
        Some((before, behind)) => (before, Some(behind)),
        None => (text, None),
    }
}

fn decoded(text: &str) -> Result<String> {
    let decoded = percent_decode_str(text).decode_utf8();
    decoded.map(Into::into).map_err(|_| invalid("has a part that is not UTF-8 behind its % signs"))
}

fn database(path: &str) -> Result<i64> {
    let number = if path.is_empty() { Ok(0) } else { path.parse::<u32>() };
    number.map(i64::from).map_err(|_| invalid("must name its database by a number, as in redis://HOST:6379/0"))
}

fn master_name(text: &str) -> Result<String> {
    match decoded(text)? {
        name if name.is_empty() => Err(invalid(
            "must name the master behind the sentinels, as in redis+sentinel://HOST:26379,HOST:26379/MASTER/0",
        )),
        name => Ok(name),
    }
}

/// Reads a list of hosts, each once.
fn addresses(hosts: &str, default_port: u16) -> Result<Vec<Address>> {
    let mut addresses = Vec::new();
    for host in hosts.split(',') {
        let address = address(host, default_port)?;
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    Ok(addresses)
}

/// Reads `HOST`, `HOST:PORT` or `[ADDRESS]:PORT`.
fn address(text: &str, default_port: u16) -> Result<Address> {
    let (host, port) = match text.strip_prefix('[').and_then(|text| text.split_once(']')) {
        Some((host, port)) => (host, port.strip_prefix(':')),
        None => split(text, ':'),
    };
    let is_host = |char: char| char.is_ascii_alphanumeric() || "-._:%".contains(char);
    if host.is_empty() || !host.chars().all(is_host) {
        return Err(invalid("must name a host, as in redis://HOST:6379/0"));
    }
    let port = port.map_or(Ok(default_port), str::parse);
    match port {
        Ok(port) if port > 0 => Ok(Address { host: host.to_owned(), port }),
        _ => Err(invalid("has a port that is no number from 1 to 65535")),
    }
}

impl Login {
    /// Reads `USER`, `:PASSWORD` or `USER:PASSWORD`.
    fn read(text: &str) -> Result<Self> {
        let (user, password) = split(text, ':');
        let user = (!user.is_empty()).then(|| decoded(user)).transpose()?;
        Ok(Login { user, password: password.map(decoded).transpose()? })
    }
}

/// The parameters of a URL with their values.
struct Parameters(Vec<(Parameter, String)>);

impl Parameters {
    fn read(query: &str) -> Result<Self> {
        let mut parameters = Parameters(Vec::new());
        for part in query.split('&').filter(|part| !part.is_empty()) {
            let known = "tls_ca, tls_cert, tls_key, sentinel_username and sentinel_password";
            // What has no = may be a part of a password.
            let (name, value) = part
                .split_once('=')
                .ok_or_else(|| invalid(format_args!("has a parameter without a value; it may have {known}")))?;
            let found = PARAMETERS.iter().find(|(_, names)| names.contains(&name));
            let Some((parameter, _)) = found else {
                return Err(invalid(format_args!("has the unknown parameter {name}; it may have {known}")));
            };
            if parameters.find(*parameter).is_some() {
                return Err(invalid(format_args!("has the parameter {name} twice")));
            }
            parameters.0.push((*parameter, decoded(value)?));
        }
        Ok(parameters)
    }

    fn find(&self, parameter: Parameter) -> Option<String> {
        self.0.iter().find(|(found, _)| *found == parameter).map(|(_, value)| value.clone())
    }

    /// Refuses parameters that would have no effect.
    fn check(&self, form: Form, is_encrypted: bool) -> Result<()> {
        for (parameter, _) in &self.0 {
            match parameter {
                Parameter::Authorities | Parameter::Certificate | Parameter::Key if !is_encrypted => {
                    return Err(invalid(
                        "has files for TLS, and its connections are not encrypted: begin it with rediss",
                    ));
                }
                Parameter::SentinelUser | Parameter::SentinelPassword if form != Form::Sentinel => {
                    return Err(invalid("has a login for sentinels, and names none: begin it with redis+sentinel"));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn tls_files(&self) -> Result<TlsFiles> {
        let file = |parameter| self.find(parameter).map(PathBuf::from);
        let client = match (file(Parameter::Certificate), file(Parameter::Key)) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            _ => return Err(invalid("must have both tls_cert and tls_key, or neither")),
        };
        Ok(TlsFiles { authorities: file(Parameter::Authorities), client })
    }
}

/// Returns the URL without logins and files.
///
/// # Errors
/// [`Error::Invalid`] for a URL that cannot be read.
pub(super) fn shown(url: &str) -> Result<String> {
    let Target { topology, addresses, database, tls, .. } = parse(url)?;
    let scheme = if tls.is_some() { "rediss" } else { "redis" };
    let hosts: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    let hosts = hosts.join(",");
    Ok(match topology {
        Topology::One => format!("{scheme}://{hosts}/{database}"),
        Topology::Sentinel { master, .. } => format!("{scheme}+sentinel://{hosts}/{master}/{database}"),
        Topology::Cluster => format!("{scheme}+cluster://{hosts}"),
    })
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::{Topology, parse, shown};

    #[test]
    fn a_url_is_shown_without_its_secrets() {
        for (url, expected) in [
            ("redis://localhost", "redis://localhost:6379/0"),
            ("redis://127.0.0.1:7000/", "redis://127.0.0.1:7000/0"),
            ("redis://ann:secret@redis.example.org:6380/3", "redis://redis.example.org:6380/3"),
            ("redis://:sec%2Cret@h/1", "redis://h:6379/1"),
            ("redis://:sec,ret@h/1", "redis://h:6379/1"),
            ("redis://:s@cret@h/1", "redis://h:6379/1"),
            ("redis://[::1]:7000", "redis://[::1]:7000/0"),
            ("valkeys://:secret@h", "rediss://h:6379/0"),
            ("REDISS://ann:secret@h/2?tls_ca=/secret/ca.pem", "rediss://h:6379/2"),
            ("redis+sentinel://:secret@a,b:2,a/main", "redis+sentinel://a:26379,b:2/main/0"),
            ("redis-sentinel://:secret@a:1/3#main", "redis+sentinel://a:1/main/3"),
            ("rediss+sentinel://a:1/main/4?sentinel_password=secret", "rediss+sentinel://a:1/main/4"),
            ("redis+cluster://ann:secret@a,b:2", "redis+cluster://a:6379,b:2"),
            ("rediss-cluster://secret@[::1]:7/0?ssl_ca_certs=secret", "rediss+cluster://[::1]:7"),
        ] {
            assert_eq!(shown(url).expect("a URL"), expected);
        }
    }

    #[test]
    fn logins_and_files_are_read() {
        let target = parse(
            "rediss+sentinel://ann:p%40s%2Bs@a/main?sentinel_username=bob&sentinel_password=a+b%26c\
             &tls_ca=/etc/ca%20s.pem&ssl_certfile=c.pem&tls_key=k.pem",
        )
        .expect("a URL");
        assert_eq!((target.login.user.as_deref(), target.login.password.as_deref()), (Some("ann"), Some("p@s+s")));
        let Topology::Sentinel { master, login } = target.topology else { panic!("sentinels") };
        assert_eq!((&*master, login.user.as_deref(), login.password.as_deref()), ("main", Some("bob"), Some("a+b&c")));
        let files = target.tls.expect("TLS");
        assert_eq!(files.authorities, Some(PathBuf::from("/etc/ca s.pem")));
        assert_eq!(files.client, Some((PathBuf::from("c.pem"), PathBuf::from("k.pem"))));
        let target = parse("redis://:secret@h").expect("a URL");
        assert_eq!((target.login.user, target.login.password.as_deref()), (None, Some("secret")));
    }

    #[test]
    fn what_is_wrong_is_named_without_secrets() {
        for (url, expected) in [
            ("http://secret@h", "must begin with redis://"),
            ("secret", "must begin with redis://"),
            ("redis:/secret", "must begin with redis://"),
            ("redis://:secret@a:1,b:2/0", "redis+cluster:// for a cluster"),
            ("redis://:secret@h/x", "database by a number"),
            ("redis://:secret@h/-1", "database by a number"),
            ("redis://:secret@h:port", "has a port"),
            ("redis://:secret@h:0", "has a port"),
            ("redis://:sec/ret@h", "has an @ behind its host"),
            ("redis://:sec#ret@h", "has an @ behind its host"),
            ("redis://:sec?ret=secret@h", "has an @ behind its host"),
            ("redis://:secret@", "must name a host"),
            ("redis://:secret@a b", "must name a host"),
            ("redis+sentinel://:secret@a,,b/main", "must name a host"),
            ("redis://:%ffsecret@h", "not UTF-8"),
            ("rediss://:secret@h#insecure", "behind a #"),
            ("rediss://:secret@h?ssl_cert_reqs=none", "unknown parameter ssl_cert_reqs"),
            ("rediss://h?tls_ca=secret&secret", "parameter without a value"),
            ("rediss://h?tls_ca=secret&ssl_ca_certs=secret", "ssl_ca_certs twice"),
            ("rediss://h?tls_cert=secret", "both tls_cert and tls_key"),
            ("redis://h?tls_ca=secret", "begin it with rediss"),
            ("redis+cluster://h?sentinel_password=secret", "login for sentinels"),
            ("redis+sentinel://:secret@a:1,b:2", "must name the master"),
            ("redis+sentinel://:secret@a:1/main/x", "database by a number"),
            ("redis+cluster://:secret@a/1", "number 0 alone"),
        ] {
            let error = shown(url).expect_err("refused").to_string();
            assert!(error.contains(expected) && !error.contains("secret"), "{url}: {error}");
        }
    }
}
