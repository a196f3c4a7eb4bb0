//! The store that the settings ask for.

use anyhow::{anyhow, ensure};
use handfast_embedded::{EmbeddedStore, Options};
use handfast_store::Sources;

use crate::configuration::Settings;

/// Opens the data directory, or makes it.
pub(crate) async fn open(settings: &Settings, sources: Sources) -> anyhow::Result<EmbeddedStore> {
    Ok(EmbeddedStore::open(&settings.data, bounded(sources, settings), options(settings)).await?)
}

/// Opens the data directory to look at what is there: it must exist, and nothing expires.
pub(crate) async fn open_existing(settings: &Settings, sources: Sources) -> anyhow::Result<EmbeddedStore> {
    must_exist(settings)?;
    let options = Options { expiry_interval: None, ..options(settings) };
    Ok(EmbeddedStore::open_existing(&settings.data, sources, options).await?)
}

/// What one stage of a query may hold comes to every evaluation with time and chance.
fn bounded(sources: Sources, settings: &Settings) -> Sources {
    sources.with_stage_bytes(usize::try_from(settings.sort_bytes.0).unwrap_or(usize::MAX))
}

/// Fails if there is no data directory.
pub(crate) fn must_exist(settings: &Settings) -> anyhow::Result<()> {
    let data = &settings.data;
    let what = "choose another directory with --data";
    let metadata = std::fs::metadata(data)
        .map_err(|error| anyhow!("cannot read the data directory {}: {error}; {what}", data.display()))?;
    ensure!(metadata.is_dir(), "{} is no directory; {what}", data.display());
    Ok(())
}

/// What the settings say about the engine.
pub(crate) fn options(settings: &Settings) -> Options {
    Options {
        cache_bytes: settings.cache_bytes.0,
        write_buffer_bytes: settings.write_buffer_bytes.0,
        journal_bytes_max: settings.journal_bytes.0,
        snapshot_bytes_max: settings.snapshot_bytes.0,
        expiry_interval: Some(settings.expiry_interval.0),
        ..Options::default()
    }
}
