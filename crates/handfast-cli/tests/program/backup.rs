//! `handfast backup` of a running server, with concurrent writers.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Output;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use anyhow::{Context, Result, ensure};
use bson::spec::BinarySubtype;
use bson::{Binary, Bson, Document, doc};
use serde_json::Value;

use crate::support::{Scratch, Serve, assert_one_line, handfast};

const WITH_BACKUPS: [&str; 7] =
    ["serve", "--listen", "127.0.0.1:0", "--data", "data", "--backup-directory", "deep/backups"];
const WRITERS: u8 = 4;
/// The maximal number of backups until one has concurrent writes.
const TRIES: u32 = 20;

/// Runs `handfast backup` at the server.
fn backup(scratch: &Scratch, serve: &Serve, name: &str) -> Result<Output> {
    let uri = format!("mongodb://{}/", serve.address()?);
    Ok(handfast(scratch, &["backup", "--uri", &uri, name, "--json"]).output()?)
}

/// Runs a command that must succeed, and returns the reply.
fn done(serve: &Serve, command: Document) -> Result<Document> {
    let reply = serve.command(command)?;
    ensure!(reply.get_f64("ok").ok() == Some(1.0) && !reply.contains_key("writeErrors"), "{reply}");
    Ok(reply)
}

/// Inserts the same document into two collections, in one transaction.
fn write_both(serve: &Serve, writer: u8, number: i64) -> Result<()> {
    let session = Binary { subtype: BinarySubtype::Uuid, bytes: vec![writer; 16] };
    let within = |mut command: Document, database: &str| {
        command.extend(doc! { "lsid": { "id": &session }, "txnNumber": number, "autocommit": false, "$db": database });
        command
    };
    for collection in ["left", "right"] {
        let document = doc! { "_id": { "w": i32::from(writer), "n": number }, "w": i32::from(writer), "n": number };
        let mut command = within(doc! { "insert": collection, "documents": [document] }, "shop");
        if collection == "left" {
            command.insert("startTransaction", true);
        }
        done(serve, command)?;
    }
    done(serve, within(doc! { "commitTransaction": 1 }, "admin"))?;
    Ok(())
}

/// Returns for each writer the number of its documents in a collection, and the highest number in them.
fn written(serve: &Serve, collection: &str) -> Result<Vec<(i64, i64)>> {
    let group = doc! { "$group": { "_id": "$w", "count": { "$sum": 1_i64 }, "last": { "$max": "$n" } } };
    let pipeline = [group, doc! { "$sort": { "_id": 1 } }];
    let reply =
        done(serve, doc! { "aggregate": collection, "pipeline": pipeline.to_vec(), "cursor": {}, "$db": "shop" })?;
    let rows = reply.get_document("cursor")?.get_array("firstBatch")?;
    let row = |row: &Bson| {
        let row = row.as_document().context("a row")?;
        Ok((row.get_i64("count")?, row.get_i64("last")?))
    };
    rows.iter().map(row).collect()
}

