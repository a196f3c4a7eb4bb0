//! Data directories that are damaged, or cannot be written to.

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use bson::{Document, doc, rawdoc};
use handfast_embedded::{EmbeddedStore, Options};
use handfast_store::{DocumentStore, IndexSpec, Insert, Namespace, Sources, StoreExt};

use serde_json::Value;

use crate::support::{FREE_PORT, Scratch, Serve, assert_one_line, handfast, mounts_or_says_why_not};

const DOCUMENTS: i32 = 3000;

/// Makes a directory `data` with a collection, `shop.orders`, whose first documents are in data files, and a second
/// collection.
fn with_data_files(name: &str) -> Result<Scratch> {
    let scratch = Scratch::new(name)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let store = EmbeddedStore::open(scratch.path("data"), Sources::seeded(1), Options::small()).await?;
        let orders: Vec<_> =
            (0..DOCUMENTS).map(|n| rawdoc! { "_id": n, "text": format!("{n} ").repeat(100) }).collect();
        for part in orders.chunks(100) {
            store.insert(Insert::new(Namespace::new("shop", "orders")?, part.to_vec())).await?;
        }
        store.insert(Insert::new(Namespace::new("shop", "users")?, vec![rawdoc! { "_id": 1 }])).await?;
        store.close().await?;
        Ok::<_, anyhow::Error>(())
    })?;
    Ok(scratch)
}

/// Returns the data files of the documents, the largest last.
fn data_files(scratch: &Scratch) -> Result<Vec<PathBuf>> {
    data_files_of(scratch, 1)
}

/// Returns the data files of the documents (1) or of the indexes (2).
fn data_files_of(scratch: &Scratch, map: u32) -> Result<Vec<PathBuf>> {
    let files = std::fs::read_dir(scratch.path(&format!("data/engine/keyspaces/{map}/tables")))?;
    let mut files = files.map(|file| Ok(file?.path())).collect::<Result<Vec<_>>>()?;
    files.sort_by_key(|file| std::fs::metadata(file).map_or(0, |metadata| metadata.len()));
    Ok(files)
}

/// Flips a bit at `hundredths` / 100 of a file's length.
fn damage(file: &Path, hundredths: usize) -> Result<()> {
    let mut bytes = std::fs::read(file)?;
    let at = bytes.len() * hundredths / 100;
    bytes[at] ^= 1;
    Ok(std::fs::write(file, bytes)?)
}

/// Returns the number of dumped documents.
fn dumped(scratch: &Scratch) -> Result<u64> {
    let dumped = std::fs::read(scratch.path("dump/shop/orders.bson"))?;
    let (mut documents, mut rest) = (0, &dumped[..]);
    while let Some(length) = rest.first_chunk::<4>() {
        rest = &rest[usize::try_from(i32::from_le_bytes(*length))?..];
        documents += 1;
    }
    Ok(documents)
}

#[test]
fn what_the_journal_has_of_a_damaged_collection_is_dumped_if_asked_to() -> Result<()> {
    let scratch = with_data_files("skip-damaged")?;
    let whole = handfast(&scratch, &["dump", "--data", "data", "--to", "whole", "--skip-damaged"]).output()?;
    assert_eq!(whole.status.code(), Some(0), "nothing is damaged yet: {whole:?}");
    let file = data_files(&scratch)?.pop().context("there is a data file")?;
    damage(&file, 50)?;

    let refused = handfast(&scratch, &["dump", "--data", "data", "--to", "dump"]).output()?;
    assert_one_line(&refused, 3, "cannot dump shop.orders: damaged data: shop.orders: ");
    assert_one_line(&refused, 3, "; --skip-damaged writes what can be read");
    assert!(!scratch.path("dump").exists());

    let output = handfast(&scratch, &["dump", "--data", "data", "--to", "dump", "--skip-damaged"]).output()?;
    assert_one_line(&output, 3, "handfast: skipped in shop.orders: documents between _id ");
    let name = file.file_name().and_then(|name| name.to_str()).context("a name")?;
    assert_one_line(&output, 3, &format!("tables/{name}: a block does not have the checksum"));
    assert_one_line(&output, 3, " of them were recovered from another data file or the journal");
    let said = String::from_utf8(output.stdout)?;
    assert!(said.contains("; no document is left out: the damaged ones were found elsewhere, too"), "{said}");
    assert_eq!(dumped(&scratch)?, u64::try_from(DOCUMENTS)?);
    assert!(scratch.path("dump/shop/users.bson").exists(), "the collection behind it is there");

    let check = handfast(&scratch, &["check", "--data", "data"]).output()?;
    assert_eq!(check.status.code(), Some(3));
    let said = String::from_utf8(check.stdout)?;
    assert!(said.contains("found: shop.orders: documents between _id"), "{said}");
    assert!(said.contains(&format!("{DOCUMENTS} of {DOCUMENTS} documents can be read")), "{said}");
    assert!(said.contains("to do: restore a backup, or write the readable documents"), "{said}");
    let check = handfast(&scratch, &["check", "--data", "data", "--json"]).output()?;
    assert_eq!(check.status.code(), Some(3));
    let report: Value = serde_json::from_slice(&check.stdout)?;
    let finding = &report["findings"][0];
    assert_eq!(finding["remedy"], "none", "{report}");
    for (field, text) in
        [("text", "shop.orders: documents between _id"), ("to_do", "restore a backup, or write the readable documents")]
    {
        assert!(finding[field].as_str().is_some_and(|said| said.starts_with(text)), "{report}");
    }
    Ok(())
}

