//! The commands, one file each. A command takes its arguments and returns how it ended.

mod config;
mod documents;

use clap::ArgMatches;

use crate::arguments::{Command, CommonFlags, SettingFlags};
use crate::configuration::{Configuration, Given, Mistake};
use crate::console::Console;
use crate::exit::Exit;

/// Runs a command. `matches` are those of the subcommand: they know which value came from the environment.
pub(crate) fn run(command: Command, matches: &ArgMatches) -> anyhow::Result<Exit> {
    match command {
        Command::Config(arguments) => {
            let configuration = load_all(&arguments.common, &arguments.settings, matches)?;
            config::run(&configuration, Console::new(&arguments.common))
        }
        Command::Completions { shell } => documents::completions(shell),
        Command::Man { directory } => documents::manual_pages(&directory),
    }
}

/// The configuration of a command that takes all settings.
fn load_all(common: &CommonFlags, flags: &SettingFlags, matches: &ArgMatches) -> Result<Configuration, Mistake> {
    let SettingFlags { store, server, log } = flags;
    let mut given = Given::default();
    given.add(store, matches)?;
    given.add(server, matches)?;
    given.add(log, matches)?;
    Configuration::load(common.config.as_deref(), given)
}
