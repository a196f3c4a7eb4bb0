//! `handfast blackpipe explore`: what is wrong without any fault. tests/ext explores programs with a driver.

use anyhow::Result;

use crate::support::{Scratch, assert_one_line, handfast};

/// Explores a program that speaks to no server, with these flags.
fn check(flags: &[&str], code: i32, expected: &str) -> Result<()> {
    let scratch = Scratch::new("blackpipe")?;
    let output = handfast(&scratch, &[&["blackpipe", "explore"], flags].concat()).output()?;
    assert_one_line(&output, code, expected);
    assert!(output.stdout.is_empty());
    Ok(())
}

#[test]
fn an_exploration_says_what_is_wrong_without_a_fault() -> Result<()> {
    check(&["--check", "true", "--", "true"], 1, "the program sent no operation")?;
    check(&["--check", "true", "--", "/nowhere/app"], 1, "cannot start '/nowhere/app'")?;
    let failing = ["--check", "true", "--", "sh", "-c", "echo no such file; exit 7"];
    check(&failing, 1, "the program fails without any fault (exit 7: no such file)")?;
    check(&["--check", "echo wrong; exit 1", "--", "true"], 1, "--check fails without any fault (exit 1: wrong)")?;
    check(&["--setup", "exit 5", "--check", "true", "--", "true"], 1, "--setup fails (exit 5)")?;
    let slow = ["--timeout", "100ms", "--check", "true", "--", "sleep", "3600"];
    check(&slow, 1, "the program fails without any fault (timed out)")
}

#[test]
fn wrong_flags_are_usage_errors() -> Result<()> {
    let scratch = Scratch::new("blackpipe-usage")?;
    let check = |flags: &[&str], expected: &str| -> Result<()> {
        let output = handfast(&scratch, &[&["blackpipe", "explore"], flags].concat()).output()?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && stderr.contains(expected), "{stderr}");
        Ok(())
    };
    check(&["--", "true"], "--check <COMMAND>")?;
    check(&["--check", "true"], "<PROGRAM>")?;
    check(&["--check", "true", "--replay", "find:0/lose-reply", "--", "true"], "'find:0' is not an operation")?;
    check(&["--check", "true", "--replay", "find:1/lose", "--", "true"], "the faults are lose-request, lose-reply")?;
    check(
        &["--check", "true", "--only", "find,lose-it", "--", "true"],
        "'lose-it' is neither an operation nor a fault",
    )?;
    check(&["--check", "true", "--only", "cut", "--replay", "find:1/cut", "--", "true"], "--only")?;
    check(&["--check", "true", "--times", "0", "--", "true"], "--times")
}
