//! The opening and refusal of directories.

use std::fs;
use std::path::Path;

use handfast_store::CommitTimestamp;

use super::witness::Witness;
use super::{ENGINE, FORMAT_FILE, LOCK_FILE, WITNESS_FILE, lock, open, parents_to_sync};
use crate::Options;
use crate::chain::BatchNumbers;
use crate::engine::Engine;
use crate::error::Error;

fn refused(path: &Path) -> Error {
    match lock(path).and_then(|directory| open(&directory, &Options::small())) {
        Ok(_) => panic!("the directory was opened"),
        Err(error) => error,
    }
}

/// Writes some batches into a store.
fn fill(path: &Path, batches: u64) {
    let directory = lock(path).unwrap();
    let mut opened = open(&directory, &Options::small()).unwrap();
    for _ in 0..batches {
        opened.chain.apply(&opened.engine, CommitTimestamp::default(), Vec::new()).unwrap();
        opened.engine.sync().unwrap();
        opened.witness.record(opened.chain.numbers()).unwrap();
    }
}

/// Opens a store, and returns the number of its last batch.
fn last_number(path: &Path) -> u64 {
    open(&lock(path).unwrap(), &Options::small()).unwrap().chain.last.number
}

fn batch(number: u64) -> BatchNumbers {
    BatchNumbers { number, sequence: 100 + number }
}

#[test]
fn a_directory_without_a_store_is_refused_and_left_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("thesis.tex"), "important").unwrap();
    assert!(matches!(refused(directory.path()), Error::NotAStore { .. }));
    let left: Vec<_> = fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["thesis.tex"]);
}

#[test]
fn only_its_owner_may_read_a_new_directory() {
    use std::os::unix::fs::PermissionsExt as _;

    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("new");
    drop(lock(&path).unwrap());
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
}

#[test]
fn a_newer_format_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    fill(directory.path(), 1);
    fs::write(directory.path().join(FORMAT_FILE), "handfast embedded store, format 2\n").unwrap();
    fs::write(directory.path().join(WITNESS_FILE), "as that version has it").unwrap();
    let error = refused(directory.path());
    assert!(matches!(error, Error::NewerFormat { found: 2, known: 1, .. }), "{error}");
    assert!(error.to_string().contains("use a newer handfast"), "{error}");
}

#[test]
fn a_format_file_with_other_text_is_damage() {
    let directory = tempfile::tempdir().unwrap();
    fill(directory.path(), 1);
    fs::write(directory.path().join(FORMAT_FILE), "handfast embedded store, fXrmat 1\n").unwrap();
    assert!(matches!(refused(directory.path()), Error::Damaged { .. }));
}

#[test]
fn the_error_of_a_second_lock_names_the_first_process() {
    let directory = tempfile::tempdir().unwrap();
    let first = lock(directory.path()).unwrap();
    let Err(error) = lock(directory.path()) else { panic!("locked twice") };
    assert!(matches!(error, Error::InUse { holder: Some(pid), .. } if pid == std::process::id()), "{error}");
    assert!(error.to_string().contains(&directory.path().display().to_string()), "{error}");
    drop(first);
    lock(directory.path()).unwrap();
}

#[test]
fn an_incomplete_engine_is_created_again() {
    let directory = tempfile::tempdir().unwrap();
    drop(lock(directory.path()).unwrap());
    fs::create_dir_all(directory.path().join("engine.new/keyspaces/1")).unwrap();
    fill(directory.path(), 3);
    assert_eq!(last_number(directory.path()), 3);
}

#[test]
fn synced_batches_missing_from_the_end_are_damage() {
    let directory = tempfile::tempdir().unwrap();
    fill(directory.path(), 5);
    // An earlier copy of the journal is valid, but too short.
    let journal = directory.path().join(ENGINE).join("0.jnl");
    let old = fs::read(&journal).unwrap();
    fill(directory.path(), 5);
    fs::write(&journal, old).unwrap();
    let error = refused(directory.path());
    assert!(matches!(&error, Error::Damaged { what, .. } if what.contains("batch 10 was synced")), "{error}");
}

