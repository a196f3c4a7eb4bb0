//! The check and the repair of damaged files: FORMAT, the witness, the journal.

use std::fs;
use std::path::{Path, PathBuf};

use bson::rawdoc;
use handfast_store::{DocumentStore, Durability, Insert, Sources};

use super::{build, look};
use crate::check::{CheckReport, Finding, Remedy, Repair};
use crate::error::Error;
use crate::testing::{find_all, namespace, open};
use crate::{EmbeddedStore, Options};

/// Builds a store, and returns its directory and its witness.
async fn with_witness() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    build(directory.path()).await;
    let witness = directory.path().join("witness");
    (directory, witness)
}

async fn open_error(path: &Path) -> Error {
    EmbeddedStore::open(path, Sources::seeded(1), Options::small()).await.unwrap_err()
}

fn texts(report: &CheckReport) -> Vec<&str> {
    report.findings.iter().map(|finding| finding.text.as_str()).collect()
}

#[tokio::test]
async fn a_lost_witness_is_found_and_written_again() {
    for spoilt in [None, Some(&b""[..]), Some(&[0; 8192]), Some(&[7; 100])] {
        let (directory, witness) = with_witness().await;
        match spoilt {
            None => fs::remove_file(&witness).unwrap(),
            Some(bytes) => fs::write(&witness, bytes).unwrap(),
        }
        let error = open_error(directory.path()).await;
        assert!(matches!(&error, Error::Damaged { what, .. } if what.contains("the file witness")), "{error}");

        let report = look(directory.path(), Repair::No).await;
        assert!(matches!(&report.findings[..], [Finding { remedy: Remedy::WriteWitness, .. }]), "{report:?}");
        assert!(texts(&report)[0].contains("it is unknown whether synced batches are missing"), "{report:?}");
        assert_eq!(report.documents, 20, "the rest is looked at");
        assert!(matches!(open_error(directory.path()).await, Error::Damaged { .. }), "nothing was repaired");

        let report = look(directory.path(), Repair::Yes).await;
        assert!(report.repaired[0].contains("wrote the witness anew"), "{report:?}");
        assert!(report.repaired[0].contains("later synced batches may be missing"), "{report:?}");
        assert!(look(directory.path(), Repair::No).await.is_clean());
        let store = open(directory.path()).await;
        assert_eq!(find_all(&store).await.len(), 20);
        store.insert(Insert::new(namespace(), vec![rawdoc! { "_id": 20, "a": 20 }])).await.unwrap();
        store.close().await.unwrap();
        assert!(look(directory.path(), Repair::No).await.is_clean());
    }
}

#[tokio::test]
async fn cut_batches_without_a_witness_are_a_finding() {
    let (directory, witness) = with_witness().await;
    let journal = directory.path().join("engine/0.jnl");
    let before = fs::metadata(&journal).unwrap().len();
    let store = open(directory.path()).await;
    store.insert(Insert::new(namespace(), vec![rawdoc! { "_id": 20, "a": 20 }])).await.unwrap();
    store.close().await.unwrap();
    let whole = fs::read(&witness).unwrap();
    for spoilt in [&b""[..], &[], &whole[..4096]] {
        fs::write(&witness, spoilt).unwrap();
        fs::OpenOptions::new().write(true).open(&journal).unwrap().set_len(before).unwrap();
        assert!(!look(directory.path(), Repair::No).await.is_clean(), "a whole batch is gone");
        assert!(matches!(open_error(directory.path()).await, Error::Damaged { .. }));
    }
}

#[tokio::test]
async fn a_torn_journal_without_a_witness_is_a_finding() {
    let (directory, witness) = with_witness().await;
    let journal = directory.path().join("engine/0.jnl");
    let mut bytes = fs::read(&journal).unwrap();
    let end = bytes.iter().rposition(|&byte| byte != 0).unwrap();
    bytes[end] ^= 1;
    fs::write(&journal, &bytes).unwrap();
    fs::remove_file(&witness).unwrap();
    let report = look(directory.path(), Repair::No).await;
    assert!(report.findings.iter().any(|finding| finding.remedy == Remedy::MendJournal), "{report:?}");
    assert_eq!(fs::read(&journal).unwrap(), bytes, "only looked at");
    let report = look(directory.path(), Repair::Yes).await;
    assert!(report.repaired.iter().any(|text| text.contains("dropped")), "{report:?}");
    assert!(report.repaired.iter().any(|text| text.contains("wrote the witness anew")), "{report:?}");
    let report = look(directory.path(), Repair::No).await;
    assert!(report.is_clean(), "{report:?}");
}

#[tokio::test]
async fn a_store_in_memory_durability_has_a_witness_from_the_beginning() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path()).await;
    let insert = Insert::new(namespace(), vec![rawdoc! { "_id": 1 }]);
    store.insert(Insert { durability: Durability::Memory, ..insert }).await.unwrap();
    // A kill leaves the same files: nothing was synced, or everything just now.
    let killed = tempfile::tempdir().unwrap();
    handfast_sim::directory::copy(directory.path(), killed.path()).unwrap();
    store.close().await.unwrap();
    for path in [directory.path(), killed.path()] {
        assert!(look(path, Repair::No).await.is_clean());
        open(path).await.close().await.unwrap();
    }
}

