//! The program: sources of the configuration in their order, and exit codes of commands that need no
//! data.

use crate::support::{Scratch, assert_one_line, handfast, now, output};

#[test]
fn flags_are_over_environment_over_file_over_defaults() -> anyhow::Result<()> {
    let scratch = Scratch::new("precedence")?;
    std::fs::write(scratch.path("handfast.toml"), "listen = 'file:1'\ndata = 'file'\nlog-level = 'warn'\n")?;
    let output = handfast(&scratch, &["config", "--json", "--listen", "flag:1"])
        .env("HANDFAST_LISTEN", "environment:1")
        .env("HANDFAST_DATA", "environment")
        .output()?;
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let check = |key: &str, value: &str, from: &str, origin: &str| {
        let expected = serde_json::json!({ "value": value, "from": from, "origin": origin });
        assert_eq!(report[key], expected);
    };
    check("listen", "flag:1", "flag", "flag --listen");
    check("data", "environment", "environment", "environment HANDFAST_DATA");
    check("log-level", "warn", "file", "file handfast.toml, line 3");
    check("durability", "journaled", "default", "default");
    assert!(report["unix-socket"]["value"].is_null());
    Ok(())
}

#[test]
fn the_text_is_a_configuration_file_itself() -> anyhow::Result<()> {
    let scratch = Scratch::new("round-trip")?;
    let first = handfast(&scratch, &["config", "--cache-bytes", "1GiB", "--insecure"]).output()?;
    std::fs::write(scratch.path("again.toml"), &first.stdout)?;
    let second = handfast(&scratch, &["config", "--config", "again.toml"]).output()?;
    assert_eq!(second.status.code(), Some(0), "{second:?}");
    let values = |output: &[u8]| -> anyhow::Result<toml::Table> { Ok(std::str::from_utf8(output)?.parse()?) };
    assert_eq!(values(&first.stdout)?, values(&second.stdout)?);
    Ok(())
}

#[test]
fn mistakes_are_one_line_and_exit_code_2() -> anyhow::Result<()> {
    let scratch = Scratch::new("mistakes")?;
    std::fs::write(scratch.path("typo.toml"), "listn = '127.0.0.1:1'\n")?;
    let check = |arguments: &[&str], environment: (&str, &str), expected: &str| -> anyhow::Result<()> {
        let output = handfast(&scratch, arguments).env(environment.0, environment.1).output()?;
        let stderr = String::from_utf8(output.stderr)?;
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains(expected), "{stderr}");
        assert!(output.stdout.is_empty());
        Ok(())
    };
    let unknown = "handfast: typo.toml, line 1: unknown key 'listn'; did you mean 'listen'? `handfast config` prints";
    std::fs::write(scratch.path("port.toml"), "port = 27018\n")?;
    std::fs::write(scratch.path("under.toml"), "cache_bytes = '1GiB'\n")?;
    check(&["config", "--config", "port.toml"], ("A", ""), "unknown key 'port'; listen = \"HOST:PORT\" has the port")?;
    check(&["config", "--config", "under.toml"], ("A", ""), "did you mean 'cache-bytes'?")?;
    check(&["config"], ("HANDFAST_LISTEN", "db"), "listen (from environment HANDFAST_LISTEN): 'db' is not an address")?;
    check(&["config", "--listen", "27018"], ("A", ""), "; --port 27018 takes another port at the same host")?;
    check(&["config", "--config", "typo.toml"], ("A", ""), unknown)?;
    check(&["config"], ("HANDFAST_CONFIG", "typo.toml"), unknown)?;
    check(
        &["config"],
        ("HANDFAST_CACHE_BYTES", "lots"),
        "cache-bytes (from environment HANDFAST_CACHE_BYTES): a size",
    )?;
    check(&["config"], ("HANDFAST_AUTH", "maybe"), "auth (from environment HANDFAST_AUTH): true or false is expected")?;
    check(&["config", "--cache-bytes", "lots"], ("A", ""), "'lots' for '--cache-bytes <SIZE>'")?;
    check(&["config", "--nonsense"], ("A", ""), "unexpected argument '--nonsense'")?;
    check(&["nonsense"], ("A", ""), "unrecognized subcommand 'nonsense'")?;
    check(&[], ("A", ""), "Usage: handfast")?;
    std::fs::create_dir(scratch.path("there"))?;
    for arguments in [&["check", "there"][..], &["dump", "there", "--to", "out"], &["user", "list", "there"]] {
        check(
            arguments,
            ("A", ""),
            "handfast: a directory is named with its flag, a data directory with --data: --data there",
        )?;
    }
    Ok(())
}

