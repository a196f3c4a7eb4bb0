//! The commands: a folder each, with its arguments beside what it does. A command returns its exit code.

pub(crate) mod arguments;
mod backup;
mod bank;
mod bench;
mod blackpipe;
mod check;
mod config;
mod counters;
mod documents;
mod dump;
mod jobs;
mod ledger;
mod listen;
mod pattern;
mod ping;
mod restore;
mod serve;
mod sync;
mod transactions;
mod transfer;
mod two_phase;
mod user;
mod versions;

use std::future::pending;

use self::arguments::Command;
use self::check::arguments::CheckSubject;
use self::user::arguments::UserArguments;
use crate::console::Console;
use crate::exit::Exit;
use crate::logging;
use crate::setup::{block_on, load_all, prepare, remark_on_variables, until_stopped};

pub(crate) fn run(command: Command) -> anyhow::Result<Exit> {
    match command {
        Command::Serve(arguments) => {
            let configuration = load_all(&arguments.common, &arguments.settings, arguments.temporary)?;
            logging::start(configuration.settings.log_format, configuration.settings.log_level);
            let console = Console::new(arguments.common.output);
            match arguments.temporary {
                true => serve::run_temporary(configuration, console),
                false => block_on(serve::run(&configuration, pending(), console)),
            }
        }
        Command::Check(arguments) => {
            if let Some(CheckSubject::History(arguments)) = arguments.subject {
                return block_on(until_stopped(check::history(arguments)));
            }
            let (settings, console) = prepare(&arguments.open)?;
            block_on(until_stopped(check::run(&settings, &arguments, console)))
        }
        Command::Dump(arguments) => {
            let (settings, console) = prepare(&arguments.open)?;
            block_on(until_stopped(dump::run(&settings, &arguments, console)))
        }
        Command::Restore(arguments) => {
            let (settings, console) = prepare(&arguments.open)?;
            block_on(until_stopped(restore::run(&settings, &arguments, console)))
        }
        Command::Bank(arguments) => {
            // The parent has printed the remarks already; the processes of its workers do not repeat them.
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
        Command::Ping(arguments) => {
            remark_on_variables(arguments.output);
            block_on(until_stopped(ping::run(&arguments)))
        }
        Command::User(arguments) => {
            let open = match &arguments {
                UserArguments::Add(arguments) => &arguments.open,
                UserArguments::Password(arguments) => &arguments.open,
                UserArguments::Remove(arguments) => &arguments.open,
                UserArguments::AddToken(arguments) => &arguments.open,
                UserArguments::RevokeToken(arguments) => &arguments.open,
                UserArguments::Tokens(arguments) => &arguments.open,
                UserArguments::List(arguments) => &arguments.open,
            };
            let (settings, console) = prepare(open)?;
            block_on(until_stopped(user::run(&settings, &arguments, console)))
        }
        Command::Transfer(arguments) => transfer::run(&arguments),
        Command::Jobs(arguments) => jobs::run(&arguments),
        Command::Ledger(arguments) => ledger::run(&arguments),
        Command::TwoPhase(arguments) => two_phase::run(&arguments),
        Command::Sync(arguments) => sync::run(&arguments),
        Command::Versions(arguments) => versions::run(&arguments),
        Command::Counters(arguments) => counters::run(&arguments),
        Command::Txns(arguments) => transactions::run(&arguments),
        Command::Blackpipe(arguments) => blackpipe::run(arguments),
        Command::Config(arguments) => {
            let configuration = load_all(&arguments.common, &arguments.settings, false)?;
            config::run(&configuration, Console::new(arguments.common.output))
        }
        Command::Completions { shell } => documents::completions(shell),
        Command::Man { directory } => documents::manual_pages(&directory),
    }
}
