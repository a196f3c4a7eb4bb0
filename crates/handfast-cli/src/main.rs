//! The program `handfast`: the only place that knows the server *and* the stores, and puts them together.
//!
//! In reading order: [`arguments`] is the command line, [`configuration`] lays it over environment, file and defaults,
//! [`command`] has a file for each command, [`console`] is all that prints, [`exit`] turns what went wrong into a code.
//!
//! It is not a library: nothing may use it (a test keeps it so), and what it does with documents is in the crates below.

mod arguments;
mod bank;
mod bench;
mod command;
mod configuration;
mod console;
mod dump;
mod exit;
mod logging;
mod scratch;
mod shutdown;
mod store;

use std::process::ExitCode;

use clap::FromArgMatches;

use crate::arguments::Arguments;
use crate::exit::Exit;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // Not `parse()`: the matches know which values came from the environment.
    let matches = arguments::definition().get_matches();
    let arguments = Arguments::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let empty = clap::ArgMatches::default();
    let matches = matches.subcommand().map_or(&empty, |(_, matches)| matches);
    match command::run(arguments.command, matches) {
        Ok(exit) => exit.into(),
        Err(error) => {
            console::write_error(&error);
            Exit::of(&error).into()
        }
    }
}
