//! `handfast dump` and `handfast restore`: how they start, and what they report.

use handfast_embedded::must_be_outside;
use handfast_store::Sources;
use serde::Serialize;

use crate::advice::Advised;
use crate::arguments::{DumpArguments, RestoreArguments};
use crate::configuration::Settings;
use crate::console::{Console, write_remark};
use crate::dump::{self, Damaged, Dumped, Restored, Totals};
use crate::exit::Exit;
use crate::store;

/// How to go on with a restore that could not go on.
const AGAIN: &str = "run it again when that is mended: documents that are in already are refused and counted, unless \
                     --drop drops their collections first; --database and --collection name what is left";

/// How to go on with one that somebody stopped.
const GO_ON: &str = "run it again to go on: documents that are in already are refused and counted, unless --drop drops \
                     their collections first; --database and --collection name what is left";

/// What a dump wrote and what it could not, for programs.
#[derive(Serialize)]
struct DumpReport {
    #[serde(flatten)]
    dumped: Dumped,
    /// Documents that were counted and are not in the dump.
    documents_missing: u64,
}

pub(super) async fn dump(settings: &Settings, arguments: &DumpArguments, console: Console) -> anyhow::Result<Exit> {
    store::must_exist(settings)?;
    must_be_outside(&settings.data, &arguments.to)?;
    let store = store::open_existing(settings, Sources::system()?).await?;
    let chosen = dump::find_collections(&store, &arguments.selection).await?;
    let length = dump::count_documents(&store, &chosen).await?;
    let progress = console.progress("dump", "documents", length);
    let damaged = if arguments.skip_damaged { Damaged::Skip(&store) } else { Damaged::Refuse };
    let dumped = dump::dump(&store, damaged, &arguments.to, arguments.format, &chosen, &progress).await?;
    progress.finish_and_clear();
    store.close().await?;
    let Dumped { totals, skipped } = dumped;
    let documents_missing = match skipped {
        0 => 0,
        _ => length.saturating_sub(totals.documents),
    };
    let text = || match skipped {
        0 => done("dumped", &totals),
        _ => format!("{}; {}", done("dumped", &totals), left_out(documents_missing)),
    };
    console.report(text, &DumpReport { dumped, documents_missing })?;
    Ok(if skipped == 0 { Exit::Good } else { Exit::GuaranteeBroken })
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
    let mut restored = UntilStopped(Some(Restored::default()));
    let result = dump::restore(&store, &sources, arguments.drop, restored.get(), &progress).await;
    progress.finish_and_clear();
    let restored = restored.0.take().unwrap_or_default();
    let closed = store.close().await;
    let outcome = result.map_err(|error| {
        let unsure = if closed.is_err() { "; the last of it may not be on the disk" } else { "" };
        error.context(Advised { what: format!("broken off: {restored}{unsure}"), advice: AGAIN })
    })?;
    closed?;
    let report = outcome.report();
    console.report(|| done("restored", &report.totals), &report)?;
    outcome.totals()?;
    Ok(Exit::Good)
}

/// Says how far a restore is when it is dropped because somebody asked to stop.
struct UntilStopped(Option<Restored>);

impl UntilStopped {
    fn get(&mut self) -> &mut Restored {
        self.0.get_or_insert_default()
    }
}

impl Drop for UntilStopped {
    fn drop(&mut self) {
        if let Some(restored) = &self.0 {
            write_remark(&format!("broken off: {restored}; {GO_ON}"));
        }
    }
}

/// How many documents are not in a dump that met damage.
fn left_out(missing: u64) -> String {
    match missing {
        0 => "none is left out: what is damaged was found elsewhere too".to_owned(),
        _ => format!("{missing} documents are damaged and left out"),
    }
}

fn done(what: &str, totals: &Totals) -> String {
    let Totals { collections, indexes, documents, bytes } = totals;
    format!("{what} {documents} documents ({bytes} bytes) and {indexes} indexes of {collections} collections")
}