#[test]
fn an_address_that_is_none_is_told_with_its_source() -> anyhow::Result<()> {
    let scratch = Scratch::new("sources")?;
    std::fs::write(scratch.path("listen.toml"), "listen = 'nonsense'\n")?;
    std::fs::write(scratch.path("ca.toml"), "tls-client-ca = 'nowhere'\n")?;
    let serve = ["serve", "--log-level", "error"];
    for (key, configured, value, reason) in [
        ("listen", "listen.toml", "nonsense", "'nonsense' is not an address (HOST:PORT)"),
        ("tls-client-ca", "ca.toml", "nowhere", "it needs tls-certificate and tls-key, too"),
    ] {
        let variable = format!("HANDFAST_{}", key.replace('-', "_").to_uppercase());
        let flag = format!("--{key}");
        let of_file = output(handfast(&scratch, &serve).args(["--config", configured]))?;
        assert_one_line(&of_file, 2, &format!("{key} (from file {configured}, line 1): {reason}"));
        let of_environment = output(handfast(&scratch, &serve).env(&variable, value))?;
        assert_one_line(&of_environment, 2, &format!("{key} (from environment {variable}): {reason}"));
        let of_flag = output(handfast(&scratch, &serve).args([&flag, value]))?;
        assert_one_line(&of_flag, 2, &format!("{key} (from flag {flag}): {reason}"));
    }
    assert!(!scratch.path("handfast-data").exists(), "nothing was made");
    Ok(())
}

#[test]
fn a_login_that_is_not_shown_is_said_to_be_there() -> anyhow::Result<()> {
    let scratch = Scratch::new("login-not-shown")?;
    let shown = |uri: &str| -> anyhow::Result<String> {
        let output = handfast(&scratch, &["config", "--store", uri]).output()?;
        let text = String::from_utf8(output.stdout)?;
        Ok(text.lines().find(|line| line.starts_with("store =")).unwrap_or_default().to_owned())
    };
    let (with, without) = (shown("mongodb://ann:secret@h:1/")?, shown("mongodb://h:1/?appName=a@b")?);
    assert!(with.ends_with("; user and password not shown") && !with.contains("secret"), "{with}");
    assert!(!without.contains("not shown") && without.contains("h:1"), "{without}");
    Ok(())
}

#[test]
fn a_file_that_is_not_there_is_exit_code_1_whatever_it_is_for() -> anyhow::Result<()> {
    let scratch = Scratch::new("missing-files")?;
    std::fs::create_dir(scratch.path("there"))?;
    let nowhere = "nowhere";
    for arguments in [
        &["config", "--config", nowhere][..],
        &["serve", "--port", "0", "--tls-certificate", nowhere, "--tls-key", nowhere],
        &["restore", "--from", nowhere],
        &["check", "--data", nowhere],
        &["check", "history", nowhere],
        &["dump", "--data", nowhere, "--to", "t"],
        &["backup", "--data", nowhere, "--to", "t"],
        &["user", "list", "--data", nowhere],
        &["user", "add", "ann", "--role", "root", "--password-file", nowhere],
        &["bench", "process", "--directory", nowhere],
        &["bank", "--directory", nowhere],
    ] {
        assert_one_line(&handfast(&scratch, arguments).output()?, 1, nowhere);
    }
    let output = handfast(&scratch, &["config"]).env("HANDFAST_CONFIG", nowhere).output()?;
    assert_one_line(&output, 1, "cannot read the configuration file nowhere (from environment HANDFAST_CONFIG)");
    let left: Vec<_> = std::fs::read_dir(scratch.path("."))?.flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(left, ["there"], "nothing was made");
    Ok(())
}

