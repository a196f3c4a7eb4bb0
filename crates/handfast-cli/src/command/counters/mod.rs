//! `handfast counters`: serves view counters over HTTP, checks and shows them, and moves their figures.

pub(super) mod arguments;
mod data_arguments;
mod export;
mod figures;
mod flags;
mod import;
mod input;
mod listen;
pub(super) mod opened_counters;
mod repair;
mod report;
mod serve;
mod server_documents;
mod service_options;
mod tokens;

use anyhow::Result;

use self::arguments::CountersArguments;
use self::flags::{CountersFlags, Parsed, TimeZoneFlag};
use self::opened_counters::{OpenedCounters, ensure_totals_known};
use crate::configuration::Configuration;
use crate::console::Console;
use crate::exit::Exit;
use crate::setup::{block_on, prepare_counters, until_stopped};

pub(super) fn run(arguments: &CountersArguments) -> Result<Exit> {
    match arguments {
        CountersArguments::Serve(arguments) => {
            let (configuration, console) = prepare_counters(&arguments.counters.open)?;
            block_on(serve::run(&configuration, arguments, console))
        }
        CountersArguments::Verify { counters, kind } => with_counters(counters, None, async |opened, console| {
            report::verify(opened, kind.as_ref().map(|kind| &kind.0), console).await
        }),
        CountersArguments::Top { counters, kind, day, limit } => {
            with_counters(counters, None, async |opened, console| {
                report::top(opened, &kind.0, day.as_ref().map(|day| day.0), *limit, console).await
            })
        }
        CountersArguments::Show { counters, days, item, from, to } => {
            with_counters(counters, Some(days), async |opened, console| {
                let day = |day: &Option<Parsed<_>>| day.as_ref().map(|day| day.0);
                report::show(opened, &item.0, day(from), day(to), console).await
            })
        }
        CountersArguments::Import(arguments) => {
            let (configuration, console) = prepare_counters(&arguments.counters.open)?;
            block_on(until_stopped(import::run(&configuration, arguments, console)))
        }
        CountersArguments::Export(arguments) => with_counters(&arguments.counters, None, async |opened, console| {
            export::run(opened, arguments, console).await
        }),
        CountersArguments::Rebuild(arguments) => {
            let (configuration, console) = prepare_counters(&arguments.counters.open)?;
            if !arguments.dry_run {
                ensure_totals_known(&configuration, "rebuild")?;
            }
            with_opened(&configuration, &arguments.counters, None, console, async |opened, console| {
                let kind = arguments.kind.as_ref().map(|kind| &kind.0);
                repair::rebuild(opened, kind, arguments.dry_run, console).await
            })
        }
        CountersArguments::Trim(arguments) => {
            with_counters(&arguments.counters, Some(&arguments.days), async |opened, console| {
                repair::trim(opened, arguments.before.0, arguments.dry_run, console).await
            })
        }
    }
}

/// Opens counters that exist, works on them, and closes the store, however the work ended.
fn with_counters(
    flags: &CountersFlags,
    days: Option<&TimeZoneFlag>,
    work: impl AsyncFnOnce(&OpenedCounters, Console) -> Result<Exit>,
) -> Result<Exit> {
    let (configuration, console) = prepare_counters(&flags.open)?;
    with_opened(&configuration, flags, days, console, work)
}

/// Does the same with a configuration that was loaded.
fn with_opened(
    configuration: &Configuration,
    flags: &CountersFlags,
    days: Option<&TimeZoneFlag>,
    console: Console,
    work: impl AsyncFnOnce(&OpenedCounters, Console) -> Result<Exit>,
) -> Result<Exit> {
    block_on(until_stopped(async {
        let opened = OpenedCounters::open_existing(configuration, flags, days).await?;
        let result = work(&opened, console).await;
        opened.close().await?;
        result
    }))
}
