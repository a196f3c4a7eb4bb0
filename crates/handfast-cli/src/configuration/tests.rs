use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

use clap::Parser;

use super::{Bytes, Configuration, ExplicitSettings, Mistake, Origin, Settings, variable};
use crate::command::arguments::{Arguments, Command};

/// Returns the settings of flags and environment as the program reads them.
fn given(arguments: &[&str], environment: &[(&str, &str)]) -> Result<ExplicitSettings, Mistake> {
    let Command::Config(parsed) = parse(arguments).unwrap().command else { panic!("config") };
    let mut given = ExplicitSettings::default();
    given.add(&parsed.settings.store)?;
    given.add(&parsed.settings.remote)?;
    given.add(&parsed.settings.redis)?;
    given.add(&parsed.settings.server)?;
    given.add(&parsed.settings.log)?;
    given.add_environment(|name| environment.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into()))?;
    Ok(given)
}

fn parse(arguments: &[&str]) -> Result<Arguments, clap::Error> {
    Arguments::try_parse_from(["handfast", "config"].iter().chain(arguments))
}

fn lay(file: &str, arguments: &[&str]) -> Result<Configuration, Mistake> {
    lay_all(file, &[], arguments)
}

fn lay_all(file: &str, environment: &[(&str, &str)], arguments: &[&str]) -> Result<Configuration, Mistake> {
    Configuration::lay(Some((Path::new("t.toml"), file)), given(arguments, environment)?)
}

fn file(line: usize) -> Origin {
    Origin::File { path: "t.toml".into(), line }
}

#[test]
fn without_anything_the_defaults_are_in_force() {
    let configuration = Configuration::lay(None, ExplicitSettings::default()).unwrap();
    assert_eq!(configuration.settings, Settings::default());
    assert!(configuration.entries().all(|(.., origin)| *origin == Origin::Default));
}

#[test]
fn the_file_is_over_the_defaults_the_environment_over_the_file_and_flags_over_both() {
    let text = "listen = '127.0.0.1:1'\ncache-bytes = '1GiB'\n\nunix-socket = '/tmp/s'\nmax-cursors = 1";
    let environment = [("HANDFAST_LISTEN", "127.0.0.1:3"), ("HANDFAST_MAX_CURSORS", "7"), ("HANDFAST_OTHER", "")];
    let configuration = lay_all(text, &environment, &["--listen", "127.0.0.1:2", "--insecure"]).unwrap();
    assert_eq!(configuration.settings.listen, "127.0.0.1:2");
    assert_eq!(*configuration.origin("listen"), Origin::Flag("--listen".to_owned()));
    assert_eq!(configuration.settings.max_cursors, 7);
    assert_eq!(*configuration.origin("max-cursors"), Origin::Environment("HANDFAST_MAX_CURSORS".to_owned()));
    assert_eq!(configuration.settings.cache_bytes, Bytes(1 << 30));
    assert_eq!(*configuration.origin("cache-bytes"), file(2));
    assert_eq!(configuration.settings.unix_socket.as_deref(), Some(Path::new("/tmp/s")));
    assert_eq!(*configuration.origin("unix-socket"), file(4));
    assert!(configuration.settings.insecure);
    assert_eq!(*configuration.origin("data"), Origin::Default);
}

#[test]
fn a_port_takes_the_host_that_is_in_force() {
    let check = |listen: &str, expected: &str| {
        let configuration = lay(&format!("listen = '{listen}'"), &[]).unwrap().with_port(7);
        assert_eq!(configuration.settings.listen, expected);
        assert_eq!(*configuration.origin("listen"), Origin::Flag("--port".to_owned()));
    };
    check("127.0.0.1:27017", "127.0.0.1:7");
    check("[::1]:27017", "[::1]:7");
    check("localhost", "localhost:7");
    assert!(parse(&["--port", "7", "--listen", "localhost:8"]).is_err(), "one of them");
}