#[test]
fn completions_and_manual_pages_come_from_the_same_definitions() -> anyhow::Result<()> {
    let scratch = Scratch::new("documents")?;
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = handfast(&scratch, &["completions", shell]).output()?;
        assert!(output.status.success());
        assert!(String::from_utf8(output.stdout)?.contains("cache-bytes"), "{shell}");
    }
    let output = handfast(&scratch, &["man", "new/man1"]).output()?;
    assert!(output.status.success(), "{output:?}");
    assert!(std::fs::read_to_string(scratch.path("new/man1/handfast-config.1"))?.contains(r"cache\-bytes"));
    let output = handfast(&scratch, &["man", "new/man1/handfast.1"]).output()?;
    assert_one_line(&output, 1, "cannot write manual pages to new/man1/handfast.1");
    Ok(())
}

#[test]
fn a_variable_that_is_no_setting_is_remarked_on() -> anyhow::Result<()> {
    let scratch = Scratch::new("unknown-variable")?;
    let remark = "handfast: the environment variable HANDFAST_CACH_BYTES is not a setting, and has no effect; did you mean HANDFAST_CACHE_BYTES?";
    let bank = ["bank", "--accounts", "2", "--transfers", "1", "--workers", "1"];
    for (arguments, code) in [(&["config"][..], 0), (&["check", "--data", "nowhere"], 1), (&bank, 0)] {
        for (quiet, expected) in [(&[][..], 1), (&["--quiet"], 0)] {
            let output = handfast(&scratch, arguments).args(quiet).env("HANDFAST_CACH_BYTES", "1GiB").output()?;
            let stderr = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(code), "{arguments:?}: {stderr}");
            assert_eq!(stderr.lines().filter(|line| *line == remark).count(), expected, "{arguments:?}: {stderr}");
        }
    }
    // A command whose output other programs read prints no remark.
    let output = handfast(&scratch, &["completions", "bash"]).env("HANDFAST_CACH_BYTES", "1GiB").output()?;
    assert!(output.stderr.is_empty(), "{output:?}");
    Ok(())
}

#[test]
fn a_server_that_is_not_there_is_waited_for_a_short_time() -> anyhow::Result<()> {
    let scratch = Scratch::new("nobody-there")?;
    // No server of a test gets this port.
    let uri = "mongodb://127.0.0.1:1/";
    let expected = "nothing listens at 127.0.0.1:1: is the server started, is the port right?";
    for arguments in [
        &["txns", "status", "--store", uri][..],
        &["serve", "--port", "0", "--store", uri],
        &["backup", "--uri", uri, "monday"],
        &["bank", "--mechanism", "server-side", "--store", uri],
    ] {
        let began = now();
        assert_one_line(&handfast(&scratch, arguments).output()?, 1, expected);
        assert!(began.elapsed() < std::time::Duration::from_secs(20), "{arguments:?}: {:?}", began.elapsed());
    }
    // A timeout in the connection string takes precedence.
    let began = now();
    let with_timeout = format!("{uri}?serverSelectionTimeoutMS=1");
    assert_one_line(&handfast(&scratch, &["txns", "status", "--store", &with_timeout]).output()?, 1, "no");
    assert!(began.elapsed() < std::time::Duration::from_secs(4), "{:?}", began.elapsed());
    let asked = handfast(&scratch, &["txns", "status", "--store", "mongodb://boss@127.0.0.1:1/"]).output()?;
    assert_one_line(&asked, 1, "the user has no password: write USER:PASSWORD@HOST");
    Ok(())
}
