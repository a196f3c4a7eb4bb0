//! Copies of everything, made by what the server was given for it.

use std::sync::Mutex;

use handfast_mql::Code;

use super::*;
use crate::backup::{BackedUp, Backup, BackupName};

/// Remembers what it was asked for; a second copy of a name is refused.
#[derive(Debug, Default)]
struct Asked(Mutex<Vec<String>>);

#[async_trait::async_trait]
impl Backup for Asked {
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

fn with_backups() -> (TestServer, Arc<Asked>) {
    let asked = Arc::new(Asked::default());
    let backup = Some(Arc::clone(&asked) as Arc<dyn Backup>);
    (TestServer::in_memory(Options { backup, ..Options::default() }), asked)
}

#[tokio::test]
async fn a_backup_is_made_under_the_name_that_was_asked_for() {
    let (mut server, asked) = with_backups();
    let mut client = server.connect();
    let reply = client.run("admin", rawdoc! { "handfastBackup": "monday" }).await;
    let expected = rawdoc! {
        "path": "/backups/monday", "documents": 3, "indexEntries": 2, "bytes": 1_i64 << 40, "ok": 1.0,
    };
    assert_eq!(reply, expected);
    assert_eq!(*lock(&asked.0), ["monday"]);
    let again = client.refused("admin", rawdoc! { "handfastBackup": "monday" }).await;
    assert_eq!(again, (48, "NamespaceExists".to_owned(), "there is a backup 'monday' already".to_owned()));
}

#[tokio::test]
async fn what_is_no_name_gets_no_further() {
    let (mut server, asked) = with_backups();
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
    assert!(lock(&asked.0).is_empty());
}

#[tokio::test]
async fn a_server_without_a_place_for_backups_says_how_to_get_one() {
    let mut server = TestServer::transactional();
    let mut client = server.connect();
    let (code, _, text) = client.refused("admin", rawdoc! { "handfastBackup": "monday" }).await;
    assert_eq!(code, 20);
    assert!(text.contains("--backup-directory"), "{text}");
}
