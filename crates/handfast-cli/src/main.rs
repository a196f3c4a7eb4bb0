//! The program `handfast`: the only place that knows the server *and* the stores, and puts them together.
//!
//! In reading order: [`command`] has the command line and a folder for each command, [`flags`] what several of them take,
//! [`configuration`] lays flags over environment, file and defaults, [`console`] is all that prints, [`exit`] turns what went wrong into a code, and [`advice`]
//! into what to do.
//!
//! It is not a library: nothing may use it (a test keeps it so), and what it does with documents is in the crates below.

// The help texts are documentation comments, and say `https://example.org` as it is.
#![allow(rustdoc::bare_urls)]

mod advice;
mod backups;
mod command;
mod configuration;
mod console;
mod exit;
mod flags;
mod listing;
mod logging;
mod scratch;
mod service_manager;
mod setup;
mod shutdown;
mod store;
mod unfinished;

use std::process::ExitCode;

use clap::FromArgMatches;
use handfast_http::id;

use crate::command::arguments::{self, Arguments};
use crate::exit::Exit;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // Not `parse()`: the help texts say more than the definitions.
    let matches = arguments::definition().try_get_matches().unwrap_or_else(|error| {
        let _ = error.print();
        if let Some(advice) = advice::about_directory(&error) {
            console::write_remark(&advice);
        }
        std::process::exit(error.exit_code())
    });
    let arguments = Arguments::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    match command::run(arguments.command) {
        Ok(exit) => exit.into(),
        Err(error) => {
            console::write_error(&error);
            Exit::of(&error).into()
        }
    }
}
