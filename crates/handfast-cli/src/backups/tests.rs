use std::sync::Arc;

use handfast_embedded::EmbeddedStore;
use handfast_mql::Code;
use handfast_server::{Backup as _, BackupName};

use super::Backups;

/// Opens the backups of an empty store, in a directory of their own.
async fn opened() -> (tempfile::TempDir, Backups) {
    let scratch = tempfile::tempdir().unwrap();
    let sources = handfast_store::Sources::seeded(1);
    let options = handfast_embedded::Options::default();
    let store = EmbeddedStore::open(scratch.path().join("data"), sources, options).await.unwrap();
    let directory = scratch.path().to_owned();
    (scratch, Backups { store, directory, turn: Arc::default() })
}

#[tokio::test]
async fn they_are_made_one_after_the_other_and_none_over_another() {
    let (_scratch, backups) = opened().await;
    let name = BackupName::new("monday").unwrap();
    let turn = Arc::clone(&backups.turn).lock_owned().await;
    assert_eq!(backups.back_up(&name).await.unwrap_err().code(), Code::ConflictingOperationInProgress);
    drop(turn);
    assert_eq!(backups.back_up(&name).await.unwrap().documents, 0);
    assert_eq!(backups.back_up(&name).await.unwrap_err().code(), Code::NamespaceExists);
}

#[tokio::test]
async fn what_has_begun_is_finished_although_nobody_waits() {
    let (scratch, backups) = opened().await;
    let name = BackupName::new("monday").unwrap();
    tokio::select! {
        biased;
        _ = backups.back_up(&name) => panic!("an answer at once"),
        () = std::future::ready(()) => {}
    }
    // The holder of the next turn finds the complete backup of the one before.
    let _turn = backups.turn.lock().await;
    assert!(scratch.path().join("monday").exists());
}
