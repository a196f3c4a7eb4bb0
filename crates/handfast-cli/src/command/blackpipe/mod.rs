//! `handfast blackpipe`: how a program behaves when the network or the server does not work as it should.

pub(super) mod arguments;
mod explore;
mod program;
mod report;
mod selection;
mod server;

use self::arguments::BlackpipeArguments;
use crate::exit::Exit;

/// Runs the command that was asked for.
pub(super) async fn run(arguments: BlackpipeArguments) -> anyhow::Result<Exit> {
    match arguments {
        BlackpipeArguments::Explore(arguments) => explore::run(*arguments).await,
    }
}