#[tokio::test]
async fn a_backup_has_a_witness_of_its_own() {
    let (directory, _) = with_witness().await;
    let copies = tempfile::tempdir().unwrap();
    let copy = copies.path().join("copy");
    let store = open(directory.path()).await;
    store.backup(&copy).await.unwrap();
    store.close().await.unwrap();
    assert!(look(&copy, Repair::No).await.is_clean());
    let journal = copy.join("engine/0.jnl");
    let bytes = fs::metadata(&journal).unwrap().len();
    let file = fs::OpenOptions::new().write(true).open(&journal).unwrap();
    file.set_len(0).unwrap();
    file.set_len(bytes).unwrap();
    assert!(matches!(open_error(&copy).await, Error::Damaged { .. }), "the witness of the copy knows its batches");
}

#[tokio::test]
async fn a_format_file_is_written_again_if_the_witness_has_the_version() {
    for spoilt in [None, Some("handfast embedded store, format 3\n"), Some("handfast embedded stXre, format 1\n")] {
        let (directory, _) = with_witness().await;
        let format = directory.path().join("FORMAT");
        let whole = fs::read(&format).unwrap();
        match spoilt {
            None => fs::remove_file(&format).unwrap(),
            Some(text) => fs::write(&format, text).unwrap(),
        }
        let report = look(directory.path(), Repair::No).await;
        assert!(matches!(&report.findings[..], [Finding { remedy: Remedy::WriteFormat, .. }]), "{report:?}");
        assert_eq!(report.documents, 20, "the rest is looked at");
        assert!(matches!(open_error(directory.path()).await, Error::Damaged { .. }), "nothing was repaired");
        let report = look(directory.path(), Repair::Yes).await;
        assert!(report.repaired[0].contains("FORMAT"), "{report:?}");
        assert_eq!(fs::read(&format).unwrap(), whole);
        assert!(look(directory.path(), Repair::No).await.is_clean());
    }
}

#[tokio::test]
async fn an_unknown_version_is_not_guessed() {
    let (directory, witness) = with_witness().await;
    fs::remove_file(&witness).unwrap();
    for spoilt in [Some("format ?"), None] {
        let format = directory.path().join("FORMAT");
        match spoilt {
            None => fs::remove_file(&format).unwrap(),
            Some(text) => fs::write(&format, text).unwrap(),
        }
        let report = look(directory.path(), Repair::Yes).await;
        assert!(matches!(&report.findings[..], [Finding { remedy: Remedy::None, .. }]), "{report:?}");
        assert!(texts(&report)[0].contains("the version is unknown"), "{report:?}");
        assert_eq!(report.repaired, Vec::<String>::new());
        assert_eq!(fs::read_to_string(&format).ok().as_deref(), spoilt, "it is left as it is");
    }
}

#[tokio::test]
async fn a_store_that_lost_engine_and_witness_is_not_created_again() {
    let (directory, witness) = with_witness().await;
    fs::remove_file(&witness).unwrap();
    fs::remove_dir_all(directory.path().join("engine")).unwrap();
    let report = look(directory.path(), Repair::Yes).await;
    assert!(matches!(&report.findings[..], [Finding { remedy: Remedy::None, .. }]), "{report:?}");
    assert!(!witness.exists() && !directory.path().join("engine").exists());
}

/// Data files may hold batches from after the offset at which the journal was cut; the next batch follows them.
#[tokio::test]
async fn a_store_whose_journal_was_cut_continues_after_the_batches_of_its_data_files() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options { write_buffer_bytes: 1, ..Options::small() };
    let open = async || EmbeddedStore::open(directory.path(), Sources::seeded(1), options.clone()).await.unwrap();
    let insert = async |store: &EmbeddedStore, n: i32| {
        store.insert(Insert::new(namespace(), vec![rawdoc! { "_id": n }])).await.unwrap();
    };
    let store = open().await;
    let mut documents = 0;
    // The last batch is in a data file.
    while documents < 20 || fs::read_dir(directory.path().join("engine/keyspaces/3/tables")).unwrap().next().is_none() {
        insert(&store, documents).await;
        documents += 1;
    }
    store.close().await.unwrap();
    let journal = directory.path().join("engine/0.jnl");
    let mut bytes = fs::read(&journal).unwrap();
    let end = bytes.iter().rposition(|&byte| byte != 0).unwrap();
    bytes[end / 4] ^= 1;
    fs::write(&journal, bytes).unwrap();
    let report = look(directory.path(), Repair::Yes).await;
    assert!(report.repaired.iter().any(|text| text.contains("dropped")), "{report:?}");
    for n in 0..3 {
        let store = open().await;
        insert(&store, documents + n).await;
        store.close().await.unwrap();
    }
    let report = look(directory.path(), Repair::No).await;
    assert!(report.findings.iter().all(|finding| matches!(finding.remedy, Remedy::Count(_))), "{report:?}");
}
