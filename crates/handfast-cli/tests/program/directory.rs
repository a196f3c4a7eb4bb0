//! The commands on a data directory: check, dump, restore, backup.

use std::path::Path;

use anyhow::{Context, Result};
use bson::{Bson, doc};

use crate::support::{Scratch, Serve, assert_one_line, handfast, output};

/// Makes a directory `data` with two collections, three documents and an index.
fn with_data(name: &str) -> Result<Scratch> {
    let scratch = Scratch::new(name)?;
    let mut serve = serve(&scratch, "data")?;
    let created = serve.command(doc! {
        "createIndexes": "öl", "$db": "shop",
        "indexes": [{ "key": { "z": 1, "a": -1 }, "name": "by_z", "unique": true, "sparse": true }],
    })?;
    assert_eq!(created.get_f64("ok").ok(), Some(1.0), "{created}");
    let documents = vec![
        doc! { "_id": 1, "z": 1_i64, "a": [1.5, { "b": Bson::Null }], "date": bson::DateTime::from_millis(5) },
        doc! { "_id": "two", "z": 2 },
    ];
    for (collection, documents) in [("öl", documents), ("plain", vec![doc! { "_id": 1 }])] {
        let inserted = serve.command(doc! { "insert": collection, "documents": documents, "$db": "shop" })?;
        assert_eq!(inserted.get_f64("ok").ok(), Some(1.0), "{inserted}");
        assert!(inserted.get("writeErrors").is_none(), "{inserted}");
    }
    serve.stop("TERM")?;
    Ok(scratch)
}

fn serve(scratch: &Scratch, data: &str) -> Result<Serve> {
    Serve::start(&mut handfast(scratch, &["serve", "--listen", "127.0.0.1:0", "--data", data]))
}

/// Runs a command that must succeed, and returns its report.
fn report(scratch: &Scratch, arguments: &[&str]) -> Result<serde_json::Value> {
    let output = handfast(scratch, arguments).arg("--json").output()?;
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Returns all documents and the names of all indexes of a directory, as a server shows them.
fn content(scratch: &Scratch, data: &str) -> Result<Vec<Bson>> {
    let mut serve = serve(scratch, data)?;
    let mut all = Vec::new();
    for (command, collection) in [("find", "öl"), ("find", "plain"), ("listIndexes", "öl")] {
        let reply = serve.command(doc! { command: collection, "$db": "shop" })?;
        let batch = reply.get_document("cursor").and_then(|cursor| cursor.get_array("firstBatch"));
        all.extend(batch.with_context(|| reply.to_string())?.iter().cloned());
    }
    serve.stop("TERM")?;
    Ok(all)
}

#[test]
fn a_sound_directory_is_sound() -> Result<()> {
    let scratch = with_data("check")?;
    let report = report(&scratch, &["check", "--data", "data"])?;
    assert_eq!(report["documents"], 3, "{report}");
    let output = handfast(&scratch, &["check", "--data", "data", "--quiet"]).output()?;
    assert_eq!((output.status.code(), output.stdout.len()), (Some(0), 0));
    Ok(())
}

#[test]
fn damage_is_exit_code_3() -> Result<()> {
    let scratch = with_data("damage")?;
    let damaged = flip_a_bit_of(&scratch.path("data"), b"two")?;
    assert!(damaged > 0, "the document is on disk");
    let output = handfast(&scratch, &["check", "--data", "data"]).output()?;
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    Ok(())
}

/// Flips a bit in every occurrence of these bytes in every file; returns the number of occurrences.
fn flip_a_bit_of(directory: &Path, needle: &[u8]) -> Result<usize> {
    let mut places = 0;
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            places += flip_a_bit_of(&path, needle)?;
            continue;
        }
        let mut bytes = std::fs::read(&path)?;
        let found: Vec<usize> =
            bytes.windows(needle.len()).enumerate().filter(|(_, window)| *window == needle).map(|(at, _)| at).collect();
        for at in &found {
            bytes[*at] ^= 1;
        }
        if !found.is_empty() {
            std::fs::write(&path, bytes)?;
            places += found.len();
        }
    }
    Ok(places)
}