#[test]
fn values_read_the_same_from_file_environment_and_flag() {
    let file = "data = '/d'\ndurability = 'memory'\ncache-bytes = 2097152\nwrite-buffer-bytes = '2MiB'\n\
                journal-bytes = '1GiB'\nsnapshot-bytes = '4MiB'\nsort-bytes = '5MiB'\nstage-bytes-total = '6MiB'\nspill-bytes = '7MiB'\nspill-directory = '/t'\nexpiry-interval = '2m'\nchange-streams = 'on'\nchange-log-age = '1h'\nchange-log-bytes = '64MiB'\n\
                listen = 'localhost:0'\nauth = true\ntls-certificate = '/c'\ntls-key = '/k'\ntls-client-ca = '/a'\ninsecure = true\nbackup-directory = '/b'\nunix-socket = '/s'\nhttp = 'h:2'\nhttp-allow-origin = ['https://a', 'http://b:1']\nhttp-body-bytes = '1MiB'\nhttp-max-connections = 9\nhttp-tls = false\ntopology = 'replica-set'\n\
                replica-set = 'rs'\nadvertise = 'db:1'\nmax-connections = 7\nmax-cursors = 8\nmax-cursors-per-connection = 6\n\
                request-bytes = '1GiB'\nreply-bytes = '2GiB'\nconnection-timeout = '1h'\n\
                cursor-timeout = '90s'\ntransaction-lifetime = '5m'\ntransaction-bytes = '64MiB'\noutcome-retention = '48h'\nshutdown-timeout = '500ms'\nslow-operation = '0s'\ntest-commands = true\npart = true\n\
                store = ['a=mongodb://h:1', 'b=mongodb://h:2']\nroute = ['*=a', 's.o=b']\nsole-writer = true\nstore-timeout = '3s'\nsnapshot-lease = '2m'\nredis = 'redis://h:1/2'\nlog-format = 'json'\nlog-level = 'debug'";
    let flags = "--data /d --durability memory --cache-bytes 2MiB --write-buffer-bytes 2097152 --journal-bytes 1GiB \
                 --snapshot-bytes 4MiB --sort-bytes 5120KiB --stage-bytes-total 6144KiB --spill-bytes 7168KiB --spill-directory /t --expiry-interval 120s --change-streams on --change-log-age 60m --change-log-bytes 65536KiB --listen localhost:0 --auth --tls-certificate /c --tls-key /k --tls-client-ca /a \
                 --insecure --backup-directory /b --unix-socket /s --http h:2 --http-allow-origin https://a --http-allow-origin http://b:1 --http-body-bytes 1024KiB --http-max-connections 9 --http-tls=false --topology replica-set --replica-set rs --advertise db:1 \
                 --max-connections 7 --max-cursors 8 --max-cursors-per-connection 6 --request-bytes 1GiB --reply-bytes 2048MiB \
                 --connection-timeout 60m --cursor-timeout 1m30s \
                 --transaction-lifetime 300s --transaction-bytes 65536KiB --outcome-retention 2days --shutdown-timeout 500ms --slow-operation 0ms --test-commands --part --store a=mongodb://h:1 --store b=mongodb://h:2 --route *=a --route s.o=b --sole-writer --store-timeout 3000ms --snapshot-lease 120s --redis redis://h:1/2 --log-format json --log-level debug";
    let flags: Vec<&str> = flags.split_whitespace().collect();
    let from_file = lay(file, &[]).unwrap();
    let from_flags = lay("", &flags).unwrap();
    let environment: Vec<(String, String)> = from_file
        .entries()
        .map(|(key, value, _)| (variable(&key), value.unwrap().to_string().trim_matches('"').to_owned()))
        .collect();
    let environment: Vec<(&str, &str)> = environment.iter().map(|(name, value)| (&**name, &**value)).collect();
    let from_environment = lay_all("", &environment, &[]).unwrap();
    assert_eq!(from_file.settings, from_flags.settings);
    assert_eq!(from_file.settings, from_environment.settings);
    assert!(from_file.entries().all(|(.., origin)| origin.kind() == "file"), "a key is not in this test");
    assert!(from_flags.entries().all(|(.., origin)| origin.kind() == "flag"), "a flag is not in this test");
    assert!(from_environment.entries().all(|(.., origin)| origin.kind() == "environment"));
}

#[test]
fn truth_values_of_the_environment_are_those_of_a_flag() {
    for text in ["1", "true", "True", "yes", "on", "t", "y", "0", "false", "NO", "off", "f", "n"] {
        let from_environment = lay_all("", &[("HANDFAST_AUTH", text)], &[]).unwrap();
        let from_flag = lay("", &[&format!("--auth={text}")]).unwrap();
        assert_eq!(from_environment.settings, from_flag.settings, "{text}");
    }
}