#[test]
fn a_running_server_is_copied_as_it_was_at_one_moment() -> Result<()> {
    let scratch = Scratch::new("backup-running")?;
    let mut serve = Serve::start(&mut handfast(&scratch, &WITH_BACKUPS))?;
    for collection in ["left", "right"] {
        let indexes = [doc! { "key": { "n": 1 }, "name": "by_n" }].to_vec();
        done(&serve, doc! { "createIndexes": collection, "indexes": indexes, "$db": "shop" })?;
    }
    let filling: Vec<_> = (0..2_000).map(|id| doc! { "_id": id, "text": "x".repeat(1_000) }).collect();
    done(&serve, doc! { "insert": "filling", "documents": filling, "$db": "shop" })?;

    let acknowledged: Vec<AtomicI64> = (0..WRITERS).map(|_| AtomicI64::new(0)).collect();
    let numbers = || acknowledged.iter().map(|number| number.load(Ordering::SeqCst)).collect::<Vec<_>>();
    let stop = AtomicBool::new(false);
    let (name, before) = std::thread::scope(|scope| -> Result<_> {
        let writers: Vec<_> = (0..WRITERS)
            .zip(&acknowledged)
            .map(|(writer, acknowledged)| {
                let (serve, stop) = (&serve, &stop);
                scope.spawn(move || -> Result<()> {
                    while !stop.load(Ordering::SeqCst) {
                        let number = acknowledged.load(Ordering::SeqCst) + 1;
                        write_both(serve, writer, number)?;
                        acknowledged.store(number, Ordering::SeqCst);
                    }
                    Ok(())
                })
            })
            .collect();
        let made = backup_beside_writes(&scratch, &serve, &numbers);
        stop.store(true, Ordering::SeqCst);
        for writer in writers {
            writer.join().map_err(|_| anyhow::anyhow!("a writer panicked"))??;
        }
        made
    })?;
    // The server continues to serve.
    assert_eq!(written(&serve, "left")?.iter().map(|(_, last)| *last).collect::<Vec<_>>(), numbers());
    serve.stop("TERM")?;

    let copy = format!("deep/backups/{name}");
    assert_eq!(std::fs::metadata(scratch.path("deep/backups"))?.permissions().mode() & 0o777, 0o700);
    assert_eq!(std::fs::metadata(scratch.path(&copy))?.permissions().mode() & 0o777, 0o700);
    let check = handfast(&scratch, &["check", "--data", &copy, "--json"]).output()?;
    assert_eq!(check.status.code(), Some(0), "{check:?}");

    let opened = Serve::start(&mut handfast(&scratch, &["serve", "--listen", "127.0.0.1:0", "--data", &copy]))?;
    let (left, right) = (written(&opened, "left")?, written(&opened, "right")?);
    assert_eq!(left, right, "no transaction is there by half");
    assert_eq!(left.len(), usize::from(WRITERS));
    for (writer, ((count, last), before)) in left.iter().zip(&before).enumerate() {
        assert_eq!(count, last, "writer {writer}: nothing is missing before the last one");
        assert!(
            last >= before,
            "writer {writer}: {before} were acknowledged before the backup began, {last} are there"
        );
    }
    Ok(())
}

/// Makes a backup during which each writer has written; returns its name, and the numbers that were
/// acknowledged before it.
fn backup_beside_writes(
    scratch: &Scratch,
    serve: &Serve,
    numbers: &dyn Fn() -> Vec<i64>,
) -> Result<(String, Vec<i64>)> {
    for attempt in 0..TRIES {
        let (name, before) = (format!("copy-{attempt}"), numbers());
        let output = backup(scratch, serve, &name)?;
        ensure!(output.status.code() == Some(0), "{output:?}");
        let report: Value = serde_json::from_slice(&output.stdout)?;
        let path = report["path"].as_str().context("a path")?;
        ensure!(path == scratch.path("deep/backups").canonicalize()?.join(&name).to_string_lossy(), "{report}");
        let begun = before.iter().all(|number| *number > 0);
        if begun && before.iter().zip(numbers()).all(|(before, after)| *before < after) {
            return Ok((name, before));
        }
    }
    anyhow::bail!("nobody wrote beside {TRIES} backups")
}

#[test]
fn a_name_is_taken_once() -> Result<()> {
    let scratch = Scratch::new("backup-twice")?;
    let serve = Serve::start(&mut handfast(&scratch, &WITH_BACKUPS))?;
    let uri = format!("mongodb://{}/", serve.address()?);
    // The environment variable names the server as the flag does.
    let first = handfast(&scratch, &["backup", "monday"]).env("HANDFAST_URI", &uri).output()?;
    assert_eq!(first.status.code(), Some(0), "{first:?}");
    let text = String::from_utf8(first.stdout)?;
    assert!(text.starts_with("copied 0 documents and 0 index entries") && text.ends_with("/monday\n"), "{text}");
    assert_one_line(&backup(&scratch, &serve, "monday")?, 2, "there is a backup 'monday' already");
    for name in ["../out", "a/b", "", "monday.unfinished"] {
        assert_one_line(&backup(&scratch, &serve, name)?, 2, "the name of a backup must");
    }
    assert_eq!(std::fs::read_dir(scratch.path("deep/backups"))?.count(), 1);
    Ok(())
}

#[test]
fn without_a_directory_the_server_says_how_to_get_one() -> Result<()> {
    let scratch = Scratch::new("backup-off")?;
    let serve = Serve::start(&mut handfast(&scratch, &["serve", "--listen", "127.0.0.1:0"]))?;
    assert_one_line(&backup(&scratch, &serve, "monday")?, 1, "--backup-directory");
    Ok(())
}