#[test]
fn what_is_dumped_is_restored() -> Result<()> {
    let scratch = with_data("dump")?;
    let expected = content(&scratch, "data")?;
    for format in ["bson", "json"] {
        let (files, copy) = (format!("dump-{format}"), format!("copy-{format}"));
        let mut dumped = report(&scratch, &["dump", "--data", "data", "--to", &files, "--format", format])?;
        assert_eq!((&dumped["documents"], &dumped["collections"]), (&3.into(), &2.into()));
        for lost in ["skipped", "documents_missing"] {
            assert_eq!(dumped.as_object_mut().and_then(|dumped| dumped.remove(lost)), Some(0.into()));
        }
        assert!(scratch.path(&files).join(format!("shop/%C3%B6l.{format}")).exists());
        let mut restored = report(&scratch, &["restore", "--data", &copy, "--from", &files])?;
        let mut left_out = |name| restored.as_object_mut().and_then(|restored| restored.remove(name));
        assert_eq!((left_out("refused"), left_out("first")), (Some(0.into()), Some(serde_json::Value::Null)));
        assert_eq!(restored, dumped);
        assert_eq!(content(&scratch, &copy)?, expected, "{format}");

        // In a second restore every document exists already.
        let output = handfast(&scratch, &["restore", "--data", &copy, "--from", &files]).output()?;
        assert_one_line(&output, 1, "restored 0 documents, refused 3; the first: shop.");
        // A restore with --drop succeeds again.
        report(&scratch, &["restore", "--data", &copy, "--from", &files, "--drop"])?;
        assert_eq!(content(&scratch, &copy)?, expected, "{format}");
    }
    Ok(())
}

#[test]
fn a_selection_is_dumped_alone() -> Result<()> {
    let scratch = with_data("selection")?;
    let selection = ["--database", "shop", "--collection", "plain"];
    let dumped = report(&scratch, &[&["dump", "--data", "data", "--to", "dump"], &selection[..]].concat())?;
    assert_eq!((&dumped["documents"], &dumped["collections"]), (&1.into(), &1.into()));
    let none = ["--database", "shop", "--collection", "öl"];
    let arguments = [&["restore", "--data", "copy", "--from", "dump"], &none[..]].concat();
    assert_one_line(&handfast(&scratch, &arguments).output()?, 1, "nothing to restore in dump");
    assert!(!scratch.path("copy").exists(), "nothing was made");
    Ok(())
}

#[test]
fn a_selection_that_is_not_there_is_no_dump() -> Result<()> {
    let scratch = with_data("no-selection")?;
    for (selection, expected) in [
        (&["--database", "nosuch"][..], "there is no database 'nosuch'; there is shop"),
        (&["--database", "shop", "--collection", "x"], "there is no collection 'x' in shop; there are plain, öl"),
    ] {
        let output = handfast(&scratch, &["dump", "--data", "data", "--to", "t"]).args(selection).output()?;
        assert_one_line(&output, 1, expected);
        assert!(!scratch.path("t").exists(), "nothing was made");
    }
    Ok(())
}

#[test]
fn a_backup_is_opened_like_the_original() -> Result<()> {
    let scratch = with_data("backup")?;
    report(&scratch, &["backup", "--data", "data", "--to", "backup"])?;
    assert_eq!(content(&scratch, "backup")?, content(&scratch, "data")?);
    report(&scratch, &["check", "--data", "backup"])?;
    Ok(())
}