#[test]
fn a_torn_end_is_cut_and_the_rest_is_kept() {
    let directory = tempfile::tempdir().unwrap();
    fill(directory.path(), 5);
    let journal = directory.path().join(ENGINE).join("0.jnl");
    let mut bytes = fs::read(&journal).unwrap();
    let end = bytes.iter().rposition(|&byte| byte != 0).unwrap() + 1;
    // The beginning of a batch that was being written when the machine stopped.
    bytes.truncate(end);
    bytes.extend([1, 2, 0, 0, 0, 99, 0, 0, 0]);
    fs::write(&journal, bytes).unwrap();
    assert_eq!(last_number(directory.path()), 5);
}

#[test]
fn a_map_that_lost_its_current_file_is_damage() {
    for map in 0..4 {
        let directory = tempfile::tempdir().unwrap();
        fill(directory.path(), 1);
        let map_directory = directory.path().join(ENGINE).join(format!("keyspaces/{map}"));
        fs::remove_file(map_directory.join("current")).unwrap();
        assert!(matches!(refused(directory.path()), Error::Damaged { .. }));
        assert!(map_directory.exists(), "the engine would have removed it");
    }
}

#[test]
fn a_missing_engine_is_damage() {
    let directory = tempfile::tempdir().unwrap();
    fill(directory.path(), 2);
    fs::remove_dir_all(directory.path().join(ENGINE)).unwrap();
    assert!(matches!(refused(directory.path()), Error::Damaged { .. }));
}

#[test]
fn a_witness_survives_a_torn_write() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(WITNESS_FILE);
    Witness::create(&path).unwrap();
    let mut witness = Witness::open(&path).unwrap();
    assert_eq!(witness.synced(), BatchNumbers::default());
    for number in [7, 8, 9] {
        witness.record(batch(number)).unwrap();
    }
    assert_eq!(Witness::open(&path).unwrap().synced(), batch(9));
    let whole = fs::read(&path).unwrap();
    let half = whole.len() / 2;
    let slots = (0..32).chain(half..half + 32);
    for byte in slots.chain([40, half - 1, whole.len() - 1]) {
        let mut torn = whole.clone();
        torn[byte] ^= 0x10;
        fs::write(&path, &torn).unwrap();
        let mut witness = Witness::open(&path).unwrap();
        let known = witness.synced();
        assert!([batch(8), batch(9)].contains(&known), "byte {byte}: {known:?}");
        // Later writes succeed.
        witness.record(batch(10)).unwrap();
        assert_eq!(Witness::open(&path).unwrap().synced(), batch(10), "byte {byte}");
    }
}

/// Damages a witness in one of several ways.
fn spoil_witness(path: &Path, how: usize) {
    let bytes = fs::read(path).unwrap();
    match how {
        0 => fs::remove_file(path).unwrap(),
        1 => fs::write(path, b"").unwrap(),
        2 => fs::write(path, &bytes[..bytes.len() / 2]).unwrap(),
        3 => fs::write(path, &bytes[..bytes.len() - 1]).unwrap(),
        4 => fs::write(path, vec![0; bytes.len()]).unwrap(),
        _ => {
            fs::remove_file(path).unwrap();
            fs::create_dir(path).unwrap();
        }
    }
}

#[test]
fn an_unreadable_witness_is_damage() {
    for how in 0..6 {
        let directory = tempfile::tempdir().unwrap();
        fill(directory.path(), 2);
        spoil_witness(&directory.path().join(WITNESS_FILE), how);
        let error = refused(directory.path());
        assert!(matches!(error, Error::Damaged { .. }), "{how}: {error}");
        assert!(error.to_string().contains("the file witness"), "{error}");
        assert!(error.to_string().contains("handfast check"), "{error}");
    }
}

#[test]
fn the_witness_is_created_before_the_store() {
    let directory = tempfile::tempdir().unwrap();
    // Without the witness no store is created.
    fs::create_dir(directory.path().join(WITNESS_FILE)).unwrap();
    assert!(matches!(refused(directory.path()), Error::Io { .. }));
    assert!(!directory.path().join(FORMAT_FILE).exists());
}

