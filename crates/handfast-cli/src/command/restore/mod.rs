//! `handfast restore`: reads a dump into a data directory.

pub(super) mod arguments;
mod progress;
mod read;
mod session_records;
#[cfg(test)]
mod tests;

use handfast_store::Sources;

use self::arguments::RestoreArguments;
use self::progress::RestoreProgress;
use self::read::{find_sources, read_dump};
use super::dump::done;
use crate::advice::Advised;
use crate::configuration::Settings;
use crate::console::{Console, write_remark};
use crate::exit::Exit;
use crate::store;

/// The advice after a restore that failed.
const AGAIN: &str = "repeat the command when the cause is removed: documents that are in already are refused and counted, unless \
                     --drop drops their collections first; --database and --collection name what is left";

/// The advice after a restore that was stopped.
const GO_ON: &str = "repeat the command to continue: documents that are in already are refused and counted, unless --drop drops \
                     their collections first; --database and --collection name what is left";

pub(super) async fn run(settings: &Settings, arguments: &RestoreArguments, console: Console) -> anyhow::Result<Exit> {
    // Before a missing data directory is created.
    let sources = find_sources(&arguments.from, &arguments.selection)?;
    let store = store::open_directory(settings, Sources::system()?).await?;
    let progress = console.progress("restore", "documents", 0);
    let mut restored = UntilStopped(Some(RestoreProgress::default()));
    let result = read_dump(&store, &sources, arguments.drop, restored.get(), &progress).await;
    progress.finish_and_clear();
    let restored = restored.0.take().unwrap_or_default();
    let closed = store.close().await;
    let outcome = result.map_err(|error| {
        let unsure = if closed.is_err() { "; the last documents may not be on the disk" } else { "" };
        error.context(Advised { what: format!("interrupted: {restored}{unsure}"), advice: AGAIN })
    })?;
    closed?;
    let report = outcome.report();
    console.report(|| done("restored", &report.totals), &report)?;
    outcome.totals()?;
    Ok(Exit::Good)
}

/// Reports the progress of a restore when it is dropped because the command was stopped.
struct UntilStopped(Option<RestoreProgress>);

impl UntilStopped {
    fn get(&mut self) -> &mut RestoreProgress {
        self.0.get_or_insert_default()
    }
}

impl Drop for UntilStopped {
    fn drop(&mut self) {
        if let Some(restored) = &self.0 {
            write_remark(&format!("interrupted: {restored}; {GO_ON}"));
        }
    }
}