#[test]
fn nothing_is_written_over() -> Result<()> {
    let scratch = with_data("full-target")?;
    std::fs::create_dir(scratch.path("target"))?;
    std::fs::write(scratch.path("target/mine"), "")?;
    for command in ["dump", "backup"] {
        let output = handfast(&scratch, &[command, "--data", "data", "--to", "target"]).output()?;
        assert_one_line(&output, 2, "target is not empty");
    }
    assert_eq!(std::fs::read_dir(scratch.path("target"))?.count(), 1);
    Ok(())
}

#[test]
fn nothing_is_written_into_the_directory_that_is_read() -> Result<()> {
    let scratch = with_data("into-itself")?;
    std::os::unix::fs::symlink("data", scratch.path("link"))?;
    let entries = |directory: &str| -> Result<usize> { Ok(std::fs::read_dir(scratch.path(directory))?.count()) };
    let (before, beside) = (entries("data")?, entries("")?);
    for to in ["data", "data/copy", "data/engine/deep/copy", "./data/../data/copy", "link/copy"] {
        for command in ["dump", "backup"] {
            let output = handfast(&scratch, &[command, "--data", "data", "--to", to]).output()?;
            let expected =
                format!("{to} is within the data directory data; choose a directory outside of it with --to");
            assert_one_line(&output, 2, &expected);
        }
    }
    assert_eq!((entries("data")?, entries("")?), (before, beside));
    // A directory whose name begins with that of the data directory is outside of it.
    report(&scratch, &["backup", "--data", "data", "--to", "data-copy"])?;
    Ok(())
}

#[test]
fn a_directory_that_is_not_there_is_not_made() -> Result<()> {
    let scratch = Scratch::new("absent")?;
    for arguments in [&["check"][..], &["dump", "--to", "t"], &["backup", "--to", "t"]] {
        let output = handfast(&scratch, arguments).args(["--data", "absent"]).output()?;
        assert_one_line(&output, 1, "absent");
        assert!(!scratch.path("absent").exists());
        assert!(!scratch.path("t").exists());
    }
    Ok(())
}

#[test]
fn no_store_is_made_in_an_empty_directory() -> Result<()> {
    let scratch = Scratch::new("empty")?;
    std::fs::create_dir(scratch.path("empty"))?;
    for arguments in [&["check"][..], &["dump", "--to", "t"], &["backup", "--to", "t"]] {
        let output = handfast(&scratch, arguments).args(["--data", "empty"]).output()?;
        assert_one_line(&output, 1, "holds no handfast store");
        assert!(std::fs::read_dir(scratch.path("empty"))?.next().is_none());
        assert!(!scratch.path("t").exists());
    }
    Ok(())
}

#[test]
fn a_directory_in_use_is_one_line() -> Result<()> {
    let scratch = Scratch::new("in-use")?;
    let _serve = serve(&scratch, "data")?;
    for arguments in [&["check"][..], &["dump", "--to", "t"], &["backup", "--to", "t"]] {
        let output = handfast(&scratch, arguments).args(["--data", "data"]).output()?;
        assert_one_line(&output, 1, "is in use by");
        assert_one_line(&output, 1, "on a running server, `backup --uri` makes a backup, mongodump a dump");
    }
    Ok(())
}

#[test]
fn a_file_is_no_data_directory_and_a_full_directory_no_place_for_a_copy() -> Result<()> {
    let scratch = Scratch::new("no-directory")?;
    std::fs::write(scratch.path("file"), "")?;
    let output = output(&mut handfast(&scratch, &["serve", "--port", "0", "--data", "file"]))?;
    assert_one_line(&output, 1, "file is not a directory; choose another directory with --data");
    drop(serve(&scratch, "data")?);
    std::fs::create_dir(scratch.path("full"))?;
    std::fs::write(scratch.path("full/mine"), "")?;
    for arguments in [&["dump", "--to", "full"][..], &["backup", "--to", "full"]] {
        let output = handfast(&scratch, arguments).args(["--data", "data"]).output()?;
        assert_one_line(&output, 2, "full is not empty; choose another directory with --to");
    }
    Ok(())
}
