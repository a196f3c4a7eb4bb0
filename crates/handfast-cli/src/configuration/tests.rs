use std::path::Path;

use clap::{CommandFactory, FromArgMatches};

use super::*;
use crate::arguments::{Arguments, Command};

/// What flags give, as the program reads them.
fn given(arguments: &[&str]) -> Given {
    let line = ["handfast", "config"].iter().chain(arguments);
    let matches = Arguments::command().get_matches_from(line);
    let Command::Config(parsed) = Arguments::from_arg_matches(&matches).unwrap().command else { panic!("config") };
    let matches = matches.subcommand().unwrap().1;
    let mut given = Given::default();
    given.add(&parsed.settings.store, matches).unwrap();
    given.add(&parsed.settings.server, matches).unwrap();
    given.add(&parsed.settings.log, matches).unwrap();
    given
}

fn lay(file: &str, arguments: &[&str]) -> Result<Configuration, Mistake> {
    Configuration::lay(Some((Path::new("t.toml"), file.to_owned())), given(arguments))
}

#[test]
fn without_anything_the_defaults_are_in_force() {
    let configuration = Configuration::lay(None, Given::default()).unwrap();
    assert_eq!(configuration.settings, Settings::default());
    assert!(configuration.entries().all(|(.., origin)| *origin == Origin::Default));
}

#[test]
fn the_file_is_over_the_defaults_and_flags_are_over_the_file() {
    let file = "listen = '127.0.0.1:1'\ncache-bytes = '1GiB'\nunix-socket = '/tmp/s'";
    let configuration = lay(file, &["--listen", "127.0.0.1:2", "--insecure"]).unwrap();
    assert_eq!(configuration.settings.listen, "127.0.0.1:2");
    assert_eq!(*configuration.origin("listen"), Origin::Flag("--listen".to_owned()));
    assert_eq!(configuration.settings.cache_bytes, Bytes(1 << 30));
    assert_eq!(*configuration.origin("cache-bytes"), Origin::File("t.toml".into()));
    assert_eq!(configuration.settings.unix_socket.as_deref(), Some(Path::new("/tmp/s")));
    assert!(configuration.settings.insecure);
    assert_eq!(*configuration.origin("data"), Origin::Default);
}

#[test]
fn values_read_the_same_from_file_and_flag() {
    let file = "data = '/d'\ndurability = 'memory'\ncache-bytes = 2097152\nwrite-buffer-bytes = '2MiB'\n\
                journal-bytes = '1GiB'\nsnapshot-bytes = '4MiB'\nsort-bytes = '5MiB'\nexpiry-interval = '2m'\n\
                listen = 'localhost:0'\nauth = true\ntls-certificate = '/c'\ntls-key = '/k'\ntls-client-ca = '/a'\ninsecure = true\nunix-socket = '/s'\ntopology = 'replica-set'\n\
                replica-set = 'rs'\nadvertise = 'db:1'\nmax-connections = 7\nmax-cursors = 8\n\
                request-bytes = '1GiB'\nreply-bytes = '2GiB'\nconnection-timeout = '1h'\n\
                cursor-timeout = '90s'\ntransaction-lifetime = '5m'\noutcome-retention = '48h'\nshutdown-timeout = '500ms'\nslow-operation = '0s'\ntest-commands = true\n\
                log-format = 'json'\nlog-level = 'debug'";
    let flags = "--data /d --durability memory --cache-bytes 2MiB --write-buffer-bytes 2097152 --journal-bytes 1GiB \
                 --snapshot-bytes 4MiB --sort-bytes 5120KiB --expiry-interval 120s --listen localhost:0 --auth --tls-certificate /c --tls-key /k --tls-client-ca /a \
                 --insecure --unix-socket /s --topology replica-set --replica-set rs --advertise db:1 \
                 --max-connections 7 --max-cursors 8 --request-bytes 1GiB --reply-bytes 2048MiB \
                 --connection-timeout 60m --cursor-timeout 1m30s \
                 --transaction-lifetime 300s --outcome-retention 2days --shutdown-timeout 500ms --slow-operation 0ms --test-commands --log-format json --log-level debug";
    let from_file = lay(file, &[]).unwrap();
    let from_flags = lay("", &flags.split_whitespace().collect::<Vec<_>>()).unwrap();
    assert_eq!(from_file.settings, from_flags.settings);
    assert!(from_file.entries().all(|(.., origin)| origin.kind() == "file"), "a key is not in this test");
    assert!(from_flags.entries().all(|(.., origin)| origin.kind() == "flag"), "a flag is not in this test");
}

#[test]
fn mistakes_name_their_key_and_source() {
    let check = |file: &str, arguments: &[&str], expected: &str| {
        let message = lay(file, arguments).unwrap_err().to_string();
        assert!(message.starts_with(expected), "{message}");
        assert_eq!(message.lines().count(), 1, "{message}");
    };
    check("listn = 1", &[], "t.toml: unknown key 'listn'; `handfast config` prints");
    check("[server]\nlisten = 1", &[], "t.toml: unknown key 'server'");
    check("listen = ", &[], "t.toml: at line 1, column 10");
    check("listen = 1", &[], "listen (from file t.toml): invalid type: integer `1`, expected a string");
    check("cache-bytes = 'lots'", &[], "cache-bytes (from file t.toml): a size such as 256MiB or 1GB is expected");
    check("cache-bytes = -1", &[], "cache-bytes (from file t.toml): a size is not negative");
    check("cache-bytes = 1", &[], "cache-bytes (from file t.toml): at least 1MiB is needed, not 1B");
    check("durability = 'none'", &[], "durability (from file t.toml): unknown variant `none`");
    check("max-connections = 0", &[], "max-connections (from file t.toml): at least 1 is needed");
    check("", &["--max-connections", "0"], "max-connections (from flag --max-connections): at least 1 is needed");
    check("request-bytes = '1MiB'", &[], "request-bytes (from file t.toml): at least 48MiB is needed, not 1MiB");
    check("topology = 'cluster'", &[], "topology (from file t.toml): unknown variant `cluster`");
    check("replica-set = ''", &[], "replica-set (from file t.toml): must not be empty");
    check("", &["--cursor-timeout", "0s"], "cursor-timeout (from flag --cursor-timeout): must be longer than zero");
    check("outcome-retention = '1m'", &[], "outcome-retention (from file t.toml): at least 5m is needed");
    check("data = ''", &[], "data (from file t.toml): must not be empty");
}

#[test]
fn a_wrong_value_that_a_flag_replaces_is_not_read() {
    // So that a flag gets one past a broken file.
    assert!(lay("cache-bytes = 'lots'", &["--cache-bytes", "1GiB"]).is_ok());
}

#[test]
fn a_named_file_must_be_there() {
    let mistake = Configuration::load(Some(Path::new("/nowhere/h.toml")), Given::default()).unwrap_err();
    assert!(mistake.to_string().starts_with("cannot read configuration file /nowhere/h.toml: "), "{mistake}");
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
