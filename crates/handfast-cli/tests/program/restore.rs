//! Restores that fail or are killed.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::process::{Command, Stdio};

use anyhow::{Result, ensure};
use bson::{RawDocumentBuf, rawdoc};

use crate::support::{Scratch, assert_one_line, finish, handfast, signal};

/// A number of documents that exceeds a batch of a restore.
const DOCUMENTS: i32 = 1500;

fn document(n: i32) -> RawDocumentBuf {
    rawdoc! { "_id": n, "text": "x" }
}

fn documents(out: &mut impl Write, count: i32) -> std::io::Result<()> {
    (0..count).try_for_each(|n| out.write_all(document(n).as_bytes()))
}

/// Makes a dump of three collections, the second of which is given by the caller.
fn dump(name: &str) -> Result<Scratch> {
    let scratch = Scratch::new(name)?;
    fs::create_dir_all(scratch.path("dump/shop"))?;
    for collection in ["a", "c"] {
        documents(&mut File::create(scratch.path(&format!("dump/shop/{collection}.bson")))?, 3)?;
    }
    Ok(scratch)
}

#[test]
fn a_restore_that_is_interrupted_says_how_far_it_came_and_how_to_go_on() -> Result<()> {
    let scratch = dump("interrupted")?;
    let mut torn = Vec::new();
    documents(&mut torn, DOCUMENTS)?;
    torn.pop();
    fs::write(scratch.path("dump/shop/b.bson"), &torn)?;
    let restore = ["restore", "--data", "data", "--from", "dump"];
    let output = handfast(&scratch, &restore).output()?;
    let far = "interrupted: restored are shop.a (3 documents); 1000 documents of shop.b are restored; collections not begun: 1";
    assert_one_line(&output, 1, far);
    assert_one_line(
        &output,
        1,
        "cannot restore shop.b: dump/shop/b.bson: document 1500: the file ends within a document",
    );
    assert_one_line(&output, 1, "; repeat the command when the cause is removed: ");

    // The command of the message succeeds when the cause is removed.
    documents(&mut File::create(scratch.path("dump/shop/b.bson"))?, DOCUMENTS)?;
    let output = handfast(&scratch, &restore).arg("--drop").output()?;
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(String::from_utf8(output.stdout)?.starts_with("restored 1506 documents"));
    Ok(())
}

#[test]
fn a_restore_that_is_stopped_says_how_far_it_came() -> Result<()> {
    let scratch = dump("stopped")?;
    let pipe = scratch.path("dump/shop/b.bson");
    ensure!(Command::new("mkfifo").arg(&pipe).status()?.success(), "mkfifo");
    let mut command = handfast(&scratch, &["restore", "--data", "data", "--from", "dump"]);
    let restore = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
    // The collection has no end, until the reader goes away.
    let id = restore.id();
    let writer = std::thread::spawn(move || -> Result<i32> {
        let mut out = std::io::BufWriter::new(OpenOptions::new().write(true).open(pipe)?);
        for n in 0.. {
            if n == 10_000 {
                signal(id, "TERM")?;
            }
            if out.write_all(document(n).as_bytes()).is_err() {
                return Ok(n);
            }
        }
        Ok(0)
    });
    let output = finish(restore)?;
    let said = String::from_utf8(output.stderr)?;
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("interrupted: restored are shop.a (3 documents); "), "{said}");
    assert!(said.contains(" documents of shop.b are restored"), "{said}");
    // The writer is joined only now: it would wait for ever to open a pipe without a reader.
    assert!(writer.join().is_ok_and(|written| written.is_ok_and(|written| written > 10_000)), "{said}");
    assert!(said.contains("; collections not begun: 1; repeat the command to continue: "), "{said}");
    assert!(said.contains("stopped before the end"), "{said}");
    Ok(())
}

#[test]
fn a_dump_makes_the_directories_above_and_removes_what_a_killed_one_left() -> Result<()> {
    let scratch = dump("dump-left")?;
    assert_eq!(handfast(&scratch, &["restore", "--data", "data", "--from", "dump"]).output()?.status.code(), Some(0));
    let left = scratch.path("deep/er/out.unfinished");
    let again = || handfast(&scratch, &["dump", "--data", "data", "--to", "deep/er/out"]).output();
    assert_eq!(again()?.status.code(), Some(0));
    assert!(scratch.path("deep/er/out/shop/a.bson").exists() && !left.exists());

    // Files that belong to no dump stay, and so do files that another program writes.
    fs::remove_dir_all(scratch.path("deep/er/out"))?;
    fs::create_dir_all(left.join("shop"))?;
    fs::write(left.join("shop/mine.txt"), "mine")?;
    assert_one_line(&again()?, 1, "out.unfinished is not an interrupted dump");
    fs::rename(left.join("shop/mine.txt"), left.join("shop/mine.bson"))?;
    let held = File::open(&left)?;
    held.lock()?;
    assert_one_line(&again()?, 1, "another dump is being written to deep/er/out.unfinished");
    drop(held);
    assert_eq!(again()?.status.code(), Some(0));
    assert!(!left.exists() && !scratch.path("deep/er/out/shop/mine.bson").exists());
    Ok(())
}

#[test]
fn what_is_not_in_a_dump_is_told_with_what_is() -> Result<()> {
    let scratch = dump("misspelt")?;
    let restore =
        |more: &[&str]| anyhow::Ok(handfast(&scratch, &[&["restore", "--data", "data"][..], more].concat()).output()?);
    for (more, code, expected) in [
        (&["--from", "dump", "--database", "shp"][..], 1, "there is no database 'shp'; there is shop"),
        (&["--from", "dump", "--database", "shop", "--collection", "b"], 1, "there is no 'b' in shop; there are a, c"),
        (&["--from", "nowhere"], 1, "--from: cannot read nowhere: No such file"),
        (
            &["--from", "dump/shop"],
            1,
            "--from: nothing to restore in dump/shop: a dump has a directory for each database",
        ),
        (&["--from", "dump/shop/a.bson"], 2, "dump/shop/a.bson is a file: name the directory that `dump` wrote"),
    ] {
        assert_one_line(&restore(more)?, code, expected);
    }
    assert!(!scratch.path("data").exists());
    assert_eq!(restore(&["--from", "dump"])?.status.code(), Some(0));
    fs::remove_file(scratch.path("dump/shop/c.bson"))?;
    documents(&mut File::create(scratch.path("dump/shop/a.bson"))?, 5)?;
    let again = restore(&["--from", "dump", "--json"])?;
    assert_one_line(&again, 1, "restored 2 documents, refused 3; the first: shop.a: E11000");
    let report: serde_json::Value = serde_json::from_slice(&again.stdout)?;
    assert_eq!((&report["documents"], &report["refused"]), (&2.into(), &3.into()), "{report}");
    assert!(report["first"].as_str().is_some_and(|first| first.starts_with("shop.a: E11000")), "{report}");
    assert_one_line(&restore(&["--from", "dump"])?, 1, "; --drop drops each collection before it is restored");
    Ok(())
}
