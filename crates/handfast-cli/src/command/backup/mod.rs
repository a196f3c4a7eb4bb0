//! `handfast backup`: copies all data and verifies every record. It copies a directory that no process has open, or asks a running server
//! to copy its own.

pub(super) mod arguments;

use std::path::Path;

use anyhow::{Context, anyhow};
use bson::rawdoc;
use handfast_embedded::{Backup, must_be_outside};
use handfast_mql::Code;
use handfast_server::BackupName;
use handfast_store::{Applied, Error, Sources};
use serde::Deserialize;
use serde_json::json;

use self::arguments::BackupArguments;
use crate::advice::about_login;
use crate::configuration::{ConnectionString, Settings, URI_VARIABLE};
use crate::console::Console;
use crate::exit::{Exit, Usage};
use crate::listing::counted;
use crate::store::Directory;

pub(super) async fn run(settings: &Settings, arguments: &BackupArguments, console: Console) -> anyhow::Result<Exit> {
    let bar = console.progress("backup", "", 0);
    let copied = match (&arguments.to, &arguments.name) {
        (Some(to), _) => of_directory(settings, to).await,
        (None, Some(name)) => of_server(arguments.uri.clone(), name).await,
        (None, None) => Err(Usage("--to DIR or NAME is missing".to_owned()).into()),
    };
    bar.finish_and_clear();
    let Copied { path, documents, entries, bytes } = copied?;
    let text = || {
        let (documents, entries) = (counted(documents, "documents"), counted(entries, "index entries"));
        format!("copied {documents} and {entries} ({bytes} bytes) to {path}")
    };
    console.report(text, &json!({ "documents": documents, "entries": entries, "bytes": bytes, "path": path }))?;
    Ok(Exit::Good)
}

/// The result of a backup, in the format of the server's reply.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Copied {
    path: String,
    documents: u64,
    #[serde(rename = "indexEntries")]
    entries: u64,
    bytes: u64,
}

async fn of_directory(settings: &Settings, to: &Path) -> anyhow::Result<Copied> {
    let directory = Directory::of(settings);
    directory.ensure_exists()?;
    must_be_outside(&settings.data, to)?;
    if std::fs::read_dir(to).is_ok_and(|mut entries| entries.next().is_some()) {
        return Err(Usage(format!("{} is not empty; choose another directory with --to", to.display())).into());
    }
    let store = directory.open_existing(Sources::system()?).await?;
    let result = store.backup(to).await;
    let closed = store.close().await;
    let Backup { documents, entries, bytes } = result?;
    closed?;
    Ok(Copied { path: to.to_string_lossy().into_owned(), documents, entries, bytes })
}

async fn of_server(uri: Option<ConnectionString>, name: &str) -> anyhow::Result<Copied> {
    let (uri, from) = server(uri)?;
    uri.check().map_err(|reason| Usage(format!("{from}: {reason}")))?;
    let name = BackupName::new(name).map_err(|error| Usage(error.message().to_owned()))?;
    let command = rawdoc! { "handfastBackup": name.as_str() };
    match handfast_mongodb::run_admin_command(uri.secret(), command).await {
        Ok(reply) => bson::deserialize_from_slice(reply.as_bytes()).context("the answer of the server is invalid"),
        Err(error) => Err(refusal(error, &uri)),
    }
}

/// Returns the address of the server, and the flag or variable that named it.
fn server(flag: Option<ConnectionString>) -> anyhow::Result<(ConnectionString, &'static str)> {
    if let Some(uri) = flag {
        return Ok((uri, "--uri"));
    }
    match std::env::var(URI_VARIABLE) {
        Ok(uri) => Ok((uri.parse()?, URI_VARIABLE)),
        Err(_) => {
            let text = format!("a running server makes the backup NAME: name the server with --uri or {URI_VARIABLE}");
            Err(Usage(text).into())
        }
    }
}

/// Returns the server's error with advice.
fn refusal(error: Error, uri: &ConnectionString) -> anyhow::Error {
    match (error.code(), error.applied()) {
        (Code::NamespaceExists, _) => Usage(error.message().to_owned()).into(),
        (Code::CommandNotFound, _) => {
            anyhow!("{uri} cannot make backups: it is not Handfast, or its version is too old")
        }
        (_, Applied::Maybe) => {
            anyhow!(error).context(format!("{uri} may continue the backup: its log shows how the backup ended"))
        }
        (_, Applied::No) => match about_login(&error, URI_VARIABLE) {
            Some(advice) => anyhow!("{uri} made no backup: {error}; {advice}"),
            None => anyhow!(error).context(format!("{uri} made no backup")),
        },
    }
}
