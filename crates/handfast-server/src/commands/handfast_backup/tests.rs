use std::sync::{Arc, Mutex};

use bson::rawdoc;
use handfast_mql::Code;

use crate::backup::{BackedUp, Backup, BackupName};
use crate::lock::lock;
use crate::options::Options;
use crate::testing::{TestServer, lsid};

/// Records the names of the backups that were requested, and refuses a name that it has already.
#[derive(Debug, Default)]
struct RecordingBackup(Mutex<Vec<String>>);

#[async_trait::async_trait]
impl Backup for RecordingBackup {
    async fn back_up(&self, name: &BackupName) -> handfast_store::Result<BackedUp> {
        let mut names = lock(&self.0);
        if names.iter().any(|known| known == name.as_str()) {
            let text = format!("there is a backup '{name}' already");
            return Err(handfast_store::Error::command(Code::NamespaceExists, text));
        }
        names.push(name.to_string());
        Ok(BackedUp { path: format!("/backups/{name}"), documents: 3, entries: 2, bytes: 1 << 40 })
    }
}

fn with_backups() -> (TestServer, Arc<RecordingBackup>) {
    let backups = Arc::new(RecordingBackup::default());
    let backup = Some(Arc::clone(&backups) as Arc<dyn Backup>);
    (TestServer::in_memory(Options { backup, ..Options::default() }), backups)
}

#[tokio::test]
async fn a_backup_has_the_requested_name() {
    let (mut server, backups) = with_backups();
    let mut client = server.connect();
    let reply = client.run("admin", rawdoc! { "handfastBackup": "monday" }).await;
    let expected = rawdoc! {
        "path": "/backups/monday", "documents": 3, "indexEntries": 2, "bytes": 1_i64 << 40, "ok": 1.0,
    };
    assert_eq!(reply, expected);
    assert_eq!(*lock(&backups.0), ["monday"]);
    let again = client.refused("admin", rawdoc! { "handfastBackup": "monday" }).await;
    assert_eq!(again, (48, "NamespaceExists".to_owned(), "there is a backup 'monday' already".to_owned()));
}

#[tokio::test]
async fn an_invalid_request_makes_no_backup() {
    let (mut server, backups) = with_backups();
    let mut client = server.connect();
    for (command, code) in [
        (rawdoc! { "handfastBackup": "../etc" }, 2),
        (rawdoc! { "handfastBackup": "" }, 2),
        (rawdoc! { "handfastBackup": 1 }, 14),
        (rawdoc! { "handfastBackup": "monday", "to": "/etc" }, 40_415),
    ] {
        assert_eq!(client.refused("admin", command.clone()).await.0, code, "{command:?}");
    }
    assert_eq!(client.refused("d", rawdoc! { "handfastBackup": "monday" }).await.0, 13, "on admin alone");
    let within = rawdoc! {
        "handfastBackup": "monday", "lsid": lsid(1), "txnNumber": 1_i64, "autocommit": false, "startTransaction": true,
    };
    assert_eq!(client.refused("admin", within).await.0, 263);
    assert!(lock(&backups.0).is_empty());
}

#[tokio::test]
async fn a_server_without_a_backup_directory_says_which_flag_sets_it() {
    let mut server = TestServer::transactional();
    let mut client = server.connect();
    let (code, _, text) = client.refused("admin", rawdoc! { "handfastBackup": "monday" }).await;
    assert_eq!(code, 20);
    assert!(text.contains("--backup-directory"), "{text}");
}