/// Writes large documents until the journal has dropped the first ones. Returns the number of documents.
fn with_more_than_the_journal_keeps(scratch: &Scratch) -> Result<u64> {
    const DOCUMENTS_MAX: i32 = 2000;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let store = EmbeddedStore::open(scratch.path("data"), Sources::seeded(1), Options::small()).await?;
        let orders = Namespace::new("shop", "orders")?;
        let mut written = 0;
        while scratch.path("data/engine/0.jnl").exists() {
            ensure!(written < DOCUMENTS_MAX, "the journal keeps everything");
            let document = |n: i32| rawdoc! { "_id": n, "text": format!("{n} ").repeat(100_000) };
            store.insert(Insert::new(orders.clone(), (written..written + 10).map(document).collect())).await?;
            written += 10;
        }
        store.close().await?;
        Ok(u64::try_from(written)?)
    })
}

#[test]
fn a_damaged_collection_is_dumped_without_what_is_damaged_if_asked_to() -> Result<()> {
    let scratch = Scratch::new("left-out")?;
    let written = with_more_than_the_journal_keeps(&scratch)?;
    // The first documents are at the beginning of a file.
    for file in data_files(&scratch)? {
        damage(&file, 1)?;
    }
    let output = handfast(&scratch, &["dump", "--data", "data", "--to", "dump", "--skip-damaged"]).output()?;
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let said = String::from_utf8(output.stdout)?;
    let dumped = dumped(&scratch)?;
    assert!(dumped < written && dumped > written / 2, "{dumped} of {written}");
    let missing = format!("; {} documents are damaged and left out", written - dumped);
    assert!(said.contains(&missing), "{said}");
    let flags = ["dump", "--data", "data", "--to", "other", "--skip-damaged", "--json"];
    let report: Value = serde_json::from_slice(&handfast(&scratch, &flags).output()?.stdout)?;
    assert_eq!(report["documents_missing"], written - dumped, "{report}");
    Ok(())
}

/// The server starts with the damaged index, serves all requests that do not need it, and reports the damage through the
/// protocol, with the index.
#[test]
fn a_damaged_index_is_told_by_validate_and_built_anew_by_a_repair() -> Result<()> {
    let scratch = with_data_files("damaged-index")?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let store = EmbeddedStore::open(scratch.path("data"), Sources::seeded(1), Options::small()).await?;
        let orders = Namespace::new("shop", "orders")?;
        store.create_index(&orders, IndexSpec::new(rawdoc! { "text": 1 })).await?;
        store.close().await
    })?;
    let validate = || -> Result<Document> {
        let serve = Serve::start(handfast(&scratch, &FREE_PORT).args(["--data", "data"]))?;
        let reply = serve.command(doc! { "validate": "orders", "$db": "shop" })?;
        assert_eq!(reply.get_f64("ok")?, 1.0, "{reply}");
        let users = serve.command(doc! { "validate": "users", "$db": "shop" })?;
        assert!(users.get_bool("valid")?, "{users}");
        // The documents are undamaged.
        let count = serve.command(doc! { "count": "orders", "query": { "_id": { "$gte": 0 } }, "$db": "shop" })?;
        assert_eq!(count.get_i32("n")?, DOCUMENTS, "{count}");
        Ok(reply)
    };
    let is_valid = |reply: &Document, index: &str| -> Result<bool> {
        Ok(reply.get_document("indexDetails")?.get_document(index)?.get_bool("valid")?)
    };
    let whole = validate()?;
    assert!(whole.get_bool("valid")? && is_valid(&whole, "text_1")?, "{whole}");
    assert_eq!(whole.get_document("keysPerIndex")?, &doc! { "_id_": DOCUMENTS, "text_1": DOCUMENTS });

    damage(&data_files_of(&scratch, 2)?.pop().context("there is a data file")?, 50)?;
    let damaged = validate()?;
    assert!(!damaged.get_bool("valid")?, "{damaged}");
    assert_eq!((is_valid(&damaged, "_id_")?, is_valid(&damaged, "text_1")?), (true, false), "{damaged}");
    assert_eq!((damaged.get_i32("nrecords")?, damaged.get_i32("nInvalidDocuments")?), (DOCUMENTS, 0), "{damaged}");
    let errors = damaged.get_array("errors")?;
    assert!(errors.iter().any(|error| error.as_str().is_some_and(|text| text.contains("text_1"))), "{damaged}");

    let repair = handfast(&scratch, &["check", "--data", "data", "--repair"]).output()?;
    assert_eq!(repair.status.code(), Some(3), "{repair:?}");
    let repaired = validate()?;
    assert!(repaired.get_bool("valid")? && is_valid(&repaired, "text_1")?, "{repaired}");
    assert_eq!(repaired.get_document("keysPerIndex")?, whole.get_document("keysPerIndex")?);
    Ok(())
}

