//! `handfast user`, and the effect of `--auth` on the start of the server.

use std::io::Write;
use std::process::{Output, Stdio};

use anyhow::{Context, Result};
use bson::doc;

use crate::support::{Scratch, Serve, assert_one_line, finish, handfast, output};

/// Runs the program with this standard input.
fn with_input(scratch: &Scratch, arguments: &[&str], input: &str) -> Result<Output> {
    let mut command = handfast(scratch, arguments);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    // The program may have refused its arguments already, without reading its input.
    let _ = child.stdin.take().context("stdin")?.write_all(input.as_bytes());
    finish(child)
}

fn add(scratch: &Scratch, name: &str, role: &str) -> Result<Output> {
    with_input(scratch, &["user", "add", name, "--role", role], "secret\n")
}

#[test]
fn users_are_added_listed_changed_and_removed() -> Result<()> {
    let scratch = Scratch::new("users")?;
    assert!(add(&scratch, "ann", "root")?.status.success());
    std::fs::write(scratch.path("password"), "other\r\nnot this\n")?;
    let bob = ["user", "add", "bob", "--database", "shop", "--role", "read", "--role", "readWrite@other"];
    let output = handfast(&scratch, &bob).args(["--password-file", "password"]).output()?;
    assert_eq!(String::from_utf8(output.stdout)?, "added bob@shop\n");
    let list = handfast(&scratch, &["user", "list"]).output()?;
    assert_eq!(String::from_utf8(list.stdout)?, "ann@admin  root@admin\nbob@shop  read@shop, readWrite@other\n");
    let list = handfast(&scratch, &["user", "list", "--json"]).output()?;
    let list: serde_json::Value = serde_json::from_slice(&list.stdout)?;
    assert_eq!(list[1]["roles"][1], serde_json::json!({ "role": "readWrite", "db": "other" }));
    assert_one_line(&add(&scratch, "ann", "read")?, 1, "User \"ann@admin\" already exists");
    assert!(with_input(&scratch, &["user", "password", "ann"], "new\n")?.status.success());
    assert!(handfast(&scratch, &["user", "remove", "ann"]).output()?.status.success());
    let again = handfast(&scratch, &["user", "remove", "ann"]).output()?;
    assert_one_line(&again, 1, "User 'ann@admin' not found");
    let check = handfast(&scratch, &["check"]).output()?;
    assert!(check.status.success(), "{check:?}");
    Ok(())
}

#[test]
fn mistakes_are_one_line() -> Result<()> {
    let scratch = Scratch::new("users-mistakes")?;
    assert_one_line(
        &add(&scratch, "ann", "rot")?,
        2,
        "--role: Could not find role: rot@admin; the roles are read, readWrite",
    );
    assert_one_line(&add(&scratch, "ann", "root@shop")?, 2, "Could not find role: root@shop");
    assert_one_line(&add(&scratch, "", "root")?, 2, "must not be empty");
    let empty = with_input(&scratch, &["user", "add", "ann", "--role", "root"], "\n")?;
    assert_one_line(&empty, 2, "the password must not be empty");
    let missing = ["user", "add", "ann", "--role", "root", "--password-file", "nowhere"];
    assert_one_line(&handfast(&scratch, &missing).output()?, 1, "cannot read the password from nowhere");
    assert!(!scratch.path("handfast-data").exists(), "nothing was made");
    assert_one_line(&handfast(&scratch, &["user", "list"]).output()?, 1, "cannot read the data directory");
    Ok(())
}

#[test]
fn a_server_with_auth_asks_for_a_login() -> Result<()> {
    let scratch = Scratch::new("auth")?;
    let open = ["serve", "--listen", "0.0.0.0:0", "--log-level", "error"];
    assert_one_line(&output(&mut handfast(&scratch, &open))?, 2, "--auth requires a login, --insecure allows this");
    let output = output(handfast(&scratch, &open).arg("--auth"))?;
    assert_one_line(&output, 2, "auth (from flag --auth): no user exists, so nobody can log in");
    assert!(add(&scratch, "ann", "root")?.status.success());
    let mut serve = Serve::start(handfast(&scratch, &open).arg("--auth"))?;
    serve.stop("TERM")?;

    let serve = Serve::start(handfast(&scratch, &["serve", "--listen", "127.0.0.1:0"]).env("HANDFAST_AUTH", "true"))?;
    let reply = serve.command(doc! { "find": "c", "$db": "db" })?;
    assert_eq!(reply.get_str("errmsg")?, "Command find requires authentication");
    assert_eq!(serve.command(doc! { "hello": 1, "$db": "admin" })?.get_f64("ok")?, 1.0);
    let taken = add(&scratch, "bob", "root")?;
    assert_one_line(&taken, 1, "is in use by");
    Ok(())
}

#[test]
fn a_bad_certificate_is_one_line_that_names_the_flag() -> Result<()> {
    let scratch = Scratch::new("tls")?;
    std::fs::write(scratch.path("nonsense"), "nonsense")?;
    let serve = ["serve", "--listen", "127.0.0.1:0", "--log-level", "error"];
    for (arguments, code, expected) in [
        (&["--tls-key", "nonsense"][..], 2, "tls-key (from flag --tls-key): it needs tls-certificate, too"),
        (&["--tls-certificate", "nonsense"], 2, "(from flag --tls-certificate): it needs tls-key, too"),
        (
            &["--tls-client-ca", "nonsense"],
            2,
            "tls-client-ca (from flag --tls-client-ca): it needs tls-certificate and",
        ),
        (
            &["--tls-certificate", "nonsense", "--tls-key", "nonsense"],
            2,
            "tls-certificate (from flag --tls-certificate): nonsense: there is no certificate",
        ),
        (
            &["--tls-certificate", "nowhere", "--tls-key", "nonsense"],
            1,
            "tls-certificate (from flag --tls-certificate): nowhere: it cannot be read: No such file",
        ),
    ] {
        assert_one_line(&output(handfast(&scratch, &serve).args(arguments))?, code, expected);
    }
    assert!(!scratch.path("handfast-data").exists(), "nothing was made");
    Ok(())
}
