//! `handfast dump` and `handfast restore`: how they start, and what they report.

use handfast_store::Sources;

use crate::arguments::{DumpArguments, RestoreArguments};
use crate::configuration::Settings;
use crate::console::Console;
use crate::dump::{self, Totals};
use crate::exit::Exit;
use crate::store;

pub(super) async fn dump(settings: &Settings, arguments: &DumpArguments, console: Console) -> anyhow::Result<Exit> {
    let store = store::open_existing(settings, Sources::system()?).await?;
    let chosen = dump::find_collections(&store, &arguments.selection).await?;
    let length = dump::count_documents(&store, &chosen).await?;
    let progress = console.progress("dump", "documents", length);
    let totals = dump::dump(&store, &arguments.to, arguments.format, &chosen, &progress).await?;
    progress.finish_and_clear();
    store.close().await?;
    report(console, "dumped", &totals)
}

pub(super) async fn restore(
    settings: &Settings,
    arguments: &RestoreArguments,
    console: Console,
) -> anyhow::Result<Exit> {
    // Before the data directory is made, if it is not there.
    let sources = dump::find_sources(&arguments.from, &arguments.selection)?;
    let store = store::open(settings, Sources::system()?).await?;
    let progress = console.progress("restore", "documents", 0);
    let result = dump::restore(&store, &sources, arguments.drop, &progress).await;
    progress.finish_and_clear();
    store.close().await?;
    report(console, "restored", &result?)
}

fn report(console: Console, done: &str, totals: &Totals) -> anyhow::Result<Exit> {
    let Totals { collections, indexes, documents, bytes } = totals;
    let text =
        || format!("{done} {documents} documents ({bytes} bytes) and {indexes} indexes of {collections} collections");
    console.report(text, totals)?;
    Ok(Exit::Good)
}