/// The table has wrong values, each of which comes from each of the three sources.
#[test]
fn mistakes_name_their_key_and_source() {
    let check = |key: &str, value: &str, reason: &str| {
        let quoted = if value.parse::<i64>().is_ok() { value.to_owned() } else { format!("'{value}'") };
        let of_file = lay(&format!("# a line before\n{key} = {quoted}"), &[]).unwrap_err().to_string();
        let of_environment = lay_all("", &[(&variable(key), value)], &[]).unwrap_err().to_string();
        for (message, source) in
            [(of_file, "file t.toml, line 2".to_owned()), (of_environment, format!("environment {}", variable(key)))]
        {
            assert!(message.starts_with(&format!("{key} (from {source}): ")), "{message}");
            assert!(message.contains(reason), "{message}");
            assert_eq!(message.lines().count(), 1, "{message}");
        }
        // The parser of flags refuses some values itself, with its own message.
        let flag = format!("--{key}={value}");
        match parse(&[&flag]) {
            Err(refused) => assert!(refused.to_string().contains(&format!("'--{key}")), "{refused}"),
            Ok(_) => {
                let message = lay("", &[&flag]).unwrap_err().to_string();
                assert!(message.starts_with(&format!("{key} (from flag --{key}): ")), "{message}");
                assert!(message.contains(reason), "{message}");
            }
        }
    };
    check("cache-bytes", "lots", "a size such as 256MiB or 1GB is expected, not 'lots'");
    check("cache-bytes", "-1", "a size");
    check("cache-bytes", "1", "must be at least 1MiB, not 1B");
    check("request-bytes", "1MiB", "must be at least 48MiB, not 1MiB");
    check("durability", "none", "unknown variant `none`, expected `journaled` or `memory`");
    check("topology", "cluster", "unknown variant `cluster`, expected one of `standalone`, `replica-set`, `mongos`");
    check("log-level", "loud", "unknown variant `loud`");
    check("max-connections", "0", "must be at least 1");
    check("max-connections", "-1", "invalid value: integer `-1`");
    check("max-connections", "many", "expected");
    check("http-max-connections", "0", "must be at least 1");
    check("http-body-bytes", "1KiB", "must be at least 4KiB, not 1KiB");
    check("http-body-bytes", "1GiB", "must be at most 64MiB, not 1GiB");
    check("http-allow-origin", "https://example.org/path", "expected a scheme and a host");
    check("http-allow-origin", "*", "'*' is no origin");
    check("http-allow-origin", "", "must not be empty");
    check("http-tls", "maybe", "expected");
    check("auth", "maybe", "expected");
    check("cursor-timeout", "0s", "must be longer than zero");
    check("cursor-timeout", "soon", "a duration such as 10s, 30m or 1h is expected, not 'soon'");
    for value in ["nonsense", ":27017", "db:port", "db:0", "db:70000"] {
        check("advertise", value, "must be a HOST:PORT that clients can connect to");
    }
    check("outcome-retention", "1m", "must be at least 5m");
    for key in [
        "data",
        "listen",
        "replica-set",
        "advertise",
        "unix-socket",
        "http",
        "tls-certificate",
        "tls-key",
        "tls-client-ca",
    ] {
        check(key, "", "must not be empty");
    }
}

#[test]
fn mistakes_of_the_file_name_their_place() {
    let check = |file: &str, expected: &str| {
        let message = lay(file, &[]).unwrap_err().to_string();
        assert!(message.starts_with(expected), "{message}");
        assert_eq!(message.lines().count(), 1, "{message}");
    };
    check(
        "auth = true\nlistn = 1",
        "t.toml, line 2: unknown key 'listn'; did you mean 'listen'? `handfast config` prints",
    );
    check("[server]\nlisten = 1", "t.toml, line 1: unknown key 'server'");
    check("auth = true\nlisten = ", "t.toml, line 2, column 10: string values must be quoted");
    check("listen = 'ö' x", "t.toml, line 1, column 14: ");
    check("auth = true\nauth = true", "t.toml, line 2, column 1: duplicate key");
    check("listen = 1", "listen (from file t.toml, line 1): invalid type: integer `1`, expected a string");
    check("auth = 'yes'", "auth (from file t.toml, line 1): invalid type: string \"yes\", expected a boolean");
}

#[test]
fn a_variable_that_is_no_text_is_named() {
    let mut given = ExplicitSettings::default();
    let variable = |name: &str| (name == "HANDFAST_DATA").then(|| OsString::from_vec(vec![0xff]));
    let mistake = given.add_environment(variable).unwrap_err().to_string();
    assert_eq!(mistake, "data (from environment HANDFAST_DATA): it is not UTF-8");
}

#[test]
fn a_wrong_value_that_a_flag_replaces_is_not_read() {
    // A flag can replace a wrong value of the file or of the environment.
    assert!(lay("cache-bytes = 'lots'", &["--cache-bytes", "1GiB"]).is_ok());
    assert!(lay_all("", &[("HANDFAST_MAX_CURSORS", "lots")], &["--max-cursors", "1"]).is_ok());
}

#[test]
fn a_named_file_must_be_there() {
    let mistake = Configuration::load(Some(Path::new("/nowhere/h.toml")), ExplicitSettings::default()).unwrap_err();
    assert!(
        mistake.to_string().starts_with("cannot read the configuration file /nowhere/h.toml (from flag --config): "),
        "{mistake}"
    );
}

#[test]
fn sizes() {
    let check = |text: &str, expected: Option<u64>| {
        assert_eq!(text.parse::<Bytes>().ok(), expected.map(Bytes), "{text}");
    };
    check("0", Some(0));
    check("1048576", Some(1 << 20));
    check("64MiB", Some(64 << 20));
    check("64 MiB", Some(64 << 20));
    check("64mib", Some(64 << 20));
    check("1GB", Some(1_000_000_000));
    check("1.5KiB", Some(1536));
    check("", None);
    check("-1", None);
    check("-1MiB", None);
    check("lots", None);
    check("MiB", None);
    check("1XiB", None);
    check("NaN", None);
    for bytes in [0, 1, 1000, 1024, 1536, 64 << 20, (64 << 20) + 1, 1_000_000_000, u64::MAX] {
        assert_eq!(Bytes(bytes).to_string().parse(), Ok(Bytes(bytes)), "{bytes} is shown exactly");
    }
}