#[test]
fn a_lost_witness_is_refused_and_a_repair_takes_what_is_there() -> Result<()> {
    let scratch = with_data_files("lost-witness")?;
    std::fs::remove_file(scratch.path("data/witness"))?;
    let dump = handfast(&scratch, &["dump", "--data", "data", "--to", "dump"]).output()?;
    assert_one_line(&dump, 3, "the file witness, which knows the last synced batch, is missing; run `handfast check");
    let check = handfast(&scratch, &["check", "--data", "data"]).output()?;
    assert_eq!(check.status.code(), Some(3), "{check:?}");
    let said = String::from_utf8(check.stdout)?;
    assert!(said.contains("to do: --repair accepts the present data"), "{said}");
    let check = handfast(&scratch, &["check", "--data", "data", "--json"]).output()?;
    let report: Value = serde_json::from_slice(&check.stdout)?;
    let finding = &report["findings"][0];
    assert_eq!(finding["remedy"], "write-witness", "{report}");
    assert!(finding["to_do"].as_str().is_some_and(|text| said.contains(&format!("to do: {text}\n"))), "{report}");
    let repair = handfast(&scratch, &["check", "--data", "data", "--repair"]).output()?;
    assert_eq!(repair.status.code(), Some(3), "{repair:?}");
    let said = String::from_utf8(repair.stdout)?;
    assert!(said.contains("later synced batches may be missing"), "{said}");
    assert_eq!(handfast(&scratch, &["check", "--data", "data"]).output()?.status.code(), Some(0));
    Ok(())
}

#[test]
fn whoever_asks_about_a_lost_format_file_is_not_sent_in_a_circle() -> Result<()> {
    let scratch = with_data_files("lost-format")?;
    let check = |repair: &[&str]| -> Result<(Option<i32>, String)> {
        let output = handfast(&scratch, &["check", "--data", "data"]).args(repair).output()?;
        Ok((output.status.code(), String::from_utf8(output.stdout)?))
    };
    std::fs::remove_file(scratch.path("data/FORMAT"))?;
    let dump = handfast(&scratch, &["dump", "--data", "data", "--to", "dump"]).output()?;
    assert_one_line(&dump, 3, "the file FORMAT is missing; run `handfast check");
    let (code, said) = check(&[])?;
    assert!(code == Some(3) && said.contains("to do: --repair writes FORMAT again"), "{said}");
    let (code, said) = check(&["--repair"])?;
    assert!(code == Some(3) && said.contains("repaired: wrote the file FORMAT anew"), "{said}");
    assert_eq!(check(&[])?.0, Some(0));

    for lost in ["FORMAT", "witness"] {
        std::fs::remove_file(scratch.path("data").join(lost))?;
    }
    for repair in [&[][..], &["--repair"]] {
        let (code, said) = check(repair)?;
        assert!(code == Some(3) && said.contains("to do: restore a backup"), "{said}");
        assert!(!said.contains("run `handfast check"), "{said}");
    }
    Ok(())
}

/// Returns the program, run so that it cannot write to the data directory.
fn read_only(scratch: &Scratch, arguments: &[&str]) -> Result<Command> {
    let data = scratch.path("data");
    let mount = "mount --bind \"$0\" \"$0\" && mount -o remount,bind,ro \"$0\"";
    if mounts_or_says_why_not(mount, &data)? {
        let mut command = Command::new("unshare");
        let script = format!("{mount} && shift && exec \"$@\"");
        command.args(["-rm", "sh", "-c", &script]).arg(&data).arg("-").arg(env!("CARGO_BIN_EXE_handfast"));
        command.args(arguments).current_dir(scratch.path(""));
        return Ok(command);
    }
    let chmod = Command::new("chmod").args(["-R", "a+rX,a-w"]).arg(&data).status()?;
    ensure!(chmod.success(), "chmod: {chmod}");
    let mut command = handfast(scratch, arguments);
    if std::fs::write(data.join("probe"), "").is_ok() {
        // Root may write to any directory, so the program runs as nobody.
        std::fs::remove_file(data.join("probe"))?;
        command.uid(65534).gid(65534);
    }
    Ok(command)
}

#[test]
fn a_directory_that_cannot_be_written_to_is_one_line_that_says_what_to_do() -> Result<()> {
    let scratch = with_data_files("damage-read-only")?;
    for arguments in [&["check"][..], &["dump", "--to", "t"], &["backup", "--to", "t"]] {
        let output = read_only(&scratch, &[arguments, &["--data", "data"]].concat())?.output()?;
        assert_one_line(&output, 1, "the directory data cannot be written to (");
        assert_one_line(&output, 1, "; copy it to a place where this user may write, and name the copy with --data");
        assert!(!scratch.path("t").exists());
    }
    Ok(())
}
