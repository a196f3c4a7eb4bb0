//! The real program: sources of the configuration in their order, and exit codes of what needs no data.

use crate::support::{Scratch, handfast};

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
    check("log-level", "warn", "file", "file handfast.toml");
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
    check(
        &["config", "--config", "typo.toml"],
        ("A", ""),
        "handfast: typo.toml: unknown key 'listn'; `handfast config` prints",
    )?;
    check(&["config", "--config", "nowhere.toml"], ("A", ""), "cannot read configuration file nowhere.toml")?;
    check(&["config"], ("HANDFAST_CONFIG", "typo.toml"), "unknown key 'listn'")?;
    check(&["config"], ("HANDFAST_CACHE_BYTES", "lots"), "'lots' for '--cache-bytes <SIZE>'")?;
    check(&["config"], ("HANDFAST_CACHE_BYTES", "1"), "cache-bytes (from environment HANDFAST_CACHE_BYTES): at least")?;
    check(&["config", "--nonsense"], ("A", ""), "unexpected argument '--nonsense'")?;
    check(&["nonsense"], ("A", ""), "unrecognized subcommand 'nonsense'")?;
    check(&[], ("A", ""), "Usage: handfast")?;
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
    let output = handfast(&scratch, &["man", "."]).output()?;
    assert!(output.status.success(), "{output:?}");
    assert!(std::fs::read_to_string(scratch.path("handfast-config.1"))?.contains(r"cache\-bytes"));
    let output = handfast(&scratch, &["man", "nowhere"]).output()?;
    assert_eq!(output.status.code(), Some(1));
    Ok(())
}