#[test]
fn with_logins_it_takes_root() -> Result<()> {
    let scratch = Scratch::new("backup-roles")?;
    std::fs::write(scratch.path("password"), "secret")?;
    for (user, role) in [("admin", "root"), ("operator", "clusterAdmin")] {
        let flags = ["user", "add", user, "--role", role, "--data", "data", "--password-file", "password"];
        ensure!(handfast(&scratch, &flags).output()?.status.success());
    }
    let serve = Serve::start(handfast(&scratch, &WITH_BACKUPS).arg("--auth"))?;
    let uri = |login: &str| anyhow::Ok(format!("mongodb://{login}{}/", serve.address()?));
    for (login, expected) in [
        (
            "",
            "requires authentication; the server requires a login: add USER:PASSWORD@ to the connection string (HANDFAST_URI)",
        ),
        (
            "admin:wrong-secret@",
            "; the user or the password is wrong, or the user belongs to another database (authSource)",
        ),
        ("operator:secret@", "not authorized on admin"),
    ] {
        let output = handfast(&scratch, &["backup", "--uri", &uri(login)?, "monday"]).output()?;
        assert_one_line(&output, 1, expected);
        assert!(!String::from_utf8_lossy(&output.stderr).contains("secret"), "{output:?}");
    }
    for (login, expected) in
        [("", "to the connection string (HANDFAST_STORE)"), ("admin:wrong@", "; the user or the password is wrong")]
    {
        let output = handfast(&scratch, &["txns", "status", "--store", &uri(login)?]).output()?;
        assert_one_line(&output, 1, expected);
    }
    assert!(!scratch.path("deep/backups/monday").exists());
    let output = handfast(&scratch, &["backup", "--uri", &uri("admin:secret@")?, "monday"]).output()?;
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    Ok(())
}

#[test]
fn what_does_not_fit_together_is_usage() -> Result<()> {
    let scratch = Scratch::new("backup-usage")?;
    for (arguments, expected) in [
        (&["backup"][..], "--to <DIR>|NAME"),
        (&["backup", "monday"], "name the server with --uri or HANDFAST_URI"),
        (&["backup", "monday", "--to", "t"], "cannot be used with"),
        (&["backup", "--uri", "mongodb://h/", "--to", "t"], "cannot be used with"),
        (&["backup", "--uri", "mongodb://h/", "monday", "--data", "d"], "cannot be used with"),
        (&["backup", "--uri", "http://h/", "monday"], "--uri: "),
        (
            &["serve", "--data", "d", "--backup-directory", "d/backups", "--listen", "127.0.0.1:0"],
            "is inside the data directory",
        ),
        (
            &["serve", "--store", "mongodb://h/", "--backup-directory", "b", "--listen", "127.0.0.1:0"],
            "backup-directory (from flag",
        ),
    ] {
        let output = handfast(&scratch, arguments).output()?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
        assert!(stderr.contains(expected), "{arguments:?}: {stderr}");
    }
    assert!(!scratch.path("d/backups").exists() && !scratch.path("b").exists());
    Ok(())
}

#[test]
fn over_tls_a_server_is_known_by_the_name_that_is_dialled() -> Result<()> {
    let scratch = Scratch::new("backup-tls")?;
    // The certificate contains no IP address: a client that connects to 127.0.0.1 would refuse it.
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()])?;
    std::fs::write(scratch.path("server.pem"), made.cert.pem())?;
    std::fs::write(scratch.path("server.key"), made.signing_key.serialize_pem())?;
    let tls = ["--tls-certificate", "server.pem", "--tls-key", "server.key"];
    let serve = Serve::start(handfast(&scratch, &WITH_BACKUPS).args(tls))?;
    let address = serve.address()?.replace("127.0.0.1", "localhost");
    let uri = format!("mongodb://{address}/?tls=true&tlsCAFile=server.pem");
    let output = handfast(&scratch, &["backup", "--uri", &uri, "monday"]).output()?;
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let by_address = uri.replace("localhost", "127.0.0.1");
    let refused = handfast(&scratch, &["backup", "--uri", &by_address, "tuesday"]).output()?;
    assert_one_line(&refused, 1, "no TLS with this server: invalid peer certificate: certificate not valid for name");
    let plain = handfast(&scratch, &["backup", "--uri", &format!("mongodb://{address}/"), "tuesday"]).output()?;
    assert_one_line(&plain, 1, "does it take TLS (tls=true) or not?");
    drop(serve);
    let serve = Serve::start(&mut handfast(&scratch, &WITH_BACKUPS))?;
    let without = format!("mongodb://{}/?tls=true&tlsCAFile=server.pem", serve.address()?);
    let silent = handfast(&scratch, &["backup", "--uri", &without, "tuesday"]).output()?;
    assert_one_line(&silent, 1, "does ");
    Ok(())
}