#[test]
fn a_crash_during_creation_leaves_a_directory_that_can_be_opened() {
    let whole = tempfile::tempdir().unwrap();
    fill(whole.path(), 0);
    let content = |name: &str| fs::read(whole.path().join(name)).unwrap();
    let (witness, format) = (content(WITNESS_FILE), content(FORMAT_FILE));
    let states: [&[(&str, &[u8])]; 8] = [
        &[],
        &[(LOCK_FILE, b"")],
        &[(LOCK_FILE, b"1\n"), (WITNESS_FILE, b"")],
        &[(LOCK_FILE, b"1\n"), (WITNESS_FILE, &witness[..100])],
        &[(LOCK_FILE, b"1\n"), (WITNESS_FILE, &witness)],
        &[(LOCK_FILE, b"1\n"), (WITNESS_FILE, &witness), ("FORMAT.new", &format[..5])],
        &[(LOCK_FILE, b"1\n"), (WITNESS_FILE, &witness), (FORMAT_FILE, &format)],
        &[(LOCK_FILE, b"1\n"), (WITNESS_FILE, &witness), (FORMAT_FILE, &format), ("engine.new", b"")],
    ];
    for (number, state) in states.into_iter().enumerate() {
        let directory = tempfile::tempdir().unwrap();
        for (name, content) in state {
            match *name {
                "engine.new" => fs::create_dir(directory.path().join(name)).unwrap(),
                _ => fs::write(directory.path().join(name), content).unwrap(),
            }
        }
        fill(directory.path(), 2);
        assert_eq!(last_number(directory.path()), 2, "state {number}");
        assert_eq!(Witness::open(&directory.path().join(WITNESS_FILE)).unwrap().synced().number, 2);
    }
}

#[test]
fn a_lost_format_file_is_damage() {
    let directory = tempfile::tempdir().unwrap();
    fill(directory.path(), 2);
    fs::remove_file(directory.path().join(FORMAT_FILE)).unwrap();
    for lost in ["nothing else", WITNESS_FILE] {
        let _ = fs::remove_file(directory.path().join(lost));
        let error = refused(directory.path());
        assert!(matches!(&error, Error::Damaged { what, .. } if what.contains("FORMAT is missing")), "{error}");
    }
    assert!(!directory.path().join(FORMAT_FILE).exists(), "it is not made anew by itself");
}

#[test]
fn a_flipped_bit_in_the_version_is_damage_and_no_newer_version() {
    let directory = tempfile::tempdir().unwrap();
    fill(directory.path(), 1);
    fs::write(directory.path().join(FORMAT_FILE), "handfast embedded store, format 3\n").unwrap();
    assert!(matches!(refused(directory.path()), Error::Damaged { .. }), "the witness knows better");
}

#[test]
fn the_parents_of_all_new_directories_are_synced() {
    let directory = tempfile::tempdir().unwrap();
    let (a, b) = (directory.path().join("a"), directory.path().join("a/b"));
    assert_eq!(parents_to_sync(&b.join("c")), [b.clone(), a, directory.path().to_owned()]);
    assert_eq!(parents_to_sync(Path::new("new")), [Path::new(".")]);
    lock(&b.join("c")).unwrap();
    assert_eq!(parents_to_sync(&b.join("c")), [b]);
}

/// Opens a store with batches after the last synced one, the first of which did not reach the disk completely. Returns the number of
/// its last batch.
fn torn_among_unsynced(synced: u64, noted: u64) -> Result<u64, Error> {
    let directory = tempfile::tempdir().unwrap();
    fill(directory.path(), synced);
    let witness = fs::read(directory.path().join(WITNESS_FILE)).unwrap();
    let journal = directory.path().join(ENGINE).join("0.jnl");
    let end = |bytes: &[u8]| bytes.iter().rposition(|&byte| byte != 0).unwrap() + 1;
    let torn = end(&fs::read(&journal).unwrap()) + 30;
    fill(directory.path(), 3);
    let mut bytes = fs::read(&journal).unwrap();
    assert!(torn + 30 < end(&bytes));
    bytes[torn..torn + 10].fill(0);
    fs::write(&journal, bytes).unwrap();
    if noted == synced {
        fs::write(directory.path().join(WITNESS_FILE), witness).unwrap();
    }
    lock(directory.path())
        .and_then(|directory| open(&directory, &Options::small()))
        .map(|opened| opened.chain.last.number)
}

#[test]
fn unsynced_batches_that_reached_the_disk_out_of_order_are_cut() {
    assert_eq!(torn_among_unsynced(5, 5).unwrap(), 5);
    assert!(matches!(torn_among_unsynced(5, 8).unwrap_err(), Error::Damaged { .. }), "these were synced");
}
