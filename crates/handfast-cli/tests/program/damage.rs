//! Data directories that are damaged, or cannot be written to.

use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use bson::rawdoc;
use handfast_embedded::{EmbeddedStore, Options};
use handfast_store::{DocumentStore, Insert, Namespace, Sources};

use crate::support::{Scratch, assert_one_line, handfast, mounts_or_says_why_not};

const DOCUMENTS: i32 = 3000;

/// A directory `data` with a collection, `shop.orders`, whose first documents are in data files, and another one behind it.
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

/// Flips a bit in the middle of the largest data file of the documents.
fn damage_a_block(scratch: &Scratch) -> Result<PathBuf> {
    let files = std::fs::read_dir(scratch.path("data/engine/keyspaces/1/tables"))?;
    let mut files = files.map(|file| Ok(file?.path())).collect::<Result<Vec<_>>>()?;
    files.sort_by_key(|file| std::fs::metadata(file).map_or(0, |metadata| metadata.len()));
    let file = files.pop().context("there is a data file")?;
    let mut bytes = std::fs::read(&file)?;
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&file, bytes)?;
    Ok(file)
}

#[test]
fn a_damaged_collection_is_dumped_without_what_is_damaged_if_asked_to() -> Result<()> {
    let scratch = with_data_files("skip-damaged")?;
    let whole = handfast(&scratch, &["dump", "--data", "data", "--to", "whole", "--skip-damaged"]).output()?;
    assert_eq!(whole.status.code(), Some(0), "nothing is damaged yet: {whole:?}");
    let file = damage_a_block(&scratch)?;

    let refused = handfast(&scratch, &["dump", "--data", "data", "--to", "dump"]).output()?;
    assert_one_line(&refused, 3, "cannot dump shop.orders: damaged data: shop.orders: ");
    assert_one_line(&refused, 3, "; --skip-damaged writes what can be read");
    assert!(!scratch.path("dump").exists());

    let output = handfast(&scratch, &["dump", "--data", "data", "--to", "dump", "--skip-damaged"]).output()?;
    assert_one_line(&output, 3, "handfast: skipped in shop.orders: documents between _id ");
    let name = file.file_name().and_then(|name| name.to_str()).context("a name")?;
    assert_one_line(&output, 3, &format!("tables/{name}: a block does not have the checksum"));
    let said = String::from_utf8(output.stdout)?;
    let dumped = std::fs::read(scratch.path("dump/shop/orders.bson"))?;
    let mut restored = 0;
    let mut rest = &dumped[..];
    while let Some(length) = rest.first_chunk::<4>() {
        rest = &rest[usize::try_from(i32::from_le_bytes(*length))?..];
        restored += 1;
    }
    assert!((2000..DOCUMENTS).contains(&restored), "{restored}");
    let missing = format!("; {} documents are damaged and left out", DOCUMENTS - restored);
    assert!(said.contains(&missing), "{said}");
    assert!(scratch.path("dump/shop/users.bson").exists(), "the collection behind it is there");

    let check = handfast(&scratch, &["check", "--data", "data"]).output()?;
    assert_eq!(check.status.code(), Some(3));
    let said = String::from_utf8(check.stdout)?;
    assert!(said.contains("found: shop.orders: documents between _id"), "{said}");
    assert!(said.contains("to do: restore a backup; what can be read"), "{said}");
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
    assert!(said.contains("to do: --repair takes what is there"), "{said}");
    let repair = handfast(&scratch, &["check", "--data", "data", "--repair"]).output()?;
    assert_eq!(repair.status.code(), Some(3), "{repair:?}");
    let said = String::from_utf8(repair.stdout)?;
    assert!(said.contains("whether synced ones were behind it nobody can tell"), "{said}");
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
    assert!(code == Some(3) && said.contains("to do: --repair writes FORMAT anew"), "{said}");
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

/// The program where the data directory cannot be written to.
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
        // Root may write anywhere: run as nobody.
        std::fs::remove_file(data.join("probe"))?;
        command.uid(65534).gid(65534);
    }
    Ok(command)
}

#[test]
fn a_directory_that_cannot_be_written_to_is_one_line_that_says_what_to_do() -> Result<()> {
    let scratch = with_data_files("read-only")?;
    for arguments in [&["check"][..], &["dump", "--to", "t"], &["backup", "--to", "t"]] {
        let output = read_only(&scratch, &[arguments, &["--data", "data"]].concat())?.output()?;
        assert_one_line(&output, 1, "the directory data cannot be written to (");
        assert_one_line(&output, 1, "; copy it to where this user may write, and name the copy with --data");
        assert!(!scratch.path("t").exists());
    }
    Ok(())
}
