//! `handfast backup`: a copy of a data directory, every record verified on the way.

use handfast_embedded::Backup;
use handfast_store::Sources;
use serde_json::json;

use crate::arguments::BackupArguments;
use crate::configuration::Settings;
use crate::console::Console;
use crate::exit::{Exit, Usage};
use crate::store;

pub(super) async fn run(settings: &Settings, arguments: &BackupArguments, console: Console) -> anyhow::Result<Exit> {
    if std::fs::read_dir(&arguments.to).is_ok_and(|mut entries| entries.next().is_some()) {
        return Err(Usage(format!("{} is not empty", arguments.to.display())).into());
    }
    let store = store::open_existing(settings, Sources::system()?).await?;
    let bar = console.progress("backup", "", 0);
    let result = store.backup(&arguments.to).await;
    bar.finish_and_clear();
    store.close().await?;
    let Backup { documents, entries, bytes } = result?;
    let text = || {
        let to = arguments.to.display();
        format!("copied {documents} documents and {entries} index entries ({bytes} bytes) to {to}")
    };
    console.report(text, &json!({ "documents": documents, "entries": entries, "bytes": bytes }))?;
    Ok(Exit::Good)
}
