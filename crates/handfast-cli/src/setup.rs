//! Prepares a command: reads its configuration, starts its log, and runs its future until the end or until it is asked to stop.

use std::future::Future;

use anyhow::Context;

use crate::configuration::{Configuration, ExplicitSettings, LogLevel, Mistake, Origin, Settings, unknown_variables};
use crate::console::{Console, write_remark};
use crate::exit::Exit;
use crate::flags::{
    AnyStoreFlags, CommonFlags, CountersStoreFlags, OpenFlags, OutputFlags, ServerStoreFlags, SettingFlags,
};
use crate::logging;
use crate::shutdown::{STOPPING, Shutdown};

/// Writes remarks on variables that look like settings and are none.
pub(crate) fn remark_on_variables(output: OutputFlags) {
    if !output.quiet {
        unknown_variables().iter().for_each(|remark| write_remark(remark));
    }
}

/// Returns the configuration of a command that takes all settings; with `flags_alone` neither those of the environment nor those of a file.
pub(crate) fn load_all(
    common: &CommonFlags,
    flags: &SettingFlags,
    flags_alone: bool,
) -> Result<Configuration, Mistake> {
    if !flags_alone {
        remark_on_variables(common.output);
    }
    let SettingFlags { store, remote, redis, server, port, log } = flags;
    let mut given = ExplicitSettings::default();
    given.add(store)?;
    given.add(remote)?;
    given.add(redis)?;
    given.add(server)?;
    given.add(log)?;
    let configuration = match flags_alone {
        true => Configuration::of_flags(given)?,
        false => Configuration::load(common.config.as_deref(), given)?,
    };
    match *port {
        Some(port) => configuration.with_port(port),
        None => configuration,
    }
    .with_address()
}

/// Returns the settings of a command that opens a data directory, and starts its log.
pub(crate) fn prepare(flags: &OpenFlags) -> Result<(Settings, Console), Mistake> {
    let mut given = ExplicitSettings::default();
    given.add(&flags.store)?;
    given.add(&flags.log)?;
    let configuration = load_quietly(&flags.common, given)?;
    Ok((configuration.settings, Console::new(flags.common.output)))
}

/// Returns the configuration of a command that opens a data directory or servers, and starts its log.
pub(crate) fn prepare_any(flags: &AnyStoreFlags) -> Result<(Configuration, Console), Mistake> {
    let mut given = ExplicitSettings::default();
    given.add(&flags.store)?;
    given.add(&flags.remote)?;
    given.add(&flags.log)?;
    let configuration = load_quietly(&flags.common, given)?;
    Ok((configuration, Console::new(flags.common.output)))
}

/// Returns the configuration of a command that works on view counters, and starts its log.
pub(crate) fn prepare_counters(flags: &CountersStoreFlags) -> Result<(Configuration, Console), Mistake> {
    let mut given = ExplicitSettings::default();
    given.add(&flags.store)?;
    given.add(&flags.remote)?;
    given.add(&flags.redis)?;
    given.add(&flags.log)?;
    let configuration = load_quietly(&flags.common, given)?;
    Ok((configuration, Console::new(flags.common.output)))
}

/// Returns the configuration of a command that works on servers, and starts its log.
pub(crate) fn prepare_server(flags: &ServerStoreFlags) -> Result<(Configuration, Console), Mistake> {
    let mut given = ExplicitSettings::default();
    given.add(&flags.remote)?;
    given.add(&flags.log)?;
    let configuration = load_quietly(&flags.common, given)?;
    Ok((configuration, Console::new(flags.common.output)))
}

/// Reads the configuration, and starts the log at the level of warnings unless a setting says otherwise.
fn load_quietly(common: &CommonFlags, given: ExplicitSettings) -> Result<Configuration, Mistake> {
    remark_on_variables(common.output);
    let configuration = Configuration::load(common.config.as_deref(), given)?;
    let level = match configuration.origin("log-level") {
        Origin::Default => LogLevel::Warn,
        _ => configuration.settings.log_level,
    };
    logging::start(configuration.settings.log_format, level);
    Ok(configuration)
}

pub(crate) fn block_on<F: Future<Output = anyhow::Result<Exit>>>(work: F) -> anyhow::Result<Exit> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start threads")?;
    let result = runtime.block_on(work);
    // The process ends next, without waiting for tasks. A runtime that shuts down drops its tasks one by one, and the driver panics if its
    // pool is dropped before the task that ends its sessions.
    std::mem::forget(runtime);
    result
}

/// Runs a future to the end, or until the first signal: then the future is dropped where it waits, which undoes what is half done.
pub(crate) async fn until_stopped<F: Future<Output = anyhow::Result<Exit>>>(work: F) -> anyhow::Result<Exit> {
    let shutdown = Shutdown::listen(|| write_remark(STOPPING)).context("cannot listen for signals")?;
    tokio::select! {
        result = work => result,
        () = shutdown.requested() => anyhow::bail!("stopped before the end"),
    }
}
