//! The commands, one file each. A command takes its settings and arguments and returns how it ended.

mod backup;
mod check;
mod config;
mod documents;
mod dump;
mod history;
mod serve;
mod user;

use std::future::Future;

use anyhow::Context;

use crate::arguments::{
    AnyStoreFlags, CheckSubject, Command, CommonFlags, OpenFlags, OutputFlags, ServerStoreFlags, SettingFlags,
    UserArguments,
};
use crate::configuration::{Configuration, Given, LogLevel, Mistake, Origin, Settings, unknown_variables};
use crate::console::{Console, write_remark};
use crate::exit::Exit;
use crate::logging;
use crate::shutdown::{STOPPING, Shutdown};
use crate::{bank, bench, pattern, transactions, transfer};

/// Runs a command.
pub(crate) fn run(command: Command) -> anyhow::Result<Exit> {
    match command {
        Command::Serve(arguments) => {
            let configuration = load_all(&arguments.common, &arguments.settings)?;
            logging::start(configuration.settings.log_format, configuration.settings.log_level);
            block_on(serve::run(&configuration, Console::new(arguments.common.output)))
        }
        Command::Check(arguments) => {
            if let Some(CheckSubject::History(arguments)) = arguments.subject {
                return block_on(until_stopped(history::run(arguments)));
            }
            let (settings, console) = prepare(&arguments.open)?;
            block_on(until_stopped(check::run(&settings, &arguments, console)))
        }
        Command::Dump(arguments) => {
            let (settings, console) = prepare(&arguments.open)?;
            block_on(until_stopped(dump::dump(&settings, &arguments, console)))
        }
        Command::Restore(arguments) => {
            let (settings, console) = prepare(&arguments.open)?;
            block_on(until_stopped(dump::restore(&settings, &arguments, console)))
        }
        Command::Bank(arguments) => {
            // The workers of a run are told what they are by the one that has looked already.
            if arguments.child.is_none() {
                remark_on_variables(arguments.output);
            }
            block_on(until_stopped(bank::run(*arguments)))
        }
        Command::Bench(arguments) => block_on(until_stopped(bench::run(&arguments))),
        Command::Backup(arguments) => {
            let (settings, console) = prepare(&arguments.open)?;
            block_on(until_stopped(backup::run(&settings, &arguments, console)))
        }
        Command::User(arguments) => {
            let open = match &arguments {
                UserArguments::Add(arguments) => &arguments.open,
                UserArguments::Password(arguments) => &arguments.open,
                UserArguments::Remove(arguments) => &arguments.open,
                UserArguments::List(arguments) => &arguments.open,
            };
            let (settings, console) = prepare(open)?;
            block_on(until_stopped(user::run(&settings, &arguments, console)))
        }
        Command::Transfer(arguments) => transfer::run(&arguments),
        Command::Jobs(arguments) => pattern::jobs(&arguments),
        Command::Ledger(arguments) => pattern::ledger(&arguments),
        Command::TwoPhase(arguments) => pattern::two_phase(&arguments),
        Command::Sync(arguments) => pattern::sync(&arguments),
        Command::Versions(arguments) => pattern::versions(&arguments),
        Command::Txns(arguments) => transactions::run(&arguments),
        Command::Config(arguments) => {
            let configuration = load_all(&arguments.common, &arguments.settings)?;
            config::run(&configuration, Console::new(arguments.common.output))
        }
        Command::Completions { shell } => documents::completions(shell),
        Command::Man { directory } => documents::manual_pages(&directory),
    }
}

/// Says of which variables nobody should believe that they count.
fn remark_on_variables(output: OutputFlags) {
    if !output.quiet {
        unknown_variables().iter().for_each(|remark| write_remark(remark));
    }
}

/// The configuration of a command that takes all settings.
fn load_all(common: &CommonFlags, flags: &SettingFlags) -> Result<Configuration, Mistake> {
    remark_on_variables(common.output);
    let SettingFlags { store, remote, server, port, log } = flags;
    let mut given = Given::default();
    given.add(store)?;
    given.add(remote)?;
    given.add(server)?;
    given.add(log)?;
    let configuration = Configuration::load(common.config.as_deref(), given)?;
    match *port {
        Some(port) => configuration.with_port(port),
        None => configuration,
    }
    .with_address()
}

/// The settings of a command that opens a data directory, and starts its log.
fn prepare(flags: &OpenFlags) -> Result<(Settings, Console), Mistake> {
    let mut given = Given::default();
    given.add(&flags.store)?;
    given.add(&flags.log)?;
    let configuration = load_quietly(&flags.common, given)?;
    Ok((configuration.settings, Console::new(flags.common.output)))
}

/// The same for a command that opens a data directory or another server.
pub(crate) fn prepare_any(flags: &AnyStoreFlags) -> Result<(Configuration, Console), Mistake> {
    let mut given = Given::default();
    given.add(&flags.store)?;
    given.add(&flags.remote)?;
    given.add(&flags.log)?;
    let configuration = load_quietly(&flags.common, given)?;
    Ok((configuration, Console::new(flags.common.output)))
}

/// The same for a command that works on a server.
pub(crate) fn prepare_server(flags: &ServerStoreFlags) -> Result<(Configuration, Console), Mistake> {
    let mut given = Given::default();
    given.add(&flags.remote)?;
    given.add(&flags.log)?;
    let configuration = load_quietly(&flags.common, given)?;
    Ok((configuration, Console::new(flags.common.output)))
}

/// Reads the configuration and starts the log: of errors, unless somebody asked for more, because the command's own report is
/// enough.
fn load_quietly(common: &CommonFlags, given: Given) -> Result<Configuration, Mistake> {
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
    // The process ends next, and takes along what still runs: whoever asked to stop waits for none of it. A runtime that is shut
    // down drops its tasks one by one, and the driver panics if its pool goes before what says farewell to the server.
    std::mem::forget(runtime);
    result
}

/// Runs to the end, or until somebody asks to stop: then the work is dropped where it waits, which undoes what is
/// half done.
pub(crate) async fn until_stopped<F: Future<Output = anyhow::Result<Exit>>>(work: F) -> anyhow::Result<Exit> {
    let shutdown = Shutdown::listen(|| write_remark(STOPPING)).context("cannot listen for signals")?;
    tokio::select! {
        result = work => result,
        () = shutdown.requested() => anyhow::bail!("stopped before the end"),
    }
}
